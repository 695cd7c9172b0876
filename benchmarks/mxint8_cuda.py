"""MXINT8 on a CUDA GPU: dequantize ÷ copy of the same bytes, and the linear against cuBLAS.

    python cli.py bench mxint8_cuda [--budget-s 0.3]

Correctness first, on every path that this machine has: nothing is timed that is wrong. Each variant
is captured into a CUDA graph of as many calls as it takes to leave the L2 cache behind (another
weight each time), so neither Python's launches nor a warm cache are measured; graphs take turns
(`madl.machine.timing.compare`). Beside us: a copy, and cuBLAS in bfloat16, float16 and float32 (no
TF32).

Targets: dequantize at 90 % of a copy's bandwidth; the linear, M = 1 … 16, 1.7 times as fast as
cuBLAS bfloat16 and 3.4 times as float32. Its limits are 1.94 and 3.88, the ratio of the bytes.
Needs: torch 2.11 or later with CUDA; nvcc or NVRTC (with torch's CUDA packages); for the tile,
CuTe's headers, fetched through pip.
"""

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks._command import budget, call
from benchmarks.formats import print_ratios
from kernels import build_cuda, mxint8, mxint8_cuda
from madl import assets
from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.machine.timing import compare

Call = Callable[[int], object]  # of one repetition, each on data of its own
Work = tuple[dict[str, Call], int]  # the variants, and how many repetitions leave the cache behind

GROUPS = (8, 16, 32, 64, 128, 256, 512)
SIZES = (1 << 24, 1 << 28)
SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008))  # (out, in) of a 7 B model
NUM_ROWS = (1, 4, 8, 16, 32, 64)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
OUT_OF_CACHE_BYTES = 512 << 20


@click.command(help=__doc__.splitlines()[0])
@budget(default=0.3, help="Seconds a variant.")
def main(budget_s: float) -> None:
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is visible to torch here; run this where one is")
    torch.backends.cuda.matmul.allow_tf32 = False
    machine = torch.cuda.get_device_name()
    print(f"{machine}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    check()
    for work, made in works():
        calls, repetitions = made()
        graphs = {name: captured(call, repetitions) for name, call in calls.items()}
        measured = compare(graphs, device="cuda", budget_s=budget_s)
        samples = {name: [[s / repetitions for s in m.samples_s]] for name, m in measured.items()}
        print_ratios(work, benchmarks.timed(work, samples))
        torch.cuda.empty_cache()


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """What there is to time, by name: some seconds each."""
    for size, group in [(SIZES[0], 32), *((SIZES[1], group) for group in GROUPS)]:
        work = f"dequantize {size >> 20} Mi elements, groups of {group}"
        yield work, functools.partial(dequantize_calls, size, group)
    for (num_out, num_in), rows, dtype in itertools.product(SHAPES, NUM_ROWS, DTYPES[::2]):
        name = str(dtype).removeprefix("torch.")
        work = f"linear {name}, {rows} × {num_in} by {num_in} × {num_out}"
        yield work, functools.partial(linear_calls, rows, num_out, num_in, dtype)


# ---- paths --------------------------------------------------------------------------------------


def use(path: str) -> build_cuda.CudaRoute:
    """Make the operators take this path from here on, and say which they take."""
    os.environ["MADL_CUDA_KERNELS"] = path
    build_cuda.load.cache_clear()
    return mxint8_cuda.route(torch.cuda.current_device())


def by(path: str, call: Call) -> Call:
    """The call by that path: it is chosen while a graph is captured, and stays in it."""

    def switched(i: int) -> object:
        if os.environ.get("MADL_CUDA_KERNELS") != path:
            use(path)
        return call(i)

    return switched


@functools.cache
def usable_paths() -> list[str]:
    device = torch.cuda.current_device()
    found = [
        path
        for path in build_cuda.PATHS[1:]
        if use(path).path == path == mxint8_cuda.route(device, mxint8_cuda.LINEAR).path
    ]
    use("auto")
    return found


@functools.cache
def cute_include() -> tuple[Path, ...]:
    """Where CuTe's headers are; nowhere, if the tile cannot be compiled here."""
    try:
        found = assets.cute_include()
        way = mxint8_cuda.route(torch.cuda.current_device(), mxint8_cuda.TILE, include=found)
        if way.cubin is None:
            raise MadlError(way.reason)
    except MadlError as error:
        print(f"not run here: the CuTe tile ({error})")
        return ()
    return found


# ---- correctness --------------------------------------------------------------------------------


def check() -> None:
    """Every pair of mantissa and scale, and the linear against float64, on each path."""
    mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1)
    scales = torch.arange(256).to(torch.uint8)[:, None]
    expected = mxint8.dequantize(mantissas, scales, 256)
    for path in usable_paths():
        use(path)
        got = mxint8_cuda.dequantize(mantissas.cuda(), scales.cuda(), 256).cpu()
        wrong = int((~(got == expected) & ~(got.isnan() & expected.isnan())).sum())
        worst = max(linear_error(rows) for rows in NUM_ROWS)
        print(f"{path:8s} wrong codes {wrong} of 65536, linear's worst error {worst:.1e} of terms")
        assert wrong == 0, path
        assert worst < 1e-5, path
    use("auto")


