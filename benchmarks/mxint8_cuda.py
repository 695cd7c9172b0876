"""MXINT8 on a CUDA GPU: dequantize ÷ copy of the same bytes, and the linear against cuBLAS.

    python cli.py bench mxint8_cuda [check] [dequantize] [linear] [--budget-s 0.3] [--publish]

Correctness first, on every path that this machine has: nothing is timed that is wrong. Each variant
is captured into a CUDA graph of as many calls as it takes to leave the L2 cache behind (another
weight each time), so neither Python's launches nor a warm cache are measured; graphs take turns
(`madl.machine.timing.compare`). Peers beside us: a copy; cuBLAS float32 (no TF32), bfloat16 and
float16; Triton; plain torch; torchao's MX dequantize and int8 weight-only linear, GemLite's and
Humming's, each where it can be imported and works. What did not run is named, with the reason.

Results are written after each shape; one that fails is named and keeps no other from its turn.

Targets: dequantize at 90 % of a copy's bandwidth; the linear, M = 1 … 16, 1.7 times as fast as
cuBLAS bfloat16 and 3.4 times as float32. Its limits are 1.94 and 3.88, the ratio of the bytes.
Needs: torch 2.11 or later with CUDA; nvcc or NVRTC (with torch's CUDA packages) or Triton; for the
tile, CuTe's headers, fetched through pip.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks._command import call, seconds
from benchmarks.formats import print_ratios
from kernels import build_cuda, mxint8, mxint8_cuda
from madl import assets
from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.machine import device
from madl.machine.contention import ContentionMeter
from madl.machine.timing import Measurement, compare

Call = Callable[[int], object]  # of one repetition, each on data of its own
Rows = list[dict[str, Any]]

GROUPS = (8, 16, 32, 64, 128, 256, 512)
SIZES = (1 << 24, 1 << 28)
SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008))  # (out, in) of a 7 B model
NUM_ROWS = (1, 4, 8, 16, 32, 64)
OUT_OF_CACHE_BYTES = 512 << 20
PARTS = ("check", "dequantize", "linear")
PEERS = ("torch", "triton", "torchao", "gemlite", "humming-kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument("--budget-s", type=seconds, default=0.3, help="seconds per variant")
    parser.add_argument("--publish", action="store_true", help="write the records of the site")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is visible to torch here; run this where one is")
    torch.backends.cuda.matmul.allow_tf32 = False
    print_machine()
    todo = works(arguments.parts or PARTS, arguments.budget_s)
    run_works(todo, is_published=arguments.publish)


NOT_RUN: dict[str, str] = {}  # peer → why


def works(parts: Sequence[str], budget_s: float) -> dict[str, Callable[[], Rows]]:
    """What there is to do, by name: some seconds each."""
    found: dict[str, Callable[[], Rows]] = {"check": check}
    if "dequantize" in parts:
        for size in SIZES:
            for group in GROUPS if size == SIZES[-1] else (32,):
                work = f"dequantize {size >> 20} Mi elements, groups of {group}"
                found[work] = functools.partial(dequantize_rows, work, size, group, budget_s)
    if "linear" in parts:
        for shape in SHAPES:
            for rows in NUM_ROWS:
                for dtype in (torch.bfloat16, torch.float32):
                    name = str(dtype).removeprefix("torch.")
                    work = f"linear {name}, {rows} × {shape[1]} by {shape[1]} × {shape[0]}"
                    found[work] = functools.partial(linear_rows, work, rows, shape, dtype, budget_s)
    return found


def run_works(todo: Mapping[str, Callable[[], Rows]], *, is_published: bool) -> None:
    done: Rows = []
    failed: dict[str, str] = {}
    meter = ContentionMeter.start()
    for work, make in todo.items():
        print(f"\n{work}", flush=True)
        try:
            done += make()
            torch.cuda.empty_cache()
        except AssertionError:  # what is wrong is not timed
            raise
        except Exception as error:
            failed[work] = str(error).strip().partition("\n")[0]
            print(f"  failed: {failed[work]}", flush=True)
        if is_published:
            benchmarks.publish(
                "mxint8_cuda",
                done,
                machine=os.environ.get("MADL_HOST") or torch.cuda.get_device_name(),
                peers=PEERS,
                contention=meter.share(),
                cpu=device.cpu_name(),
                cuda=torch.version.cuda,
                nvcc=build_cuda.find_nvcc() is not None,
                not_run=NOT_RUN,
                failed=failed,
            )
    for peer, why in NOT_RUN.items():
        print(f"not run here: {peer} ({why})")
    for work, why in failed.items():
        print(f"failed: {work} ({why})")


def print_machine() -> None:
    properties = torch.cuda.get_device_properties(0)
    gib = properties.total_memory >> 30
    print(f"{properties.name}, sm_{properties.major}{properties.minor}, {gib} GiB")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, nvcc: {build_cuda.find_nvcc()}")


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
        and (path != "triton" or build_cuda._has_triton())
    ]
    use("auto")
    return found


@functools.cache
def cute_include() -> tuple[Path, ...]:
    try:
        found = assets.cute_include()
        way = mxint8_cuda.route(torch.cuda.current_device(), mxint8_cuda.TILE, include=found)
        if way.cubin is None:
            raise MadlError(way.reason)
    except MadlError as error:
        NOT_RUN["ours, CuTe tile"] = str(error)
        return ()
    return found


# ---- correctness --------------------------------------------------------------------------------


def check() -> Rows:
    """Every pair of mantissa and scale, and the linear against float64, on each path."""
    rows: Rows = []
    mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1)
    scales = torch.arange(256).to(torch.uint8)[:, None]
    expected = mxint8.dequantize(mantissas, scales, 256)
    for path in usable_paths():
        use(path)
        got = mxint8_cuda.dequantize(mantissas.cuda(), scales.cuda(), 256).cpu()
        wrong = int((~(got == expected) & ~(got.isnan() & expected.isnan())).sum())
        worst = max(linear_error(rows) for rows in NUM_ROWS)
        row = {"work": "check", "path": path, "wrong_codes": wrong, "worst_error": worst}
        rows.append(row)
        print(f"{path:8s} wrong codes {wrong} of 65536, linear's worst error {worst:.1e} of terms")
        assert wrong == 0, path
        assert worst < 1e-5, path
    use("auto")
    return rows


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


# ---- timing -------------------------------------------------------------------------------------


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


def timed(calls: Mapping[str, Call], repetitions: int, budget_s: float) -> dict[str, Measurement]:
    graphs = {name: captured(call, repetitions) for name, call in calls.items()}
    return compare(graphs, device="cuda", budget_s=budget_s)


def rows_of(work: str, measured: Mapping[str, Measurement], repetitions: int) -> Rows:
    """In the form of all benchmarks, shown as ratios to the first variant."""
    samples = {name: [[s / repetitions for s in m.samples_s]] for name, m in measured.items()}
    rows = benchmarks.timed(work, samples)
    print_ratios(work, rows)
    return rows


# ---- dequantize ---------------------------------------------------------------------------------


def dequantize_rows(work: str, size: int, group: int, budget_s: float) -> Rows:
    """The share of a copy's bandwidth: a copy that reads and writes as many bytes altogether."""
    calls, repetitions = dequantize_calls(size, group, cute_include())
    measured = timed(calls, repetitions, budget_s)
    gb_s = total_bytes(size, group) * repetitions / measured["copy"].median_s / 1e9
    print(f"  a copy moves {gb_s:.0f} GB/s")
    return rows_of(work, measured, repetitions)


