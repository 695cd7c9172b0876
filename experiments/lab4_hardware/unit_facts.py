"""What is counted of the units that question 4.4 compares, as facts of its page."""

from collections.abc import Iterable, Mapping, Sequence

from madl.hardware import compared, synthesis
from madl.hardware.compared import (
    BF16,
    COMPLEMENT,
    FINE,
    MIXED,
    MULTIPLIER,
    MXFP6,
    MXFP8,
    MXINT8,
    POWERS,
    QUANTIZING,
    SHORTER,
    SIGN_APART,
    Described,
)
from madl.hardware.counts import (
    AT_ANY_SPEED,
    EXPERIMENT,
    LANES,
    cells_of,
    correctly_rounded,
    error_db,
    gates,
    nearest_errors,
    parts_of,
    pipelined,
    ratio,
    ratio_range,
    side_of,
    transistors,
)
from madl.logbook.claims import Fact
from madl.logbook.records import Records
from madl.logbook.stats import listed, number, per_cent

TOLD_APART = 1.0  # decibels: a fixed caution, not derived from the rows
_LOGS = {w: (compared.JUDGED[f"log({w})"], POWERS[w][0]) for w in POWERS}  # powers of two alone
SHARED = 16  # units that take their activations from one quantizer: a small array's row


def saving(r: Records) -> Fact:
    """MXINT8 beside bf16 at any speed, by who quantizes the activations."""
    periods = " or ".join(map(str, synthesis.PERIODS))
    paths = [number(gates(r, **unit).values["delay"]) for unit in (QUANTIZING, BF16, MXINT8)]
    return Fact(
        text=f"A dot product of {LANES} pairs in MXINT8 takes {ratio_range(r, MXINT8, BF16)} × the "
        "transistors of one in bf16 where its activations come quantized, and "
        f"{ratio_range(r, QUANTIZING, BF16)} × where the unit quantizes bf16 activations itself: "
        "the ranges go over units without a pipeline and units with the registers for a result "
        f"every {periods} FO4 (delays of an inverter that drives four like it). Without a pipeline "
        f"the longest path of the unit that quantizes is {paths[0]} FO4, that of bf16's "
        f"{paths[1]}, that of MXINT8's without a quantizer {paths[2]}",
        of=cells_of(r, MXINT8, QUANTIZING, BF16),
    )


def shared_quantizer(r: Records) -> Fact:
    """MXINT8 beside bf16, where several units take their activations from one quantizer."""
    quantizer = parts_of(r, **QUANTIZING)["quantizer"]
    shared = transistors(r, **QUANTIZING) - quantizer * (1 - 1 / SHARED)
    return Fact(
        text=f"Computed, not built: with one quantizer for {SHARED} units, unpipelined and with "
        "nothing counted to distribute its results, a dot product in MXINT8 takes "
        f"{number(shared / transistors(r, **BF16))} × the transistors of one in bf16",
        of=cells_of(r, QUANTIZING, BF16),
    )


def sign_and_magnitude(r: Records) -> Fact:
    """What two's complement takes more than a sign kept apart, for the same numbers."""
    apart, complement = parts_of(r, **SIGN_APART), parts_of(r, **COMPLEMENT)
    two, four = (parts_of(r, **unit) for unit in (compared.NARROW_MXINT, POWERS[4][1]))
    return Fact(
        text="Block FP8 is MXINT8 with its sign kept apart: in the same blocks of "
        f"{SIGN_APART['block']} its results are {error_db(r, **SIGN_APART):.3f} dB above their "
        f"error (MXINT8, in two's complement, {error_db(r, **COMPLEMENT):.3f} dB) and it takes "
        f"{ratio_range(r, SIGN_APART, COMPLEMENT)} × the transistors. Its multipliers take "
        f"{apart['multipliers']:,} and its signs {apart['signs']:,} against "
        f"{complement['multipliers']:,} (at four bits {four['multipliers']:,} and "
        f"{four['signs']:,} against {two['multipliers']:,})",
        of=cells_of(r, SIGN_APART, COMPLEMENT, POWERS[4][1], compared.NARROW_MXINT),
    )


def one_side(r: Records) -> Fact:
    """Weights alone in MXINT8."""
    return Fact(
        text="Quantizing the weights alone: MXINT8 weights with bf16 activations take "
        f"{ratio_range(r, MIXED, BF16)} × the transistors of bf16 on both sides, {AT_ANY_SPEED}",
        of=cells_of(r, MIXED, BF16),
    )


