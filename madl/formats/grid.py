"""The representable values as plain numbers, and the rounding onto them in plain torch.

A format turns its parameters into a `Grid` (and a `SharedScale` where a block shares one); this
file is the definition of rounding, and the C++ in `kernels/` must equal it bit for bit.

How: adding and subtracting 1.5·2^23 steps lets the adder round to a multiple of the step, ties to
even, and returns +0 for what becomes zero; the step follows the exponent of the value itself.
Shapes: any; blocks lie on the last dimension.
Invariants: float32 in, float32 out; NaN stays NaN, and makes all that shares its scale NaN.
Not handled: `torch.set_flush_denormal(True)` flushes what float32 holds only as subnormal.
"""

import math
import struct
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

_MANTISSA = 23  # stored mantissa bits of float32
_EXPONENT_BITS = 0x7F80_0000
_MAGNITUDE_BITS = 0x7FFF_FFFF
_BIAS = 127
_PART = 1 << 19  # elements, 2 MB: fits into the last-level cache, and threads are woken seldom


class Spacing(IntEnum):
    """How far neighbours are apart; the numbers are shared with the C++."""

    UNIFORM = 0
    FLOATING = 1
    POWERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Zero and the multiples of a step between `low` and `high`.

    The step is 2^min_exponent if UNIFORM; 2^(max(exponent of x, min_exponent) - mantissa_bits) if
    FLOATING; POWERS holds zero and ±2^k for k ≥ min_exponent. `low` and `high` are on the grid.
    `keep_inf`: infinities are representable.
    """

    spacing: Spacing
    mantissa_bits: int = 0
    min_exponent: int
    low: float
    high: float
    keep_inf: bool = False

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest value."""
        return math.frexp(self.high)[1] - 1

    @property
    def is_wide(self) -> bool:
        """Whether 1.5·2^23 steps of the largest value overflow float32, so float64 must round."""
        top = self.max_exponent if self.spacing is Spacing.FLOATING else self.min_exponent
        return top - self.mantissa_bits + _MANTISSA > _BIAS


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedScale:
    """A power of two shared by `block` values: 2^(exponent of the largest - top), then clamped.

    `nearest_power` takes the exponent of the power of two nearest to the largest magnitude instead
    of the one below it.
    """

    block: int
    top: int
    low: int
    high: int
    nearest_power: bool = False


def shared_scale(
    grid: Grid, *, block: int, low: int, high: int, nearest_power: bool = False
) -> SharedScale:
    """A scale with exponents `low` … `high`, as far as float32 holds the scaled values."""
    top, smallest = grid.max_exponent, grid.min_exponent - grid.mantissa_bits
    return SharedScale(
        block=block,
        top=top,
        low=max(low, -_BIAS, -149 - smallest),
        high=min(high, _BIAS, _BIAS - top),
        nearest_power=nearest_power,
    )


def grid_fields(grid: Grid) -> tuple[int | float | bool, ...]:
    """The arguments of the operator `madl::round_to_grid` that a grid gives, in its order."""
    return (
        *(int(grid.spacing), grid.mantissa_bits, grid.min_exponent, grid.low, grid.high),
        *(grid.keep_inf, grid.is_wide),
    )


def shared_fields(shared: SharedScale | None) -> tuple[int | bool, ...]:
    """The arguments that a shared scale gives; a block of zero stands for none."""
    if shared is None:
        return 0, 0, 0, 0, False
    return shared.block, shared.top, shared.low, shared.high, shared.nearest_power


