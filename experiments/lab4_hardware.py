"""Question 4.4: the gates of a dot product in each number format, and the accuracy they buy.

Two kinds of case. `gates` synthesises a Verilog unit with yosys; `simulation` runs it in iverilog
against the formats' own arithmetic. A machine without the program leaves the cases of that kind
alone. Accuracies are those that question 3.2 measured for the units' formats.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from madl.hardware import counts, synthesis, tools, units
from madl.hardware.counts import COMPARED, LANES, REFERENCE, gates, transistors
from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.logbook.stats import Unit
from madl.training import baseline

log = logging.getLogger(__name__)

DRAWN = 0.06  # accuracies further below the best are drawn at the edge, with their number
MARGIN = 0.02  # accuracies closer than this count as the same
MXINT8, BF16, MIXED, BF16_FP32, FP32 = COMPARED.values()
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
    "mxint": ("MXINT", "first", "o"),
    "fixed": ("fixed point", "second", "s"),
    "mxint_bf16": ("MXINT weights only", "third", "D"),
    "float": ("floating point", "fourth", "^"),
    "float_adders": ("FP32 adders", "fp32", "v"),
    "mxfloat": ("MXFP", "control", "P"),
    "block_float": ("block FP", "reference", "X"),
}


def params(plan: Plan) -> Iterable[Params]:
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


def unavailable(params: Params) -> str | None:
    if params["kind"] == "gates" and tools.yosys() is None:
        return tools.NO_YOSYS
    if params["kind"] == "simulation" and tools.iverilog() is None:
        return tools.NO_IVERILOG
    return None


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    unit = units.from_params({"lanes": LANES, **params})
    if params["kind"] == "gates":
        ctx.artifact(f"started-{tools.yosys_version().replace(' ', '-')}", _first_start)
        return synthesis.synthesize(unit, gate_set=str(params["gate_set"])).to_json()
    from madl.hardware import reference

    num_random, seed = params["num_random"], params["seed"]
    assert isinstance(num_random, int)
    assert isinstance(seed, int)
    verdict = reference.verify(unit, num_random=num_random, seed=seed)
    return {**verdict, "tool": tools.iverilog_version()}


def _first_start(folder: Path) -> None:
    """yosys as WebAssembly compiles itself on the first call; no case is to pay for that."""
    log.info("yosys starts for the first time, which can take a minute")
    folder.mkdir()
    said = tools.run([*tools.needed_yosys(), "-V"], cwd=folder)
    (folder / "version").write_text(said)


# ---- reading the records ------------------------------------------------------------------------


def _outcomes(records: Records, unit: Params) -> list[stats.Outcomes]:
    """Test outcomes of the model with the unit's format on every Linear, one a seed.

    Raises:
        Pending: question 3.2 has not judged that format.
    """
    judged = next((name for name, of in JUDGED.items() if of == unit), None)
    if judged is None:
        raise Pending(f"no format of {unit} is judged")
    found = records.where(part="fp32" if judged == "fp32" else "uniform")
    found = [r for r in found if r.case.params.get("format", "fp32") == judged]
    return baseline.outcomes(found)


def _ratio(a: int, b: int, n: int) -> stats.Comparison:
    """B's transistors over A's, as the share by which they exceed one."""
    return stats.counted(1.0, b / a, n, unit=Unit.PERCENT)


def _unit_of(record: Record) -> Params:
    known = ("unit", "width", "exponent", "mantissa", "specials", "window", "block")
    return {key: value for key, value in record.case.params.items() if key in known}


# ---- claims -------------------------------------------------------------------------------------


def fair_saving(records: Records) -> Claim:
    mx, bf16 = gates(records, **MXINT8).values, gates(records, **BF16).values
    ratio = bf16["transistors"] / mx["transistors"]
    text = (
        f"A {LANES}-lane unit takes {ratio:.2f}× the transistors in bf16 "
        f"({bf16['transistors']:,}) that it takes with MXINT8 on both sides "
        f"({mx['transistors']:,}), both with integer adders and one FP32 result"
    )
    return _ratio(mx["transistors"], bf16["transistors"], bf16["cells"]).improves(text)


def one_side_hardly_helps(records: Records) -> Claim:
    bf16, mixed = transistors(records, **BF16), transistors(records, **MIXED)
    text = (
        f"Quantizing the weights alone hardly changes the unit: MXINT8 weights with bf16 "
        f"activations take {mixed / bf16:.2f}× the transistors of bf16 on both sides"
    )
    return _ratio(bf16, mixed, gates(records, **MIXED).values["cells"]).within(0.1, text)


def _saved_parts(records: Records) -> dict[str, int]:
    """Transistors that MXINT8 saves against bf16, by part; negative where it needs more."""
    mx, bf16 = (gates(records, **unit).values["parts"] for unit in (MXINT8, BF16))
    return {part: bf16.get(part, 0) - mx.get(part, 0) for part in {*mx, *bf16}}


def multiplier_is_not_the_saving(records: Records) -> Claim:
    saved = _saved_parts(records)
    total = sum(saved.values())
    exponents, multipliers = saved["lane exponents"] / total, saved["multipliers"] / total
    text = (
        f"Of the transistors saved, {exponents:.0%} are the lanes' exponents (adding them, finding "
        f"the largest, shifting); the multipliers account for "
        f"{multipliers:.0%}".replace("-", "−")
    )
    cells = gates(records, **BF16).values["cells"]
    return stats.counted(multipliers, exponents, cells, unit=Unit.PERCENT).improves(text)


def mxint8_is_accurate(records: Records) -> Claim:
    base, found = _outcomes(records, FP32), _outcomes(records, MXINT8)
    accuracies = [sum(o.accuracy for o in side) / len(side) for side in (base, found)]
    text = (
        f"The model in MXINT8 has {accuracies[1]:.1%}, within {100 * MARGIN:g} points of FP32's "
        f"{accuracies[0]:.1%}"
    )
    return stats.compare(base, found).within(MARGIN, text)


def narrow_costs_accuracy(records: Records) -> Claim:
    base, found = _outcomes(records, FP32), _outcomes(records, NARROW_MXINT)
    share = transistors(records, **NARROW_MXINT) / transistors(records, **MXINT8)
    text = f"MXINT{NARROW} needs {share:.0%} of MXINT8's transistors and is less accurate than FP32"
    return stats.compare(base, found).degrades(text)


def fp32_is_no_yardstick(records: Records) -> Claim:
    mx, fp32 = transistors(records, **MXINT8), transistors(records, **FP32)
    bf16, rounded = transistors(records, **BF16), transistors(records, **BF16_FP32)
    text = (
        f"Against FP32 with FP32 adders the ratio would read {fp32 / mx:.1f}×, of which the way of "
        f"adding alone is {rounded / bf16:.1f}× (bf16 with FP32 adders against bf16 with integers)"
    )
    return _ratio(mx, fp32, gates(records, **FP32).values["cells"]).improves(text)


def area_grows_faster_than_bits(records: Records) -> Claim:
    wide, bits = MXINT8["width"], MXINT8["width"] / NARROW
    small, large = transistors(records, **NARROW_MXINT), transistors(records, **MXINT8)
    text = (
        f"From {NARROW} to {wide} mantissa bits an MXINT unit grows {large / small:.1f}× "
        f"while its operands grow {bits:.1f}×"
    )
    cells = gates(records, **MXINT8).values["cells"]
    return stats.counted(1.0, large / small / bits, cells, unit=Unit.PERCENT).improves(text)


def sign_magnitude_is_smaller(records: Records) -> Claim:
    """MXINT8 leaves its lowest code unused, so a sign and seven bits hold the same values."""
    twos, signed = transistors(records, **MXINT8), transistors(records, **SIGNED)
    text = (
        f"The same values with a sign and a magnitude instead of two's complement take "
        f"{1 - signed / twos:.0%} fewer transistors, because the sign stays out of the multiplier"
    )
    return _ratio(twos, signed, gates(records, **MXINT8).values["cells"]).degrades(text)


def mxfp8_is_no_larger(records: Records) -> Claim:
    mxint8, mxfp8 = transistors(records, **MXINT8), transistors(records, **MXFP8)
    text = (
        f"With eight bits on both sides MXFP8 (E4M3), exponents in every lane and all, takes "
        f"{mxfp8 / mxint8:.2f}× MXINT8's transistors: a short significand makes a small multiplier"
    )
    return _ratio(mxint8, mxfp8, gates(records, **MXFP8).values["cells"]).degrades(text)


def short_blocks_cost(records: Records) -> Claim:
    blocks = _blocks(records)
    short, long = min(blocks), max(blocks)
    few, many = blocks[short], blocks[long]
    text = (
        f"Blocks of {short} instead of {long} cost {few / many - 1:.0%} more transistors, because "
        "the sums of the blocks have to be aligned"
    )
    return _ratio(many, few, LANES).improves(text)


def window_matters_little(records: Records) -> Claim:
    mx, bf16 = transistors(records, **MXINT8), transistors(records, **WINDOWED)
    text = (
        f"With a window of {WINDOWED['window']} bits instead of {units.WINDOW}, the least that "
        f"holds a product, bf16 still takes {bf16 / mx:.2f}× MXINT8's transistors"
    )
    return _ratio(mx, bf16, gates(records, **WINDOWED).values["cells"]).improves(text)


def richer_gates_agree(records: Records) -> Claim:
    pairs = {
        gate_set: transistors(records, gate_set=gate_set, **BF16)
        / transistors(records, gate_set=gate_set, **MXINT8)
        for gate_set in synthesis.GATE_SETS
    }
    plain, rich = (pairs[gate_set] for gate_set in synthesis.GATE_SETS)
    text = (
        f"With AND-OR-INVERT gates allowed too, bf16 takes {rich:.2f}× instead of {plain:.2f}× "
        "MXINT8's transistors: the ratio moves by less than a tenth"
    )
    cells = gates(records, gate_set="cmos4", **BF16).values["cells"]
    return stats.counted(1.0, rich / plain, cells, unit=Unit.PERCENT).within(0.1, text)


def _simulations(records: Records) -> Records:
    found = records.where(kind="simulation")
    if not found:
        raise Pending("simulation")
    return found


def simulation_agrees(records: Records) -> Claim:
    found = _simulations(records)
    wrong, n = (sum(r.values[key] for r in found) for key in ("mismatches", "vectors"))
    text = f"None of {n:,} simulated results of {len(found)} units has a wrong bit"
    return stats.none_of(wrong, n, text)


def within_bounds(records: Records) -> Claim:
    found = _simulations(records)
    wrong, n = (sum(r.values[key] for r in found) for key in ("beyond_bound", "finite"))
    text = (
        f"None of {n:,} finite results lies further from the exact dot product of the formats' "
        "values than the unit's bound"
    )
    return stats.none_of(wrong, n, text)


# ---- figures and tables -------------------------------------------------------------------------


def front_rows(records: Records) -> Sequence[Row]:
    """Units with an area and an accuracy, smallest first; `on front`: none is better in both."""
    points: list[dict[str, Any]] = []
    for unit in JUDGED.values():
        try:
            area, outcomes = transistors(records, **unit), _outcomes(records, unit)
        except Pending:
            continue
        low, high = stats.accuracy_interval(outcomes)
        accuracy = sum(o.accuracy for o in outcomes) / len(outcomes)
        points.append(
            {
                "unit": counts.label_of(gates(records, **unit)),
                "family": FAMILIES[str(unit["unit"])][0],
                "transistors": area,
                "accuracy": accuracy,
                "accuracy low": low,
                "accuracy high": high,
            }
        )
    if not points:
        raise Pending("no unit with area and accuracy")
    points.sort(key=lambda p: (p["transistors"], -p["accuracy"]))
    best = -1.0
    for point in points:
        point["on front"] = point["accuracy"] > best
        best = max(best, point["accuracy"])
    return points


def draw_front(ax: Any, rows: Sequence[Row]) -> None:
    best = max(_number(row["accuracy"]) for row in rows)
    floor = best - DRAWN
    for label, role, marker in FAMILIES.values():
        found = [row for row in rows if row["family"] == label]
        if found:
            ax.plot(
                [row["transistors"] for row in found],
                [max(_number(row["accuracy"]), floor) for row in found],
                linestyle="",
                marker=marker,
                markersize=7,
                color=plots.color(role),
                label=label,
            )
    front = [row for row in rows if row["on front"]]
    xs, ys = [row["transistors"] for row in front], [row["accuracy"] for row in front]
    ax.step(xs, ys, where="post", color=plots.color("chance"), linewidth=1.4, zorder=1)
    for row in front:
        _note_point(ax, row, _number(row["accuracy"]), str(row["unit"]).partition(" × ")[0], 9)
    for row in rows:
        if _number(row["accuracy"]) < floor:
            name = str(row["unit"]).partition(" × ")[0]
            _note_point(ax, row, floor, f"{name}: {row['accuracy']:.0%}", 9)
    ax.set_xscale("log")
    _thousands(ax.xaxis)
    ax.set_ylim(floor - 0.1 * DRAWN, best + 0.25 * DRAWN)
    ax.set_xlabel(f"transistors of {LANES} lanes")
    plots.percent_axis(ax, "test accuracy")
    plots.legend(ax)


def _number(value: Any) -> float:
    return float(value)


def _note_point(ax: Any, row: Row, y: float, text: str, above: int) -> None:
    ax.annotate(
        text,
        (row["transistors"], y),
        textcoords="offset points",
        xytext=(0, above),
        ha="center",
        fontsize=9,
    )


def _thousands(axis: Any) -> None:
    """Plain numbers of thousands instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    axis.set_minor_formatter(NullFormatter())


