"""Question 1.1: accuracy against fixed-point width, after quantization and after training on."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean

from experiments.lab1_quantization import design
from experiments.lab1_quantization.design import FRACTIONS, NARROW_BITS
from madl.logbook.arms import Arm, arm, of_models
from madl.logbook.charts import Chart, doubling, level, line, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, percentage
from madl.logbook.records import Params, Record, Records, Row, Scalar
from madl.logbook.searches import loss_above_least, rate_rows
from madl.logbook.values import Estimate, per_cent
from madl.training import baseline

page = Experiment()

LEARNED = "learned"  # steps, as LSQ has it


def format_params(width: int, fractions: tuple[int, int], operands: str = "both") -> Params:
    """The parameters of a format, and of the operands that take it: weights, inputs or both."""
    weights, inputs = fractions
    points = {"frac_width": weights, "input_frac_width": inputs}
    return {"operands": operands, "width": width, **points}


def trained(plan: Plan, seed: int, kind: int | str | None, rate: float | None = None) -> Params:
    """Parameters of a model trained on: in a width's chosen format, FP32, or with learned steps."""
    method: Params = {"method": "control"}
    if kind == LEARNED:
        method = {"method": LEARNED, "width": NARROW_BITS}
    elif isinstance(kind, int):
        method = {"method": "qat", **format_params(kind, FRACTIONS[kind])}
    recipe = baseline.retraining_params(plan, rate or chosen_rate(kind))
    return {**method, **baseline.drawn_params(plan, seed), **recipe}


def chosen_rate(kind: int | str | None) -> float:
    return design.RATES.get(kind, design.RATES[design.COURSE_BITS])


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    widths = choose(smoke=[NARROW_BITS], quick=list(FRACTIONS))
    starts = [("both", width, *design.FIRST_FRACTIONS[width]) for width in widths]
    starts += [(part, NARROW_BITS, f, f) for part, f in design.FIRST_LONE_FRACTIONS.items()]
    names = ("operands", "width", "start_weights", "start_inputs")
    by = {"sweep_sentences": design.SWEEP_SENTENCES}
    for start in starts:
        base = baseline.drawn_params(plan, TUNING_SEED)
        yield {"method": "sweep", **base, **dict(zip(names, start)), **by}
    for kind, rates in design.RATES_TRIED.items():
        few = rates[: kind in (None, NARROW_BITS)]
        for rate in choose(smoke=few, quick=rates):
            yield trained(plan, TUNING_SEED, kind, rate)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, narrow = plan.profile.choose, FRACTIONS[NARROW_BITS]
    formats = [
        *(format_params(width, fractions) for width, fractions in FRACTIONS.items()),
        *(format_params(width, (f, f)) for width, f in design.SHARED_FRACTIONS.items()),
        *(format_params(NARROW_BITS, (f, f), part) for part, f in design.LONE_FRACTIONS.items()),
        {**format_params(NARROW_BITS, narrow), "bias": "FP32"},
    ]
    scales = [
        {"width": NARROW_BITS, "scale_per": per, "scale_by": by, "input_width": bits}
        for per, by, bits in product(design.SCALE_PER, design.SCALE_BY, design.INPUT_BITS)
    ]
    for seed in plan.seeds:  # first, so that workers fine-tune side by side
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}
    for seed in plan.seeds:
        for of_format in formats:
            yield {"method": "ptq", **baseline.drawn_params(plan, seed), **of_format}
        for scale in scales:
            yield {"method": "scaled", **baseline.drawn_params(plan, seed), **scale}
        for kind in (None, design.COURSE_BITS):
            yield trained(plan, seed, kind)
    for kind in choose(smoke=(NARROW_BITS,), quick=(*design.WIDTHS_TRAINED, LEARNED)):
        for seed in plan.seeds:
            yield trained(plan, seed, kind)
    for width in choose(smoke=(), quick=design.WIDTHS_TRAINED_ONCE):
        yield trained(plan, plan.seeds[0], width)


@page.quick
def quick(params: Params) -> bool:
    is_first = params["seed"] == CONFIRMING_SEEDS[0]
    if params["method"] == "ptq":
        is_plain = params["operands"] == "both" and "bias" not in params
        return is_first and is_plain and params["width"] in (NARROW_BITS, 6, design.COURSE_BITS)
    return is_first and params["method"] == "fp32"


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", method="fp32")


