"""Rounding of tensors to a format's values: the definition in plain torch, and calls of the C++.

The C++ in `kernels/` must equal the definition bit for bit.

How: adding and subtracting 1.5·2^23 steps lets the adder round to a multiple of the step, ties to
even, and returns +0 for what becomes zero; the step follows the exponent of the value itself. A
format that has -0 gets the sign back.
Shapes: any; blocks lie on the last dimension.
Invariants: float32 in, float32 out; NaN stays NaN, and makes all that shares its scale NaN. A
float16 or bfloat16 tensor is quantized in float32, and the result saturates to its dtype again:
log(8) has 65536, but float16 ends at 65504.
Not handled: `torch.set_flush_denormal(True)` flushes what float32 holds only as subnormal; float64,
which float32 arithmetic would round twice.
"""

import functools
import math
import struct
from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import operators
from kernels import round_to_grid as cpp
from madl.formats.grid import (
    BIAS,
    LARGEST,
    MANTISSA,
    Fields,
    Grid,
    Scale,
    SharedScale,
    Spacing,
    operator_fields,
)

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_EXPONENT = 0x7F80_0000  # bits of float32
_MAGNITUDE = 0x7FFF_FFFF
_PART = 1 << 19  # elements, 2 MB: fits into the last-level cache, and threads are woken seldom
_PART_OF_PASSES = 1 << 16  # elements that stay in a core's cache from one pass to the next


class Format(Protocol):
    """The attributes of a number format that rounding needs."""

    scales_rows: ClassVar[bool]

    @property
    def name(self) -> str: ...
    @property
    def grid(self) -> Grid | None: ...
    @property
    def shared(self) -> SharedScale | None: ...
    def quantize_reference(self, x: Tensor) -> Tensor: ...


def quantize(x: Tensor, number_format: Format) -> Tensor:
    """Round every value to the nearest of the format's; see `NumberFormat.quantize`."""
    if x.dtype not in _DTYPES:
        raise ValueError(
            f"{number_format.name}: quantizes float32, bfloat16 and float16, got {x.dtype}; "
            "cast first"
        )
    if x.requires_grad:
        x = x.detach()
    if x.dim() == 0 or x.numel() == 0:
        return quantize(x.view(1), number_format).view(()) if x.dim() == 0 else x.clone()
    if x.dtype is torch.float32:
        return _quantize_float32(x.contiguous(), number_format)
    limit = torch.finfo(x.dtype).max
    wide = _quantize_float32(x.float().contiguous(), number_format)
    return torch.where(wide.isinf(), wide, wide.clamp(-limit, limit)).to(x.dtype)


def _quantize_float32(x: Tensor, number_format: Format) -> Tensor:
    """`quantize` of contiguous float32, neither empty nor a scalar: in C++ where it can."""
    fields = fields_of_cpp(x, number_format)
    if fields is not None:
        return cpp.round_to_grid(x, *fields)
    reference = number_format.quantize_reference
    return _by_rows(reference, x) if number_format.scales_rows else reference(x)


def fields_of_cpp(x: Tensor, number_format: Format) -> Fields | None:
    """The arguments of `madl::round_to_grid` after `x`; None: C++ does not quantize `x`."""
    is_fast = x.is_cpu and x.dtype is torch.float32 and cpp.is_fast()
    return _constant_fields(number_format) if is_fast else None


@operators.constant_in_traces
def _constant_fields(number_format: Format) -> Fields | None:
    """`_computed_fields`, which is a constant in traces of torch.compile."""
    return _computed_fields(number_format)


@functools.lru_cache(maxsize=256)
def _computed_fields(number_format: Format) -> Fields | None:
    """The arguments of `madl::round_to_grid` for a format; None: its values are on no grid."""
    grid = number_format.grid
    return None if grid is None else operator_fields(grid, number_format.shared)


