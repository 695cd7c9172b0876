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

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import build, operators

SOURCE, LINEAR_SOURCE = "mxint8_cpu.cpp", "linear_mxint8_cpu.cpp"
GROUP = 32  # OCP's
MAX_GROUP = 512  # so that the sum of a group's products stays below 2^24, exact in float32
PANEL, QUAD = 32, 4
NAN_SCALE = 255


def route() -> build.Route:
    """The path that quantizes and dequantizes on this CPU, and why."""
    return build.load(SOURCE, operators=("mxint8_quantize", "mxint8_dequantize"))


def linear_route() -> build.Route:
    """The path that multiplies on this CPU, and why; `amx` takes AVX-512 for fewer than 12 rows."""
    targets = ("amx", "avx512_vnni", "avx2", "portable")
    return build.load(LINEAR_SOURCE, targets, operators=("linear_mxint8",))


# ---- the operators' preconditions, checked while tracing too ----------------------------------


def check_group(group: int) -> None:
    """Raise ValueError for a group size that the kernels do not have."""
    if not 4 <= group <= MAX_GROUP or group % 4:
        raise ValueError(f"MXINT8: a group is 4, 8, 12 … {MAX_GROUP} values, got {group}")


def check_dtype(subject: str, x: Tensor, *known: torch.dtype) -> None:
    """Raise ValueError for a tensor of another type; `subject` names it in the message."""
    if x.dtype not in known:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in known)
        raise ValueError(f"MXINT8: {subject} must be {names}, got {x.dtype}")


def check_shape(subject: str, x: Tensor, expected: tuple[int, ...]) -> None:
    """Raise ValueError for a tensor of another shape; `subject` names it in the message."""
    if tuple(x.shape) != expected:
        raise ValueError(f"MXINT8: {subject} must have shape {expected}, got {tuple(x.shape)}")


def check_values(x: Tensor, group: int) -> None:
    """Raise ValueError for values that cannot be quantized in such groups."""
    check_group(group)
    check_dtype("values", x, torch.float32, torch.bfloat16)
    if x.dim() == 0:
        raise ValueError("MXINT8: values need a dimension for the groups to lie on, got a scalar")


def num_groups(size: int, group: int) -> int:
    """The number of groups in a row; the last may be short."""
    return (size + group - 1) // group


def check_codes(mantissas: Tensor, scales: Tensor, group: int) -> None:
    """Raise ValueError for mantissas and scales that do not fit together."""
    check_group(group)
    check_dtype("mantissas", mantissas, torch.int8)
    check_dtype("scales", scales, torch.uint8)
    if mantissas.dim() == 0:
        raise ValueError("MXINT8: mantissas need a dimension for the groups, got a scalar")
    check_shape(
        f"scales of mantissas {tuple(mantissas.shape)} in groups of {group}",
        scales,
        (*mantissas.shape[:-1], num_groups(mantissas.shape[-1], group)),
    )
    if mantissas.device != scales.device:
        raise ValueError(f"MXINT8: mantissas are on {mantissas.device}, scales on {scales.device}")


def _check_linear(
    x: Tensor, panels: Tensor, scales: Tensor, bias: Tensor | None, num_out: int, group: int
) -> None:
    """Raise ValueError for operands of `linear` that do not fit together."""
    check_values(x, group)
    check_dtype("panels", panels, torch.uint8)
    check_dtype("panel_scales", scales, torch.uint8)
    num_in, num_panels = x.shape[-1], num_groups(num_out, PANEL)
    purpose = f"for {num_in} inputs and {num_out} outputs in groups of {group}"
    check_shape(f"panels {purpose}", panels, (num_panels, num_groups(num_in, QUAD), PANEL, QUAD))
    check_shape(f"panel_scales {purpose}", scales, (num_panels, num_groups(num_in, group), PANEL))
    check_bias_and_devices(x, (panels, scales), bias, num_out)


def check_bias_and_devices(
    x: Tensor, weight: tuple[Tensor, ...], bias: Tensor | None, num_out: int
) -> None:
    """Raise ValueError for a bias that does not fit, or tensors on several devices."""
    if bias is not None:
        check_dtype("bias", bias, torch.float32)
        check_shape("bias", bias, (num_out,))
        weight = (*weight, bias)
    for part in weight:
        if part.device != x.device:
            raise ValueError(f"MXINT8: x is on {x.device}, the weight or bias on {part.device}")


# ---- quantize and dequantize --------------------------------------------------------------------


