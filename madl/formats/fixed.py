"""Fixed point: two's complement integers of `width` bits times 2^-frac_width."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from madl.formats.base import NumberFormat


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

    def quantize(self, x: Tensor) -> Tensor:
        half = 1 << (self.width - 1)
        codes = torch.mul(x.float(), 1.0 / self.step).round_()  # ties to even
        codes.clamp_(-half, _largest_float32(half - 1))
        return codes.mul_(self.step).add_(0.0).to(x.dtype)  # adding zero turns -0 into +0


def _largest_float32(limit: int) -> int:
    """The largest integer that float32 holds and that is not above `limit`."""
    spare = max(limit.bit_length() - 24, 0)
    return limit >> spare << spare
