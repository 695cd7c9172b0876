"""A matrix cut into the tiles of blocks, and a block's tile with the threads that hold it, as SVG.

A row says of one warp of a mapping's first block which part of the tile it holds. Imports no torch:
pages are made without it.
"""

import html
from collections.abc import Sequence

from experiments.lab4_tiles.accesses import BANK_BYTES, BANKS, SECTOR_BYTES, WARP
from experiments.lab4_tiles.places import Place, place
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.records import Row


def tile_alt(rows: Sequence[Row]) -> str:
    """What the first warp of the first mapping holds, at each group size."""
    kernel = rows[0]["kernel"]
    held: dict[str, list[str]] = {}
    for row in rows:
        if row["warp"] == 0 and row["kernel"] == kernel:
            held.setdefault(_box_of(row), []).append(str(row["group"]))
    said = (f"at groups of {', '.join(groups)}: {box}" for box, groups in held.items())
    return f"The first warp of {kernel} holds, {'; '.join(said)}"


def _box_of(row: Row) -> str:
    first, last = row["k from"], row["k to"]
    groups = f"group {first}" if first == last else f"groups {first} to {last}"
    return f"elements {row['m from']} to {row['m to']} of {groups}"


def tile_panels(rows: Sequence[Row], *, group_shown: int) -> Sequence[Panel]:
    """A panel a mapping and group size; the first mapping's is open at one group size."""
    parts: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["kernel"], row["group"]), []).append(row)
    panels: list[Panel] = []
    for (kernel, group), warps in parts.items():
        m, k = warps[0]["tile m"], warps[0]["tile k"]
        title = f"{kernel}, groups of {group}: tiles of {m} × {k}"
        folded = (kernel, group) != (rows[0]["kernel"], group_shown)
        svg = tile_svg(warps, title)
        if not folded:
            svg += thread_table(warps[0])
        panels.append(Panel(title=title, svg=svg, folded=folded))
    return sorted(panels, key=lambda panel: panel.folded)


def thread_table(row: Row) -> str:
    """What the first thread of the first block holds; the script says it of any other thread."""
    first, size = place(row, 0), int(row["bytes"])
    rows = (
        ("elements of the view", field("elements", _elements(first, size))),
        ("global memory, read", field("read", _read(first.byte, size))),
        ("global memory, BF16 written", field("written", _read(2 * first.byte, 2 * size))),
        ("shared memory", field("shared", _banked(first.slot, size))),
        ("warp and lane", field("warp", "warp 0, lane 0")),
    )
    said = (
        f"{row['kernel']}, groups of {row['group']}: T0 of block (0, 0) holds "
        f"{_elements(first, size)}, {_bytes(first.byte, size)} of global memory, "
        f"{_banked(first.slot, size)} of shared memory."
    )
    return field_table(("thread", "its part"), rows) + says(said)


def _elements(at: Place, size: int) -> str:
    last = "" if size == 1 else f" … {at.element + size - 1}"
    return f"element{'s' if last else ''} {at.element}{last} of group {at.group}"


