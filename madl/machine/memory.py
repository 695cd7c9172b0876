"""Memory of a call: keeping freed pages, which are slow to get again, and measuring peak bytes.

A training step allocates and frees the same few megabytes per activation. glibc returns each such
block to the kernel and faults it in again, page by page, at the next step, which costs more than
the elementwise work on it. Raising three malloc thresholds keeps the pages.

Source: mallopt(3); M_MMAP_THRESHOLD is capped at 32 MiB by glibc.
Not handled: other allocators and systems, where nothing is changed.
"""

import ctypes
import itertools
import platform
from collections.abc import Callable
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_pages() -> bool:
    """Have glibc keep freed memory for reuse; returns whether it agreed."""
    return set_malloc_thresholds(mmap=32 << 20, trim=1 << 30, pad=64 << 20)


def set_malloc_thresholds(*, mmap: int, trim: int, pad: int) -> bool:
    """Set glibc's thresholds in bytes; returns whether it agreed.

    `mmap`: the size from which a block is mapped by itself; `trim`: how much free memory is kept at
    the top of the heap; `pad`: how much is taken from the system at once.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_M_MMAP_THRESHOLD: mmap, _M_TRIM_THRESHOLD: trim, _M_TOP_PAD: pad}
    return all(libc.mallopt(option, value) == 1 for option, value in settings.items())


def peak_bytes(fn: Callable[[], object], device: str) -> int:
    """The most bytes that torch's allocator held during one call, above what it held before.

    On a CPU the profiler reports every allocation, so it is counted, and the same each time.
    Not in it: scratch space that a library takes from the system by itself.
    """
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        fn()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        fn()
    results: Any = profiler.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes, initial=0))
