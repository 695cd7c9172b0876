"""Units as rows of charts and tables, from the records of `lab4_hardware`.

Units: `error` is signal to error in decibels, of results for rows of the model's tensors.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from madl.hardware.compared import ALIGNED, GROUP, JUDGED, MOVED, RESCALED, Described
from madl.hardware.counts import (
    EXPERIMENT,
    LANES,
    PARTS,
    error_db,
    gates,
    label_of,
    parts_of,
    side_of,
    transistors,
)
from madl.hardware.units import OPTIONS
from madl.logbook.arms import Arm, versus
from madl.logbook.records import Pending, Record, Records, Row
from madl.training import format_arms

ERROR = "signal to error (dB)"
NOT_SIMULATED = "not simulated"
NARROW = 4.5  # bits a value, a block's scale among them


def unit_of(record: Record) -> Mapping[str, Any]:
    """What of a case's parameters describes its unit."""
    return {k: value for k, value in record.case.params.items() if k in ("unit", *OPTIONS)}


def synthesised(r: Records) -> list[Record]:
    """Every unit in the full set of gates, the small ones first.

    Raises:
        Pending: one is missing.
    """
    found = r.of(EXPERIMENT).all(kind="gates", gate_set="cells", lanes=LANES)
    return sorted(found, key=lambda record: record.values["transistors"])


def error_or_none(r: Records, record: Record) -> float | None:
    """Of the unit that a record is about, None where it was not simulated."""
    try:
        return error_db(r, **unit_of(record))
    except Pending:
        return None


def error_cell(r: Records, record: Record) -> float | str:
    """The same for a table."""
    error = error_or_none(r, record)
    return NOT_SIMULATED if error is None else error


def is_simulated(row: Row) -> bool:
    """Whether a row of such a table has an error."""
    return row[ERROR] != NOT_SIMULATED


def errors(r: Records) -> list[Row]:
    """Every unit that has both an area and an error."""
    return [
        {
            "unit": name_of(record),
            "group": GROUP[str(record.case.params["unit"])],
            "transistors": record.values["transistors"],
            "error": error,
        }
        for record in synthesised(r)
        if (error := error_or_none(r, record)) is not None
    ]


def name_of(record: Record) -> str:
    """A unit's label, the format once where both sides have it; blocks where they are not usual."""
    label, side = label_of(record), side_of(record)
    if record.case.params["unit"] != "mxint":
        label = label.replace(f", blocks of {record.case.params.get('block')}", "")
    return label.replace(f"{side} × {side}", side)


def judged(r: Records) -> dict[str, tuple[Arm, Record]]:
    """Every format that has both a model and a unit: the two.

    Raises:
        Pending: there is none.
    """
    planned = format_arms.names(r)
    found: dict[str, tuple[Arm, Record]] = {}
    for name, unit in {**JUDGED, **MOVED, **RESCALED}.items():
        try:
            record = gates(r, **unit)
        except Pending:
            continue
        if name in planned:
            found[name] = format_arms.trained(r, name), record
    if not found:
        raise Pending("a unit with area and accuracy")
    return found


def smallest(r: Records, margin: float) -> tuple[Arm, Record]:
    """The smallest unit whose format costs at most this much validation accuracy against FP32.

    Raises:
        Pending: there is none.
    """
    least = format_arms.control(r).validation - margin
    kept = [(one, unit) for one, unit in judged(r).values() if one.validation >= least]
    if not kept:
        raise Pending("a format that keeps the accuracy")
    return min(kept, key=lambda pair: pair[1].values["transistors"])


def called(name: str, record: Record) -> str:
    """A unit's name, with what its model's format adds: a position, or whose scale it is."""
    scaled = re.fullmatch(r"scaled\(\d+,(\w+)\)", name)
    return name_of(record) + ", moved" * (name in MOVED) + (f" by {scaled[1]}" if scaled else "")


def finely(a: Arm, b: Arm) -> str:
    """A minus B on test, to a hundredth of a point: "−0.05 points [−0.58, +0.47]"."""
    made = versus(a, b)
    value, low, high = (points(one) for one in (made.effect, *made.interval))
    return f"{value} points [{low}, {high}]"


