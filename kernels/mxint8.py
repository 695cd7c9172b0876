"""MXINT8 as torch operators on the CPU: quantize a tensor, dequantize it, multiply by a weight.

    madl::mxint8_quantize(x, group)               -> mantissas (int8), scales (uint8)
    madl::mxint8_dequantize(mantissas, scales, group) -> bfloat16, exactly
    madl::linear_mxint8(x, panels, panel_scales, bias, out_features, group) -> like x

A value is mantissa · 2^-6 · 2^(scale - 127) (`mxint8_decode.h`). The linear quantizes its input a
group at a time and multiplies integers; `arrange` puts a quantized weight into the order in which
they are read. Where there is no compiler, plain torch computes the same bits.

Shapes: x (…, K), mantissas (…, K), scales (…, G) with G = ceil(K / group); weight (N, K);
panels (P, Q, 32, 4) of uint8, P = ceil(N / 32), Q = ceil(K / 4); panel_scales (P, G, 32).
Invariants: the linear's integer sums are exact and its groups are added in their order, so every
path gives the same bits, whatever the number of rows or threads.
Not handled: gradients; `torch.set_flush_denormal(True)`, which zeroes the smallest values.
"""

import ctypes
import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import build, operators

SOURCE, LINEAR_SOURCE = "mxint8_cpu.cpp", "linear_mxint8_cpu.cpp"
GROUP = 32  # OCP's
MAX_GROUP = 512  # so that the sum of a group's products stays below 2^24, exact in float32
PANEL, QUAD = 32, 4
NAN_SCALE = 255

_library = torch.library.Library("madl", "FRAGMENT")
_library.define("mxint8_quantize(Tensor x, int group) -> (Tensor, Tensor)")
_library.define("mxint8_dequantize(Tensor mantissas, Tensor scales, int group) -> Tensor")


def route() -> build.Route:
    """Which path quantizes and dequantizes on this CPU, and why."""
    return build.load(SOURCE)


def linear_route() -> build.Route:
    """Which path multiplies on this CPU, and why; `amx` takes AVX-512 for fewer than 12 rows."""
    amx = build.load(LINEAR_SOURCE, extension="amx_bf16", operator="linear_mxint8")
    if amx.library is not None:
        return amx
    return build.load(
        LINEAR_SOURCE, extension="avx512_vnni", without="avx2", operator="linear_mxint8"
    )


@operators.constant_in_traces
def is_fast() -> bool:
    """Whether C++ multiplies on this CPU."""
    return linear_route().library is not None


@functools.lru_cache(maxsize=32)
def _function(library: ctypes.CDLL, name: str, pointers: int, sizes: int) -> Callable[..., None]:
    function = library[name]
    function.restype = None
    function.argtypes = (ctypes.c_void_p,) * pointers + (ctypes.c_int64,) * sizes + (ctypes.c_int,)
    return function


# ---- the operators' preconditions, checked while tracing too ----------------------------------


def check_group(group: int) -> None:
    """Raises: ValueError for a group that the kernels do not have."""
    if not 4 <= group <= MAX_GROUP or group % 4:
        raise ValueError(f"MXINT8: a group is 4, 8, 12 … {MAX_GROUP} values, got {group}")


def _check_dtype(what: str, x: Tensor, *known: torch.dtype) -> None:
    if x.dtype not in known:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in known)
        raise ValueError(f"MXINT8: {what} must be {names}, got {x.dtype}")


