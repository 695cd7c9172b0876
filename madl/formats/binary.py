"""One or two bits per value: signs and thresholds under a scale that each row computes.

Source: binary, Courbariaux et al. 2016, arXiv:1602.02830; scaled, Rastegari et al. 2016,
arXiv:1603.05279; residual signs, Ghasemzadeh et al. 2018, arXiv:1711.01243; ternary, Li et al.
2016, arXiv:1605.04711.
Shapes: a row is the last dimension.
Invariants: a NaN makes its whole row NaN (plain binary has no scale: only itself); an infinity
counts as the largest float32. Not idempotent where the scale is a mean: it moves by rounding.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madl.formats.base import NumberFormat
from madl.formats.grid import LARGEST

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(NumberFormat):
    """The values ±1. Zero lies in the middle and becomes +1, the even code."""

    @property
    def name(self) -> str:
        return "binary"

    @property
    def bits(self) -> float:
        return 1.0

    @property
    def range(self) -> tuple[float, float]:
        return -1.0, 1.0

    @property
    def exact_in_bf16(self) -> bool:
        return True

    def decoded(self) -> Iterable[float]:
        return -1.0, 1.0

    def quantize_reference(self, x: "Tensor") -> "Tensor":
        return _signs(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualSign(NumberFormat):
    """The sum of `levels` scaled signs: each level is the sign of what the levels before left over.

    The scale of a level is the mean magnitude of its residual in the row, which is the best one
    for its signs. One level is scaled binary.

    Raises:
        ValueError: levels outside 1 … 8.
    """

    scales_rows: ClassVar[bool] = True
    levels: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 8:
            raise ValueError(f"residual sign: levels is 1 … 8, got {self.levels}")

    @property
    def name(self) -> str:
        return "scaled-binary" if self.levels == 1 else f"residual-sign({self.levels})"

    @property
    def bits(self) -> float:
        return float(self.levels)

    def quantize_reference(self, x: "Tensor") -> "Tensor":
        residual = x.clamp(-LARGEST, LARGEST)
        total = residual.new_zeros(residual.shape)
        for _ in range(self.levels):
            scale = residual.abs().mean(-1, keepdim=True).clamp_(max=LARGEST)
            level = _signs(residual).mul_(scale)
            total.add_(level)
            residual.sub_(level)
        return total.clamp_(-LARGEST, LARGEST).add_(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ternary(NumberFormat):
    """{-s, 0, +s}: zero up to `threshold` times the row's mean magnitude; s is the mean beyond it.

    Raises:
        ValueError: a threshold outside 0 … 1, beyond which a row could lose all its values.
    """

    scales_rows: ClassVar[bool] = True
    threshold: float = 0.7

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold < 1.0:
            raise ValueError(f"ternary: threshold is 0 … 1 (excluded), got {self.threshold}")

    @property
    def name(self) -> str:
        return f"ternary({self.threshold:g})"

    @property
    def bits(self) -> float:
        return 2.0

    def quantize_reference(self, x: "Tensor") -> "Tensor":
        magnitude = x.abs().clamp_(max=LARGEST)
        mean = magnitude.mean(-1, keepdim=True).clamp_(max=LARGEST)
        is_kept = magnitude > mean * self.threshold
        count = is_kept.sum(-1, keepdim=True).clamp_(min=1)
        scale = (magnitude * is_kept).sum(-1, keepdim=True).clamp_(max=LARGEST).div_(count)
        return _signs(x).mul_(is_kept).mul_(scale).add_(0.0)


def _signs(x: "Tensor") -> "Tensor":
    """+1 from zero on, -1 below, NaN for NaN."""
    signs = (x >= 0).to(x.dtype).mul_(2.0).sub_(1.0)
    return signs.masked_fill_(x.isnan(), math.nan)
