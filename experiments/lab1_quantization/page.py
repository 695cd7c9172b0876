"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer takes fixed point of one width. What is chosen, on the tuning seed and by
validation loss, stands here as constants: how many bits lie after the point, and the rates of
training on; `baseline.PASSES` is chosen so, too.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean

from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Scalar, Values
from madl.logbook.searches import rate_rows
from madl.logbook.stats import Estimate, per_cent, scientific
from madl.training import baseline

page = Experiment(title="Fixed-point width: PTQ and QAT")

Pair = tuple[int, int]  # bits after the point: of weights and biases, of inputs

NARROW, PROBE = 4, 8  # bits: the narrowest, and what the coursework starts from
STARTS: dict[int, Pair] = {  # of the searches for the point
    **{4: (5, 2), 5: (6, 3), 6: (6, 3), 7: (7, 4), 8: (8, 4), 10: (8, 5), 12: (10, 6)},
    **{16: (12, 9), 24: (16, 12), 32: (20, 16)},
}
# Bits after the point of weights and of inputs, where validation loss is least on the tuning seed.
CHOSEN: dict[int, Pair] = {
    **{4: (5, 2), 5: (6, 3), 6: (6, 2), 7: (6, 3), 8: (8, 3), 10: (9, 4), 12: (8, 5)},
    **{16: (13, 7), 24: (16, 12), 32: (20, 16)},
}
SHARED = {4: 5, 5: 5, 6: 5, 8: 6}  # of both, where one point is best
ALONE = {"weights": 5, "inputs": 3}  # at the narrowest width, the other operand in FP32
# Rates of training on; None: FP32. A lower one than these tends to no training at all.
TRIED: dict[int | None, tuple[float, ...]] = {
    **{None: (1e-5, 3e-5, 1e-4), 4: (1e-5, 3e-5, 1e-4, 3e-4, 1e-3), 5: (3e-5, 1e-4, 3e-4, 1e-3)},
    **{6: (3e-5, 1e-4, 3e-4), 8: (1e-5, 3e-5)},
}
# Of those the one of least validation loss, unless training collapses there or at the next one: to
# chance on the tuning seed, and next to that on some other.
COLLAPSED = 0.65  # nats: of chance, log 2
RATES: dict[int | None, float] = {None: 3e-5, 4: 1e-4, 5: 1e-4, 6: 1e-4, 8: 1e-5}
STEEP = 3e-4  # at the narrowest width, of least loss, next to a collapse
TRAINED = (4, 8)  # bits, on every seed
TRAINED_ONCE = (5, 6, 10, 12, 16, 32)  # on the first; at the rate of eight bits where none is tried
FIXED_RULE = 4  # one of the coursework's two rules: always four bits after the point
STEPS = ("layer", "row")  # what has a step of its own


# ---- cases --------------------------------------------------------------------------------------


def trained(plan: Plan, learning_rate: float) -> Params:
    return {
        "tune_examples": plan.profile.choose(smoke=32, quick=None),
        "tune_learning_rate": learning_rate,
        "tune_batch_size": 16,
    }


def point(width: int, pair: Pair, operands: str = "both") -> Params:
    """The parameters of a format, and of what takes it: weights, inputs, both."""
    weights, inputs = pair
    named = {"frac_width": weights, "input_frac_width": inputs}
    return {"operands": operands, "width": width, **named}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for passes in choose(smoke=(1,), quick=(3, 1, 2)):
        yield {"method": "fp32", **baseline.drawn_params(plan, TUNING_SEED, passes)}
    base = baseline.drawn_params(plan, TUNING_SEED)
    for width, (weights, inputs) in choose(smoke={NARROW: CHOSEN[NARROW]}, quick=STARTS).items():
        yield {"method": "sweep", **base, **start(width, weights, inputs)}
    for operands, frac in (("weights", 5), ("inputs", 2)):
        yield {"method": "sweep", **base, **start(NARROW, frac, frac, operands)}
    few = {None: TRIED[None][:1], NARROW: TRIED[NARROW][:1]}
    for width, rates in choose(smoke=few, quick=TRIED).items():
        for rate in rates:
            yield {**on_at(base, width), **trained(plan, rate)}


