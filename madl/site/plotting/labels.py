"""Texts beside marks: names of levels, spans and points, where they hide nothing.

Invariants: every text is anchored at what it names, so another font shifts none.
Units: points of the drawing.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from madl.logbook.charts import Chart
from madl.site.plotting.axes import SMALL
from madl.site.plotting.palette import HEX
from madl.site.plotting.pen import Pen

READABLE = ("ink", "muted", "blue", "green", "purple")  # as text, in both palettes
LONGEST_LABEL = 22  # characters of a level's name that may stand beside the plot


def is_direct(chart: Chart, label: str) -> bool:
    """The wide drawing has room for this level's name at its right end."""
    lies = chart.y.scale == "category"
    return bool(label) and not chart.facet and not lies and len(label) <= LONGEST_LABEL


def references(pen: Pen) -> list[Annotation]:
    """Names of spans at the top and, in the wide drawing, of levels at their right ends."""
    found: list[Annotation] = []
    spans = sorted((m for m in pen.chart.marks if m.kind == "span"), key=lambda mark: mark.low)
    for i, mark in enumerate(spans):
        side = "center" if len(spans) == 1 else "left" if i else "right"
        _span_label(pen, mark.label, mark.low, mark.high, side)
    for mark in pen.chart.marks:
        if mark.kind == "level" and pen.wide and is_direct(pen.chart, mark.label):
            value = pen.place(mark.value, pen.chart.y)
            if value is not None:
                found.append(_beside(pen, mark.label, value))
    return found


def _beside(pen: Pen, label: str, value: float) -> Annotation:
    color = pen.styles[label].color
    color = color if color in READABLE else "ink"
    return pen.ax.annotate(
        label,
        (1, value),
        (5, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=HEX[color],
        annotation_clip=False,
    )


def _span_label(pen: Pen, label: str, low: float, high: float, side: str) -> None:
    """On this side of the span's middle: of two spans, each name stands away from the other."""
    middle = pen.chart.x.factor * (
        math.sqrt(low * high) if low > 0 and pen.chart.x.scale != "linear" else (low + high) / 2
    )
    pen.ax.annotate(
        label,
        (middle, 1),
        (0, 2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=SMALL,
        color=HEX["muted"],
    )


def spread(notes: Sequence[Annotation]) -> None:
    """Moves level names apart that would stand on one another."""
    placed: list[float] = []
    for note in sorted(notes, key=lambda note: note.xy[1]):
        assert note.axes is not None
        _, middle = note.axes.transData.transform((note.axes.get_xlim()[0], note.xy[1]))
        wanted = max([middle, *(other + 11 for other in placed[-1:])])
        note.xyann = (5, wanted - middle)
        placed.append(wanted)


PLACES = (
    (6, 0, "left", "center"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (-6, 0, "right", "center"),
    (5, 5, "left", "bottom"),
    (5, -5, "left", "top"),
    (-5, 5, "right", "bottom"),
    (-5, -5, "right", "top"),
)


def name_points(pen: Pen) -> None:
    """Points' own names, each where the fewest other things are; none where there is no room."""
    named = [
        (point, str(point.row[mark.text]))
        for mark in pen.chart.marks
        if mark.text is not None
        for point in pen.points(mark, pen.rows)
        if point.row.get(mark.text) is not None
    ]
    if not named:
        return
    frame = pen.ax.get_figure(root=True).bbox  # type: ignore[union-attr]
    dots = [pen.ax.transData.transform((point.x, point.y)) for point, _ in named]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    for (point, text), (x, y) in zip(named, dots):
        note = _best(pen, text, (x, y), taken, frame)
        if note is not None:
            dx, dy, ha, va, box = note
            leader = {"arrowstyle": "-", "linewidth": 0.6, "color": HEX["muted"], "shrinkB": 4}
            taken.append(box)
            pen.ax.annotate(
                text,
                (point.x, point.y),
                (dx, dy),
                textcoords="offset points",
                ha=ha,
                va=va,
                fontsize=SMALL,
                annotation_clip=False,
                arrowprops=leader if max(abs(dx), abs(dy)) > 15 else None,
            )


def _best(
    pen: Pen, text: str, dot: tuple[float, float], taken: Sequence[Any], frame: Any
) -> tuple[float, float, str, str, Any] | None:
    width, height = len(text) * 0.58 * SMALL, SMALL
    for far in (1.0, 1.8, 3.2, 4.6):
        for dx, dy, ha, va in PLACES:
            x, y = dot[0] + far * dx, dot[1] + far * dy
            left = {"left": x, "center": x - width / 2, "right": x - width}[ha]
            bottom = {"bottom": y, "center": y - height / 2, "top": y - height}[va]
            box = Bbox.from_bounds(left, bottom, width, height)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and pen.ax.bbox.y0 <= box.y0
            if inside and not any(box.overlaps(other) for other in taken):
                return far * dx, far * dy, ha, va, box
    return None


ANCHORS = {"left": "start", "center": "middle", "right": "end"}


def anchor_lines(figure: Figure) -> None:
    """Notes where lines of a wrapped text belong: Matplotlib writes only their left ends."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if "\n" in text.get_text():
            x, _ = text.get_transform().transform(text.get_unitless_position())
            text.set_gid(f"anchor {ANCHORS[text.get_horizontalalignment()]} {x:.2f}")


def anchored(gid: str) -> tuple[str, str] | None:
    """The anchor and place that `anchor_lines` noted."""
    found = re.fullmatch(r"anchor (\w+) (\S+)", gid)
    return (found[1], found[2]) if found else None
