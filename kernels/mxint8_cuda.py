"""MXINT8 on a CUDA GPU: dequantize a tensor, and multiply by a weight that stays MXINT8.

    madl::mxint8_dequantize(mantissas, scales, group) -> bfloat16, exactly (of `mxint8`)
    madl::linear_mxint8_weight(x, mantissas, scales, bias, group) -> like x

The linear takes x as it is, bfloat16 or float32, and weights decoded in registers; its sums are
float32, which tensor cores cut and do not round. Beyond `max_rows` rows of x a decoded weight is
reused so often that writing it once and multiplying as usual moves fewer bytes, so that is what
happens there. `route` says which path computes. The order of a sum follows from the shapes and the
GPU alone: the same call gives the same bits.

Shapes: mantissas (…, K), scales (…, ceil(K / group)); x (…, K), weight (N, K), bias (N).
Not handled: gradients.
"""

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import build_cuda, mxint8, operators
from kernels.build import Route
from kernels.cuda_driver import THREADS, Argument, launch

FLAT, TILE, LINEAR = "dequantize_flat.cu", "dequantize_tile.cu", "linear_weight_only.cu"
_FLAT_ELEMENTS, _TILE_VECTORS = 8192, 1024


def route(device: int, source: str = FLAT, *, include: tuple[Path, ...] = ()) -> Route:
    """The path that computes on this GPU, and why."""
    major, minor = torch.cuda.get_device_capability(device)
    return build_cuda.load(source, 10 * major + minor, include=include, device=device)


def shift_of(size: int) -> int:
    """The exponent of a power of two; -1 for any other number."""
    return size.bit_length() - 1 if size & (size - 1) == 0 else -1


def _pointer(x: Tensor | None) -> int:
    """The address of a tensor's values; 0 for None."""
    return 0 if x is None else x.data_ptr()


# ---- dequantize ---------------------------------------------------------------------------------


