"""Rounding by search in an explicit list of values: an oracle that shares no code with the library.

It knows a format only as its magnitudes in code order, and a block's scale as an exponent. All is
float64, where the distance of a float32 to its two neighbours on a grid is exact.
"""

import math

import numpy as np
import torch
from torch import Tensor

FLOAT32_MAX = float(np.finfo(np.float32).max)


def floats(exponent_width: int, mantissa_width: int, *, bias: int, drop: int = 0) -> np.ndarray:
    """The magnitudes of a float's codes, ascending, without the last `drop`."""
    codes = [
        (m + 2**mantissa_width * (e > 0)) * 2.0 ** (max(e, 1) - bias - mantissa_width)
        for e in range(2**exponent_width)
        for m in range(2**mantissa_width)
    ]
    return np.array(codes[: len(codes) - drop])


def nearest(x: np.ndarray, magnitudes: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """The nearest of ±magnitudes (ascending, zero first), a tie to the even position.

    `signed`: what becomes zero keeps its sign.
    """
    target = np.fmin(np.abs(x), magnitudes[-1])  # NaN too, which the caller puts back
    above = np.searchsorted(magnitudes, target)
    below = np.maximum(above - 1, 0)
    to_below, to_above = target - magnitudes[below], magnitudes[above] - target
    goes_below = (to_below < to_above) | ((to_below == to_above) & (below % 2 == 0))
    rounded = np.where(goes_below, magnitudes[below], magnitudes[above])
    return np.copysign(rounded, x) if signed else np.where(x < 0, -rounded, rounded) + 0.0


def quantize(
    x: Tensor,
    magnitudes: np.ndarray,
    *,
    negative: np.ndarray | None = None,
    signed: bool = False,
) -> Tensor:
    """Every element on its own; `negative` where the magnitudes below zero are others."""
    flat = x.double().numpy()
    rounded = nearest(flat, magnitudes, signed=signed)
    if negative is not None:
        rounded = np.where(flat < 0, nearest(flat, negative), rounded)
    return torch.from_numpy(np.where(np.isnan(flat), math.nan, rounded)).float()


def quantize_rows(
    x: Tensor,
    magnitudes: np.ndarray,
    *,
    block: int,
    scale_exponents: tuple[int, int],
    nearest_power: bool = False,
    signed: bool = False,
) -> Tensor:
    """Block by block along the last dimension of a matrix."""
    rows = x.double().numpy()
    out = np.empty_like(rows)
    for i, row in enumerate(rows):
        for start in range(0, len(row), block):
            part = row[start : start + block]
            shift = _scale_exponent(part, magnitudes, nearest_power)
            scale = 2.0 ** min(max(shift, scale_exponents[0]), scale_exponents[1])
            out[i, start : start + block] = nearest(part / scale, magnitudes, signed=signed) * scale
    return torch.from_numpy(out).float()


def _scale_exponent(part: np.ndarray, magnitudes: np.ndarray, nearest_power: bool) -> int:
    largest = float(np.abs(part).max())
    if largest == 0.0:
        return 0
    fraction, exponent = math.frexp(largest)  # fraction is 0.5 … 1
    exponent += int(nearest_power and fraction >= 0.75)
    return exponent - math.frexp(float(magnitudes[-1]))[1]


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, except that one NaN is as good as another."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    integer = {4: torch.int32, 2: torch.int16}[a.element_size()]
    equal = (a.contiguous().view(integer) == b.contiguous().view(integer)) | (a.isnan() & b.isnan())
    return bool(equal.all())


def probes(values: Tensor) -> Tensor:
    """Values, midpoints, the float32 neighbours of both, what lies beyond, and the specials."""
    middle = values[:-1] / 2 + values[1:] / 2
    points = torch.cat([values, middle])
    inf = torch.full_like(points, math.inf)
    points = torch.cat([points, points.nextafter(inf), points.nextafter(-inf)])
    tiny = math.ldexp(1.0, -149)
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, tiny, -tiny, FLOAT32_MAX])
    return torch.cat([points, -points, points * 3, special])
