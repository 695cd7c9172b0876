"""The areas of question 4.4's units, for its page and for those that compare with them.

Another page takes `needs=("lab4_hardware",)`. A unit is called by its name in `units.UNITS`. At
equal delay means: cut into stages of `PERIOD`, with a result every so many FO4.
Units: transistors.
"""

from collections.abc import Sequence

from experiments.lab4_hardware import design
from experiments.lab4_hardware.design import PERIOD
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.numbers import ExactValue, percentage
from madl.logbook.records import Record, Records, Row, none_if_pending

STEM = "lab4_hardware"
BF16, INT8 = "BF16", "INT8 by row"
MXINT8 = "MXINT8"  # in two's complement, on both sides
SIGNS_APART = "MXINT8, signs apart"  # beside magnitudes; the next two have them so, too
MIXED = "MXINT8 × BF16"  # weights alone in MXINT8
QUANTIZING = "MXINT8, quantizing"  # MXINT8 on both sides; inputs come as bf16

ERROR = "signal to error (dB)"
REGISTERS, OTHERS = "registers", "other parts"
PARTS_DRAWN = 4  # of the logic, each in a colour of its own
LOGIC_PARTS = tuple(  # as they are drawn
    dict.fromkeys((*design.PARTS.values(), design.REST, design.ACCUMULATOR, design.DRIVERS))
)


def gates(r: Records, unit: str) -> Record:
    """The record of one unit's synthesis.

    Raises:
        Pending: it is not there.
    """
    return r.of_experiment(STEM).single(kind="gates", unit=unit)


def logic(r: Records, unit: str) -> int:
    """Transistors of one unit without registers."""
    return int(gates(r, unit).values["transistors"])


def registers(r: Records, unit: str, period: int = PERIOD) -> int:
    """Transistors of the flip-flops in a pipeline with a result every `period` FO4."""
    return int(design.FLIP_FLOP * gates(r, unit).values["flip_flops"][str(period)])


def area(r: Records, unit: str, period: int | None = PERIOD) -> int:
    """Transistors of one unit with its registers at that period; without registers for None."""
    return logic(r, unit) + (registers(r, unit, period) if period else 0)


def share_of(r: Records, a: str, b: str, period: int | None = PERIOD) -> ExactValue:
    """The area of unit A as a share of unit B's, at equal delay; without registers for None."""
    return percentage(area(r, a, period) / area(r, b, period), (gates(r, a), gates(r, b)))


def switched(r: Records, a: str, b: str) -> ExactValue:
    """The load that unit A's gates switch for a result of the model's rows, as a share of B's."""
    records = [r.of_experiment(STEM).single(kind="switching", unit=unit) for unit in (a, b)]
    of_a, of_b = (record.values["switched"] for record in records)
    return percentage(of_a / of_b, records)


def part(r: Records, unit: str, name: str) -> ExactValue:
    """The share of a part in a unit's area at equal delay."""
    return percentage(parts(r, unit).get(name, 0) / area(r, unit), [gates(r, unit)])


def saved(r: Records, a: str, b: str, name: str) -> ExactValue:
    """The share of one part in what unit A saves of unit B's area, at equal delay."""
    share = (parts(r, b)[name] - parts(r, a)[name]) / (area(r, b) - area(r, a))
    return percentage(share, (gates(r, a), gates(r, b)))


def parts(r: Records, unit: str) -> dict[str, int]:
    """Part → transistors at equal delay, registers last."""
    logic_parts = gates(r, unit).values["parts"]
    by_part = {part: int(logic_parts.get(part, 0)) for part in LOGIC_PARTS}
    return {**by_part, REGISTERS: registers(r, unit)}


def part_chart(r: Records, units: Sequence[str]) -> Chart:
    """Transistors by part, of the largest parts of these units; the others are one."""
    by_unit = {unit: parts(r, unit) for unit in units}
    used = sorted(LOGIC_PARTS, key=lambda part: -sum(p[part] for p in by_unit.values()))
    largest = [part for part in LOGIC_PARTS if part in used[:PARTS_DRAWN]]
    used = [*largest, OTHERS, REGISTERS]
    for of_unit in by_unit.values():
        of_unit[OTHERS] = sum(of_unit.values()) - sum(of_unit[p] for p in (*largest, REGISTERS))
    return Chart(
        [{"unit": unit, **{part: by_unit[unit][part] for part in used}} for unit in units],
        x=linear(None, "transistors of a unit, at an equal rate", "thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*used, stacked=True),
    )


def error_db(r: Records, unit: str) -> float | None:
    """Signal to error of the unit's results for rows of the model; None where it was not run."""
    record = none_if_pending(r.of_experiment(STEM).single, kind="simulation", unit=unit)
    return float(record.values["error_db"]) if record else None


def unit_rows(r: Records, units: Sequence[str]) -> list[Row]:
    """A row a unit: logic and registers, their share of bf16's, and how exact its results are."""
    return [
        {
            "unit": unit,
            "logic": logic(r, unit),
            "registers": registers(r, unit),
            "of BF16's": area(r, unit) / area(r, BF16),
            ERROR: error_db(r, unit),
        }
        for unit in units
    ]
