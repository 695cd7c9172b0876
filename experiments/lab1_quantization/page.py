"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer takes fixed point of one width. How many bits stand behind the point is chosen on
validation at each width, for PTQ and QAT apart, and for weights (with biases) and inputs apart; the
sweeps are `lab1_fractions`. QAT trains on from the fine-tuned model; its control is the same
training without quantization. Evaluations multiply in bfloat16 where it holds every operand.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from experiments.lab1_quantization.width_panel import width_alt, width_panels, width_rows
from madl.logbook.arms import Arm, arm, best, best_of
from madl.logbook.charts import Chart, doubling, level, line, linear, percent
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline, width_facts, widths
from madl.training.baseline import fp32
from madl.training.width_facts import after, apart, as_good, beyond, means, rates_tried, untrained
from madl.training.widths import (
    FIXED_RULE,
    behind,
    best_shared,
    chosen,
    pair_of,
    point,
    ptq,
    qat,
    qat_like,
    shared,
)

page = Experiment(title="Fixed-point width: PTQ and QAT", needs=("baseline", "lab1_fractions"))

PROBE = 8  # bits: the width that the coursework starts from
NARROW = widths.APART  # bits: the narrowest width
ENOUGH = 6  # bits: half as many again, and fewer than any report found to be enough
WIDEST = 32
PROBE_SENTENCES = 64  # whose activations are counted
MARGIN = 0.02  # two points: what a user who wants the bits would give away


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    swept = plan.records("lab1_fractions")
    tune = widths.training_of(best(swept, "control", swept="control"))
    for seed in range(plan.profile.seeds):
        base = baseline.recipe_params(plan, seed)
        ptq, qat = ({"method": method, **base} for method in ("ptq", "qat"))
        yield {"method": "control", **base, **tune}
        for width in widths.of_plan(plan):
            pair = pair_of(chosen(swept, "ptq", width))
            yield {**ptq, **point(width, pair)}
            yield {**qat, **point(width, pair), **tune}
            if width in widths.TRAINED:
                trained = chosen(swept, "qat", width)
                yield {**qat, **point(width, pair_of(trained)), **widths.training_of(trained)}
            if width in widths.OWN:
                yield {**ptq, **point(width, pair_of(chosen(swept, "ptq", width, shared=True)))}
        trained = chosen(swept, "qat", NARROW, shared=True)
        yield {**qat, **point(NARROW, pair_of(trained)), **widths.training_of(trained)}
        yield {**ptq, **point(NARROW, pair_of(trained))}
        for operands in widths.ALONE:
            pair = pair_of(chosen(swept, "ptq", NARROW, operands=operands))
            yield {**ptq, **point(NARROW, pair, operands)}
        for width in (PROBE, WIDEST):
            yield {**ptq, **point(width, (FIXED_RULE, FIXED_RULE))}
        yield {**ptq, **point(PROBE, (FIXED_RULE, FIXED_RULE), "both, head spared")}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.compression.quantize import range_use
    from madl.training import compressed

    model = compressed.build(params, ctx, exact_products=True)
    probe = baseline.load_splits(params).validation.first(PROBE_SENTENCES)
    return {
        **baseline.judge(model, params, ctx.device),
        "shares": range_use(model, probe.batch(range(len(probe)))),
    }


def control(r: Records) -> Arm:
    return arm(r, "FP32 + same training", method="control")


def tried(r: Records) -> list[int]:
    return r.where(method="qat").each("width")


@page.claim(headline=True)
def own_fractions_rescue_four_bits(r: Records) -> Judged:
    """At 4 bits, own fraction widths for weights and inputs beat the best one for both."""
    a, b = ptq(r, NARROW), best_shared(r, NARROW)
    return compare(a, b).judge(
        supported=f"{untrained(a)}, {apart(a, b)} above the best fraction width for both ({b}). "
        f"Trained on (QAT) it has {qat(r, NARROW)}; the larger class is "
        f"{per_cent(baseline.larger_class(r))}",
        refuted=f"{untrained(a)}, less than with the best fraction width for both, {b}: "
        f"{apart(a, b)}",
        undecided=f"{untrained(a)}, and {b} with the best fraction width for both: nothing shows "
        f"that weights and inputs want their own, {apart(a, b)}",
    )


