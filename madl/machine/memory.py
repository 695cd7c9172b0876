"""What memory costs: faulted pages, what a training step holds, and what packing a model saves.

A training step allocates and frees the same few megabytes per activation. glibc returns each such
block to the kernel and faults it in again, page by page, at the next step, which costs more than
the elementwise work on it. Raising three malloc thresholds keeps the pages.

`ledger` predicts the saving of packed weights from a model's parameter list, on the meta device
too; `live_bytes` predicts what its forward pass holds at most; `resident_bytes` measures.

Source: mallopt(3); M_MMAP_THRESHOLD is capped at 32 MiB by glibc; proc(5).
Not handled: other allocators and systems, where nothing is changed.
"""

import contextlib
import ctypes
import gc
import platform
import weakref
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What a model's weights are made of, in bytes, before and after they are packed."""

    num_packed: int  # weights, not bytes
    num_parameters: int
    dense_bytes: int  # of the weights that get packed, before
    packed_bytes: int  # and after
    kept_bytes: int  # all other parameters and buffers

    @property
    def before_bytes(self) -> int:
        return self.dense_bytes + self.kept_bytes

    @property
    def after_bytes(self) -> int:
        return self.packed_bytes + self.kept_bytes

    @property
    def saved(self) -> float:
        """Share of the memory before, 0…1."""
        return 1 - self.after_bytes / self.before_bytes


def ledger(model: "nn.Module", *, bits: int, scale_bits: int, block: int) -> Ledger:
    """The memory of a model whose Linear weights get `bits` each and a scale for every block.

    Works on the meta device, from a configuration alone. Weights are counted as stored row by row,
    a short last block of a row as one.
    """
    from torch import nn

    weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    everything = {id(t): t for t in (*model.parameters(), *model.buffers())}  # shared ones once
    dense = sum(w.nbytes for w in weights)
    scales = sum(w.shape[0] * -(-w.shape[1] // block) for w in weights)
    return Ledger(
        num_packed=sum(w.numel() for w in weights),
        num_parameters=sum(p.numel() for p in model.parameters()),
        dense_bytes=dense,
        packed_bytes=(sum(w.numel() for w in weights) * bits + scales * scale_bits) // 8,
        kept_bytes=sum(t.nbytes for t in everything.values()) - dense,
    )


def live_bytes(forward: Callable[[], object]) -> int:
    """The most bytes of tensors made by the function that are alive at one moment.

    Counted at each operator's result, on any device, meta too; what is there before is not in it,
    nor what a kernel allocates for itself.
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
    """Call `allocate` with the bytes of each new storage that an operator's result has, and `free`
    with what that returned when the storage dies.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

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


def resident_bytes() -> int | None:
    """Memory of this process that is no file's, in whole pages; None where there is no /proc."""
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
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_M_MMAP_THRESHOLD: 4096, _M_TRIM_THRESHOLD: 0, _M_TOP_PAD: 0}
    return all(libc.mallopt(option, value) == 1 for option, value in settings.items())


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{field}:"))
    return next((int(words[1]) * 1024 for words in found), None)


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
