"""What memory costs: pages that are faulted in again and again, and what a training step holds.

A training step allocates and frees the same few megabytes per activation. glibc returns each such
block to the kernel and faults it in again, page by page, at the next step, which costs more than
the elementwise work on it. Raising three malloc thresholds keeps the pages.

Source: mallopt(3); M_MMAP_THRESHOLD is capped at 32 MiB by glibc.
Not handled: other allocators and systems, where nothing is changed.
"""

import ctypes
import platform
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

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
