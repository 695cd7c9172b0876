"""The only clock: first call apart, warm-up apart, synchronized, interleaved, raw samples kept.

`compare` times every variant once in every round, so that a drift of the machine (clock, heat,
neighbours) falls on all of them alike and their ratio survives it. The order within a round is
shuffled: a variant that always follows the same one would inherit what that one left in the cache.
A sample has as many calls in a row of each: a second call finds its inputs in the cache.

A CPU sample is read from `perf_counter`, a CUDA sample from two events around the calls, read after
a synchronization; they include the launches, as a caller sees them.

Units: seconds per call; `peak_bytes` is what torch's allocator held at most during one call, above
what it held before; contention is a share, 0…1.
Not handled: clocks of a GPU without `nvidia-smi`, its contention without NVML; they are None.
"""

import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from madl.machine import fresh
from madl.machine.contention import contention_meter
from madl.machine.device import clock_mhz, num_cores
from madl.machine.memory import peak_bytes

if TYPE_CHECKING:
    from torch import nn

Call = Callable[[], object]
Inside = Callable[[], AbstractContextManager[object]]
PROCESSES = 5  # whose medians give a verdict its interval
BATCHES = 5  # in which work is set up anew; as many as the verdict's interval takes apart
WARMUP_CALLS = 2  # after the first call, none of them a sample
DISTURBED = 1.5  # a sample this many times the median was interrupted by something


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was timed, observed from one call of it: for the reader, and for the linter."""

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
    first_call_s: float | None  # None: it is not known, for it is among the samples
    clock: str
    result_on: str | None  # the device that a call's result lies on; None: it returns no tensor
    unfinished: int | None  # samples read while the device still worked; None: it was not asked
    peak_bytes: int | None
    warmup_s: list[float]
    device: str  # whose clock was read
    threads: int
    cores: int  # that this process may use
    turns: int  # how often another variant was timed between two of these samples
    compilations: int  # of torch.compile, while samples were taken
    clock_mhz: list[float] | None  # before and after
    contention: float | None  # of the process while all variants were sampled, so the same for all
    subject: Subject | None

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
    renew: Callable[[], Mapping[str, Call]] | None = None,
    inside: Mapping[str, Inside] | None = None,
) -> dict[str, Measurement]:
    """Time variants interleaved: at least `min_samples` rounds, more while the budget lasts.

    The functions take no argument and their results are dropped: check them before timing them.
    A sample is as many calls in a row as make the slowest variant's last `min_sample_s`, of every
    variant alike. `memory` takes the peak of one call, which on a CPU runs under the profiler and
    so costs some time, outside the samples. `renew` gives the same functions on tensors that lie
    elsewhere: where memory happens to lie makes a few per cent, so an interval that is to hold for
    the next run as well needs several such places. `inside` makes the context that a variant is
    called in; entering and leaving it is not timed.
    """
    stopwatch = stopwatch_of(device)
    first: dict[str, float] = {}
    warmup: dict[str, list[float]] = {}
    lies_on: dict[str, str | None] = {}
    peaks: dict[str, int | None] = {}
    contexts = {name: (inside or {}).get(name, nullcontext) for name in fns}
    for name, fn in fns.items():
        with contexts[name]():
            first[name] = stopwatch.first(fn)
            lies_on[name] = _device_of(fn())
            warmup[name] = [stopwatch.sample(fn, 1) for _ in range(WARMUP_CALLS)]
            peaks[name] = peak_bytes(fn, device) if memory or device == "cuda" else None
    slowest_s = max((min(several) for several in warmup.values()), default=1.0)
    calls = max(1, round(min_sample_s / max(slowest_s, 1e-9)))
    meter = contention_meter(device)
    mhz, compiled = clock_mhz(device), _compilations()
    taken = _rounds(fns, calls, stopwatch, min_samples, budget_s, renew, contexts)
    compiled = _compilations() - compiled
    clocks = [reading for reading in (mhz, clock_mhz(device)) if reading is not None]
    samples = {name: [one.seconds for one in taken if one.name == name] for name in fns}
    crowded = contention(meter.share(), samples.values())
    return {
        name: Measurement(
            samples_s=samples[name],
            calls_per_sample=calls,
            first_call_s=first[name],
            clock=stopwatch.clock,
            result_on=lies_on[name],
            unfinished=_unfinished(one for one in taken if one.name == name),
            peak_bytes=peaks[name],
            warmup_s=warmup[name],
            device=device,
            threads=_threads(),
            cores=num_cores(),
            turns=_turns([one.name for one in taken], name),
            compilations=compiled,
            clock_mhz=clocks or None,
            contention=crowded,
            subject=(subjects or {}).get(name),
        )
        for name in fns
    }


class _Taken(NamedTuple):
    """One sample, in the order in which all were taken."""

    name: str
    seconds: float
    finished: bool | None  # whether the device had nothing left to do when the clock was read


def _rounds(
    fns: Mapping[str, Call],
    calls: int,
    stopwatch: "Stopwatch",
    min_samples: int,
    budget_s: float,
    renew: Callable[[], Mapping[str, Call]] | None,
    contexts: Mapping[str, Inside],
) -> list[_Taken]:
    """Rounds in batches of equal time; each starts with the same work set up anew, if it can be."""
    taken: list[_Taken] = []
    order = random.Random(os.getpid())
    batches = BATCHES if renew else 1
    for batch in range(batches):
        if renew and batch:
            fns = renew()
            for name, fn in fns.items():
                with contexts[name]():
                    stopwatch.sample(fn, 1)
        target = math.ceil(min_samples * (batch + 1) / batches) * len(fns)
        end = time.perf_counter() + budget_s * len(fns) / batches
        while len(taken) < target or time.perf_counter() < end:
            for name in order.sample(list(fns), len(fns)):
                with contexts[name]():
                    seconds = stopwatch.sample(fns[name], calls)
                taken.append(_Taken(name, seconds, stopwatch.finished()))
    return taken


def _turns(names: Sequence[str], name: str) -> int:
    """Between how many two samples of this variant another one was timed."""
    places = [i for i, found in enumerate(names) if found == name]
    return sum(b > a + 1 for a, b in pairwise(places))


def _unfinished(taken: Iterable[_Taken]) -> int | None:
    seen = [one.finished for one in taken]
    return None if None in seen else seen.count(False)


def over_processes(
    function: str,
    argument: Mapping[str, Any],
    *,
    processes: int = PROCESSES,
    keep_caches: bool = False,
) -> dict[str, Any]:
    """`fresh.call` several times over: what one process finds, the next one must find again.

    The function is given which process it is, and returns `measurements` by variant, and what else
    it likes. Here every variant that ran in all processes has a list of measurements, one of each;
    what else there is, is the first one's. A process without measurements is the result.
    `keep_caches` lets later processes load what the first one compiled.
    """
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="madl-caches-") as folder:
        caches = Path(folder) if keep_caches else None
        for i in range(processes):
            found.append(fresh.call(function, {**argument, "process": i}, caches=caches))
            if "measurements" not in found[-1]:
                return found[-1]
    in_all = set.intersection(*(set(one["measurements"]) for one in found))
    variants = [name for name in found[0]["measurements"] if name in in_all]
    runs = {name: [one["measurements"][name] for one in found] for name in variants}
    return {**found[0], "measurements": runs}


def naive(fn: Call, *, device: str, calls: int, subject: Subject | None = None) -> Measurement:
    """How it is often done, so that it can be shown beside the right way: every mistake is meant.

    The first call is one of the samples, nothing warms up, and on CUDA nothing waits for the work:
    the wall clock is read around launches that return at once.
    """
    meter, compiled = contention_meter(device), _compilations()
    finished = stopwatch_of(device).finished
    samples: list[float] = []
    taken: list[_Taken] = []
    result: object = None
    for _ in range(calls):
        start = time.time()
        result = fn()
        samples.append(time.time() - start)
        taken.append(_Taken("", samples[-1], finished()))
    return Measurement(
        samples_s=samples,
        calls_per_sample=1,
        first_call_s=None,
        clock="time",
        result_on=_device_of(result),
        unfinished=_unfinished(taken),
        peak_bytes=None,
        warmup_s=[],
        device=device,
        threads=_threads(),
        cores=num_cores(),
        turns=0,
        compilations=_compilations() - compiled,
        clock_mhz=None,
        contention=meter.share(),
        subject=subject,
    )


def observe(fn: Call, inputs: Sequence[Any], *, module: "nn.Module | None" = None) -> Subject:
    """Call once and see what is timed; `inputs` are the tensors that give dtype and shape."""
    result = fn()
    parameters = [] if module is None else [next(module.parameters())]
    floating = [t for t in (*inputs, *parameters) if t.is_floating_point()]
    return Subject(
        dtype=str(floating[0].dtype).removeprefix("torch.") if floating else "integer",
        shape=", ".join("×".join(map(str, tensor.shape)) for tensor in inputs),
        training=None if module is None else any(m.training for m in module.modules()),
        records_gradient=_records_gradient(result),
    )


def with_subject(measurement: Measurement, subject: Subject) -> Measurement:
    """The measurement with what was timed, where that could only be observed afterwards."""
    return replace(measurement, subject=subject)


def _records_gradient(result: object) -> bool:
    """Whether any tensor of a call's result would be gone back through."""
    return any(bool(tensor.requires_grad) for tensor in _tensors(result))