def round_to_grid(x: Tensor, grid: Grid, shared: SharedScale | None = None) -> Tensor:
    """The nearest values of a contiguous tensor, under a shared scale if there is one.

    A large tensor is done in parts that stay in the cache between one operation and the next.
    """
    rows = x.view(-1) if shared is None else x.view(-1, x.shape[-1])
    part = _PART if shared is None else max(1, _PART // x.shape[-1])
    if len(rows) <= part or torch.compiler.is_compiling():
        return _round(x, grid, shared)
    out = torch.empty_like(x)
    for old, new in zip(rows.split(part), out.view(rows.shape).split(part)):
        new.copy_(_round(old, grid, shared))
    return out


def _round(x: Tensor, grid: Grid, shared: SharedScale | None) -> Tensor:
    if shared is None:
        return _round_elements(x, grid)
    size = x.shape[-1]
    whole = size // shared.block * shared.block
    if whole == size:
        return _round_blocks(x.unflatten(-1, (-1, shared.block)), grid, shared).flatten(-2)
    out = torch.empty_like(x)
    if whole:
        blocks = x[..., :whole].unflatten(-1, (-1, shared.block))
        out[..., :whole] = _round_blocks(blocks, grid, shared).flatten(-2)
    out[..., whole:] = _round_blocks(x[..., whole:], grid, shared)  # the short last block
    return out


def _round_blocks(x: Tensor, grid: Grid, shared: SharedScale) -> Tensor:  # (..., block)
    # magnitudes as bits: integers order alike, and their maximum is found faster
    largest = x.view(torch.int32).bitwise_and(_MAGNITUDE_BITS).amax(-1, keepdim=True)  # (..., 1)
    half = 1 << (_MANTISSA - 1) if shared.nearest_power else 0
    exponent = (largest + half).bitwise_right_shift_(_MANTISSA)
    exponent.sub_(_BIAS + shared.top).clamp_(shared.low, shared.high)
    scale = _power_of_two(exponent).masked_fill_(largest > _EXPONENT_BITS, math.nan)
    return _round_elements(x * _power_of_two(-exponent), grid).mul_(scale)


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent for -127 … 127; the first is a subnormal, half of the smallest normal."""
    bits = (exponent + _BIAS).bitwise_left_shift_(_MANTISSA)
    return bits.clamp_(min=1 << (_MANTISSA - 1)).view(torch.float32)


def _round_elements(x: Tensor, grid: Grid) -> Tensor:
    rounded = _ROUND[grid.spacing](x, grid)
    return torch.where(x.isinf(), x, rounded) if grid.keep_inf else rounded


def _round_uniform(x: Tensor, grid: Grid) -> Tensor:
    step = math.ldexp(1.0, grid.min_exponent)
    if max(-grid.low, grid.high) > step * 2**22:  # too many codes for the adder's trick
        codes = torch.mul(x, 1.0 / step).round_().clamp_(grid.low / step, grid.high / step)
        return codes.mul_(step).add_(0.0)  # adding zero turns -0 into +0
    magic = 1.5 * 2**_MANTISSA * step
    return x.clamp(grid.low, grid.high).add_(magic).sub_(magic)


def _round_floating(x: Tensor, grid: Grid) -> Tensor:
    mantissa, bias, dtype = (52, 1023, torch.int64) if grid.is_wide else (23, 127, torch.int32)
    y = (x.double() if grid.is_wide else x).clamp(grid.low, grid.high)
    magic = y.view(dtype).bitwise_and((2 * bias + 1) << mantissa)  # the exponent of each value
    magic.clamp_(min=(grid.min_exponent + bias) << mantissa)
    magic.add_(((mantissa - grid.mantissa_bits) << mantissa) + (1 << (mantissa - 1)))
    magic = magic.view(y.dtype)  # 1.5 · 2^mantissa steps
    return y.add_(magic).sub_(magic).float()


def _round_powers(x: Tensor, grid: Grid) -> Tensor:
    y = x.clamp(grid.low, grid.high)
    magnitude = y.view(torch.int32).bitwise_and(_MAGNITUDE_BITS)
    odd = (magnitude >> _MANTISSA).bitwise_xor_(grid.min_exponent & 1).bitwise_and_(1)
    power = odd.add_(magnitude).add_((1 << (_MANTISSA - 1)) - 1).bitwise_and_(_EXPONENT_BITS)
    power.clamp_(min=(grid.min_exponent + _BIAS) << _MANTISSA)
    power.masked_fill_(magnitude <= _bits(math.ldexp(1.0, grid.min_exponent - 1)), 0)
    signed = torch.copysign(power.view(torch.float32), y).add_(0.0)
    return torch.where(y.isnan(), y, signed)


def _bits(value: float) -> int:
    return struct.unpack("<i", struct.pack("<f", value))[0]


_ROUND = {
    Spacing.UNIFORM: _round_uniform,
    Spacing.FLOATING: _round_floating,
    Spacing.POWERS: _round_powers,
}
