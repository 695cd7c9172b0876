"""The representable values of a format as plain numbers, without torch.

Every rounding takes these: the definition in torch (`rounding`), and the C++ in `kernels/`.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

Fields = tuple[int | float | bool, ...]
MANTISSA = 23  # stored mantissa bits of float32
BIAS = 127
LARGEST = math.ldexp(2 - 2**-MANTISSA, BIAS)  # float32


class Spacing(IntEnum):
    """The rule for the distance between neighbouring values; the C++ uses the same numbers."""

    UNIFORM = 0
    FLOATING = 1
    POWERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Zero and multiples of a step, or powers of two, from `low` to `high`, both included."""

    spacing: Spacing
    # The step is 2^min_exponent if UNIFORM; if FLOATING 2^(max(exponent of x, min_exponent)
    # - mantissa_bits). POWERS holds zero and ±2^k for k ≥ min_exponent.
    mantissa_bits: int = 0
    min_exponent: int
    low: float
    high: float
    keep_inf: bool = False  # infinities are representable

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest value's leading bit."""
        return math.frexp(self.high)[1] - 1

    @property
    def is_wide(self) -> bool:
        """Whether 1.5·2^23 steps of the largest value overflow float32, so float64 must round."""
        top = self.max_exponent if self.spacing is Spacing.FLOATING else self.min_exponent
        return top - self.mantissa_bits + MANTISSA > BIAS

    @property
    def exact_in_bf16(self) -> bool:
        """Whether bfloat16, of 8 significant bits, holds every value as a normal number."""
        step = math.ldexp(1.0, self.min_exponent - self.mantissa_bits)  # the smallest value
        has_few = max(-self.low, self.high) <= 256 * step
        if self.spacing is not Spacing.UNIFORM:
            has_few |= self.mantissa_bits < 8
        return has_few and step >= math.ldexp(1.0, 1 - BIAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedScale:
    """The scale that a block shares: 2^(exponent of the largest magnitude - top), clamped."""

    block: int  # values
    top: int
    low: int  # exponents
    high: int
    nearest_power: bool = False  # of the power nearest to the largest magnitude, not of that below


def shared_scale(
    grid: Grid, *, block: int, low: int, high: int, nearest_power: bool = False
) -> SharedScale:
    """The rule by which a block of values gets its power of two, for elements on `grid`.

    The largest magnitude's exponent decides, rounded down or to the `nearest_power`. The scale's
    own exponent stays within `low` … `high`, and where float32 holds every scaled element.
    """
    top, smallest = grid.max_exponent, grid.min_exponent - grid.mantissa_bits
    return SharedScale(
        block=block,
        top=top,
        low=max(low, -BIAS, -149 - smallest),
        high=min(high, BIAS, BIAS - top),
        nearest_power=nearest_power,
    )


def operator_fields(grid: Grid, shared: SharedScale | None) -> Fields:
    """The arguments of the operator `madl::round_to_grid` after x; block 0 stands for no scale."""
    s = shared or SharedScale(block=0, top=0, low=0, high=0)
    return (
        *(int(grid.spacing), grid.mantissa_bits, grid.min_exponent, grid.low, grid.high),
        *(grid.keep_inf, grid.is_wide, s.block, s.top, s.low, s.high, s.nearest_power),
    )
