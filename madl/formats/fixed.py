"""Integers times a scale: a power of two that is given, or a number computed from the data.

Source: scaled integers as `torch.fake_quantize_per_tensor_affine` computes them, symmetric.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from madl.formats.base import NumberFormat
from madl.formats.grid import LARGEST, Grid, Spacing

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint(NumberFormat):
    """The values `code · 2^-frac_width` for codes -2^(width-1) … 2^(width-1) - 1.

    Not handled: a width above 24 bits has more codes than float32 has integers; such values are
    rounded to float32, and saturation stops at the largest float32 inside the range.

    Raises:
        ValueError: a width outside 1 … 32, or a fraction width outside -64 … 64.
    """

    place_field: ClassVar[str] = "frac_width"
    width: int
    frac_width: int

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 32:
            raise ValueError(f"fixed point: width is 1 … 32 bits, got {self.width}")
        if not -64 <= self.frac_width <= 64:
            raise ValueError(f"fixed point: frac_width is -64 … 64 bits, got {self.frac_width}")

    @property
    def name(self) -> str:
        return f"fixed({self.width},{self.frac_width})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def step(self) -> float:
        """The distance between neighbouring values."""
        return math.ldexp(1.0, -self.frac_width)

    @property
    def grid(self) -> Grid:
        half = 1 << (self.width - 1)
        spare = max((half - 1).bit_length() - 24, 0)  # bits that float32 does not hold
        return Grid(
            spacing=Spacing.UNIFORM,
            min_exponent=-self.frac_width,
            low=-half * self.step,
            high=((half - 1) >> spare << spare) * self.step,
        )

    def decoded(self) -> Iterable[float] | None:
        half = 1 << (self.width - 1)
        return [code * self.step for code in range(-half, half)] if self.width <= 16 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignMagnitude(NumberFormat):
    """The values `±code · 2^-frac_width` for codes below 2^(width-1): zero has two codes.

    Raises:
        ValueError: a width outside 2 … 17, or a fraction width outside -64 … 64.
    """

    place_field: ClassVar[str] = "frac_width"
    width: int
    frac_width: int

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 17:
            raise ValueError(f"sign-magnitude: width is 2 … 17 bits, got {self.width}")
        if not -64 <= self.frac_width <= 64:
            raise ValueError(f"sign-magnitude: frac_width is -64 … 64 bits, got {self.frac_width}")

    @property
    def name(self) -> str:
        return f"sign-magnitude({self.width},{self.frac_width})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def grid(self) -> Grid:
        largest = math.ldexp((1 << (self.width - 1)) - 1, -self.frac_width)
        exponent = -self.frac_width
        return Grid(spacing=Spacing.UNIFORM, min_exponent=exponent, low=-largest, high=largest)

    def decoded(self) -> Iterable[float]:
        largest = (1 << (self.width - 1)) - 1
        return (math.ldexp(code, -self.frac_width) for code in range(-largest, largest + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledInteger(NumberFormat):
    """Integers -(2^(width-1)-1) … 2^(width-1)-1 times max|x| / (2^(width-1)-1), per row or tensor.

    Invariants: nearest and idempotent up to the rounding of the scale to float32 (scales below
    2^-126 count as that). A NaN makes all that shares its scale NaN.

    Raises:
        ValueError: a width outside 2 … 16, or a scale that is neither per row nor per tensor.
    """

    width: int
    per: Literal["row", "tensor"] = "row"

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 16:
            raise ValueError(f"scaled integer: width is 2 … 16 bits, got {self.width}")
        if self.per not in ("row", "tensor"):
            raise ValueError(f"scaled integer: per is 'row' or 'tensor', got {self.per!r}")

    @property
    def name(self) -> str:
        return f"scaled({self.width},{self.per})"

    @property
    def bits(self) -> float:
        return float(self.width)

    def quantize_reference(self, x: "Tensor") -> "Tensor":
        largest_code = (1 << (self.width - 1)) - 1
        magnitude = x.abs()
        largest = magnitude.amax(-1, keepdim=True) if self.per == "row" else magnitude.amax()
        scale = largest.clamp(max=LARGEST).div(largest_code).clamp_(min=math.ldexp(1.0, -126))
        codes = x.mul(1.0 / scale).round_().clamp_(-largest_code, largest_code)
        return codes.mul_(scale).clamp_(-LARGEST, LARGEST).add_(0.0)
