"""MXINT8 on a CUDA GPU: dequantize ÷ copy of the same bytes, and the linear against cuBLAS.

    python cli.py bench mxint8_cuda [--budget-s 0.3] [--within MINUTES] [--publish]

Correctness first, on every path of ours that this machine has: nothing is timed that is wrong. Each
variant is captured into a CUDA graph of as many calls as it takes to leave the L2 cache behind:
another weight each time, another result each time, so neither Python's launches nor a warm cache
are measured. A graph is replayed eight times a sample at least, and graphs take turns
(`madl.machine.timing.compare`). Beside us: a copy, and cuBLAS in the input's type (also float16
beside bfloat16; no TF32). What is most worth comes first; the last is the linear by splits.

A work that fails says why, and the others go on; the exit status is 1 then. `--publish` writes what
there is after each work. GB/s are of the bytes that a variant cannot avoid.

Targets: dequantize at 90 % of a copy's bandwidth; the linear in bfloat16 1.7 times as fast as
cuBLAS with up to 4 rows, 1.3 times with 16. The ratio of the bytes, 1.94, is its limit. Of others'
kernels with weights in eight bits, Marlin is known for 1.26 to 1.50, humming for 1.42 to 1.53.
Needs: torch 2.11 or later with CUDA; cuda-core; nvcc or NVRTC (with torch's CUDA packages); for the
tile, CuTe's headers, fetched through pip.
"""

import functools
import io
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks._command import budget, call
from kernels import build_cuda, mxint8, mxint8_cuda
from kernels.build import Route
from kernels.mxint8_cuda import LinearPlan
from madl import assets
from madl.errors import MadlError, first_line, kind_and_line
from madl.logbook import benchmarks
from madl.machine.contention import GpuMeter
from madl.machine.timing import compare

NAME = "mxint8_cuda"
Call = Callable[[int], object]  # of one repetition, each on data of its own
Rows = list[dict[str, Any]]

GROUP, GROUPS = 32, (8, 16, 32, 64, 128, 256, 512)
SMALL, LARGE = 1 << 24, 1 << 28  # elements
SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008))  # (out, in) of a 7 B model
NUM_ROWS = (1, 4, 8, 16, 32, 64)
DTYPES = (torch.bfloat16, torch.float32)
SWEPT_ROWS = tuple(8 * tiles for tiles in mxint8_cuda.WIDE)  # that fill 1, 2, 4 and 8 tiles
SWEPT_BUDGET = 1 / 3  # of a variant's seconds
OUT_OF_CACHE_BYTES = 512 << 20
REPLAYS = 8  # of a graph in a row, at least


class Wrong(MadlError):
    """A kernel's result is not that of its definition, so that nothing of it is worth timing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The calls that take turns, and the bytes that each has to move."""

    calls: Mapping[str, Call]
    bytes_: Mapping[str, float]
    repetitions: int  # that leave the cache behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One thing to measure, such as the linear of one shape; pages find it by its `fields`."""

    name: str
    fields: Mapping[str, int | str]
    make: Callable[[], Variants]
    budget: float = 1.0  # times the seconds of a variant


@click.command(help=__doc__.splitlines()[0])
@budget(default=0.3, help="Seconds a variant.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    default=math.inf,
    metavar="MINUTES",
    help="Begin no new work after so many.",
)
@click.option("--publish", is_flag=True, help="Write the table of the site, after every work.")
def main(budget_s: float, within: float, publish: bool) -> None:
    end = time.monotonic() + 60 * within
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is visible to torch here; run this where one is")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a run that is cut off has said what it did
    torch.backends.cuda.matmul.allow_tf32 = False
    meter = GpuMeter.start()
    machine, peers = torch.cuda.get_device_name(), versions(meter)
    print(", ".join([machine, *(f"{name} {version}" for name, version in peers.items())]))
    check()

    def keep(rows: Rows) -> None:
        if publish:
            share = meter.share()
            benchmarks.publish(NAME, rows, machine=machine, peers=peers, contention=share)

    failed = run(works(), functools.partial(measure, budget_s=budget_s), keep, end_s=end)
    print(f"\nshare of the GPU that other processes used meanwhile: {meter.share()}")
    if failed:
        sys.exit(f"{len(failed)} failed: {'; '.join(failed)}")


def versions(meter: GpuMeter) -> dict[str, str]:
    """The versions of torch and its CUDA; the driver's where NVML is there."""
    known = {"torch": torch.__version__, "CUDA": str(torch.version.cuda)}
    if meter.nvml is not None:
        known["driver"] = str(meter.nvml.nvmlSystemGetDriverVersion())
    return known


