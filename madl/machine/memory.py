"""What memory costs: keep freed pages instead of giving them back to the kernel.

A training step allocates and frees the same few megabytes per activation. glibc returns each such
block to the kernel and faults it in again, page by page, at the next step, which costs more than
the elementwise work on it. Raising three malloc thresholds keeps the pages.

Source: mallopt(3); M_MMAP_THRESHOLD is capped at 32 MiB by glibc.
Not handled: other allocators and systems, where nothing is changed.
"""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_pages() -> bool:
    """Tell glibc to reuse freed memory; returns whether it agreed."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 1 << 30, _M_TOP_PAD: 64 << 20}
    return all(libc.mallopt(option, value) == 1 for option, value in settings.items())
