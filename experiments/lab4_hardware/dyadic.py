"""Exact numbers significand · 2^exponent (dyadic rationals), and FP32 as the units round to it."""

import math
from collections.abc import Sequence
from fractions import Fraction

Number = tuple[int, int]  # significand, exponent
ZERO: Number = (0, 0)
NAN = 0x7FC0_0000  # FP32's code for whatever is no finite number


def number(value: float) -> Number:
    """The exact value of a float, as significand and exponent."""
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def fraction(value: Number) -> Fraction:
    significand, exponent = value
    return Fraction(significand) * Fraction(2) ** exponent


def product(a: Number, b: Number) -> Number:
    return a[0] * b[0], a[1] + b[1]


def total(numbers: Sequence[Number]) -> Number:
    """The exact sum, with the smallest exponent of its terms."""
    low = min((exponent for _, exponent in numbers), default=0)
    return sum(p << (exponent - low) for p, exponent in numbers), low


def to_fp32(significand: int, exponent: int) -> int:
    """The FP32 code of significand · 2^exponent: nearest, ties to even, as in the units.

    Too small becomes +0, too large NaN.
    """
    magnitude = abs(significand)
    excess = magnitude.bit_length() - 24
    if excess > 0:
        kept, rest = magnitude >> excess, magnitude & ((1 << excess) - 1)
        half = 1 << (excess - 1)
        kept += rest > half or (rest == half and kept & 1 == 1)
    else:
        kept = magnitude << -excess
    if kept == 1 << 24:
        kept, excess = kept >> 1, excess + 1
    field = exponent + excess + 23 + 127
    if magnitude == 0 or field <= 0:
        return 0
    return NAN if field >= 255 else (significand < 0) << 31 | field << 23 | (kept & 0x7F_FFFF)


def from_fp32(code: int) -> Number | None:
    """The value of an FP32 code, None where it is not finite; a subnormal counts as zero."""
    field = code >> 23 & 0xFF
    if field == 0xFF:
        return None
    if field == 0:
        return ZERO
    significand = code & 0x7F_FFFF | 1 << 23
    return -significand if code >> 31 else significand, field - 127 - 23


def add_fp32(a: int, b: int) -> int:
    """The FP32 code of the sum of two codes, rounded once, as the accumulator adds."""
    left, right = from_fp32(a), from_fp32(b)
    if left is None or right is None:
        return NAN
    return to_fp32(*total([left, right]))