def _device_of(result: object) -> str | None:
    """Where a call's result lies: what did the work, whatever was asked for."""
    return next((str(tensor.device.type) for tensor in _tensors(result)), None)


def _tensors(result: object) -> Iterator[Any]:
    """A tensor, or those in a tuple or in a model's output."""
    if isinstance(result, Mapping):
        found: Mapping[Any, Any] = result  # pyright: ignore[reportUnknownVariableType]
        result = list(found.values())
    if isinstance(result, tuple | list):
        several: Sequence[Any] = result  # pyright: ignore[reportUnknownVariableType]
        for value in several:
            yield from _tensors(value)
    elif hasattr(result, "requires_grad"):
        yield result


def contention(load: float | None, variants_s: Iterable[Sequence[float]]) -> float | None:
    """The larger of two signs: others' share of the device, and the share of disturbed samples.

    The load misses what a neighbour on the same host takes; the samples show it as stragglers, of
    all variants together. Where the load is unknown, a few stragglers do not make it known: None.
    """
    late = [one > DISTURBED * np.median(samples) for samples in variants_s for one in samples]
    if load is None or len(late) < 5:
        return load
    return round(max(load, float(np.mean(late))), 3)


# ---- clocks -------------------------------------------------------------------------------------


class Stopwatch(NamedTuple):
    """A clock as functions: of a first call, by the wall, and of a sample of several calls."""

    clock: str
    first: Callable[[Call], float]
    sample: Callable[[Call, int], float]
    finished: Callable[[], bool | None]  # whether the device has nothing left to do; None: unasked


