"""Who else uses this machine while something is measured: other processes on its cores, or its GPU.

Units: shares, 0…1; None is unknown, which is never the same as quiet.
"""

import contextlib
import importlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from madl.machine.device import num_cores


class Meter(Protocol):
    """Started before the work; asked after it."""

    def share(self) -> float | None:
        """What others used of the device since the start, 0…1; None where that is unknown."""
        ...


def contention_meter(device: str) -> Meter:
    """The meter of the device that does the work."""
    return GpuMeter.start() if device == "cuda" else ContentionMeter.start()


@dataclass
class ContentionMeter:
    """How much of the machine other processes use between start and `share()`.

    Two signs, of which the larger counts: the cores' busy time that was not ours, and the time that
    our threads were ready and had to wait for a core. Source: Linux `/proc/stat` and `schedstat`;
    None where there is none. `jobs` is how many of our own workers share the machine, which are no
    contention; a child process is ours once it has ended.
    """

    started: float = 0.0
    busy: float | None = None
    own: float = 0.0
    waited: float = 0.0

    @classmethod
    def start(cls) -> "ContentionMeter":
        return cls(time.perf_counter(), _busy_seconds(), _own_seconds(), _waited_seconds())

    def share(self, *, jobs: int = 1) -> float | None:
        """Other processes' share of the cores since the start, 0…1."""
        now = _busy_seconds()
        elapsed = time.perf_counter() - self.started
        if self.busy is None or now is None or elapsed <= 0:
            return None
        own = (_own_seconds() - self.own) * jobs  # workers of one run are alike
        taken = (now - self.busy - own) / (elapsed * (os.cpu_count() or 1))
        waited = (_waited_seconds() - self.waited) / (elapsed * num_cores())
        return round(min(max(taken, waited, 0.0), 1.0), 3)


def _waited_seconds() -> float:
    """Time that this process's threads were ready to run and had no core; 0 where unknown."""
    waited_ns = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
            waited_ns += int(path.read_text().split()[1])
    return waited_ns / 1e9


def _own_seconds() -> float:
    """Processor time of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    """Seconds all cores together have spent on anything but idling and waiting for disks."""
    try:
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class GpuMeter:
    """How busy other processes kept the GPU's multiprocessors since the start.

    Source: NVML's samples of each process (`nvmlDeviceGetProcessUtilization`). Where they do not
    show our own process, they do not see processes as we do: a GPU that holds one process is ours
    alone, and of several nothing is known. None without NVML (`nvidia-ml-py`) too.
    """

    nvml: Any
    handle: Any
    started_us: int

    @classmethod
    def start(cls) -> "GpuMeter":
        nvml, handle = _nvml()
        return cls(nvml, handle, time.time_ns() // 1000)

    def share(self) -> float | None:
        if self.nvml is None:
            return None
        me, busy = os.getpid(), dict[int, int]()
        try:
            found = self.nvml.nvmlDeviceGetProcessUtilization(self.handle, self.started_us)
            for sample in found:
                busy[sample.pid] = max(busy.get(sample.pid, 0), sample.smUtil)
        except self.nvml.NVMLError:
            pass  # no samples yet
        if me in busy:
            return round(min(sum(share for pid, share in busy.items() if pid != me) / 100, 1.0), 3)
        try:
            holders = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        except self.nvml.NVMLError:
            return None
        return 0.0 if len(holders) <= 1 else None


def _nvml() -> tuple[Any, Any]:
    """NVML and the handle of the current GPU, or None twice."""
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
