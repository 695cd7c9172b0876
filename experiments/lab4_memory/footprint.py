"""Memory that a process holds: its tensors, as they come and go, and its pages.

Units: bytes.
Source: proc(5).
"""

import contextlib
import ctypes
import gc
import platform
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from madl.machine.memory import set_malloc_thresholds

# ---- tensors ------------------------------------------------------------------------------------


def live_bytes(forward: Callable[[], object]) -> int:
    """The most bytes of tensors that the function makes and that are alive at one moment.

    Counted at each operator's result, on any device, meta too. Tensors that are there before and
    scratch space of a kernel do not count.
    """
    now = peak = 0

    def allocate(size: int) -> int:
        nonlocal now, peak
        now += size
        peak = max(peak, now)
        return size

    def free(size: int) -> None:
        nonlocal now
        now -= size

    with watching(allocate, free):
        forward()
    return peak


@contextlib.contextmanager
def watching(allocate: Callable[[int], int], free: Callable[[int], None]) -> Generator[None]:
    """A context that calls `allocate` with the bytes of each new storage of an operator's result,
    and `free`, when the storage dies, with what `allocate` returned."""
    alive: dict[int, weakref.ref[Any]] = {}

    def forget(key: int, handle: int) -> None:
        del alive[key]
        free(handle)

    def storages(values: Any) -> list[Any]:
        tensors = (t for t in tree_leaves(values) if isinstance(t, torch.Tensor))
        return [t.untyped_storage() for t in tensors]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = {id(storage) for storage in storages((args, kwargs or {}))}
            result = func(*args, **(kwargs or {}))
            for storage in storages(result):
                key = id(storage)
                if key in alive or key in given or storage.nbytes() == 0:
                    continue
                handle = allocate(storage.nbytes())
                alive[key] = weakref.ref(storage, lambda _, k=key, h=handle: forget(k, h))
            return result

    with Watch():
        yield


# ---- pages --------------------------------------------------------------------------------------


def resident_bytes() -> int | None:
    """Anonymous memory of this process, in whole pages; None where there is no /proc."""
    return _status("RssAnon")


def peak_resident_bytes(forward: Callable[[], object]) -> int | None:
    """How far the resident memory rises above its level before while the function runs.

    Not handled: systems without Linux' /proc/self/clear_refs, where it is None.
    """
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to the present
    except OSError:
        return None
    before = _status("VmHWM")
    result = forward()
    after = _status("VmHWM")
    del result
    return None if before is None or after is None else after - before


def return_freed_pages() -> None:
    """Give memory that is free back to the system, so that what is resident is what is in use."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def give_back_freed_blocks() -> bool:
    """Have glibc give each freed block of a page or more back at once; returns whether it agreed.

    What is resident is then what is in use, at the cost of faulting every page in anew. It holds
    for blocks that are taken from now on.
    """
    return set_malloc_thresholds(mmap=4096, trim=0, pad=0)


def _status(field: str) -> int | None:
    """A field of /proc/self/status, in bytes; None where it is not there."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines if line.startswith(f"{field}:"))
    return next((int(kib) * 1024 for _, kib, *_ in words), None)