def run(
    works: Iterable[Work],
    measure: Callable[[Work], Rows],
    keep: Callable[[Rows], object],
    *,
    end_s: float = math.inf,
) -> list[str]:
    """Measure the works in turn, keep all rows after each, and return the names of what failed.

    After `end_s` of the monotonic clock no work begins.

    Raises:
        Wrong: a kernel's result is wrong.
    """
    rows: Rows = []
    failed: list[str] = []
    every = list(works)
    for i, work in enumerate(every):
        if time.monotonic() >= end_s:
            print(f"\nthe time is over: {len(every) - i} works are left out, from {work.name} on")
            break
        try:
            new_rows = measure(work)
        except Wrong:
            raise
        except Exception as error:  # whatever it is, the others may go
            failed.append(work.name)
            print(f"\n{work.name}: failed, {kind_and_line(error)}")
            continue
        rows += new_rows
        print_speeds(work.name, new_rows)
        keep(rows)
    return failed


def measure(work: Work, budget_s: float) -> Rows:
    """Time a work: a row for each variant, see `benchmarks.timed_rows`, with bytes and fields."""
    torch.cuda.empty_cache()
    variants = work.make()
    calls = variants.repetitions * REPLAYS
    graphs = {name: captured(fn, variants.repetitions) for name, fn in variants.calls.items()}
    measured = compare(graphs, device="cuda", budget_s=work.budget * budget_s)
    samples = {name: [[s / calls for s in m.samples_s]] for name, m in measured.items()}
    return [
        {**row, **work.fields, "bytes": variants.bytes_[row["variant"]]}
        for row in benchmarks.timed_rows(work.name, samples)
    ]


def print_speeds(work: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how many times as fast as the first variant the others are, and GB/s of each."""
    base, *others = (benchmarks.arm(row, contention=0.0) for row in rows)
    rates = [
        f"{row['bytes'] / 1e9 / a.median_s:,.0f} GB/s" for row, a in zip(rows, (base, *others))
    ]
    print(f"\n{work}: {base.label} takes {base}, {rates[0]}")
    for arm, rate in zip(others, rates[1:]):
        print(f"  {arm.label:24s} {base / arm:i} as fast, {rate}")


# ---- works --------------------------------------------------------------------------------------


def works() -> Iterator[Work]:
    """All works to time, those of most worth first, as a deadline cuts off the end."""
    yield dequantize(LARGE, GROUP)
    for dtype, (num_out, num_in), rows in itertools.product(DTYPES, SHAPES, NUM_ROWS):
        yield linear(rows, num_out, num_in, dtype)
    yield from (dequantize(LARGE, group) for group in GROUPS if group != GROUP)
    yield dequantize(SMALL, GROUP)
    for (num_out, num_in), rows in itertools.product(SHAPES, SWEPT_ROWS):
        yield sweep(rows, num_out, num_in)


def dequantize(size: int, group: int) -> Work:
    return Work(
        name=f"dequantize {size >> 20} Mi elements, groups of {group}",
        fields={"kernel": "dequantize", "elements": size, "group": group},
        make=functools.partial(dequantize_calls, size, group),
    )


def linear(rows: int, num_out: int, num_in: int, dtype: torch.dtype) -> Work:
    name = str(dtype).removeprefix("torch.")
    return Work(
        name=f"linear {name}, {rows} × {num_in} by {num_in} × {num_out}",
        fields={"kernel": "linear", "rows": rows, "in": num_in, "out": num_out, "dtype": name},
        make=functools.partial(linear_calls, rows, num_out, num_in, dtype),
    )


def sweep(rows: int, num_out: int, num_in: int) -> Work:
    """The work of the linear in bfloat16 with each number of splits."""
    shape = {"rows": rows, "in": num_in, "out": num_out, "dtype": "bfloat16"}
    return Work(
        name=f"splits, {rows} × {num_in} by {num_in} × {num_out}",
        fields={"kernel": "splits", **shape},
        make=functools.partial(sweep_calls, rows, num_out, num_in),
        budget=SWEPT_BUDGET,
    )


# ---- paths --------------------------------------------------------------------------------------


def use(path: str) -> Route:
    """Have our operators take this path from now on; returns the route that they take then."""
    os.environ["MADL_CUDA_KERNELS"] = path
    build_cuda.load.cache_clear()
    return mxint8_cuda.route(torch.cuda.current_device())


def by(path: str, call: Call) -> Call:
    """The call, by that path: it is chosen while a graph is captured, and stays in it."""

    def switched(i: int) -> object:
        if os.environ.get("MADL_CUDA_KERNELS") != path:
            use(path)
        return call(i)

    return switched


@functools.cache
def usable_paths() -> list[str]:
    """The compilers whose kernels run here; if none, "auto", for kernels compiled elsewhere.

    Torch's path is not timed: it writes the weight out, and so slow a variant would leave the
    others few calls a sample.

    Raises:
        MadlError: no kernel runs here.
    """
    usable: list[str] = []
    for path in ("nvcc", "nvrtc", "auto"):
        if path == "auto" and usable:
            break
        try:
            needs_cubin(use(path))
            needs_cubin(mxint8_cuda.route(torch.cuda.current_device(), mxint8_cuda.LINEAR))
            linear_error(1, torch.bfloat16)
        except (MadlError, RuntimeError) as error:
            print(f"not run here: the kernels by {path} ({first_line(error)})")
        else:
            usable.append(path)
    if not usable:
        raise MadlError("no CUDA kernel of ours runs here; the lines above say why")
    return usable


def needs_cubin(route: Route) -> None:
    """Check that a kernel computes on this route. Raises: MadlError: torch does."""
    if route.cubin is None:
        raise MadlError(route.reason)


@functools.cache
def cute_include() -> tuple[Path, ...]:
    """The folders of CuTe's headers; none, if the tile cannot be compiled or launched here."""
    try:
        include = assets.cute_include()
        device = torch.cuda.current_device()
        needs_cubin(mxint8_cuda.route(device, mxint8_cuda.TILE, include=include))
        mantissas, scales = every_code()
        mxint8_cuda.dequantize_by_tile(mantissas.cuda(), scales.cuda(), 256, include=include)
    except (MadlError, OSError, RuntimeError) as error:
        print(f"not run here: the CuTe tile ({first_line(error)})")
        return ()
    return include


# ---- correctness --------------------------------------------------------------------------------


def check() -> None:
    """Check every pair of mantissa and scale, and the linear against float64, on each path.

    Raises:
        Wrong: a result differs.
    """
    mantissas, scales = (codes.cuda() for codes in every_code())
    for path in usable_paths():
        use(path)
        bad = wrong_codes(mxint8_cuda.dequantize(mantissas, scales, 256))
        worst = max(linear_error(rows, dtype) for rows in NUM_ROWS for dtype in DTYPES)
        print(f"{path:8s} wrong codes {bad} of 65536, linear's worst error {worst:.1e} of terms")
        if bad or not worst < 1e-5:  # which no NaN is
            raise Wrong(f"the kernels by {path} are wrong; nothing is timed")
    use("auto")
    if include := cute_include():
        values = mxint8_cuda.dequantize_by_tile(mantissas, scales, 256, include=include)
        if bad := wrong_codes(values):
            raise Wrong(f"the CuTe tile has {bad} wrong codes of 65536; nothing is timed")


def every_code() -> tuple[Tensor, Tensor]:
    """All mantissas with all scales, a row for each scale: (256, 256) and (256, 1)."""
    mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1)
    return mantissas, torch.arange(256).to(torch.uint8)[:, None]


