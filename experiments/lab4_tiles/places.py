"""Which element, byte and slot are a thread's, from its mapping's layout of threads alone.

For pages, which are made without CuTe, and as the site's script computes for any block,
`docs/assets/explain_tiles.js`. A case holds it against what CuTe itself says of two blocks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.lab4_tiles.accesses import WARP
from madl.errors import MadlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one thread of one block holds: its first element and the first byte of either memory."""

    m: int  # in the tile, down a group
    k: int  # in the tile, along the groups
    element: int  # in its group
    group: int
    byte: int  # of global memory
    slot: int  # byte of shared memory


def place(row: Mapping[str, Any], thread: int, block: tuple[int, int] = (0, 0)) -> Place:
    """From the layout of threads as CuTe prints it, `(threads):(strides)`; down comes first."""
    down, along, down_stride, along_stride = map(int, re.findall(r"\d+", row["layout"]))
    m = row["bytes"] * (thread // down_stride % down if down_stride else 0)
    k = thread // along_stride % along if along_stride else 0
    element, group = block[0] * row["tile m"] + m, block[1] * row["tile k"] + k
    return Place(
        m=m,
        k=k,
        element=element,
        group=group,
        byte=element + row["group"] * group,
        slot=m + row["tile m"] * k,
    )


def last_tile(group: int, tile: tuple[int, int]) -> tuple[int, int]:
    """A block that is not the first: the last down a group, the second along the groups."""
    return -(-group // tile[0]) - 1, 1


def confirmed(kernel: Mapping[str, Any], group: int, block: tuple[int, int]) -> dict[str, Any]:
    """One block's last warp as CuTe has it, once every thread of the block is where `place` says.

    Raises:
        MadlError: CuTe has a thread's part elsewhere.
    """
    m, k = kernel["tile"]
    row = {**kernel, "tile m": m, "tile k": k, "group": group}
    first_values = [value for value in kernel["values"] if value[1] == 0]
    for thread, _, _, _, _, byte, slot in first_values:
        derived = place(row, thread, block)
        if (derived.byte, derived.slot) != (byte, slot):
            raise MadlError(
                f"thread {thread} of block {block} of {kernel['kernel']!r} is at byte {byte} and "
                f"slot {slot}, the layout {kernel['layout']} makes it {derived}"
            )
    last = first_values[-WARP:]
    return {
        "kernel": kernel["kernel"],
        "block": list(block),
        "threads": len(first_values),
        "warp": last[0][0] // WARP,
        "warp_bytes": [value[5] for value in last],
        "warp_slots": [value[6] for value in last],
    }
