"""What is counted of the mappings that question 4.3c compares, as facts of its page.

Every count is of the first block of a mapping, as CuTe has it; see `accesses` for its values.
"""

import math
from typing import Any

from experiments.lab4_tiles.accesses import SECTOR_BYTES, WARP, fewest_passes
from madl.logbook.claims import Fact
from madl.logbook.records import Record, Records

USUAL_GROUP = 32  # OCP's
TALLEST, SLOTS = 128, 1024  # of the coursework's tile: the longest column, and values in all
GRID_Y = 65_535  # blocks along a grid's second axis (CUDA C++ Programming Guide, limits)
LAB, TRANSPOSED, FEWER, TILE, FLAT = "lab", "lab, transposed", "lab, fewer threads", "tile", "flat"
LABELS = {
    LAB: "coursework",
    TRANSPOSED: "threads transposed (no kernel)",
    TILE: "vector tile (CuTe)",
    FLAT: "vectorised, no tile",
}


def kernel_of(record: Record, name: str) -> dict[str, Any]:
    return next(kernel for kernel in record.values["kernels"] if kernel["kernel"] == name)


def kernels_of(r: Records, name: str) -> dict[int, dict[str, Any]]:
    """One mapping by group size."""
    return {group: kernel_of(r.one(group=group), name) for group in sorted(r.each("group"))}


def usual(r: Records, name: str) -> dict[str, Any]:
    return kernel_of(r.one(group=USUAL_GROUP), name)