def wrong_codes(values: Tensor) -> int:
    """How many of the values that were made of `every_code` are wrong; a NaN equals a NaN."""
    expected = mxint8.dequantize(*every_code(), 256)
    return int((~torch.isclose(values.cpu(), expected, rtol=0, atol=0, equal_nan=True)).sum())


def linear_error(rows: int, dtype: torch.dtype) -> float:
    """The error, as `error_of` has it, of our linear on random data of so many rows."""
    packed = weight(1000, 1040, 16, seed=rows)
    x = torch.randn(rows, 1040, device="cuda").to(dtype)
    return error_of(mxint8_cuda.linear(x, *packed, None, 16), x, *packed, 16)


def error_of(y: Tensor, x: Tensor, mantissas: Tensor, scales: Tensor, group: int) -> float:
    """The largest error beyond y's rounding to bfloat16, over the sum of its terms' magnitudes."""
    dense = mxint8.values(mantissas, scales, group).double()
    exact, terms = x.double() @ dense.t(), x.double().abs() @ dense.abs().t()
    rounding = 2**-8 if y.dtype is torch.bfloat16 else 0
    return float((((y.double() - exact).abs() - rounding * exact.abs()) / terms).max())


def weight(
    num_out: int, num_in: int, group: int, *, seed: int = 0, device: str = "cuda"
) -> tuple[Tensor, Tensor]:
    """Random mantissas (num_out, num_in) and scales of groups of each row."""
    draw = functools.partial(
        torch.randint, generator=torch.Generator(device).manual_seed(seed), device=device
    )
    mantissas = draw(-127, 128, (num_out, num_in), dtype=torch.int8)
    return mantissas, draw(112, 124, (num_out, -(-num_in // group)), dtype=torch.uint8)


# ---- what is timed ------------------------------------------------------------------------------


def captured(call: Call, repetitions: int) -> Callable[[], None]:
    """A function that replays a CUDA graph of so many calls: none pays for Python's launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(min(repetitions, 3)):  # loads modules, tunes libraries
            call(i)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # all results live until the end, or each would be written where the last one was, in cache
        results = [call(i) for i in range(repetitions)]
    del results

    def replayed() -> None:
        for _ in range(REPLAYS):
            graph.replay()

    return replayed


def dequantize_calls(size: int, group: int) -> Variants:
    """A copy that reads and writes as many bytes altogether, and ours by each path."""
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
        calls["CuTe tile"] = by("auto", lambda i: by_tile(*flat[i], group, include=include))
    return Variants(calls=calls, bytes_=dict.fromkeys(calls, bytes_), repetitions=repetitions)


def linear_calls(num_rows: int, num_out: int, num_in: int, dtype: torch.dtype) -> Variants:
    """cuBLAS in the input's type, ours by each path, and cuBLAS in float16 beside bfloat16."""
    packed = weights(num_out, num_in)
    dense = [mxint8.values(m, s, GROUP).to(dtype) for m, s in packed]
    x = torch.randn(num_rows, num_in, device="cuda", dtype=dtype)
    calls = {"cuBLAS": cublas(x, dense)}
    for path in usable_paths():
        calls[f"ours, {path}"] = by(path, lambda i: mxint8_cuda.linear(x, *packed[i], None, GROUP))
    if dtype is torch.bfloat16:
        calls["cuBLAS float16"] = cublas(x.half(), [w.half() for w in dense])
    sizes = {name: 1 + 1 / GROUP if name.startswith("ours") else x.itemsize for name in calls}
    bytes_ = {n: linear_bytes(num_rows, num_out, num_in, x.itemsize, a) for n, a in sizes.items()}
    return Variants(calls=calls, bytes_=bytes_, repetitions=len(packed))


def weights(num_out: int, num_in: int) -> list[tuple[Tensor, Tensor]]:
    """Random weights, so many that the first has left the cache when its turn comes again."""
    count = -(-OUT_OF_CACHE_BYTES // (num_out * num_in))
    return [weight(num_out, num_in, GROUP, seed=i) for i in range(count)]


def linear_bytes(rows: int, num_out: int, num_in: int, itemsize: int, weight: float) -> float:
    """The bytes of x, y and the weight, each moved once.

    `itemsize` and `weight` are the bytes of one value of x and y, and of the weight.
    """
    return rows * (num_in + num_out) * itemsize + num_in * num_out * weight


def cublas(x: Tensor, weights: list[Tensor]) -> Call:
    """Torch's linear, its i-th call by the i-th of the weights."""
    return lambda i: F.linear(x, weights[i])


# ---- the linear by splits -----------------------------------------------------------------------


def sweep_calls(num_rows: int, num_out: int, num_in: int) -> Variants:
    """The linear as planned, and in each number of splits, all checked first.

    Raises:
        Wrong: a result is wrong.
    """
    packed, path = weights(num_out, num_in), usable_paths()[0]
    x = torch.randn(num_rows, num_in, device="cuda", dtype=torch.bfloat16)
    calls = {"as planned": by(path, lambda i: mxint8_cuda.linear(x, *packed[i], None, GROUP))}
    for plan in plans(num_rows, num_out, num_in, mxint8_cuda.gpu(x.device.index)):
        name = f"splits {plan.grid[1]}"
        calls[name] = by(path, lambda i, plan=plan: linear_by(plan, x, *packed[i]))
    for name, multiply in calls.items():
        y = multiply(0)
        assert isinstance(y, Tensor)
        if not error_of(y, x, *packed[0], GROUP) < 1e-5:
            raise Wrong(f"the linear is wrong: {num_rows} × {num_in} × {num_out}, {name}")
    bytes_ = linear_bytes(num_rows, num_out, num_in, x.itemsize, 1 + 1 / GROUP)
    return Variants(calls=calls, bytes_=dict.fromkeys(calls, bytes_), repetitions=len(packed))


def plans(num_rows: int, num_out: int, num_in: int, gpu: mxint8_cuda.Gpu) -> list[LinearPlan]:
    """The different plans that there are of 1 to `MAX_CLUSTER` splits."""
    plan = functools.partial(mxint8_cuda.linear_plan, num_rows, num_in, num_out, is_float=False)
    every = (plan(gpu=gpu, splits=n) for n in range(1, mxint8_cuda.MAX_CLUSTER + 1))
    return list({plan.grid: plan for plan in every}.values())


def linear_by(plan: LinearPlan, x: Tensor, mantissas: Tensor, scales: Tensor) -> Tensor:
    """Our linear by this plan, in groups of `GROUP`."""
    y = x.new_empty(len(x), len(mantissas))
    cubin = mxint8_cuda.route(x.device.index, mxint8_cuda.LINEAR).cubin
    mxint8_cuda._launch_linear(cubin, x, mantissas, scales, None, y, GROUP, plan=plan)
    return y


if __name__ == "__main__":
    call(main, stopped="with --publish, the works that were done are published")