def quantize_in_torch(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """(mantissas, scales): the definition of `quantize`, on any device; see `mxint8_quantize.h`."""
    size = x.shape[-1]
    padded = F.pad(x.float(), (0, -size % group))
    groups = padded.unflatten(-1, (num_groups(size, group), group))  # (…, G, group)
    largest = groups.view(torch.int32).bitwise_and(0x7FFF_FFFF).amax(-1, keepdim=True)
    scales = (largest >> 23).clamp(max=NAN_SCALE - 1)
    inverse = ((254 - scales) << 23).clamp(min=1 << 22).view(torch.float32)  # 2^(127 - scale)
    codes = (groups * inverse * 64).round().clamp(-127, 127)
    is_nan = largest > 0x7F80_0000
    codes = codes.masked_fill(is_nan, 0).to(torch.int8).flatten(-2)[..., :size]
    return codes.contiguous(), scales.masked_fill(is_nan, NAN_SCALE).to(torch.uint8).squeeze(-1)


def _empty_quantized(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Memory for the (mantissas, scales) of a tensor."""
    groups = (*x.shape[:-1], num_groups(x.shape[-1], group))
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty(groups, dtype=torch.uint8)


def values(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    """The values of MXINT8 codes in float32, by definition; see `mxint8_decode.h`."""
    e = scales.int()
    finite = torch.where(e > 6, (e - 6) << 23, 1 << ((e & 7) + 16)).view(torch.float32)
    steps = finite.masked_fill(scales == NAN_SCALE, float("nan"))  # 2^(scale - 133)
    return mantissas.float() * steps.repeat_interleave(group, -1)[..., : mantissas.shape[-1]]


def empty_dequantized(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    """Memory for the result of `dequantize`."""
    return mantissas.new_empty(mantissas.shape, dtype=torch.bfloat16)


# ---- the linear ---------------------------------------------------------------------------------


def arrange(mantissas: Tensor, scales: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A quantized weight as the linear reads it: panels of 32 outputs, four inputs of each in turn.

    Returns (panels, panel_scales). The bytes are mantissa + 128, because the processor multiplies
    unsigned by signed ones. Outputs that fill the last panel are zeros.

    Raises:
        ValueError: not a matrix, or codes that do not fit together.
    """
    check_codes(mantissas, scales, group)
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
    """(mantissas, scales) of a weight that `arrange` has arranged."""
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
    """The definition of `linear`: exact integer sums within a group, added group by group."""
    num_in = x.shape[-1]
    weight, weight_scales = restore(panels, scales, out_features=num_out, in_features=num_in)
    flat = x.float().reshape(x.shape[:-1].numel(), num_in)
    codes, x_scales = quantize_in_torch(flat, group)
    y = flat.new_zeros(len(flat), num_out)
    if bias is not None:
        y += bias
    for g in range(num_groups(num_in, group)):
        part = slice(g * group, (g + 1) * group)
        sums = codes[:, part].float() @ weight[:, part].float().t()  # (M, N), exact integers
        y += sums * (_power(x_scales[:, g, None], 139) * _power(weight_scales[None, :, g], 127))
    return y.view(*x.shape[:-1], num_out).to(x.dtype)


def _power(scales: Tensor, bias: int) -> Tensor:
    """2^(scale - bias) as float32, subnormals too; NaN for 255."""
    e = scales.int() + (127 - bias)
    bits = torch.where(e > 0, e << 23, 1 << (22 + e).clamp(min=0))
    return bits.view(torch.float32).masked_fill(scales == NAN_SCALE, float("nan"))


quantize = operators.define(
    "mxint8_quantize(Tensor x, int group) -> (Tensor, Tensor)",
    check=check_values,
    empty=_empty_quantized,
    route=route,
    in_torch=quantize_in_torch,
)
dequantize = operators.define(
    "mxint8_dequantize(Tensor mantissas, Tensor scales, int group) -> Tensor",
    check=check_codes,
    empty=empty_dequantized,
    route=route,
    in_torch=lambda mantissas, scales, group: values(mantissas, scales, group).bfloat16(),
)
linear = operators.define(
    "linear_mxint8(Tensor x, Tensor panels, Tensor panel_scales, Tensor? bias, int out_features,"
    " int group) -> Tensor",
    check=_check_linear,
    empty=lambda x, panels, scales, bias, num_out, group: x.new_empty((*x.shape[:-1], num_out)),
    route=linear_route,
    in_torch=_linear_in_torch,
)
