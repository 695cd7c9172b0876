"""The rows of the charts and tables that compare units, from records of `lab4_hardware`.

Units: `error` is signal to error in decibels, of results for rows of the model's tensors.
"""

from collections.abc import Mapping
from typing import Any

from madl.hardware.compared import FAMILIES, JUDGED
from madl.hardware.counts import COMPARED, EXPERIMENT, LANES, error_db, gates, label_of, parts_of
from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import per_cent
from madl.training import format_arms

# Formats of question 3.2 with their values at another position, which takes no other gates.
MOVED: Mapping[str, Mapping[str, Any]] = {
    f"fixed({width}) moved": {"unit": "fixed", "width": width} for width in (4, 8)
}
_UNIT = ("unit", "width", "mantissa", "exponent", "specials", "window", "block")


def unit_of(record: Record) -> Mapping[str, Any]:
    """What of a case's parameters describes its unit."""
    return {name: value for name, value in record.case.params.items() if name in _UNIT}


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


def errors(r: Records) -> list[Row]:
    """Every unit that has both an area and an error."""
    return [
        {
            "unit": label_of(record).replace(" × ".join([_side(record)] * 2), _side(record)),
            "family": FAMILIES[str(record.case.params["unit"])],
            "transistors": record.values["transistors"],
            "error": error,
        }
        for record in synthesised(r)
        if (error := error_or_none(r, record)) is not None
    ]


def _side(record: Record) -> str:
    """The format of a unit's first side, to name a point briefly."""
    return label_of(record).partition(" × ")[0]


def accuracies(r: Records) -> list[Row]:
    """Every format that has both a unit and a model."""
    planned = format_arms.names(r)
    rows: list[Row] = []
    for name, unit in {**JUDGED, **MOVED}.items():
        try:
            record = gates(r, **unit)
        except Pending:
            continue
        if name in planned:
            rows.append(
                {
                    "unit": f"{_side(record)}{', moved' * (name in MOVED)}{_from(record)}",
                    "family": FAMILIES[str(unit["unit"])],
                    "transistors": record.values["transistors"],
                    "accuracy": format_arms.trained(r, name),
                }
            )
    if not rows:
        raise Pending("a unit with area and accuracy")
    return sorted(rows, key=lambda row: row["transistors"])


def _from(record: Record) -> str:
    return f" [{record.borrowed_from}]" if record.borrowed_from else ""


def parts(r: Records) -> list[Row]:
    """Transistors by part, of the units that the answer is about."""
    rows: list[Row] = []
    for unit in COMPARED.values():
        try:
            rows.append({"unit": label_of(gates(r, **unit)), **parts_of(r, **unit)})
        except Pending:
            continue
    if not rows:
        raise Pending("units")
    return rows


def swept(r: Records, by: str, **fixed: int) -> list[Row]:
    """MXINT units along one parameter, with their transistors.

    Raises:
        Pending: fewer than two of them.
    """
    found = r.of(EXPERIMENT).where(kind="gates", gate_set="cells", unit="mxint", **fixed)
    rows = [
        {
            by: record.case.params[by],
            "transistors": record.values["transistors"],
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
            "signal to error (dB)": error_or_none(r, record),
        }
        for record in synthesised(r)
    ]


def simulated(r: Records) -> list[Row]:
    """Every unit that was simulated: what was checked, and how exact it is."""
    return [
        {
            "unit": label_of(record),
            "vectors": record.values["vectors"],
            "finite": record.values["finite"],
            "correctly rounded": per_cent(record.values["correctly_rounded"]),
            "signal to error (dB)": record.values["error_db"],
        }
        for record in r.of(EXPERIMENT).all(kind="simulation")
    ]
