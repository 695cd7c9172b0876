"""What is counted of the units that question 4.4 compares, as facts of its page."""

from madl.hardware import compared, synthesis
from madl.hardware.compared import (
    BF16,
    FINE,
    MULTIPLIER,
    MXINT8,
    POWERS,
    QUANTIZING,
    SHORTER,
    Described,
)
from madl.hardware.counts import (
    COMPARED,
    cells_of,
    cheapest_as_exact,
    error_db,
    gates,
    label_of,
    parts_of,
    pipelined,
    ratio,
    side_of,
    transistors,
)
from madl.logbook.claims import Fact
from madl.logbook.records import Records
from madl.logbook.stats import number, per_cent


def at_one_speed(r: Records) -> Fact:
    """MXINT8 beside bf16, with the flip-flops of a pipeline."""
    said = [
        f"{number(pipelined(r, period, **QUANTIZING) / pipelined(r, period, **BF16))} × (quantizing"
        f") and {number(pipelined(r, period, **MXINT8) / pipelined(r, period, **BF16))} × (without)"
        f" at a result every {period} FO4"
        for period in synthesis.PERIODS
    ]
    return Fact(
        text=f"Pipelined to one speed, flip-flops counted, MXINT8 takes {', '.join(said)} the "
        "transistors of bf16",
        of=cells_of(r, MXINT8, QUANTIZING, BF16),
    )


def area_times_delay(r: Records) -> Fact:
    """MXINT8 beside bf16: the longest paths."""
    made = {name: gates(r, **COMPARED[name]).values for name in list(COMPARED)[:3]}
    bare, bf16, quantizing = (one["transistors"] * one["delay"] for one in made.values())
    delays = ", ".join(f"{name} {number(one['delay'])}" for name, one in made.items())
    return Fact(
        text=f"The longest paths, in FO4: {delays}. Transistors times delay are "
        f"{number(quantizing / bf16)} × those of bf16 with the quantizer, {number(bare / bf16)} × "
        "without it",
        of=cells_of(r, MXINT8, BF16, QUANTIZING),
    )


def as_exact(r: Records) -> Fact:
    """Beside MXINT8, in the standard's blocks and in small ones, the smallest float as exact.

    Which one is chosen on validation rows.
    """
    floats, units = [*SHORTER, BF16], [MXINT8, FINE]
    rivals = [cheapest_as_exact(r, floats, unit) for unit in units]
    said = [
        f"{label_of(gates(r, **rival))} beside MXINT8 in blocks of {unit['block']}, with "
        f"{ratio(r, rival, unit)} its transistors ({number(error_db(r, **rival))} dB of signal to "
        f"error on the model's tensors, MXINT8 {number(error_db(r, **unit))} dB)"
        for rival, unit in zip(rivals, units)
    ]
    return Fact(
        text=f"Of {len(floats)} floats with eight exponent bits the smallest as exact, both given "
        f"what is rounded already, is {'; '.join(said)}",
        of=cells_of(r, *units, *floats),
    )


def exponents(r: Records) -> Fact:
    """What floating point has in every lane, and MXINT8 once a block."""
    mx, bf16 = parts_of(r, **MXINT8), parts_of(r, **BF16)
    share = per_cent(bf16["lane exponents"] / sum(bf16.values()))
    return Fact(
        text=f"Of bf16's transistors {share} are the lanes' exponents (adding them, finding the "
        f"largest, shifting), of which MXINT8 has {mx['lane exponents']:,}; its multipliers take "
        f"{mx['multipliers']:,}, bf16's {bf16['multipliers']:,}",
        of=cells_of(r, MXINT8, BF16),
    )


def powers(r: Records) -> Fact:
    """Powers of two beside block floating point: what goes with the multipliers, what comes."""
    said = [
        f"{ratio(r, a, b)} the transistors at {bits} bits a value"
        for bits, (a, b) in POWERS.items()
    ]
    mine, rival = (parts_of(r, **unit) for unit in POWERS[min(POWERS)])
    more = {part: n - rival[part] for part, n in mine.items() if n != rival[part]}
    return Fact(
        text="Beside block floating point, powers of two under the same scales take "
        f"{', '.join(said)}; at {min(POWERS)} bits that is "
        + ", ".join(f"{abs(n):,} {'more' if n > 0 else 'fewer'} for {p}" for p, n in more.items()),
        of=cells_of(r, *(unit for pair in POWERS.values() for unit in pair)),
    )


def row_scales(r: Records) -> Fact:
    """What a row's scale would take, were it applied in a unit."""
    size = transistors(r, **MULTIPLIER)
    users: tuple[Described, ...] = (
        compared.BINARY,
        *({**compared.SCALED, "width": width} for width in (4, 8)),
    )
    made = [gates(r, **unit) for unit in users]
    said = [
        f"{number(size / one.values['transistors'])} × a unit of {side_of(one)}" for one in made
    ]
    return Fact(
        text=f"An FP32 multiplier takes {size:,} transistors: {', '.join(said)}. One is needed for "
        "a finished row's scale, not for each piece of it, and no unit has one",
        of=cells_of(r, *users),
    )


def simulated(r: Records) -> Fact:
    """How many results were checked."""
    found = r.all(kind="simulation")
    sums = {key: sum(one.values[key] for one in found) for key in ("vectors", "finite")}
    return Fact(
        text=f"All {sums['vectors']:,} simulated results have the bits of the definition, and all "
        f"{sums['finite']:,} finite ones lie within the unit's bound of the exact dot product; a "
        "case where one does not fails",
        of=f"{len(found)} units",
    )
