"""Question 3.2: every number format on every Linear layer, and a search over all of them.

All layers take one format, as quantization leaves them. A format without a scale has the places
(fraction widths or exponent biases) of least validation loss on the tuning seed. A search begins
with the single formats, then gives each kind of layer its own. The best of its mixes, and its
rival, the strongest single format of no fewer bits, are judged as quantized and trained on. A few
narrow formats are trained on once.

What is chosen, on the tuning seed and by validation loss, reaches `cases` as parameters: places,
the mix, its rival.

Units: bits per weight; losses in nats; a search's score is a loss and the price of the bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from experiments.lab3_formats import design
from experiments.lab3_formats.placed import PlacedFormat
from experiments.lab3_formats.records import (
    STEM,
    TUNED,
    accurate_formats,
    fp32,
    planned_formats,
    tuning_records,
    untrained,
)
from madl.formats.presets import FAMILIES, PRESETS
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, linear, log, percent, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, computed, exact, percentage
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.searches import rate_rows
from madl.logbook.values import Estimate
from madl.training import baseline

page = Experiment()

ALL = "all formats"
LEAST_DRAWN = 0.35  # of a score
SMOKE_FORMATS = ("binary", "fixed(4,2)", "log(4)", "mxint4", "mxint8")
QUICK_FORMATS = ("fixed(4,2)", "log(4)", "minifloat(6,3)", "mxint4")


def placed(name: str) -> PlacedFormat:
    """A preset with the places that the design gives it: numbers, "best" or none."""
    return PlacedFormat(name, design.PLACES.get(name))


def offer(names: Iterable[str]) -> str:
    """These formats as the text in which a search is offered them."""
    return " ".join(str(placed(name)) for name in names)


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    names = choose(smoke=SMOKE_FORMATS, quick=tuple(PRESETS))
    yield {"part": "fp32", **base, "format": "fp32"}
    for name in names:
        yield {"part": "untrained", **base, **placed(name).params}
    study: Params = {"sampler": design.SAMPLER, "price": design.PRICE, **base}
    trials = len(names) + choose(smoke=3, quick=design.TRIALS)
    over_all = {**study, "trials": trials, "offered": offer(names)}
    yield {"part": "search", "family": ALL, **over_all}
    families = {family.name: [f.name for f in family.formats.values()] for family in FAMILIES}
    for family, members in choose(smoke={"MX integer": ["mxint4"]}, quick=families).items():
        trials = choose(smoke=3, quick=1 + len(members) + design.FAMILY_TRIALS)
        offered = f"fp32 {offer(members)}"
        yield {"part": "search", "family": family, **study, "trials": trials, "offered": offered}
    for choice in design.RATES:
        for rate in choose(smoke=design.RATES_TRIED[:1], quick=design.RATES_TRIED):
            retraining = baseline.retraining_params(plan, rate)
            yield {"part": "trained", "of": choice, **over_all, **retraining}


def judged_format(record: Record) -> PlacedFormat:
    """The format that a record has on all layers, its places in numbers."""
    return PlacedFormat.read(record.values["formats"])


def chosen(r: Records, choice: str) -> str:
    """The text of the mix of the search over all formats, or of its rival, as tuning chose it."""
    return r.of_experiment(TUNED).all(part="trained", of=choice)[0].values["formats"]


def rival_preset(r: Records) -> str:
    return PlacedFormat.read(chosen(r, "rival")).name


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuning = plan.records(TUNED)
    mix, rival = {"mix": chosen(tuning, "mix")}, rival_preset(tuning)
    single = {name: judged_format(record).params for name, record in tuning_records(tuning).items()}
    retraining = {
        choice: {"part": "trained", **baseline.retraining_params(plan, rate)}
        for choice, rate in design.RATES.items()
    }
    for seed in plan.seeds:  # first, so that workers fine-tune side by side
        yield {"part": "fp32", **baseline.drawn_params(plan, seed), "format": "fp32"}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for formats in (*single.values(), mix):
            yield {"part": "untrained", **base, **formats}
        yield {**base, **mix, **retraining["mix"]}
        yield {**base, **single[rival], **retraining["rival"]}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for name in design.TUNED_ONCE:
        if name in single:
            yield {**base, **single[name], **retraining["rival"]}


@page.quick
def quick(params: Params) -> bool:
    first = params["seed"] == CONFIRMING_SEEDS[0]
    return first and params["part"] == "untrained" and params.get("format") in QUICK_FORMATS


def narrowest(r: Records) -> Arm:
    """The models in the narrowest format that keeps FP32's accuracy on validation, as quantized."""
    return untrained(r, accurate_formats(r.tuning)[0])


def contrasts_with_fp32(r: Records) -> dict[str, Contrast]:
    """Every format less FP32."""
    return {name: compare(untrained(r, name), fp32(r)) for name in planned_formats(r)}


