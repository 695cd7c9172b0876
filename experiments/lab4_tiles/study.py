"""Which thread of a kernel touches what, asked of CuTe on the host, and what memory sees of it.

A mapping is what `kernels/tile_map.cpp` prints of one block: for each value (thread, place in the
thread, m, k, whether in bounds, byte of global memory, byte of shared memory or less than 0).

Units: bytes; a place in global memory is that of a mantissa, and a result is two bytes wide.
Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madl.errors import MadlError

WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4
LAB, TRANSPOSED, FEWER, TILE, FLAT = "lab", "lab, transposed", "lab, fewer threads", "tile", "flat"
TALLEST, SLOTS = 128, 1024  # of the coursework's tile: the longest column, and values in all

Json = Mapping[str, Any]


def study(group: int, num_groups: int) -> dict[str, Any]:
    """Every mapping's first block, and one other block of those that a kernel here has.

    Raises:
        MadlError: a mapping is not what the page says of it.
    """
    first = mapped(group, num_groups, (0, 0))
    blocks: list[dict[str, Any]] = []
    for name in (LAB, TILE):
        last = -(-group // first[name]["tile"][0]) - 1, 1  # down a group, and the next groups
        other = mapped(group, num_groups, last)[name]
        blocks += [confirmed(first[name], group, (0, 0)), confirmed(other, group, last)]
    kernels = [described(kernel) for kernel in first.values()]
    check(kernels, group)
    return {"kernels": kernels, "confirmed": blocks}


def mapped(group: int, num_groups: int, block: tuple[int, int]) -> dict[str, Any]:
    from kernels import build
    from madl import assets

    program = build.program("tile_map.cpp", include=assets.cute_include())
    command = [str(program), *map(str, (group, num_groups, *block))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {kernel["kernel"]: kernel for kernel in json.loads(done.stdout)}


def tile_of(group: int) -> tuple[int, int]:
    """BLK_M and BLK_K of the coursework's kernel, by the size of a group."""
    m = min(group, TALLEST)
    return m, SLOTS // m


def check(kernels: Sequence[Json], group: int) -> None:
    """Raises: MadlError: a tile is no such tile, leaves slots, wastes bytes, or has conflicts."""
    for one in kernels:
        name, size = one["kernel"], one["bytes"]
        waste = sum(one["load_sectors"]) * SECTOR_BYTES - sum(one["load_bytes"])
        if name == LAB and (tuple(one["tile"]), one["filled"]) != (tile_of(group), SLOTS):
            raise MadlError(f"the coursework's tile at groups of {group} is {one['tile']}")
        if name in (LAB, TILE) and (waste or any(p > max(size // 4, 1) for p in one["passes"])):
            raise MadlError(f"{name!r} at groups of {group} wastes {waste} bytes or has conflicts")


# ---- what memory sees ---------------------------------------------------------------------------


def described(kernel: Json) -> dict[str, Any]:
    """What one kernel's mapping means, and who holds what in its first block."""
    requests = by_request(kernel["values"], kernel["bytes"])
    loads = [[(v[5], kernel["bytes"]) for v in request] for request in requests]
    stores = [[(2 * address, 2 * size) for address, size in request] for request in loads]
    shared = [[(v[6], kernel["bytes"]) for v in request] for request in requests]
    return {
        "kernel": kernel["kernel"],
        "layout": kernel["layout"].replace("_", ""),
        "tile": kernel["tile"],
        "threads": kernel["threads"],
        "elements": len(kernel["values"]),
        "slots": kernel["tile"][0] * kernel["tile"][1],
        "filled": kernel["filled"],
        "requests": len(requests),
        "load_sectors": [sectors(request) for request in loads],
        "load_bytes": [sum(size for _, size in request) for request in loads],
        "store_sectors": [sectors(request) for request in stores],
        "passes": [] if shared[0][0][0] < 0 else [passes(request) for request in shared],
        "bytes": kernel["bytes"],
        "first_warp": [address for address, _ in loads[0]],
        "first_warp_shared": [address for address, _ in shared[0]],
        "warps": warp_boxes(kernel["values"]),
    }


def by_request(values: Sequence[Sequence[int]], size: int) -> list[list[Sequence[int]]]:
    """The first value of every vector, by warp and by the vector's place in its thread."""
    found: dict[tuple[int, int], list[Sequence[int]]] = {}
    for value in values:
        if value[1] % size == 0 and value[4]:
            found.setdefault((value[0] // WARP, value[1] // size), []).append(value)
    return list(found.values())


def sectors(request: Sequence[tuple[int, int]]) -> int:
    """How many sectors of global memory one warp's access touches."""
    return len({b // SECTOR_BYTES for at, size in request for b in range(at, at + size)})


def passes(request: Sequence[tuple[int, int]]) -> int:
    """How often shared memory must be asked: as often as one bank is wanted for different words."""
    part = WARP * BANK_BYTES // max(request[0][1], BANK_BYTES)  # lanes that go together
    total = 0
    for first in range(0, len(request), part):
        lanes = request[first : first + part]
        words = {b // BANK_BYTES for at, size in lanes for b in range(at, at + size)}
        wanted = [word % BANKS for word in words]
        total += max(wanted.count(bank) for bank in set(wanted))
    return total


def warp_boxes(values: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of each warp: smallest and largest m and k that its threads touch, and how many elements."""
    found: dict[int, list[Sequence[int]]] = {}
    for value in values:
        found.setdefault(value[0] // WARP, []).append(value)
    return [
        [min(v[2] for v in mine), max(v[2] for v in mine), min(v[3] for v in mine),
         max(v[3] for v in mine), len(mine)]
        for _, mine in sorted(found.items())
    ]  # fmt: skip


# ---- where a thread's part is, from the layout alone --------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one thread of one block holds: its first element and the first byte of either memory."""

    m: int  # in the tile, down a group
    k: int  # in the tile, along the groups
    element: int  # in its group
    group: int
    byte: int  # of global memory
    slot: int  # byte of shared memory


def place(row: Json, thread: int, block: tuple[int, int] = (0, 0)) -> Place:
    """From the layout of threads as CuTe prints it, `(threads):(strides)`; down comes first.

    For pages, which are made without CuTe; `explain.js` computes the same.
    """
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


def confirmed(kernel: Json, group: int, block: tuple[int, int]) -> dict[str, Any]:
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
