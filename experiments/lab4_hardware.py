"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys. `simulation` runs it in iverilog
against the formats' own arithmetic, and fails where a bit differs; it then gives the unit rows of
the fine-tuned model's weights and activations, and takes the error of what comes out. A machine
without the program leaves the cases of that kind alone. Models' accuracies are those that question
3.2 measured for the units' formats.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from madl.hardware import compared, counts, rows_of_units, synthesis, tools, units
from madl.hardware.compared import BF16, MIXED, MXFP8, MXINT8, QUANTIZING, SHORTER
from madl.hardware.counts import LANES, cells_of, error_db, gates, pipelined, ratio, transistors
from madl.logbook import charts
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline, format_arms

page = Experiment(title="Area of dot-product units", needs=("baseline", "lab3_formats"))

MARGIN = 0.02  # of accuracy that a format may cost and still count as good enough
SHARED = 16  # units that take their activations from one quantizer: a small array's row
DRAWN = 0.15  # of accuracy that the axis reaches below FP32's validation accuracy


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    drawn = [{"lanes": LANES, **unit} for unit in compared.every_unit(plan.profile.name)]
    swept = choose(smoke=(), quick=compared.swept(), full=())  # full runs them all
    for unit in (*drawn, *swept):
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
    from madl.hardware import reference, rows

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    given = rows.of_model(params, ctx, lanes=unit.lanes)
    found = reference.verified(unit, num_random=num_random, seed=seed, rows=given)
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


@page.fact(headline=True)
def at_one_speed(r: Records) -> Fact:
    said = [
        f"{number(pipelined(r, period, **QUANTIZING) / pipelined(r, period, **BF16))} × (quantizing"
        f") and {number(pipelined(r, period, **MXINT8) / pipelined(r, period, **BF16))} × (without)"
        f" at a result every {period} FO4"
        for period in synthesis.PERIODS
    ]
    return Fact(
        text=f"Pipelined to one speed, flip-flops counted, MXINT8 takes {', '.join(said)} the "
        "transistors of bf16",
        of=cells_of(r, MXINT8, QUANTIZING, BF16),
    )


@page.fact
def area_times_delay(r: Records) -> Fact:
    made = {name: gates(r, **counts.COMPARED[name]).values for name in list(counts.COMPARED)[:3]}
    bare, bf16, quantizing = (one["transistors"] * one["delay"] for one in made.values())
    delays = ", ".join(f"{name} {number(one['delay'])}" for name, one in made.items())
    return Fact(
        text=f"The longest paths, in FO4: {delays}. Transistors times delay are "
        f"{number(quantizing / bf16)} × those of bf16 with the quantizer, {number(bare / bf16)} × "
        "without it",
        of=cells_of(r, MXINT8, BF16, QUANTIZING),
    )


@page.fact(headline=True)
def as_exact(r: Records) -> Fact:
    """The rival is a float shortened until its error is MXINT8's, chosen on validation."""
    rival = counts.cheapest_as_exact(r, [*SHORTER, BF16], MXINT8)
    label = counts.label_of(gates(r, **rival))
    return Fact(
        text=f"Of three floats with eight exponent bits the smallest as exact, {label}, takes "
        f"{ratio(r, rival, MXINT8)} the transistors of MXINT8 × MXINT8, both given what is "
        f"rounded already: {number(error_db(r, **rival))} dB of signal to error on the model's "
        f"tensors, MXINT8's {number(error_db(r, **MXINT8))} dB, bf16's "
        f"{number(error_db(r, **BF16))} dB",
        of=cells_of(r, MXINT8, *SHORTER, BF16),
    )