def mix(r: Records) -> Arm:
    """The models in the searched mix, as quantized."""
    return arm(r.of_experiment(STEM), "searched mix", part="untrained", mix=chosen(r.tuning, "mix"))


def mix_trained(r: Records) -> Arm:
    return arm(
        r.of_experiment(STEM),
        "searched mix, trained on",
        part="trained",
        mix=chosen(r.tuning, "mix"),
    )


def rival(r: Records) -> Arm:
    """The models in the strongest single format of no fewer bits than the mix, as quantized."""
    return untrained(r, rival_preset(r.tuning))


def rival_trained(r: Records) -> Arm:
    return trained(r, rival_preset(r.tuning))


def trained(r: Records, name: str) -> Arm:
    """The models in a format, trained on for a pass."""
    return arm(
        r.of_experiment(STEM), f"{PRESETS[name].title}, trained on", part="trained", format=name
    )


@page.claim(primary=True)
def narrowest_keeps_accuracy(r: Records) -> Contrast:
    """As quantized, the narrowest format that validation puts at most two points below FP32 is at
    most two points below it on test."""
    return contrasts_with_fp32(r)[accurate_formats(r.tuning)[0]].no_worse(design.MARGIN)


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


def bits_of(a: Arm) -> ExactValue:
    """The mean bits a weight of an arm, with its label in the unit."""
    return exact(a.mean("bits"), a.records, f"bits ({a.label})")


def tuning_share(r: Records, name: str, share: str, *, as_it_comes: bool = False) -> ExactValue:
    """A share from the tuning record of a format: placed, or at the places that the preset has."""
    record = r.tuning.single(part="untrained", format=name)
    values = record.values["as it comes"] if as_it_comes else record.values
    return percentage(values[share], [record])


def searches(r: Records) -> Sequence[Record]:
    return r.tuning.all(part="search")


def search_over_all(r: Records) -> Record:
    return r.tuning.single(part="search", family=ALL)


def best_single(search: Record) -> float:
    """The least score of a search's first trials, each of which has one format for all layers."""
    return min(search.values["scores"][: len(search.case.params["offered"].split())])


def best(search: Record) -> float:
    """The least score of a search's trials."""
    return min(search.values["scores"])


page.numbers(
    fp32=fp32,
    narrowest=narrowest,
    narrowest_bits=lambda r: bits_of(narrowest(r)),
    kept=lambda r: exact(len(accurate_formats(r.tuning)), r.of_experiment(STEM)),
    num_formats=lambda r: exact(len(planned_formats(r)), r.of_experiment(STEM)),
    mix=mix_trained,
    mix_bits=lambda r: exact(round(mix(r).mean("bits"), 1), mix(r).records, "bits"),
    rival=rival_trained,
    rival_quantized=rival,
    rival_bits=lambda r: bits_of(rival(r)),
    mxint4=partial(untrained, preset="mxint4"),
    mxint8=partial(untrained, preset="mxint8"),
    log_8=partial(untrained, preset="log(8)"),
    block_log_8=partial(untrained, preset="block-log(8,8,block=16)"),
    log_4_zeroed=partial(tuning_share, name="log(4)", share="weight_zeroed", as_it_comes=True),
    log_4_placed_zeroed=partial(tuning_share, name="log(4)", share="weight_zeroed"),
    fixed_8=partial(tuning_share, name="fixed(8,4)", share="validation_accuracy"),
    fixed_8_as_it_comes=partial(
        tuning_share, name="fixed(8,4)", share="validation_accuracy", as_it_comes=True
    ),
    ternary=lambda r: trained(r.where(seed=CONFIRMING_SEEDS[0]), "ternary(0.7)"),
    trials=computed(search_over_all, lambda search: search.case.params["trials"]),
    price=computed(search_over_all, lambda search: search.case.params["price"], "nats"),
    searches=computed(searches, len),
    ended_single=computed(searches, lambda xs: sum(best(x) == best_single(x) for x in xs)),
    ahead=computed(search_over_all, lambda x: round(best_single(x) - best(x), 4), "nats"),
    found_at=computed(search_over_all, lambda x: 1 + x.values["scores"].index(best(x))),
)


@page.chart
def accuracy(r: Records) -> Chart:
    records = tuning_records(r.tuning)
    labelled = (accurate_formats(r.tuning)[0], "mxint4", "ternary(0.7)", "log(8)", "mxint8")
    rows: list[Row] = [
        {
            "format": PRESETS[name].title,
            "formats": PRESETS[name].family.group,
            "bits": records[name].values["bits"],
            "validation": records[name].values["validation_accuracy"],
            "test accuracy": untrained(r, name),
            "named": PRESETS[name].title if name in labelled else None,
        }
        for name in planned_formats(r)
    ]
    return Chart(
        rows,
        x=doubling("bits", label="bits per value"),
        y=percent("test accuracy"),
        marks=[level(fp32(r), "FP32"), points("test accuracy", by="formats", text="named")],
    )


LABELLED_ZEROS = ("log(4)", "log(8)", "fixed(8,4)")


