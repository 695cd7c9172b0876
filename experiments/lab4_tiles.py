"""Question 4.3c: how `cta_tiler` tiles the copy and how `layout_sX` maps threads onto it.

A small program (`kernels/tile_map.cpp`) asks CuTe itself, on the host, which thread touches which
element; coalescing and bank conflicts follow from that by counting. Two variants that the
coursework's kernel is often mistaken for are mapped beside it, and the two vectorised kernels here.

Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

import functools
import html
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.claims import Fact
from madl.logbook.drawing import Panel
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number

GROUPS = (8, 16, 32, 64, 128, 256, 512)
USUAL_GROUP = 32  # OCP's
WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4
LAB, TRANSPOSED, FEWER, TILE, FLAT = "lab", "lab, transposed", "lab, fewer threads", "tile", "flat"
LABELS = {
    LAB: "coursework",
    TRANSPOSED: "threads transposed",
    TILE: "vector tile (CuTe)",
    FLAT: "vectorised, no tile",
}


page = Experiment(title="Tiles and threads of the CUDA kernel")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for group in plan.profile.choose(smoke=(USUAL_GROUP,), quick=GROUPS, full=GROUPS):
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


# ---- from a mapping to what the memory sees -----------------------------------------------------


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
        "first_warp": [address for address, _ in loads[0]],
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


# ---- facts --------------------------------------------------------------------------------------


def _kernel(record: Any, name: str) -> dict[str, Any]:
    return next(kernel for kernel in record.values["kernels"] if kernel["kernel"] == name)


def _kernels(r: Records, name: str) -> dict[int, dict[str, Any]]:
    """One mapping by group size."""
    return {group: _kernel(r.one(group=group), name) for group in sorted(r.each("group"))}


def _usual(r: Records, name: str) -> dict[str, Any]:
    return _kernel(r.one(group=USUAL_GROUP), name)


@page.fact
def tiles_cover(r: Records) -> Fact:
    found, usual = _kernels(r, LAB), _usual(r, LAB)
    slots = sum(kernel["slots"] for kernel in found.values())
    missed = slots - sum(kernel["filled"] for kernel in found.values())
    m, k = usual["tile"]
    return Fact(
        text=f"`cta_tiler` cuts the (group size, groups) view into tiles, {m} × {k} at groups of "
        f"{USUAL_GROUP}: {k} whole groups a block. `layout_sX` gives each of the "
        f"{usual['threads']:,} threads one element of the tile, and {missed} slots of shared "
        "memory stay empty",
        of=f"{slots:,} slots, one block at each of {len(found)} group sizes",
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


def tile_alt(rows: Sequence[Row]) -> str:
    return "The first warp of the coursework's kernel holds, at " + "; ".join(
        f"groups of {row['group']}: elements {row['m from']} to {row['m to']} of groups "
        f"{row['k from']} to {row['k to']}"
        for row in rows
        if row["warp"] == 0 and row["kernel"] == LABELS[LAB]
    )


def tile_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    """A panel a mapping and group size, the coursework's usual one open."""
    parts: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["kernel"], row["group"]), []).append(row)
    panels: list[Panel] = []
    for (kernel, group), warps in parts.items():
        m, k = warps[0]["tile m"], warps[0]["tile k"]
        title = f"{kernel}, groups of {group}: tiles of {m} × {k}"
        folded = (kernel, group) != (LABELS[LAB], USUAL_GROUP)
        panels.append(Panel(title=title, svg=tile_svg(warps, title), folded=folded))
    return sorted(panels, key=lambda panel: panel.folded)


LEFT, WIDTH, VIEW_TOP, VIEW_HEIGHT, TILE_TOP, TILE_HEIGHT = 34.0, 380.0, 26.0, 44.0, 112.0, 190.0
BLOCKS_SHOWN = 8  # along the groups; the view goes on to the right


def tile_svg(warps: Sequence[Row], label: str) -> str:
    """The view cut into blocks, and the first block's tile with a box for each warp."""
    tile_m, tile_k, group = (int(warps[0][name]) for name in ("tile m", "tile k", "group"))
    tall, step = -(-group // tile_m), WIDTH / BLOCKS_SHOWN
    high = VIEW_HEIGHT / tall
    parts = [_text(LEFT, 16, f"the view: {group} elements down, groups to the right →")]
    parts += [
        _box(LEFT + x * step, VIEW_TOP + y * high, step, high, "op" if x or y else "added",
             f"block ({y}, {x})")
        for y in range(tall)
        for x in range(BLOCKS_SHOWN)
    ]  # fmt: skip
    edge = VIEW_TOP + high
    parts += [
        f'<path class="wire" d="M{LEFT} {edge}V{TILE_TOP}M{LEFT + step} {edge}L{LEFT + WIDTH} '
        f'{TILE_TOP}"/>',
        _text(LEFT + 4, TILE_TOP - 8, f"block (0, 0): {tile_m} × {tile_k}"),
    ]
    x, y = WIDTH / tile_k, TILE_HEIGHT / tile_m
    for row in warps:
        m, k = row["m from"], row["k from"]
        first = WARP * row["warp"]
        parts.append(
            _box(
                *(LEFT + k * x, TILE_TOP + m * y),
                *((row["k to"] - k + 1) * x, (row["m to"] - m + 1) * y),
                "op" if row["warp"] else "added",
                f"T{first} … T{first + WARP - 1}",
            )
        )
    height = TILE_TOP + TILE_HEIGHT + 8
    return (
        f'<svg class="graph" viewBox="0 0 420 {height:.0f}" role="img" '
        f'aria-label="{html.escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, turned: str = "") -> str:
    return f'<text class="note" x="{x:.1f}" y="{y:.1f}"{turned}>{html.escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, look: str, text: str) -> str:
    """A box with its text lying, or standing, where there is room for it; else to point at."""
    long = 6.8 * len(text) + 8
    inside = ""
    if long < width and height > 14:
        inside = _text(x + 4, y + 13, text)
    elif long < height and width > 11:
        at = f"{x + width / 2 - 3.5:.1f} {y + 4:.1f}"
        inside = _text(0, 0, text, f' transform="translate({at}) rotate(90)"')
    return (
        f'<g class="{look}"><title>{html.escape(text)}</title><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/>{inside}</g>'
    )


@page.drawing(
    caption="Above, the mantissas as a matrix that cta_tiler cuts into a tile for each block. "
    "Below, one tile, and the warps that hold it, as CuTe maps them. A column is one group; T are "
    "threads.",
    panels=tile_panels,
    alt=tile_alt,
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
