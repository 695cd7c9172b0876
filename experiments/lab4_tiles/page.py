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

from experiments.lab4_tiles import places, tile_facts
from experiments.lab4_tiles.accesses import SECTOR_BYTES, described
from experiments.lab4_tiles.tile_facts import (
    FLAT,
    LAB,
    LABELS,
    TILE,
    USUAL_GROUP,
    kernels_of,
    usual,
)
from experiments.lab4_tiles.tile_panels import tile_alt, tile_panels
from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values

GROUPS = (8, 16, 32, 64, 128, 256, 512)


page = Experiment(title="Tiles and threads of the CUDA kernel", version=3)


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


@page.quick
def quick(params: Params) -> bool:
    return True


@page.run
def run(params: Params, ctx: Context) -> Values:
    from kernels import build
    from madl import assets

    program = build.program("tile_map.cpp", include=assets.cute_include())
    group = int(params["group"] or 0)
    num_groups = int(params["elements"] or 0) // group

    def mapped(*block: int) -> dict[str, Any]:
        command = [str(program), *map(str, (group, num_groups, *block))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {kernel["kernel"]: kernel for kernel in json.loads(done.stdout)}

    first = mapped(0, 0)
    confirmed: list[dict[str, Any]] = []
    for name in (LAB, TILE):
        other = places.last_tile(group, first[name]["tile"])
        for block, kernel in (((0, 0), first[name]), (other, mapped(*other)[name])):
            confirmed.append(places.confirmed(kernel, group, block))
    return {"kernels": [described(kernel) for kernel in first.values()], "confirmed": confirmed}


# ---- facts --------------------------------------------------------------------------------------

for counted in (
    *(tile_facts.tiles_cover, tile_facts.threads_cover, tile_facts.loads_are_coalesced),
    *(tile_facts.conflicts_are_none, tile_facts.vectors_need_fewer_loads),
):
    page.fact(headline=True)(counted)
for counted in (
    *(tile_facts.others_follow, tile_facts.grid_ends),
    *(tile_facts.transposed_wastes, tile_facts.layout_is_of_threads),
):
    page.fact(counted)


# ---- charts, drawing, tables --------------------------------------------------------------------


@page.chart(
    caption="One load of the first warp, by mapping: the bytes that its threads want, and the "
    "bytes of all sectors that they lie in, which memory moves."
)
def moved(r: Records) -> Chart:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = usual(r, name)
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
    "Below, one tile, and the warps that hold it; then the first warp, thread by thread, a shade a "
    "sector. A column is one group. The first block and one other are as CuTe maps them; what is "
    "said of the rest is derived. Point at a block or a thread for its elements, bytes, banks.",
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
            **_other_block(r.one(group=group), name, warp),
        }
        for name in (LAB, TILE)
        for group, kernel in kernels_of(r, name).items()
        for warp, box in enumerate(kernel["warps"])
    ]


def _other_block(record: Any, name: str, warp: int) -> Row:
    """The block beside the first that CuTe was asked for, on the row of a mapping's first warp."""
    *_, one = (one for one in record.values["confirmed"] if one["kernel"] == name)
    cells = {"block": one["block"], "warp": [one["warp"]]}
    cells |= {"global bytes": one["warp_bytes"], "shared bytes": one["warp_slots"]}
    return {f"other {k}": "" if warp else " ".join(map(str, of)) for k, of in cells.items()}


@page.table
def kernels(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = usual(r, name)
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
    for group, kernel in kernels_of(r, LAB).items():
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