def _by_rows(quantize: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Quantize some rows at a time on a CPU: they stay in cache from one pass to the next."""
    rows = _PART_OF_PASSES // x.shape[-1]
    if not x.is_cpu or x.numel() <= _PART_OF_PASSES or rows < 8 or torch.compiler.is_compiling():
        return quantize(x)
    parts = x.reshape(-1, x.shape[-1]).split(rows)
    return torch.cat([quantize(part) for part in parts]).view_as(x)


# ---- the definition -----------------------------------------------------------------------------


def round_to_grid(x: Tensor, grid: Grid, shared: SharedScale | None = None) -> Tensor:
    """Round a contiguous tensor to the grid, under a scale per block if `shared` is given.

    A large tensor is done in parts that stay in the cache between one operation and the next.
    """
    rows = x.view(-1) if shared is None else x.view(-1, x.shape[-1])
    part = _PART if shared is None else max(1, _PART // x.shape[-1])
    of_tensor = _tensor_scale(x, grid) if shared and shared.kind is Scale.E4M3 else None
    if len(rows) <= part or torch.compiler.is_compiling():
        return _round(x, grid, shared, of_tensor)
    out = torch.empty_like(x)
    for old, new in zip(rows.split(part), out.view(rows.shape).split(part)):
        new.copy_(_round(old, grid, shared, of_tensor))
    return out


def _round(
    x: Tensor, grid: Grid, shared: SharedScale | None, of_tensor: Tensor | None = None
) -> Tensor:
    """`round_to_grid` of a part, under the scale of the whole tensor, if there is one."""
    if shared is None:
        return _round_elements(x, grid)
    size = x.shape[-1]
    block = min(shared.block, size)
    if missing := -size % block:
        x = F.pad(x, (0, missing))  # zeros: the largest of the short last block is what it was
    blocks = _round_blocks(x.unflatten(-1, (-1, block)), grid, shared, of_tensor)
    return blocks.flatten(-2)[..., :size].contiguous()


def _round_blocks(
    x: Tensor, grid: Grid, shared: SharedScale, of_tensor: Tensor | None
) -> Tensor:  # (..., block)
    """Round blocks, on the last dimension, each under its own scale."""
    # magnitudes as bits: integers order alike, and their maximum is found faster
    largest = x.view(torch.int32).bitwise_and(_MAGNITUDE).amax(-1, keepdim=True)  # (..., 1)
    if shared.kind is Scale.POWER:
        exponent = (largest + shared.carry).bitwise_right_shift_(MANTISSA)
        exponent.sub_(BIAS + shared.top).clamp_(shared.low, shared.high)
        inverse, scale = _power_of_two(-exponent), _power_of_two(exponent)
    else:
        over = largest.clamp(max=_bits(LARGEST)).view(torch.float32) / grid.high
        if shared.kind is Scale.E4M3:
            assert of_tensor is not None
            scale = _round_floating((over / of_tensor).clamp(min=_E4M3_LEAST), _E4M3)
            inverse, scale = (1.0 / of_tensor) / scale, scale * of_tensor
        else:
            scale = _round_floating(over, _FP16)
            inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
    scale = scale.masked_fill(largest > _EXPONENT, math.nan)
    return _round_elements(x * inverse, grid).mul_(scale)


def _tensor_scale(x: Tensor, grid: Grid) -> Tensor:
    """The scale of a whole tensor, by which the largest scale of a block is E4M3's largest: ()."""
    magnitude = x.view(torch.int32).bitwise_and(_MAGNITUDE)
    largest = magnitude.masked_fill(magnitude >= _EXPONENT, 0).amax().view(torch.float32)
    return (largest / (_E4M3.high * grid.high)).clamp(min=math.ldexp(1.0, -120))


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent for -127 … 127; the first is a subnormal, half of the smallest normal."""
    bits = (exponent + BIAS).bitwise_left_shift_(MANTISSA)
    return bits.clamp_(min=1 << (MANTISSA - 1)).view(torch.float32)


def _round_elements(x: Tensor, grid: Grid) -> Tensor:
    """Round to the grid without a scale."""
    rounded = _ROUND[grid.spacing](x, grid)
    if grid.signed_zero:
        rounded = torch.copysign(rounded, x)
    return torch.where(x.isinf(), x, rounded) if grid.keep_inf else rounded


def _round_uniform(x: Tensor, grid: Grid) -> Tensor:
    """Round to multiples of one step."""
    step = math.ldexp(1.0, grid.min_exponent)
    if max(-grid.low, grid.high) > step * 2**22:  # too many codes for the adder's trick
        codes = torch.mul(x, 1.0 / step).round_().clamp_(grid.low / step, grid.high / step)
        return codes.mul_(step).add_(0.0)  # adding zero turns -0 into +0
    magic = 1.5 * 2**MANTISSA * step
    return x.clamp(grid.low, grid.high).add_(magic).sub_(magic)


def _round_floating(x: Tensor, grid: Grid) -> Tensor:
    """Round to a step that follows the exponent of each value."""
    mantissa, bias, dtype = (52, 1023, torch.int64) if grid.is_wide else (23, 127, torch.int32)
    y = (x.double() if grid.is_wide else x).clamp(grid.low, grid.high)
    magic = y.view(dtype).bitwise_and((2 * bias + 1) << mantissa)  # the exponent of each value
    magic.clamp_(min=(grid.min_exponent + bias) << mantissa)
    magic.add_(((mantissa - grid.mantissa_bits) << mantissa) + (1 << (mantissa - 1)))
    magic = magic.view(y.dtype)  # 1.5 · 2^mantissa steps
    return y.add_(magic).sub_(magic).float()


def _round_powers(x: Tensor, grid: Grid) -> Tensor:
    """Round to zero and powers of two, nearest in value."""
    y = x.clamp(grid.low, grid.high)
    magnitude = y.view(torch.int32).bitwise_and(_MAGNITUDE)
    odd = (magnitude >> MANTISSA).bitwise_xor_(grid.min_exponent & 1).bitwise_and_(1)
    power = odd.add_(magnitude).add_((1 << (MANTISSA - 1)) - 1).bitwise_and_(_EXPONENT)
    power.clamp_(min=(grid.min_exponent + BIAS) << MANTISSA)
    power.masked_fill_(magnitude <= _bits(math.ldexp(1.0, grid.min_exponent - 1)), 0)
    signed = torch.copysign(power.view(torch.float32), y).add_(0.0)
    return torch.where(y.isnan(), y, signed)


def _bits(value: float) -> int:
    """The bits of a float32 as an integer."""
    return struct.unpack("<i", struct.pack("<f", value))[0]


_E4M3 = Grid(spacing=Spacing.FLOATING, mantissa_bits=3, min_exponent=-6, low=0.0, high=448.0)
_E4M3_LEAST = math.ldexp(1.0, -6)  # of a scale: E4M3's least normal number, as torchao has it
_FP16 = Grid(spacing=Spacing.FLOATING, mantissa_bits=10, min_exponent=-14, low=0.0, high=65504.0)
_ROUND = {
    Spacing.UNIFORM: _round_uniform,
    Spacing.FLOATING: _round_floating,
    Spacing.POWERS: _round_powers,
}
