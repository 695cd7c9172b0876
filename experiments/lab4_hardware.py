"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys; `simulation` runs it in iverilog
against the formats' own arithmetic, and fails where a bit differs. A machine without the program
leaves the cases of that kind alone. Accuracies are those that question 3.2 measured for the units'
formats.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from madl.errors import MadlError
from madl.hardware import counts, synthesis, tools, units
from madl.hardware.counts import COMPARED, LANES, gates, transistors
from madl.logbook import charts
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent

log = logging.getLogger(__name__)
page = Experiment(title="Area of dot-product units", needs=("lab3_formats",))

T = TypeVar("T")
MARGIN = 0.02  # of accuracy that a format may cost and still count as good enough
MXINT8, BF16, MIXED, BF16_FP32, FP32 = COMPARED.values()
DRAWN = 0.15  # of accuracy that the axis reaches below FP32's validation accuracy
NARROW = 4
WINDOWED = {**BF16, "window": 16}  # no bit more than one product has
NARROW_MXINT = {"unit": "mxint", "width": NARROW, "block": 32}
MXFP8 = {"unit": "mxfloat", "exponent": 4, "mantissa": 3, "block": 32}
SIGNED = {"unit": "block_float", "mantissa": 7, "block": 32}  # MXINT8's values, sign and magnitude
# Formats of question 3.2, and the unit that multiplies two vectors of each.
JUDGED: Mapping[str, Params] = {
    "fp32": FP32,
    "minifloat(16,8,ieee)": BF16,
    "mxint8": MXINT8,
    "mxint4": NARROW_MXINT,
    "fixed(4,2)": {"unit": "fixed", "width": 4},
    "fixed(8,4)": {"unit": "fixed", "width": 8},
    "fixed(16,8)": {"unit": "fixed", "width": 16},
    "minifloat(8,4,nan)": {"unit": "float", "exponent": 4, "mantissa": 3, "specials": "nan"},
    "mxfp8-e4m3": MXFP8,
    "mxfp4-e2m1": {"unit": "mxfloat", "exponent": 2, "mantissa": 1, "block": 32},
    "block-float(7,8,block=16)": {"unit": "block_float", "mantissa": 7, "block": 16},
    "block-float(3,8,block=16)": {"unit": "block_float", "mantissa": 3, "block": 16},
}
FAMILIES = {
    "mxint": "MXINT",
    "fixed": "fixed point",
    "mxint_bf16": "MXINT weights only",
    "float": "floating point",
    "float_adders": "FP32 adders",
    "mxfloat": "MXFP",
    "block_float": "block FP",
}
MAPPED = {"kind": "gates", "gate_set": "cmos2"}
PARTS = tuple(dict.fromkeys(synthesis.PARTS.values()))


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    drawn = list(_units(plan.profile.name))
    for unit in drawn:
        yield {"kind": "gates", "lanes": LANES, "gate_set": "cmos2", **unit}
    for unit in choose(smoke=[], quick=[MXINT8, BF16], full=[MXINT8, BF16]):
        yield {"kind": "gates", "lanes": LANES, "gate_set": "cmos4", **unit}
    for unit in choose(smoke=[MXINT8, BF16], quick=_checked(), full=drawn):
        num_random = choose(smoke=8, quick=50, full=1000)
        yield {"kind": "simulation", "lanes": LANES, "num_random": num_random, "seed": 0, **unit}


def _units(profile: str) -> Iterator[Params]:
    """The compared ones, then the sweeps of width, block and lanes."""
    if profile == "smoke":
        yield from (MXINT8, BF16, MIXED)
        return
    yield from COMPARED.values()
    yield WINDOWED
    is_full = profile == "full"
    for width in (3, 4, 5, 6, 7, 8, 10, 12, 16) if is_full else (4, 6, 8, 12):
        yield {"unit": "mxint", "width": width, "block": 32}
    for width in (3, 4, 6, 8, 10, 12, 16) if is_full else (4, 8, 16):
        yield {"unit": "fixed", "width": width}
    for width in (4, 5, 6, 8) if is_full else (4,):
        yield {"unit": "mxint_bf16", "width": width, "block": 32}
    yield from _small_floats()
    for block in (2, 4, 8, 16) if is_full else (4, 8, 16):
        yield {"unit": "mxint", "width": 8, "block": block}
    for lanes in (2, 4, 8, 16, 64, 128) if is_full else (4, 16):
        yield {**MXINT8, "lanes": lanes}
        yield {**BF16, "lanes": lanes}


def _small_floats() -> Iterator[Params]:
    yield from (JUDGED["minifloat(8,4,nan)"], MXFP8, JUDGED["mxfp4-e2m1"])
    yield SIGNED
    yield JUDGED["block-float(7,8,block=16)"]
    yield JUDGED["block-float(3,8,block=16)"]