def tile_of(group: int) -> list[int]:
    """BLK_M and BLK_K of the coursework's kernel, by the size of a group."""
    m = min(group, TALLEST)
    return [m, SLOTS // m]


def tiles_cover(r: Records) -> Fact:
    found = kernels_of(r, LAB)
    fits = sum(kernel["tile"] == tile_of(group) for group, kernel in found.items())
    m, k = usual(r, LAB)["tile"]
    said = f"At groups of {USUAL_GROUP} that is {m} × {k}, so {k} whole groups"
    if cut := [group for group, kernel in found.items() if group > kernel["tile"][0]]:
        said += f"; groups of {' and '.join(map(str, cut))} are cut into several blocks"
    return Fact(
        text="`cta_tiler` is a shape in CuTe, the kernel's library of layouts, and cuts the "
        "mantissas, seen as a matrix with a group a column, into one tile a block, of "
        f"BLK_M = min(group size, {TALLEST}) values of each of BLK_K = {SLOTS:,} / BLK_M groups "
        f"(at {fits} of {len(found)} group sizes). {said}",
        of=f"one block at each of {len(found)} group sizes",
    )


def threads_cover(r: Records) -> Fact:
    found, lab = kernels_of(r, LAB), usual(r, LAB)
    slots = sum(kernel["slots"] for kernel in found.values())
    filled = sum(kernel["filled"] for kernel in found.values())
    warp = lab["first_warp_shared"]
    run = next((i for i, at in enumerate(warp) if at != warp[0] + i), len(warp))
    return Fact(
        text=f"`layout_sX` gives each of a block's {lab['threads']:,} threads one value of `sX`, "
        f"the tile in shared memory, down a group first: at groups of {USUAL_GROUP} the first "
        f"{run} threads (a warp is {WARP} that run together) hold {run} values of one group, in "
        f"order. At {len(found)} group sizes it fills {filled:,} of {slots:,} slots",
        of=f"one block at each of {len(found)} group sizes",
    )


def loads_are_coalesced(r: Records) -> Fact:
    found = kernels_of(r, LAB).values()
    wasted = sum(
        count * SECTOR_BYTES != used
        for kernel in found
        for count, used in zip(kernel["load_sectors"], kernel["load_bytes"])
    )
    requests = sum(kernel["requests"] for kernel in found)
    said = f"{requests - wasted:,} of {requests:,}" if wasted else f"All {requests:,}"
    return Fact(
        text="`layout_tX`, equal to `layout_sX` in the coursework's kernel, maps threads onto the "
        "tile in global memory in the same order, so loads of mantissas coalesce. "
        f"{said} loads of a warp use every byte of each sector ({SECTOR_BYTES} bytes, the least "
        "that memory moves) that they touch; scales, one byte a group, are not mapped",
        of=f"one block at each of {len(found)} group sizes",
    )


def vectors_need_fewer_loads(r: Records) -> Fact:
    lab, tile, flat = (usual(r, name) for name in (LAB, TILE, FLAT))
    mantissas = flat["elements"]
    one, tiled, untiled = (k["requests"] * mantissas // k["elements"] for k in (lab, tile, flat))
    return Fact(
        text=f"The coursework's threads load {lab['bytes']} byte each, so {mantissas:,} mantissas "
        f"take {one:,} loads of a warp; vectorised, with {tile['bytes']} bytes a thread, "
        f"“{LABELS[TILE]}” (`dequantize_tile.cu` here) takes {tiled:,}. “{LABELS[FLAT]}” "
        "(`dequantize_flat.cu`, the kernel that `madl::mxint8_dequantize` runs on a GPU) takes "
        f"{untiled:,} with {flat['bytes']} bytes a thread, and no shared memory",
        of=f"{mantissas:,} mantissas in groups of {USUAL_GROUP}, counted from one block of each",
    )


def others_follow(r: Records) -> Fact:
    every = [one for group in r.each("group") for one in r.one(group=group).values["confirmed"]]
    blocks = {(one["kernel"], *one["block"]) for one in every}
    return Fact(
        text="CuTe itself maps the first block of a mapping and one other; what is said of any "
        "further block is derived from its layout of threads, by a rule that gives CuTe's places "
        f"for all {sum(one['threads'] for one in every):,} threads of those. A case where it does "
        "not fails",
        of=f"{len(every)} blocks of {len({name for name, *_ in blocks})} mappings at "
        f"{len(r.each('group'))} group sizes",
    )


def grid_ends(r: Records) -> Fact:
    _, k = usual(r, LAB)["tile"]
    most = GRID_Y * k * USUAL_GROUP
    side = 1 << math.isqrt(most).bit_length()
    return Fact(
        text=f"The coursework's kernel counts groups on the grid's second axis, which takes "
        f"{GRID_Y:,} blocks: at groups of {USUAL_GROUP} one launch ends at {most:,} mantissas, and "
        f"a weight of {side:,} × {side:,} has {side * side:,}. Its wrapper in Python therefore "
        "splits longer tensors into several launches",
        of=f"tiles of {k} groups",
    )


def transposed_wastes(r: Records) -> Fact:
    lab, other = usual(r, LAB), usual(r, TRANSPOSED)
    return Fact(
        text="With the same tile and the threads laid out the other way round, a load of a warp "
        f"would touch {max(other['load_sectors'])} sectors instead of {max(lab['load_sectors'])}, "
        f"and shared memory would take {max(other['passes'])} passes instead of "
        f"{max(lab['passes'])}",
        of=f"{other['requests']} loads of a warp in one block, groups of {USUAL_GROUP}",
    )


def conflicts_are_none(r: Records) -> Fact:
    found = [kernel for name in (LAB, TILE) for kernel in kernels_of(r, name).values()]
    extra = sum(p > fewest_passes(kernel["bytes"]) for kernel in found for p in kernel["passes"])
    accesses = sum(len(kernel["passes"]) for kernel in found)
    said = "Neither the coursework's tile nor the vector tile has bank conflicts: none"
    if extra:
        said = f"The coursework's tile or the vector tile has bank conflicts: {extra:,}"
    return Fact(
        text=f"{said} of {accesses:,} accesses of a warp to shared memory take more passes than "
        "their bytes need. In a conflict, threads of a warp want different words of one of the "
        "banks, each of which gives one word at a time",
        of=f"one block of both at each of {len(found) // 2} group sizes",
    )


def layout_is_of_threads(r: Records) -> Fact:
    lab, fewer = usual(r, LAB), usual(r, FEWER)
    return Fact(
        text="`layout_sX` is a layout of threads, not of shared memory: with "
        f"{fewer['threads']} threads instead of {lab['threads']:,} and `layout_sX` left as it was, "
        f"{fewer['filled']:,} slots would be filled. That takes for granted that a copy ends where "
        "a thread's part of shared memory does, as in CuTe's `copy_if`; no copy is run here",
        of=f"{fewer['slots']:,} slots of one block, groups of {USUAL_GROUP}",
    )
