"""Question 3.2: every number format on every Linear layer, one search a family, one over all.

All layers take one format, and the model is judged right after quantization (PTQ) and after it was
trained on in the format (QAT), each with the same few steps as an FP32 control. Formats without a
scale, whose few values lie where a fraction width or a bias puts them, are here once more, moved:
with a position for weights and one for inputs, chosen on validation. A search gives each kind of
layer one of its family's formats or FP32, at a price on bits. The choice of the search over all is
trained on like every other model, and judged.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from madl.logbook import searches
from madl.logbook.arms import Arm, best_of
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points
from madl.logbook.claims import Fact, Judged, above, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline, families, format_arms
from madl.training.baseline import fp32
from madl.training.families import is_log
from madl.training.format_arms import control, said, strongest, trained, untrained

page = Experiment(title="Mixed precision: every number format", needs=("baseline",))

PRICE_PER_BIT = 0.001  # accuracy that one bit a weight has to bring
MARGIN = 0.03  # accuracy that a format may cost; less is not decided for so many at once
NARROW, PROBE = 4, 8  # bits
ZOOM = 0.02  # searches that end this close to the best one


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    every = tuple(families.FAMILIES)
    few = ("binary", "scaled(4,row)", "scaled(8,row)", "fixed(8,4)", "log(4)", "log(8)")
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "tune_examples": choose(smoke=32, quick=256, full=2048),
            "tune_learning_rate": 3e-5,
            "tune_batch_size": 8,
        }
        probe = {"probe_examples": choose(smoke=16, quick=128, full=500)}
        classes = choose(smoke=(NARROW, PROBE), quick=families.CLASSES, full=families.CLASSES)
        for bits, scale in product(classes, (False, True)):
            rivals = {"most_bits": bits, "scale": scale, "formats": len(families.EVERY)}
            yield {"part": "untrained", **rivals, **probe, **base}
        search = {"sampler": "tpe", "weights": "trained on", "price": PRICE_PER_BIT, **probe}
        trials = choose(smoke=2, quick=40, full=200)
        space = {"choices": len(families.space(None))}
        yield {"part": "combined", **space, "trials": trials, **search, **base}
        trials = choose(smoke=2, quick=24, full=60)
        for family in choose(smoke=("binary", "MX integer"), quick=every, full=every):
            space = {"family": family, "choices": len(families.space(family))}
            yield {"part": "family", **space, "trials": trials, **search, **base}
        yield {"part": "control", **base}
        for name in choose(smoke=few, quick=families.NAMES, full=families.NAMES):
            yield {"part": "uniform", "format": name, **base}
        for name in choose(smoke=("log(4) moved",), quick=families.MOVED, full=families.MOVED):
            tried = {"tried": families.tried(name), **probe}
            yield {"part": "moved", "format": name, **tried, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import format_models as of

    runs = {"untrained": of.untrained, "combined": of.searched, "family": of.searched}
    run = runs.get(str(params["part"]), of.judged)
    return run(baseline.fine_tuned(params, ctx), params, ctx)


# ---- claims and facts ---------------------------------------------------------------------------


def _keeps(found: Arm, full: Arm, what: str) -> Judged:
    margin, on_test = f"{100 * MARGIN:g} points", f"{found} on test, {full.label} {full}"
    tested = compare(found, full).no_worse(MARGIN)
    return tested.judge(
        supported=f"{what}, {said(found)}, loses less than {margin}: {on_test}",
        refuted=f"{what}, {said(found)}, loses more than {margin}: {on_test}",
        undecided=f"{what}, {said(found)}, has {on_test}: {found - full:+i}, which does not "
        f"settle whether it loses more than {margin}",
    )


def _better(a: Arm, b: Arm, when: str) -> Judged:
    pair = f"{said(a)} has {a} on test, {said(b)} {b}"
    return compare(a, b).judge(
        supported=f"{when}, {pair}: {a - b} more",
        refuted=f"{when}, {pair}: {b - a} less",
        undecided=f"{when}, nothing tells the two apart: {pair}, {a - b:+i}",
    )


@page.claim
def fewest_bits(r: Records) -> Judged:
    """The narrowest format that validation finds within three points of FP32 after the same
    training is so on test too."""
    full, every = control(r), [trained(r, name) for name in format_arms.names(r)]
    good = [a for a in every if a.validation >= full.validation - MARGIN] or [best_of(every)]
    found = min(good, key=lambda a: (a.value("bits"), -a.validation, a.validation_loss))
    return _keeps(found, full, "The narrowest format that validation finds good enough")


@page.claim(headline=True)
def log_8_keeps(r: Records) -> Judged:
    """The logarithmic format of 8 bits, trained on, is less than three points below FP32 after the
    same training."""
    return _keeps(trained(r, f"log({PROBE})"), control(r), "Powers of two alone, trained on")


@page.claim(headline=True)
def log_4_lacks_a_position(r: Records) -> Judged:
    """At 4 bits, powers of two with a bias of their own for weights and for inputs beat the same
    format with its default bias, both trained on."""
    default = f"log({NARROW})"
    return _better(trained(r, f"{default} moved"), trained(r, default), "Trained on")


@page.claim
def log_8_is_behind(r: Records) -> Judged:
    """Of formats of at most 8 bits, the best other one beats the logarithmic one of 8 bits, both
    trained on."""
    rival = strongest(r, PROBE, lambda name: not is_log(name))
    return _better(rival, trained(r, f"log({PROBE})"), f"At {PROBE} bits, trained on")


@page.claim
def log_4_is_behind(r: Records) -> Judged:
    """Of formats of at most 4 bits, the best other one beats the best logarithmic one, both trained
    on."""
    rival = strongest(r, NARROW, lambda name: not is_log(name))
    found = strongest(r, NARROW, is_log)
    return _better(rival, found, f"At {NARROW} bits, trained on")


@page.claim
def eight_bits_need_no_scale(r: Records) -> Judged:
    """Of formats of more than 4 and at most 8 bits, untrained, the best without a scale from the
    data is less than three points below the best with one."""
    free, scaled = (untrained(r, PROBE, scale=scale) for scale in (False, True))
    tested, margin = compare(free, scaled).no_worse(MARGIN), f"{100 * MARGIN:g} points"
    pair = f"untrained, {said(free)} has {free} on test, {said(scaled)} {scaled}"
    return tested.judge(
        supported=f"At {PROBE} bits a scale from the data brings less than {margin}: {pair}",
        refuted=f"At {PROBE} bits a scale from the data brings more than {margin}: {pair}",
        undecided=f"Whether a scale from the data brings more than {margin} at {PROBE} bits is "
        f"open: {pair}, {free - scaled:+i}",
    )


@page.claim
def four_bits_need_a_scale(r: Records) -> Judged:
    """Of formats of at most 4 bits, untrained, the best with a scale from the data beats the best
    without one."""
    free, scaled = (untrained(r, NARROW, scale=scale) for scale in (False, True))
    return _better(scaled, free, f"At {NARROW} bits, untrained, with a scale from the data or none")


@page.claim
def one_bit_classifies(r: Records) -> Judged:
    """The best format of one bit for weights and inputs, trained on, beats always answering with
    the larger class."""
    found, guess = strongest(r, 1), format_arms.larger_class(r)
    so = f"{said(found)}, trained on, classifies {found:i} of the test sentences correctly"
    always = f"always answering with the larger class gives {per_cent(guess)}"
    return above(found, guess).judge(
        supported=f"{so}; {always}",
        refuted=f"{so}, fewer than guessing: {always}",
        undecided=f"{so}, which cannot be told from guessing: {always}",
    )


@page.claim(headline=True)
def combined_beats_uniform(r: Records) -> Judged:
    """What one search over all formats finds is more accurate than the best single format of no
    more bits, both trained on."""
    mixed = format_arms.combined(r)
    alike = strongest(r, mixed.value("bits"))
    found = (
        f"After {mixed.param('trials')} trials over all formats the mixture found "
        f"({number(mixed.value('bits'))} bits on average) has {mixed} on test"
    )
    best = f"the best single format of no more bits, {said(alike)}, {alike}"
    return compare(mixed, alike).judge(
        supported=f"{found}; {best}: {mixed - alike} more",
        refuted=f"{found}; {best}: {alike - mixed} less",
        undecided=f"{found}; nothing tells it from {best}: {mixed - alike:+i}",
    )


@page.fact(headline=True)
def settled(r: Records) -> Fact:
    found = list(format_arms.verdicts(r, MARGIN).values())
    keeps, loses, open_ = (found.count(what) for what in ("keeps", "loses", "not decided"))
    full = control(r)
    return Fact(
        text=f"Trained on, {keeps} formats are shown to stay within {100 * MARGIN:g} points of "
        f"{full.label} ({full}), {loses} to lose more, and {open_} are not decided",
        of=f"{len(found)} formats, each on all layers, with one correction for all of them",
    )


@page.fact
def ends(r: Records) -> Fact:
    found, score = format_arms.searched(r), format_arms.score
    low, high = min(found.values(), key=score), max(found.values(), key=score)
    return Fact(
        text=f"The best scores of the families' searches go from {per_cent(score(low))} "
        f"({low.label}) to {per_cent(score(high))} ({high.label}); the search over all formats "
        f"ends at {per_cent(score(format_arms.combined(r)))}",
        of=f"{len(found)} families of {low.param('trials')} trials, on "
        f"{low.param('probe_examples')} validation sentences",
    )


# ---- figures and tables -------------------------------------------------------------------------


def _curves(rows: Sequence[Row], **limits: Any) -> Chart:
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent("best score so far, validation", **limits),
        marks=[line(format_arms.LEFT_ALONE, markers=False, like="FP32"), line(format_arms.BEST)],
        facet="search",
    )


@page.chart(
    caption="A small chart a family: each kind of layer takes one of its formats or stays in FP32. "
    "The score is validation accuracy less the price of the bits; the other line is the score of "
    "leaving all layers in FP32."
)
def curves(r: Records) -> Chart:
    return _curves(
        [row for one in format_arms.searched(r).values() for row in format_arms.curve(one)]
    )


@page.chart(
    caption="The families that end near the best one, and the search over all formats, on a finer "
    "scale."
)
def zoom(r: Records) -> Chart:
    found = [*format_arms.searched(r).values(), format_arms.combined(r)]
    low = max(map(format_arms.score, found)) - ZOOM
    rows = [row for one in found if format_arms.score(one) >= low for row in format_arms.curve(one)]
    return _curves(rows, limits=(100 * (low - 2 * ZOOM), None))


@page.chart(
    caption="Every format on all layers, trained on, and what the search over all formats found: "
    "test accuracy with its interval. The line joins those that validation places above all of as "
    "few bits. Dashed: FP32 after the same training, and always giving the larger class."
)
def front(r: Records) -> Chart:
    return searches.front_chart(
        format_arms.front_rows(r),
        size=doubling("bits", label="bits per value"),
        value="test accuracy",
        by="formats",
        front_by="validation",
        common=True,
        text="named",
        levels=[level(control(r)), level(format_arms.larger_class(r), "larger class")],
    )


@page.chart(
    caption="Right after quantization, on validation: accuracy against the share of the weights "
    "that a format rounds to zero. A point is a format on all layers."
)
def why(r: Records) -> Chart:
    return Chart(
        format_arms.untrained_rows(r),
        x=percent("weights rounded to zero", column="zeroed"),
        y=percent("validation accuracy"),
        marks=[level(fp32(r).validation, "FP32"), points("validation accuracy", by="formats")],
    )


@page.table
def every_format(r: Records) -> Sequence[Row]:
    return format_arms.format_rows(r, MARGIN)


@page.table
def every_search(r: Records) -> Sequence[Row]:
    return format_arms.search_rows(r)


@page.table
def taken(r: Records) -> Sequence[Row]:
    return format_arms.taken_rows(r)
