"""Timing of calls: first call and warm-up apart, synchronized, interleaved, raw samples kept.

`compare` times every variant once in every round, so that a drift of the machine (clock, heat,
neighbours) falls on all of them alike and their ratio survives it. The order within a round is
shuffled: a variant that always follows the same one would inherit what that one left in the cache.
All variants have the same number of calls per sample: from the second call in a row on, inputs are
in the cache.

A CPU sample is read from `perf_counter`, a CUDA sample from two events around the calls, read after
a synchronization; they include the launches, as a caller sees them.

Units: seconds per call; `peak_bytes` is what torch's allocator held at most during one call, above
what it held before; contention is a share, 0…1.
Not handled: clocks of a GPU without `nvidia-smi`, its contention without NVML; they are None.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from madl.machine import fresh
from madl.machine.contention import contention_meter
from madl.machine.device import clock_mhz, num_cores
from madl.machine.memory import peak_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

Call = Callable[[], object]
Inside = Callable[[], AbstractContextManager[object]]
PROCESSES = 5  # that a comparison times: their medians give its interval
WARMUP_CALLS = 2  # after the first call, none of them a sample
DISTURBED = 1.5  # a sample this many times the median was interrupted by something


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The work that was timed, described after one call of it: for readers, and for `lint`."""

    dtype: str
    shape: str
    training: bool | None  # whether a module was in training mode; None: there is no module
    records_gradient: bool  # whether the result carries a graph for a backward pass
    is_training_step: bool = False  # the backward pass is part of the work, so a graph is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Samples of one variant; each sample is the mean of `calls_per_sample` calls in a row."""

    samples_s: list[float]
    calls_per_sample: int
    first_call_s: float | None = None  # None: it is not known, for it is among the samples
    clock: str
    result_on: str | None  # the device that a call's result lies on; None: it returns no tensor
    unfinished: int | None  # samples read while the device still worked; None: it was not asked
    peak_bytes: int | None = None
    warmup_s: list[float] = field(default_factory=list[float])
    device: str  # whose clock was read
    threads: int
    cores: int  # that this process may use
    turns: int  # how often another variant was timed between two of these samples
    compilations: int  # of torch.compile, while samples were taken
    clock_mhz: list[float] | None = None  # before and after
    contention: float | None  # while all variants were sampled, so the same for all
    subject: Subject | None = None

    @property
    def median_s(self) -> float:
        return float(np.median(self.samples_s))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    fns: Mapping[str, Call],
    *,
    device: str = "cpu",
    budget_s: float = 1.0,
    min_samples: int = 10,
    min_sample_s: float = 1e-3,
    memory: bool = False,
    subjects: Mapping[str, Subject] | None = None,
    inside: Mapping[str, Inside] | None = None,
) -> dict[str, Measurement]:
    """Time variants interleaved: at least `min_samples` rounds, and for `budget_s` per variant.

    `fns` are the variants by name; their results are dropped, so check them before. A sample is the
    mean of as many calls in a row, the same for all variants, as make the slowest one take
    `min_sample_s`. `memory` measures the peak of one call, outside the samples; on a CPU that costs
    some time. `inside` makes the context that a variant is called in; entering and leaving it is
    not timed. `subjects` are kept in the measurements.
    """
    stopwatch = stopwatch_of(device)
    contexts = {name: (inside or {}).get(name, nullcontext) for name in fns}
    known: dict[str, dict[str, Any]] = {}
    for name, fn in fns.items():
        with contexts[name]():
            known[name] = {
                "first_call_s": stopwatch.first(fn),
                "result_on": _device_of(fn()),
                "warmup_s": [stopwatch.sample(fn, 1) for _ in range(WARMUP_CALLS)],
                "peak_bytes": peak_bytes(fn, device) if memory or device == "cuda" else None,
            }
    slowest_s = max((min(facts["warmup_s"]) for facts in known.values()), default=1.0)
    calls = max(1, round(min_sample_s / max(slowest_s, 1e-9)))
    meter = contention_meter(device)
    mhz, compiled = clock_mhz(device), _compilations()
    samples: list[_Sample] = []
    shuffle = random.Random(os.getpid())
    end = time.perf_counter() + budget_s * len(fns)
    while len(samples) < min_samples * len(fns) or time.perf_counter() < end:
        for name in shuffle.sample(list(fns), len(fns)):
            with contexts[name]():
                seconds = stopwatch.sample(fns[name], calls)
            samples.append(_Sample(name, seconds, stopwatch.finished()))
    common = {
        "device": device,
        "clock": stopwatch.clock,
        "compilations": _compilations() - compiled,
        "clock_mhz": [mhz for mhz in (mhz, clock_mhz(device)) if mhz is not None] or None,
        "contention": contention(meter.share(), [_seconds(samples, name) for name in fns]),
    }
    return {
        name: _measurement(
            samples,
            name,
            calls_per_sample=calls,
            subject=(subjects or {}).get(name),
            **known[name],
            **common,
        )
        for name in fns
    }


def naive(fn: Call, *, device: str, calls: int) -> Measurement:
    """Time a function with the common mistakes, on purpose, to be shown beside `compare`.

    Nothing warms up, the first call is one of the samples, and a CPU's clock is that of the wall.
    On CUDA each call is timed rightly, between two events, after the second of which it waits.
    """
    meter, compiled = contention_meter(device), _compilations()
    stopwatch = _CudaStopwatch() if device == "cuda" else Stopwatch("time", time.time)
    result: object = None

    def keep() -> None:
        nonlocal result
        result = fn()

    samples = [_Sample("", stopwatch.sample(keep, 1), stopwatch.finished()) for _ in range(calls)]
    return _measurement(
        samples,
        "",
        calls_per_sample=1,
        clock=stopwatch.clock,
        device=device,
        result_on=_device_of(result),
        compilations=_compilations() - compiled,
        contention=meter.share(),
    )


