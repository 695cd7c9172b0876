"""Integers times a scale: a power of two that is given, or any number that the data decide.

Source: scaled integers as `torch.fake_quantize_per_tensor_affine` computes them, symmetric.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from madl.formats.base import NumberFormat
from madl.formats.grid import Grid, Spacing


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint(NumberFormat):
    """The values `code · 2^-frac_width` for codes -2^(width-1) … 2^(width-1) - 1.

    Not handled: a width above 24 bits has more codes than float32 has integers; such values are
    rounded to float32, and saturation stops at the largest float32 inside the range.

    Raises:
        ValueError: a width outside 1 … 32, or a fraction width outside -64 … 64.
    """

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
        """The distance between neighbours."""
        return math.ldexp(1.0, -self.frac_width)

    @property
    def range(self) -> tuple[float, float]:
        half = 1 << (self.width - 1)
        return -half * self.step, (half - 1) * self.step

    @property
    def grid(self) -> Grid:
        half = 1 << (self.width - 1)
        return Grid(
            spacing=Spacing.UNIFORM,
            min_exponent=-self.frac_width,
            low=-half * self.step,
            high=_largest_float32(half - 1) * self.step,
        )

    def values(self) -> Tensor | None:
        if self.width > 16:
            return None
        half = 1 << (self.width - 1)
        return torch.arange(-half, half, dtype=torch.float32) * self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class SignMagnitude(NumberFormat):
    """The values `±code · 2^-frac_width` for codes below 2^(width-1): zero has two codes.

    Raises:
        ValueError: a width outside 2 … 17, or a fraction width outside -64 … 64.
    """

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
    def range(self) -> tuple[float, float]:
        largest = math.ldexp((1 << (self.width - 1)) - 1, -self.frac_width)
        return -largest, largest

    @property
    def grid(self) -> Grid:
        low, high = self.range
        return Grid(spacing=Spacing.UNIFORM, min_exponent=-self.frac_width, low=low, high=high)

    def values(self) -> Tensor:
        largest = (1 << (self.width - 1)) - 1
        codes = torch.arange(-largest, largest + 1, dtype=torch.float32)
        return codes * math.ldexp(1.0, -self.frac_width)


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

    @property
    def range(self) -> None:
        return None

    def quantize_reference(self, x: Tensor) -> Tensor:
        largest_code = (1 << (self.width - 1)) - 1
        limit = torch.finfo(torch.float32).max
        magnitude = x.abs()
        largest = magnitude.amax(-1, keepdim=True) if self.per == "row" else magnitude.amax()
        scale = largest.clamp(max=limit).div(largest_code).clamp_(min=math.ldexp(1.0, -126))
        codes = torch.mul(x, 1.0 / scale).round_().clamp_(-largest_code, largest_code)
        return codes.mul_(scale).clamp_(-limit, limit).add_(0.0)


def _largest_float32(limit: int) -> int:
    """The largest integer that float32 holds and that is not above `limit`."""
    spare = max(limit.bit_length() - 24, 0)
    return limit >> spare << spare


PRESETS: tuple[NumberFormat, ...] = (
    FixedPoint(width=4, frac_width=2),
    FixedPoint(width=8, frac_width=4),
    FixedPoint(width=16, frac_width=8),
    ScaledInteger(width=4),
    ScaledInteger(width=8),
    ScaledInteger(width=8, per="tensor"),
)