@page.claim(headline=True)
def six_bits_are_enough(r: Records) -> Judged:
    """At 6 bits, PTQ with the best fraction widths is less than two points below FP32."""
    a, b = ptq(r, ENOUGH), fp32(r)
    said = f"{ENOUGH} bits, {behind(a)}, give {a} after PTQ"
    tested = compare(a, b).no_worse(MARGIN)
    return tested.judge(
        supported=f"{said}: less than two points below FP32's {b}{means(b)}, without any training, "
        f"{apart(a, b)}",
        refuted=f"{said}, more than two points below FP32's {b}{means(b)}, {apart(a, b)}",
        undecided=f"{said}, where FP32 has {b}{means(b)}: {apart(a, b)}. Whether that is less than "
        "two points below is open",
    )


@page.claim(headline=True)
def training_adds_at_four_bits(r: Records) -> Judged:
    """At 4 bits, training on is more accurate than the best fraction widths alone."""
    b = ptq(r, NARROW)
    a = qat_like(r, b)
    trained = f"At {NARROW} bits, training on with {a.param('tune_examples')} sentences"
    return compare(a, b).judge(
        supported=f"{trained} adds {a - b} in PTQ's best format: {after(r, a, b)}",
        refuted=f"{trained} costs {b - a} in PTQ's best format: {after(r, a, b)}",
        undecided=f"{trained} is not shown to change the accuracy of PTQ's best format: "
        f"{after(r, a, b)}, {apart(a, b)}",
    )


@page.claim
def training_rescues_a_shared_fraction(r: Records) -> Judged:
    """At 4 bits with one fraction width for both, training on is more accurate than PTQ."""
    b = best_shared(r, NARROW, "qat")
    a = qat_like(r, b)
    said = f"At {NARROW} bits with {behind(b)}, for weights and inputs alike"
    return compare(a, b).judge(
        supported=f"{said}, training on brings {a} after {b}; PTQ with the best fraction widths "
        f"has {ptq(r, NARROW)}",
        refuted=f"{said}, training on makes it worse: {a} after {b}",
        undecided=f"{said}, {b} becomes {a} by training on: {apart(a, b)}; not shown to "
        f"help {beyond(a)}. PTQ has {best_shared(r, NARROW)} with its best fraction width for "
        f"both, {ptq(r, NARROW)} with one for each",
    )


@page.claim
def qat_beats_the_control(r: Records) -> Judged:
    """QAT at the width that validation prefers is more accurate than FP32 trained as long."""
    a, b = best_of([qat(r, width) for width in tried(r)]), control(r)
    said = f"QAT's best width by validation, {a.param('width')} bits, gives {a}"
    return compare(a, b).judge(
        supported=f"{said}; FP32 after the same training {b}{ties(r, a)}",
        refuted=f"{said}, less than FP32 after the same training, {b}{ties(r, a)}",
        undecided=f"{said} and FP32 after the same training {b}: nothing tells them apart, "
        f"{apart(a, b)}{ties(r, a)}",
    )


def ties(r: Records, best: Arm) -> str:
    equals = as_good([qat(r, width) for width in tried(r)], best)
    return f"{equals}. {rates_tried(r, best)}"


@page.claim
def inputs_need_more_bits(r: Records) -> Judged:
    """At 4 bits, PTQ of the weights alone costs less accuracy than PTQ of the inputs alone."""
    a, b = (ptq(r, NARROW, operands) for operands in widths.ALONE)
    said = (
        f"at {NARROW} bits, weights alone ({behind(a)}) leave {a}, inputs alone ({behind(b)}) {b}"
    )
    return compare(a, b).judge(
        supported=f"Quantizing the inputs loses more: {said}",
        refuted=f"Quantizing the weights loses more: {said}",
        undecided=f"Which of the two loses more is not decided: {said}, {apart(a, b)}",
    )


