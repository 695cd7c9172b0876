"""Logarithmic numbers: a sign and an exponent, no mantissa; a product is an addition.

Source: Miyashita et al. 2016, arXiv:1603.01025.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from madl.formats.base import NumberFormat
from madl.formats.grid import Grid
from madl.formats.minifloat import Minifloat, check_float32, default_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Logarithmic(NumberFormat):
    """The values ±2^(E-bias) for the exponent field E = 1 …, and zero for E = 0.

    Nearest means nearest in value, not in exponent: 2^k goes over to 2^(k+1) at 1.5·2^k, and what
    is at most half of the smallest power becomes zero. `bias` None is 2^(width-2) - 1.

    Raises:
        ValueError: a width outside 2 … 9, or values beyond float32.
    """

    place_field: ClassVar[str] = "bias"
    width: int
    bias: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 9:
            raise ValueError(f"logarithmic: width is 2 … 9 bits, got {self.width}")
        bias = self.place
        check_float32("logarithmic", (1 - bias, (1 << (self.width - 1)) - 1 - bias), bias)

    @property
    def place(self) -> int:
        """The exponent's bias."""
        return default_bias(self.width - 1) if self.bias is None else self.bias

    @property
    def name(self) -> str:
        return f"log({self.width}{'' if self.bias is None else f',bias={self.bias}'})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def _minifloat(self) -> Minifloat:
        """The minifloat without mantissa that has the same values."""
        return Minifloat(width=self.width, exponent_width=self.width - 1, bias=self.bias)

    @property
    def grid(self) -> Grid:
        return self._minifloat.grid

    def decoded(self) -> Iterable[float] | None:
        return self._minifloat.decoded()
