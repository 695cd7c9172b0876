"""The scale of a block apart from its values, for methods that choose values under a scale.

The same numbers as `NumberFormat.quantize` has inside: a test holds the two against each other.
"""

import math

import torch
from torch import Tensor

from madl.formats import rounding
from madl.formats.blocked import Blocked
from madl.formats.grid import BIAS, MANTISSA, Scale

Scales = tuple[Tensor, Tensor]  # one over it, and it


def block_scales(largest: Tensor, number_format: Blocked, peak: Tensor) -> Scales:
    """The scales of blocks with these largest magnitudes, in a tensor whose largest is `peak`.

    Shapes: largest any, of float32, finite; peak ().
    """
    shared, grid = number_format.shared, number_format.grid
    if shared.kind is Scale.POWER:
        exponent = (largest.view(torch.int32) + shared.carry).bitwise_right_shift(MANTISSA)
        exponent = (exponent - (BIAS + shared.top)).clamp(shared.low, shared.high)
        return rounding._power_of_two(-exponent), rounding._power_of_two(exponent)
    over = largest / grid.high
    if shared.kind is Scale.FP16:
        scale = rounding._round_floating(over, rounding._FP16)
        return torch.where(scale > 0, 1.0 / scale, 0.0), scale
    of_tensor = (peak / (rounding._E4M3.high * grid.high)).clamp(min=math.ldexp(1.0, -120))
    least = (over / of_tensor).clamp(min=rounding._E4M3_LEAST)
    scale = rounding._round_floating(least, rounding._E4M3)
    return (1.0 / of_tensor) / scale, scale * of_tensor


def round_under(x: Tensor, scales: Scales, number_format: Blocked) -> Tensor:
    """Round to the nearest element under given scales, saturating at the largest."""
    inverse, scale = scales
    return rounding._round_elements(x * inverse, number_format.grid) * scale
