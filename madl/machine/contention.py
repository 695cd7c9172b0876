"""Contention: the share of the cores or the GPU that other processes use during a measurement.

Units: shares, 0…1; None is unknown, which is never the same as quiet.
"""

import contextlib
import importlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from madl.machine.device import num_cores

SAMPLED_S = 1.2  # longer than the time that an NVML sample is a mean over


class Meter(Protocol):
    """A meter of contention: started before the work, read by `share()` after it."""

    def share(self) -> float | None:
        """The share of the device, 0…1, that others used since the start; None: unknown."""
        ...


def contention_meter(device: str) -> Meter:
    """A meter, started now, for the device that does the work: the GPU for `cuda`, else the CPU."""
    return GpuMeter.start() if device == "cuda" else ContentionMeter.start()


@dataclass
class ContentionMeter:
    """The share of the cores that other processes use between start and `share()`.

    It is the larger of two signs: the cores' busy time that was not ours, and the time that our
    threads were ready to run and waited for a core. A child process is ours once it has ended.
    Source: Linux `/proc/stat` and `schedstat`.
    """

    started: float = 0.0
    busy: float | None = None
    own: float = 0.0
    waited: float = 0.0

    @classmethod
    def start(cls) -> "ContentionMeter":
        return cls(time.perf_counter(), _busy_seconds(), _own_seconds(), _waited_seconds())

    def share(self, *, jobs: int = 1) -> float | None:
        """Other processes' share of the cores since the start, 0…1; None without `/proc/stat`.

        `jobs`: the number of our own workers on this machine, which are no contention.
        """
        now = _busy_seconds()
        elapsed = time.perf_counter() - self.started
        if self.busy is None or now is None or elapsed <= 0:
            return None
        own = (_own_seconds() - self.own) * jobs  # workers of one run are alike
        taken = (now - self.busy - own) / (elapsed * (os.cpu_count() or 1))
        waited = (_waited_seconds() - self.waited) / (elapsed * num_cores())
        return round(min(max(taken, waited, 0.0), 1.0), 3)


def _waited_seconds() -> float:
    """Seconds that the threads of this process were ready to run without a core; 0 if unknown."""
    waited_ns = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
            waited_ns += int(path.read_text().split()[1])
    return waited_ns / 1e9


def _own_seconds() -> float:
    """Processor seconds of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    """Seconds of all cores since boot, without idling and waiting for disks; None: unknown."""
    try:
        cpu, *_ = Path("/proc/stat").read_text().splitlines()
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, cpu.split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class GpuMeter:
    """The share of the GPU's multiprocessors that other processes kept busy since the start.

    This process and its parent, which only holds the GPU and waits, are not counted. Source: NVML's
    samples of each process (`nvmlDeviceGetProcessUtilization`). Where these miss this process, its
    share cannot be subtracted: then others' share is 0 if nobody else holds the GPU, else the use
    of the whole GPU in a second in which this process does nothing. None without NVML
    (`nvidia-ml-py`).
    """

    nvml: Any
    handle: Any
    started_us: int

    @classmethod
    def start(cls) -> "GpuMeter":
        nvml, handle = _nvml()
        return cls(nvml, handle, time.time_ns() // 1000)

    def share(self) -> float | None:
        """Other processes' share since the start, 0…1; None: unknown. May wait `SAMPLED_S`."""
        if self.nvml is None:
            return None
        ours, busy, holders = {os.getpid(), os.getppid()}, self._busy(), self._holders()
        if os.getpid() in busy:
            others = sum(share for pid, share in busy.items() if pid not in ours)
            return round(min(others / 100, 1.0), 3)
        if len(holders) == 1 or (holders and ours.issuperset(holders)):
            return 0.0
        if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
            torch.cuda.synchronize()  # our own work
        time.sleep(SAMPLED_S)
        try:
            return self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100
        except self.nvml.NVMLError:
            return None

    def _busy(self) -> dict[int, int]:
        """Process id → per cent of the multiprocessors it used, in its busiest sample."""
        busy: dict[int, int] = {}
        with contextlib.suppress(self.nvml.NVMLError):  # no samples yet
            for sample in self.nvml.nvmlDeviceGetProcessUtilization(self.handle, self.started_us):
                busy[sample.pid] = max(busy.get(sample.pid, 0), sample.smUtil)
        return busy

    def _holders(self) -> list[int]:
        """The ids of the processes that hold the GPU; empty if unknown."""
        try:
            processes = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        except self.nvml.NVMLError:
            return []
        return [process.pid for process in processes]


def _nvml() -> tuple[Any, Any]:
    """(NVML, its handle of torch's current GPU), or (None, None) where there is no NVML."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None, None
    import torch

    try:
        gpu: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{gpu.uuid}")
    except (nvml.NVMLError, RuntimeError, AssertionError, AttributeError):
        return None, None
