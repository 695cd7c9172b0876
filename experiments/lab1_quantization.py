"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer takes fixed point of one width. How many bits stand behind the point is chosen on
validation at each width, for PTQ and QAT apart, and for weights (with biases) and inputs apart; the
sweeps are `lab1_fractions`. QAT trains on from the fine-tuned model; its control is the same
training without quantization. Evaluations multiply in bfloat16 where it holds every operand.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import Arm, arm, best, best_of
from madl.logbook.charts import Chart, doubling, level, line, linear, percent
from madl.logbook.claims import Judged, all_of, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline, widths
from madl.training.baseline import fp32
from madl.training.widths import FIXED_RULE, behind, chosen, pair_of, point

page = Experiment(title="Fixed-point width: PTQ and QAT", needs=("baseline", "lab1_fractions"))

PROBE = 8  # bits: the width that the coursework starts from
NARROW = widths.APART  # bits: the narrowest width
ENOUGH = 6  # bits: half as many again, and fewer than any report found to be enough
WIDEST = 32
PROBE_SENTENCES = 64  # whose activations are counted
MARGIN = 0.02  # two points: what a user who wants the bits would give away


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    swept, tune = plan.records("lab1_fractions"), widths.training(plan)
    for seed in range(plan.profile.seeds):
        base = baseline.recipe_params(plan, seed)
        yield {"method": "control", **base, **tune}
        for width in widths.of_plan(plan):
            for method, more in (("qat", tune), ("ptq", {})):
                pair = pair_of(chosen(swept, method, width))
                yield {"method": method, **base, **point(width, pair), **more}
        for width in sorted(set(widths.OWN) & set(widths.of_plan(plan))):
            pair = pair_of(chosen(swept, "ptq", width, shared=True))
            yield {"method": "ptq", **base, **point(width, pair)}
        for operands in widths.ALONE:
            pair = pair_of(chosen(swept, "ptq", NARROW, operands=operands))
            yield {"method": "ptq", **base, **point(NARROW, pair, operands)}
        for width in (PROBE, WIDEST):
            yield {"method": "ptq", **base, **point(width, (FIXED_RULE, FIXED_RULE))}


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


def ptq(r: Records, width: int, operands: str = "both") -> Arm:
    """Quantized alone, with the fraction widths that validation prefers."""
    return best(r, f"PTQ at {width} bits", method="ptq", width=width, operands=operands)


def qat(r: Records, width: int) -> Arm:
    """Trained on in the format, with the fraction widths that validation prefers."""
    return arm(r, f"QAT at {width} bits", method="qat", width=width)


def shared(r: Records, width: int, frac: int) -> Arm:
    """Quantized alone, with one fraction width for weights and inputs."""
    return arm(r, f"fixed({width},{frac})", method="ptq", **point(width, (frac, frac)))


def best_shared(r: Records, width: int) -> Arm:
    """Quantized alone, with the fraction width that validation prefers of those for both."""
    return shared(r, width, pair_of(chosen(r, "ptq", width, shared=True))[0])


def tried(r: Records) -> list[int]:
    return r.where(method="qat").each("width")


@page.claim(headline=True)
def own_fractions_rescue_four_bits(r: Records) -> Judged:
    """At 4 bits, own fraction widths for weights and inputs beat the best one for both."""
    a, b = ptq(r, NARROW), best_shared(r, NARROW)
    return compare(a, b).judge(
        supported=f"At {NARROW} bits, PTQ with the best fraction width for both operands leaves "
        f"{b}; with {behind(a)} it leaves {a}, without any training",
        refuted=f"At {NARROW} bits, PTQ with {behind(a)} leaves {a}, less than one fraction width "
        f"for both, {b}",
        undecided=f"At {NARROW} bits nothing shows that weights and inputs want fraction widths of "
        f"their own: {a - b:+i}",
    )


@page.claim(headline=True)
def six_bits_are_enough(r: Records) -> Judged:
    """At 6 bits, PTQ with the best fraction widths is less than two points below FP32."""
    a, b = ptq(r, ENOUGH), fp32(r)
    said = f"{ENOUGH} bits, {behind(a)}, give {a} after PTQ"
    return (
        compare(a, b)
        .no_worse(MARGIN)
        .judge(
            supported=f"{said}: within two points of FP32's {b}, without any training",
            refuted=f"{said}, more than two points below FP32's {b}",
            undecided=f"{said}, and FP32 {b}; whether that is within two points is not decided",
        )
    )


@page.claim(headline=True)
def training_adds_at_four_bits(r: Records) -> Judged:
    """At 4 bits, training on is more accurate than the best fraction widths alone."""
    return _training_adds(r, NARROW)


@page.claim
def training_adds_at_eight_bits(r: Records) -> Judged:
    """At 8 bits, training on is more accurate than the best fraction widths alone."""
    return _training_adds(r, PROBE)


def _training_adds(r: Records, width: int) -> Judged:
    a, b = qat(r, width), ptq(r, width)
    trained = f"At {width} bits, training on with {a.param('tune_examples')} sentences"
    return compare(a, b).judge(
        supported=f"{trained} adds {a - b} to the best fraction widths alone: {a} after {b}",
        refuted=f"{trained} costs {b - a}: {a} after {b} with the best fraction widths alone",
        undecided=f"{trained} is not shown to change what the best fraction widths reach alone: "
        f"{b}, and {a - b:+i} with it",
    )


