"""Question 3.2: every number format on every Linear layer, and a search over all of them.

All layers take one format, as quantization leaves them; one without a scale stands where validation
loss of the tuning seed is least. A search begins with the single formats, then gives each kind of
layer its own. The best of its mixes and the strongest single format of no fewer bits stand as
quantized and trained on. A few narrow formats are trained on once.

What is chosen, on the tuning seed and by validation loss, reaches `cases` as parameters: places,
the mix, its rival. The rates of training on stand here as constants.

Units: bits per weight; losses in nats; a search's score is a loss and the price of the bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from experiments.lab3_formats.records import (
    MARGIN,
    STEM,
    TUNED,
    fp32,
    keeping,
    planned,
    tuned,
    untrained,
)
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, linear, log, percent, points
from madl.logbook.claims import Contrast, compare, pooled
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.searches import rate_rows
from madl.logbook.stats import Estimate
from madl.training import baseline
from madl.training.families import FAMILIES, NAMES, group_of, name_of

page = Experiment(title="Mixed precision: every number format")

# Where formats without a scale have their values, for weights and for inputs: fixed point where
# question 1.1 puts it, the others of at most 8 bits where a search does. The range of `log(8)` has
# room for all values wherever it stands.
POINTS = {"fixed(4,2)": "5,2", "fixed(8,4)": "8,3", "fixed(16,8)": "13,7"}
PLACED = (
    *("log(4)", "minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)", "minifloat(8,4)"),
    *("minifloat(8,4,nan)", "minifloat(8,5,ieee)", "denormal(4,2)", "denormal(8,4)"),
)
AT = {**POINTS, **dict.fromkeys(PLACED, "best")}
PRICE = 0.02  # nats of validation loss that one bit a weight has to save, in a search
ALL = "all formats"
TRIED = (3e-5, 1e-4, 3e-4, 1e-3)  # rates of training on
RATES = {"mix": 3e-4, "rival": 3e-4}
TIE = 0.01  # nats of validation loss, in which rates tie
NARROW = ("ternary(0.7)", "log(4)", "minifloat(4,2)", "mxfp4-e2m1")  # trained on once
LEAST_DRAWN = 0.35  # of a score
KIN = 0.10  # of accuracy: formats that lose less, on the tuning seed, scatter alike
SMOKE = ("binary", "fixed(4,2)", "log(4)", "mxint4", "mxint8")
QUICK = ("fixed(4,2)", "log(4)", "minifloat(6,3)", "mxint4")


# ---- cases --------------------------------------------------------------------------------------


def trained_at(plan: Plan, rate: float) -> Params:
    return {
        "part": "trained",
        "tune_examples": plan.profile.choose(smoke=32, quick=None),
        "tune_learning_rate": rate,
        "tune_batch_size": 16,
    }


def one(name: str, at: str | None) -> Params:
    """A format for all layers, and where its values lie."""
    return {"format": name, **({"at": at} if at else {})}


def offered(family: Iterable[str]) -> str:
    return " ".join(f"{name}@{AT[name]}" if name in AT else name for name in family)


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    names = choose(smoke=SMOKE, quick=NAMES)
    yield {"part": "fp32", **base, "format": "fp32"}
    for name in names:
        yield {"part": "untrained", **base, **one(name, AT.get(name))}
    study: Params = {"sampler": "tpe", "price": PRICE, **base}
    over_all = {
        "trials": len(names) + choose(smoke=3, quick=300),
        "offered": offered(names),
    } | study
    yield {"part": "search", "family": ALL, **over_all}
    for family, members in choose(smoke={"MX integer": ("mxint4",)}, quick=FAMILIES).items():
        few = {"trials": choose(smoke=3, quick=1 + len(members) + 16), **study}
        yield {"part": "search", "family": family, "offered": f"fp32 {offered(members)}", **few}
    for of in RATES:
        for rate in choose(smoke=TRIED[:1], quick=TRIED):
            yield {"of": of, **over_all, **trained_at(plan, rate)}


def places(tuned: Record) -> str | None:
    """Where a format has its values."""
    return str(tuned.values["formats"]).partition("@")[2] or None


def chosen(r: Records, of: str) -> str:
    """The mix of the search over all formats, or its rival, as it is written."""
    return str(r.of(TUNED).all(part="trained", of=of)[0].values["formats"])


def rival_of(r: Records) -> str:
    """Its preset."""
    return chosen(r, "rival").partition("@")[0]


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    found = plan.records(TUNED)
    every, mix, rival = tuned(found), {"mix": chosen(found, "mix")}, rival_of(found)
    single = {name: one(name, places(record)) for name, record in every.items()}
    for seed in plan.seeds:  # first, so that workers fine-tune side by side
        yield {"part": "fp32", **baseline.drawn_params(plan, seed), "format": "fp32"}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for named in (*single.values(), mix):
            yield {"part": "untrained", **base, **named}
        yield {**base, **mix, **trained_at(plan, RATES["mix"])}
        yield {**base, **single[rival], **trained_at(plan, RATES["rival"])}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for name in NARROW:
        if name in single:
            yield {**base, **single[name], **trained_at(plan, RATES["rival"])}


@page.quick
def quick(params: Params) -> bool:
    first = params["seed"] == CONFIRMING_SEEDS[0]
    return first and params["part"] == "untrained" and params.get("format") in QUICK


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_formats import study

    return study.run(params, ctx)


# ---- arms and claims ----------------------------------------------------------------------------


def narrowest(r: Records) -> Arm:
    """Of the formats that keep FP32's accuracy, the one of the fewest bits."""
    return untrained(r, keeping(r.tuning)[0])


