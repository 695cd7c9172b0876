"""Question 4.3c: how `cta_tiler` tiles the copy and how `layout_sX` maps threads onto it.

A small program (`kernels/tile_map.cpp`) asks CuTe itself, on the host, which thread touches which
element; coalescing and bank conflicts follow from that by counting. Two variants that the
coursework's kernel is often mistaken for are mapped beside it, and the two vectorised kernels here.
"""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from madl.errors import MadlError
from madl.execution.accesses import SECTOR_BYTES, described, fewest_passes
from madl.execution.tile_panels import tile_alt, tile_panels
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number

GROUPS = (8, 16, 32, 64, 128, 256, 512)
USUAL_GROUP = 32  # OCP's
LAB, TRANSPOSED, FEWER, TILE, FLAT = "lab", "lab, transposed", "lab, fewer threads", "tile", "flat"
LABELS = {
    LAB: "coursework",
    TRANSPOSED: "threads transposed",
    TILE: "vector tile (CuTe)",
    FLAT: "vectorised, no tile",
}


page = Experiment(title="Tiles and threads of the CUDA kernel", version=2)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for group in plan.profile.choose(smoke=(USUAL_GROUP,), quick=GROUPS):
        yield {"group": group, "elements": 1 << 16}


@functools.cache
def _missing() -> str | None:
    from madl import assets

    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        return "no C++ compiler"
    try:
        assets.cute_include()
    except MadlError as error:
        return f"no CuTe headers ({error})"
    return None


@page.unavailable
def unavailable(params: Params) -> str | None:
    return _missing()


@page.run
def run(params: Params, ctx: Context) -> Values:
    from kernels import build
    from madl import assets

    program = build.program("tile_map.cpp", include=assets.cute_include())
    group = int(params["group"] or 0)
    num_groups = int(params["elements"] or 0) // group
    command = [str(program), *map(str, (group, num_groups, 0, 0))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"kernels": [described(kernel) for kernel in json.loads(done.stdout)]}


# ---- facts --------------------------------------------------------------------------------------


def _kernel(record: Any, name: str) -> dict[str, Any]:
    return next(kernel for kernel in record.values["kernels"] if kernel["kernel"] == name)


def _kernels(r: Records, name: str) -> dict[int, dict[str, Any]]:
    """One mapping by group size."""
    return {group: _kernel(r.one(group=group), name) for group in sorted(r.each("group"))}


def _usual(r: Records, name: str) -> dict[str, Any]:
    return _kernel(r.one(group=USUAL_GROUP), name)


@page.fact(headline=True)
def tiles_cover(r: Records) -> Fact:
    found, usual = _kernels(r, LAB), _usual(r, LAB)
    slots = sum(kernel["slots"] for kernel in found.values())
    filled = sum(kernel["filled"] for kernel in found.values())
    m, k = usual["tile"]
    warp = usual["first_warp_shared"]
    run = next((i for i, at in enumerate(warp) if at != warp[0] + i), len(warp))
    return Fact(
        text=f"At groups of {USUAL_GROUP} values, `cta_tiler` gives a block a tile of {m} × {k}: "
        f"{k} whole groups. `layout_sX` gives each of its {usual['threads']:,} threads one value, "
        f"in the order of a group (the first {run} threads hold the {run} values of the first); "
        f"at {len(found)} group sizes it fills {filled:,} of {slots:,} slots of shared memory",
        of=f"one block at each of {len(found)} group sizes",
    )


@page.fact
def loads_are_coalesced(r: Records) -> Fact:
    found = _kernels(r, LAB).values()
    wasted = sum(
        count * SECTOR_BYTES != used
        for kernel in found
        for count, used in zip(kernel["load_sectors"], kernel["load_bytes"])
    )
    return Fact(
        text="Neighbouring threads hold neighbouring elements of a group, so loads coalesce: "
        f"{wasted} loads of a warp touch a sector, the {SECTOR_BYTES} bytes that memory moves at "
        "least, that they do not use whole",
        of=f"{sum(kernel['requests'] for kernel in found):,} loads of a warp, one block at each of "
        f"{len(found)} group sizes",
    )


@page.fact
def vectors_need_fewer_loads(r: Records) -> Fact:
    lab, flat = _usual(r, LAB), _usual(r, FLAT)
    times = lab["requests"] / lab["elements"] * flat["elements"] / flat["requests"]
    return Fact(
        text=f"A thread of the coursework's kernel loads one byte, so a load of a warp moves "
        f"{lab['load_bytes'][0]} bytes; in the vectorised mapping it moves "
        f"{flat['load_bytes'][0]}. For the same data that is {number(times)} times the loads",
        of=f"the {lab['elements']:,} and {flat['elements']:,} elements of a block of either",
    )