def small_floats(r: Records) -> Fact:
    """MXFP8 and MXFP6 beside MXINT8."""
    return Fact(
        text="MXFP8 (E4M3: four exponent bits, three of mantissa) takes "
        f"{ratio_range(r, MXFP8, MXINT8)} × the transistors of MXINT8, and its results are "
        f"{number(error_db(r, **MXFP8))} dB above their error, MXINT8's "
        f"{number(error_db(r, **MXINT8))} dB. Block FP8 keeps its sign apart as MXFP8 does, but "
        f"has a scale for {SIGN_APART['block']} values and not for {MXFP8['block']}: MXFP8 takes "
        f"{ratio_range(r, MXFP8, SIGN_APART)} × its transistors. MXFP6 (E2M3: two and three) takes "
        f"{ratio_range(r, MXFP6, MXFP8)} × those of MXFP8, and its results are "
        f"{number(error_db(r, **MXFP6))} dB above their own error",
        of=cells_of(r, MXFP6, MXFP8, MXINT8, SIGN_APART),
    )


def simpler_gates(r: Records) -> Fact:
    """MXINT8 beside bf16 in a poorer set of gates."""
    units = {"where its values come quantized": MXINT8}
    if r.where(kind="gates", gate_set="cmos2", lanes=LANES, **QUANTIZING):
        units["where the unit quantizes bf16 itself"] = QUANTIZING
    said = [
        f"{ratio(r, unit, BF16, gate_set='cmos2')} {where}, instead of {ratio(r, unit, BF16)}"
        for where, unit in units.items()
    ]
    return Fact(
        text="With NAND, NOR and NOT alone MXINT8, unpipelined, takes of bf16's transistors "
        f"{' and '.join(said)}",
        of=cells_of(r, *units.values(), BF16, gate_set="cmos2"),
    )


def at_one_speed(r: Records) -> Fact:
    """MXINT8 beside bf16, with the flip-flops of a pipeline."""
    said = [
        f"{number(pipelined(r, period, **QUANTIZING) / pipelined(r, period, **BF16))} × (quantizing"
        f") or {number(pipelined(r, period, **MXINT8) / pipelined(r, period, **BF16))} × (without)"
        f" at a result every {period} FO4"
        for period in synthesis.PERIODS
    ]
    return Fact(
        text="Pipelined to one speed, each flip-flop counted as "
        f"{synthesis.FLIP_FLOP} transistors, MXINT8 takes {' and '.join(said)}, of the "
        f"transistors of bf16; unpipelined {ratio(r, QUANTIZING, BF16)} (quantizing) or "
        f"{ratio(r, MXINT8, BF16)} (without)",
        of=cells_of(r, MXINT8, QUANTIZING, BF16),
    )


def area_times_delay(r: Records) -> Fact:
    """MXINT8 beside bf16: transistors times the longest path."""
    bare, bf16, quantizing = (
        transistors(r, **unit) * gates(r, **unit).values["delay"]
        for unit in (MXINT8, BF16, QUANTIZING)
    )
    return Fact(
        text="Unpipelined, transistors times the longest path are "
        f"{number(quantizing / bf16)} × those of bf16 with the quantizer, {number(bare / bf16)} × "
        "without it",
        of=cells_of(r, MXINT8, BF16, QUANTIZING),
    )


def as_exact(r: Records) -> Fact:
    """MXINT8, in the standard's blocks and in small ones, between the floats nearest in error."""
    floats, units = [*SHORTER, BF16], [MXINT8, FINE]
    said = [_among(r, unit, nearest_errors(r, floats, unit)) for unit in units]
    rows = " or ".join(f"{n:,}" for n in r.of(EXPERIMENT).each("rows"))
    return Fact(
        text="Signal to error on rows of the model, of MXINT8 and of floats with eight exponent "
        f"bits, all given values that are rounded already: {'; '.join(said)}",
        of=f"{cells_of(r, *units, *floats)}; {rows} rows of the model; less than {TOLD_APART:g} dB "
        "apart is called as exact: a fixed caution, which is not derived from the rows",
    )