@page.chart
def zeros(r: Records) -> Chart:
    """Validation accuracy against weights rounded to zero, by format; placed ones unplaced, too."""
    rows: list[Row] = []
    for name, record in tuning_records(r.tuning).items():
        states = {"": record.values, " as it comes": record.values.get("as it comes")}
        rows += [
            {
                "format": PRESETS[name].title + state,
                "formats": PRESETS[name].family.group,
                "zeroed": values["weight_zeroed"],
                "validation accuracy": values["validation_accuracy"],
                "named": PRESETS[name].title + state if name in LABELLED_ZEROS else None,
            }
            for state, values in states.items()
            if values
        ]
    full = r.tuning.single(part="fp32").values["validation_accuracy"]
    return Chart(
        rows,
        x=percent("weights rounded to zero", column="zeroed"),
        y=percent("validation accuracy"),
        marks=[level(full, "FP32"), points("validation accuracy", by="formats", text="named")],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The least score so far of every search, beside that of the best single format."""
    so_far = {
        str(search.case.params["family"]): list(accumulate(search.values["scores"], min))
        for search in searches(r)
    }
    length = max(map(len, so_far.values()))
    best_score = score(tuning_records(r.tuning)[rival_preset(r.tuning)].values)
    return Chart(
        [
            {"trial": i + 1, **{name: least[i] for name, least in so_far.items() if i < len(least)}}
            for i in range(length)
        ],
        x=log("trial", "trials"),
        y=linear(label="least score so far", unit="nats", limits=(LEAST_DRAWN, 1.0)),
        marks=[
            level(best_score, f"{rival(r).label} for all"),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def score(values: Mapping[str, Any]) -> float:
    """The score of a model in a search: its validation loss and the price of its bits."""
    return values["validation_loss"] + design.PRICE * values["bits"]


@page.table
def by_bits(r: Records) -> Sequence[Row]:
    """A row for each number of bits: of its formats, the one of the least validation loss."""
    records, contrasts = tuning_records(r.tuning), contrasts_with_fp32(r)
    accurate = set(accurate_formats(r.tuning))
    rows: list[Row] = []
    for size in sorted({record.values["bits"] for record in records.values()}):
        peers = [name for name, record in records.items() if record.values["bits"] == size]
        best = min(peers, key=lambda name: records[name].values["validation_loss"])
        rows.append(
            {
                "bits": f"{size:g}",
                "format": PRESETS[best].title,
                "test": untrained(r, best),
                "against FP32": estimate(contrasts[best]),
                "keep FP32, validation": f"{len(accurate.intersection(peers))} of {len(peers)}",
            }
        )
    return rows


def estimate(contrast: Contrast) -> Estimate:
    return contrast.comparison.estimate()


@page.table
def every_format(r: Records) -> Sequence[Row]:
    """A row for each format, the narrow ones first."""
    records, contrasts = tuning_records(r.tuning), contrasts_with_fp32(r)
    return [
        {
            "format": PRESETS[name].title,
            "bits": f"{records[name].values['bits']:g}",
            "places": judged_format(records[name]).at.replace(",", " and "),
            "loss, validation": f"{records[name].values['validation_loss']:.3f}",
            "test": untrained(r, name),
            "against FP32": estimate(contrasts[name]),
        }
        for name in sorted(planned_formats(r), key=lambda name: records[name].values["bits"])
    ]


@page.table
def models(r: Records) -> Sequence[Row]:
    """Accuracy of the formats that are trained on, as quantized and after the training."""
    first = r.where(seed=CONFIRMING_SEEDS[0])
    once = [n for n in planned_formats(r) if n in design.TUNED_ONCE and n != rival_preset(r.tuning)]
    return [
        trained_row(mix(r), mix_trained(r)),
        trained_row(rival(r), rival_trained(r)),
        *(trained_row(untrained(first, name), trained(first, name)) for name in once),
    ]


def trained_row(quantized: Arm, retrained: Arm) -> Row:
    return {
        "format": quantized.label,
        "bits": f"{quantized.mean('bits'):.2f}".rstrip("0").rstrip("."),
        "as quantized": quantized,
        "trained on": retrained,
        "gain": retrained - quantized,
        "models": len(retrained.records),
    }


@page.table
def taken(r: Records) -> Sequence[Row]:
    """The format that the mix of the search over all formats gives each kind of layer."""
    values = search_over_all(r).values
    plain = {"attention.output": "attention's output", "intermediate": "up", "output": "down"}
    return [
        {"layers": plain.get(kind, kind), "format": PRESETS[PlacedFormat.read(text).name].title}
        for kind, text in zip(values["kinds"], values["mix"].split(), strict=True)
    ]


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a pass of training, by rate."""
    trainings: dict[str, Params] = {"searched mix": {"of": "mix"}, rival(r).label: {"of": "rival"}}
    return rate_rows(r.tuning, trainings, "tune_learning_rate")


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS))