def _checked() -> list[Params]:
    """One of each kind of unit, and one with several blocks."""
    return [
        *COMPARED.values(),
        NARROW_MXINT,
        {"unit": "mxint", "width": 8, "block": 8},
        {"unit": "fixed", "width": 8},
        *_small_floats(),
    ]


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
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", _first_start)
        return synthesis.synthesize(unit, gate_set=str(params["gate_set"])).to_json()
    from madl.hardware import reference

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    found = reference.verify(unit, num_random=num_random, seed=seed)
    if found["mismatches"] or found["beyond_bound"]:
        raise MadlError(
            f"the Verilog of {unit.name} gives {found['mismatches']} results with wrong bits and "
            f"{found['beyond_bound']} beyond its bound: {found['first_mismatch']}"
        )
    return {**found, "tool": tools.iverilog_version()}


def _first_start(folder: Path) -> None:
    """yosys as WebAssembly compiles itself on the first call; no case is to pay for that."""
    log.info("yosys starts for the first time, which can take a minute")
    folder.mkdir()
    said = tools.run([*tools.needed_yosys(), "-V"], cwd=folder)
    (folder / "version").write_text(said)


# ---- reading the records ------------------------------------------------------------------------


def judged(r: Records, name: str) -> Arm:
    """The model with one format on every Linear layer, as question 3.2 judged it."""
    where = {"part": "fp32"} if name == "fp32" else {"part": "uniform", "format": name}
    return arm(r.of("lab3_formats"), name, **where)


def times(r: Records, a: Mapping[str, Any], b: Mapping[str, Any], **where: str) -> str:
    """How many times as many transistors unit A takes as unit B: "1.96 ×"."""
    return f"{number(transistors(r, **where, **a) / transistors(r, **where, **b))} ×"


def parts_of(r: Records, **unit: Any) -> Mapping[str, int]:
    """Transistors by part, all parts."""
    found = gates(r, **unit).values["parts"]
    return {part: found.get(part, 0) for part in PARTS}


def cells_of(r: Records, *compared: Mapping[str, Any], **where: str) -> str:
    """What a fact about units is counted over."""
    total = sum(gates(r, **where, **unit).values["cells"] for unit in compared)
    return f"{total:,} gates of {len(compared)} units"


def or_none(make: Callable[..., T], r: Records, *args: str, **unit: Any) -> T | None:
    """A cell that another profile may fill."""
    try:
        return make(r, *args, **unit)
    except Pending:
        return None


# ---- facts about area ---------------------------------------------------------------------------


@page.fact
def saving(r: Records) -> Fact:
    return Fact(
        text=f"A {LANES}-lane unit takes {times(r, BF16, MXINT8)} the transistors in bf16 "
        f"({transistors(r, **BF16):,}) that it takes with MXINT8 on both sides "
        f"({transistors(r, **MXINT8):,}), both with integer adders and one FP32 result; what turns "
        "activations into MXINT8 is not counted",
        of=cells_of(r, MXINT8, BF16),
    )


@page.fact
def saved_parts(r: Records) -> Fact:
    mx, bf16 = parts_of(r, **MXINT8), parts_of(r, **BF16)
    total = sum(bf16.values()) - sum(mx.values())
    share = {part: per_cent((bf16[part] - mx[part]) / total) for part in PARTS}
    return Fact(
        text=f"Of the transistors saved, {share['lane exponents']} are the lanes' exponents "
        "(adding them, finding the largest, shifting); the multipliers account for "
        f"{share['multipliers']}",
        of=f"{total:,} transistors",
    )


@page.fact
def one_side(r: Records) -> Fact:
    return Fact(
        text=f"Quantizing the weights alone: MXINT8 weights with bf16 activations take "
        f"{times(r, MIXED, BF16)} the transistors of bf16 on both sides",
        of=cells_of(r, MIXED, BF16),
    )


@page.fact
def area_and_bits(r: Records) -> Fact:
    return Fact(
        text=f"From {NARROW} to {MXINT8['width']} mantissa bits an MXINT unit grows "
        f"{times(r, MXINT8, NARROW_MXINT)}, while its operands grow "
        f"{number(MXINT8['width'] / NARROW)} ×",
        of=cells_of(r, NARROW_MXINT, MXINT8),
    )


