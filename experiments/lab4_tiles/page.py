"""Question 4.3c: how `cta_tiler` tiles the copy and how `layout_sX` maps threads onto it.

A small program (`kernels/tile_map.cpp`) asks CuTe itself, on the host, which thread touches which
element; coalescing and bank conflicts follow from that by counting. Two variants that the
coursework's kernel is often mistaken for are mapped beside it, and the two vectorised kernels here.
"""

import math
import shutil
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from experiments.lab4_tiles import study
from experiments.lab4_tiles.study import FLAT, LAB, TILE, TRANSPOSED, WARP
from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values

GROUPS = (8, 16, 32, 64, 128, 256, 512)
USUAL_GROUP = 32  # OCP's
GRID_Y = 65_535  # blocks along a grid's second axis (CUDA C++ Programming Guide, limits)
LABELS = {
    LAB: "coursework",
    TRANSPOSED: "its threads transposed",
    TILE: "eight bytes a thread",
    FLAT: "eight bytes, no tile",
}

page = Experiment(title="Tiles and threads of the CUDA kernel", version=3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for group in plan.profile.choose(smoke=(USUAL_GROUP,), quick=GROUPS):
        yield {"group": group, "elements": 1 << 16}


@cache
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
    group = int(params["group"] or 0)
    return study.study(group, int(params["elements"] or 0) // group)


# ---- numbers ------------------------------------------------------------------------------------


def _kernel(record: Record, name: str) -> dict[str, Any]:
    return next(kernel for kernel in record.values["kernels"] if kernel["kernel"] == name)


def _kernels(r: Records, name: str) -> dict[int, dict[str, Any]]:
    """One mapping by group size."""
    return {group: _kernel(r.one(group=group), name) for group in sorted(r.each("group"))}


def _usual(r: Records, of: str, name: str) -> Counted:
    """A value of a mapping at the usual group size; of a list, its largest."""
    record = r.one(group=USUAL_GROUP)
    value = _kernel(record, name)[of]
    return counted(max(value) if isinstance(value, list) else value, of=[record])


def _loads(r: Records, name: str) -> Counted:
    """Loads of a warp for as many mantissas as a block of the vectorised kernel takes."""
    record = r.one(group=USUAL_GROUP)
    one, mantissas = _kernel(record, name), _kernel(record, FLAT)["elements"]
    return counted(one["requests"] * mantissas // one["elements"], of=[record])


def launch_side(r: Records) -> Counted:
    """Rows of a square weight that one launch of the coursework's kernel is too small for."""
    record = r.one(group=USUAL_GROUP)
    most = GRID_Y * _kernel(record, LAB)["tile"][1] * USUAL_GROUP  # groups on the second axis
    return counted(1 << math.isqrt(most).bit_length(), of=[record])


def _accesses(r: Records, of: str) -> int:
    """Of a warp, in one block of the two tiles that copy through shared memory, at each size."""
    return sum(len(one[of]) for name in (LAB, TILE) for one in _kernels(r, name).values())


page.numbers(
    values=partial(_usual, of="slots", name=LAB),
    warp_bytes=partial(_usual, of="load_bytes", name=LAB),
    vector_bytes=partial(_usual, of="bytes", name=TILE),
    mantissas=partial(_usual, of="elements", name=FLAT),
    loads=partial(_loads, name=LAB),
    vector_loads=partial(_loads, name=TILE),
    transposed_sectors=partial(_usual, of="load_sectors", name=TRANSPOSED),
    transposed_passes=partial(_usual, of="passes", name=TRANSPOSED),
    fewer_threads=partial(_usual, of="threads", name=study.FEWER),
    fewer_filled=partial(_usual, of="filled", name=study.FEWER),
    tallest=lambda r: counted(study.TALLEST, of=r),
    launch_side=launch_side,
    loads_checked=partial(_accesses, of="load_sectors"),
    accesses_checked=partial(_accesses, of="passes"),
)


# ---- the toy ------------------------------------------------------------------------------------

WIDTH, VIEW_TOP, VIEW_HEIGHT, TILE_TOP, TILE_HEIGHT = 380.0, 20.0, 44.0, 94.0, 128.0
LANE_TOP, LANE_HEIGHT, HEIGHT = 250.0, 22.0, 274
ACROSS = 8  # blocks along the groups; the view goes on to the right


def _said(rows: Sequence[Row]) -> str:
    row = rows[0]
    return (
        f"{row['kernel']}, groups of {row['group']}: T0 of block (0, 0) copies value 0 of group 0. "
        f"One load of its warp uses {_load(row)}."
    )


def _load(row: Row) -> str:
    return f"{WARP * row['bytes']} bytes of {row['sectors'] * study.SECTOR_BYTES:,} fetched"


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The first thread of the coursework's first block; the script shows any other."""
    table = field_table(
        ("a thread", "its part"),
        (
            ("number", field("warp", "T0: warp 0, lane 0")),
            ("value", field("elements", "value 0 of group 0")),
            ("global memory", field("read", "byte 0, sector 0")),
            ("shared memory", field("shared", "byte 0, bank 0")),
            ("its warp loads", field("load", _load(rows[0]))),
            ("bank passes", field("passes", rows[0]["passes"])),
        ),
    )
    svg = f'<div class="beside">{_svg(rows[0])}{table}</div>\n{says(_said(rows))}'
    return [Panel(title="", svg=svg, folded=False)]


def _svg(row: Row) -> str:
    """The view cut into blocks, the first block's tile by warps, its first warp by threads.

    Of a warp that holds one group and reads one sector; the script draws any.
    """
    m, k = int(row["tile m"]), int(row["tile k"])
    tall, step = -(-int(row["group"]) // m), WIDTH / ACROSS
    high, wide = VIEW_HEIGHT / tall, WIDTH / k
    blocks = [
        _box(x * step, VIEW_TOP + y * high, step, high, is_on=not (x or y))
        for y in range(tall)
        for x in range(ACROSS)
    ]
    warps = [_box(x * wide, TILE_TOP, wide, TILE_HEIGHT, is_on=not x) for x in range(k)]
    lane = WIDTH / WARP
    lanes = [_box(x * lane, LANE_TOP, lane, LANE_HEIGHT, is_on=True) for x in range(WARP)]
    parts = (
        _text("all mantissas: a column is a group", 12),
        _part("blocks", blocks),
        _text(f"block (0, 0): {m} × {k}; green: warp 0", 86, "block"),
        _part("warps", warps),
        _text("warp 0, thread by thread; a shade a sector", 242, "lanes"),
        _part("lanes", lanes),
    )
    return f'<svg class="graph" viewBox="0 0 {WIDTH:g} {HEIGHT}">{"".join(parts)}</svg>'


def _part(name: str, boxes: Sequence[str]) -> str:
    return f'<g data-part="{name}">{"".join(boxes)}</g>'


def _text(text: str, y: int, name: str = "") -> str:
    named = f' data-f="{name}"' if name else ""
    return f'<text class="note" x="0" y="{y}"{named}>{text}</text>'


def _box(x: float, y: float, width: float, height: float, *, is_on: bool) -> str:
    return (
        f'<g class="{"added" if is_on else "op"}"><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/></g>'
    )


@page.drawing(panels=_panels, alt=_said, script="tiles")
def tile(r: Records) -> Sequence[Row]:
    made: list[Row] = [
        {
            "kernel": LABELS[name],
            "group": group,
            "tile m": kernel["tile"][0],
            "tile k": kernel["tile"][1],
            "layout": kernel["layout"],
            "threads": kernel["threads"],
            "bytes": kernel["bytes"],
            "sectors": kernel["load_sectors"][0],
            "passes": kernel["passes"][0],
            "groups": int(r.one(group=group).case.params["elements"] or 0) // group,
        }
        for name in (LAB, TRANSPOSED, TILE)
        for group, kernel in _kernels(r, name).items()
    ]
    return sorted(made, key=lambda row: (row["kernel"], row["group"]) != (LABELS[LAB], USUAL_GROUP))


# ---- chart and table ----------------------------------------------------------------------------


@page.chart
def moved(r: Records) -> Chart:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = _kernel(r.one(group=USUAL_GROUP), name)
        fetched = kernel["load_sectors"][0] * study.SECTOR_BYTES
        rows.append({"mapping": label, "wanted": kernel["load_bytes"][0], "fetched": fetched})
    return Chart(
        rows,
        x=linear(label="bytes of one load of a warp"),
        y=category("mapping"),
        marks=bars("wanted", "fetched"),
    )


@page.table
def groups(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for group, kernel in _kernels(r, LAB).items():
        (m, k), warp = kernel["tile"], kernel["warps"][0]
        rows.append(
            {
                "group size": group,
                "tile": f"{m}\u00a0×\u00a0{k}",
                "blocks a group": -(-group // m),
                "thread layout": f"`{kernel['layout']}`",
                "a warp holds": f"{warp[1] - warp[0] + 1}\u00a0×\u00a0{warp[3] - warp[2] + 1}",
                "sectors a load": max(kernel["load_sectors"]),
            }
        )
    return rows
