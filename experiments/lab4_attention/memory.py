"""A limit on the memory that a form of attention may take, and the error beyond it."""

import contextlib
from collections.abc import Generator
from pathlib import Path

import torch


@contextlib.contextmanager
def limited(limit_bytes: int, device: str) -> Generator[None]:
    """A context in which torch can take `limit_bytes` more than it has, and then is out of memory.

    On a CPU the address space is limited, so the allocator's failure is a real one. Systems without
    such a limit are not limited.
    """
    if device == "cuda":
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
