"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

`gates` synthesises a Verilog unit with yosys. `switching` feeds rows of a fine-tuned model to those
gates, and tells what changes in them. `simulation` runs it as a program against its
definition, and fails where a bit differs; it then takes the error of what comes out for the
rows. Accuracies are those of question 3.2.

Units: areas in transistors, registers included, at equal delay (see `records`).
"""

from collections.abc import Iterable, Sequence
from functools import partial

from experiments.lab3_formats import records as formats
from experiments.lab4_hardware import design, units
from experiments.lab4_hardware.records import (
    BF16,
    INT8,
    MIXED,
    MXINT8,
    QUANTIZING,
    REGISTERS,
    SIGNS_APART,
    STEM,
    area,
    gates,
    part,
    part_chart,
    saved,
    share_of,
    switched,
    unit_rows,
)
from madl.logbook import charts
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, level, log, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import ExactValue, computed, exact, percentage
from madl.logbook.records import Params, Record, Records, Row
from madl.training import baseline

page = Experiment(needs=(formats.STEM,))

# The formats of question 3.2 that have a unit.
FORMATS = {
    "minifloat(16,8,ieee)": BF16,
    "mxint8": MXINT8,
    "scaled(8,row)": INT8,
    "mxfp8-e4m3": "MXFP8-e4m3",
    "mxfp6-e2m3": "MXFP6-e2m3",
    "mxint4": "MXINT4",
    "block-float(3,8,block=16)": "block float 4",
    "mxfp4-e2m1": "MXFP4-e2m1",
    "nvfp4": "NVFP4",
    "int4(fp16,block=32)": "INT4 by 32",
    "block-log(4,8,block=16)": "block log 4",
}
UNITS_DRAWN = (
    BF16,
    MIXED,
    QUANTIZING,
    "MXFP8-e4m3",
    MXINT8,
    SIGNS_APART,
    INT8,
    "NVFP4",
    "MXFP4-e2m1",
)
QUICK_UNITS = ("MXINT4", "block float 4", "MXFP4-e2m1", "block log 4")  # small ones


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    simulated = {
        "num_random": choose(smoke=4, quick=design.RANDOM_VECTORS),
        "rows": choose(smoke=4, quick=design.MODEL_ROWS),
        **baseline.drawn_params(plan, plan.seeds[0]),
    }
    names = choose(smoke=QUICK_UNITS[:1], quick=tuple(units.UNITS))
    for name in names:
        yield {"kind": "gates", "unit": name}
    for name in names:
        yield {"kind": "simulation", "unit": name, **simulated}
    rows = {name: value for name, value in simulated.items() if name != "num_random"}
    for name in choose(smoke=names, quick=UNITS_DRAWN):
        yield {"kind": "switching", "unit": name, **rows}


@page.unavailable
def unavailable(params: Params) -> str | None:
    from experiments.lab4_hardware import tools
    from kernels import compilers

    if tools.yosys() is None:
        return tools.NO_YOSYS
    if params["kind"] == "simulation" and not any(compilers.cpp()):
        return compilers.NO_COMPILER
    return None


page.quick(lambda params: params["kind"] == "gates" and params["unit"] in QUICK_UNITS)


def smallest(r: Records) -> str:
    """The format of the smallest unit."""
    return min(FORMATS, key=lambda name: area(r, FORMATS[name]))


def chosen(r: Records) -> Arm:
    """The models in the format of the smallest unit, as quantized."""
    return formats.untrained(r, smallest(r))


@page.claim
def mxint8_over_fp32(r: Records) -> Contrast:
    """MXINT8's accuracy over FP32's."""
    return compare(formats.untrained(r, "mxint8"), formats.fp32(r))


@page.claim
def finer_scales_over_mxint4(r: Records) -> Contrast:
    """Integers of four bits: a scale for 16 values and a sign apart over a scale for 32."""
    return compare(
        formats.untrained(r, "block-float(3,8,block=16)"), formats.untrained(r, "mxint4")
    )


@page.claim
def integers_over_powers(r: Records) -> Contrast:
    """Four bits in blocks of 16: integers over powers of two."""
    return compare(
        formats.untrained(r, "block-float(3,8,block=16)"),
        formats.untrained(r, "block-log(4,8,block=16)"),
    )


def smallest_format(r: Records) -> ExactValue:
    """The bits of a value in the smallest unit, with the format's name in the unit."""
    model = chosen(r)
    return exact(model.value("bits"), model.records, f"bits: {model.label}")


