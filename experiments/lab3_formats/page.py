"""Question 3.2: every number format on every Linear layer, one search a family, one over all.

All layers take one format. The model is judged on validation as quantization leaves it (PTQ) and
trained on in the format (QAT) at two learning rates, and the best of the three meets the test
split; so does FP32 with the same choice. Formats without a scale, whose few values lie where a
fraction width or a bias puts them, are here once more, moved: with a position for weights and one
for inputs, chosen on validation. A search gives each kind of layer one of its family's formats or
FP32, at a price on bits. The choice of the search over all is trained on and judged like a format.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from madl.logbook import searches
from madl.logbook.arms import Arm, best_of
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points
from madl.logbook.claims import Fact, Judged, above, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent, span
from madl.training import baseline, families, format_arms
from madl.training.baseline import fp32
from madl.training.families import MOVED, has_scale, is_log
from madl.training.format_arms import control, said, strongest, trained

page = Experiment(title="Mixed precision: every number format", needs=("baseline",))

PRICE_PER_BIT = 0.001  # accuracy that one bit a weight has to bring
MARGIN = 0.03  # accuracy that a format may cost; less is not decided for so many at once
SLACK = 0.01  # of validation accuracy, so that what is chosen does not lie at the margin
NARROW, PROBE = 4, 8  # bits
SCALES = 0.5  # bits a value that a block's scale may add to them
ZOOM = 0.02  # searches that end this close to the best one


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    every = tuple(families.FAMILIES)
    few = ("binary", "scaled(4,row)", "scaled(8,row)", "fixed(8,4)", "log(4)", "log(8)")
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
        for name in choose(smoke=few, quick=families.NAMES):
            yield {"part": "uniform", "format": name, **base}
        for name in choose(smoke=("log(4) moved",), quick=MOVED):
            yield {"part": "moved", "format": name, **probe, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_formats import format_models as of

    run = of.searched if params["part"] in ("combined", "family") else of.judged
    return run(baseline.fine_tuned(params, ctx), params, ctx)


# ---- claims and facts ---------------------------------------------------------------------------


def _keeps(found: Arm, full: Arm, what: str) -> Judged:
    margin, on_test = f"{100 * MARGIN:g} points", f"{found} on test, {full.label} {full}"
    tested = compare(found, full).no_worse(MARGIN)
    return tested.judge(
        supported=f"On every Linear layer, {what} loses less than {margin}: {on_test}",
        refuted=f"On every Linear layer, {what} loses more than {margin}: {on_test}",
        undecided=f"On every Linear layer, whether {what} loses more than {margin} is open: "
        f"{on_test}, {found - full:+i}",
    )


def _better(a: Arm, b: Arm, when: str) -> Judged:
    pair = f"{said(a)} has {a} on test, {said(b)} {b}"
    return compare(a, b).judge(
        supported=f"{when}, {pair}: {a - b} more",
        refuted=f"{when}, {pair}: {b - a} less",
        undecided=f"{when}, the two are not shown to differ: {pair}, {a - b:+i}",
    )


def _is_free(name: str) -> bool:
    """Whether the data give it neither a scale nor a position."""
    return not has_scale(name) and name not in MOVED


@page.claim(headline=True)
def fewest_bits(r: Records) -> Judged:
    """The narrowest format that validation puts at most one point below FP32 is less than three
    points below it on test."""
    full, every = control(r), [trained(r, name) for name in format_arms.names(r)]
    good = [a for a in every if a.validation >= full.validation - SLACK] or [best_of(every)]
    found = min(good, key=lambda a: (a.value("bits"), -a.validation, a.validation_loss))
    return _keeps(found, full, f"{said(found)}, the narrowest that validation finds good enough,")


@page.claim
def log_8_keeps(r: Records) -> Judged:
    """The logarithmic format of 8 bits, whose values are powers of two alone, is less than three
    points below FP32."""
    found = trained(r, f"log({PROBE})")
    return _keeps(found, control(r), f"{said(found)}, all of whose values are powers of two,")


@page.claim
def log_4_lacks_a_position(r: Records) -> Judged:
    """At 4 bits, powers of two with a bias of their own for weights and for inputs beat the same
    format with its default bias."""
    default = f"log({NARROW})"
    moved, own = trained(r, f"{default} moved"), trained(r, default)
    return _better(
        moved, own, "With a bias of its own for weights and for inputs, else its default"
    )


@page.claim
def log_8_is_behind(r: Records) -> Judged:
    """Of formats of at most 8 bits, the best other one beats the logarithmic one of 8 bits."""
    rival = strongest(r, PROBE, lambda name: not is_log(name))
    return _better(rival, trained(r, f"log({PROBE})"), f"Of at most {PROBE} bits")


@page.claim
def log_4_is_behind(r: Records) -> Judged:
    """Of formats of at most 4.5 bits with their block's scale, the best other one beats the best
    logarithmic one."""
    rival = strongest(r, NARROW + SCALES, lambda name: not is_log(name))
    found = strongest(r, NARROW + SCALES, is_log)
    return _better(rival, found, f"Of at most {NARROW + SCALES:g} bits with a block's scale")


@page.claim
def eight_bits_need_no_scale(r: Records) -> Judged:
    """Of formats of 8 bits, or 8.5 with a block's scale, the best that takes neither a scale nor a
    position from the data is less than three points below the best with a scale."""
    wide = {"most_bits": PROBE + SCALES, "least_bits": PROBE}
    free, scaled = strongest(r, keep=_is_free, **wide), strongest(r, keep=has_scale, **wide)
    tested, margin = compare(free, scaled).no_worse(MARGIN), f"{100 * MARGIN:g} points"
    pair = f"{said(free)} has {free} on test, {said(scaled)} {scaled}"
    return tested.judge(
        supported=f"At {PROBE} bits a scale from the data brings less than {margin}: {pair}",
        refuted=f"At {PROBE} bits a scale from the data brings more than {margin}: {pair}",
        undecided=f"Whether a scale from the data brings more than {margin} at {PROBE} bits is "
        f"open: {pair}, {free - scaled:+i}",
    )


@page.claim
def one_bit_classifies(r: Records) -> Judged:
    """The best format of one bit for weights and inputs beats always answering with the larger
    class."""
    found, guess = strongest(r, 1), format_arms.larger_class(r)
    so = f"{said(found)} classifies {found:i} of the test sentences correctly"
    always = f"always answering with the larger class gives {per_cent(guess)}"
    return above(found, guess).judge(
        supported=f"{so}; {always}",
        refuted=f"{so}, fewer than guessing: {always}",
        undecided=f"{so}, which is not shown to be more than guessing: {always}",
    )


@page.claim(headline=True)
def combined_beats_uniform(r: Records) -> Judged:
    """What one search over all formats finds is more accurate than the best single format of no
    more bits."""
    mixed = format_arms.combined(r)
    alike = format_arms.strongest_beside(r, mixed)
    found = (
        f"After {mixed.param('trials')} trials of {mixed.param('probe_examples')} validation "
        f"sentences, what is found ({span(mixed.each('bits'))} bits) has {mixed} on "
        "test"
    )
    best = (
        f"the best single format of no more bits, {alike.label}, chosen among "
        f"all of them by all validation sentences, {alike}"
    )
    return compare(mixed, alike).judge(
        supported=f"{found}; {best}: {mixed - alike} more",
        refuted=f"{found}; {best}: {alike - mixed} less",
        undecided=f"A search that may give each kind of layer another format is not shown to beat "
        f"one format on all of them. {found}; {best}: {mixed - alike:+i}",
    )


@page.fact(headline=True)
def settled(r: Records) -> Fact:
    return format_arms.settled(r, MARGIN)


@page.fact
def log_loses_to(r: Records) -> Fact:
    return format_arms.log_loses_to(r, NARROW, PROBE)


@page.fact
def log_with_a_scale(r: Records) -> Fact:
    return format_arms.log_against_others(r, NARROW + SCALES)


@page.fact
def nearly_good(r: Records) -> Fact:
    return format_arms.nearly_good(r, SLACK)


page.fact(format_arms.block_log)
page.fact(format_arms.training_pays)
page.fact(format_arms.ends)


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
    caption="A chart a family, the last for the search over all formats: each kind of layer takes "
    "one of the formats or stays in FP32. The score is validation accuracy less the price of the "
    "bits. Each search has weights of its own; dashed is their score with all layers left in FP32, "
    "which pays for its bits too. Of several models, lines are means, the band a mean's interval."
)
def curves(r: Records) -> Chart:
    found = [*format_arms.searched(r).values(), format_arms.combined(r)]
    return _curves([row for one in found for row in format_arms.curve(one)])


@page.chart(
    caption="The families whose searches end close to the best one, on a finer scale, which cuts "
    "off what lies below it. That is a choice of what to draw: each has its own dashed line."
)
def zoom(r: Records) -> Chart:
    found = format_arms.searched(r).values()
    low = max(map(format_arms.score, found)) - ZOOM
    rows = [row for one in found if format_arms.score(one) >= low for row in format_arms.curve(one)]
    return _curves(rows, limits=(100 * (low - 2 * ZOOM), None))


@page.chart(
    caption="Every format on all layers, and what the search over all formats found: test accuracy "
    "with its interval, of several models the mean. The line joins those that validation places "
    "above all of as few bits or fewer. After “at”: positions of weights and inputs. Dashed: FP32 "
    "tuned alike, and giving the larger class."
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
    "that a format rounds to zero. A point is a format on all layers, of several models their mean."
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
