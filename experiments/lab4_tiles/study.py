"""The bytes that each thread of a block touches, by CuTe on the host, and what that costs memory.

A mapping is what `kernels/tile_map.cpp` prints of one block: for each value (thread, place in the
thread, m, k, whether in bounds, byte of global memory, byte of shared memory).

Units: bytes.
Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.lab4_tiles.design import FEWER, LAB, MAPPINGS, SLOTS, TALLEST, TILE
from experiments.lab4_tiles.layout import SECTOR_BYTES, WARP, place
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values

BANKS, BANK_BYTES = 32, 4

Json = Mapping[str, Any]
Access = Sequence[tuple[int, int]]  # of one warp: where each thread begins, and how many bytes


def run(params: Params, ctx: Context) -> Values:
    """Describe every mapping by its first block, and check it and another block against `layout`.

    Raises:
        MadlError: a mapping is not what the page says of it.
    """
    group = params["group"]
    num_groups = params["elements"] // group
    first = block_mappings(group, num_groups, (0, 0))
    for name in MAPPINGS:
        far = -(-group // first[name]["tile m"]) - 1, 1  # down a group, and the next groups
        confirm(first[name], (0, 0))
        confirm(block_mappings(group, num_groups, far)[name], far)
    kernels = {name: describe(first[name]) for name in MAPPINGS}
    check(kernels, first[LAB]["filled"])
    return {**kernels, FEWER: {fact: first[FEWER][fact] for fact in ("threads", "filled")}}


def block_mappings(group: int, num_groups: int, block: tuple[int, int]) -> dict[str, Any]:
    """Name of a mapping → one block of it, as CuTe prints it."""
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


FACTS = ("group", "tile m", "tile k", "layout", "threads", "bytes")


def describe(kernel: Json) -> dict[str, Any]:
    """A mapping's facts, and the bytes fetched and turns taken by a warp's load, alike for each."""
    size = kernel["bytes"]
    loads = first_values_by_load(kernel["values"], size)
    num_sectors = single_value(sectors([(v[5], size) for v in load]) for load in loads)
    num_passes = single_value(passes([(v[6], size) for v in load]) for load in loads)
    facts = {fact: kernel[fact] for fact in FACTS}
    return {**facts, "fetched": SECTOR_BYTES * num_sectors, "passes": num_passes}


def single_value(values: Iterable[int]) -> int:
    """The value that all of these are. Raises: MadlError: they differ."""
    different = set(values)
    if len(different) > 1:
        raise MadlError(f"loads of one mapping differ: {sorted(different)}")
    return different.pop()


def check(kernels: Mapping[str, Json], filled: int) -> None:
    """Hold the coursework's tile and the costs of loads against what the page says.

    Raises:
        MadlError: the tile has another size or empty slots, or loads waste bytes or conflict.
    """
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


def confirm(kernel: Json, block: tuple[int, int]) -> None:
    """Hold each thread's bytes against those that `place` computes.

    Raises:
        MadlError: they differ.
    """
    for thread, value, _, _, _, byte, slot in kernel["values"]:
        derived = place(kernel, thread, block)
        if value == 0 and (derived.byte, derived.slot) != (byte, slot):
            raise MadlError(
                f"thread {thread} of block {block} of {kernel['kernel']!r} is at byte {byte} and "
                f"slot {slot}, the layout {kernel['layout']} makes it {derived}"
            )


# ---- costs of an access --------------------------------------------------------------------------


def first_values_by_load(values: Sequence[Sequence[int]], size: int) -> list[list[Sequence[int]]]:
    """The first value in bounds of every vector, a list for each load of a warp."""
    loads: dict[tuple[int, int], list[Sequence[int]]] = {}
    for value in values:
        if value[1] % size == 0 and value[4]:
            loads.setdefault((value[0] // WARP, value[1] // size), []).append(value)
    return list(loads.values())


def sectors(access: Access) -> int:
    """How many sectors of global memory one warp's access touches."""
    return len({b // SECTOR_BYTES for at, size in access for b in range(at, at + size)})


def passes(access: Access) -> int:
    """The number of turns in which shared memory serves a warp's access.

    Parts of the warp go one by one; a part takes as many turns as its busiest bank has words to
    give.
    """
    part = WARP * BANK_BYTES // max(access[0][1], BANK_BYTES)  # threads that go together
    total = 0
    for first in range(0, len(access), part):
        threads = access[first : first + part]
        words = {b // BANK_BYTES for at, size in threads for b in range(at, at + size)}
        wanted = [word % BANKS for word in words]
        total += max(wanted.count(bank) for bank in set(wanted))
    return total