def kin(r: Records) -> list[str]:
    """The formats whose models scatter alike: that lose little on the tuning seed."""
    least = r.tuning.one(part="fp32").values["validation_accuracy"] - KIN
    every = tuned(r.tuning).items()
    return [name for name, one in every if one.values["validation_accuracy"] >= least]


def each_against_fp32(r: Records) -> dict[str, Contrast]:
    return {name: compare(untrained(r, name), fp32(r)) for name in planned(r)}


def against_fp32(r: Records) -> dict[str, Contrast]:
    """Every format less FP32; those that scatter alike share their variance."""
    every = each_against_fp32(r)
    alike = [name for name in kin(r) if name in every]
    return every | dict(zip(alike, pooled([every[name] for name in alike])))


def mix(r: Records) -> Arm:
    """As quantized."""
    return arm(r.of(STEM), "searched mix", part="untrained", mix=chosen(r.tuning, "mix"))


def mix_trained(r: Records) -> Arm:
    return arm(r.of(STEM), "searched mix, trained on", part="trained", mix=chosen(r.tuning, "mix"))


def rival(r: Records) -> Arm:
    """As quantized."""
    return untrained(r, rival_of(r.tuning))


def rival_trained(r: Records) -> Arm:
    return trained(r, rival_of(r.tuning))


def trained(r: Records, name: str) -> Arm:
    return arm(r.of(STEM), f"{name_of(name)}, trained on", part="trained", format=name)


@page.claim(primary=True)
def narrowest_keeps_accuracy(r: Records) -> Contrast:
    """As quantized, the narrowest format that validation puts at most two points below FP32 is at
    most two points below it on test."""
    return against_fp32(r)[keeping(r.tuning)[0]].no_worse(MARGIN)


@page.claim
def narrowest_by_every_scatter(r: Records) -> Contrast:
    """The same with the scatter of all formats pooled, those that guess among them."""
    every = each_against_fp32(r)
    return dict(zip(every, pooled([*every.values()])))[keeping(r.tuning)[0]].no_worse(MARGIN)


@page.claim(primary=True)
def mix_beats_one_format(r: Records) -> Contrast:
    """As quantized, the mix that one search over all formats finds is more accurate than the best
    single format of no fewer bits."""
    return compare(mix(r), rival(r))


@page.claim
def mix_beats_one_format_trained(r: Records) -> Contrast:
    """The same two, both trained on for a pass."""
    return compare(mix_trained(r), rival_trained(r))


@page.claim
def mix_beats_narrowest(r: Records) -> Contrast:
    """As quantized: the mix over the narrowest format that keeps FP32's accuracy on validation."""
    return compare(mix(r), narrowest(r))


@page.claim
def training_on_helps(r: Records) -> Contrast:
    """That single format: trained on for a pass over as quantized."""
    return compare(rival_trained(r), rival(r))


@page.claim
def a_scale_for_each_block_helps(r: Records) -> Contrast:
    """Integers of four bits, as quantized: a power of two for each block over one fraction width
    for weights and one for inputs."""
    return compare(untrained(r, "mxint4"), untrained(r, "fixed(4,2)"))


@page.claim
def steps_beat_powers(r: Records) -> Contrast:
    """Eight bits and a scale for each block, as quantized: integers over powers of two."""
    return compare(untrained(r, "mxint8"), untrained(r, "block-log(8,8,block=16)"))


# ---- numbers ------------------------------------------------------------------------------------


def bits_of(a: Arm) -> Counted:
    """Its size, and its name."""
    return counted(a.mean("bits"), f"bits ({a.label})", of=a.records)


