"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer takes fixed point of one width. How many bits stand behind the point is chosen on
validation at each width, for PTQ and QAT apart, and for weights (with biases) and inputs apart; the
sweeps are `lab1_fractions`. QAT trains on from the fine-tuned model; its control is the same
training without quantization. Evaluations multiply in bfloat16 where it holds every operand.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import Arm, arm, best, best_of
from madl.logbook.charts import (
    Chart,
    Mark,
    category,
    doubling,
    intervals,
    level,
    line,
    linear,
    percent,
)
from madl.logbook.claims import Fact, Judged, all_of, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline, widths
from madl.training.widths import chosen, pair_of, point

page = Experiment(title="Fixed-point width: PTQ and QAT", needs=("baseline", "lab1_fractions"))

PROBE = 8  # bits: the width that the coursework starts from
NARROW = widths.APART  # bits: the narrowest width
ENOUGH = 6  # bits: half as many again, and fewer than any report found to be enough
WIDEST = 32
PROBE_SENTENCES = 64  # whose activations are counted
MARGIN = 0.02  # two points: what a user who wants the bits would give away

# BERT-tiny on IMDb in four public reports: lowest and highest accuracy by (width, fraction width).
REPORTED = {
    "(4, 2)": ("50.0", "50.0"),
    "(4, 3)": ("57.8", "81.4"),
    "(6, 3)": ("63.5 to 68.9", "82.3 to 83.0"),
    "(8, 2)": ("50.0", "50.0"),
    "(8, 4)": ("73.3 to 82.3", "83.3 to 84.1"),
    "(12, 6)": ("80.9 to 83.5", "83.5 to 84.2"),
    "(16, 8)": ("81.4 to 83.6", "83.5 to 84.2"),
    "(32, 16)": ("81.4 to 83.6", "83.5 to 84.2"),
}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    swept, tune = plan.records("lab1_fractions"), widths.training(plan)
    rule = (widths.FIXED_RULE, widths.FIXED_RULE)
    for seed in range(plan.profile.seeds):
        base = baseline.recipe_params(plan, seed)
        yield {"method": "control", **base, **tune}
        for width in widths.of_plan(plan):
            for method, more in (("qat", tune), ("ptq", {})):
                pair = pair_of(chosen(swept, method, width))
                yield {"method": method, **base, **point(width, pair), **more}
        shared = pair_of(chosen(swept, "ptq", NARROW, shared=True))
        yield {"method": "ptq", **base, **point(NARROW, shared)}
        for operands in widths.ALONE:
            pair = pair_of(chosen(swept, "ptq", NARROW, operands=operands))
            yield {"method": "ptq", **base, **point(NARROW, pair, operands)}
        for width in (PROBE, WIDEST):
            yield {"method": "ptq", **base, **point(width, rule)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.compression.quantize import linear_layers, range_use
    from madl.training import compressed

    model = compressed.build(params, ctx, exact_products=True)
    probe = baseline.load_splits(params).validation.first(PROBE_SENTENCES)
    return {
        **baseline.judge(model, params, ctx.device),
        "shares": range_use(model, probe.batch(range(len(probe)))),
        "num_weights": sum(layer.weight.numel() for layer in linear_layers(model)),
        "tune_losses": compressed.tuning_losses(params, ctx),
    }


# ---- the arms -----------------------------------------------------------------------------------


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", method="fp32")


def control(r: Records) -> Arm:
    return arm(r, "FP32 + same training", method="control")


def ptq(r: Records, width: int, operands: str = "both") -> Arm:
    """Quantized alone, with the fraction widths that validation prefers."""
    return best(r, f"PTQ at {width} bits", method="ptq", width=width, operands=operands)


def qat(r: Records, width: int) -> Arm:
    """Trained on in the format, with the fraction widths that validation prefers."""
    return arm(r, f"QAT at {width} bits", method="qat", width=width)


def at(r: Records, width: int, pair: widths.Pair) -> Arm:
    """Quantized alone, with these fraction widths."""
    return arm(r, f"PTQ at {width} bits", method="ptq", **point(width, pair))


def rule_point(r: Records, width: int) -> Arm:
    """PTQ by the rule of four bits behind the point."""
    return at(r, width, (widths.FIXED_RULE, widths.FIXED_RULE))


def behind(a: Arm) -> str:
    """How its bits are split, in words."""
    weights, inputs = pair_of(a)
    if weights == inputs:
        return f"{weights} bits behind the point"
    return f"{weights} bits behind the point for weights and {inputs} for inputs"


def tried(r: Records) -> list[int]:
    return r.where(method="qat").each("width")


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def own_fractions_rescue_four_bits(r: Records) -> Judged:
    """At 4 bits, own fraction widths for weights and inputs beat the best one for both."""
    a, b = ptq(r, NARROW), shared_point(r)
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
    return compare(a, b).judge(
        supported=f"At {width} bits QAT adds {a - b} to the best fraction widths: {a} after {b}",
        refuted=f"At {width} bits QAT loses {b - a} to the best fraction widths: {a} after {b}",
        undecided=f"At {width} bits nothing shows that QAT changes what the best fraction widths "
        f"reach alone: {b}, and {a - b:+i} with it",
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
    both = shared_point(r)
    weights, inputs = (ptq(r, NARROW, operands) for operands in widths.ALONE)
    said = f"weights alone leave {weights}, inputs alone {inputs}, both {both}"
    return all_of(
        compare(weights, both),
        compare(inputs, both),
        supported=f"{NARROW} bits are not too few for either operand: {said} with one fraction "
        f"width. Weights alone want {behind(weights)}, inputs alone {behind(inputs)}",
        refuted=f"One operand alone loses as much as both together: {said}",
        undecided=f"Which operand fails at {NARROW} bits is not decided: {said}",
    )


@page.claim
def a_rule_loses_at_eight_bits(r: Records) -> Judged:
    """At 8 bits, the four fraction bits of both rules are worse than validation's choice."""
    a, b = ptq(r, PROBE), rule_point(r, PROBE)
    return compare(a, b).judge(
        supported=f"At {PROBE} bits both rules put four bits behind the point and reach {b}; "
        f"with {behind(a)} it is {a}, before any training",
        refuted=f"At {PROBE} bits both rules' four bits behind the point reach {b}, more than the "
        f"{a} of validation's choice",
        undecided=f"At {PROBE} bits the rules' four bits behind the point reach {b} and "
        f"validation's choice {a}: nothing tells them apart",
    )


@page.claim
def integer_bits_do_not_help(r: Records) -> Judged:
    """With four bits behind the point, the widest format is less accurate than FP32."""
    width = WIDEST
    a, b = fp32(r), rule_point(r, width)
    return compare(a, b).judge(
        supported=f"Four bits behind the point reach {b} even at {width} bits; FP32 has {a}",
        refuted=f"Four bits behind the point beat FP32 at {width} bits: {b} against {a}",
        undecided=f"At {width} bits, four of them behind the point, accuracy is {b}; nothing tells "
        f"it from FP32's {a}",
    )


def shared_point(r: Records) -> Arm:
    """The narrowest width with the best fraction width that both operands can share."""
    return at(r, NARROW, pair_of(chosen(r, "ptq", NARROW, shared=True)))


@page.fact
def values_that_vanish(r: Records) -> Fact:
    found = shared_point(r)
    shares = found.value("shares")
    return Fact(
        text=f"At {NARROW} bits with {behind(found)} for both, {per_cent(shares['weight_zeroed'])} "
        f"of the weights become zero and {per_cent(shares['weight_saturated'])} are beyond the "
        f"range; of the inputs {per_cent(shares['input_zeroed'])} and "
        f"{per_cent(shares['input_saturated'])}",
        of=f"{found.value('num_weights'):,} weights; inputs on {PROBE_SENTENCES} sentences",
    )


# ---- charts and tables --------------------------------------------------------------------------


def references(r: Records) -> list[Mark]:
    share = fp32(r).value("positive_share")
    return [level(fp32(r)), level(control(r)), level(max(share, 1 - share), "larger class")]


@page.chart(
    caption="Test accuracy at each width, with the fraction widths that validation prefers there. "
    "Where a curve leaves the FP32 line, the format has run out of bits. Bands are intervals."
)
def accuracy(r: Records) -> Chart:
    rows = [{"width": w, "PTQ": ptq(r, w), "QAT": qat(r, w)} for w in tried(r)]
    marks = [line("PTQ"), line("QAT"), *references(r)]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


@page.chart(
    caption="PTQ on the validation sentences: fraction widths chosen for each operand, one chosen "
    "for both, and given by a rule. The distance to the upper curve is what the restriction loses."
)
def rules(r: Records) -> Chart:
    def ruled(width: int, frac: int) -> float:
        return arm(r, swept="ptq", **point(width, (frac, frac))).validation

    rows = [
        {
            "width": width,
            "one for each": chosen(r, "ptq", width).validation,
            "one for both": chosen(r, "ptq", width, shared=True).validation,
            "half the width": ruled(width, widths.half(width)),
            "fixed at four": ruled(width, widths.FIXED_RULE),
        }
        for width in tried(r)
    ]
    lines = [line(name) for name in rows[0] if name != "width"]
    return Chart(rows, x=doubling("width", "bits"), y=percent("validation accuracy"), marks=lines)


@page.chart(
    caption="PTQ at the narrowest width, on the validation sentences: what is left when weights, "
    "inputs or both take the format, for each number of bits behind the point."
)
def operands(r: Records) -> Chart:
    def validated(operands: str, frac: int) -> float | None:
        fits = r.where(swept="ptq", **point(NARROW, (frac, frac), operands))
        return arm(fits).validation if fits or fits.missing else None

    fractions = r.where(swept="ptq", width=NARROW, operands="both").each("input_frac_width")
    rows = [
        {"fraction": frac} | {name: validated(name, frac) for name in ("weights", "inputs", "both")}
        for frac in fractions
    ]
    return Chart(
        rows,
        x=linear("fraction", "bits behind the point"),
        y=percent("validation accuracy"),
        marks=[line("weights"), line("inputs"), line("both")],
    )


@page.chart(
    caption="What training on adds in the format: over the best fraction width alone, and over "
    "FP32 that was trained as long. An interval that crosses zero shows no difference."
)
def gain(r: Records) -> Chart:
    rows = [
        {"width": f"{w} bits", "over": over, "gain": qat(r, w) - base}
        for w in tried(r)
        for over, base in (("PTQ", ptq(r, w)), ("FP32 + same training", control(r)))
    ]
    return Chart(
        rows,
        x=linear(label="gain", unit="points", factor=100.0),
        y=category("width"),
        marks=[intervals("gain", by="over")],
    )


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


@page.table
def reported(_: Records) -> Sequence[Row]:
    return [
        {"(width, fraction)": point, "PTQ, %": ptq, "QAT, %": qat}
        for point, (ptq, qat) in REPORTED.items()
    ]
