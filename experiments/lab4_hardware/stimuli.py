"""Vectors that a unit is simulated on: corners, values that the formats rounded, and any codes."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.codes import SCALE_NAN, coded
from experiments.lab4_hardware.dyadic import Number
from experiments.lab4_hardware.operands import SCALE_BIAS, Float, Operand, Unit
from experiments.lab4_hardware.simulation import Vector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An output's weights (a) and what the layer is given for a token (b); a unit takes both from
    `start` on.

    Shapes: a and b have the layer's inputs, FP32.
    """

    a: "Tensor"
    b: "Tensor"
    start: int

    def dot(self, lanes: int) -> float:
        """The piece's dot product, unrounded."""
        part = slice(self.start, self.start + lanes)
        return float((self.a[part].double() * self.b[part].double()).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """A vector; the exact result of the format's own values where it was made from some; what each
    of an integer unit's sums is multiplied by once its row is finished, one where this is empty."""

    vector: Vector
    exact: Fraction | None = None
    row_scales: tuple[Number, ...] = ()


def stimuli(unit: Unit, *, num_random: int, seed: int) -> Iterator[Stimulus]:
    """Corners; then `num_random` vectors of quantized values and as many of any codes."""
    yield from corners(unit)
    a, b = (_normal(unit, num_random, seed + side) for side in (0, 1))
    yield from from_rows(unit, (Piece(a=x, b=y, start=0) for x, y in zip(a, b)))
    rng = random.Random(seed)
    for _ in range(num_random):
        yield Stimulus(vector=_any_codes(unit, rng))


def corners(unit: Unit) -> Iterator[Stimulus]:
    """All pairs of awkward codes in all lanes; at scales of one also in one lane among zeros."""
    for scale in (0, SCALE_BIAS, 254, SCALE_NAN) if unit.a.has_block_scale else (SCALE_BIAS,):
        for x in corner_codes(unit.a):
            for y in corner_codes(unit.b):
                for lanes in (unit.lanes, 1) if scale == SCALE_BIAS else (unit.lanes,):
                    rest = [0] * (unit.lanes - lanes)
                    yield Stimulus(
                        vector={
                            "a": [x] * lanes + rest,
                            "b": [y] * lanes + rest,
                            "a_scale": [scale] * unit.blocks,
                            "b_scale": [min(SCALE_BIAS * 2 - scale, 254) % 256] * unit.blocks,
                        }
                    )


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


def from_rows(unit: Unit, pieces: Iterable[Piece]) -> Iterator[Stimulus]:
    """Values, rounded by the formats themselves, a whole row at once, as a unit is given them."""
    for piece in pieces:
        lanes = slice(piece.start, piece.start + unit.lanes)
        a, b = coded(unit.a, unit.block, piece.a, lanes), coded(unit.b, unit.block, piece.b, lanes)
        values = b.values
        if unit.inner is not None:
            bf16 = piece.b.bfloat16().float()
            values = coded(unit.inner.b, unit.block, bf16, lanes).values
        products = [dyadic.product(x, y) for x, y in zip(a.values, values)]
        yield Stimulus(
            vector={"a": a.codes, "a_scale": a.scales, "b": b.codes, "b_scale": b.scales},
            exact=dyadic.fraction(dyadic.total(products)),
            row_scales=tuple(dyadic.product(x, y) for x in a.levels for y in b.levels),
        )


def _normal(unit: Unit, count: int, seed: int) -> "Tensor":
    """Normal random rows of different spread."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.randn(count, 1, generator=generator) * 2)
    return torch.randn(count, unit.lanes, generator=generator) * spread


def _any_codes(unit: Unit, rng: random.Random) -> Vector:
    return {
        "a": _codes(unit.a, unit.lanes, rng),
        "b": _codes(unit.b, unit.lanes, rng),
        "a_scale": [_scale(rng) for _ in range(unit.blocks)],
        "b_scale": [_scale(rng) for _ in range(unit.blocks)],
    }


def _codes(operand: Operand, count: int, rng: random.Random) -> list[int]:
    """Any bits; of a float, exponents around one of their own, or nearly every sum would be NaN."""
    element = operand.element
    codes = [rng.getrandbits(element.bits) for _ in range(count)]
    if not isinstance(element, Float):
        return codes
    last = (1 << element.exponent) - 1
    around, spread = rng.randint(0, last - 1), rng.choice([1, 4, 16, 64])
    fields = [min(max(around + rng.randint(-spread, spread), 0), last - 1) for _ in codes]
    mask = last << element.mantissa
    return [code & ~mask | field << element.mantissa for code, field in zip(codes, fields)]


def _scale(rng: random.Random) -> int:
    """Mostly near one; sometimes anything."""
    return rng.randint(0, 255) if rng.random() < 0.02 else rng.randint(97, 157)
