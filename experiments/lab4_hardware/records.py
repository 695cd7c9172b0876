"""The units of question 4.4 and their records, for its page and for those that compare with them.

Another page takes `needs=("lab4_hardware",)`. Lengths of a dot product are in lanes, areas in
transistors, delays and periods in FO4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.lab4_hardware.synthesis import FLIP_FLOP, PERIODS
from experiments.lab4_hardware.synthesis import PARTS as MODULES
from experiments.lab4_hardware.units import from_params
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Pending, Record, Records, Row

STEM = "lab4_hardware"
LANES = 32  # of every unit that is compared with another
WHOLE = 32  # lanes: the block that is not named
FP8 = 8  # bits: OCP's floats of as many have a NaN, its narrower ones have none
ERROR = "signal to error (dB)"

Described = Mapping[str, Any]  # a unit's parameters

MXINT8: Described = {"unit": "mxint", "width": 8, "block": 32}
BF16: Described = {"unit": "float", "exponent": 8, "mantissa": 7}
QUANTIZING: Described = {"unit": "mxint_quantizing", "width": 8, "block": 32}
MIXED: Described = {"unit": "mxint_bf16", "width": 8, "block": 32}  # MXINT8 × bf16
BF16_ADDERS: Described = {"unit": "float_adders", "mantissa": 7}  # that add in FP32
FP32: Described = {"unit": "float_adders", "mantissa": 23}
PARTS = tuple(dict.fromkeys(MODULES.values()))


def _one(r: Records, kind: str, unit: Described, **where: Any) -> Record:
    own = r.of(STEM).where(kind=kind, **where, **unit)
    for option in ("window", "specials"):
        own = own if option in unit else own.without(option)
    return own.one()


def gates(r: Records, unit: Described, *, gate_set: str = "cells") -> Record:
    """The synthesis of one unit.

    Raises:
        Pending: it is not there.
    """
    return _one(r, "gates", {"lanes": LANES, **unit}, gate_set=gate_set)


def transistors(r: Records, unit: Described, period: int | None = None) -> int:
    """Of one unit; with a period, with the flip-flops that a result every so many FO4 takes."""
    values = gates(r, unit).values
    flip_flops = 0 if period is None else values["flip_flops"][str(period)]
    return int(values["transistors"] + FLIP_FLOP * flip_flops)


def error_db(r: Records, unit: Described) -> float | None:
    """Signal to error of the unit's results for rows of the model; None where it was not run."""
    try:
        return float(_one(r, "simulation", unit, lanes=LANES).values["error_db"])
    except Pending:
        return None


def percent_of(r: Records, a: Described, b: Described, period: int | None = None) -> Counted:
    """Transistors of unit A, of those of unit B."""
    share = transistors(r, a, period) / transistors(r, b, period)
    return counted(round(100 * share), "%", of=(gates(r, a), gates(r, b)))


def part(r: Records, unit: Described, name: str) -> Counted:
    """Which share of a unit's transistors are for one thing."""
    made = gates(r, unit)
    share = made.values["parts"].get(name, 0) / made.values["transistors"]
    return counted(round(100 * share), "%", of=[made])


def part_rows(r: Records, units: Sequence[Described]) -> list[Row]:
    """Transistors by part, of the parts that any of these units has."""
    made = [gates(r, unit) for unit in units]
    used = [name for name in PARTS if any(one.values["parts"].get(name) for one in made)]
    return [
        {"unit": label_of(one), **{name: one.values["parts"].get(name, 0) for name in used}}
        for one in made
    ]


def unit_rows(r: Records, units: Sequence[Described]) -> list[Row]:
    """A row a unit: its area, with a pipeline and without, and how exact its results are."""
    whole, fast = transistors(r, BF16), transistors(r, BF16, PERIODS[-1])
    return [
        {
            "unit": label_of(gates(r, unit)),
            "transistors": transistors(r, unit),
            "of bf16's": transistors(r, unit) / whole,
            "pipelined, of bf16's": transistors(r, unit, PERIODS[-1]) / fast,
            "delay (FO4)": gates(r, unit).values["delay"],
            ERROR: error_db(r, unit),
        }
        for unit in units
    ]


def label_of(record: Record) -> str:
    """The unit's name, from its parameters: a format once where both sides have it."""
    params = record.case.params
    unit = from_params({"lanes": LANES, **params})
    a, _, b = unit.name.partition(" × ")
    name = a + b.removeprefix(a) if b.startswith(a) else unit.name
    block, window, lanes = params.get("block"), params.get("window"), unit.lanes
    name += "" if lanes == LANES else f", {lanes} lane{'s' * (lanes > 1)}"
    name += "" if block in (None, WHOLE) else f", blocks of {block}"
    name += "" if window is None else f", window of {window}"
    name += ", no NaN" if params.get("specials") == "none" and unit.a.element.bits == FP8 else ""
    return f"{name} [{record.borrowed_from}]" if record.borrowed_from else name
