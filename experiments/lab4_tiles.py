"""Question 4.3c: how `cta_tiler` tiles the copy and how `layout_sX` maps threads onto it.

A small program (`kernels/tile_map.cpp`) asks CuTe itself, on the host, which thread touches which
element; coalescing and bank conflicts follow from that by counting. Two variants that the
coursework's kernel is often mistaken for are mapped beside it, and the two vectorised kernels here.

Source: CUDA C++ Programming Guide, "Device Memory Accesses" (sectors of 32 bytes) and "Shared
Memory" (32 banks of 4 bytes; accesses of 8 and 16 bytes go by halves and quarters of a warp).
"""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.errors import MadlError
from madl.logbook import plots, stats
from madl.logbook.experiment import (
    Claim,
    Context,
    Drawing,
    Experiment,
    Figure,
    Panel,
    Params,
    Plan,
    Row,
)
from madl.logbook.results import Pending, Records

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


def params(plan: Plan) -> Iterable[Params]:
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


def unavailable(params: Params) -> str | None:
    return _missing()


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
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


# ---- claims -------------------------------------------------------------------------------------


def _kernels(records: Records, name: str) -> dict[int, dict[str, Any]]:
    """One kernel's description by group size."""
    found = {
        int(r.case.params["group"] or 0): kernel
        for r in records
        if "kernels" in r.values
        for kernel in r.values["kernels"]
        if kernel["kernel"] == name
    }
    if not found:
        raise Pending(name)
    return found


def _usual(records: Records, name: str) -> dict[str, Any]:
    found = _kernels(records, name)
    if USUAL_GROUP not in found:
        raise Pending(f"group={USUAL_GROUP}")
    return found[USUAL_GROUP]


def tiles_cover(records: Records) -> Claim:
    found = _kernels(records, LAB)
    slots = sum(kernel["slots"] for kernel in found.values())
    usual = _usual(records, LAB)
    m, k = usual["tile"]
    missed = slots - sum(kernel["filled"] for kernel in found.values())
    text = (
        f"`cta_tiler` cuts the (group size × groups) view into tiles, {m} × {k} at groups of "
        f"{USUAL_GROUP}: {k} whole groups a block. `layout_sX` gives each of the "
        f"{usual['threads']:,} threads one element of the tile, and over {len(found)} group sizes "
        f"{missed} of {slots:,} slots of shared memory stay empty"
    )
    return stats.none_of(missed, slots, text)


def loads_are_coalesced(records: Records) -> Claim:
    found = _kernels(records, LAB).values()
    wasted = sum(
        count * SECTOR_BYTES != used
        for kernel in found
        for count, used in zip(kernel["load_sectors"], kernel["load_bytes"])
    )
    total = sum(kernel["requests"] for kernel in found)
    text = (
        "Neighbouring threads hold neighbouring elements of a group, so loads coalesce: "
        f"{wasted} of {total} warp loads touch a sector of {SECTOR_BYTES} bytes that they do not "
        "use whole"
    )
    return stats.none_of(wasted, total, text)


def _requests_per_element(kernel: Mapping[str, Any]) -> float:
    return kernel["requests"] / kernel["elements"]


def vectors_need_fewer_requests(records: Records) -> Claim:
    lab, flat = _usual(records, LAB), _usual(records, FLAT)
    a, b = _requests_per_element(lab), _requests_per_element(flat)
    text = (
        f"What costs the kernel is one byte a thread: a warp load moves {lab['load_bytes'][0]} "
        f"bytes, in the vectorised mapping {flat['load_bytes'][0]}, so for the same data the "
        f"coursework's mapping takes {a / b:.0f} times the load instructions"
    )
    comparison = stats.counted(1.0, b / a, flat["elements"], unit=stats.Unit.PERCENT)
    return comparison.degrades(text)


def transposed_wastes(records: Records) -> Claim:
    lab, other = _usual(records, LAB), _usual(records, TRANSPOSED)
    a, b = lab["load_sectors"][0], other["load_sectors"][0]
    text = (
        f"With the same tile and the threads laid out the other way round, each warp load would "
        f"touch {b} sectors instead of {a}, and shared memory would be asked "
        f"{other['passes'][0]} times instead of {lab['passes'][0]}"
    )
    return stats.counted(1.0, b / a, other["requests"], unit=stats.Unit.PERCENT).improves(text)