def front_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['unit']}: {row['transistors']:,} transistors, {row['accuracy']:.1%}"
        for row in rows
        if row["on front"]
    )
    return f"Accuracy against transistors. The front: {points}."


PART_ROLES = {
    "multipliers": "first",
    "lane exponents": "second",
    "signs": "fourth",
    "rounding": "reference",
    "adders": "third",
    "scales and result": "chance",
}


def parts_rows(records: Records) -> Sequence[Row]:
    """FP32 is left to the table: its bar would set the scale and hide the others' parts."""
    rows: list[Row] = []
    for label, unit in list(COMPARED.items())[:-1]:
        try:
            parts = gates(records, **unit).values["parts"]
        except Pending:
            continue
        rows.append({"unit": label, **{part: parts.get(part, 0) for part in PART_ROLES}})
    return rows


def draw_parts(ax: Any, rows: Sequence[Row]) -> None:
    names = [str(row["unit"]).replace(", ", ",\n") for row in rows]
    left = [0.0] * len(rows)
    for part, role in PART_ROLES.items():
        widths = [float(row[part]) / 1000 for row in rows]  # type: ignore[arg-type]
        ax.barh(names, widths, left=left, color=plots.color(role), label=part, height=0.66)
        left = [start + width for start, width in zip(left, widths)]
    whole = left[0]
    for y, total in enumerate(left):
        ax.annotate(
            f"{total / whole:.2f}×" if total < 10 * whole else f"{total / whole:.1f}×",
            (total, y),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=10,
        )
    ax.set_xlim(0, 1.15 * max(left))
    ax.invert_yaxis()
    ax.set_xlabel("thousand transistors")
    ax.grid(False, axis="y")
    plots.legend(ax)