@page.claim
def the_head_is_what_fails(r: Records) -> Judged:
    """At 8 bits with four behind the point, leaving pooler and classifier in FP32 helps."""
    a, b = shared(r, PROBE, FIXED_RULE, "both, head spared"), shared(r, PROBE, FIXED_RULE)
    said = (
        f"at {PROBE} bits with four behind the point for both: {a} with them in FP32, {b} without"
    )
    return compare(a, b).judge(
        supported=f"Leaving pooler and classifier in FP32 gives back {a - b} of the {fp32(r) - b} "
        f"that the format loses, {said}",
        refuted=f"Leaving pooler and classifier in FP32 makes it worse, {said}",
        undecided=f"Leaving pooler and classifier in FP32 is not shown to help, {said}, "
        f"{apart(a, b)}",
    )


@page.chart(
    caption="Test accuracy at each width, with the fraction widths that validation prefers among "
    "those tried. Hold PTQ against FP32, QAT against FP32 with the same training. Lines: means "
    "over the models; bands: their intervals."
)
def accuracy(r: Records) -> Chart:
    both = "PTQ, one fraction width for both"
    rows = [{"width": w, "PTQ": ptq(r, w), "QAT": qat(r, w)} for w in tried(r)]
    rows = [{**row, both: best_shared(r, int(row["width"]))} for row in rows]
    chance = level(baseline.larger_class(r), "larger class")
    marks = [line("PTQ"), line("QAT"), line(both), level(fp32(r)), level(control(r)), chance]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


@page.fact
def highest(r: Records) -> Fact:
    return width_facts.highest(r, tried(r), control(r))


@page.fact
def from_eight_bits_on(r: Records) -> Fact:
    return width_facts.trained_on(r, [w for w in tried(r) if w >= PROBE], control(r))


@page.fact
def formats_of_qat(r: Records) -> Fact:
    return width_facts.formats_of_qat(r, [w for w in tried(r) if w in widths.TRAINED])


@page.fact
def shared_only(r: Records) -> Fact:
    return width_facts.shared_only(r, tried(r))


@page.fact
def edges(r: Records) -> Fact:
    return width_facts.edges(r, tried(r))


@page.fact
def learning_rates(r: Records) -> Fact:
    return width_facts.learning_rates(r, width_facts.rates_taken(r, tried(r), control(r)))


page.fact(width_facts.chosen_on)


@page.chart(
    caption="PTQ on validation: fraction widths chosen for each operand, one chosen for both, and "
    "given by a rule (half an odd width is rounded down). The first is the best of more formats, "
    "with no point where only one for both was tried. Lines: means over the models."
)
def rules(r: Records) -> Chart:
    rows = widths.restricted(r, tried(r))
    lines = [line(name) for name in rows[0] if name != "width"]
    return Chart(rows, x=doubling("width", "bits"), y=percent("validation accuracy"), marks=lines)


@page.chart(
    caption="PTQ at the narrowest width, means over the models on validation sentences: what is "
    "left when weights, inputs or both take the format, for each number of bits behind the point."
)
def operands(r: Records) -> Chart:
    return Chart(
        widths.by_operand(r),
        x=linear("fraction", "bits behind the point"),
        y=percent("validation accuracy"),
        marks=[line("weights"), line("inputs"), line("both")],
    )


@page.drawing(
    caption="Lines: the values of the format. Bars, where the pruning study has counted them: one "
    "layer's weights by magnitude, all but the largest one in a thousand; what the format does to "
    "them is computed as if the weights of a bar were spread evenly over it. The accuracies are "
    "of whole models, measured.",
    panels=width_panels,
    alt=width_alt,
    script="width",
    reads=("lab1_pruning",),
)
def format_over_weights(r: Records) -> Sequence[Row]:
    return width_rows(r)


@page.table
def lost(r: Records) -> Sequence[Row]:
    """What a format does to the values, rounded to zero or clipped, beside what is left."""
    own = [ptq(r, width) for width in (NARROW, ENOUGH, PROBE)]
    return width_facts.lost([*chain.from_iterable(width_facts.steps(r)), *own])


page.fact(width_facts.collapse)


@page.table
def points(r: Records) -> Sequence[Row]:
    """Every width's models on test; bits behind the point as weights | inputs."""
    return width_facts.points(r, tried(r), control(r))
