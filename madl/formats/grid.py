"""The representable values of a format as plain numbers, without torch.

Every rounding takes these: the definition in torch (`rounding`), and the C++ in `kernels/`.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

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
    signed_zero: bool = False  # what rounds to zero keeps its sign

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


class Scale(IntEnum):
    """The kinds of a block's scale; the C++ uses the same numbers."""

    POWER = 0  # of two
    E4M3 = 1  # a float of 8 bits under a float32 for the whole tensor, as in NVFP4
    FP16 = 2


ScaleRule = Literal["floor", "ceil", "rceil", "even", "nearest"]
ROW = 1 << 30  # as a block: all of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedScale:
    """The scale that a block shares.

    A power of two has the exponent of the largest magnitude less `top`, clamped; `carry` is added
    to that magnitude's bits before, so that its exponent is rounded as the rule says. The others
    are the largest magnitude over the grid's largest value, rounded to their format.
    """

    block: int  # values
    kind: Scale = Scale.POWER
    top: int = 0
    low: int = 0  # exponents
    high: int = 0
    carry: int = 0


def shared_scale(
    grid: Grid, *, block: int, low: int, high: int, rule: ScaleRule = "floor"
) -> SharedScale:
    """The rule by which a block of values gets its power of two, for elements on `grid`.

    The largest magnitude decides by its exponent: rounded down (`floor`, OCP's), up (`ceil`), up
    where the grid would not hold it otherwise (`rceil`, NVIDIA's), down after it was rounded to the
    element's mantissa (`even`), or to the power that is `nearest`. The scale's own exponent stays
    within `low` … `high`, and where float32 holds every scaled element.
    """
    top, smallest = grid.max_exponent, grid.min_exponent - grid.mantissa_bits
    ones = (1 << MANTISSA) - 1
    of_largest = round((math.frexp(grid.high)[0] * 2 - 1) * (1 << MANTISSA))  # mantissa's bits
    is_uniform = grid.spacing is Spacing.UNIFORM
    mantissa = top - grid.min_exponent if is_uniform else grid.mantissa_bits
    carries: dict[ScaleRule, int] = {
        **{"floor": 0, "ceil": ones, "rceil": ones - of_largest},
        **{"even": 1 << (MANTISSA - 1 - mantissa), "nearest": 1 << (MANTISSA - 1)},
    }
    return SharedScale(
        block=block,
        top=top,
        low=max(low, -BIAS, -149 - smallest),
        high=min(high, BIAS, BIAS - top),
        carry=carries[rule],
    )


def operator_fields(grid: Grid, shared: SharedScale | None) -> Fields:
    """The arguments of the operator `madl::round_to_grid` after x; block 0 stands for no scale."""
    s = shared or SharedScale(block=0)
    return (
        *(int(grid.spacing), grid.mantissa_bits, grid.min_exponent, grid.low, grid.high),
        *(grid.keep_inf, grid.signed_zero, grid.is_wide),
        *(s.block, int(s.kind), s.top, s.low, s.high, s.carry),
    )
