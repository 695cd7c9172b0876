"""Question 3.2: every number format on every Linear layer, and a search over all of them.

All layers take one format. Validation chooses whether the model stays as quantization leaves it or
is trained on in the format, at one of two learning rates; FP32 has the same choice. Formats without
a scale are here once more, moved: with a position for weights and one for inputs, chosen on
validation. A search gives each kind of layer a format of one precision, or of all, or FP32.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from madl.logbook import searches
from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points
from madl.logbook.claims import Contrast, above, compare, pooled
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Records, Row, Values
from madl.logbook.stats import number, per_cent, superscript
from madl.training import baseline, families, format_arms
from madl.training.families import MOVED, NAMES, group_of, has_scale, is_log, short
from madl.training.format_arms import control, once, trained

page = Experiment(title="Mixed precision: every number format", needs=("earlier_baseline",))

STEM = "lab3_formats"
PRICE_PER_BIT = 0.001  # accuracy that one bit a weight has to bring
MARGIN = 0.02  # accuracy that a format may cost: chooses on validation, and tests
FEW = ("binary", "scaled(4,row)", "scaled(8,row)", "fixed(8,4)", "log(4)", "log(8)")
NAMED = ("binary", "ternary(0.7)", "log(8)", "mxint8")  # in the picture, beside the chosen one


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    every = tuple(families.FAMILIES)
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "tune_examples": choose(smoke=32, quick=256),
            "tune_learning_rates": "1e-05 3e-05",
            "tune_batch_size": 8,
        }
        probe = {"probe_examples": choose(smoke=16, quick=128)}
        search = {"sampler": "tpe", "weights": "trained on", "price": PRICE_PER_BIT, **probe}
        space = {"choices": len(families.space(None)), "trials": choose(smoke=2, quick=40)}
        yield {"part": "combined", **space, **search, **base}
        for family in choose(smoke=("binary", "MX integer"), quick=every):
            space = {"choices": len(families.space(family)), "trials": choose(smoke=2, quick=20)}
            yield {"part": "family", "family": family, **space, **search, **base}
        yield {"part": "control", **base}
        for name in choose(smoke=FEW, quick=NAMES):
            yield {"part": "uniform", "format": name, **base}
        for name in choose(smoke=("log(4) moved",), quick=MOVED):
            yield {"part": "moved", "format": name, **probe, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_formats import study

    run = study.searched if params["part"] in ("combined", "family") else study.judged
    return run(baseline.fine_tuned(params, ctx), params, ctx)


# ---- the arms -----------------------------------------------------------------------------------


def strongest(
    r: Records,
    most_bits: float,
    keep: Callable[[str], bool] = lambda name: True,
    *,
    least_bits: float = 0,
) -> Arm:
    """Of the formats of so many bits that `keep` leaves, the one that validation prefers."""
    every = [trained(r, name) for name in format_arms.names(r) if keep(name)]
    return best_of([a for a in every if least_bits <= a.value("bits") <= most_bits])


def good(r: Records) -> list[Arm]:
    """The formats that validation puts at most the margin below FP32; else the best of all."""
    least = control(r).validation - MARGIN
    every = list(once(r).values())
    return [a for a in every if a.validation >= least] or [best_of(every)]


def narrowest(candidates: Sequence[Arm]) -> Arm:
    """Of the fewest bits; of several, the one with the least validation loss."""
    return min(candidates, key=lambda a: (a.value("bits"), a.validation_loss))


def mix(r: Records) -> Arm:
    """What the search over all formats chose, trained on."""
    return arm(r.of(STEM), "searched mix", part="combined")


def one_format(r: Records) -> Arm:
    """For each mix the single format that validation prefers, of at most as many bits, rounded up
    to those of the next format."""
    models: list[Arm] = []
    for model in mix(r).models:
        of = r.where(seed=model.param("seed"))
        sizes = [trained(of, name).value("bits") for name in format_arms.names(of)]
        wider = [bits for bits in sizes if bits >= model.value("bits")]
        models.append(strongest(of, min(wider, default=max(sizes))))
    return replace(models[0], label="one format", records=tuple(a.records[0] for a in models))


def searched(r: Records) -> list[Arm]:
    """The search of each precision.

    Raises:
        Pending: none is planned.
    """
    planned = set(r.of(STEM).each("family"))
    names = [name for name in families.FAMILIES if name in planned]
    if not names:
        raise Pending("family")
    return [arm(r.of(STEM), name, part="family", family=name) for name in names]


def scores(a: Arm) -> list[list[float]]:
    """Of the trials of a search, seed by seed."""
    return [[trial["score"] for trial in trials] for trials in a.each("trials")]


def best_score(a: Arm) -> float:
    """Of a search's best trial, the mean over seeds."""
    return fmean(map(max, scores(a)))


def untrained(a: Arm) -> float:
    """Validation accuracy right after quantization."""
    return fmean(rates["0"]["validation_accuracy"] for rates in a.each("by_rate"))


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def narrowest_keeps_accuracy(r: Records) -> Contrast:
    """The narrowest format that validation puts at most two points below FP32 is at most two
    points below it on test."""
    every, full = list(once(r).values()), control(r)
    made = pooled([compare(a, full).no_worse(MARGIN) for a in every])
    return made[[a.label for a in every].index(chosen(r).label)]