def when_tuned(r: Records, name: str, what: str, *, as_it_comes: bool = False) -> Counted:
    """A share of the tuning model in a format: placed, or at the places that the preset has."""
    record = r.tuning.one(part="untrained", format=name)
    values = record.values["as it comes"] if as_it_comes else record.values
    return counted(round(100 * values[what]), "%", of=[record])


def singles(search: Record) -> list[float]:
    """The scores that it begins with, of one format for all layers each."""
    return search.values["scores"][: len(str(search.case.params["offered"]).split())]


def ended_single(r: Records) -> Counted:
    """The searches that found nothing better than what they begin with."""
    every = r.tuning.all(part="search")
    ended = sum(min(one.values["scores"]) == min(singles(one)) for one in every)
    return counted(ended, of=every)


def ahead(r: Records) -> Counted:
    """By how much the search over all formats is better than what it begins with."""
    one = search_of(r, ALL)
    return counted(round(min(singles(one)) - min(one.values["scores"]), 4), "nats", of=[one])


def found_at(r: Records) -> Counted:
    one = search_of(r, ALL)
    return counted(1 + one.values["scores"].index(min(one.values["scores"])), of=[one])


def search_of(r: Records, family: str) -> Record:
    return r.tuning.one(part="search", family=family)


def of_search(r: Records, what: str, unit: str = "") -> Counted:
    """A parameter of the search over all formats."""
    record = search_of(r, ALL)
    value = record.case.params[what]
    assert isinstance(value, int | float)
    return counted(value, unit, of=[record])


