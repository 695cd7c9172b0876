"""Which thread of a block touches what, asked of CuTe on the host, and what memory sees of it.

A mapping is what `kernels/tile_map.cpp` prints of one block: for each value (thread, place in the
thread, m, k, whether in bounds, byte of global memory, byte of shared memory).

Units: bytes.
Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from madl.errors import MadlError

WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4
LAB, TRANSPOSED, TILE, FEWER = "lab", "lab, transposed", "tile", "lab, fewer threads"
DRAWN = (LAB, TRANSPOSED, TILE)
TALLEST, SLOTS = 128, 1024  # of the coursework's tile: the longest column, and values in all

Json = Mapping[str, Any]
Access = Sequence[tuple[int, int]]  # of one warp: where each thread begins, and how many bytes


def study(group: int, num_groups: int) -> dict[str, Any]:
    """Every mapping as its first block has it, held against another block.

    Raises:
        MadlError: a mapping is not what the page says of it.
    """
    first = mapped(group, num_groups, (0, 0))
    for name in DRAWN:
        far = -(-group // first[name]["tile m"]) - 1, 1  # down a group, and the next groups
        confirm(first[name], (0, 0))
        confirm(mapped(group, num_groups, far)[name], far)
    made = {name: described(first[name]) for name in DRAWN}
    check(made, first[LAB]["filled"])
    return {**made, FEWER: {of: first[FEWER][of] for of in ("threads", "filled")}}


def mapped(group: int, num_groups: int, block: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """One block of every mapping, by name."""
    from kernels import build
    from madl import assets

    program = build.program("tile_map.cpp", include=assets.cute_include())
    command = [str(program), *map(str, (group, num_groups, *block))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        kernel["kernel"]: {
            **kernel,
            "group": group,
            "tile m": kernel["tile"][0],
            "tile k": kernel["tile"][1],
            "layout": kernel["layout"].replace("_", ""),
        }
        for kernel in json.loads(done.stdout)
    }


def described(kernel: Json) -> dict[str, Any]:
    """The mapping of a block, and what one load of a warp costs, which is the same for each."""
    size = kernel["bytes"]
    loads = by_load(kernel["values"], size)
    return {
        **{of: kernel[of] for of in ("group", "tile m", "tile k", "layout", "threads", "bytes")},
        "fetched": SECTOR_BYTES * alike(sectors([(v[5], size) for v in load]) for load in loads),
        "passes": alike(passes([(v[6], size) for v in load]) for load in loads),
    }


def alike(values: Iterable[int]) -> int:
    """Raises: MadlError: they are not all the same."""
    found = set(values)
    if len(found) > 1:
        raise MadlError(f"loads of one mapping differ: {sorted(found)}")
    return found.pop()


def check(kernels: Mapping[str, Json], filled: int) -> None:
    """Raises: MadlError: the tile is no such tile, leaves slots, wastes bytes, or has conflicts."""
    lab = kernels[LAB]
    tall = min(lab["group"], TALLEST)
    tile = lab["tile m"], lab["tile k"]
    if tile != (tall, SLOTS // tall) or filled != SLOTS:
        raise MadlError(f"the tile at groups of {lab['group']} is {tile}, {filled} slots filled")
    for name in (LAB, TILE):
        wanted = WARP * kernels[name]["bytes"]
        least = wanted // (BANKS * BANK_BYTES) or 1
        if (kernels[name]["fetched"], kernels[name]["passes"]) != (wanted, least):
            raise MadlError(f"{name!r} at groups of {lab['group']} wastes bytes or has conflicts")


# ---- what memory sees ---------------------------------------------------------------------------


def by_load(values: Sequence[Sequence[int]], size: int) -> list[list[Sequence[int]]]:
    """The first value of every vector, by warp and by the vector's place in its thread."""
    found: dict[tuple[int, int], list[Sequence[int]]] = {}
    for value in values:
        if value[1] % size == 0 and value[4]:
            found.setdefault((value[0] // WARP, value[1] // size), []).append(value)
    return list(found.values())


def sectors(access: Access) -> int:
    """How many sectors of global memory one warp's access touches."""
    return len({b // SECTOR_BYTES for at, size in access for b in range(at, at + size)})


def passes(access: Access) -> int:
    """How often shared memory must be asked: as often as one bank is wanted for different words."""
    part = WARP * BANK_BYTES // max(access[0][1], BANK_BYTES)  # threads that go together
    total = 0
    for first in range(0, len(access), part):
        threads = access[first : first + part]
        words = {b // BANK_BYTES for at, size in threads for b in range(at, at + size)}
        wanted = [word % BANKS for word in words]
        total += max(wanted.count(bank) for bank in set(wanted))
    return total


# ---- where a thread's part is, from the layout alone --------------------------------------------


class Place(NamedTuple):
    """What one thread of one block holds: its first element and the first byte of either memory."""

    m: int  # in the tile, down a group
    k: int  # in the tile, across the groups
    element: int  # in its group
    group: int
    byte: int  # of global memory
    slot: int  # byte of shared memory


def place(kernel: Json, thread: int, block: tuple[int, int] = (0, 0)) -> Place:
    """From the layout of threads as CuTe prints it, `(threads):(strides)`; down comes first.

    For pages, which are made without CuTe; `explain.js` computes the same.
    """
    down, across, down_stride, across_stride = map(int, re.findall(r"\d+", kernel["layout"]))
    m = kernel["bytes"] * (thread // down_stride % down if down_stride else 0)
    k = thread // across_stride % across if across_stride else 0
    element, group = block[0] * kernel["tile m"] + m, block[1] * kernel["tile k"] + k
    byte, slot = element + kernel["group"] * group, m + kernel["tile m"] * k
    return Place(m=m, k=k, element=element, group=group, byte=byte, slot=slot)


def held(kernel: Json) -> tuple[int, int]:
    """How many values down and across one warp's load takes."""
    at = [place(kernel, thread) for thread in range(WARP)]
    return max(one.m for one in at) + kernel["bytes"], max(one.k for one in at) + 1


def confirm(kernel: Json, block: tuple[int, int]) -> None:
    """Raises: MadlError: CuTe has a thread's part elsewhere than `place`."""
    for thread, value, _, _, _, byte, slot in kernel["values"]:
        derived = place(kernel, thread, block)
        if value == 0 and (derived.byte, derived.slot) != (byte, slot):
            raise MadlError(
                f"thread {thread} of block {block} of {kernel['kernel']!r} is at byte {byte} and "
                f"slot {slot}, the layout {kernel['layout']} makes it {derived}"
            )