@page.fact
def exponents(r: Records) -> Fact:
    mx, bf16 = counts.parts_of(r, **MXINT8), counts.parts_of(r, **BF16)
    share = per_cent(bf16["lane exponents"] / sum(bf16.values()))
    return Fact(
        text=f"Of bf16's transistors {share} are the lanes' exponents (adding them, finding the "
        f"largest, shifting), of which MXINT8 has {mx['lane exponents']:,}; its multipliers take "
        f"{mx['multipliers']:,}, bf16's {bf16['multipliers']:,}",
        of=cells_of(r, MXINT8, BF16),
    )


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
    found = r.all(kind="simulation")
    sums = {key: sum(one.values[key] for one in found) for key in ("vectors", "finite")}
    return Fact(
        text=f"All {sums['vectors']:,} simulated results have the bits of the definition, and all "
        f"{sums['finite']:,} finite ones lie within the unit's bound of the exact dot product; a "
        "case where one does not fails",
        of=f"{len(found)} units",
    )


# ---- claims about accuracy ----------------------------------------------------------------------


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


@page.claim(headline=True)
def narrow_costs_accuracy(r: Records) -> Judged:
    """MXINT4 on every Linear layer is less accurate than FP32 tuned alike."""
    fp32, narrow = format_arms.control(r), format_arms.trained(r, "mxint4")
    said = f"{narrow} against {fp32}"
    return compare(fp32, narrow).judge(
        supported=f"MXINT4 costs {fp32 - narrow} against FP32 tuned alike: {said}",
        refuted=f"MXINT4 is {narrow - fp32} more accurate than FP32 tuned alike: {said}",
        undecided=f"Nothing shows that MXINT4 costs accuracy: {narrow - fp32:+i} from FP32 "
        "tuned alike",
    )


# ---- figures and tables -------------------------------------------------------------------------


def thousands(*, column: str | None = None, label: str = f"transistors of {LANES} lanes") -> Any:
    """The axis of a unit's size, logarithmic."""
    return charts.log(column, label, "thousand", factor=1e-3)


@page.chart(
    caption="A point is a unit as built: across, its transistors; upward, how far its results are "
    "above their error, on rows of the model's own weights and activations. Better is to the left "
    "and up."
)
def errors(r: Records) -> Chart:
    return Chart(
        rows_of_units.errors(r),
        x=thousands(column="transistors"),
        y=linear(label="signal to error", unit="dB"),
        marks=[points("error", text="unit", by="family")],
    )


@page.chart(
    caption="A point is a number format on every Linear layer: across, its unit's transistors; "
    "upward, the model's test accuracy with its interval. The line is FP32 tuned alike. Formats "
    "below the axis stand in the table only."
)
def front(r: Records) -> Chart:
    fp32 = format_arms.control(r)
    lowest = 5 * round(20 * (fp32.validation - DRAWN))
    return Chart(
        rows_of_units.accuracies(r),
        x=thousands(column="transistors"),
        y=charts.percent("test accuracy", limits=(lowest, None)),
        marks=[level(fp32, "FP32"), points("accuracy", text="unit", by="family")],
    )


@page.chart(caption="Transistors by what they are for.")
def parts(r: Records) -> Chart:
    return Chart(
        rows_of_units.parts(r),
        x=linear(label=f"transistors of {LANES} lanes", unit="thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*counts.PARTS, stacked=True),
    )


@page.chart(
    caption="Transistors of MXINT units against the width of a mantissa, in the blocks of the MX "
    "standard, beside bf16."
)
def widths(r: Records) -> Chart:
    return _area(r, rows_of_units.swept(r, "width", block=32), "width", "mantissa width", "bits")


@page.chart(
    caption="Transistors of MXINT units against the number of values that share a scale, beside "
    "bf16."
)
def blocks(r: Records) -> Chart:
    return _area(r, rows_of_units.swept(r, "block", width=8), "block", "block size", "values")


def _area(r: Records, rows: Sequence[Row], by: str, label: str, unit: str) -> Chart:
    return Chart(
        rows,
        x=doubling(by, unit, label=label),
        y=linear(label=f"transistors of {LANES} lanes", unit="thousand", factor=1e-3),
        marks=[line("transistors", "MXINT"), level(transistors(r, **BF16), "bf16")],
    )


@page.table
def every(r: Records) -> Sequence[Row]:
    return rows_of_units.every(r)


@page.table
def simulation(r: Records) -> Sequence[Row]:
    return rows_of_units.simulated(r)