def parts_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['unit']}: " + ", ".join(f"{part} {row[part]:,}" for part in PART_ROLES if row[part])
        for row in rows
    )
    return f"Transistors by part. {points}."


def width_rows(records: Records) -> Sequence[Row]:
    found = records.where(kind="gates", lanes=LANES, gate_set="cmos2")
    kinds = ("fixed", "mxint", "mxint_bf16")
    widths = sorted({r.case.params["width"] for r in found if "width" in r.case.params})
    rows: list[Row] = []
    for width in widths:
        row: dict[str, Any] = {"width": width}
        for kind in kinds:
            block = {} if kind == "fixed" else {"block": 32}
            row[FAMILIES[kind][0]] = _maybe(records, unit=kind, width=width, **block)
        row["bf16"] = _maybe(records, **BF16)
        rows.append(row)
    return rows


def _maybe(records: Records, **unit: Any) -> int | None:
    try:
        return transistors(records, **unit)
    except Pending:
        return None


def draw_widths(ax: Any, rows: Sequence[Row]) -> None:
    for kind in ("fixed", "mxint", "mxint_bf16"):
        label, role, _ = FAMILIES[kind]
        plots.curve(ax, rows, "width", label, role, label=label)
    if rows[0]["bf16"] is not None:
        plots.level(ax, float(rows[0]["bf16"]), "fp32", label="bf16 × bf16")
    ax.set_yscale("log")
    _thousands(ax.yaxis)
    plots.doubling_axis(ax, [row["width"] for row in rows], "mantissa width (bits)")  # type: ignore[misc]
    ax.set_ylabel(f"transistors of {LANES} lanes")
    plots.legend(ax)