def control(r: Records) -> Arm:
    return arm(r, "FP32 trained as long", method="control")


def ptq(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models quantized alone (PTQ), with one binary point for weights and one for inputs."""
    return plain(r, f"PTQ at {width} bits", method="ptq", **format_params(width, FRACTIONS[width]))


def then_quantized(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models trained as long in FP32 and quantized afterwards, in PTQ's format."""
    label = f"FP32 trained as long, then PTQ at {width} bits"
    return arm(r, label, "then quantized", str(width), method="control")


def shared(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models quantized alone, with the best common binary point for weights and inputs."""
    pair = (design.SHARED_FRACTIONS[width], design.SHARED_FRACTIONS[width])
    return plain(
        r, f"PTQ at {width} bits, one point for both", method="ptq", **format_params(width, pair)
    )


def alone(r: Records, operands: str) -> Arm:
    """The models with the weights alone or the inputs alone quantized, at the narrowest width."""
    pair = (design.LONE_FRACTIONS[operands], design.LONE_FRACTIONS[operands])
    return plain(r, f"{operands} alone", method="ptq", **format_params(NARROW_BITS, pair, operands))


def scaled(r: Records, per: str = "row", by: str = "clip", bits: int | None = None) -> Arm:
    """The models whose weights have a real scale, at the narrowest width; `bits`: of the inputs."""
    label = f"weights of {NARROW_BITS} bits, a scale per {per}, inputs of {bits or 32}"
    return arm(r, label, method="scaled", scale_per=per, scale_by=by, input_width=bits)


def wide_bias(r: Records) -> Arm:
    """`ptq`, the biases left in FP32."""
    return arm(r, f"PTQ at {NARROW_BITS} bits, biases in FP32", method="ptq", bias="FP32")


def qat(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models trained on in PTQ's format (QAT), at the rate that is chosen for the width."""
    return arm(r, f"QAT at {width} bits", method="qat", width=width)


def learned(r: Records) -> Arm:
    """The models trained on at the narrowest width with steps that learn, too."""
    return arm(r, f"QAT at {NARROW_BITS} bits, learned steps", method=LEARNED)


def plain(r: Records, label: str, **where: Scalar) -> Arm:
    """An arm of models whose biases have the weights' format."""
    return arm(r.without("bias"), label, **where)


@page.claim(primary=True)
def qat_beats_fp32(r: Records) -> Contrast:
    """At 8 bits, QAT ends above FP32 that is trained as long."""
    return compare(qat(r, design.COURSE_BITS), control(r))


@page.claim(primary=True)
def four_bit_weights_need_no_training(r: Records) -> Contrast:
    """With a scale of least squared error for each row, and all else in FP32, weights of 4 bits
    cost at most a point without any training."""
    return compare(scaled(r), fp32(r)).no_worse()


@page.claim
def training_on_wins_back_accuracy(r: Records) -> Contrast:
    """At 4 bits, training on (QAT) over quantization alone (PTQ), in the same format."""
    return compare(qat(r), ptq(r))


@page.claim
def training_eight_bits(r: Records) -> Contrast:
    """At 8 bits, training on (QAT) over quantization alone (PTQ), in the same format."""
    return compare(qat(r, design.COURSE_BITS), ptq(r, design.COURSE_BITS))


@page.claim
def four_bits_below_fp32(r: Records) -> Contrast:
    """At 4 bits, QAT over FP32 trained as long."""
    return compare(qat(r), control(r))


@page.claim
def learned_steps(r: Records) -> Contrast:
    """At 4 bits, QAT that learns its steps (LSQ) over QAT in the chosen fixed point."""
    return compare(learned(r), qat(r))


@page.claim
def the_same_training_of_fp32(r: Records) -> Contrast:
    """FP32 trained as long over FP32."""
    return compare(control(r), fp32(r))


@page.claim
def over_training_first_at_eight(r: Records) -> Contrast:
    """At 8 bits, QAT over FP32 trained as long and quantized afterwards."""
    return compare(qat(r, design.COURSE_BITS), then_quantized(r, design.COURSE_BITS))


@page.claim
def over_training_first(r: Records) -> Contrast:
    """At 4 bits, QAT over FP32 trained as long and quantized afterwards."""
    return compare(qat(r), then_quantized(r))


@page.claim
def own_points_beat_one(r: Records) -> Contrast:
    """At 4 bits, PTQ with a point for weights and one for inputs over the best point for both."""
    return compare(ptq(r), shared(r))


@page.claim
def inputs_need_more_bits(r: Records) -> Contrast:
    """At 4 bits, quantizing the weights alone over quantizing the inputs alone."""
    return compare(alone(r, "weights"), alone(r, "inputs"))


@page.claim
def rows_want_their_own_scale(r: Records) -> Contrast:
    """Weights of 4 bits, clipped: a scale for each row over one for each matrix."""
    return compare(scaled(r), scaled(r, per="tensor"))


@page.claim
def rows_over_one_point(r: Records) -> Contrast:
    """Weights of 4 bits: a clipped scale for each row over one binary point for all matrices and
    biases, chosen by validation loss."""
    return compare(scaled(r), alone(r, "weights"))


@page.claim
def clipping_helps(r: Records) -> Contrast:
    """Weights of 4 bits, a scale for each row: of least squared error over of the largest value."""
    return compare(scaled(r), scaled(r, by="largest"))


@page.claim
def wide_biases_help(r: Records) -> Contrast:
    """At 4 bits, PTQ with biases in FP32 over PTQ with biases of 4 bits."""
    return compare(wide_bias(r), ptq(r))


LOSSES = {
    "weights to zero": "weight_zeroed",
    "weights clipped": "weight_saturated",
    "inputs to zero": "input_zeroed",
    "inputs clipped": "input_saturated",
}


def lost_share(a: Arm, loss: str) -> float:
    """The share of values, 0…1, that a format loses in a way of `LOSSES`: mean of the models."""
    return fmean(record.values["shares"][LOSSES[loss]] for record in a.records)


def clipped(r: Records) -> ExactValue:
    """The share of inputs clipped at the narrowest width, at the best common binary point."""
    return percentage(lost_share(shared(r), "inputs clipped"), shared(r).records)


def zeroed(r: Records) -> ExactValue:
    """The share of weights that would round to zero if they had the binary point of the inputs."""
    below = -FRACTIONS[NARROW_BITS][1] - 1 - fp32(r).first.value("octaves")["first"]
    shares = [sum(octaves["weights"][:below]) for octaves in fp32(r).values("octaves")]
    return percentage(fmean(shares), fp32(r).records)


TUNED = [kind for kind in design.RATES_TRIED if isinstance(kind, int)]  # widths with own rates


def cost_of_the_rule(r: Records, kinds: Sequence[int | None]) -> ExactValue:
    """The validation loss at the rate in use above that at the best one, the most of QAT at these
    widths or of FP32 (None): what it costs to stay off rates next to a collapse.
    """
    costs: list[float] = []
    used: list[Record] = []
    for kind in kinds:
        where: Params = {"method": "qat", "width": kind} if kind else {"method": "control"}
        tried = r.tuning.where(**where)
        costs.append(loss_above_least(tried, "tune_learning_rate", design.RATES[kind]))
        used += tried
    return exact(round(max(costs), 3), used, "nats")


page.numbers(
    fp32=fp32,
    control=control,
    ptq4=ptq,
    qat4=qat,
    ptq8=partial(ptq, width=8),
    shared4=shared,
    weights4=partial(alone, operands="weights"),
    inputs4=partial(alone, operands="inputs"),
    behind=lambda r: compare(control(r), qat(r)),
    trained8=training_eight_bits,
    over_one_point=rows_over_one_point,
    rule_qat=partial(cost_of_the_rule, kinds=TUNED),
    rule_fp32=partial(cost_of_the_rule, kinds=(None,)),
    same_training=the_same_training_of_fp32,
    over_first8=over_training_first_at_eight,
    over_first4=over_training_first,
    with_learned_steps=learned_steps,
    with_rows=rows_want_their_own_scale,
    with_clipping=clipping_helps,
    with_wide_biases=wide_biases_help,
    zeroed=zeroed,
    clipped=clipped,
    chance=baseline.guessing,
    num_test=lambda r: exact(fp32(r).first.accuracy.n, fp32(r).records),
)


SHARED = "PTQ, one fraction width"


@page.chart
def accuracy(r: Records) -> Chart:
    widths_trained = r.where(method="qat").param_values("width")
    rows = [
        {
            "width": width,
            "PTQ": ptq(r, width),
            "QAT": of_models(qat(r, width)) if width in widths_trained else None,
            SHARED: shared(r, width) if width in design.SHARED_FRACTIONS else None,
        }
        for width in FRACTIONS
    ]
    levels = [level(fp32(r)), level(control(r)), level(baseline.larger_class(r), "larger class")]
    marks = [*map(line, ("PTQ", "QAT", SHARED)), *levels]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


# ---- a format as a window over magnitudes -------------------------------------------------------

SIZE, ROOM, GAP, TOP = 360.0, 84.0, 34.0, 18.0  # of the picture, a part of it, and between the two


def octaves_alt(rows: Sequence[Row]) -> str:
    return f"Weights and inputs by magnitude. {window_words(first_format(rows))}"


def octaves_panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel, which shows the first format; the page's script shows any other."""
    at = first_format(rows)
    losses = ((name, field(name, per_cent(at[name]))) for name in LOSSES)
    accuracy = ("test accuracy", field("accuracy", at["accuracy"]))
    table = field_table(("of this format", ""), (*losses, accuracy))
    svg = f'<div class="beside">{window_svg(rows, at)}{table}</div>\n{says(window_words(at))}'
    return [Panel(title="", svg=svg, folded=False)]


def first_format(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["what"] == "format")


def window_words(at: Row) -> str:
    """The format in a sentence, as the page's script composes it, too."""
    width, weights, inputs = at["width"], at["weights"], at["inputs"]
    if weights == inputs:
        return f"{width} bits, {weights} after the point: one window for both."
    return f"{width} bits: {weights} after the point of weights, {inputs} after that of inputs."


def window_svg(rows: Sequence[Row], at: Row) -> str:
    """Histograms of weights and of inputs by octave, shaded where the format zeroes or clips."""
    bars = [row for row in rows if row["what"] == "octave"]
    first = bars[0]["octave"]

    def x(octave: int) -> float:
        return SIZE * min(max((octave - first) / len(bars), 0.0), 1.0)

    parts = ""
    for part, top in (("weights", TOP), ("inputs", TOP + ROOM + GAP)):
        most, floor = max(bar[part] for bar in bars), top + ROOM
        outline = "".join(
            f"V{floor - (ROOM - 18) * bar[part] / most:.1f}H{x(bar['octave'] + 1):.1f}"
            for bar in bars
        )
        low, high = x(-at[part] - 1), x(at["width"] - 1 - at[part])
        zone, note = f'y="{top:g}" height="{ROOM:g}"', f'class="note" y="{top + 12:g}"'
        parts += (
            f'<path class="bars" d="M0 {floor:g}{outline}V{floor:g}z"/>'
            f'<rect class="zone low" x="0" width="{low:.1f}" {zone}/>'
            f'<rect class="zone" x="{high:.1f}" width="{SIZE - high:.1f}" {zone}/>'
            f'<text {note} x="4">{part}: to zero</text>'
            f'<text {note} x="{SIZE - 4:g}" text-anchor="end">clipped</text>'
        )
    below = TOP + 2 * ROOM + GAP + 16
    ticks = "".join(
        f'<text class="note" x="{x(e):.1f}" y="{below:g}" text-anchor="middle">'
        f"{2**e if e >= 0 else f'1/{2**-e:,}'}</text>"
        for e in range(first + 3, bars[-1]["octave"], 6)
    )
    return (
        f'<svg class="graph" viewBox="0 0 {SIZE:g} {below + 6:g}" data-first="{first}" '
        f'data-octaves="{len(bars)}" aria-hidden="true">{parts}{ticks}</svg>'
    )


@page.drawing(panels=octaves_panels, alt=octaves_alt, script="width")
def octaves(r: Records) -> Sequence[Row]:
    """Rows: one model's values by octave (factor of two in magnitude), and formats with losses."""
    shares = fp32(r).first.value("octaves")
    rows: list[Row] = [
        {"what": "octave", "octave": octave, "weights": weights, "inputs": inputs}
        for octave, (weights, inputs) in enumerate(
            zip(shares["weights"], shares["inputs"]), shares["first"]
        )
    ]
    own = [(ptq(r, width), "own") for width in FRACTIONS]
    return rows + [
        {
            **{"what": "format", "points": points, "width": a.param("width")},
            **{"weights": a.param("frac_width"), "inputs": a.param("input_frac_width")},
            **{loss: lost_share(a, loss) for loss in LOSSES},
            "accuracy": a,
        }
        for a, points in (*own, *((shared(r, width), "one") for width in design.SHARED_FRACTIONS))
    ]


@page.chart
def rules(r: Records) -> Chart:
    """Validation accuracy of PTQ on the tuning seed, with binary points under stricter rules."""
    rows: list[Row] = []
    for sweep in r.tuning.all(method="sweep", operands="both"):
        width, best = int(sweep.case.params["width"] or 0), sweep.values
        fractions = {
            "one for each": (best["weights"], best["inputs"]),
            "best one for both": (best["shared"],) * 2,
            "half the width": (width // 2,) * 2,
            "always four": (design.COURSE_FRACTION,) * 2,
        }
        accuracies = {name: sweep_accuracy(sweep, *pair) for name, pair in fractions.items()}
        rows.append({"width": width, **accuracies})
    marks = [line(name) for name in rows[0] if name != "width"]
    return Chart(rows, x=doubling("width", "bits"), y=percent("validation accuracy"), marks=marks)


def sweep_accuracy(sweep: Record, weights: int, inputs: int) -> float:
    """Validation accuracy of a format that the sweep tried."""
    at = {"weights": weights, "inputs": inputs}
    return next(t["accuracy"] for t in sweep.values["tried"] if at.items() <= t.items())


@page.table
def points(r: Records) -> Sequence[Row]:
    """Accuracy by width at the chosen binary points, after PTQ and QAT."""
    widths_trained = r.where(method="qat").param_values("width")
    return [
        {
            "bits": width,
            "after the point of weights, inputs": "{}, {}".format(*FRACTIONS[width]),
            "PTQ": ptq(r, width),
            "QAT": of_models(qat(r, width)) if width in widths_trained else "",
            "QAT over PTQ, same seeds": gain(r, width) if width in widths_trained else "",
            "QAT models": len(qat(r, width).records) if width in widths_trained else "",
        }
        for width in FRACTIONS
    ]


def gain(r: Records, width: int) -> Estimate:
    """QAT over PTQ, on the models that were trained on; of one, without an interval."""
    is_one = width not in design.WIDTHS_TRAINED
    same = r.where(seed=CONFIRMING_SEEDS[0]) if is_one else r
    effect = qat(same, width) - ptq(same, width)
    return replace(effect, interval=None) if is_one else effect


@page.table
def real_scales(r: Records) -> Sequence[Row]:
    """Test accuracy with real scales of weights at the narrowest width, by bits of the inputs."""
    return [
        {
            "a scale for each": {"tensor": "matrix", "row": "row"}[per],
            "chosen by": {"largest": "largest value", "clip": "squared error"}[by],
            **{
                f"inputs in {bits} bits" if bits else "inputs in FP32": scaled(r, per, by, bits)
                for bits in design.INPUT_BITS
            },
        }
        for per, by in product(design.SCALE_PER, design.SCALE_BY)
    ]


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training on, by rate."""
    names = {bits: f"{bits} bits" for bits in design.RATES if isinstance(bits, int)}
    names |= {None: "FP32", LEARNED: f"{NARROW_BITS} bits, learned steps"}
    trainings: dict[int | str | None, Params] = {
        **{bits: {"method": "qat", "width": bits} for bits in names},
        **{None: {"method": "control"}, LEARNED: {"method": LEARNED}},
    }
    tuned = r.tuning.param_values("method")
    where = {names[kind]: at for kind, at in trainings.items() if at["method"] in tuned}
    chosen = {names[kind]: rate for kind, rate in design.RATES.items()}
    return rate_rows(r.tuning, where, "tune_learning_rate", chosen=chosen)
