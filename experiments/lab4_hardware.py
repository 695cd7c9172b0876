"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys. `simulation` runs it in iverilog
against the formats' own arithmetic, and fails where a bit differs; it then gives the unit rows of
the fine-tuned model's weights and activations, and takes the error of what comes out. A machine
without the program leaves the cases of that kind alone. Models' accuracies are those that question
3.2 measured for the units' formats.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from madl.hardware import compared, counts, synthesis, tools, unit_facts, unit_records, units
from madl.hardware.compared import BF16, MIXED, MULTIPLIER, MXFP8, MXINT8, POWERS, QUANTIZING
from madl.hardware.counts import LANES, cells_of, error_db, ratio, transistors
from madl.logbook import charts
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline, format_arms

page = Experiment(title="Area of dot-product units", needs=("baseline", "lab3_formats"))

MARGIN = 0.02  # of accuracy that a format may cost and still count as good enough
SHARED = 16  # units that take their activations from one quantizer: a small array's row
DRAWN = 0.2  # of accuracy that the axis reaches below FP32's validation accuracy
AREA = linear(None, f"transistors of {LANES} lanes", "thousand", factor=1e-3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    drawn = [{"lanes": LANES, **unit} for unit in compared.every_unit(plan.profile.name)]
    swept = choose(smoke=(), quick=compared.swept(), full=())  # full runs them all
    for unit in (*drawn, *swept, MULTIPLIER):
        yield {"kind": "gates", "gate_set": "cells", "lanes": LANES, **unit}
    for unit in choose(smoke=[], quick=[MXINT8, BF16], full=[MXINT8, BF16, QUANTIZING]):
        yield {"kind": "gates", "gate_set": "cmos2", "lanes": LANES, **unit}
    checked = {
        "num_random": choose(smoke=4, quick=20, full=1000),
        "rows": choose(smoke=16, quick=256, full=4096),
        **baseline.recipe_params(plan, 0),
    }
    for unit in drawn:
        yield {"kind": "simulation", **unit, **checked}


@page.unavailable
def unavailable(params: Params) -> str | None:
    if params["kind"] == "gates" and tools.yosys() is None:
        return tools.NO_YOSYS
    if params["kind"] == "simulation" and tools.iverilog() is None:
        return tools.NO_IVERILOG
    return None


@page.run
def run(params: Params, ctx: Context) -> Values:
    unit = units.from_params({"lanes": LANES, **params})
    if params["kind"] == "gates":
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", tools.first_start)
        return synthesis.synthesize(unit, gate_set=str(params["gate_set"])).to_json()
    from madl.hardware import rows, verification

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    given = rows.of_model(params, ctx, lanes=unit.lanes)
    found = verification.verified(unit, num_random=num_random, seed=seed, rows=given)
    return {**found, "tool": tools.iverilog_version()}


# ---- facts about area ---------------------------------------------------------------------------


@page.fact(headline=True)
def saving(r: Records) -> Fact:
    quantizer = counts.parts_of(r, **QUANTIZING)["quantizer"]
    shared = transistors(r, **QUANTIZING) - quantizer * (1 - 1 / SHARED)
    return Fact(
        text=f"From {LANES} bf16 activations to one FP32 number, MXINT8 takes "
        f"{ratio(r, QUANTIZING, BF16)} the transistors of bf16 where a unit quantizes for itself, "
        f"{number(shared / transistors(r, **BF16))} × where {SHARED} share a quantizer, and "
        f"{ratio(r, MXINT8, BF16)} where the activations come quantized",
        of=cells_of(r, MXINT8, QUANTIZING, BF16),
    )


@page.fact
def at_one_speed(r: Records) -> Fact:
    return unit_facts.at_one_speed(r)


@page.fact
def area_times_delay(r: Records) -> Fact:
    return unit_facts.area_times_delay(r)


@page.fact
def as_exact(r: Records) -> Fact:
    return unit_facts.as_exact(r)


@page.fact
def powers(r: Records) -> Fact:
    return unit_facts.powers(r)


@page.fact
def row_scales(r: Records) -> Fact:
    return unit_facts.row_scales(r)


@page.fact
def exponents(r: Records) -> Fact:
    return unit_facts.exponents(r)


@page.fact
def one_side(r: Records) -> Fact:
    return Fact(
        text=f"Quantizing the weights alone: MXINT8 weights with bf16 activations take "
        f"{ratio(r, MIXED, BF16)} the transistors of bf16 on both sides",
        of=cells_of(r, MIXED, BF16),
    )


@page.fact
def mxfp8(r: Records) -> Fact:
    return Fact(
        text=f"With eight bits on both sides MXFP8 (E4M3) takes {ratio(r, MXFP8, MXINT8)} MXINT8's "
        f"transistors, and its results are {number(error_db(r, **MXFP8))} dB above their error, "
        f"MXINT8's {number(error_db(r, **MXINT8))} dB",
        of=cells_of(r, MXFP8, MXINT8),
    )


@page.fact
def simpler_gates(r: Records) -> Fact:
    return Fact(
        text="With NAND, NOR and NOT alone MXINT8, given what is quantized, takes "
        f"{ratio(r, MXINT8, BF16, gate_set='cmos2')} the transistors of bf16, instead of "
        f"{ratio(r, MXINT8, BF16)}",
        of=cells_of(r, MXINT8, BF16, gate_set="cmos2"),
    )


@page.fact
def simulated(r: Records) -> Fact:
    return unit_facts.simulated(r)


# ---- claims about accuracy ----------------------------------------------------------------------


@page.claim(headline=True)
def powers_cost_accuracy(r: Records) -> Judged:
    """At four bits in the same blocks powers of two are less accurate than block floating point."""
    two, rival = (format_arms.trained(r, name) for name in compared.NARROW_POWERS)
    size = ratio(r, *POWERS[4])
    begun = f"Powers of two need no multiplier; at four bits their unit takes {size} the "
    begun += "transistors of block floating point's, in the same bits and blocks, and the model is"
    return compare(rival, two).judge(
        supported=f"{begun} less accurate by {rival - two}: {two} against {rival}",
        refuted=f"{begun} more accurate by {two - rival}: {two} against {rival}",
        undecided=f"{begun} not shown to be less accurate: {two - rival:+i}",
    )


@page.claim(headline=True)
def smallest_that_keeps(r: Records) -> Judged:
    """The smallest unit that keeps accuracy on validation keeps it on test, within two points."""
    one, unit = unit_records.smallest(r, MARGIN)
    fp32, size = format_arms.control(r), unit.values["transistors"]
    said = f"{one - fp32:+i} ({one} against {fp32} of FP32 tuned alike)"
    margin = f"{100 * MARGIN:g} points"
    chosen = f"The smallest unit whose format validation finds within {margin} of FP32, "
    chosen += f"{counts.side_of(unit)} ({number(size / transistors(r, **MXINT8))} × MXINT8's size),"
    return (
        compare(one, fp32)
        .no_worse(MARGIN)
        .judge(
            supported=f"{chosen} is within them on test: {said}",
            refuted=f"{chosen} is not within them on test: {said}",
            undecided=f"{chosen} is not shown to be within them on test: {said}",
        )
    )


@page.claim(headline=True)
def mxint8_is_accurate(r: Records) -> Judged:
    """MXINT8 on every Linear layer costs less than two points against FP32 tuned alike."""
    mx, fp32 = format_arms.trained(r, "mxint8"), format_arms.control(r)
    said = f"{mx - fp32:+i} ({mx} against {fp32} of FP32 tuned alike)"
    margin = f"{100 * MARGIN:g} points"
    return (
        compare(mx, fp32)
        .no_worse(MARGIN)
        .judge(
            supported=f"MXINT8 on every Linear layer costs less than {margin} of accuracy: {said}",
            refuted=f"MXINT8 on every Linear layer costs more than {margin} of accuracy: {said}",
            undecided=f"Whether MXINT8 on every Linear layer costs less than {margin} of accuracy "
            f"is open: {said}",
        )
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="A point is a unit as built: across, its transistors; upward, how far its results are "
    "above their error, on rows of the model's own weights and activations. Better is to the left "
    "and up. Formats stand at their own positions; below the axis is more error than signal."
)
def errors(r: Records) -> Chart:
    return Chart(
        unit_records.errors(r),
        x=replace(AREA, column="transistors", scale="log10"),
        y=linear(label="signal to error", unit="dB", limits=(0, None)),
        marks=[points("error", text="unit", by="formats")],
    )


@page.chart(
    caption="A point is a number format on every Linear layer: across, its unit's transistors; "
    "upward, the model's test accuracy with its interval. Better is to the left and up. The "
    "line is FP32 tuned alike. A row's scale is applied outside the unit. Narrow "
    "formats without a scale are moved. The table has those not named, and those below the axis."
)
def front(r: Records) -> Chart:
    fp32 = format_arms.control(r)
    lowest = 5 * round(20 * (fp32.validation - DRAWN))
    return Chart(
        unit_records.named(unit_records.accuracies(r), "MXINT8", "bf16"),
        x=replace(AREA, column="transistors", scale="log10"),
        y=charts.percent("test accuracy", limits=(lowest, None)),
        marks=[level(fp32, "FP32"), points("accuracy", text="named", by="formats")],
    )


@page.chart(caption="Transistors by what they are for, of MXINT8's rivals and its own.")
def parts(r: Records) -> Chart:
    return _parts(unit_records.parts(r))


@page.chart(caption="Transistors by what they are for, of every format of few bits a value.")
def narrow(r: Records) -> Chart:
    return _parts(unit_records.narrow_parts(r))


def _parts(rows: Sequence[Row]) -> Chart:
    return Chart(
        rows,
        x=AREA,
        y=category("unit"),
        marks=bars(*(part for part in counts.PARTS if part in rows[0]), stacked=True),
    )


@page.chart(
    caption="Transistors of MXINT units against the width of a mantissa, in the blocks of the MX "
    "standard, beside bf16."
)
def widths(r: Records) -> Chart:
    return _area(r, unit_records.swept(r, "width", block=32), "width", "mantissa width", "bits")


@page.chart(
    caption="Transistors of MXINT units against the number of values that share a scale, beside "
    "bf16. The table has the delay and the error, which small blocks change too."
)
def blocks(r: Records) -> Chart:
    return _area(r, unit_records.swept(r, "block", width=8), "block", "block size", "values")


def _area(r: Records, rows: Sequence[Row], by: str, label: str, unit: str) -> Chart:
    return Chart(
        rows,
        x=doubling(by, unit, label=label),
        y=AREA,
        marks=[line("transistors", "MXINT"), level(transistors(r, **BF16), "bf16")],
    )


@page.table
def every(r: Records) -> Sequence[Row]:
    return unit_records.every(r)


@page.table
def simulation(r: Records) -> Sequence[Row]:
    return unit_records.simulated(r)


@page.table
def accuracies(r: Records) -> Sequence[Row]:
    return unit_records.accuracies(r)