@page.fact
def transposed_wastes(r: Records) -> Fact:
    lab, other = _usual(r, LAB), _usual(r, TRANSPOSED)
    return Fact(
        text="With the same tile and the threads laid out the other way round, a load of a warp "
        f"would touch {max(other['load_sectors'])} sectors instead of {max(lab['load_sectors'])}, "
        f"and shared memory would take {max(other['passes'])} passes instead of "
        f"{max(lab['passes'])}",
        of=f"{other['requests']} loads of a warp in one block, groups of {USUAL_GROUP}",
    )


@page.fact
def conflicts_are_none(r: Records) -> Fact:
    found = [(k, 1) for k in _kernels(r, LAB).values()]
    found += [(k, 8) for k in _kernels(r, TILE).values()]
    extra = sum(p > fewest_passes(size) for kernel, size in found for p in kernel["passes"])
    return Fact(
        text="Neither the coursework's tile nor the vector tile has bank conflicts: "
        f"{extra} accesses of a warp to shared memory take more passes than their bytes need",
        of=f"{sum(len(kernel['passes']) for kernel, _ in found):,} accesses of a warp, one block "
        f"of both at each of {len(found) // 2} group sizes",
    )


@page.fact
def layout_is_of_threads(r: Records) -> Fact:
    lab, fewer = _usual(r, LAB), _usual(r, FEWER)
    return Fact(
        text="`layout_sX` is a layout of threads, not of shared memory: with "
        f"{fewer['threads']} threads instead of {lab['threads']:,} and `layout_sX` left as it was, "
        f"{fewer['filled']:,} slots would be filled",
        of=f"{fewer['slots']:,} slots of one block, groups of {USUAL_GROUP}",
    )


# ---- charts, drawing, tables --------------------------------------------------------------------


@page.chart(
    caption="One load of the first warp, by mapping: the bytes that its threads want, and the "
    "bytes of all sectors that they lie in, which memory moves."
)
def moved(r: Records) -> Chart:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = _usual(r, name)
        sectors_touched = kernel["load_sectors"][0]
        rows.append(
            {
                "mapping": label,
                "wanted": kernel["load_bytes"][0],
                "moved": sectors_touched * SECTOR_BYTES,
            }
        )
    return Chart(
        rows,
        x=linear(label="bytes of one load of a warp"),
        y=category("mapping"),
        marks=bars("wanted", "moved"),
    )


@page.drawing(
    caption="Above, the mantissas as a matrix that cta_tiler cuts into a tile for each block. "
    "Below, one tile, and the warps that hold it, as CuTe maps them; then the first warp, thread "
    "by thread, a shade a sector. A column is one group. Point at a block or a thread for its own "
    "part: elements, bytes, banks.",
    panels=functools.partial(tile_panels, group_shown=USUAL_GROUP),
    alt=tile_alt,
    script="tiles",
)
def tile(r: Records) -> Sequence[Row]:
    return [
        {
            "kernel": LABELS[name],
            "group": group,
            "tile m": kernel["tile"][0],
            "tile k": kernel["tile"][1],
            "warp": warp,
            **dict(zip(("m from", "m to", "k from", "k to", "elements"), box)),
            "bytes": kernel["bytes"],
            "layout": kernel["layout"],
            "threads": kernel["threads"],
            "groups": int(r.one(group=group).case.params["elements"] or 0) // group,
            "global bytes": " ".join(map(str, kernel["first_warp"])) if not warp else "",
            "shared bytes": " ".join(map(str, kernel["first_warp_shared"])) if not warp else "",
        }
        for name in (LAB, TILE)
        for group, kernel in _kernels(r, name).items()
        for warp, box in enumerate(kernel["warps"])
    ]


@page.table
def kernels(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = _usual(r, name)
        m, k = kernel["tile"]
        rows.append(
            {
                "mapping": label,
                "tile": f"{m} × {k}" if name != FLAT else f"{m:,} in a row",
                "threads": kernel["threads"],
                "thread layout": f"`{kernel['layout']}`",
                "bytes a load": kernel["load_bytes"][0],
                "sectors, load": kernel["load_sectors"][0],
                "sectors, store": kernel["store_sectors"][0],
                "shared memory passes": kernel["passes"][0] if kernel["passes"] else "none used",
            }
        )
    return rows


@page.table
def groups(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for group, kernel in _kernels(r, LAB).items():
        (m, k), warp = kernel["tile"], kernel["warps"][0]
        rows.append(
            {
                "group": group,
                "cta_tiler": f"({m}, {k})",
                "blocks a group": -(-group // m),
                "layout of threads": f"`{kernel['layout']}`",
                "a warp holds": f"{warp[1] - warp[0] + 1} × {warp[3] - warp[2] + 1}",
                "sectors, load": max(kernel["load_sectors"]),
                "sectors, store": max(kernel["store_sectors"]),
                "shared memory passes": max(kernel["passes"]),
            }
        )
    return rows
