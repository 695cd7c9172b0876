"""Small floating-point numbers: with an implicit leading one as in IEEE 754, or without.

Source: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2); Block and Microscaling 1.0 (6, 4).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from madl.formats.base import NumberFormat
from madl.formats.grid import Grid, Spacing

Specials = Literal["none", "nan", "ieee"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minifloat(NumberFormat):
    """±2^(E-bias) · 1.m, and ±2^(1-bias) · 0.m where the exponent field E is zero.

    `specials` are the codes that are no numbers: `none`; `nan`, the code of all ones (E4M3FN);
    `ieee`, the whole last exponent, which holds the infinities. `bias` None is 2^(exponent_width-1)
    - 1. The "fnuz" types have the values of `none` and spend the code of -0 on their NaN.

    Raises:
        ValueError: widths that leave no value, more than 20 mantissa bits, values beyond float32.
    """

    width: int
    exponent_width: int
    bias: int | None = None
    specials: Specials = "none"

    def __post_init__(self) -> None:
        check_widths("minifloat", self.width, self.exponent_width)
        if self.specials not in ("none", "nan", "ieee"):
            raise ValueError(
                f"minifloat: specials is 'none', 'nan' or 'ieee', got {self.specials!r}"
            )
        if self.num_codes < 2:
            raise ValueError(
                f"minifloat({self.width},{self.exponent_width}): specials={self.specials!r} "
                "takes its only nonzero code; use 'none'"
            )
        check_float32("minifloat", self.exponents, self.effective_bias)

    @property
    def mantissa_width(self) -> int:
        return self.width - 1 - self.exponent_width

    @property
    def effective_bias(self) -> int:
        return default_bias(self.exponent_width) if self.bias is None else self.bias

    @property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the smallest and the largest normal value."""
        top_field = (self.num_codes - 1) >> self.mantissa_width
        return 1 - self.effective_bias, max(top_field, 1) - self.effective_bias

    @property
    def num_codes(self) -> int:
        """Codes without sign that are finite values; they come first."""
        codes = 1 << (self.width - 1)
        return codes - {"none": 0, "nan": 1, "ieee": 1 << self.mantissa_width}[self.specials]

    @property
    def name(self) -> str:
        bias = "" if self.bias is None else f",bias={self.bias}"
        specials = "" if self.specials == "none" else f",{self.specials}"
        return f"minifloat({self.width},{self.exponent_width}{bias}{specials})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def range(self) -> tuple[float, float]:
        largest = self._decode(self.num_codes - 1)
        return -largest, largest

    @property
    def grid(self) -> Grid:
        low, high = self.range
        return Grid(
            spacing=Spacing.FLOATING if self.mantissa_width else Spacing.POWERS,
            mantissa_bits=self.mantissa_width,
            min_exponent=1 - self.effective_bias,
            low=low,
            high=high,
            keep_inf=self.specials == "ieee",
        )

    def values(self) -> Tensor | None:
        if self.width > 16:
            return None
        return mirrored([self._decode(code) for code in range(self.num_codes)])

    def _decode(self, code: int) -> float:
        field, mantissa = code >> self.mantissa_width, code & ((1 << self.mantissa_width) - 1)
        significand = mantissa + (1 << self.mantissa_width if field else 0)
        return math.ldexp(significand, max(field, 1) - self.effective_bias - self.mantissa_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenormalMinifloat(NumberFormat):
    """±2^(E-bias) · m/2^M: no implicit one, so a value may have several codes.

    Its values are those of a minifloat with M-1 mantissa bits. A tie goes to the even m of the
    smallest exponent that holds the value; with M = 1, where every m is odd, it goes to the even
    place in the ascending list of magnitudes, as in `Logarithmic`.

    Raises:
        ValueError: widths that leave no mantissa, more than 20 mantissa bits, or values beyond
            float32.
    """

    width: int
    exponent_width: int
    bias: int | None = None

    def __post_init__(self) -> None:
        check_widths("denormal minifloat", self.width, self.exponent_width)
        if self.mantissa_width < 1:
            raise ValueError(
                f"denormal minifloat: needs a mantissa, got width {self.width} "
                f"for {self.exponent_width} exponent bits and a sign"
            )
        check_float32("denormal minifloat", self.exponents, self.effective_bias)

    @property
    def mantissa_width(self) -> int:
        return self.width - 1 - self.exponent_width

    @property
    def effective_bias(self) -> int:
        return default_bias(self.exponent_width) if self.bias is None else self.bias

    @property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the smallest value with a full mantissa and of the largest value."""
        return -self.effective_bias - 1, (1 << self.exponent_width) - 2 - self.effective_bias

    @property
    def name(self) -> str:
        bias = "" if self.bias is None else f",bias={self.bias}"
        return f"denormal({self.width},{self.exponent_width}{bias})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def range(self) -> tuple[float, float]:
        largest = self._decode((1 << (self.width - 1)) - 1)
        return -largest, largest

    @property
    def grid(self) -> Grid:
        low, high = self.range
        return Grid(
            spacing=Spacing.FLOATING if self.mantissa_width > 1 else Spacing.POWERS,
            mantissa_bits=self.mantissa_width - 1,
            min_exponent=self.exponents[0],
            low=low,
            high=high,
        )

    def values(self) -> Tensor | None:
        if self.width > 16:
            return None
        return mirrored([self._decode(code) for code in range(1 << (self.width - 1))])

    def _decode(self, code: int) -> float:
        field, mantissa = code >> self.mantissa_width, code & ((1 << self.mantissa_width) - 1)
        return math.ldexp(mantissa, field - self.effective_bias - self.mantissa_width)


def default_bias(exponent_width: int) -> int:
    """IEEE 754's: as many exponents below one as from one on, less one."""
    return (1 << (exponent_width - 1)) - 1


def mirrored(magnitudes: list[float]) -> Tensor:
    """The magnitudes with both signs, each value once, ascending."""
    values = torch.tensor(magnitudes, dtype=torch.float32)
    return torch.cat([-values, values]).add_(0.0).unique()


def check_widths(what: str, width: int, exponent_width: int) -> None:
    """One sign bit, 1 … 8 exponent bits and 0 … 20 mantissa bits."""
    if not 1 <= exponent_width <= 8:
        raise ValueError(f"{what}: exponent_width is 1 … 8 bits, got {exponent_width}")
    if not 0 <= width - 1 - exponent_width <= 20:
        raise ValueError(
            f"{what}: width is {exponent_width + 1} … {exponent_width + 21} bits "
            f"(a sign, {exponent_width} exponent bits, up to 20 mantissa bits), got {width}"
        )


def check_float32(what: str, exponents: tuple[int, int], bias: int) -> None:
    """Every value must be a float32; the mantissa then fits, as it has at most 20 bits."""
    low, high = exponents
    if low < -126 or high > 127:
        raise ValueError(
            f"{what}: exponents {low} … {high} leave float32's -126 … 127; "
            f"use fewer exponent bits or a bias other than {bias}"
        )


PRESETS: tuple[NumberFormat, ...] = (
    Minifloat(width=4, exponent_width=2),
    Minifloat(width=6, exponent_width=2),
    Minifloat(width=6, exponent_width=3),
    Minifloat(width=8, exponent_width=4),
    Minifloat(width=8, exponent_width=4, specials="nan"),
    Minifloat(width=8, exponent_width=5, specials="ieee"),
    Minifloat(width=16, exponent_width=5, specials="ieee"),
    Minifloat(width=16, exponent_width=8, specials="ieee"),
    DenormalMinifloat(width=4, exponent_width=2),
    DenormalMinifloat(width=8, exponent_width=4),
)
