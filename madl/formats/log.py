"""Logarithmic numbers: a sign and an exponent, no mantissa; a product is an addition.

Source: Miyashita et al. 2016, arXiv:1603.01025.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from madl.formats.base import NumberFormat
from madl.formats.grid import Grid, Spacing
from madl.formats.minifloat import check_float32, default_bias, mirrored


@dataclass(frozen=True, slots=True, kw_only=True)
class Logarithmic(NumberFormat):
    """±2^(E-bias) for the exponent field E = 1 …; E = 0 is zero.

    Nearest means nearest in value, not in exponent: 2^k goes over to 2^(k+1) at 1.5·2^k, and what
    is at most half of the smallest power becomes zero. `bias` None is 2^(width-2) - 1.

    Raises:
        ValueError: a width outside 2 … 9, or values beyond float32.
    """

    width: int
    bias: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 9:
            raise ValueError(f"logarithmic: width is 2 … 9 bits, got {self.width}")
        check_float32("logarithmic", self.exponents, self.effective_bias)

    @property
    def effective_bias(self) -> int:
        return default_bias(self.width - 1) if self.bias is None else self.bias

    @property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the smallest and the largest power."""
        return 1 - self.effective_bias, (1 << (self.width - 1)) - 1 - self.effective_bias

    @property
    def name(self) -> str:
        return f"log({self.width}{'' if self.bias is None else f',bias={self.bias}'})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def range(self) -> tuple[float, float]:
        largest = math.ldexp(1.0, self.exponents[1])
        return -largest, largest

    @property
    def grid(self) -> Grid:
        low, high = self.range
        return Grid(spacing=Spacing.POWERS, min_exponent=self.exponents[0], low=low, high=high)

    def values(self) -> Tensor:
        low, high = self.exponents
        return mirrored([0.0, *(math.ldexp(1.0, k) for k in range(low, high + 1))])


PRESETS: tuple[NumberFormat, ...] = (
    Logarithmic(width=4),
    Logarithmic(width=8),
)
