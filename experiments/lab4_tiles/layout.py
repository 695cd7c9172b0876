"""The elements and bytes that a thread copies, computed from the layout that CuTe prints.

For pages, which are made without CuTe; `explain.js` computes the same.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

WARP, SECTOR_BYTES = 32, 32


class Place(NamedTuple):
    """The first element that a thread of a block copies, and its byte in either memory."""

    m: int  # in the tile, down a group
    k: int  # in the tile, across the groups
    element: int  # in its group
    group: int
    byte: int  # of global memory
    slot: int  # byte of shared memory


def place(kernel: Mapping[str, Any], thread: int, block: tuple[int, int] = (0, 0)) -> Place:
    """The place of a thread, from a layout `(down,across):(strides)`."""
    down, across, down_stride, across_stride = map(int, re.findall(r"\d+", kernel["layout"]))
    m = kernel["bytes"] * (thread // down_stride % down if down_stride else 0)
    k = thread // across_stride % across if across_stride else 0
    element, group = block[0] * kernel["tile m"] + m, block[1] * kernel["tile k"] + k
    byte, slot = element + kernel["group"] * group, m + kernel["tile m"] * k
    return Place(m=m, k=k, element=element, group=group, byte=byte, slot=slot)


def warp_extent(kernel: Mapping[str, Any]) -> tuple[int, int]:
    """(values down, values across) that one warp's load takes."""
    places = [place(kernel, thread) for thread in range(WARP)]
    return max(p.m for p in places) + kernel["bytes"], max(p.k for p in places) + 1
