"""MXINT8 on a CUDA GPU: dequantize a tensor, and multiply by a weight that stays MXINT8.

    madl::mxint8_dequantize(mantissas, scales, group) -> bfloat16, exactly (defined in `mxint8`)
    madl::linear_mxint8_weight(x, mantissas, scales, bias, group) -> like x

The linear takes x as it is, bfloat16 or float32, and weights decoded in registers; its sums are
float32. Beyond MAX_ROWS rows of x a decoded weight is reused so often that writing it once and
multiplying as usual is faster, so that is what happens there. `route` says which path computes.

Shapes: mantissas (…, K), scales (…, ceil(K / group)); x (…, K), weight (N, K), bias (N).
Not handled: gradients.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import build_cuda, cuda_driver, mxint8
from kernels.build_cuda import CudaRoute
from kernels.cuda_driver import Argument

FLAT, TILE, LINEAR = "dequantize_flat.cu", "dequantize_tile.cu", "linear_weight_only.cu"
MAX_ROWS = 64
_THREADS, _FLAT_ELEMENTS, _TILE_ELEMENTS, _OUT = 256, 8192, 2048, 16

_library = torch.library.Library("madl", "FRAGMENT")
_library.define(
    "linear_mxint8_weight(Tensor x, Tensor mantissas, Tensor scales, Tensor? bias, int group)"
    " -> Tensor"
)


def route(device: int, source: str = FLAT, *, include: tuple[Path, ...] = ()) -> CudaRoute:
    """Which path computes on this GPU, and why."""
    major, minor = torch.cuda.get_device_capability(device)
    return build_cuda.load(source, 10 * major + minor, include=include)


def shift_of(size: int) -> int:
    """The exponent of a power of two, -1 for any other number."""
    return size.bit_length() - 1 if size & (size - 1) == 0 else -1


def _pointer(x: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def _launch(
    cubin: Path, name: str, device: int, grid: tuple[int, int], arguments: Sequence[Argument]
) -> None:
    kernel = cuda_driver.kernel(cubin, name, device)
    cuda_driver.launch(kernel, device, grid, _THREADS, arguments)


# ---- dequantize ---------------------------------------------------------------------------------


def flat_plan(
    count: int, columns: int, group: int, *, is_aligned: bool
) -> tuple[str, tuple[int, int], tuple[Argument, ...]]:
    """Kernel, grid and further arguments of `dequantize_flat.cu` for (count / columns) rows."""
    whole_rows = columns % group == 0 or columns == count
    if is_aligned and group % 8 == 0 and whole_rows:
        further = (
            ctypes.c_longlong(count),
            ctypes.c_int(group),
            ctypes.c_int(shift_of(group // 8)),
        )
        return "madl_dequantize_vector", (-(-count // _FLAT_ELEMENTS), 1), further
    further = (ctypes.c_longlong(count), ctypes.c_longlong(columns), ctypes.c_int(group))
    return "madl_dequantize_any", (-(-count // _THREADS), 1), further


def tile_plan(count: int, group: int) -> tuple[str, tuple[int, int]]:
    """Kernel and grid of `dequantize_tile.cu`: tiles of the groups' height, groups on grid.x."""
    height, vector = 64, 1
    elements = _THREADS
    if group % 8 == 0:
        height = next((h for h in (8, 16, 32, 64, 128, 256) if group <= h), 512)
        vector, elements = 8, _TILE_ELEMENTS
    groups, tile_groups = -(-count // group), elements // height
    return f"madl_dequantize_tile_{height}_{vector}", (
        -(-groups // tile_groups),
        -(-group // height),
    )


def _is_aligned(*tensors: Tensor) -> bool:
    return all(x.data_ptr() % 16 == 0 for x in tensors)


def _dequantize(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    y = mxint8._fake_dequantize(mantissas, scales, group)
    if y.numel() == 0:
        return y
    mantissas, scales, device = mantissas.contiguous(), scales.contiguous(), mantissas.device.index
    way = route(device)
    if way.path == "triton":
        from kernels import triton_mxint8

        triton_mxint8.dequantize(mantissas, scales, y, group)
    elif way.cubin is None:
        y.copy_(mxint8.values(mantissas, scales, group))
    else:
        columns = mantissas.shape[-1]
        name, grid, further = flat_plan(
            y.numel(), columns, group, is_aligned=_is_aligned(mantissas, y)
        )
        _launch(way.cubin, name, device, grid, (*map(_pointer, (mantissas, scales, y)), *further))
    return y


def dequantize_by_tile(
    mantissas: Tensor, scales: Tensor, group: int, *, include: tuple[Path, ...]
) -> Tensor:
    """The same through the CuTe tile, for rows of whole groups; `include` holds CuTe's headers.

    Raises:
        ValueError: rows whose last group is short, or memory that does not start at 16 bytes.
        RuntimeError: nothing here compiles it.
    """
    y = mxint8._fake_dequantize(mantissas, scales, group)
    mantissas, scales, device = mantissas.contiguous(), scales.contiguous(), mantissas.device.index
    if mantissas.shape[-1] % group and mantissas.dim() > 1:
        raise ValueError(
            f"MXINT8 tile: rows of {mantissas.shape[-1]} have a short group of {group}"
        )
    if not _is_aligned(mantissas, y):
        raise ValueError("MXINT8 tile: the tensors must start at multiples of 16 bytes")
    way = route(device, TILE, include=include)
    if way.cubin is None:
        raise RuntimeError(f"MXINT8 tile: {way.reason}")
    name, grid = tile_plan(y.numel(), group)
    further = (ctypes.c_longlong(y.numel()), ctypes.c_int(group))
    _launch(way.cubin, name, device, grid, (*map(_pointer, (mantissas, scales, y)), *further))
    return y


# ---- the linear ---------------------------------------------------------------------------------


def linear_plan(rows: int, x_is_float: bool) -> tuple[int, int]:
    """How many tiles of eight rows the kernel takes, and into how many parts x is split."""
    parts = 3 if x_is_float else 1
    return next(
        tiles for tiles in (1, 2, 4, 8, 0) if rows * parts <= 8 * tiles or tiles == 0
    ), parts


def _check_linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> None:
    mxint8._check_codes(mantissas, scales, group)
    mxint8._check_values(x)
    if mantissas.dim() != 2 or x.shape[-1] != mantissas.shape[1]:
        raise ValueError(
            f"MXINT8: x {tuple(x.shape)} and weight {tuple(mantissas.shape)} must agree in the "
            "last dimension, and the weight must be a matrix"
        )
    others = [mantissas]
    if bias is not None:
        mxint8._check_dtype("bias", bias, torch.float32)
        mxint8._check_shape("bias", bias, (mantissas.shape[0],))
        others.append(bias)
    for other in others:
        if other.device != x.device:
            raise ValueError(f"MXINT8: x is on {x.device}, the weight or bias on {other.device}")


def _fake_linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> Tensor:
    _check_linear(x, mantissas, scales, bias, group)
    return x.new_empty((*x.shape[:-1], mantissas.shape[0]))


def _linear_in_torch(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> Tensor:
    """The definition: the dequantized weight, which is written out."""
    _check_linear(x, mantissas, scales, bias, group)
    weight = torch.ops.madl.mxint8_dequantize(mantissas, scales, group).to(x.dtype)
    return F.linear(x, weight, None if bias is None else bias.to(x.dtype))


def _linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> Tensor:
    y = _fake_linear(x, mantissas, scales, bias, group)
    num_in = mantissas.shape[1]
    rows = x.numel() // max(num_in, 1)
    if y.numel() == 0:
        return y
    device = x.device.index
    way = route(device, LINEAR)
    if rows > MAX_ROWS or num_in == 0 or way.path == "torch":
        return _linear_in_torch(x, mantissas, scales, bias, group)
    x, mantissas, scales = x.contiguous(), mantissas.contiguous(), scales.contiguous()
    bias = None if bias is None else bias.contiguous()
    if way.cubin is None:
        from kernels import triton_mxint8

        triton_mxint8.linear(x, mantissas, scales, bias, y, group)
    else:
        _launch_linear(way.cubin, x, mantissas, scales, bias, y, group)
    return y


def _launch_linear(
    cubin: Path,
    x: Tensor,
    mantissas: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    y: Tensor,
    group: int,
) -> None:
    """By tensor cores where the shape allows it, in rows that they take at once; else plainly."""
    (num_out, num_in), device = mantissas.shape, x.device.index
    is_float = x.dtype is torch.float32
    kind = "fp32" if is_float else "bf16"
    flat, out = x.view(-1, num_in), y.view(-1, num_out)
    has_tensor_cores = torch.cuda.get_device_capability(device) >= (8, 0)
    whole = num_in % 16 == 0 and group % 16 == 0 and num_in % group == 0
    weight = map(_pointer, (mantissas, scales, bias))
    if not (has_tensor_cores and whole and _is_aligned(x, mantissas)):
        sizes = map(ctypes.c_int, (len(flat), num_in, num_out, group))
        grid = (-(-num_out // 8), 1)  # a warp a column
        arguments = (_pointer(flat), *weight, _pointer(out), *sizes)
        _launch(cubin, f"madl_linear_any_{kind}", device, grid, arguments)
        return
    weight = tuple(weight)
    step = MAX_ROWS // 3 if is_float else MAX_ROWS
    for part, result in zip(flat.split(step), out.split(step)):
        rows = len(part)
        tiles, parts = linear_plan(rows, is_float)
        operand = _split(cubin, part) if is_float else part
        sizes = map(ctypes.c_int, (rows, parts, num_in, num_out, group, shift_of(group)))
        arguments = (_pointer(operand), *weight, _pointer(result), *sizes)
        grid = (-(-num_out // _OUT), 1)
        _launch(cubin, f"madl_linear_{kind}_{tiles}", device, grid, arguments)


def _split(cubin: Path, x: Tensor) -> Tensor:
    """x as the sum of three bfloat16 tensors, without loss."""
    parts = torch.empty((3, *x.shape), dtype=torch.bfloat16, device=x.device)
    grid = (-(-x.numel() // _THREADS), 1)
    arguments = (_pointer(x), _pointer(parts), ctypes.c_int(x.numel()))
    _launch(cubin, "madl_split_float", x.device.index, grid, arguments)
    return parts


_library.impl("mxint8_dequantize", _dequantize, "CUDA")
_library.impl("linear_mxint8_weight", _linear, "CUDA")
_library.impl("linear_mxint8_weight", _linear_in_torch, "CPU")
torch.library.register_fake("madl::linear_mxint8_weight", _fake_linear, lib=_library)

dequantize = torch.ops.madl.mxint8_dequantize.default
linear = torch.ops.madl.linear_mxint8_weight.default