def _check_shape(what: str, x: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(x.shape) != expected:
        raise ValueError(f"MXINT8: {what} must have shape {expected}, got {tuple(x.shape)}")


def _check_values(x: Tensor) -> None:
    _check_dtype("values", x, torch.float32, torch.bfloat16)
    if x.dim() == 0:
        raise ValueError("MXINT8: values need a dimension for the groups to lie on, got a scalar")


def num_groups(size: int, group: int) -> int:
    """Groups in a row; the last may be short."""
    return (size + group - 1) // group


def _check_codes(mantissas: Tensor, scales: Tensor, group: int) -> None:
    check_group(group)
    _check_dtype("mantissas", mantissas, torch.int8)
    _check_dtype("scales", scales, torch.uint8)
    if mantissas.dim() == 0:
        raise ValueError("MXINT8: mantissas need a dimension for the groups, got a scalar")
    _check_shape(
        f"scales of mantissas {tuple(mantissas.shape)} in groups of {group}",
        scales,
        (*mantissas.shape[:-1], num_groups(mantissas.shape[-1], group)),
    )
    if mantissas.device != scales.device:
        raise ValueError(f"MXINT8: mantissas are on {mantissas.device}, scales on {scales.device}")


def _check_linear(
    x: Tensor, panels: Tensor, scales: Tensor, bias: Tensor | None, num_out: int, group: int
) -> None:
    check_group(group)
    _check_values(x)
    _check_dtype("panels", panels, torch.uint8)
    _check_dtype("panel_scales", scales, torch.uint8)
    num_in, num_panels = x.shape[-1], num_groups(num_out, PANEL)
    what = f"for {num_in} inputs and {num_out} outputs in groups of {group}"
    _check_shape(f"panels {what}", panels, (num_panels, num_groups(num_in, QUAD), PANEL, QUAD))
    _check_shape(f"panel_scales {what}", scales, (num_panels, num_groups(num_in, group), PANEL))
    others = [panels, scales]
    if bias is not None:
        _check_dtype("bias", bias, torch.float32)
        _check_shape("bias", bias, (num_out,))
        others.append(bias)
    for other in others:
        if other.device != x.device:
            raise ValueError(f"MXINT8: x is on {x.device}, the weight on {other.device}")


# ---- quantize and dequantize --------------------------------------------------------------------


def _quantize(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    mantissas, scales = _fake_quantize(x, group)
    if x.numel() == 0:
        return mantissas, scales
    x = x.float().contiguous()
    library = route().library
    if library is None:
        return quantize_in_torch(x, group)
    _function(library, "madl_mxint8_quantize", 3, 3)(
        *(x.data_ptr(), mantissas.data_ptr(), scales.data_ptr()),
        *(x.numel() // x.shape[-1], x.shape[-1], group, torch.get_num_threads()),
    )
    return mantissas, scales


def quantize_in_torch(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """The definition, in torch operators, on any device: see `mxint8_quantize.h`."""
    size = x.shape[-1]
    groups = F.pad(x, (0, -size % group)).unflatten(-1, (-1, group))  # (…, G, group)
    largest = groups.view(torch.int32).bitwise_and(0x7FFF_FFFF).amax(-1, keepdim=True)
    scales = (largest >> 23).clamp(max=NAN_SCALE - 1)
    inverse = ((254 - scales) << 23).clamp(min=1 << 22).view(torch.float32)  # 2^(127 - scale)
    codes = (groups * inverse * 64).round().clamp(-127, 127)
    is_nan = largest > 0x7F80_0000
    codes = codes.masked_fill(is_nan, 0).to(torch.int8).flatten(-2)[..., :size]
    return codes.contiguous(), scales.masked_fill(is_nan, NAN_SCALE).to(torch.uint8).squeeze(-1)


def _fake_quantize(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    check_group(group)
    _check_values(x)
    mantissas = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    shape = (*x.shape[:-1], num_groups(x.shape[-1], group))
    return mantissas, torch.empty(shape, dtype=torch.uint8, device=x.device)


def _dequantize(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    y = _fake_dequantize(mantissas, scales, group)
    if y.numel():
        dequantize_into(y, mantissas.contiguous(), scales.contiguous(), group)
    return y


def dequantize_into(y: Tensor, mantissas: Tensor, scales: Tensor, group: int) -> None:
    """Dequantize dense tensors into dense memory that is there already, unchecked."""
    library = route().library
    if library is None:
        y.copy_(values(mantissas, scales, group))
        return
    _function(library, "madl_mxint8_dequantize", 3, 3)(
        *(mantissas.data_ptr(), scales.data_ptr(), y.data_ptr()),
        *(y.numel() // y.shape[-1], y.shape[-1], group, torch.get_num_threads()),
    )


def values(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    """The definition, in float32: see `mxint8_decode.h`."""
    e = scales.int()
    finite = torch.where(e > 6, (e - 6) << 23, 1 << ((e & 7) + 16)).view(torch.float32)
    steps = finite.masked_fill(scales == NAN_SCALE, float("nan"))  # 2^(scale - 133)
    return mantissas.float() * steps.repeat_interleave(group, -1)[..., : mantissas.shape[-1]]


def _fake_dequantize(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    _check_codes(mantissas, scales, group)
    return torch.empty(mantissas.shape, dtype=torch.bfloat16, device=mantissas.device)


# ---- the linear ---------------------------------------------------------------------------------


def arrange(mantissas: Tensor, scales: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A quantized weight as the linear reads it: panels of 32 outputs, four inputs of each in turn.

    The bytes are mantissa + 128, because the processor multiplies unsigned by signed ones. Outputs
    that fill the last panel are zeros.

    Raises:
        ValueError: not a matrix, or codes that do not fit together.
    """
    _check_codes(mantissas, scales, group)
    if mantissas.dim() != 2:
        raise ValueError(f"MXINT8: a weight is a matrix, got shape {tuple(mantissas.shape)}")
    num_in, rows = mantissas.shape[1], -mantissas.shape[0] % PANEL
    codes = F.pad(mantissas, (0, -num_in % QUAD, 0, rows)).view(torch.uint8) ^ 128
    panels = codes.view(-1, PANEL, codes.shape[1] // QUAD, QUAD).transpose(1, 2)
    padded = F.pad(scales, (0, 0, 0, rows)).view(-1, PANEL, scales.shape[1])
    return panels.contiguous(), padded.transpose(1, 2).contiguous()


def restore(
    panels: Tensor, panel_scales: Tensor, *, out_features: int, in_features: int
) -> tuple[Tensor, Tensor]:
    """What `arrange` was given: mantissas and scales of the weight."""
    codes = (panels.transpose(1, 2).flatten(0, 1).flatten(1) ^ 128).view(torch.int8)
    scales = panel_scales.transpose(1, 2).flatten(0, 1)
    # copies, as a view would keep the padding's memory and could not be saved
    dense = torch.contiguous_format
    return (
        codes[:out_features, :in_features].clone(memory_format=dense),
        scales[:out_features].clone(memory_format=dense),
    )


def _linear_in_torch(
    x: Tensor, panels: Tensor, scales: Tensor, bias: Tensor | None, num_out: int, group: int
) -> Tensor:
    """The same sums: integers within a group, which float32 holds, then group after group."""
    num_in = x.shape[-1]
    weight, weight_scales = restore(panels, scales, out_features=num_out, in_features=num_in)
    flat = x.float().reshape(-1, num_in) if num_in else x.new_zeros(x.shape[:-1].numel(), 0).float()
    codes, x_scales = quantize_in_torch(flat, group) if flat.numel() else (flat, flat)
    y = flat.new_zeros(len(flat), num_out)
    if bias is not None:
        y += bias
    for g in range(num_groups(num_in, group) if len(flat) else 0):
        part = slice(g * group, (g + 1) * group)
        sums = codes[:, part].float() @ weight[:, part].float().t()  # (M, N), exact integers
        y += sums * (_power(x_scales[:, g, None], 139) * _power(weight_scales[None, :, g], 127))
    return y.view(*x.shape[:-1], num_out).to(x.dtype)


def _power(scales: Tensor, bias: int) -> Tensor:
    """2^(scale - bias) as float32, subnormals too; NaN for 255."""
    e = scales.int() + (127 - bias)
    bits = torch.where(e > 0, e << 23, 1 << (22 + e).clamp(min=0))
    return bits.view(torch.float32).masked_fill(scales == NAN_SCALE, float("nan"))


def _fake_linear(
    x: Tensor, panels: Tensor, scales: Tensor, bias: Tensor | None, num_out: int, group: int
) -> Tensor:
    _check_linear(x, panels, scales, bias, num_out, group)
    return x.new_empty((*x.shape[:-1], num_out))


for _name, _kernel, _fake in (
    ("mxint8_quantize", _quantize, _fake_quantize),
    ("mxint8_dequantize", _dequantize, _fake_dequantize),
):
    _library.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"madl::{_name}", _fake, lib=_library)

quantize = torch.ops.madl.mxint8_quantize.default
dequantize = torch.ops.madl.mxint8_dequantize.default
linear = operators.define(
    "linear_mxint8(Tensor x, Tensor panels, Tensor panel_scales, Tensor? bias, int out_features,"
    " int group) -> Tensor",
    route=linear_route,
    check=_check_linear,
    fake=_fake_linear,
    in_torch=_linear_in_torch,
)