@page.fact
def sign_magnitude(r: Records) -> Fact:
    """MXINT8 leaves its lowest code unused, so a sign and seven bits hold the same values."""
    twos, signed = parts_of(r, **MXINT8), parts_of(r, **SIGNED)
    return Fact(
        text=f"MXINT8's values with a sign and a magnitude take {times(r, SIGNED, MXINT8)} the "
        f"transistors of two's complement: {signed['multipliers']:,} in multipliers instead of "
        f"{twos['multipliers']:,}, and {signed['signs']:,} in signs",
        of=cells_of(r, MXINT8, SIGNED),
    )


@page.fact
def mxfp8(r: Records) -> Fact:
    mx, small = parts_of(r, **MXINT8), parts_of(r, **MXFP8)
    return Fact(
        text=f"With eight bits on both sides MXFP8 (E4M3) takes {times(r, MXFP8, MXINT8)} MXINT8's "
        f"transistors: {small['multipliers']:,} in multipliers instead of {mx['multipliers']:,}, "
        f"and {small['lane exponents']:,} in the lanes' exponents, which MXINT8 has none of",
        of=cells_of(r, MXFP8, MXINT8),
    )


@page.fact
def short_blocks(r: Records) -> Fact:
    found = _blocks(r)
    short, long = min(found), max(found)
    return Fact(
        text=f"Blocks of {short} instead of {long} take "
        f"{per_cent(found[short] / found[long] - 1)} more transistors",
        of=f"MXINT8 units with {len(found)} block sizes",
    )


@page.fact
def fp32_as_yardstick(r: Records) -> Fact:
    return Fact(
        text=f"Against FP32 with FP32 adders MXINT8's saving would read {times(r, FP32, MXINT8)}; "
        f"rounding every sum alone makes a bf16 unit {times(r, BF16_FP32, BF16)} as large",
        of=cells_of(r, FP32, MXINT8, BF16_FP32, BF16),
    )


@page.fact
def window(r: Records) -> Fact:
    return Fact(
        text=f"With a window of {WINDOWED['window']} bits instead of {units.WINDOW}, the least "
        f"that holds a product, bf16 takes {times(r, WINDOWED, MXINT8)} MXINT8's transistors "
        f"instead of {times(r, BF16, MXINT8)}",
        of=cells_of(r, WINDOWED, BF16, MXINT8),
    )


@page.fact
def richer_gates(r: Records) -> Fact:
    return Fact(
        text="With AND-OR-INVERT gates allowed too, bf16 takes "
        f"{times(r, BF16, MXINT8, gate_set='cmos4')} MXINT8's transistors instead of "
        f"{times(r, BF16, MXINT8)}",
        of=cells_of(r, MXINT8, BF16, gate_set="cmos4"),
    )


