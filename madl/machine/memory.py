"""What memory costs: pages that are faulted in again and again, and what a training step holds.

A training step allocates and frees the same few megabytes per activation. glibc returns each such
block to the kernel and faults it in again, page by page, at the next step, which costs more than
the elementwise work on it. Raising three malloc thresholds keeps the pages.

Source: mallopt(3); M_MMAP_THRESHOLD is capped at 32 MiB by glibc.
Not handled: other allocators and systems, where nothing is changed.
"""

import contextlib
import ctypes
import platform
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_pages() -> bool:
    """Tell glibc to reuse freed memory; returns whether it agreed."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 1 << 30, _M_TOP_PAD: 64 << 20}
    return all(libc.mallopt(option, value) == 1 for option, value in settings.items())


def saved_for_backward(forward: Callable[[], object], *, exclude: "Iterable[Tensor]") -> int:
    """Bytes that autograd keeps from a forward pass for its backward pass.

    Counted at the moment they are saved, each storage once; `exclude` names what is there anyway,
    the parameters. It is no allocator's peak: temporaries of the kernels are not in it.
    """
    import torch

    known = {tensor.untyped_storage().data_ptr() for tensor in exclude}
    kept: dict[int, tuple[int, Tensor]] = {}  # the tensor too, so that no address is used again

    def keep(tensor: "Tensor") -> "Tensor":
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()  # kept alive until it is counted
    total = sum(size for size, _ in kept.values())
    del result
    return total


def peak_bytes(fn: Callable[[], object], device: str) -> int:
    """The most that torch's allocator held at once during one call, above what it held before.

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
    held = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return int(highest)


@contextlib.contextmanager
def limited(limit_bytes: int, device: str) -> Generator[None]:
    """Let torch take no more than this on top of what it has: beyond, it runs out of memory.

    On a CPU the address space is limited, so the allocator's failure is a real one; where the
    system knows no such limit, there is none.
    """
    if device == "cuda":
        import torch

        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        allowed = torch.cuda.memory_allocated() + limit_bytes
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(allowed / total, 1.0))
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # neither Linux nor alike
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = pages * resource.getpagesize() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def ran_out(error: RuntimeError) -> bool:
    """Whether this error of torch means that there was not enough memory."""
    text = str(error).lower()
    return any(sign in text for sign in ("out of memory", "can't allocate", "allocate memory"))