def rate_at(width: int | None) -> float:
    return RATES.get(width, RATES[TRAINED[-1]])


def start(width: int, weights: int, inputs: int, operands: str = "both") -> Params:
    return {
        **{"operands": operands, "width": width},
        **{"start_weights": weights, "start_inputs": inputs},
    }


def on_at(base: Params, width: int | None) -> Params:
    """What is trained on: in the chosen format of a width, or in FP32."""
    if width is None:
        return {"method": "control", **base}
    return {"method": "qat", **base, **point(width, CHOSEN[width])}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in plan.seeds:  # first, so that workers fine-tune side by side
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for width, own in CHOSEN.items():
            yield {"method": "ptq", **base, **point(width, own)}
        for width, frac in SHARED.items():
            yield {"method": "ptq", **base, **point(width, (frac, frac))}
        for operands, frac in ALONE.items():
            yield {"method": "ptq", **base, **point(NARROW, (frac, frac), operands)}
        for per in STEPS:
            yield {"method": "ptq", **base, **point(NARROW, CHOSEN[NARROW]), "step_per": per}
        for width in (None, NARROW):
            yield {**on_at(base, width), **trained(plan, rate_at(width))}
    for seed in choose(smoke=(), quick=plan.seeds):
        yield {**on_at(baseline.drawn_params(plan, seed), NARROW), **trained(plan, STEEP)}
    for width in choose(smoke=(), quick=(*reversed(TRAINED[1:]), *TRAINED_ONCE)):
        for seed in plan.seeds[: 1 if width in TRAINED_ONCE else None]:
            base = baseline.drawn_params(plan, seed)
            yield {**on_at(base, width), **trained(plan, rate_at(width))}


@page.quick
def quick(params: Params) -> bool:
    is_ptq = params["method"] == "ptq" and params["width"] in (NARROW, 6, PROBE)
    plain = params.get("operands") == "both" and "step_per" not in params
    return params["seed"] == CONFIRMING_SEEDS[0] and (
        params["method"] == "fp32" or (is_ptq and plain)
    )


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab1_quantization import study

    if params["draw"] == TUNING_SEED:
        return study.validated(params, ctx)
    return study.judged(params, ctx)


# ---- arms ---------------------------------------------------------------------------------------


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", method="fp32")


def control(r: Records) -> Arm:
    return arm(r, "FP32 trained as long", method="control")


def ptq(r: Records, width: int = NARROW) -> Arm:
    """Quantized alone, with a point for weights and one for inputs."""
    return judged(r, f"PTQ at {width} bits", method="ptq", **point(width, CHOSEN[width]))


def shared(r: Records, width: int = NARROW) -> Arm:
    """Quantized alone, with the best point for both."""
    one = (SHARED[width], SHARED[width])
    return judged(r, f"PTQ at {width} bits, one point for both", method="ptq", **point(width, one))


def alone(r: Records, operands: str) -> Arm:
    """Quantized alone, at the narrowest width, one operand of the two."""
    one = (ALONE[operands], ALONE[operands])
    return judged(r, f"{operands} alone", method="ptq", **point(NARROW, one, operands))


def own_steps(r: Records, per: str) -> Arm:
    """Quantized alone, at the narrowest width, with a step for each layer's or row's weights."""
    return arm(r, f"a step per {per}", method="ptq", step_per=per)


def qat(r: Records, width: int = NARROW) -> Arm:
    """Trained on in PTQ's format."""
    where = {"width": width, "tune_learning_rate": rate_at(width)}
    return judged(r, f"QAT at {width} bits", method="qat", **where)


def steep(r: Records) -> Arm:
    """The same at the narrowest width, at the rate of least validation loss."""
    where = {"width": NARROW, "tune_learning_rate": STEEP}
    return judged(r, f"QAT at {NARROW} bits, next to a collapse", method="qat", **where)


def judged(r: Records, label: str, **where: Scalar) -> Arm:
    return arm(r.without("step_per"), label, **where)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def eight_bits_are_enough(r: Records) -> Contrast:
    """At 8 bits, PTQ is at most one point less accurate than FP32."""
    return compare(ptq(r, PROBE), fp32(r)).no_worse(0.01)


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


