"""Small floating-point numbers: with an implicit leading one as in IEEE 754, or without.

Source: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2); Block and Microscaling 1.0 (6, 4).
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from madl.formats.base import NumberFormat
from madl.formats.grid import Grid, Spacing

Specials = Literal["none", "nan", "ieee"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FloatingPoint(NumberFormat):
    """Base class: a sign, an exponent field E and a mantissa field m of M bits."""

    place_field: ClassVar[str] = "bias"
    width: int  # bits, the sign counted in
    exponent_width: int
    bias: int | None = None  # of the exponent; None: 2^(exponent_width - 1) - 1

    @property
    def mantissa_width(self) -> int:
        return self.width - 1 - self.exponent_width

    @property
    def place(self) -> int:
        """The exponent's bias."""
        return default_bias(self.exponent_width) if self.bias is None else self.bias

    @property
    @abstractmethod
    def exponents(self) -> tuple[int, int]:
        """(exponent of the smallest value with all significant bits, that of the largest value)."""

    @property
    @abstractmethod
    def num_codes(self) -> int:
        """The number of codes, signs aside, that are finite values; they are the first ones."""

    @abstractmethod
    def _decode(self, code: int) -> float:
        """The magnitude that a code, without its sign bit, stands for."""

    @property
    def bits(self) -> float:
        return float(self.width)

    def _grid(self, *, mantissa_bits: int, keep_inf: bool = False) -> Grid:
        """The representable values; without mantissa bits they are powers of two."""
        largest = self._decode(self.num_codes - 1)
        return Grid(
            spacing=Spacing.FLOATING if mantissa_bits else Spacing.POWERS,
            mantissa_bits=mantissa_bits,
            min_exponent=self.exponents[0],
            low=-largest,
            high=largest,
            keep_inf=keep_inf,
            signed_zero=mantissa_bits > 0,
        )

    def decoded(self) -> Iterable[float] | None:
        if self.width > 16:
            return None
        magnitudes = [self._decode(code) for code in range(self.num_codes)]
        return (sign * magnitude for magnitude in magnitudes for sign in (1, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Minifloat(_FloatingPoint):
    """The values ±2^(E-bias) · 1.m, and ±2^(1-bias) · 0.m where the exponent field E is zero.

    The "fnuz" types have the values of `specials` none and spend the code of -0 on their NaN.

    Raises:
        ValueError: widths that leave no value, more than 20 mantissa bits, values beyond float32.
    """

    # The codes that are no numbers: `nan`, the code of all ones (E4M3FN); `ieee`, the whole last
    # exponent, which holds the infinities.
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
        check_float32("minifloat", self.exponents, self.place)

    @property
    def exponents(self) -> tuple[int, int]:
        top_field = (self.num_codes - 1) >> self.mantissa_width
        return 1 - self.place, max(top_field, 1) - self.place

    @property
    def num_codes(self) -> int:
        codes = 1 << (self.width - 1)
        return codes - {"none": 0, "nan": 1, "ieee": 1 << self.mantissa_width}[self.specials]

    @property
    def name(self) -> str:
        bias = "" if self.bias is None else f",bias={self.bias}"
        specials = "" if self.specials == "none" else f",{self.specials}"
        return f"minifloat({self.width},{self.exponent_width}{bias}{specials})"

    @property
    def grid(self) -> Grid:
        has_inf = self.specials == "ieee"
        return self._grid(mantissa_bits=self.mantissa_width, keep_inf=has_inf)

    def _decode(self, code: int) -> float:
        field, mantissa = code >> self.mantissa_width, code & ((1 << self.mantissa_width) - 1)
        significand = mantissa + (1 << self.mantissa_width if field else 0)
        return math.ldexp(significand, max(field, 1) - self.place - self.mantissa_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenormalMinifloat(_FloatingPoint):
    """The values ±2^(E-bias) · m/2^M: no implicit leading one, so a value may have several codes.

    They are those of a minifloat with M-1 mantissa bits. A tie goes to the even m of the smallest
    exponent that holds the value; with M = 1, where every m is odd, it goes to the even place in
    the ascending list of magnitudes, as in `Logarithmic`.

    Raises:
        ValueError: widths that leave no mantissa, more than 20 mantissa bits, or values beyond
            float32.
    """

    def __post_init__(self) -> None:
        check_widths("denormal minifloat", self.width, self.exponent_width)
        if self.mantissa_width < 1:
            raise ValueError(
                f"denormal minifloat: needs a mantissa, got width {self.width} "
                f"for {self.exponent_width} exponent bits and a sign"
            )
        check_float32("denormal minifloat", self.exponents, self.place)

    @property
    def exponents(self) -> tuple[int, int]:
        return -self.place - 1, (1 << self.exponent_width) - 2 - self.place

    @property
    def num_codes(self) -> int:
        return 1 << (self.width - 1)

    @property
    def name(self) -> str:
        bias = "" if self.bias is None else f",bias={self.bias}"
        return f"denormal({self.width},{self.exponent_width}{bias})"

    @property
    def grid(self) -> Grid:
        return self._grid(mantissa_bits=self.mantissa_width - 1)

    def _decode(self, code: int) -> float:
        field, mantissa = code >> self.mantissa_width, code & ((1 << self.mantissa_width) - 1)
        return math.ldexp(mantissa, field - self.place - self.mantissa_width)


def default_bias(exponent_width: int) -> int:
    """The exponent bias of IEEE 754, 2^(exponent_width - 1) - 1."""
    return (1 << (exponent_width - 1)) - 1


def check_widths(kind: str, width: int, exponent_width: int) -> None:
    """Raise ValueError unless there are 1 … 8 exponent bits and 0 … 20 mantissa bits."""
    if not 1 <= exponent_width <= 8:
        raise ValueError(f"{kind}: exponent_width is 1 … 8 bits, got {exponent_width}")
    if not 0 <= width - 1 - exponent_width <= 20:
        raise ValueError(
            f"{kind}: width is {exponent_width + 1} … {exponent_width + 21} bits "
            f"(a sign, {exponent_width} exponent bits, up to 20 mantissa bits), got {width}"
        )


def check_float32(kind: str, exponents: tuple[int, int], bias: int) -> None:
    """Raise ValueError for (lowest, highest) exponents beyond float32; mantissas always fit."""
    low, high = exponents
    if low < -126 or high > 127:
        raise ValueError(
            f"{kind}: exponents {low} … {high} leave float32's -126 … 127; "
            f"use fewer exponent bits or a bias other than {bias}"
        )
