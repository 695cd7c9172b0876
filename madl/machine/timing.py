"""The only clock: first call apart, warm-up apart, synchronized, interleaved, raw samples kept.

`compare` times every variant once in every round, so that a drift of the machine (clock, heat,
neighbours) falls on all of them alike and their ratio survives it. The order within a round is
shuffled: a variant that always follows the same one would inherit what that one left in the cache.

Units: seconds per call; `peak_bytes` is CUDA's allocator peak, None on a CPU.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Samples of one variant; each sample is the mean of `calls_per_sample` calls in a row."""

    samples_s: list[float]
    calls_per_sample: int
    first_call_s: float
    clock: str
    synchronized: bool
    peak_bytes: int | None

    @property
    def median_s(self) -> float:
        return float(np.median(self.samples_s))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    fn: Callable[[], object], *, device: str = "cpu", budget_s: float = 1.0, min_samples: int = 10
) -> Measurement:
    """Time one function; see `compare`."""
    return compare({"": fn}, device=device, budget_s=budget_s, min_samples=min_samples)[""]


def compare(
    fns: Mapping[str, Callable[[], object]],
    *,
    device: str = "cpu",
    budget_s: float = 1.0,
    min_samples: int = 10,
    min_sample_s: float = 1e-3,
) -> dict[str, Measurement]:
    """Time variants interleaved: at least `min_samples` rounds, more while the budget lasts.

    The functions take no argument and their results are dropped: check them before timing them.
    A call shorter than `min_sample_s` is repeated within a sample: the clock's own cost vanishes.
    """
    synchronize = _synchronizer(device)
    first: dict[str, float] = {}
    calls: dict[str, int] = {}
    for name, fn in fns.items():
        first[name] = _time(fn, 1, synchronize)
        fn()  # warm-up: caches, lazy initialisation
        calls[name] = max(1, round(min_sample_s / max(_time(fn, 1, synchronize), 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in fns}
    order = random.Random(0)
    peaks = {name: _peak_bytes(fn, device) for name, fn in fns.items()}
    end = time.perf_counter() + budget_s * len(fns)
    while len(next(iter(samples.values()))) < min_samples or time.perf_counter() < end:
        for name in order.sample(list(fns), len(fns)):
            samples[name].append(_time(fns[name], calls[name], synchronize))
    return {
        name: Measurement(
            samples_s=samples[name],
            calls_per_sample=calls[name],
            first_call_s=first[name],
            clock="perf_counter",
            synchronized=True,
            peak_bytes=peaks[name],
        )
        for name in fns
    }


def _time(fn: Callable[[], object], calls: int, synchronize: Callable[[], None]) -> float:
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    synchronize()
    return (time.perf_counter() - start) / calls


def _synchronizer(device: str) -> Callable[[], None]:
    """CUDA launches return before the work is done; a CPU call does not."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _peak_bytes(fn: Callable[[], object], device: str) -> int | None:
    if device == "cpu":
        return None
    import torch

    torch.cuda.reset_peak_memory_stats()
    fn()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