# ---- numbers ------------------------------------------------------------------------------------


def clipped(r: Records) -> Counted:
    """Of the inputs at the narrowest width, where one point for both is best."""
    a = shared(r)
    return counted(round(100 * mean_share(a, LOSSES["inputs clipped"])), "%", of=a.records)


def zeroed(r: Records) -> Counted:
    """Of the weights that would become zero with the point of the inputs."""
    a = fp32(r)
    below = -CHOSEN[NARROW][1] - 1 - a.first.value("octaves")["first"]
    share = fmean(sum(held["weights"][:below]) for held in a.each("octaves"))
    return counted(round(100 * share), "%", of=a.records)


LOSSES = {
    "weights to zero": "weight_zeroed",
    "weights clipped": "weight_saturated",
    "inputs to zero": "input_zeroed",
    "inputs clipped": "input_saturated",
}


def mean_share(a: Arm, what: str) -> float:
    return fmean(record.values["shares"][what] for record in a.records)


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
    chance=lambda r: counted(round(100 * baseline.larger_class(r)), "%", of=fp32(r).records),
    num_test=lambda r: counted(fp32(r).accuracy.n, of=fp32(r).records),
)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart
def accuracy(r: Records) -> Chart:
    trained_at = r.where(method="qat").each("width")
    one = "PTQ, one fraction width"
    rows = [
        {
            "width": width,
            "PTQ": ptq(r, width),
            "QAT": qat(r, width) if width in trained_at else None,
            one: shared(r, width) if width in SHARED else None,
        }
        for width in CHOSEN
    ]
    marks = [line("PTQ"), line("QAT"), line(one), level(fp32(r)), level(control(r))]
    marks.append(level(baseline.larger_class(r), "larger class"))
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


# ---- a format as a window over magnitudes -------------------------------------------------------

SIZE, ROOM, GAP, TOP = 360.0, 84.0, 34.0, 18.0  # of the picture, a part of it, and between the two
PARTS = ("weights", "inputs")


def octaves_alt(rows: Sequence[Row]) -> str:
    return f"Weights and inputs by magnitude. {window(first_format(rows))}"


def octaves_panels(rows: Sequence[Row]) -> list[Panel]:
    """The first format; the script shows any other."""
    at = first_format(rows)
    losses = ((name, field(name, per_cent(at[name]))) for name in LOSSES)
    accuracy = ("test accuracy", field("accuracy", at["accuracy"]))
    table = field_table(("of this format", ""), (*losses, accuracy))
    svg = f'<div class="beside">{picture(rows, at)}{table}</div>\n{says(window(at))}'
    return [Panel(title="", svg=svg, folded=False)]


def first_format(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["what"] == "format")


def window(at: Row) -> str:
    """The script has the same words."""
    width, weights, inputs = at["width"], at["weights"], at["inputs"]
    if weights == inputs:
        return f"{width} bits, {weights} after the point: one window for both."
    return f"{width} bits: {weights} after the point of weights, {inputs} after that of inputs."


def picture(rows: Sequence[Row], at: Row) -> str:
    """Bars, and what lies outside the window of the format, of weights above those of inputs."""
    bars = [row for row in rows if row["what"] == "octave"]
    first, last = bars[0]["octave"], bars[-1]["octave"]

    def x(octave: int) -> float:
        return SIZE * min(max((octave - first) / len(bars), 0.0), 1.0)

    drawn = ""
    for top, part in zip((TOP, TOP + ROOM + GAP), PARTS):
        most, floor = max(bar[part] for bar in bars), top + ROOM
        outline = "".join(
            f"V{floor - (ROOM - 18) * bar[part] / most:.1f}H{x(bar['octave'] + 1):.1f}"
            for bar in bars
        )
        low, high = x(-at[part] - 1), x(at["width"] - 1 - at[part])
        zone, note = f'y="{top:g}" height="{ROOM:g}"', f'class="note" y="{top + 12:g}"'
        drawn += (
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
        for e in range(first + 3, last, 6)
    )
    return (
        f'<svg class="graph" viewBox="0 0 {SIZE:g} {below + 6:g}" data-first="{first}" '
        f'data-octaves="{len(bars)}" aria-hidden="true">{drawn}{ticks}</svg>'
    )