def narrow_multipliers(r: Records) -> ExactValue:
    """The area of MXINT4's multipliers, as a share of MXINT8's."""
    narrow, wide = (gates(r, unit) for unit in ("MXINT4", MXINT8))
    share = narrow.values["parts"]["multipliers"] / wide.values["parts"]["multipliers"]
    return percentage(share, [narrow, wide])


def simulations(r: Records) -> Sequence[Record]:
    return r.of_experiment(STEM).all(kind="simulation")


page.numbers(
    format=smallest_format,
    of_bf16=lambda r: share_of(r, FORMATS[smallest(r)], BF16),
    nvfp4_of_bf16=partial(share_of, a="NVFP4", b=BF16),
    mxfp4_of_bf16=partial(share_of, a="MXFP4-e2m1", b=BF16),
    nvfp4_models=partial(formats.untrained, preset="nvfp4"),
    mxfp4_models=partial(formats.untrained, preset="mxfp4-e2m1"),
    mxint8_models=partial(formats.untrained, preset="mxint8"),
    mxint8=partial(share_of, a=MXINT8, b=BF16),
    mixed=partial(share_of, a=MIXED, b=BF16),
    int8=partial(share_of, a=INT8, b=BF16),
    nvfp4=partial(share_of, a="NVFP4", b="MXFP4-e2m1"),
    nvfp4_in_blocks=partial(share_of, a="NVFP4", b="MXFP4, blocks of 16"),
    chosen=chosen,
    fp32=formats.fp32,
    logic_alone=partial(share_of, a=MXINT8, b=BF16, period=None),
    fast=partial(share_of, a=MXINT8, b=BF16, period=design.PERIODS[0]),
    slow=partial(share_of, a=MXINT8, b=BF16, period=design.PERIODS[-1]),
    mxint8_switched=partial(switched, a=MXINT8, b=BF16),
    nvfp4_switched=partial(switched, a="NVFP4", b=BF16),
    mxfp4_switched=partial(switched, a="MXFP4-e2m1", b=BF16),
    signs_apart=partial(share_of, a=SIGNS_APART, b=MXINT8),
    quantizing=partial(share_of, a=QUANTIZING, b=BF16),
    blocks_of_8=partial(share_of, a="MXINT8, blocks of 8", b=MXINT8),
    powers=partial(share_of, a="block log 4", b="block float 4"),
    narrow_multipliers=narrow_multipliers,
    exponents=partial(part, unit=BF16, name="lane exponents"),
    saved_registers=partial(saved, a=MXINT8, b=BF16, name=REGISTERS),
    saved_exponents=partial(saved, a=MXINT8, b=BF16, name="lane exponents"),
    simulated=computed(simulations, lambda rs: sum(r.values["vectors"] for r in rs)),
)


@page.chart
def front(r: Records) -> Chart:
    """Accuracy against transistors, of every format that has a model and a unit with all parts:
    INT8's ends in an integer.
    """
    rows: list[Row] = [
        {"unit": unit, "transistors": area(r, unit), "accuracy": formats.untrained(r, preset)}
        for preset, unit in FORMATS.items()
        if unit != INT8
    ]
    return Chart(
        rows,
        x=log("transistors", "transistors, at an equal rate", "thousand", factor=1e-3),
        y=charts.percent("test accuracy"),
        marks=[level(formats.fp32(r), "FP32"), points("accuracy", text="unit")],
    )


@page.chart
def parts(r: Records) -> Chart:
    return part_chart(r, UNITS_DRAWN)


@page.table
def every_unit(r: Records) -> Sequence[Row]:
    """BF16, the standard of comparison, then the others, small ones first; accuracies where
    question 3.2 has the format for weights and inputs."""
    presets = {unit: preset for preset, unit in FORMATS.items()} | {SIGNS_APART: "mxint8"}
    names = sorted(
        r.of_experiment(STEM).all(kind="gates").param_values("unit"),
        key=lambda name: (name != BF16, area(r, name)),
    )
    models: dict[str, Arm | str] = dict.fromkeys(names, "no such model")
    models |= {unit: formats.untrained(r, preset) for unit, preset in presets.items()}
    return [{**row, "test accuracy": models[str(row["unit"])]} for row in unit_rows(r, names)]