def linear_error(rows: int) -> float:
    """Largest error of the float32 linear, relative to the sum of its terms' magnitudes."""
    mantissas, scales = weight(1000, 1040, 16, seed=rows)
    x = torch.randn(rows, 1040, device="cuda")
    y = mxint8_cuda.linear(x, mantissas, scales, None, 16).double()
    dense = mxint8.values(mantissas, scales, 16).double()
    error = (y - x.double() @ dense.t()).abs() / (x.double().abs() @ dense.abs().t())
    return float(error.max())


def weight(num_out: int, num_in: int, group: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (num_out, num_in)
    mantissas = torch.randint(-127, 128, shape, generator=generator, device="cuda")
    shape = (num_out, -(-num_in // group))
    scales = torch.randint(112, 124, shape, generator=generator, device="cuda")
    return mantissas.to(torch.int8), scales.to(torch.uint8)


# ---- what is timed ------------------------------------------------------------------------------


def captured(call: Call, repetitions: int) -> Callable[[], object]:
    """One graph of that many calls; its launches cost nothing that depends on Python."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(min(repetitions, 3)):  # loads modules, tunes libraries
            call(i)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repetitions):
            call(i)
    return graph.replay


def dequantize_calls(size: int, group: int) -> Work:
    """A copy that reads and writes as many bytes altogether, and each path."""
    bytes_ = 3 * size + size // group
    repetitions = max(1, min(8, OUT_OF_CACHE_BYTES // bytes_))
    data = [weight(size // 4096, 4096, group, seed=i) for i in range(repetitions)]
    flat = [(m.view(-1), s.view(-1)) for m, s in data]
    sources = [torch.empty(bytes_ // 2, dtype=torch.uint8, device="cuda") for _ in flat]
    targets = [torch.empty_like(source) for source in sources]
    calls: dict[str, Call] = {"copy": lambda i: targets[i].copy_(sources[i])}
    for path in usable_paths():
        calls[f"ours, {path}"] = by(path, lambda i: mxint8_cuda.dequantize(*flat[i], group))
    if include := cute_include():
        by_tile = mxint8_cuda.dequantize_by_tile
        calls["ours, CuTe tile"] = by("auto", lambda i: by_tile(*flat[i], group, include=include))
    return calls, repetitions


def linear_calls(num_rows: int, num_out: int, num_in: int, dtype: torch.dtype) -> Work:
    """cuBLAS in the input's type, each path, and cuBLAS in the other types."""
    repetitions = -(-OUT_OF_CACHE_BYTES // (num_out * num_in))
    packed = [weight(num_out, num_in, 32, seed=i) for i in range(repetitions)]
    dense = [mxint8.values(m, s, 32).to(dtype) for m, s in packed]
    x = torch.randn(num_rows, num_in, device="cuda", dtype=dtype)
    calls = {"cuBLAS": cublas(x, dense)}
    for path in usable_paths():
        calls[f"ours, {path}"] = by(path, lambda i: mxint8_cuda.linear(x, *packed[i], None, 32))
    for other in DTYPES[1:] if dtype is torch.bfloat16 else ():
        weights = [w.to(other) for w in dense]
        calls[f"cuBLAS {str(other).removeprefix('torch.')}"] = cublas(x.to(other), weights)
    return calls, repetitions


def cublas(x: Tensor, weights: list[Tensor]) -> Call:
    return lambda i: F.linear(x, weights[i])


if __name__ == "__main__":
    call(main)