@page.drawing(panels=octaves_panels, alt=octaves_alt, script="width")
def octaves(r: Records) -> Sequence[Row]:
    """Octaves (factors of two in magnitude) of one model, then every format and what it loses."""
    held = fp32(r).first.value("octaves")
    rows: list[Row] = [
        {"what": "octave", "octave": held["first"] + i, "weights": weights, "inputs": inputs}
        for i, (weights, inputs) in enumerate(zip(held["weights"], held["inputs"]))
    ]
    own = [(ptq(r, width), "own") for width in CHOSEN]
    return rows + [
        {
            **{"what": "format", "points": points, "width": a.param("width")},
            **{"weights": a.param("frac_width"), "inputs": a.param("input_frac_width")},
            **{name: mean_share(a, key) for name, key in LOSSES.items()},
            "accuracy": a,
        }
        for a, points in (*own, *((shared(r, width), "one") for width in SHARED))
    ]


# ---- what was tried on the tuning seed ----------------------------------------------------------


@page.chart
def rules(r: Records) -> Chart:
    """PTQ on the tuning seed's validation sentences, under more and more restriction."""
    rows = [
        {
            "width": width,
            "one for each": tried(sweep, sweep.values["weights"], sweep.values["inputs"]),
            "best one for both": tried(sweep, sweep.values["shared"]),
            "half the width": tried(sweep, width // 2),
            "always four": tried(sweep, FIXED_RULE),
        }
        for width, sweep in sweeps(r).items()
    ]
    marks = [line(name) for name in rows[0] if name != "width"]
    return Chart(rows, x=doubling("width", "bits"), y=percent("validation accuracy"), marks=marks)


def sweeps(r: Records) -> dict[int, Record]:
    """By width, what the tuning seed tried of fraction widths for weights and inputs."""
    found = r.tuning.all(method="sweep", operands="both")
    return {int(record.case.params["width"] or 0): record for record in found}


def tried(sweep: Record, weights: int, inputs: int | None = None) -> float:
    """Validation accuracy of a format that the sweep tried."""
    at = {"weights": weights, "inputs": weights if inputs is None else inputs}
    return next(
        float(one["accuracy"]) for one in sweep.values["tried"] if at.items() <= one.items()
    )


@page.table
def points(r: Records) -> Sequence[Row]:
    trained_at = r.where(method="qat").each("width")
    return [
        {
            "bits": width,
            "weights, inputs": "{}, {}".format(*CHOSEN[width]),
            "PTQ": ptq(r, width),
            "QAT": qat(r, width) if width in trained_at else "",
            "gain, same models": gain(r, width) if width in trained_at else "",
            "models": len(qat(r, width).records) if width in trained_at else "",
        }
        for width in CHOSEN
    ]


def gain(r: Records, width: int) -> Estimate:
    """Of QAT over PTQ, on the models that were trained on."""
    same = r if width in TRAINED else r.where(seed=CONFIRMING_SEEDS[0])
    return qat(same, width) - ptq(same, width)


# Of three models of an earlier run: how the effect differs from model to model, and from sentence
# to sentence in the mean over them.
SPREADS = {
    "PTQ at 8 bits: no loss": (0.010, 0.0035, 0.11),
    "QAT wins back 2 points": (0.020, 0.0076, 0.20),
    "QAT at 4 bits: no loss": (0.020, 0.0066, 0.29),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS), claims=len(SPREADS))


@page.table
def beside_a_collapse(r: Records) -> Sequence[Row]:
    """Test accuracy of QAT at the narrowest width, model by model, at two rates."""
    return [
        {
            "rate": scientific(rate),
            "all": a,
            **{f"seed {one.records[0].case.params['seed']}": str(one) for one in a.models},
        }
        for rate, a in ((RATES[NARROW], qat(r)), (STEEP, steep(r)))
    ]


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training on, by rate."""
    widths = r.tuning.where(method="qat").each("width")
    what: dict[str, Params] = {"FP32": {"method": "control"}}
    what |= {f"{width} bits": {"method": "qat", "width": width} for width in widths}
    return rate_rows(r.tuning, what, "tune_learning_rate")
