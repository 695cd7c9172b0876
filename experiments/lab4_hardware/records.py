"""The units of question 4.4 and their records, for its page and for those that compare with them.

Another page takes `needs=("lab4_hardware",)`. A unit is called by its name in `units.UNITS`. At
equal delay means: cut into stages of `PERIOD`, with a result every so many FO4. Areas are in
transistors.
"""

from collections.abc import Sequence

from experiments.lab4_hardware.synthesis import ACCUMULATOR, DRIVERS, FLIP_FLOP, PARTS, REST
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Pending, Record, Records, Row

STEM = "lab4_hardware"
PERIOD = 40  # FO4 between two results, of units that are compared at equal delay
ERROR = "signal to error (dB)"
REGISTERS = "registers"

BF16, INT8 = "BF16", "INT8 by row"
MXINT8 = "MXINT8"  # in two's complement, on both sides
SIGNS_APART = "MXINT8, signs apart"  # beside magnitudes; the next two have them so, too
MIXED = "MXINT8 × BF16"  # weights alone in MXINT8
QUANTIZING = "MXINT8, quantizing"  # MXINT8 on both sides; inputs come as bf16

LOGIC = tuple(dict.fromkeys((*PARTS.values(), REST, ACCUMULATOR, DRIVERS)))  # as they are drawn


def gates(r: Records, unit: str) -> Record:
    """The synthesis of one unit.

    Raises:
        Pending: it is not there.
    """
    return r.of(STEM).one(kind="gates", unit=unit)


def logic(r: Records, unit: str) -> int:
    """Transistors of one unit without registers."""
    return int(gates(r, unit).values["transistors"])


def registers(r: Records, unit: str, period: int = PERIOD) -> int:
    """Transistors of the flip-flops that a result every so many FO4 takes."""
    return int(FLIP_FLOP * gates(r, unit).values["flip_flops"][str(period)])


def area(r: Records, unit: str, period: int | None = PERIOD) -> int:
    """Transistors of one unit with its registers; without any for None."""
    return logic(r, unit) + (registers(r, unit, period) if period else 0)


def share_of(r: Records, a: str, b: str, period: int | None = PERIOD) -> Counted:
    """Transistors of unit A at equal delay, of those of unit B; without registers for None."""
    share = area(r, a, period) / area(r, b, period)
    return counted(round(100 * share), "%", of=(gates(r, a), gates(r, b)))


def part(r: Records, unit: str, name: str) -> Counted:
    """Which share of a unit's transistors at equal delay are for one thing."""
    share = parts(r, unit).get(name, 0) / area(r, unit)
    return counted(round(100 * share), "%", of=[gates(r, unit)])


def saved(r: Records, a: str, b: str, name: str) -> Counted:
    """Which share of what unit A saves on unit B at equal delay is of one thing."""
    share = (parts(r, b)[name] - parts(r, a)[name]) / (area(r, b) - area(r, a))
    return counted(round(100 * share), "%", of=(gates(r, a), gates(r, b)))


def parts(r: Records, unit: str) -> dict[str, int]:
    """Transistors by part at equal delay, registers the last of them."""
    made = gates(r, unit).values["parts"]
    return {**{one: int(made.get(one, 0)) for one in LOGIC}, REGISTERS: registers(r, unit)}


def part_chart(r: Records, units: Sequence[str]) -> Chart:
    """Transistors by part, of the parts that any of these units has."""
    made = {unit: parts(r, unit) for unit in units}
    used = [one for one in (*LOGIC, REGISTERS) if any(of[one] for of in made.values())]
    return Chart(
        [{"unit": unit, **{one: of[one] for one in used}} for unit, of in made.items()],
        x=linear(None, "transistors of a unit, at an equal rate", "thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*used, stacked=True),
    )


def error_db(r: Records, unit: str) -> float | None:
    """Signal to error of the unit's results for rows of the model; None where it was not run."""
    try:
        return float(r.of(STEM).one(kind="simulation", unit=unit).values["error_db"])
    except Pending:
        return None


def unit_rows(r: Records, units: Sequence[str]) -> list[Row]:
    """A row a unit: logic and registers in transistors, what they are of bf16's, how exact its
    results are."""
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