class _Sample(NamedTuple):
    """One sample of any variant, in seconds per call."""

    name: str
    seconds: float
    finished: bool | None  # whether the device had nothing left to do when the clock was read


def _seconds(samples: Iterable[_Sample], name: str) -> list[float]:
    """The samples of one variant, in seconds per call."""
    return [sample.seconds for sample in samples if sample.name == name]


def _measurement(samples: Sequence[_Sample], name: str, **facts: Any) -> Measurement:
    """The measurement of one variant, out of all samples in order; `facts` are its other fields."""
    places = [i for i, sample in enumerate(samples) if sample.name == name]
    finished = [samples[i].finished for i in places]
    torch: Any = sys.modules.get("torch")
    return Measurement(
        samples_s=_seconds(samples, name),
        unfinished=None if None in finished else finished.count(False),
        threads=torch.get_num_threads() if torch else 1,
        cores=num_cores(),
        turns=sum(b > a + 1 for a, b in pairwise(places)),
        **facts,
    )


def over_processes(
    function: str,
    argument: Mapping[str, Any],
    *,
    processes: int = PROCESSES,
    keep_caches: bool = False,
) -> dict[str, Any]:
    """Call a function that measures in several new processes (`fresh.call`), one after the other.

    It gets its process's number as argument `process`, and returns `measurements` by variant beside
    other values. Returned are the first process's values, with a list of `measurements`, one per
    process, for each variant that ran in all. A process without `measurements` ends it: its result
    is returned. `keep_caches` lets later processes load what the first one compiled.
    """
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="madl-caches-") as folder:
        caches = Path(folder) if keep_caches else None
        for i in range(processes):
            results.append(fresh.call(function, {**argument, "process": i}, caches=caches))
            if "measurements" not in results[-1]:
                return results[-1]
    runs = [result["measurements"] for result in results]
    in_all = [name for name in runs[0] if all(name in run for run in runs)]
    return {**results[0], "measurements": {name: [run[name] for run in runs] for name in in_all}}


def observe(fn: Call, inputs: Sequence[Any], *, module: "nn.Module | None" = None) -> Subject:
    """Call `fn` once and describe the work; `inputs` are the tensors that give dtype and shape."""
    result = fn()
    parameters = [] if module is None else [next(module.parameters())]
    floating = [t for t in (*inputs, *parameters) if t.is_floating_point()]
    return Subject(
        dtype=str(floating[0].dtype).removeprefix("torch.") if floating else "integer",
        shape=", ".join("×".join(map(str, tensor.shape)) for tensor in inputs),
        training=None if module is None else any(m.training for m in module.modules()),
        records_gradient=any(tensor.requires_grad for tensor in _tensors(result)),
    )


def _device_of(result: object) -> str | None:
    """The device type (`cpu`, `cuda`) of a result's first tensor; None: it has no tensor."""
    return next((str(tensor.device.type) for tensor in _tensors(result)), None)


def _tensors(result: object) -> "list[Tensor]":
    """All tensors in a result: itself, or those in a collection or in a model's output."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def contention(load: float | None, variants_s: Iterable[Sequence[float]]) -> float | None:
    """The larger of two signs: others' share of the device, and the share of disturbed samples.

    `load`, others' share, misses what a neighbour on the same host takes; `variants_s`, the samples
    of each variant, show it as stragglers. Unknown load stays None, whatever the samples show.
    """
    late = [s > DISTURBED * np.median(samples_s) for samples_s in variants_s for s in samples_s]
    if load is None or len(late) < 5:
        return load
    return round(max(load, float(np.mean(late))), 3)


def _compilations() -> int:
    """The number of graphs that torch.compile has made in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0


# ---- clocks -------------------------------------------------------------------------------------


class Stopwatch:
    """A clock for calls that are done when they return, as a CPU's are."""

    def __init__(self, clock: str, read: Callable[[], float]) -> None:
        self.clock, self.read = clock, read

    def first(self, fn: Call) -> float:
        """Seconds that a function's first call takes."""
        return self.sample(fn, 1)

    def sample(self, fn: Call, calls: int) -> float:
        """Seconds per call, the mean of several in a row."""
        start = self.read()
        for _ in range(calls):
            fn()
        return (self.read() - start) / calls

    def finished(self) -> bool | None:
        """Whether the device has nothing left to do; None: not asked, as on a CPU a call waits."""


class _CudaStopwatch(Stopwatch):
    """Events on the current stream; `perf_counter` for a first call, which uses the CPU too."""

    def __init__(self) -> None:
        import torch

        super().__init__("cuda events", time.perf_counter)
        self.cuda: Any = torch.cuda
        self.start: Any = torch.cuda.Event(enable_timing=True)
        self.end: Any = torch.cuda.Event(enable_timing=True)

    def first(self, fn: Call) -> float:
        self.cuda.synchronize()
        start = self.read()
        fn()
        self.cuda.synchronize()
        return self.read() - start

    def sample(self, fn: Call, calls: int) -> float:
        self.cuda.synchronize()
        self.start.record()
        for _ in range(calls):
            fn()
        self.end.record()
        self.cuda.synchronize()
        return float(self.start.elapsed_time(self.end)) / 1e3 / calls  # it is in milliseconds

    def finished(self) -> bool:
        return bool(self.cuda.current_stream().query())


def stopwatch_of(device: str) -> Stopwatch:
    return _CudaStopwatch() if device == "cuda" else Stopwatch("perf_counter", time.perf_counter)