@page.fact
def longest_paths(r: Records) -> Fact:
    mx, bf16 = (gates(r, **unit).values["depth"] for unit in (MXINT8, BF16))
    return Fact(
        text=f"The longest path is {mx} gates with MXINT8 and {bf16} with bf16; neither a register "
        "nor a clock is counted",
        of=cells_of(r, MXINT8, BF16),
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
    """MXINT8 on every Linear layer costs less than two points of FP32's accuracy."""
    mx, fp32 = judged(r, "mxint8"), judged(r, "fp32")
    said = f"{mx - fp32:+i} ({mx} against FP32's {fp32}, {mx.accuracy.n:,} test sentences)"
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
    """MXINT4 on every Linear layer is less accurate than FP32."""
    fp32, narrow = judged(r, "fp32"), judged(r, f"mxint{NARROW}")
    unit = f"MXINT{NARROW}, whose unit takes {times(r, NARROW_MXINT, MXINT8)} MXINT8's transistors"
    said = f"{narrow} against FP32's {fp32}"
    return compare(fp32, narrow).judge(
        supported=f"{unit}, costs {fp32 - narrow} of accuracy: {said}",
        refuted=f"{unit}, is {narrow - fp32} more accurate than FP32: {said}",
        undecided=f"Nothing shows that {unit}, costs accuracy: {narrow - fp32:+i} from FP32",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="A point is a number format on every Linear layer: across, the transistors of its unit "
    "(a logarithmic axis); upward, the model's test accuracy with its interval. Better is to the "
    "left and up. Formats below the axis stand in the table only."
)
def front(r: Records) -> Chart:
    rows = [
        {
            "unit": counts.label_of(record).partition(" × ")[0],
            "family": FAMILIES[str(unit["unit"])],
            "transistors": record.values["transistors"],
            "accuracy": accuracy,
        }
        for name, unit in JUDGED.items()
        if (record := or_none(gates, r, **unit)) is not None
        and (accuracy := or_none(judged, r, name)) is not None
    ]
    if not rows:
        raise Pending("no unit with area and accuracy")
    lowest = 5 * round(20 * (judged(r, "fp32").value("validation") - DRAWN))
    return Chart(
        sorted(rows, key=lambda row: row["transistors"]),
        x=charts.log("transistors", f"transistors of {LANES} lanes", "thousand", factor=1e-3),
        y=charts.percent("test accuracy", limits=(lowest, None)),
        marks=[points("accuracy", text="unit", by="family")],
    )


@page.chart(
    caption="Transistors by what they are for. The FP32 unit is left to the table: its bar would "
    "set the scale and hide the others' parts."
)
def parts(r: Records) -> Chart:
    rows = [
        {"unit": label, **made}
        for label, unit in COMPARED.items()
        if unit is not FP32 and (made := or_none(parts_of, r, **unit)) is not None
    ]
    return Chart(
        rows,
        x=linear(label=f"transistors of {LANES} lanes", unit="thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*PARTS, stacked=True),
    )


@page.chart(
    caption="Transistors against the width of a mantissa, on logarithmic axes. The dashed line is "
    "the bf16 unit."
)
def widths(r: Records) -> Chart:
    kinds = ("fixed", "mxint", "mxint_bf16")
    rows: list[Row] = []
    for width in r.of(counts.EXPERIMENT).where(lanes=LANES, **MAPPED).each("width"):
        row: dict[str, int | None] = {"width": width}
        for kind in kinds:
            unit = {"unit": kind, "width": width} | ({} if kind == "fixed" else {"block": 32})
            row[FAMILIES[kind]] = or_none(transistors, r, **unit)
        rows.append(row)
    return Chart(
        rows,
        x=doubling("width", "bits", label="mantissa width"),
        y=charts.log(label=f"transistors of {LANES} lanes", unit="thousand", factor=1e-3),
        marks=[
            *(line(FAMILIES[kind]) for kind in kinds),
            level(transistors(r, **BF16), "bf16 × bf16"),
        ],
    )


def _blocks(r: Records) -> dict[int, int]:
    """Block size → transistors of the MXINT8 unit."""
    found = r.all(unit="mxint", width=8, lanes=LANES, **MAPPED)
    made = {record.case.params["block"]: record.values["transistors"] for record in found}
    if len(made) < 2:
        raise Pending("block sizes")
    return dict(sorted(made.items()))  # type: ignore[arg-type]


@page.chart(
    caption="Transistors of the MXINT8 unit against the number of values that share a scale."
)
def blocks(r: Records) -> Chart:
    return Chart(
        [
            {"block": block, "MXINT8": made, "bits per value": 8 + 8 / block}
            for block, made in _blocks(r).items()
        ],
        x=doubling("block", "values", label="block size"),
        y=linear(
            label=f"transistors of {LANES} lanes", unit="thousand", factor=1e-3, limits=(0, None)
        ),
        marks=[line("MXINT8", "MXINT8 × MXINT8")],
    )


@page.chart(caption="Transistors a lane, against the number of lanes.")
def lanes(r: Records) -> Chart:
    compared = {"MXINT8 × MXINT8": MXINT8, "bf16 × bf16": BF16}
    rows: list[Row] = []
    for num in r.of(counts.EXPERIMENT).where(**MAPPED, **MXINT8).each("lanes"):
        whole = {
            name: or_none(transistors, r, **unit, lanes=num) for name, unit in compared.items()
        }
        rows.append({"lanes": num} | {name: n and n / num for name, n in whole.items()})
    if len(rows) < 2:
        raise Pending("numbers of lanes")
    return Chart(
        rows,
        x=doubling("lanes"),
        y=linear(label="transistors a lane", limits=(0, None)),
        marks=[line(label) for label in compared],
    )


@page.table
def every_unit(r: Records) -> Sequence[Row]:
    base = transistors(r, **MXINT8)
    found = r.all(lanes=LANES, **MAPPED)
    return [
        {
            "unit": _named(record),
            "transistors": record.values["transistors"],
            "× MXINT8": record.values["transistors"] / base,
            "gates": record.values["cells"],
            "depth": record.values["depth"],
            "input bits": record.values["input_bits"],
        }
        for record in sorted(found, key=lambda record: record.values["transistors"])
    ]


def _named(record: Record) -> str:
    block, window = (record.case.params.get(key) for key in ("block", "window"))
    note = f", blocks of {block}" if block not in (None, 32) else ""
    note += "" if window is None else f", window of {window}"
    return counts.label_of(record) + note


@page.table
def simulation(r: Records) -> Sequence[Row]:
    return [
        {
            "unit": _named(record),
            "vectors": record.values["vectors"],
            "finite": record.values["finite"],
            "correctly rounded": per_cent(record.values["correctly_rounded"]),
        }
        for record in r.all(kind="simulation")
    ]