@page.claim(primary=True)
def mix_beats_one_format(r: Records) -> Contrast:
    """What one search over all formats finds is more accurate than the best single format of as
    many bits."""
    return compare(mix(r), one_format(r))


@page.claim
def narrowest_by_its_own_scatter(r: Records) -> Contrast:
    """The narrowest format that passes against FP32, by its own scatter between models alone."""
    return compare(chosen(r), control(r)).no_worse(MARGIN)


@page.claim
def moving_mends_log_4(r: Records) -> Contrast:
    """Powers of two in 4 bits: moved to where weights and inputs lie over where they come."""
    return compare(trained(r, "log(4) moved"), trained(r, "log(4)"))


@page.claim
def others_beat_log_8(r: Records) -> Contrast:
    """At most 8 bits: the best format that is not logarithmic over `log(8)`."""
    return compare(strongest(r, 8, lambda name: not is_log(name)), trained(r, "log(8)"))


@page.claim
def others_beat_log_4(r: Records) -> Contrast:
    """At most 4.5 bits: the best format that is not logarithmic over the best that is."""
    return compare(strongest(r, 4.5, lambda name: not is_log(name)), strongest(r, 4.5, is_log))


@page.claim
def scale_helps_at_8(r: Records) -> Contrast:
    """At 8 to 8.5 bits: the best format with a scale from the data over the best that takes
    neither a scale nor a position from them."""
    as_it_comes = strongest(
        r, 8.5, lambda name: not has_scale(name) and name not in MOVED, least_bits=8
    )
    return compare(strongest(r, 8.5, has_scale, least_bits=8), as_it_comes)


@page.claim
def one_bit_classifies(r: Records) -> Contrast:
    """The best format of one bit over always answering with the larger class."""
    return above(strongest(r, 1), baseline.larger_class(r))


# ---- numbers ------------------------------------------------------------------------------------


def chosen(r: Records) -> Arm:
    return narrowest(good(r))


def bits_of(a: Arm) -> Counted:
    """Its size, and its name."""
    return counted(a.value("bits"), f"bits ({a.label})", of=a.records)


def percents(share: float, a: Arm) -> Counted:
    return counted(round(100 * share), "%", of=a.records)


def zeroed(r: Records, name: str) -> Counted:
    """Share of the weights that a format rounds to zero."""
    a = trained(r, name)
    return percents(a.mean("weight_zeroed"), a)


def left_untrained(r: Records) -> Counted:
    """How many quantized models validation leaves as they are."""
    records = [record for name in format_arms.names(r) for record in trained(r, name).records]
    return counted(sum(not record.values["rate"] for record in records), of=records)


def models(r: Records) -> Counted:
    return counted(sum(len(trained(r, name).records) for name in format_arms.names(r)))


def found_blindly(r: Records) -> Counted:
    """How many searches found their best among the trials drawn at random."""
    every = [*searched(r), mix(r)]
    early = [i <= a.value("startup") for a in every for i in map(searches.found_at, scores(a))]
    return counted(sum(early), of=[record for a in every for record in a.records])


