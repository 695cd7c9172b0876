"""Reading gate counts from records: for the page that made them, and for any other that needs them.

Another page takes `needs=("lab4_hardware",)` and calls `gate_rows(records)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from madl.hardware.units import from_params
from madl.logbook.records import Pending, Record, Records

EXPERIMENT = "lab4_hardware"
LANES = 32  # of every unit that is compared with another

# The units that the answer is about, fairest comparison first: (label, parameters).
COMPARED: Mapping[str, Mapping[str, Any]] = {
    "MXINT8 × MXINT8": {"unit": "mxint", "width": 8, "block": 32},
    "bf16 × bf16": {"unit": "float", "exponent": 8, "mantissa": 7},
    "MXINT8 × bf16": {"unit": "mxint_bf16", "width": 8, "block": 32},
    "bf16 × bf16, FP32 adders": {"unit": "float_adders", "mantissa": 7},
    "FP32 × FP32, FP32 adders": {"unit": "float_adders", "mantissa": 23},
}
REFERENCE = next(iter(COMPARED))


def gates(records: Records, *, lanes: int = LANES, gate_set: str = "cmos2", **unit: Any) -> Record:
    """The synthesis of one unit.

    Raises:
        Pending: it is not there.
    """
    own = records.of(EXPERIMENT).where(kind="gates", lanes=lanes, gate_set=gate_set, **unit)
    if "window" not in unit:
        own = own.without("window")
    return own.one()


def transistors(records: Records, **unit: Any) -> int:
    """The estimate for one unit; `unit` as for `gates`."""
    return int(gates(records, **unit).values["transistors"])


def gate_rows(records: Records) -> Sequence[Mapping[str, Any]]:
    """One row for each compared unit that was synthesised, smallest claim first.

    Units: `× MXINT8` is the ratio of transistors, `depth` in gates.

    Raises:
        Pending: the unit that the others are compared with is not there.
    """
    base = transistors(records, **COMPARED[REFERENCE])
    rows: list[Mapping[str, Any]] = []
    for label, unit in COMPARED.items():
        try:
            values = gates(records, **unit).values
        except Pending:
            continue
        rows.append(
            {
                "unit": label,
                "transistors": values["transistors"],
                "× MXINT8": values["transistors"] / base,
                "gates": values["cells"],
                "depth": values["depth"],
                "input bits": values["input_bits"],
            }
        )
    return rows


def label_of(record: Record) -> str:
    """The unit's name, from its parameters."""
    return from_params({"lanes": LANES, **record.case.params}).name