def conflicts_are_none(records: Records) -> Claim:
    found = [(k, 1) for k in _kernels(records, LAB).values()]
    found += [(k, 8) for k in _kernels(records, TILE).values()]
    extra = sum(p > fewest_passes(size) for kernel, size in found for p in kernel["passes"])
    total = sum(len(kernel["passes"]) for kernel, _ in found)
    text = (
        f"Neither the coursework's tile nor the vector tile has bank conflicts: {extra} of {total} "
        "warp accesses to shared memory take more passes than their bytes need"
    )
    return stats.none_of(extra, total, text)


def layout_is_of_threads(records: Records) -> Claim:
    lab, fewer = _usual(records, LAB), _usual(records, FEWER)
    text = (
        "`layout_sX` is a layout of threads, not of shared memory: with "
        f"{fewer['threads']} threads instead of {lab['threads']:,} and `layout_sX` left as it was, "
        f"only {fewer['filled']} of {fewer['slots']:,} slots would be filled"
    )
    share = fewer["filled"] / fewer["slots"]
    comparison = stats.counted(1.0, share, fewer["slots"], unit=stats.Unit.PERCENT)
    return comparison.degrades(text)


# ---- figures and tables -------------------------------------------------------------------------


def bytes_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = _usual(records, name)
        size = kernel["load_bytes"][0] // WARP
        rows += [
            {"kernel": label, "thread": i, "first byte": address, "bytes": size}
            for i, address in enumerate(kernel["first_warp"])
        ]
    return rows