def widths_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['width']} bits: "
        + ", ".join(f"{k} {v:,}" for k, v in row.items() if k != "width" and v is not None)
        for row in rows
    )
    return f"Transistors against mantissa width. {points}."


def _blocks(records: Records) -> dict[int, int]:
    """Block size → transistors of the MXINT8 unit."""
    found = records.where(kind="gates", unit="mxint", width=8, lanes=LANES, gate_set="cmos2")
    made = {r.case.params["block"]: r.values["transistors"] for r in found}
    if len(made) < 2:
        raise Pending("block sizes")
    return made  # type: ignore[return-value]


def block_rows(records: Records) -> Sequence[Row]:
    return [
        {"block": block, "MXINT8": made, "bits per value": 8 + 8 / block}
        for block, made in sorted(_blocks(records).items())
    ]


def draw_blocks(ax: Any, rows: Sequence[Row]) -> None:
    thousands = [{**row, "MXINT8": row["MXINT8"] / 1000} for row in rows]  # type: ignore[operator]
    plots.curve(ax, thousands, "block", "MXINT8", "first", label="MXINT8 × MXINT8")
    plots.doubling_axis(ax, [row["block"] for row in rows], "block size (values)")  # type: ignore[misc]
    ax.set_ylabel(f"thousand transistors of {LANES} lanes")
    ax.set_ylim(0, 1.15 * max(float(row["MXINT8"]) for row in thousands))
    plots.legend(ax)