def flat_plan(
    count: int, columns: int, group: int, *, is_aligned: bool
) -> tuple[str, tuple[int, int], tuple[Argument, ...]]:
    """(kernel, grid, size arguments) of `dequantize_flat.cu`, for rows of `columns` values."""
    whole_rows = columns % group == 0 or columns == count
    if is_aligned and group % 8 == 0 and whole_rows:
        shift = ctypes.c_int(shift_of(group // 8))
        sizes = (ctypes.c_longlong(count), ctypes.c_int(group), shift)
        return "madl_dequantize_vector", (-(-count // _FLAT_ELEMENTS), 1), sizes
    sizes = (ctypes.c_longlong(count), ctypes.c_longlong(columns), ctypes.c_int(group))
    return "madl_dequantize_any", (-(-count // THREADS), 1), sizes


def tile_plan(count: int, group: int) -> tuple[str, tuple[int, int]]:
    """(kernel, grid) of `dequantize_tile.cu`: tiles as high as groups, groups on grid.x."""
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
    """Whether all tensors start at multiples of 16 bytes."""
    return all(x.data_ptr() % 16 == 0 for x in tensors)


def _dequantize(mantissas: Tensor, scales: Tensor, group: int) -> Tensor:
    """The operator `mxint8_dequantize` on a GPU."""
    mxint8.check_codes(mantissas, scales, group)
    y = mxint8.empty_dequantized(mantissas, scales, group)
    if y.numel() == 0:
        return y
    mantissas, scales, device = mantissas.contiguous(), scales.contiguous(), mantissas.device.index
    cubin = route(device).cubin
    if cubin is None:
        return y.copy_(mxint8.values(mantissas, scales, group))
    columns, is_aligned = mantissas.shape[-1], _is_aligned(mantissas, y)
    name, grid, sizes = flat_plan(y.numel(), columns, group, is_aligned=is_aligned)
    launch(cubin, name, device, grid, (*map(_pointer, (mantissas, scales, y)), *sizes))
    return y


def dequantize_by_tile(
    mantissas: Tensor, scales: Tensor, group: int, *, include: tuple[Path, ...]
) -> Tensor:
    """`dequantize` through the CuTe tile, for rows of whole groups; `include` has CuTe's headers.

    Raises:
        ValueError: rows whose last group is short, or memory that does not start at 16 bytes.
        RuntimeError: nothing here compiles it.
    """
    mxint8.check_codes(mantissas, scales, group)
    y = mxint8.empty_dequantized(mantissas, scales, group)
    mantissas, scales, device = mantissas.contiguous(), scales.contiguous(), mantissas.device.index
    if mantissas.shape[-1] % group and mantissas.dim() > 1:
        raise ValueError(
            f"MXINT8 tile: rows of {mantissas.shape[-1]} have a short group of {group}"
        )
    if not _is_aligned(mantissas, y):
        raise ValueError("MXINT8 tile: the tensors must start at multiples of 16 bytes")
    chosen = route(device, TILE, include=include)
    if chosen.cubin is None:
        raise RuntimeError(f"MXINT8 tile: {chosen.reason}")
    name, grid = tile_plan(y.numel(), group)
    sizes = (ctypes.c_longlong(y.numel()), ctypes.c_int(group))
    launch(chosen.cubin, name, device, grid, (*map(_pointer, (mantissas, scales, y)), *sizes))
    return y


# ---- the linear ---------------------------------------------------------------------------------


PASS_ROWS = 64  # of bfloat16 x that the kernel takes at once; a float32 row is three of them
WIDE = {1: 1, 2: 4, 4: 8, 8: 8}  # tiles of eight rows: warps side by side, each 16 columns
RESIDENT = {1: 2, 2: 2, 4: 2, 8: 1}  # blocks that a multiprocessor's registers hold
CHUNK, WARPS, AHEAD = 64, 8, 4  # features of a step and slice; steps on their way
MAX_CLUSTER = 8  # blocks, on every GPU that has clusters
# What the model of `linear_plan` assumes, beside what a GPU says of itself: an H100's and H200's.
COPIED = 0.9  # of the nominal bandwidth: a copy moves 3.0 of 3.35 TB/s, and 4.3 of 4.8
LATENCY_S = 0.7e-6  # until bytes that the memory was asked for arrive, while it is busy
L2_BYTES_A_S = 45e9  # to a multiprocessor; 132 of them have been seen to read 5.5 to 7 TB/s
CLOCK_HZ = 1.7e9  # under load
INSTRUCTIONS = {1: 125, 2: 126, 4: 144, 8: 175}  # of a warp for 1 KiB of the weight, sm_90's SASS
ISSUED = 2.5  # a cycle, of the four that a multiprocessor could; a guess until it is measured
HMMA_CYCLES = 2  # of a multiprocessor, for one m16n8k16: 1,024 products a cycle since sm_80
SECOND_PASS_S, CLUSTER_S = 1.2e-6, 0.6e-6  # another kernel's start; two waits of a cluster
GPC_MULTIPROCESSORS = 16  # or 18; a cluster lies within one GPC


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU as plans see it; `bandwidth` is a copy's, in bytes a second, read and written."""

    multiprocessors: int
    clusters: bool  # from sm_90 on
    bandwidth: float
    l2_bytes: int


@functools.cache
def gpu(device: int) -> Gpu:
    """The GPU of this number, as torch describes it."""
    gpu = torch.cuda.get_device_properties(device)
    nominal = 2e3 * gpu.memory_clock_rate * gpu.memory_bus_width / 8
    return Gpu(
        gpu.multi_processor_count,
        gpu.major >= 9,
        COPIED * (nominal or 25e9 * gpu.multi_processor_count),  # where the driver does not say
        gpu.L2_cache_size,
    )


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """Numbers of tiles, parts of x, steps of a block, and blocks; `seconds` is a prediction."""

    tiles: int
    parts: int
    steps: int
    grid: tuple[int, int]  # columns, splits
    in_cluster: bool  # the splits of a column add up among themselves
    seconds: float


@functools.lru_cache(maxsize=1024)
def linear_plan(
    rows: int, num_in: int, num_out: int, *, is_float: bool, gpu: Gpu, splits: int | None = None
) -> LinearPlan:
    """The plan with the fewest tiles that hold the rows, and with the fastest number of splits.

    `splits` asks for so many, as far as there are steps; else a model of the time chooses. A wave
    of n blocks, k on a multiprocessor at most, takes as long as the slowest of

        memory          n * weight / bandwidth
        L2 cache        k * (weight + x) / L2_BYTES_A_S
        latency         weight / (8 KiB * min(steps, AHEAD)) * LATENCY_S
        multiprocessor  k * weight / 1 KiB * max(INSTRUCTIONS / ISSUED, HMMA's cycles) / CLOCK_HZ

    weight and x being a block's bytes, the weight's 1 + 1/32 a value; and LATENCY_S until the first
    arrive, of which a second block hides half. Then the splits are added: by a cluster (from sm_90
    on, where one holds them), or by a second pass, which writes and reads splits * rows * num_out
    float32 sums.
    """
    parts = 3 if is_float else 1
    tiles = next(tiles for tiles in WIDE if rows * parts <= 8 * tiles)
    wide, resident = WIDE[tiles], RESIDENT[tiles]
    columns, all_steps = -(-num_out // (16 * wide)), -(-num_in // (CHUNK * WARPS // wide))
    weight, x = num_in * num_out * (1 + 1 / 32), 2 * parts * rows * num_in * columns
    if wide == 1:
        x /= resident  # the L1 cache has it for both
    cycles = max(INSTRUCTIONS[tiles] / ISSUED, 4 * tiles * HMMA_CYCLES)  # a KiB
    slots = resident * gpu.multiprocessors

    def planned(splits: int) -> LinearPlan:
        """The plan with that many splits, or as many as share the steps alike."""
        steps = -(-all_steps // splits)
        splits = -(-all_steps // steps)
        blocks, in_cluster = columns * splits, gpu.clusters and 1 < splits <= MAX_CLUSTER
        at_once = slots
        if in_cluster:
            gpcs = max(1, gpu.multiprocessors // GPC_MULTIPROCESSORS)
            at_once = gpcs * (GPC_MULTIPROCESSORS * resident // splits) * splits

        def wave(n: int) -> float:
            """Seconds of n blocks that run at once."""
            k = -(-n // gpu.multiprocessors)
            block = max(
                n / k * weight / gpu.bandwidth,
                (weight + x) / L2_BYTES_A_S,
                weight / (k * WARPS * 1024 * min(steps, AHEAD)) * LATENCY_S,
                weight / 1024 * cycles / CLOCK_HZ,
            )
            return k * block / blocks + LATENCY_S / min(k, resident)

        full, rest = divmod(blocks, at_once)
        seconds = full * wave(at_once) + (wave(rest) if rest else 0.0)
        sums = 4 * splits * rows * num_out / (L2_BYTES_A_S * gpu.multiprocessors)
        if splits > 1:
            seconds += CLUSTER_S + sums if in_cluster else SECOND_PASS_S + 2 * sums
        return LinearPlan(tiles, parts, steps, (columns, splits), in_cluster, seconds)

    if splits:
        return planned(min(splits, all_steps))
    most = min(all_steps, max(MAX_CLUSTER, 2 * slots // columns))
    return min(map(planned, range(1, most + 1)), key=lambda plan: plan.seconds)


def max_rows(num_in: int, num_out: int, group: int, *, is_float: bool, l2_bytes: int) -> int:
    """The most rows of x for which the fused product moves fewer bytes than writing the weight out.

    Bytes are counted per weight. A pass of the kernel reads the packed weight, 1 + 1 / group bytes.
    Writing the weight out reads these, too, writes the result (2 for bfloat16, and 4 more for
    float32, which is made of it) and reads it back, but for what stays in the L2 cache.
    """
    packed, written = 1 + 1 / group, 6 if is_float else 2
    back = 0 if num_in * num_out * (4 if is_float else 2) <= l2_bytes else written
    passes = int((packed + written + back) / packed)
    return passes * pass_rows(is_float)


def pass_rows(is_float: bool) -> int:
    """The number of rows of x that one pass of the kernel takes."""
    return PASS_ROWS // 3 if is_float else PASS_ROWS


def _check_linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> None:
    """Raise ValueError for operands of `linear` that do not fit together."""
    mxint8.check_codes(mantissas, scales, group)
    mxint8.check_values(x, group)
    if mantissas.dim() != 2 or x.shape[-1] != mantissas.shape[1]:
        raise ValueError(
            f"MXINT8: x {tuple(x.shape)} and weight {tuple(mantissas.shape)} must agree in the "
            "last dimension, and the weight must be a matrix"
        )
    mxint8.check_bias_and_devices(x, (mantissas,), bias, mantissas.shape[0])


def _linear_in_torch(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> Tensor:
    """The definition of `linear`: a product with the dequantized weight, which is written out."""
    weight = mxint8.dequantize(mantissas, scales, group).to(x.dtype)
    return F.linear(x, weight, None if bias is None else bias.to(x.dtype))


def _linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, group: int
) -> Tensor:
    """The operator `linear_mxint8_weight` on a GPU: fused, or in torch beyond `max_rows` rows."""
    _check_linear(x, mantissas, scales, bias, group)
    y = x.new_empty((*x.shape[:-1], len(mantissas)))
    num_in = mantissas.shape[1]
    rows = x.numel() // max(num_in, 1)
    if y.numel() == 0:
        return y
    device, is_float = x.device.index, x.dtype is torch.float32
    cubin, l2_bytes = route(device, LINEAR).cubin, gpu(device).l2_bytes
    most = max_rows(num_in, len(mantissas), group, is_float=is_float, l2_bytes=l2_bytes)
    if rows > most or num_in == 0 or cubin is None:
        return _linear_in_torch(x, mantissas, scales, bias, group)
    x, mantissas, scales = x.contiguous(), mantissas.contiguous(), scales.contiguous()
    bias = None if bias is None else bias.contiguous()
    _launch_linear(cubin, x, mantissas, scales, bias, y, group)
    return y


def _launch_linear(
    cubin: Path,
    x: Tensor,
    mantissas: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    y: Tensor,
    group: int,
    plan: LinearPlan | None = None,
) -> None:
    """Launch the fused product, which writes to `y`, in as many rows at once as a pass takes.

    By tensor cores where the shape allows it. `plan` is used for all rows instead of `linear_plan`.
    """
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
        launch(cubin, f"madl_linear_any_{kind}", device, grid, arguments)
        return
    step = pass_rows(is_float)
    for part, result in zip(flat.split(step), out.split(step)):
        rows = len(part)
        chosen = plan or linear_plan(rows, num_in, num_out, is_float=is_float, gpu=gpu(device))
        operand = _split(cubin, part) if is_float else part
        splits, partials = chosen.grid[1], None
        if splits > 1 and not chosen.in_cluster:
            partials = torch.empty((splits, rows, num_out), dtype=torch.float32, device=x.device)
        tensors = (operand, mantissas, scales, bias, result, partials)
        sizes = (rows, chosen.parts, num_in, num_out, shift_of(group), chosen.steps)
        arguments = (*map(_pointer, tensors), *map(ctypes.c_int, sizes))
        name = f"madl_linear_{kind}_{chosen.tiles}"
        launch(cubin, name, device, chosen.grid, arguments, in_cluster=chosen.in_cluster)
        if partials is not None:
            tensors, sizes = (partials, bias, result), (splits, rows, num_out)
            arguments = (*map(_pointer, tensors), *map(ctypes.c_int, sizes))
            grid = (-(-num_out // THREADS), rows)
            launch(cubin, f"madl_linear_splits_{kind}", device, grid, arguments)


def fits_tensor_cores(num_in: int, group: int) -> bool:
    """Whether `linear_tile.h` takes such a weight: whole groups of 16, 32, 64 … values."""
    return group >= 16 and shift_of(group) >= 0 and num_in % group == 0


def _split(cubin: Path, x: Tensor) -> Tensor:
    """Three bfloat16 tensors whose sum is x, without loss, as one of shape (3, *x.shape)."""
    parts = torch.empty((3, *x.shape), dtype=torch.bfloat16, device=x.device)
    grid = (-(-x.numel() // THREADS), 1)
    arguments = (_pointer(x), _pointer(parts), ctypes.c_int(x.numel()))
    launch(cubin, "madl_split_float", x.device.index, grid, arguments)
    return parts


operators.library.impl("mxint8_dequantize", _dequantize, "CUDA")
dequantize = mxint8.dequantize
linear = operators.define(
    "linear_mxint8_weight(Tensor x, Tensor mantissas, Tensor scales, Tensor? bias, int group)"
    " -> Tensor",
    check=_check_linear,
    empty=lambda x, mantissas, *rest: x.new_empty((*x.shape[:-1], mantissas.shape[0])),
    in_torch=_linear_in_torch,
)
operators.library.impl("linear_mxint8_weight", _linear, "CUDA")
