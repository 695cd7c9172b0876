"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys. `simulation` runs it in iverilog
against the formats' own arithmetic, and fails where a bit differs; it then gives the unit rows of
the fine-tuned model's weights and activations, and takes the error of what comes out. Models'
accuracies are those that question 3.2 measured for the units' formats.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from experiments.lab4_hardware import synthesis, tools, units
from experiments.lab4_hardware.records import (
    BF16,
    BF16_ADDERS,
    ERROR,
    FP32,
    LANES,
    MIXED,
    MXINT8,
    QUANTIZING,
    STEM,
    Described,
    error_db,
    gates,
    label_of,
    part,
    part_rows,
    percent_of,
    transistors,
)
from madl.logbook import charts
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, bars, category, level, log, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.training import baseline, format_arms
from madl.training.families import group_of, moved_of

page = Experiment(title="Area of dot-product units", needs=("lab3_formats",))

MARGIN = 0.02  # of accuracy that a format may cost and still count as good enough
DRAWN = 0.2  # of accuracy that the axis reaches below FP32's validation accuracy
PERIOD = 40  # FO4 between two results of the pipelines that are told
NARROW_MXINT: Described = {**MXINT8, "width": 4}
FINE: Described = {**MXINT8, "block": 4}  # a scale for few values
MXFP8: Described = {"unit": "mxfloat", "exponent": 4, "mantissa": 3, "block": 32}
FIXED, SCALED, LOG = {"unit": "fixed"}, {"unit": "scaled"}, {"unit": "log"}
BLOCK_FLOAT, BLOCK_LOG = {"unit": "block_float", "block": 16}, {"unit": "block_log", "block": 16}
BLOCK_MINIFLOAT = {"unit": "block_minifloat", "block": 16}
NARROW, WIDE = {"exponent": 2, "mantissa": 1}, {"exponent": 4, "mantissa": 3}
BLOCK_FP4: Described = {**BLOCK_FLOAT, "mantissa": 3}
BLOCK_FP8: Described = {**BLOCK_FLOAT, "mantissa": 7}
BLOCK_LOG4: Described = {**BLOCK_LOG, "width": 4}
SHORTER = tuple({**BF16, "mantissa": bits} for bits in (4, 5, 6))
WINDOWED = {**BF16, "window": 24}  # as many bits as an FP32 significand
MULTIPLIER: Described = {"unit": "float_adders", "mantissa": 23, "lanes": 1}  # one of FP32
# Formats of question 3.2, and the unit that multiplies two vectors of each.
JUDGED: Mapping[str, Described] = {
    "minifloat(16,8,ieee)": BF16,
    "mxint8": MXINT8,
    "mxint4": NARROW_MXINT,
    **{f"fixed({width},{width // 2})": {**FIXED, "width": width} for width in (4, 8, 16)},
    **{f"scaled({width},row)": {**SCALED, "width": width} for width in (4, 8)},
    "minifloat(4,2)": {"unit": "float", **NARROW, "specials": "none"},
    "minifloat(6,2)": {"unit": "float", "exponent": 2, "mantissa": 3, "specials": "none"},
    "minifloat(6,3)": {"unit": "float", "exponent": 3, "mantissa": 2, "specials": "none"},
    "minifloat(8,4)": {"unit": "float", **WIDE, "specials": "none"},
    "minifloat(8,4,nan)": {"unit": "float", **WIDE, "specials": "nan"},
    "minifloat(8,5,ieee)": {"unit": "float", "exponent": 5, "mantissa": 2},
    "minifloat(16,5,ieee)": {"unit": "float", "exponent": 5, "mantissa": 10},
    "denormal(4,2)": {"unit": "denormal", **NARROW},
    "denormal(8,4)": {"unit": "denormal", **WIDE},
    "mxfp8-e4m3": MXFP8,
    "mxfp8-e5m2": {"unit": "mxfloat", "exponent": 5, "mantissa": 2, "block": 32},
    "mxfp6-e3m2": {"unit": "mxfloat", "exponent": 3, "mantissa": 2, "block": 32},
    "mxfp6-e2m3": {"unit": "mxfloat", "exponent": 2, "mantissa": 3, "block": 32},
    "mxfp4-e2m1": {"unit": "mxfloat", **NARROW, "block": 32},
    "block-float(3,8,block=16)": BLOCK_FP4,
    "block-float(7,8,block=16)": BLOCK_FP8,
    "block-minifloat(4,2,8,block=16)": {**BLOCK_MINIFLOAT, **NARROW},
    "block-minifloat(8,4,8,block=16)": {**BLOCK_MINIFLOAT, **WIDE},
    **{f"log({width})": {**LOG, "width": width} for width in (4, 8)},
    "block-log(4,8,block=16)": BLOCK_LOG4,
    "block-log(8,8,block=16)": {**BLOCK_LOG, "width": 8},
    "binary": {"unit": "binary"},
    "scaled-binary": {"unit": "scaled_binary"},
    **{f"residual-sign({n})": {"unit": "residual_sign", "levels": n} for n in (2, 3)},
    "ternary(0.7)": {"unit": "ternary"},
}
# The same with their values at other positions, which multiply a result by a power of two: as a
# row's scale, outside the unit.
MOVED: Mapping[str, Described] = {
    moved: unit for name, unit in JUDGED.items() if (moved := moved_of(name))
}
# The same under another scale, which no unit applies.
RESCALED: Mapping[str, Described] = {"scaled(8,tensor)": {**SCALED, "width": 8}}
LABELLED = (
    "minifloat(16,8,ieee)",
    "mxint8",
    "ternary(0.7)",
    "block-log(4,8,block=16)",
)  # beside the smallest
TOLD = (  # of the table, beside the smallest
    *("minifloat(16,8,ieee)", "mxint8", "mxfp8-e4m3", "minifloat(6,3) moved"),
    *("mxint4", "block-log(4,8,block=16)", "ternary(0.7)"),
)
SMALL = (  # units that are synthesised in a second
    *({"unit": "fixed", "width": 4}, {"unit": "log", "width": 4}, {"unit": "ternary"}),
    {"unit": "mxint", "width": 4, "block": 32},
)
AREA = partial(log, label="transistors of a dot product", unit="thousand", factor=1e-3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    drawn = [{"lanes": LANES, **unit} for unit in every_unit(plan.profile.name)]
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


def every_unit(profile: str) -> Iterator[Described]:
    """The compared ones, those of question 3.2, every width and every block."""
    yield from (MXINT8, BF16, QUANTIZING, FINE)
    if profile == "smoke":
        return
    yield from (*SHORTER, MIXED)
    yield from JUDGED.values()
    yield from ({**MXINT8, "width": width} for width in (3, 4, 5, 6, 7, 8, 10, 12, 16))
    yield from ({**MXINT8, "block": block} for block in (2, 4, 8, 16))
    yield from (BF16_ADDERS, FP32, WINDOWED)


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
    from experiments.lab4_hardware import study

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    given = study.rows_of_model(params, ctx, lanes=unit.lanes)
    found = study.verified(unit, num_random=num_random, seed=seed, rows=given)
    return {**found, "tool": tools.iverilog_version()}


# ---- reading the records ------------------------------------------------------------------------


def judged(r: Records) -> dict[str, tuple[Arm, Record]]:
    """Every format that has both a model and a unit: the two, the small units first.

    Raises:
        Pending: there is none.
    """
    planned = format_arms.names(r)
    found: dict[str, tuple[Arm, Record]] = {}
    for name, unit in {**JUDGED, **MOVED, **RESCALED}.items():
        if name in planned:
            try:
                found[name] = format_arms.trained(r, name), gates(r, unit)
            except Pending:
                continue
    if not found:
        raise Pending("a unit with area and accuracy")
    return dict(sorted(found.items(), key=lambda item: item[1][1].values["transistors"]))


def smallest(r: Records) -> str:
    """The format of the smallest unit that costs at most the margin of validation accuracy.

    Raises:
        Pending: there is none.
    """
    least = format_arms.control(r).validation - MARGIN
    kept = (name for name, (one, _) in judged(r).items() if one.validation >= least)
    if (name := next(kept, None)) is None:
        raise Pending("a format that keeps the accuracy")
    return name


def described(name: str) -> Described:
    """The unit of a format."""
    return {**JUDGED, **MOVED, **RESCALED}[name]


def called(name: str, record: Record) -> str:
    """A unit's name, with what its model's format adds: a position, or whose scale it is."""
    by = " by row" * name.endswith(",row)") + " by tensor" * name.endswith(",tensor)")
    return label_of(record) + ", moved" * (name in MOVED) + by


def shortly(name: str) -> str:
    """A unit's name without its blocks."""
    return re.sub(r", blocks of \d+", "", name)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def smallest_keeps_accuracy(r: Records) -> Contrast:
    """The smallest unit whose format validation puts at most two points below FP32 is at most two
    points below it on test."""
    one, _ = judged(r)[smallest(r)]
    return compare(one, format_arms.control(r)).no_worse(MARGIN)


@page.claim
def mxint8_over_fp32(r: Records) -> Contrast:
    """MXINT8's accuracy over that of FP32, trained alike."""
    return compare(format_arms.trained(r, "mxint8"), format_arms.control(r))


@page.claim
def blocks_over_mxint4(r: Records) -> Contrast:
    """Integers of four bits: a scale for 16 values and a sign apart over a scale for 32."""
    names = ("block-float(3,8,block=16)", "mxint4")
    return compare(*(format_arms.trained(r, name) for name in names))


@page.claim
def integers_over_powers(r: Records) -> Contrast:
    """Four bits in the same blocks: integers over powers of two."""
    names = ("block-float(3,8,block=16)", "block-log(4,8,block=16)")
    return compare(*(format_arms.trained(r, name) for name in names))


# ---- numbers ------------------------------------------------------------------------------------


def of_smallest(r: Records, rival: Described, period: int | None = None) -> Counted:
    """The smallest unit's transistors, of another's."""
    return percent_of(r, described(smallest(r)), rival, period)


def bits(r: Records) -> Counted:
    """The bits of the smallest unit's format, and its name."""
    one, unit = judged(r)[smallest(r)]
    name = shortly(called(smallest(r), unit))
    return counted(one.value("bits"), f"bits a value ({name})", of=[*one.records, unit])


def vectors(r: Records) -> Counted:
    """How many results were simulated, and have the bits of the definition."""
    found = r.of(STEM).all(kind="simulation")
    return counted(sum(record.values["vectors"] for record in found), of=found)


page.numbers(
    bits=bits,
    of_bf16=partial(of_smallest, rival=BF16),
    of_bf16_pipelined=partial(of_smallest, rival=BF16, period=PERIOD),
    fp32=format_arms.control,
    chosen=lambda r: judged(r)[smallest(r)][0],
    mxint8_of_bf16=partial(percent_of, a=MXINT8, b=BF16),
    mxint8_of_bf16_pipelined=partial(percent_of, a=MXINT8, b=BF16, period=PERIOD),
    signs_apart=partial(percent_of, a=BLOCK_FP8, b={**MXINT8, "block": 16}),
    powers_of_integers=partial(percent_of, a=BLOCK_LOG4, b=BLOCK_FP4),
    mxfp8_of_mxint8=partial(percent_of, a=MXFP8, b=MXINT8),
    multipliers=partial(part, unit=MXINT8, name="multipliers"),
    exponents=partial(part, unit=BF16, name="lane exponents"),
    num_formats=lambda r: counted(len(format_arms.once(r))),
    simulated=vectors,
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def front(r: Records) -> Chart:
    """Every format once, but for those far below FP32; five are named."""
    found, once, fp32 = judged(r), format_arms.once(r), format_arms.control(r)
    named, lowest = (*LABELLED, smallest(r)), 5 * round(20 * (fp32.validation - DRAWN))
    rows: list[Row] = [
        {
            "unit": called(name, unit),
            "formats": group_of(name),
            "transistors": unit.values["transistors"],
            "accuracy": one,
            "named": shortly(called(name, unit)) if name in named else None,
        }
        for name, (one, unit) in found.items()
        if (name in once or name in named) and 100 * charts.plain(one) >= lowest
    ]
    return Chart(
        rows,
        x=AREA("transistors"),
        y=charts.percent("test accuracy", limits=(lowest, None)),
        marks=[
            level(fp32, "FP32"),
            points("accuracy", by="formats", text="named"),
        ],
    )


@page.chart
def parts(r: Records) -> Chart:
    chosen = described(smallest(r))
    rows = part_rows(r, [BF16, MXFP8, MXINT8, BLOCK_LOG4, *([chosen] if chosen else [])])
    return Chart(
        rows,
        x=charts.linear(None, "transistors", "thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*(name for name in rows[0] if name != "unit"), stacked=True),
    )


@page.table
def accuracies(r: Records) -> Sequence[Row]:
    """Every format that has a unit, those that the text tells of first."""
    found, first = judged(r), (smallest(r), *TOLD)
    order = [name for name in dict.fromkeys((*first, *found)) if name in found]
    whole = transistors(r, BF16)
    return [
        {
            "unit": called(name, unit),
            "bits a value": one.value("bits"),
            "transistors": unit.values["transistors"],
            "of bf16's": charts.plain(unit.values["transistors"] / whole),
            ERROR: error_db(r, described(name)),
            "test accuracy": one,
        }
        for name in order
        for one, unit in [found[name]]
    ]


@page.table
def sweep(r: Records) -> Sequence[Row]:
    """MXINT by the width of a mantissa and by the size of a block."""
    sizes = [(width, 32) for width in (3, 4, 5, 6, 7, 8, 10, 12, 16)]
    sizes += [(8, block) for block in (16, 8, 4, 2)]
    every = [({**MXINT8, "width": width, "block": block}, width, block) for width, block in sizes]
    return [
        {
            "mantissa bits": width,
            "block": block,
            "transistors": transistors(r, unit),
            "delay (FO4)": gates(r, unit).values["delay"],
            ERROR: error_db(r, unit),
        }
        for unit, width, block in every
    ]