def total_bytes(size: int, group: int) -> int:
    return 3 * size + size // group


def dequantize_calls(
    size: int, group: int, include: tuple[Path, ...]
) -> tuple[dict[str, Call], int]:
    bytes_ = total_bytes(size, group)
    repetitions = max(1, min(8, OUT_OF_CACHE_BYTES // bytes_))
    data = [weight(size // 4096, 4096, group, seed=i) for i in range(repetitions)]
    flat = [(m.view(-1), s.view(-1)) for m, s in data]
    sources = [torch.empty(bytes_ // 2, dtype=torch.uint8, device="cuda") for _ in flat]
    targets = [torch.empty_like(source) for source in sources]
    calls: dict[str, Call] = {"copy": lambda i: targets[i].copy_(sources[i])}
    for path in usable_paths():
        calls[f"ours, {path}"] = by(path, lambda i: mxint8_cuda.dequantize(*flat[i], group))
    if include:
        by_tile = mxint8_cuda.dequantize_by_tile
        calls["ours, CuTe tile"] = by("auto", lambda i: by_tile(*flat[i], group, include=include))
    return calls | dequantize_peers(data, group), repetitions


def dequantize_peers(data: list[tuple[Tensor, Tensor]], group: int) -> dict[str, Call]:
    """torchao has no MXINT8; its MXFP8 moves as many bytes."""
    if group != 32:
        return {}

    def torchao() -> Call:
        from torchao.prototype.mx_formats.mx_tensor import to_dtype

        e4m3, e8m0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
        fp8 = [(m.view(e4m3), s.view(e8m0)) for m, s in data]
        return lambda i: to_dtype(*fp8[i], e4m3, 32, torch.bfloat16)

    return working({"torchao MXFP8 to_dtype": torchao})


def working(peers: Mapping[str, Callable[[], Call]]) -> dict[str, Call]:
    """Those that can be imported and called; a library of others may fail in any way it likes."""
    found: dict[str, Call] = {}
    for name, make in peers.items():
        if name in NOT_RUN:  # it may have left a capture behind that no other survives
            continue
        try:
            call = make()
            captured(call, 1)()
            torch.cuda.synchronize()
        except Exception as error:
            lines = str(error).strip().splitlines() or ["no message"]
            NOT_RUN[name] = f"{type(error).__name__}: {lines[0]}"
        else:
            found[name] = call
    return found


# ---- the linear ---------------------------------------------------------------------------------


def linear_rows(
    work: str, num_rows: int, shape: tuple[int, int], dtype: torch.dtype, budget_s: float
) -> Rows:
    calls, repetitions = linear_calls(num_rows, *shape, dtype)
    measured = timed(calls, repetitions, budget_s)
    return rows_of(work, measured, repetitions)


def linear_calls(
    num_rows: int, num_out: int, num_in: int, dtype: torch.dtype
) -> tuple[dict[str, Call], int]:
    repetitions = -(-OUT_OF_CACHE_BYTES // (num_out * num_in))
    packed = [weight(num_out, num_in, 32, seed=i) for i in range(repetitions)]
    dense = [mxint8.values(m, s, 32).to(dtype) for m, s in packed]
    x = torch.randn(num_rows, num_in, device="cuda", dtype=dtype)
    calls: dict[str, Call] = {"cuBLAS": lambda i: F.linear(x, dense[i])}
    for path in usable_paths():
        calls[f"ours, {path}"] = by(path, lambda i: mxint8_cuda.linear(x, *packed[i], None, 32))
    if dtype is torch.float32:
        return calls, repetitions
    return calls | working(linear_peers(x, dense)), repetitions


def linear_peers(x: Tensor, dense: list[Tensor]) -> dict[str, Callable[[], Call]]:
    """What else multiplies by these weights, and how each is made ready."""
    num_out, num_in = dense[0].shape

    def cublas(dtype: torch.dtype) -> Call:
        left, weights = x.to(dtype), [w.to(dtype) for w in dense]
        return lambda i: F.linear(left, weights[i])

    def layers() -> list[torch.nn.Linear]:
        empty = functools.partial(torch.nn.Linear, num_in, num_out, bias=False, device="meta")
        found = [empty(dtype=x.dtype) for _ in dense]
        for layer, w in zip(found, dense):
            layer.weight = torch.nn.Parameter(w.clone(), requires_grad=False)
        return found

    def torchao() -> Call:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        made = layers()
        for layer in made:
            quantize_(layer, Int8WeightOnlyConfig())
        torch._dynamo.reset()  # what earlier shapes have compiled counts towards a limit
        compiled: Any = torch.compile(lambda layer: layer(x), dynamic=False)
        compiled(made[0])
        return lambda i: compiled(made[i])

    def gemlite() -> Call:
        from gemlite import helper  # pyright: ignore

        kind = getattr(helper, "A16W8_INT8", None) or helper.A16W8
        made = [kind(device="cuda:0", dtype=x.dtype).from_linear(layer) for layer in layers()]
        return lambda i: made[i](x)

    def humming() -> Call:  # with weights of its own: as many bytes, and nothing is compared
        from humming.layer import HummingLayer  # pyright: ignore
        from humming.tune import get_heuristics_config  # pyright: ignore
        from humming.utils.test import random_fill_tensor  # pyright: ignore

        given = {"dtype": "int8", "group_size": 32, "scale_dtype": "float8e8m0"}
        made: list[Any] = []
        for _ in dense:
            layer: Any = HummingLayer(
                shape_n=num_out,
                shape_k=num_in,
                weight_config=given,
                input_config={"dtype": str(x.dtype).removeprefix("torch."), "group_size": 0},
                torch_dtype=x.dtype,
            ).to("cuda:0")
            for tensor in layer.parameters():
                random_fill_tensor(tensor)
            layer.transform()
            made.append(layer)
        tuned = get_heuristics_config(meta=made[0].humming_metas[""])
        return lambda i: made[i](inputs=x, tuning_config=tuned)

    return {
        "cuBLAS float16": lambda: cublas(torch.float16),
        "cuBLAS float32": lambda: cublas(torch.float32),
        "torchao int8 weight-only, compiled": torchao,
        "GemLite int8 weight-only": gemlite,
        "Humming int8, groups of 32": humming,
    }


if __name__ == "__main__":
    call(main)