page.numbers(
    fp32=control,
    chosen=chosen,
    chosen_bits=lambda r: bits_of(chosen(r)),
    mix=mix,
    mix_bits=lambda r: counted(round(mix(r).mean("bits"), 1), "bits", of=mix(r).records),
    one_format=one_format,
    formats=lambda r: counted(len(once(r))),
    good=lambda r: counted(len(good(r))),
    log_4_moved=partial(trained, name="log(4) moved"),
    log_8=partial(trained, name="log(8)"),
    block_log_8=partial(trained, name="block-log(8,8,block=16)"),
    fixed_8=partial(trained, name="fixed(8,4)"),
    fixed_8_moved=partial(trained, name="fixed(8) moved"),
    mxint8=partial(trained, name="mxint8"),
    log_4_zeroed=partial(zeroed, name="log(4)"),
    log_4_moved_zeroed=partial(zeroed, name="log(4) moved"),
    log_8_zeroed=partial(zeroed, name="log(8)"),
    left_untrained=left_untrained,
    models=models,
    found_blindly=found_blindly,
    searches_run=lambda r: counted(sum(len(a.records) for a in (*searched(r), mix(r)))),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def accuracy(r: Records) -> Chart:
    every, best, found = once(r), chosen(r), mix(r)
    drawn = [
        (group_of(name), a, a.label == best.label or name in NAMED) for name, a in every.items()
    ]
    rows: list[Row] = [
        {
            "format": a.label,
            "formats": group,
            "bits": a.mean("bits"),
            "validation": a.validation,
            "test accuracy": a,
            "named": a.label if is_named else None,
        }
        for group, a, is_named in (*drawn, ("searched mix", found, True))
    ]
    return Chart(
        rows,
        x=doubling("bits", label="bits per value"),
        y=percent("test accuracy"),
        marks=[
            level(control(r), "FP32"),
            level(baseline.larger_class(r), "guessing"),
            points("test accuracy", by="formats", text="named"),
        ],
    )


@page.chart
def zeros(r: Records) -> Chart:
    """Every format right after quantization, on validation."""
    named = ("log(4)", "log(4) moved", "log(8)", "fixed(8,4)", "fixed(8) moved")
    every = {name: trained(r, name) for name in format_arms.names(r)}
    return Chart(
        [
            {
                "format": a.label,
                "formats": group_of(name),
                "zeroed": a.mean("weight_zeroed"),
                "validation accuracy": untrained(a),
                "named": name if name in named else None,
            }
            for name, a in every.items()
        ],
        x=percent("weights rounded to zero", column="zeroed"),
        y=percent("validation accuracy"),
        marks=[
            level(baseline.fp32(r).validation, "FP32"),
            points("validation accuracy", by="formats", text="named"),
        ],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The best score so far of every search, the best search first."""
    every = sorted([*searched(r), mix(r)], key=best_score, reverse=True)
    reached = {
        "all formats" if a.param("part") == "combined" else a.label: [
            fmean(each) for each in zip(*map(searches.best_so_far, scores(a)), strict=True)
        ]
        for a in every
    }
    length = max(map(len, reached.values()))
    return Chart(
        [
            {"trial": i + 1, **{name: of[i] for name, of in reached.items() if i < len(of)}}
            for i in range(length)
        ],
        x=linear("trial", "trials"),
        y=percent("best score so far", limits=(70, None)),
        marks=[line(name, markers=False) for name in reached],
    )


@page.table
def by_bits(r: Records) -> Sequence[Row]:
    """A row a whole number of bits: the format that validation prefers."""
    full, every = control(r), once(r)
    passed = {a.label for a in good(r)}
    rows: list[Row] = []
    for bits in sorted({int(a.value("bits")) for a in every.values()}):
        near = {name: a for name, a in every.items() if int(a.value("bits")) == bits}
        best = best_of(list(near.values()))
        name = next(name for name, a in near.items() if a is best)
        keeps = [a.label in passed for a in near.values()]
        rows.append(
            {
                "bits": f"{best.value('bits'):g}",
                "format": f"`{short(name)}`",
                "untrained, validation": per_cent(untrained(best)),
                "test": best,
                "against FP32": best - full,
                "pass on validation": f"{sum(keeps)} of {len(keeps)}",
            }
        )
    return rows


@page.table
def every_format(r: Records) -> Sequence[Row]:
    """Every format at each position, the narrow ones first."""
    full = control(r)
    every = [trained(r, name) for name in format_arms.names(r)]
    return [
        {
            "format": "FP32" if a is full else f"`{a.label}`",
            "bits": f"{a.value('bits'):g}",
            "untrained, validation": per_cent(untrained(a)),
            "as taken, validation": per_cent(a.validation),
            "rate taken": rates_taken(a),
            "test": a,
            "against FP32": "" if a is full else a - full,
        }
        for a in (*sorted(every, key=lambda a: a.value("bits")), full)
    ]


def rates_taken(a: Arm) -> str:
    """What validation takes, and of how many models where they differ."""
    taken = Counter(f"{rate:g}" if rate else "untrained" for rate in sorted(a.each("rate")))
    if len(taken) == 1:
        return next(iter(taken))
    return ", ".join(f"{rate} ({count})" for rate, count in taken.items())


@page.table
def every_search(r: Records) -> Sequence[Row]:
    """Every search: how large its space is, and what it found; means over models."""
    return [
        {
            "search": a.label,
            "combinations": rounded(a.value("points")),
            "best found at": ", ".join(str(searches.found_at(one)) for one in scores(a)),
            "best score": per_cent(best_score(a)),
            "all in FP32": per_cent(a.mean("nothing")),
            "its bits": fmean(float(one["bits"]) for one in a.each("best")),
        }
        for a in (*searched(r), mix(r))
    ]


def rounded(count: int) -> str:
    """A count, or a large one in powers of ten: "about 3.5 × 10¹²"."""
    if count < 10**6:
        return f"{count:,}"
    digits, exponent = f"{count:.1e}".split("e")
    return f"about {digits} × 10{superscript(int(exponent))}"


def short_kind(kind: str) -> str:
    """What a kind of layer is for, in a word."""
    known = {"attention.output": "output", "intermediate": "up", "output": "down"}
    return known.get(kind, kind)


@page.table
def taken(r: Records) -> Sequence[Row]:
    """Which kind of layer took which format in the mix of each model."""
    of = {f"seed {model.param('seed')}": model for model in mix(r).models}
    choices = {seed: model.value("best")["choices"] for seed, model in of.items()}
    rows: list[Row] = [
        {
            "layers": short_kind(layers),
            **{seed: f"`{short(own[layers])}`" for seed, own in choices.items()},
        }
        for layers in mix(r).value("kinds")
    ]
    bits = {seed: number(model.value("bits")) for seed, model in of.items()}
    return [*rows, {"layers": "bits per value", **bits}, {"layers": "test", **of}]