@page.claim
def qat_beats_the_control(r: Records) -> Judged:
    """QAT at the width that validation prefers is more accurate than FP32 trained as long."""
    a, b = best_of([qat(r, width) for width in tried(r)]), control(r)
    said = f"QAT's best width by validation, {a.param('width')} bits, gives {a}"
    return compare(a, b).judge(
        supported=f"{said}; FP32 after the same training {b}",
        refuted=f"{said}, less than FP32 after the same training, {b}",
        undecided=f"{said} and FP32 after the same training {b}: nothing tells them apart",
    )


@page.claim
def either_operand_bears_four_bits(r: Records) -> Judged:
    """At 4 bits, weights alone and inputs alone each leave more than both sharing one fraction."""
    both = best_shared(r, NARROW)
    weights, inputs = (ptq(r, NARROW, operands) for operands in widths.ALONE)
    said = f"weights alone leave {weights}, inputs alone {inputs}, both {both}"
    return all_of(
        compare(weights, both),
        compare(inputs, both),
        supported=f"{NARROW} bits are not too few for either operand: {said} with one fraction "
        f"width. Weights alone want {behind(weights)}, inputs alone {behind(inputs)}",
        refuted=f"One operand alone loses more than both together: {said}",
        undecided=f"Which operand fails at {NARROW} bits is not decided: {said}",
    )


@page.claim
def four_behind_the_point_lose(r: Records) -> Judged:
    """Four fraction bits lose accuracy: at 8 bits to the chosen ones, at 32 bits to FP32."""
    a, b, full = ptq(r, PROBE), shared(r, PROBE, FIXED_RULE), fp32(r)
    wide = shared(r, WIDEST, FIXED_RULE)
    said = f"{b} at {PROBE} bits, where {behind(a)} reach {a}; {wide} at {WIDEST}, where FP32 has"
    return all_of(
        compare(a, b),
        compare(full, wide),
        supported=f"Four bits behind the point lose: {said} {full}",
        refuted=f"Four bits behind the point do not lose at every width: {said} {full}",
        undecided=f"Whether four bits behind the point lose is not decided: {said} {full}",
    )


@page.chart(
    caption="Test accuracy at each width, with the fraction widths that validation prefers there. "
    "Where a curve leaves the FP32 line, the format has run out of bits. Bands are intervals."
)
def accuracy(r: Records) -> Chart:
    shared = "PTQ, one fraction width for both"
    rows = [
        {"width": w, "PTQ": ptq(r, w), "QAT": qat(r, w), shared: best_shared(r, w)}
        for w in tried(r)
    ]
    share = fp32(r).value("positive_share")
    chance = level(max(share, 1 - share), "larger class")
    marks = [line("PTQ"), line("QAT"), line(shared), level(fp32(r)), level(control(r)), chance]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


@page.chart(
    caption="PTQ on the validation sentences: fraction widths chosen for each operand, one chosen "
    "for both, and given by a rule. The distance to the upper curve is what the restriction loses."
)
def rules(r: Records) -> Chart:
    rows = widths.restricted(r, tried(r))
    lines = [line(name) for name in rows[0] if name != "width"]
    return Chart(rows, x=doubling("width", "bits"), y=percent("validation accuracy"), marks=lines)


@page.chart(
    caption="PTQ at the narrowest width, on the validation sentences: what is left when weights, "
    "inputs or both take the format, for each number of bits behind the point."
)
def operands(r: Records) -> Chart:
    return Chart(
        widths.by_operand(r),
        x=linear("fraction", "bits behind the point"),
        y=percent("validation accuracy"),
        marks=[line("weights"), line("inputs"), line("both")],
    )


@page.table
def lost(r: Records) -> Sequence[Row]:
    """What each judged format does to the values: rounded to zero, or clipped to the range."""
    arms = [*(ptq(r, width) for width in tried(r)), best_shared(r, NARROW)]
    return [
        {"format": f"{a.param('width')} bits", "behind the point": "{} | {}".format(*pair_of(a))}
        | {
            f"{part}s {what}": per_cent(a.value("shares")[f"{part}_{loss}"])
            for part in ("weight", "input")
            for loss, what in (("zeroed", "to zero"), ("saturated", "clipped"))
        }
        for a in arms
    ]


@page.table
def points(r: Records) -> Sequence[Row]:
    """Every width's models on test; bits behind the point as weights | inputs."""
    rows: list[Row] = [
        {"model": "FP32", "PTQ": fp32(r)},
        {"model": "FP32 + same training", "QAT": control(r)},
    ]
    for width in tried(r):
        a, b = ptq(r, width), qat(r, width)
        rows.append(
            {
                "model": f"{width} bits",
                "PTQ": a,
                "PTQ: behind the point": "{} | {}".format(*pair_of(a)),
                "QAT": b,
                "QAT: behind the point": "{} | {}".format(*pair_of(b)),
                "QAT − PTQ": b - a,
            }
        )
    return rows
