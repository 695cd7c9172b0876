"""A graph as SVG text: one box a row, in the graph's own order, wires in a gutter on the left.

A value that the next row uses is a short arrow. Any other value gets a lane of the gutter, from the
row that makes it down to the last row that uses it, so a wire never crosses a box and the drawing
stays narrow, however long the graph. Colours are classes that the site's style sheet fills, so a
drawing follows the page's palette; without the style sheet it is black on nothing.

Units: SVG user units, which are pixels: a drawing is shown at its own size, and pans where the
window is narrower, so that its letters stay readable.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, ROW, GAP, LANE, EDGE = 500, 40, 12, 9, 8
LETTER = 7.2  # width of a small monospaced letter, of 12 pixels
ROUND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One part of a drawing: SVG text that takes its colours from the page.

    In an explainer (a drawing with a script) `svg` may be HTML, too, in which the script replaces
    the text of each `field`.
    """

    title: str
    svg: str
    folded: bool = True  # shown closed until a click opens it


def field(name: str, text: object, tag: str = "span", look: str = "") -> str:
    """HTML of a text that an explainer's script replaces, by this name; `look` is its CSS class."""
    known = f' class="{look}"' if look else ""
    return f'<{tag}{known} data-f="{name}">{html.escape(str(text))}</{tag}>'


def says(text: str) -> str:
    """HTML of an explainer's sentence, which is read aloud when the script changes it."""
    return field("says", text, "p", "says")


def field_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """HTML of a table in an explainer; a row's cells are HTML, the first of them its heading."""
    top = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return f'<table class="fields"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One node of the graph, drawn as a row: its name, what it does, the names of nodes it reads.

    `look` names the style (`op`, `input`, `weight`, `dropout`, `added`, `removed`, `rewired` …).
    """

    name: str
    title: str
    detail: str = ""
    note: str = ""  # on the right: a shape, a count
    look: str = "op"
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """A line in a lane of the gutter: from the row that makes a value to the rows that use it."""

    source: int
    targets: tuple[int, ...]
    lane: int


def column(boxes: Sequence[Box], *, label: str) -> str:
    """SVG of the graph as one column of boxes; inputs that are not among the boxes are not drawn.

    Raises:
        ValueError: two boxes of one name, or an input that comes after its user.
    """
    if len({box.name for box in boxes}) != len(boxes):
        raise ValueError("boxes need names of their own")
    wires = _wires(boxes)
    left = EDGE + LANE * (1 + max((wire.lane for wire in wires), default=0))
    height = EDGE * 2 + len(boxes) * (ROW + GAP) - GAP
    parts = [_steps(boxes, left), *(_wire(wire, left) for wire in wires)]
    parts += [_box(box, _top(i), left) for i, box in enumerate(boxes)]
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{html.escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _wires(boxes: Sequence[Box]) -> list[_Wire]:
    """Wires of the values that skip a row, each in the first lane that is free all the way down."""
    wires: list[_Wire] = []
    free: list[int] = []  # per lane: the first row that it is free from
    for source, box in enumerate(boxes):
        used_by = [i for i, other in enumerate(boxes) if box.name in other.inputs]
        if used_by and used_by[0] <= source:
            raise ValueError(f"{boxes[used_by[0]].name} uses {box.name}, which comes after it")
        targets = tuple(i for i in used_by if i > source + 1)
        if not targets:
            continue
        lane = next((k for k, row in enumerate(free) if row <= source), len(free))
        free[lane : lane + 1] = [targets[-1]]
        wires.append(_Wire(source=source, targets=targets, lane=lane + 1))
    return wires


def _top(row: int) -> int:
    return EDGE + row * (ROW + GAP)


def _steps(boxes: Sequence[Box], left: int) -> str:
    """SVG of short arrows from a row to the next one, where that uses its value."""
    x = left + 16
    path = (
        f'<path class="wire" d="M{x} {y - GAP}V{y - 1}"/>'
        f'<path class="head" d="M{x - 3.5} {y - 6}L{x} {y}L{x + 3.5} {y - 6}z"/>'
        for i, y in enumerate(map(_top, range(1, len(boxes))))
        if boxes[i].name in boxes[i + 1].inputs
    )
    return "".join(path)


def _wire(wire: _Wire, left: int) -> str:
    x = left - wire.lane * LANE
    start, end = _top(wire.source) + ROW - 9, _top(wire.targets[-1]) + 12
    path = f"M{left} {start}H{x + ROUND}q-{ROUND} 0 -{ROUND} {ROUND}V{end - ROUND}"
    path += f"q0 {ROUND} {ROUND} {ROUND}H{left}"
    heads = ""
    for target in wire.targets:
        y = _top(target) + 12
        if target != wire.targets[-1]:
            path += f"M{x} {y}H{left}"
        heads += f'<path class="head" d="M{left - 6} {y - 3.5}L{left} {y}L{left - 6} {y + 3.5}z"/>'
    return f'<path class="wire" d="{path}"/>{heads}'


def _box(box: Box, top: int, left: int) -> str:
    width = WIDTH - left - 2
    room = int((width - 16) / LETTER)
    texts = f'<text x="{left + 8}" y="{top + 17}">{html.escape(box.title)}</text>'
    if box.note:
        texts += (
            f'<text class="note" x="{WIDTH - 10}" y="{top + 17}" text-anchor="end">'
            f"{html.escape(box.note)}</text>"
        )
    if box.detail:
        detail = box.detail if len(box.detail) <= room else box.detail[: room - 1] + "…"
        texts += f'<text class="detail" x="{left + 8}" y="{top + 33}">{html.escape(detail)}</text>'
    return (
        f'<g class="{box.look}"><title>{html.escape(box.name)}</title>'
        f'<rect x="{left}" y="{top}" width="{width}" height="{ROW}" rx="5"/>{texts}</g>'
    )