def _among(r: Records, unit: Described, rivals: Sequence[Described]) -> str:
    """Where a unit's error lies between two others', or which of them it is as exact as."""
    own = error_db(r, **unit)
    alike = [rival for rival in rivals if abs(error_db(r, **rival) - own) < TOLD_APART]
    named = " and ".join(
        f"{side_of(gates(r, **rival))} ({number(error_db(r, **rival))} dB, a unit of "
        f"{ratio_range(r, rival, unit)} × the transistors)"
        for rival in alike or rivals
    )
    where = "is as exact as" if alike else "lies between"
    return f"in blocks of {unit['block']} ({number(own)} dB) MXINT8 {where} {named}"


def exponents(r: Records) -> Fact:
    """What floating point has in every lane, and MXINT8 once a block."""
    mx, bf16 = parts_of(r, **MXINT8), parts_of(r, **BF16)
    share = per_cent(bf16["lane exponents"] / sum(bf16.values()))
    return Fact(
        text=f"Of bf16's transistors {share} are the lanes' exponents, of which MXINT8 has "
        f"{mx['lane exponents']:,}; its multipliers take {mx['multipliers']:,}, bf16's "
        f"{bf16['multipliers']:,}",
        of=cells_of(r, MXINT8, BF16),
    )


def powers(r: Records) -> Fact:
    """Powers of two beside block floating point: what goes with the multipliers, what comes."""
    said = [
        f"at {bits} bits a value {_more(*(parts_of(r, **unit) for unit in pair))}"
        for bits, pair in POWERS.items()
    ]
    return Fact(
        text="Unpipelined, a unit for powers of two has beside one for block floating point, in "
        f"transistors by part: {'; '.join(said)}",
        of=cells_of(r, *(unit for pair in POWERS.values() for unit in pair)),
    )


def capped_sums(r: Records) -> Fact:
    """Where the window caps the sum of powers of two, and what that costs and saves."""
    narrow, wide, floats = _LOGS[4], _LOGS[8], (BF16, compared.JUDGED["minifloat(8,4,nan)"], MXFP8)

    def adders(units: Iterable[Described]) -> str:
        sizes = (f"{parts_of(r, **u)['adders']:,} in {side_of(gates(r, **u))}" for u in units)
        return ", ".join(sizes)

    def exponents(unit: Described) -> str:
        of = parts_of(r, **unit)
        return (
            f"{of['lane exponents']:,} of the {sum(of.values()):,} of {side_of(gates(r, **unit))}"
        )

    rounded = [
        f"{per_cent(correctly_rounded(r, **u))} of {side_of(gates(r, **u))}'s"
        for u in (*narrow, *wide)
    ]
    return Fact(
        text=f"Transistors of adders: {adders((*narrow, *wide))}; of floats, {adders(floats)}. "
        f"Lanes' exponents take {listed([exponents(u) for u in (*narrow, *wide)])}. Of the finite "
        f"results are correctly rounded {listed(rounded)}",
        of=cells_of(r, *narrow, *wide, *floats),
    )


def multipliers_grow(r: Records) -> Fact:
    """Transistors of MXINT's multipliers by the width of a mantissa, and of all else."""
    every = [unit for unit in compared.swept() if unit["block"] == MXINT8["block"]]
    made = {int(unit["width"]): parts_of(r, **unit) for unit in every}
    own = {width: of["multipliers"] for width, of in made.items()}
    rest = {width: sum(of.values()) - own[width] for width, of in made.items()}
    squares = (f"{n:,} at {w} bits ({number(n / w**2)} × {w}²)" for w, n in own.items())
    sums = (f"{n:,} at {w} ({number(n / w)} × {w})" for w, n in rest.items())
    return Fact(
        text=f"In MXINT units the multipliers take, in transistors, {', '.join(squares)}; all else "
        f"{', '.join(sums)}",
        of=cells_of(r, *every),
    )


def _more(mine: Mapping[str, int], rival: Mapping[str, int]) -> str:
    """What one unit takes more and fewer than another, by part."""
    more = {part: n - rival[part] for part, n in mine.items() if n != rival[part]}
    return ", ".join(f"{abs(n):,} {'more' if n > 0 else 'fewer'} for {p}" for p, n in more.items())


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
        text=f"An FP32 multiplier takes {size:,} transistors unpipelined: {', '.join(said)}. One "
        "is needed for a finished row's scale, not for each piece of it, and none is counted in "
        "any unit for that",
        of=cells_of(r, MULTIPLIER, *users),
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