def blocks_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(f"{row['block']}: {row['MXINT8']:,}" for row in rows)
    return f"Transistors of the MXINT8 unit by block size. {points}."


def lane_rows(records: Records) -> Sequence[Row]:
    found = records.where(kind="gates", gate_set="cmos2", **MXINT8)
    rows: list[Row] = []
    for lanes in found.each("lanes"):
        row: dict[str, Any] = {"lanes": lanes}
        for label, unit in (("MXINT8", MXINT8), ("bf16", BF16)):
            whole = _maybe(records, **{**unit, "lanes": lanes})
            row[label] = None if whole is None else whole / lanes
        rows.append(row)
    if len(rows) < 2:
        raise Pending("numbers of lanes")
    return rows


def draw_lanes(ax: Any, rows: Sequence[Row]) -> None:
    plots.curve(ax, rows, "lanes", "MXINT8", "first", label="MXINT8 × MXINT8")
    plots.curve(ax, rows, "lanes", "bf16", "fourth", label="bf16 × bf16")
    plots.doubling_axis(ax, [row["lanes"] for row in rows], "lanes")  # type: ignore[misc]
    ax.set_ylim(bottom=0)
    ax.set_ylabel("transistors per lane")
    plots.legend(ax)


def lanes_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['lanes']} lanes: "
        + ", ".join(f"{k} {v:,.0f}" for k, v in row.items() if k != "lanes" and v is not None)
        for row in rows
    )
    return f"Transistors per lane. {points}."