def _read(first: int, size: int) -> str:
    sectors = sorted({byte // SECTOR_BYTES for byte in (first, first + size - 1)})
    return f"{_bytes(first, size)}, sector {' and '.join(map(str, sectors))}"


def _banked(slot: int, size: int) -> str:
    banks = sorted({byte // BANK_BYTES % BANKS for byte in range(slot, slot + size)})
    return f"{_bytes(slot, size)}, bank {' and '.join(map(str, banks))}"


LEFT, WIDTH, VIEW_TOP, VIEW_HEIGHT, TILE_TOP, TILE_HEIGHT = 34.0, 380.0, 26.0, 44.0, 112.0, 190.0
GAP, LANE_HEIGHT = 34.0, 22.0  # of the first warp's threads, below the tile
BLOCKS_SHOWN = 8  # along the groups; the view goes on to the right


def tile_svg(warps: Sequence[Row], label: str) -> str:
    """The view cut into blocks, the first block's tile by warps, and the first warp by threads."""
    tile_m, tile_k, group = (int(warps[0][name]) for name in ("tile m", "tile k", "group"))
    tall, step = -(-group // tile_m), WIDTH / BLOCKS_SHOWN
    high = VIEW_HEIGHT / tall
    parts = [_text(LEFT, 16, f"the view: {group} elements down, groups to the right →")]
    blocks = [
        _box(LEFT + x * step, VIEW_TOP + y * high, step, high, "op" if x or y else "added",
             f"block ({y}, {x})", f"elements {y * tile_m} … of groups {x * tile_k} …")
        for y in range(tall)
        for x in range(BLOCKS_SHOWN)
    ]  # fmt: skip
    edge = VIEW_TOP + high
    parts += [
        _part("blocks", blocks),
        f'<path class="wire" d="M{LEFT} {edge}V{TILE_TOP}M{LEFT + step} {edge}L{LEFT + WIDTH} '
        f'{TILE_TOP}"/>',
        _text(LEFT + 4, TILE_TOP - 8, f"block (0, 0): {tile_m} × {tile_k}", name="block"),
    ]
    x, y = WIDTH / tile_k, TILE_HEIGHT / tile_m
    held: list[str] = []
    for row in warps:
        m, k = row["m from"], row["k from"]
        first = WARP * row["warp"]
        held.append(
            _box(
                *(LEFT + k * x, TILE_TOP + m * y),
                *((row["k to"] - k + 1) * x, (row["m to"] - m + 1) * y),
                "op" if row["warp"] else "added",
                f"T{first} … T{first + WARP - 1}",
            )
        )
    lanes = _lanes(warps[0], LEFT, TILE_TOP + TILE_HEIGHT + GAP)
    parts += [_part("warps", held), *lanes[:1], _part("lanes", lanes[1:])]
    height = TILE_TOP + TILE_HEIGHT + 8 + (GAP + LANE_HEIGHT if lanes else 0)
    box = f"{LEFT:g} {TILE_TOP:g} {WIDTH:g} {TILE_HEIGHT:g}"
    return (
        f'<svg class="graph" viewBox="0 0 420 {height:.0f}" role="img" data-tile="{box}" '
        f'aria-label="{html.escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _part(name: str, boxes: Sequence[str]) -> str:
    """Boxes of one kind, for the script to find."""
    return f'<g data-part="{name}">{"".join(boxes)}</g>'


def _lanes(row: Row, left: float, top: float) -> list[str]:
    """The first warp's threads; each says, when pointed at, which bytes and banks are its own."""
    places = [int(word) for word in str(row["global bytes"]).split()]
    slots = [int(word) for word in str(row["shared bytes"]).split()]
    size, width = int(row["bytes"]), WIDTH / max(len(places), 1)
    made = [
        _text(
            left + 4, top - 8, f"warp 0: T0 … T{len(places) - 1}; point at a thread", name="lanes"
        )
    ]
    for thread, (byte, slot) in enumerate(zip(places, slots)):
        lane = f"{_bytes(byte, size)} of global memory"
        if slot >= 0:
            lane += f"; {_banked(slot, size)} of shared memory"
        even = byte // SECTOR_BYTES % 2 == 0
        box = (left + thread * width, top, width, LANE_HEIGHT)
        made.append(_box(*box, "added" if even else "op", f"T{thread}", lane))
    return made if places else []


def _bytes(first: int, size: int) -> str:
    return f"byte {first}" if size == 1 else f"bytes {first} … {first + size - 1}"


def _text(x: float, y: float, text: str, turned: str = "", name: str = "") -> str:
    more = turned + (f' data-f="{name}"' if name else "")
    return f'<text class="note" x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(text)}</text>'


def _box(
    x: float, y: float, width: float, height: float, look: str, text: str, more: str = ""
) -> str:
    """A box with its text lying, or standing, where there is room for it; else to point at.

    What is more to say is said when it is pointed at.
    """
    title = f"{text}: {more}" if more else text
    long = 6.8 * len(text) + 8
    inside = ""
    if long < width and height > 14:
        inside = _text(x + 4, y + 13, text)
    elif long < height and width > 11:
        at = f"{x + width / 2 - 3.5:.1f} {y + 4:.1f}"
        inside = _text(0, 0, text, f' transform="translate({at}) rotate(90)"')
    return (
        f'<g class="{look}"><title>{html.escape(title)}</title><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/>{inside}</g>'
    )