def share(one: Arm) -> str:
    """Its accuracy on test to a hundredth of a point: "84.95 %"."""
    return f"{one:.2%}".replace("%", " %")


def points(difference: float) -> str:
    """A difference of accuracies to a hundredth of a point."""
    return f"{100 * difference:+.2f}".replace("-", "−")


def accuracies(r: Records) -> list[Row]:
    """Every format that has both a unit and a model, the small units first."""
    rows: list[Row] = [
        {
            "unit": called(name, record),
            "group": GROUP[str(record.case.params["unit"])],
            "bits": one.value("bits"),
            "transistors": record.values["transistors"],
            "accuracy": one,
        }
        for name, (one, record) in judged(r).items()
    ]
    return sorted(rows, key=lambda row: row["transistors"])


def shortly(rows: Sequence[Row]) -> list[Row]:
    """The rows with units' names as short as tells them apart."""
    names = [re.sub(r"-e\dm\d+", "", row["unit"]) for row in rows]
    return [
        {**row, "unit": name if names.count(name) == 1 else row["unit"]}
        for row, name in zip(rows, names)
    ]


def accuracy_table(r: Records) -> list[Row]:
    """The same in full, and beside FP32."""
    fp32 = format_arms.control(r)
    return [
        {**row, "accuracy": share(row["accuracy"]), "against FP32": finely(row["accuracy"], fp32)}
        for row in accuracies(r)
    ]


def parts(r: Records, *units: Described) -> list[Row]:
    """Transistors by part, of the parts that any of these units has."""
    found: list[tuple[Record, Mapping[str, int]]] = []
    for unit in units or ALIGNED:
        try:
            found.append((gates(r, **unit), parts_of(r, **unit)))
        except Pending:
            continue
    if not found:
        raise Pending("units")
    used = [part for part in PARTS if any(made[part] for _, made in found)]
    return [{"unit": name_of(unit), **{part: made[part] for part in used}} for unit, made in found]


def narrow_parts(r: Records) -> list[Row]:
    """The same of every format of few bits a value, the large units first."""
    few = {name for name, (one, _) in judged(r).items() if one.value("bits") <= NARROW}
    units = [unit for name, unit in JUDGED.items() if name in few]
    return parts(r, *sorted(units, key=lambda unit: -transistors(r, **unit)))


def swept(r: Records, by: str, **fixed: int) -> list[Row]:
    """MXINT units along one parameter: size, delay, error where it was run.

    Raises:
        Pending: fewer than two of them.
    """
    found = r.of(EXPERIMENT).where(kind="gates", gate_set="cells", unit="mxint", **fixed)
    rows = [
        {
            by: record.case.params[by],
            "transistors": record.values["transistors"],
            "delay (FO4)": record.values["delay"],
            ERROR: error_cell(r, record),
        }
        for record in found
    ]
    if len(rows) < 2:
        raise Pending(by)
    return sorted(rows, key=lambda row: row[by])


def every(r: Records) -> list[Row]:
    """Every unit: size, speed, input, error."""
    return [
        {
            "unit": label_of(record),
            "transistors": record.values["transistors"],
            "gates": record.values["cells"],
            "delay (FO4)": record.values["delay"],
            **{f"flip-flops, {p} FO4": n for p, n in record.values["flip_flops"].items()},
            "input bits": record.values["input_bits"],
            ERROR: error_cell(r, record),
        }
        for record in synthesised(r)
    ]


def _rounded(share: float) -> str:
    """All of them only where it is all of them."""
    return "100 %" if share == 1 else f"{math.floor(1e4 * share) / 100:.2f} %"


def simulation(r: Records) -> list[Row]:
    """Every unit that was simulated: what was checked, and how exact it is."""
    return [
        {
            "unit": label_of(record),
            "vectors": record.values["vectors"],
            "finite": record.values["finite"],
            "correctly rounded": _rounded(record.values["correctly_rounded"]),
            ERROR: record.values["error_db"],
        }
        for record in r.of(EXPERIMENT).all(kind="simulation")
    ]