def stopwatch_of(device: str) -> Stopwatch:
    """The clock for this device."""
    return (
        _cuda_stopwatch() if device == "cuda" else Stopwatch("perf_counter", _once, _wall, _unasked)
    )


def _unasked() -> None:
    """A CPU call returns when it is done; whether it ran on the CPU, its result tells."""


def _once(fn: Call) -> float:
    return _wall(fn, 1)


def _wall(fn: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    return (time.perf_counter() - start) / calls


def _cuda_stopwatch() -> Stopwatch:
    """Events on the current stream; the wall clock for a first call, which works on the CPU too."""
    import torch

    start: Any = torch.cuda.Event(enable_timing=True)
    end: Any = torch.cuda.Event(enable_timing=True)

    def first(fn: Call) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def sample(fn: Call, calls: int) -> float:
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            fn()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls  # it is in milliseconds

    def finished() -> bool:
        return bool(torch.cuda.current_stream().query())

    return Stopwatch("cuda events", first, sample, finished)


# ---- the state of the process -------------------------------------------------------------------


def _threads() -> int:
    torch: Any = sys.modules.get("torch")
    return torch.get_num_threads() if torch else 1


def _compilations() -> int:
    """Graphs that torch.compile has made in this process; 0 where nothing was compiled."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0