def unit_table(records: Records) -> Sequence[Row]:
    """The compared units, then the others by size."""
    base = transistors(records, **COMPARED[REFERENCE])
    found = records.where(kind="gates", lanes=LANES, gate_set="cmos2")
    first = [_unit_of(r) for r in found if _unit_of(r) in COMPARED.values()]
    order = sorted(found, key=lambda r: (_unit_of(r) not in first, r.values["transistors"]))
    return [
        {
            "unit": counts.label_of(record) + _note(record),
            "transistors": record.values["transistors"],
            "× MXINT8": f"{record.values['transistors'] / base:.2f}",
            "gates": record.values["cells"],
            "depth": record.values["depth"],
            "input bits": record.values["input_bits"],
            "accuracy": _accuracy_cell(records, _unit_of(record)),
        }
        for record in order
    ]


def _accuracy_cell(records: Records, unit: Params) -> str:
    try:
        found = _outcomes(records, unit)
    except Pending:
        return "–"
    return f"{sum(o.accuracy for o in found) / len(found):.1%}"


def _note(record: Record) -> str:
    block, window = (record.case.params.get(key) for key in ("block", "window"))
    note = f", blocks of {block}" if block not in (None, 32) else ""
    return note if window is None else f"{note}, window of {window}"


def simulation_table(records: Records) -> Sequence[Row]:
    return [
        {
            "unit": counts.label_of(record) + _note(record),
            "vectors": record.values["vectors"],
            "wrong bits": record.values["mismatches"],
            "finite": record.values["finite"],
            "beyond bound": record.values["beyond_bound"],
            "correctly rounded": f"{record.values['correctly_rounded']:.0%}",
        }
        for record in _simulations(records)
    ]


experiment = Experiment(
    title="Area of dot-product units",
    params=params,
    run=run,
    needs=("lab3_formats",),
    unavailable=unavailable,
    claims={
        "fair_saving": fair_saving,
        "one_side_hardly_helps": one_side_hardly_helps,
        "multiplier_is_not_the_saving": multiplier_is_not_the_saving,
        "mxint8_is_accurate": mxint8_is_accurate,
        "narrow_costs_accuracy": narrow_costs_accuracy,
        "area_grows_faster_than_bits": area_grows_faster_than_bits,
        "sign_magnitude_is_smaller": sign_magnitude_is_smaller,
        "mxfp8_is_no_larger": mxfp8_is_no_larger,
        "short_blocks_cost": short_blocks_cost,
        "fp32_is_no_yardstick": fp32_is_no_yardstick,
        "window_matters_little": window_matters_little,
        "richer_gates_agree": richer_gates_agree,
        "simulation_agrees": simulation_agrees,
        "within_bounds": within_bounds,
    },
    figures={
        "front": Figure(
            caption="A unit on the line has no smaller one beside it that is as accurate. "
            "Transistors are on a logarithmic axis; the other axis is cut, and a point below it "
            "stands at its edge with its value.",
            rows=front_rows,
            draw=draw_front,
            alt=front_alt,
        ),
        "parts": Figure(
            caption="The multipliers of MXINT8 and bf16 are of one size. What MXINT8 does without "
            "is everything that an exponent in each lane asks for.",
            rows=parts_rows,
            draw=draw_parts,
            alt=parts_alt,
        ),
        "widths": Figure(
            caption="Fixed point and MXINT differ by the scales and the conversion of one result "
            "only. Next to bf16 activations, narrow weights save far less.",
            rows=width_rows,
            draw=draw_widths,
            alt=widths_alt,
        ),
        "blocks": Figure(
            caption="Short blocks put scales and alignment back in, once for each block.",
            rows=block_rows,
            draw=draw_blocks,
            alt=blocks_alt,
        ),
        "lanes": Figure(
            caption="What a unit has once, scales and result, is soon shared by many lanes.",
            rows=lane_rows,
            draw=draw_lanes,
            alt=lanes_alt,
        ),
    },
    tables={"units": unit_table, "simulation": simulation_table},
)
