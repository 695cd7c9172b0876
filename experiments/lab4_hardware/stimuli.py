"""Vectors that a unit is simulated on: corner codes, random codes, and rows of a model."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.codes import SCALE_NAN, encode_row
from experiments.lab4_hardware.dyadic import Number
from experiments.lab4_hardware.operands import (
    FLOAT_SCALES,
    RESULT_BITS,
    SCALE_BIAS,
    Float,
    Operand,
    Unit,
)
from experiments.lab4_hardware.simulation import Vector

if TYPE_CHECKING:
    from torch import Tensor

# Accumulators: zeros, ones, a subnormal, the least and the largest numbers, infinity, NaN; where
# it is an integer, these are integers.
ACCUMULATORS = (
    *(0, 0x8000_0000, 0x3F80_0000, 0xBF80_0000, 0x007F_FFFF, 0x0080_0000),
    *(0x7F7F_FFFF, 0xFF7F_FFFF, 0x7F80_0000, 0x7FC0_0000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Vectors in a row, each with the accumulator that the one before left.

    The first's accumulator is zero, or its own. `dot`: the dot product of the unrounded row.
    `row_scale`: what a finished integer is multiplied by.
    """

    vectors: Sequence[Vector]
    dot: float | None = None
    row_scale: Number = (1, 0)


def single_chains(vectors: Iterable[Vector]) -> Iterator[Chain]:
    """A chain for each vector alone."""
    return (Chain(vectors=[vector]) for vector in vectors)


def corner_vectors(unit: Unit) -> Iterator[Vector]:
    """All pairs of corner codes, in all lanes, under all pairs of corner scales: of all blocks, and
    of the last one alone. Under scales of one also in the first or the last lane among zeros.
    """
    acc = itertools.cycle(ACCUMULATORS)
    lanes, blocks = range(unit.lanes), range(unit.blocks)
    (neutral, _), *others = corner_scales(unit.a)
    places = [((neutral, neutral), at, blocks) for at in (lanes, lanes[:1], lanes[-1:])]
    for within in (blocks, blocks[-1:])[: unit.blocks]:
        places += [(pair, lanes, within) for pair in others]
    for x, y in itertools.product(corner_codes(unit.a), corner_codes(unit.b)):
        for (scale, other), at, within in places:
            yield {
                "a": [x if i in at else 0 for i in lanes],
                "b": [y if i in at else 0 for i in lanes],
                "a_scale": [scale if i in within else neutral for i in blocks],
                "b_scale": [other if i in within else neutral for i in blocks],
                "acc": [next(acc)],
            }


def corner_scales(operand: Operand) -> list[tuple[int, int]]:
    """Codes of scales for both sides: twice one; ends that balance, and that do not; on either side
    alone what is special."""
    if not operand.has_block_scale:
        return [(SCALE_BIAS, SCALE_BIAS)]
    if (by := FLOAT_SCALES.get(operand.scale)) is None:
        neutral, alone = SCALE_BIAS, [SCALE_NAN]
        pairs = [(neutral, neutral), *itertools.product((0, SCALE_NAN - 1), repeat=2)]
    else:
        neutral, special = by.bias << by.mantissa, (1 << by.exponent + by.mantissa) - 1
        alone = [0, 1, special - (1 if by.specials == "nan" else 1 << by.mantissa), special]
        pairs = [(neutral, neutral)]
    return [*pairs, *((code, neutral) for code in alone), *((neutral, code) for code in alone)]


def corner_codes(operand: Operand) -> list[int]:
    """Zero, the smallest and the largest of each sign, and the codes next to the special ones."""
    bits = operand.element.bits
    sign = 1 << (bits - 1)
    codes = {0, 1, sign, sign | 1, sign - 1, 2 * sign - 1}
    if isinstance(operand.element, Float):
        first_normal = 1 << operand.element.mantissa
        special = (sign - 1) >> operand.element.mantissa << operand.element.mantissa
        codes |= {first_normal, first_normal - 1, special, special - 1, sign | (special - 1)}
    return sorted(codes)


def random_vectors(unit: Unit, count: int, seed: int) -> Iterator[Vector]:
    """Vectors of random codes, with scales and accumulators mostly near one."""
    rng = random.Random(seed)
    for _ in range(count):
        yield {
            "a": _codes(unit.a, unit.lanes, rng),
            "b": _codes(unit.b, unit.lanes, rng),
            "a_scale": [_scale(unit.a, rng) for _ in range(unit.blocks)],
            "b_scale": [_scale(unit.b, rng) for _ in range(unit.blocks)],
            "acc": [rng.getrandbits(RESULT_BITS) & 0x807F_FFFF | rng.randint(90, 165) << 23],
        }


def _codes(operand: Operand, count: int, rng: random.Random) -> list[int]:
    """Random codes; the exponents of floats are around one of theirs, or most sums would be NaN."""
    element = operand.element
    codes = [rng.getrandbits(element.bits) for _ in range(count)]
    if not isinstance(element, Float):
        return codes
    last = (1 << element.exponent) - 1
    around, spread = rng.randint(0, last - 1), rng.choice([1, 4, 16, 64])
    fields = [min(max(around + rng.randint(-spread, spread), 0), last - 1) for _ in codes]
    mask = last << element.mantissa
    return [code & ~mask | field << element.mantissa for code, field in zip(codes, fields)]


def _scale(operand: Operand, rng: random.Random) -> int:
    """The code of a random scale: mostly near one, seldom anything."""
    if operand.scale in FLOAT_SCALES:
        return rng.getrandbits(operand.scale_bits - 1)
    return rng.randint(0, 255) if rng.random() < 0.02 else rng.randint(97, 157)


def row_chains(unit: Unit, rows: "Iterable[tuple[Tensor, Tensor]]") -> Iterator[Chain]:
    """The dot product of each pair of rows as a chain: its vectors in order, to be summed.

    A pair is an output's row of weights and a token's row of inputs. Each is rounded as a whole, to
    the unit's format for weights or for inputs, then cut into vectors of `unit.lanes` values.

    Shapes: both rows (in_features,), FP32; in_features is a multiple of the lanes.
    """
    for a, b in rows:
        left, right = encode_row(unit.a, unit.block, a), encode_row(unit.b, unit.block, b)
        vectors: list[Vector] = []
        for start in range(0, len(a), unit.lanes):
            stop, first = start + unit.lanes, start // unit.block
            vectors.append(
                {
                    "a": left.codes[start:stop],
                    "b": right.codes[start:stop],
                    "a_scale": left.scales[first : first + unit.blocks],
                    "b_scale": right.scales[first : first + unit.blocks],
                }
            )
        dot = float((a.double() * b.double()).sum())
        scale = dyadic.product(left.row_scale, right.row_scale)
        yield Chain(vectors=vectors, dot=dot, row_scale=scale)
