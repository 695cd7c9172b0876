"""From a mapping of threads onto elements to what memory sees of it: sectors, passes, warps.

A mapping is what `kernels/tile_map.cpp` prints of one block: for each value (thread, place in the
thread, m, k, whether in bounds, byte of global memory, byte of shared memory or less than 0).

Units: bytes; a place in global memory is that of a mantissa, and a result is two bytes wide.
Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

from collections.abc import Mapping, Sequence
from typing import Any

WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4


def described(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """What one kernel's mapping means, and who holds what in its first block."""
    requests = by_request(kernel["values"], kernel["bytes"])
    loads = [[(v[5], kernel["bytes"]) for v in request] for request in requests]
    stores = [[(2 * address, 2 * size) for address, size in request] for request in loads]
    shared = [[(v[6], kernel["bytes"]) for v in request] for request in requests]
    elements = len(kernel["values"])
    return {
        "kernel": kernel["kernel"],
        "layout": kernel["layout"].replace("_", ""),
        "tile": kernel["tile"],
        "threads": kernel["threads"],
        "elements": elements,
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
        thread, place = value[0], value[1]
        if place % size == 0 and value[4]:
            found.setdefault((thread // WARP, place // size), []).append(value)
    return list(found.values())


def sectors(request: Sequence[tuple[int, int]]) -> int:
    """How many sectors of global memory one warp's access touches."""
    return len(
        {
            byte // SECTOR_BYTES
            for address, size in request
            for byte in range(address, address + size)
        }
    )


def passes(request: Sequence[tuple[int, int]]) -> int:
    """How often shared memory must be asked: as often as one bank is wanted for different words."""
    part = WARP * BANK_BYTES // max(request[0][1], BANK_BYTES)  # lanes that go together
    total = 0
    for first in range(0, len(request), part):
        lanes = request[first : first + part]
        words = {
            byte // BANK_BYTES for address, size in lanes for byte in range(address, address + size)
        }
        wanted = [word % BANKS for word in words]
        total += max(wanted.count(bank) for bank in set(wanted))
    return total


def fewest_passes(size: int) -> int:
    """Passes of a warp whose lanes move `size` bytes each, without any conflict."""
    return max(size // BANK_BYTES, 1)


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
