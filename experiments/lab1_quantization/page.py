"""Question 1.1: accuracy against fixed-point width, after quantization and after training on."""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean

from experiments.lab1_quantization import design
from experiments.lab1_quantization.design import FRACTIONS, NARROW_BITS
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, percentage
from madl.logbook.records import Params, Record, Records, Row, Scalar
from madl.logbook.searches import rate_rows
from madl.logbook.values import Estimate, per_cent, scientific
from madl.training import baseline

page = Experiment()


def format_params(width: int, fractions: tuple[int, int], operands: str = "both") -> Params:
    """The parameters of a format, and of the operands that take it: weights, inputs or both."""
    weights, inputs = fractions
    points = {"frac_width": weights, "input_frac_width": inputs}
    return {"operands": operands, "width": width, **points}


def trained(plan: Plan, seed: int, width: int | None, rate: float | None = None) -> Params:
    """Parameters of a model trained on in the chosen format of a width, or in FP32 (None)."""
    method: Params = {"method": "control"}
    if width is not None:
        method = {"method": "qat", **format_params(width, FRACTIONS[width])}
    recipe = baseline.retraining_params(plan, rate or chosen_rate(width))
    return {**method, **baseline.drawn_params(plan, seed), **recipe}


def chosen_rate(width: int | None) -> float:
    return design.RATES.get(width, design.RATES[design.WIDTHS_TRAINED[-1]])


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for passes in choose(smoke=(1,), quick=(3, 1, 2)):
        yield {"method": "fp32", **baseline.drawn_params(plan, TUNING_SEED, passes)}
    widths = choose(smoke=[NARROW_BITS], quick=list(FRACTIONS))
    starts = [("both", width, *design.FIRST_FRACTIONS[width]) for width in widths]
    starts += [(part, NARROW_BITS, f, f) for part, f in design.FIRST_LONE_FRACTIONS.items()]
    names = ("operands", "width", "start_weights", "start_inputs")
    for start in starts:
        base = baseline.drawn_params(plan, TUNING_SEED)
        yield {"method": "sweep", **base, **dict(zip(names, start))}
    for width, rates in design.RATES_TRIED.items():
        few = rates[: width in (None, NARROW_BITS)]
        for rate in choose(smoke=few, quick=rates):
            yield trained(plan, TUNING_SEED, width, rate)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, narrow = plan.profile.choose, FRACTIONS[NARROW_BITS]
    formats = [
        *(format_params(width, fractions) for width, fractions in FRACTIONS.items()),
        *(format_params(width, (f, f)) for width, f in design.SHARED_FRACTIONS.items()),
        *(format_params(NARROW_BITS, (f, f), part) for part, f in design.LONE_FRACTIONS.items()),
        *({**format_params(NARROW_BITS, narrow), "step_per": o} for o in design.STEP_OWNERS),
    ]
    for seed in plan.seeds:  # first, so that workers fine-tune side by side
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}
    for seed in plan.seeds:
        for of_format in formats:
            yield {"method": "ptq", **baseline.drawn_params(plan, seed), **of_format}
        for width in (None, NARROW_BITS):
            yield trained(plan, seed, width)
    for seed in choose(smoke=(), quick=plan.seeds):
        yield trained(plan, seed, NARROW_BITS, design.STEEP_RATE)
    for width in choose(smoke=(), quick=design.WIDTHS_TRAINED[1:]):
        for seed in plan.seeds:
            yield trained(plan, seed, width)
    for width in choose(smoke=(), quick=design.WIDTHS_TRAINED_ONCE):
        yield trained(plan, plan.seeds[0], width)


@page.quick
def quick(params: Params) -> bool:
    is_first = params["seed"] == CONFIRMING_SEEDS[0]
    if params["method"] == "ptq":
        is_plain = params["operands"] == "both" and "step_per" not in params
        return is_first and is_plain and params["width"] in (NARROW_BITS, 6, design.COURSE_BITS)
    return is_first and params["method"] == "fp32"


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", method="fp32")


def control(r: Records) -> Arm:
    return arm(r, "FP32 trained as long", method="control")


