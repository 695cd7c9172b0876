"""Reading units from records: for the page that made them, and for any other that needs them.

Another page takes `needs=("lab4_hardware",)` and calls `gate_rows(records)`. A result that was
borrowed from another machine says so wherever it is named (`label_of`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from madl.hardware import synthesis
from madl.hardware.operands import Integer, Signs
from madl.hardware.synthesis import FLIP_FLOP, PERIODS
from madl.hardware.units import from_params
from madl.logbook.records import Pending, Record, Records
from madl.logbook.stats import number, span

EXPERIMENT = "lab4_hardware"
LANES = 32  # of every unit that is compared with another
WHOLE = 32  # lanes: the block that is not named
FP8 = 8  # bits: OCP's floats of as many have a NaN, its narrower ones have none

Described = Mapping[str, Any]  # a unit's parameters

# The units that the answer is about.
MXINT8: Described = {"unit": "mxint", "width": 8, "block": 32}
BF16: Described = {"unit": "float", "exponent": 8, "mantissa": 7}
QUANTIZING: Described = {"unit": "mxint_quantizing", "width": 8, "block": 32}
MIXED: Described = {"unit": "mxint_bf16", "width": 8, "block": 32}  # MXINT8 × bf16
BF16_ADDERS: Described = {"unit": "float_adders", "mantissa": 7}  # that add in FP32
FP32: Described = {"unit": "float_adders", "mantissa": 23}
COMPARED = (MXINT8, BF16, QUANTIZING, MIXED, BF16_ADDERS, FP32)
PARTS = tuple(dict.fromkeys(synthesis.PARTS.values()))
AT_ANY_SPEED = "unpipelined or pipelined to one speed"  # what a range of ratios goes over


def _one(records: Records, kind: str, unit: Mapping[str, Any], **where: Any) -> Record:
    own = records.of(EXPERIMENT).where(kind=kind, **where, **unit)
    for option in ("window", "specials"):
        own = own if option in unit else own.without(option)
    return own.one()


def gates(records: Records, *, lanes: int = LANES, gate_set: str = "cells", **unit: Any) -> Record:
    """The synthesis of one unit.

    Raises:
        Pending: it is not there.
    """
    return _one(records, "gates", unit, lanes=lanes, gate_set=gate_set)


def transistors(records: Records, **unit: Any) -> int:
    """The estimate for one unit; `unit` as for `gates`."""
    return int(gates(records, **unit).values["transistors"])


def pipelined(records: Records, period: int, **unit: Any) -> int:
    """Transistors with the flip-flops that a result every `period` FO4 takes."""
    values = gates(records, **unit).values
    return int(values["transistors"] + FLIP_FLOP * values["flip_flops"][str(period)])


def error_db(records: Records, **unit: Any) -> float:
    """Signal to error of the unit's own results for rows of the model's tensors.

    Raises:
        Pending: it was not simulated.
    """
    return float(_one(records, "simulation", unit, lanes=LANES).values["error_db"])


def correctly_rounded(records: Records, **unit: Any) -> float:
    """The share of a unit's finite results that are the exact dot product, rounded once.

    Raises:
        Pending: it was not simulated.
    """
    return _one(records, "simulation", unit, lanes=LANES).values["correctly_rounded"]


def nearest_errors(
    records: Records, units: Sequence[Mapping[str, Any]], to: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Of these units, the last that is less exact than another, and the first that is as exact.

    Raises:
        Pending: one was not simulated, or there is none on one side.
    """
    wanted = error_db(records, **to)
    by_error = sorted(units, key=lambda unit: error_db(records, **unit))
    coarse = [unit for unit in by_error if error_db(records, **unit) < wanted]
    fine = by_error[len(coarse) :]
    if not coarse or not fine:
        raise Pending("a unit less exact and a unit as exact")
    return coarse[-1], fine[0]


def ratio(r: Records, a: Mapping[str, Any], b: Mapping[str, Any], **where: str) -> str:
    """How many times as many transistors unit A takes as unit B: "1.96 ×"."""
    return f"{number(transistors(r, **where, **a) / transistors(r, **where, **b))} ×"


def ratio_range(r: Records, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The same without a pipeline and with that of every period: "0.447 to 0.541"."""
    sizes = [[transistors(r, **unit) for unit in (a, b)]]
    sizes += [[pipelined(r, period, **unit) for unit in (a, b)] for period in PERIODS]
    return span(mine / other for mine, other in sizes)


def parts_of(r: Records, **unit: Any) -> Mapping[str, int]:
    """Transistors by part, all parts."""
    found = gates(r, **unit).values["parts"]
    return {part: found.get(part, 0) for part in PARTS}


def cells_of(r: Records, *compared: Mapping[str, Any], **where: str) -> str:
    """What a fact about units is counted over, and by what."""
    made = [gates(r, **where, **unit) for unit in compared]
    total = sum(record.values["cells"] for record in made)
    with_what = " and ".join(dict.fromkeys(str(record.values["tool"]) for record in made))
    names = "; ".join(label_of(record) for record in made)
    return f"{total:,} gates of {len(compared)} units ({names}), by {with_what}"


def gate_rows(records: Records) -> Sequence[Mapping[str, Any]]:
    """One row for each compared unit that was synthesised.

    Units: `× MXINT8` is the ratio of transistors, `delay` in FO4; the last columns are transistors
    with the flip-flops of a pipeline that gives a result every so many FO4.

    Raises:
        Pending: the unit that the others are compared with is not there.
    """
    base = transistors(records, **MXINT8)
    rows: list[Mapping[str, Any]] = []
    for unit in COMPARED:
        try:
            record = gates(records, **unit)
        except Pending:
            continue
        made = record.values["transistors"]
        rows.append(
            {
                "unit": label_of(record),
                "transistors": made,
                "× MXINT8": made / base,
                "delay (FO4)": record.values["delay"],
                **{f"pipelined, {p} FO4": pipelined(records, p, **unit) for p in PERIODS},
            }
        )
    return rows


def encoding_of(record: Record) -> str:
    """How a unit's first side has its signs."""
    element = from_params({"lanes": LANES, **record.case.params}).a.element
    if isinstance(element, Signs):
        return "signs alone"
    return "two's complement" if isinstance(element, Integer) else "a sign kept apart"


def side_of(record: Record) -> str:
    """The format of a unit's first side, to name it briefly."""
    return label_of(record).partition(" × ")[0]


def label_of(record: Record) -> str:
    """The unit's name, from its parameters; of a borrowed result also where it was made."""
    params = record.case.params
    unit = from_params({"lanes": LANES, **params})
    name = unit.name
    block, window, lanes = params.get("block"), params.get("window"), unit.lanes
    name += "" if lanes == LANES else f", {lanes} lane{'s' * (lanes > 1)}"
    name += "" if block in (None, WHOLE) else f", blocks of {block}"
    name += "" if window is None else f", window of {window}"
    name += ", no NaN" if params.get("specials") == "none" and unit.a.element.bits == FP8 else ""
    return f"{name} [{record.borrowed_from}]" if record.borrowed_from else name