page.numbers(
    fp32=fp32,
    narrowest=narrowest,
    narrowest_bits=lambda r: bits_of(narrowest(r)),
    kept=lambda r: counted(len(keeping(r.tuning)), of=r.of(STEM)),
    num_formats=lambda r: counted(len(planned(r)), of=r.of(STEM)),
    mix=mix_trained,
    mix_bits=lambda r: counted(round(mix(r).mean("bits"), 1), "bits", of=mix(r).records),
    rival=rival_trained,
    rival_quantized=rival,
    rival_bits=lambda r: bits_of(rival(r)),
    mxint4=partial(untrained, preset="mxint4"),
    mxint8=partial(untrained, preset="mxint8"),
    log_8=partial(untrained, preset="log(8)"),
    block_log_8=partial(untrained, preset="block-log(8,8,block=16)"),
    log_4_zeroed=partial(when_tuned, name="log(4)", what="weight_zeroed", as_it_comes=True),
    log_4_placed_zeroed=partial(when_tuned, name="log(4)", what="weight_zeroed"),
    fixed_8=partial(when_tuned, name="fixed(8,4)", what="validation_accuracy"),
    fixed_8_as_it_comes=partial(
        when_tuned, name="fixed(8,4)", what="validation_accuracy", as_it_comes=True
    ),
    ternary=lambda r: trained(r.where(seed=CONFIRMING_SEEDS[0]), "ternary(0.7)"),
    trials=lambda r: of_search(r, "trials"),
    price=lambda r: of_search(r, "price", "nats"),
    searches=lambda r: counted(len(r.tuning.all(part="search")), of=r.tuning.all(part="search")),
    ended_single=ended_single,
    ahead=ahead,
    found_at=found_at,
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def accuracy(r: Records) -> Chart:
    every = tuned(r.tuning)
    named = (keeping(r.tuning)[0], "mxint4", "ternary(0.7)", "log(8)", "mxint8")
    rows: list[Row] = [
        {
            "format": name_of(name),
            "formats": group_of(name),
            "bits": every[name].values["bits"],
            "validation": every[name].values["validation_accuracy"],
            "test accuracy": untrained(r, name),
            "named": name_of(name) if name in named else None,
        }
        for name in planned(r)
    ]
    return Chart(
        rows,
        x=doubling("bits", label="bits per value"),
        y=percent("test accuracy"),
        marks=[level(fp32(r), "FP32"), points("test accuracy", by="formats", text="named")],
    )


@page.chart
def zeros(r: Records) -> Chart:
    """Right after quantization on the tuning seed, placed formats as they come, too."""
    named = {"log(4)": "log 4", "log(8)": "log 8", "fixed(8,4)": "fixed 8"}
    rows: list[Row] = []
    for name, record in tuned(r.tuning).items():
        of = {"": record.values, " as it comes": record.values.get("as it comes")}
        rows += [
            {
                "format": name_of(name) + how,
                "formats": group_of(name),
                "zeroed": found["weight_zeroed"],
                "validation accuracy": found["validation_accuracy"],
                "named": name_of(name) + how if name in named else None,
            }
            for how, found in of.items()
            if found
        ]
    full = r.tuning.one(part="fp32").values["validation_accuracy"]
    return Chart(
        rows,
        x=percent("weights rounded to zero", column="zeroed"),
        y=percent("validation accuracy"),
        marks=[level(full, "FP32"), points("validation accuracy", by="formats", text="named")],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The least score so far of every search, and that of the best single format, no search."""
    searches = {str(one.case.params["family"]): one for one in r.tuning.all(part="search")}
    so_far = {name: list(accumulate(one.values["scores"], min)) for name, one in searches.items()}
    length = max(map(len, so_far.values()))
    return Chart(
        [
            {"trial": i + 1, **{name: of[i] for name, of in so_far.items() if i < len(of)}}
            for i in range(length)
        ],
        x=log("trial", "trials"),
        y=linear(label="least score so far", unit="nats", limits=(LEAST_DRAWN, 1.0)),
        marks=[
            level(score(tuned(r.tuning)[rival_of(r.tuning)].values), f"{rival(r).label} for all"),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def score(values: Mapping[str, Any]) -> float:
    """As a search judges a model."""
    return values["validation_loss"] + PRICE * values["bits"]


@page.table
def by_bits(r: Records) -> Sequence[Row]:
    """A row a size: of its formats, the one of the least validation loss."""
    every, kept, difference = tuned(r.tuning), keeping(r.tuning), against_fp32(r)
    rows: list[Row] = []
    for size in sorted({one.values["bits"] for one in every.values()}):
        near = [name for name, one in every.items() if one.values["bits"] == size]
        best = min(near, key=lambda name: every[name].values["validation_loss"])
        rows.append(
            {
                "bits": f"{size:g}",
                "format": name_of(best),
                "test": untrained(r, best),
                "against FP32": estimate(difference[best]),
                "keep FP32, validation": f"{len(set(near) & set(kept))} of {len(near)}",
            }
        )
    return rows


def estimate(made: Contrast) -> Estimate:
    return made.comparison.estimate(made.comparison.examples or 0)


@page.table
def every_format(r: Records) -> Sequence[Row]:
    """The narrow ones first."""
    every, difference = tuned(r.tuning), against_fp32(r)
    return [
        {
            "format": name_of(name),
            "bits": f"{every[name].values['bits']:g}",
            "places": (places(every[name]) or "").replace(",", " and "),
            "loss, validation": f"{every[name].values['validation_loss']:.3f}",
            "test": untrained(r, name),
            "against FP32": estimate(difference[name]),
        }
        for name in sorted(planned(r), key=lambda name: every[name].values["bits"])
    ]


@page.table
def models(r: Records) -> Sequence[Row]:
    """What is trained on, as quantized and after it, on the same models."""
    rows: list[Row] = []
    for quantized, on in ((mix, mix_trained), (rival, rival_trained)):
        rows.append(trained_row(quantized(r), on(r)))
    first = r.where(seed=CONFIRMING_SEEDS[0])
    for name in planned(r):
        if name in NARROW and name != rival_of(r.tuning):
            rows.append(trained_row(untrained(first, name), trained(first, name)))
    return rows


def trained_row(quantized: Arm, on: Arm) -> Row:
    return {
        "format": quantized.label,
        "bits": f"{quantized.mean('bits'):.2f}".rstrip("0").rstrip("."),
        "as quantized": quantized,
        "trained on": on,
        "gain": on - quantized,
        "models": len(on.records),
    }


@page.table
def taken(r: Records) -> Sequence[Row]:
    """Which kind of layer took which format in the mix of the search over all."""
    found = search_of(r, ALL).values
    said = {"attention.output": "attention's output", "intermediate": "up", "output": "down"}
    return [
        {"layers": said.get(kind, kind), "format": name_of(one.partition("@")[0])}
        for kind, one in zip(found["kinds"], found["mix"].split(), strict=True)
    ]


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a pass of training, by rate."""
    what: dict[str, Params] = {"searched mix": {"of": "mix"}, rival(r).label: {"of": "rival"}}
    return rate_rows(r.tuning, what, "tune_learning_rate")


# How an effect differs from model to model, and from sentence to sentence in the mean over them: of
# 1.1's six bits beside FP32, and of 3.1's mix beside five bits for all, both trained on.
SPREADS = {
    "the narrowest loses nothing": (MARGIN, 0.0043, 0.16),
    "a search gains 2 points": (0.020, 0.0044, 0.14),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS))
