"""MXINT8 on a CUDA GPU: dequantize a tensor, and multiply by a weight that stays MXINT8.

    madl::mxint8_dequantize(mantissas, scales, group) -> bfloat16, exactly (defined in `mxint8`)
    madl::linear_mxint8_weight(x, mantissas, scales, bias, group) -> like x

The linear takes x as it is, bfloat16 or float32, and weights decoded in registers; its sums are
float32, which tensor cores cut and do not round. Beyond `max_rows` rows of x a decoded weight is
reused so often that writing it once and multiplying as usual moves fewer bytes, so that is what
happens there. `route` says which path computes. The order of a sum follows from the shapes and the
number of multiprocessors alone: the same call gives the same bits.

Shapes: mantissas (…, K), scales (…, ceil(K / group)); x (…, K), weight (N, K), bias (N).
Not handled: gradients.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import build_cuda, cuda_driver, mxint8
from kernels.build_cuda import CudaRoute
from kernels.cuda_driver import Argument

FLAT, TILE, LINEAR = "dequantize_flat.cu", "dequantize_tile.cu", "linear_weight_only.cu"
_THREADS, _FLAT_ELEMENTS, _TILE_VECTORS = 256, 8192, 1024

_library = torch.library.Library("madl", "FRAGMENT")
_library.define(
    "linear_mxint8_weight(Tensor x, Tensor mantissas, Tensor scales, Tensor? bias, int group)"
    " -> Tensor"
)


def route(device: int, source: str = FLAT, *, include: tuple[Path, ...] = ()) -> CudaRoute:
    """Which path computes on this GPU, and why."""
    major, minor = torch.cuda.get_device_capability(device)
    return build_cuda.load(source, 10 * major + minor, include=include, device=device)


def shift_of(size: int) -> int:
    """The exponent of a power of two, -1 for any other number."""
    return size.bit_length() - 1 if size & (size - 1) == 0 else -1


def _pointer(x: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def _launch(
    cubin: Path,
    name: str,
    device: int,
    grid: tuple[int, int],
    arguments: Sequence[Argument],
    *,
    in_cluster: bool = False,
) -> None:
    kernel = cuda_driver.kernel(cubin, name, device)
    cuda_driver.launch(kernel, device, grid, _THREADS, arguments, in_cluster=in_cluster)


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
    if group % 8 == 0:
        height = next((h for h in (8, 16, 32, 64, 128, 256) if group <= h), 512)
        vector = 8
    groups, block_groups = -(-count // group), _TILE_VECTORS * vector // height
    return f"madl_dequantize_tile_{height}_{vector}", (
        -(-groups // block_groups),
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
    if way.cubin is None:
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


PASS_ROWS = 64  # of bfloat16 x that the kernel takes at once; a float32 row is three of them
WIDE = {1: 1, 2: 4, 4: 8, 8: 8}  # tiles of eight rows: warps side by side, each 16 columns
RESIDENT = {1: 2, 2: 2, 4: 2, 8: 1}  # blocks that a multiprocessor's registers hold
CHUNK, WARPS, AHEAD = 64, 8, 4  # features of a step and slice; steps on their way
MAX_CLUSTER = 8  # blocks, on every GPU that has clusters
# What the model of `linear_plan` assumes of a GPU; an H200's, from published figures.
NEEDED_BYTES = 23 << 10  # on their way in a multiprocessor, for all of the memory's bandwidth
L2_BYTES_A_BYTE = 1.4  # what comes from the L2 cache while a byte comes from memory
SECOND_PASS_BYTES = 5e6  # what the memory moves while another kernel starts, some 1.2 µs
CLUSTER_BYTES = 2.6e6  # while a cluster waits for itself twice and reads, some 0.6 µs


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """How many tiles, parts of x, steps of a block and blocks; `traffic` as in `linear_plan`."""

    tiles: int
    parts: int
    steps: int
    grid: tuple[int, int]  # columns, splits
    in_cluster: bool  # the splits of a column add up among themselves
    traffic: float


@functools.lru_cache(maxsize=1024)
def linear_plan(
    rows: int, num_in: int, num_out: int, *, is_float: bool, multiprocessors: int, clusters: bool
) -> LinearPlan:
    """The fewest tiles that hold the rows, and into how many splits the features go.

    Features are split only where columns make fewer than two waves of blocks, and into as many
    splits as a model of the bytes likes best:

        traffic = max(weight / share, (weight + x) / L2_BYTES_A_BYTE) + [splits > 1] * adding
        share(n) = min(1, n * 8 KiB * min(steps, AHEAD) / (multiprocessors * NEEDED_BYTES))
        x = 2 bytes * parts * rows * num_in * column blocks / resident blocks of the narrow kernel
        adding = SECOND_PASS_BYTES + 2 * 4 bytes * splits * rows * num_out / L2_BYTES_A_BYTE
            or CLUSTER_BYTES + 4 bytes * splits * rows * num_out / L2_BYTES_A_BYTE

    the second where there are `clusters` (from sm_90 on) and one holds the splits; weight being
    1 + 1/32 bytes a value, and n the blocks that run at a time: `resident` on each multiprocessor,
    and in the last wave those that are left. Traffic over the memory's bandwidth is the time that
    the model predicts, without the time until the first bytes arrive.
    """
    parts = 3 if is_float else 1
    tiles = next(tiles for tiles in WIDE if rows * parts <= 8 * tiles)
    wide, resident = WIDE[tiles], RESIDENT[tiles]
    columns, all_steps = -(-num_out // (16 * wide)), -(-num_in // (CHUNK * WARPS // wide))
    slots = resident * multiprocessors
    weight = num_in * num_out * (1 + 1 / 32)
    x = 2 * parts * rows * num_in * columns / (resident if wide == 1 else 1)

    def planned(splits: int) -> LinearPlan:
        steps = -(-all_steps // splits)
        splits = -(-all_steps // steps)

        def share(blocks: int) -> float:
            flying = blocks * WARPS * 1024 * min(steps, AHEAD)
            return min(1.0, flying / (multiprocessors * NEEDED_BYTES))

        blocks = columns * splits
        full, rest = divmod(blocks, slots)
        waves = full * slots / share(slots) + (rest / share(rest) if rest else 0.0)
        traffic = max(weight / blocks * waves, (weight + x) / L2_BYTES_A_BYTE)
        in_cluster = clusters and 1 < splits <= MAX_CLUSTER
        sums = 4 * splits * rows * num_out / L2_BYTES_A_BYTE
        if splits > 1:
            traffic += CLUSTER_BYTES + sums if in_cluster else SECOND_PASS_BYTES + 2 * sums
        return LinearPlan(tiles, parts, steps, (columns, splits), in_cluster, traffic)

    most = min(all_steps, 2 * slots // columns) if columns < 2 * slots else 1
    return min(map(planned, range(1, most + 1)), key=lambda plan: plan.traffic)


def max_rows(num_in: int, num_out: int, group: int, *, is_float: bool, l2_bytes: int) -> int:
    """Up to how many rows of x the fused product moves fewer bytes than writing the weight out.

    In bytes a weight, b = 1 + 1 / group being what it takes as it is: a pass of the kernel moves b;
    writing out moves b, the result (2 for bfloat16, and 4 more for float32, which is made of it)
    and the same again to read it back, except for what stays in the L2 cache.
    """
    packed, written = 1 + 1 / group, 6 if is_float else 2
    back = 0 if num_in * num_out * (4 if is_float else 2) <= l2_bytes else written
    passes = int((packed + written + back) / packed)
    return passes * pass_rows(is_float)


def pass_rows(is_float: bool) -> int:
    return PASS_ROWS // 3 if is_float else PASS_ROWS


@functools.cache
def _sizes(device: int) -> tuple[int, int]:
    """Multiprocessors, and bytes of the L2 cache."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, int(properties.L2_cache_size)


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
    device, is_float = x.device.index, x.dtype is torch.float32
    way = route(device, LINEAR)
    most = max_rows(num_in, len(mantissas), group, is_float=is_float, l2_bytes=_sizes(device)[1])
    if rows > most or num_in == 0 or way.cubin is None:
        return _linear_in_torch(x, mantissas, scales, bias, group)
    x, mantissas, scales = x.contiguous(), mantissas.contiguous(), scales.contiguous()
    bias = None if bias is None else bias.contiguous()
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
    capability = torch.cuda.get_device_capability(device)
    flat, out = x.view(-1, num_in), y.view(-1, num_out)
    if not (
        capability >= (8, 0) and fits_tensor_cores(num_in, group) and _is_aligned(x, mantissas)
    ):
        sizes = map(ctypes.c_int, (len(flat), num_in, num_out, group))
        grid = (-(-num_out // 8), 1)  # a warp a column
        weight = map(_pointer, (mantissas, scales, bias))
        arguments = (_pointer(flat), *weight, _pointer(out), *sizes)
        _launch(cubin, f"madl_linear_any_{kind}", device, grid, arguments)
        return
    step = pass_rows(is_float)
    for part, result in zip(flat.split(step), out.split(step)):
        rows = len(part)
        plan = linear_plan(
            rows,
            num_in,
            num_out,
            is_float=is_float,
            multiprocessors=_sizes(device)[0],
            clusters=capability >= (9, 0),
        )
        operand = _split(cubin, part) if is_float else part
        splits, partials = plan.grid[1], None
        if splits > 1 and not plan.in_cluster:
            partials = torch.empty((splits, rows, num_out), dtype=torch.float32, device=x.device)
        tensors = (operand, mantissas, scales, bias, result, partials)
        sizes = (rows, plan.parts, num_in, num_out, shift_of(group), plan.steps)
        arguments = (*map(_pointer, tensors), *map(ctypes.c_int, sizes))
        name = f"madl_linear_{kind}_{plan.tiles}"
        _launch(cubin, name, device, plan.grid, arguments, in_cluster=plan.in_cluster)
        if partials is not None:
            tensors, sizes = (partials, bias, result), (splits, rows, num_out)
            arguments = (*map(_pointer, tensors), *map(ctypes.c_int, sizes))
            grid = (-(-rows * num_out // _THREADS), 1)
            _launch(cubin, f"madl_linear_splits_{kind}", device, grid, arguments)


def fits_tensor_cores(num_in: int, group: int) -> bool:
    """Whether `linear_tile.h` takes it: whole groups of a power of two, 16 values at least."""
    return group >= 16 and shift_of(group) >= 0 and num_in % group == 0


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
