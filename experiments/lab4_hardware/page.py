"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys. `simulation` runs it in iverilog
against the formats' own arithmetic, and fails where a bit differs; it then gives the unit rows of
the fine-tuned model's weights and activations, and takes the error of what comes out. A machine
without the program leaves the cases of that kind alone. Models' accuracies are those that question
3.2 measured for the units' formats.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from experiments.lab4_hardware import accuracy_facts, unit_facts
from experiments.lab4_hardware.accuracy_facts import CONTROL, against_fp32
from madl.hardware import compared, counts, synthesis, tools, unit_records, units
from madl.hardware.compared import BF16, FP32, MULTIPLIER, MXINT8, POWERS, QUANTIZING
from madl.hardware.counts import AT_ANY_SPEED, LANES, ratio_range, transistors
from madl.hardware.unit_records import finely, share
from madl.logbook import charts
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline, format_arms

page = Experiment(title="Area of dot-product units", needs=("baseline", "lab3_formats"))

MARGIN = 0.02  # of accuracy that a format may cost and still count as good enough
CLOSE = 0.01  # that it may cost and count as accurate as FP32: what these examples can decide
DRAWN = 0.1  # of accuracy that the axis reaches below FP32's validation accuracy
SMALL = (  # units that are synthesised in a second
    *({"unit": "fixed", "width": 4}, {"unit": "log", "width": 4}, {"unit": "ternary"}),
    {"unit": "mxint", "width": 4, "block": 32},
)
AREA = linear(None, f"transistors of {LANES} lanes", "thousand", factor=1e-3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    drawn = [{"lanes": LANES, **unit} for unit in compared.every_unit(plan.profile.name)]
    for unit in (*drawn, *choose(smoke=[], quick=[{"lanes": LANES, **FP32}]), MULTIPLIER):
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


@page.quick
def quick(params: Params) -> bool:
    """The gates of four small units."""
    return params["kind"] == "gates" and any(unit.items() <= params.items() for unit in SMALL)


@page.run
def run(params: Params, ctx: Context) -> Values:
    unit = units.from_params({"lanes": LANES, **params})
    if params["kind"] == "gates":
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", tools.first_start)
        return synthesis.synthesize(unit, gate_set=str(params["gate_set"])).to_json()
    from experiments.lab4_hardware import rows, verification

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    given = rows.of_model(params, ctx, lanes=unit.lanes)
    found = verification.verified(unit, num_random=num_random, seed=seed, rows=given)
    return {**found, "tool": tools.iverilog_version()}


# ---- facts --------------------------------------------------------------------------------------

page.fact(headline=True)(unit_facts.saving)
for counted in (
    *(unit_facts.sign_and_magnitude, unit_facts.at_one_speed, unit_facts.area_times_delay),
    *(unit_facts.as_exact, unit_facts.powers, unit_facts.row_scales, unit_facts.exponents),
    *(unit_facts.one_side, unit_facts.small_floats, unit_facts.simpler_gates),
    *(unit_facts.shared_quantizer, unit_facts.simulated, accuracy_facts.every_format),
    *(accuracy_facts.mantissas_have, accuracy_facts.blocks_have),
    *(accuracy_facts.one_class, accuracy_facts.same_training, accuracy_facts.fp32_unit),
    *(accuracy_facts.next_smaller, unit_facts.capped_sums, unit_facts.multipliers_grow),
):
    page.fact(counted)


@page.fact(headline=True)
def area_buys(r: Records) -> Fact:
    return accuracy_facts.area_buys(r, CLOSE)


# ---- claims about accuracy ----------------------------------------------------------------------


@page.claim(headline=True)
def smallest_as_accurate(r: Records) -> Judged:
    """The smallest unit whose format validation puts at or above FP32 costs at most one point."""
    one, unit = unit_records.smallest(r, 0.0)
    fp32 = format_arms.control(r)
    size, margin = accuracy_facts.sized(r, unit), f"{100 * CLOSE:g} point"
    said = f"{finely(one, fp32)}, {share(one)} against {share(fp32)}"
    chosen = f"{accuracy_facts.smallest_unit(r, unit)}. On test"
    return (
        compare(one, fp32)
        .no_worse(CLOSE)
        .judge(
            supported=f"{chosen} it costs the classifier at most {margin} of accuracy "
            f"against {CONTROL} ({said}). {size}",
            refuted=f"{chosen} it costs the classifier more than {margin} of accuracy "
            f"against {CONTROL} ({said}). {size}",
            undecided=f"{chosen} its model {against_fp32(one, fp32, margin)} ({said}). {size}",
        )
    )


@page.claim(headline=True)
def smallest_that_keeps(r: Records) -> Judged:
    """The smallest unit that keeps accuracy on validation keeps it on test, within two points."""
    one, unit = unit_records.smallest(r, MARGIN)
    fp32 = format_arms.control(r)
    said = f"{finely(one, fp32)}, {share(one)} against {share(fp32)}"
    margin = f"{100 * MARGIN:g} points"
    chosen = f"The smallest unit whose format is within {margin} of FP32 on validation "
    chosen += f"({per_cent(one.validation)} against {per_cent(fp32.validation)}) is that of "
    chosen += f"{accuracy_facts.spelled(unit)}. On test its model"
    size = accuracy_facts.sized(r, unit)
    return (
        compare(one, fp32)
        .no_worse(MARGIN)
        .judge(
            supported=f"{chosen} is within {margin} of {CONTROL} too ({said}). {size}",
            refuted=f"{chosen} is more than {margin} below {CONTROL} ({said}). {size}",
            undecided=f"{chosen} {against_fp32(one, fp32, margin)} ({said}). {size}",
        )
    )


@page.claim
def mxint8_is_accurate(r: Records) -> Judged:
    """MXINT8 on every Linear layer costs less than two points against FP32, trained alike."""
    mx, fp32 = format_arms.trained(r, "mxint8"), format_arms.control(r)
    said = f"{finely(mx, fp32)} ({share(mx)} against {share(fp32)} of {CONTROL})"
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


@page.claim
def powers_cost_accuracy(r: Records) -> Judged:
    """At four bits in the same blocks powers of two are less accurate than block floating point."""
    return _powers(r, 4, compared.NARROW_POWERS)


@page.claim
def wide_powers_cost_accuracy(r: Records) -> Judged:
    """At eight bits in the same blocks powers of two are less accurate than block floats."""
    return _powers(r, 8, compared.WIDE_POWERS)


def _powers(r: Records, bits: int, formats: tuple[str, str]) -> Judged:
    two, rival = (format_arms.trained(r, name) for name in formats)
    begun = f"At {bits} bits a value, in the same blocks, a unit for powers of two takes "
    begun += f"{ratio_range(r, *POWERS[bits])} × the transistors of one for block floating point, "
    begun += f"{AT_ANY_SPEED}, and its format's model"
    said = f"{finely(two, rival)} ({share(two)} against {share(rival)})"
    return compare(rival, two).judge(
        supported=f"{begun} is less accurate: {said}",
        refuted=f"{begun} is more accurate: {said}",
        undecided=f"{begun} is not shown to be less accurate: {said}",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="A point is a unit as built: across, its transistors, unpipelined; upward, its signal "
    "to error on rows of the model's own weights and activations. Better is to the left and up. "
    "Every format stands at its default position, also where accuracies are of it moved; below "
    "the axis is more error than signal. A point without a name says it when pointed at."
)
def errors(r: Records) -> Chart:
    return Chart(
        unit_records.errors(r),
        x=replace(AREA, column="transistors", scale="log10"),
        y=linear(label="signal to error", unit="dB", limits=(0, None)),
        marks=[points("error", text="unit", by="group")],
    )


@page.chart(
    caption="A point is a number format on every Linear layer: across, its unit's transistors, "
    "unpipelined; upward, the model's test accuracy with its interval. Better is to the left and "
    "up. The line is FP32, offered the same training. Units whose sums all have one point (fixed "
    "point, scaled integers, signs, the narrowest floats and powers of two) end in an exact "
    "integer, whose conversion to FP32 is not counted; MX, block and other floats' units end in a "
    "rounded FP32 number. Names are explained below, and a point without one says it when pointed "
    "at; the table has what is below the axis."
)
def front(r: Records) -> Chart:
    fp32 = format_arms.control(r)
    lowest = 5 * round(20 * (fp32.validation - DRAWN))
    rows = unit_records.shortly(unit_records.accuracies(r))
    return Chart(
        [row for row in rows if 100 * charts.plain(row["accuracy"]) >= lowest],
        x=replace(AREA, column="transistors", scale="log10"),
        y=charts.percent("test accuracy", limits=(lowest, None)),
        marks=[level(fp32, "FP32"), points("accuracy", text="unit", by="group")],
    )


@page.chart(
    caption="Transistors by what they are for, unpipelined, of MXINT8 and of the units beside it."
)
def parts(r: Records) -> Chart:
    return _parts(unit_records.parts(r))


@page.chart(
    caption="Transistors by what they are for, unpipelined, of every format of at most four bits a "
    "value, the scale of a block apart."
)
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
        y=replace(AREA, limits=(0, None)),
        marks=[line("transistors", "MXINT"), level(transistors(r, **BF16), "bf16")],
    )


@page.table
def block_sizes(r: Records) -> Sequence[Row]:
    return unit_records.swept(r, "block", width=8)


page.table(unit_records.every)
page.table(unit_records.simulation)
page.table(unit_records.accuracy_table)