def ptq(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models quantized alone (PTQ), with one binary point for weights and one for inputs."""
    return plain(r, f"PTQ at {width} bits", method="ptq", **format_params(width, FRACTIONS[width]))


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


def own_steps(r: Records, per: str) -> Arm:
    """The models quantized alone, at the narrowest width, with a step for each layer or row."""
    return arm(r, f"a step per {per}", method="ptq", step_per=per)


def qat(r: Records, width: int = NARROW_BITS) -> Arm:
    """The models trained on in PTQ's format (QAT), at the rate that is chosen for the width."""
    at = {"width": width, "tune_learning_rate": chosen_rate(width)}
    return plain(r, f"QAT at {width} bits", method="qat", **at)


def steep(r: Records) -> Arm:
    """The QAT models at the narrowest width, trained at the rate of least validation loss."""
    at = {"width": NARROW_BITS, "tune_learning_rate": design.STEEP_RATE}
    return plain(r, f"QAT at {NARROW_BITS} bits, next to a collapse", method="qat", **at)


def plain(r: Records, label: str, **where: Scalar) -> Arm:
    """An arm of models whose layers and rows have no step of their own."""
    return arm(r.without("step_per"), label, **where)


@page.claim(primary=True)
def eight_bits_are_enough(r: Records) -> Contrast:
    """At 8 bits, PTQ is at most one point less accurate than FP32."""
    return compare(ptq(r, design.COURSE_BITS), fp32(r)).no_worse(0.01)


@page.claim(primary=True)
def training_on_wins_back_accuracy(r: Records) -> Contrast:
    """At 4 bits, training on (QAT) is more accurate than quantization alone (PTQ), same format."""
    return compare(qat(r), ptq(r))


@page.claim
def four_bits_trained_are_nearly_fp32(r: Records) -> Contrast:
    """At 4 bits, QAT is at most two points less accurate than FP32 trained as long."""
    return compare(qat(r), control(r)).no_worse(0.02)


@page.claim
def the_steeper_rate(r: Records) -> Contrast:
    """At 4 bits, QAT at the rate of least validation loss, next to a collapse, over QAT."""
    return compare(steep(r), qat(r))


@page.claim
def the_same_training_of_fp32(r: Records) -> Contrast:
    """The same training makes FP32 more accurate."""
    return compare(control(r), fp32(r))


@page.claim
def own_points_beat_one(r: Records) -> Contrast:
    """At 4 bits, PTQ with a point for weights and one for inputs beats the best point for both."""
    return compare(ptq(r), shared(r))


@page.claim
def inputs_need_more_bits(r: Records) -> Contrast:
    """At 4 bits, quantizing the weights alone costs less than quantizing the inputs alone."""
    return compare(alone(r, "weights"), alone(r, "inputs"))


@page.claim
def rows_want_their_own_step(r: Records) -> Contrast:
    """At 4 bits, a step for each row of a weight matrix beats one step for all layers."""
    return compare(own_steps(r, "row"), ptq(r))


@page.claim
def layers_want_their_own_step(r: Records) -> Contrast:
    """At 4 bits, a step for each weight matrix beats one step for all layers."""
    return compare(own_steps(r, "layer"), ptq(r))


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


page.numbers(
    fp32=fp32,
    control=control,
    ptq4=ptq,
    qat4=qat,
    steep4=steep,
    shared4=shared,
    weights4=partial(alone, operands="weights"),
    inputs4=partial(alone, operands="inputs"),
    rows4=partial(own_steps, per="row"),
    layers4=partial(own_steps, per="layer"),
    ahead=lambda r: compare(control(r), qat(r)),
    same_training=the_same_training_of_fp32,
    zeroed=zeroed,
    clipped=clipped,
    chance=baseline.guessing,
    num_test=lambda r: exact(fp32(r).accuracy.n, fp32(r).records),
)


SHARED = "PTQ, one fraction width"


@page.chart
def accuracy(r: Records) -> Chart:
    widths_trained = r.where(method="qat").param_values("width")
    rows = [
        {
            "width": width,
            "PTQ": ptq(r, width),
            "QAT": qat(r, width) if width in widths_trained else None,
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
            "weights, inputs": "{}, {}".format(*FRACTIONS[width]),
            "PTQ": ptq(r, width),
            "QAT": qat(r, width) if width in widths_trained else "",
            "gain, same models": gain(r, width) if width in widths_trained else "",
            "models": len(qat(r, width).records) if width in widths_trained else "",
        }
        for width in FRACTIONS
    ]


def gain(r: Records, width: int) -> Estimate:
    """QAT over PTQ, on the models that were trained on."""
    same = r if width in design.WIDTHS_TRAINED else r.where(seed=CONFIRMING_SEEDS[0])
    return qat(same, width) - ptq(same, width)


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS), claims=len(design.TRUTHS))


@page.table
def beside_a_collapse(r: Records) -> Sequence[Row]:
    """Test accuracy of QAT at the narrowest width, model by model, at two rates."""
    return [
        {
            "rate": scientific(rate),
            "all": a,
            **{f"seed {model.param('seed')}": str(model) for model in a.models},
        }
        for rate, a in ((design.RATES[NARROW_BITS], qat(r)), (design.STEEP_RATE, steep(r)))
    ]


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training on, by rate."""
    widths = r.tuning.where(method="qat").param_values("width")
    trainings: dict[str, Params] = {"FP32": {"method": "control"}}
    trainings |= {f"{width} bits": {"method": "qat", "width": width} for width in widths}
    chosen = {"FP32" if bits is None else f"{bits} bits": r for bits, r in design.RATES.items()}
    return rate_rows(r.tuning, trainings, "tune_learning_rate", chosen=chosen)