def draw_bytes(ax: Any, rows: Sequence[Row]) -> None:
    labels = list(dict.fromkeys(str(row["kernel"]) for row in rows))
    end = max(int(row["first byte"] or 0) + int(row["bytes"] or 0) for row in rows)
    for place, label in enumerate(labels):
        mine = [row for row in rows if row["kernel"] == label]
        touched = {int(row["first byte"] or 0) // SECTOR_BYTES for row in mine}
        whole = [(s * SECTOR_BYTES, SECTOR_BYTES) for s in range(-(-end // SECTOR_BYTES))]
        ax.broken_barh(whole, (place - 0.3, 0.6), facecolor="none", edgecolor=plots.color("chance"),
                       linewidth=0.4)  # fmt: skip
        moved = [(s * SECTOR_BYTES, SECTOR_BYTES) for s in sorted(touched)]
        ax.broken_barh(moved, (place - 0.3, 0.6), facecolor=plots.color("second"), alpha=0.35)
        used = [(int(row["first byte"] or 0), max(int(row["bytes"] or 0), 3)) for row in mine]
        ax.broken_barh(used, (place - 0.3, 0.6), facecolor=plots.color("first"))
        needed = sum(int(row["bytes"] or 0) for row in mine)
        text = f"{label}: {needed} of {SECTOR_BYTES * len(touched)} bytes used"
        ax.text(0, place - 0.36, text, fontsize=9, color=plots.color("fp32"))
    ax.set_ylim(len(labels) - 0.5, -0.75)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.set_xticks(range(0, end + 1, 256))
    ax.set_xlabel("byte of global memory, from the block's first")


def bytes_alt(rows: Sequence[Row]) -> str:
    parts: list[str] = []
    for label in dict.fromkeys(str(row["kernel"]) for row in rows):
        mine = [row for row in rows if row["kernel"] == label]
        touched = {int(row["first byte"] or 0) // SECTOR_BYTES for row in mine}
        used = sum(int(row["bytes"] or 0) for row in mine)
        parts.append(f"{label}: {used} bytes, {len(touched)} sector(s)")
    return "What the first warp's first load touches. " + "; ".join(parts) + "."


def tile_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for name in (LAB, TILE):
        for group, kernel in sorted(_kernels(records, name).items()):
            for warp, (m_low, m_high, k_low, k_high, count) in enumerate(kernel["warps"]):
                rows.append(
                    {
                        "kernel": LABELS[name],
                        "group": group,
                        "tile m": kernel["tile"][0],
                        "tile k": kernel["tile"][1],
                        "warp": warp,
                        "m from": m_low,
                        "m to": m_high,
                        "k from": k_low,
                        "k to": k_high,
                        "elements": count,
                    }
                )
    return rows


def tile_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    panels: list[Panel] = []
    for kernel, group in dict.fromkeys((str(r["kernel"]), int(r["group"] or 0)) for r in rows):
        mine = [r for r in rows if r["kernel"] == kernel and r["group"] == group]
        first = mine[0]
        title = f"{kernel}, groups of {group}: tile {first['tile m']} × {first['tile k']}"
        folded = group != USUAL_GROUP or kernel != LABELS[LAB]
        panels.append(Panel(title=title, svg=tile_svg(mine, title), folded=folded))
    return sorted(panels, key=lambda panel: panel.folded)


def tile_svg(warps: Sequence[Row], label: str) -> str:
    """The tile with a box for each warp: groups from left to right, a group from top to bottom."""
    width, height, left, top = 380.0, 190.0, 34.0, 26.0
    x = width / int(warps[0]["tile k"] or 1)
    y = height / int(warps[0]["tile m"] or 1)
    parts = [
        f'<text class="note" x="{left}" y="16">group k → (a scale each); warp 0 stands out</text>',
        f'<text class="note" transform="translate(22 {top + 4}) rotate(90)">element m →</text>',
    ]
    for row in warps:
        k, m = int(row["k from"] or 0), int(row["m from"] or 0)
        w = (int(row["k to"] or 0) - k + 1) * x
        h = (int(row["m to"] or 0) - m + 1) * y
        look = "added" if row["warp"] == 0 else "op"
        text = f"warp {row['warp']}"
        fits = w > 7 * len(text) and h > 14
        shown = f'<text x="{left + k * x + 4:.1f}" y="{top + m * y + 13:.1f}">{text}</text>'
        parts.append(
            f'<g class="{look}"><title>{text}: {row["elements"]} elements</title>'
            f'<rect x="{left + k * x:.1f}" y="{top + m * y:.1f}" width="{w:.1f}" height="{h:.1f}"/>'
            f"{shown if fits else ''}</g>"
        )
    return (
        f'<svg class="graph" viewBox="0 0 420 {top + height + 8:.0f}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def tile_alt(rows: Sequence[Row]) -> str:
    first = [r for r in rows if r["warp"] == 0 and r["kernel"] == LABELS[LAB]]
    parts = [
        f"groups of {r['group']}: elements {r['m from']} to {r['m to']} of groups {r['k from']} to "
        f"{r['k to']}"
        for r in first
    ]
    return "The first warp of the coursework's kernel holds, at " + "; ".join(parts) + "."


def kernels_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for name, label in LABELS.items():
        kernel = _usual(records, name)
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


def groups_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for group, kernel in sorted(_kernels(records, LAB).items()):
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


experiment = Experiment(
    title="Tiles and threads of the CUDA kernel",
    params=params,
    run=run,
    unavailable=unavailable,
    claims={
        "tiles_cover": tiles_cover,
        "loads_are_coalesced": loads_are_coalesced,
        "vectors_need_fewer_requests": vectors_need_fewer_requests,
        "transposed_wastes": transposed_wastes,
        "conflicts_are_none": conflicts_are_none,
        "layout_is_of_threads": layout_is_of_threads,
    },
    figures={
        "bytes": Figure(
            caption="One load of the first warp. Boxes are sectors, the least that memory moves; "
            "orange ones are moved, blue bytes are used. The coursework's load is perfectly "
            "coalesced and small; the vectorised one is as well coalesced and fills many sectors; "
            "with the threads transposed, nearly all that is moved is thrown away.",
            rows=bytes_rows,
            draw=draw_bytes,
            alt=bytes_alt,
        ),
        "tile": Drawing(
            caption="A block's tile and the warps that hold it, as CuTe maps them. A column is one "
            "group, so a warp's elements lie one behind the other in memory, whatever the group "
            "size; the tile gets lower and wider as groups get smaller.",
            rows=tile_rows,
            panels=tile_panels,
            alt=tile_alt,
        ),
    },
    tables={"kernels": kernels_table, "groups": groups_table},
)
