"""Texts beside marks: names of levels, spans and points, where they hide nothing.

Invariants: every text is anchored at what it names, so another font shifts none.
Units: points of the drawing.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from madl.logbook.charts import Chart
from madl.site.plotting.axes import SMALL
from madl.site.plotting.palette import HEX
from madl.site.plotting.pen import Pen, ends_of

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
FAR = (1.0, 1.8, 3.2, 4.6)  # times as far; each is as bad as so many lines under a name
WORST = 6.0  # what is worse has no name
LED = 15  # points from which a name is led to


def name_points(pen: Pen, references: Sequence[Annotation]) -> None:
    """Points' own names, each where the fewest other things are; none where there is no room.

    Beside no other point, name or `references`; rather not on a line or the bar of an interval.
    """
    named = [
        (point, str(point.row[mark.text]))
        for mark in pen.chart.marks
        if mark.text is not None and mark.kind != "cells"
        for point in pen.inside(pen.points(mark, pen.rows))
        if point.row.get(mark.text) is not None
    ]
    if not named:
        return
    dots = [_place(pen, point.x, point.y) for point, _ in named]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    taken += [_box_beside(pen, note) for note in references if note.axes is pen.ax]
    lines = [*2 * _levels(pen), *_bars(pen)]  # a level's line is twice as bad
    for (point, text), dot in zip(named, dots):
        names = [box for box in taken if not box.contains(*dot)]
        free = [
            (spot.far + spot.crosses(names, lines), spot)
            for spot in _spots(pen, text, dot)
            if not any(spot.box.overlaps(box) for box in taken)
        ]
        cost, spot = min(free, key=lambda one: one[0], default=(math.inf, None))
        if spot is None or cost > WORST:
            continue
        taken.append(spot.box)
        if spot.is_led:
            lines.append(spot.leader)
        look = {"arrowstyle": "-", "linewidth": 0.6, "color": HEX["muted"], "shrinkB": 4}
        pen.ax.annotate(
            text,
            (point.x, point.y),
            (spot.dx, spot.dy),
            textcoords="offset points",
            ha=spot.ha,
            va=spot.va,
            fontsize=SMALL,
            annotation_clip=False,
            arrowprops=look if spot.is_led else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """A place for a point's name, so far from it."""

    far: float
    dx: float
    dy: float
    ha: str
    va: str
    box: Bbox
    leader: Path

    @property
    def is_led(self) -> bool:
        return max(abs(self.dx), abs(self.dy)) > LED

    def crosses(self, names: Sequence[Bbox], lines: Sequence[Path]) -> int:
        """How many names its leader would run through, and lines its name."""
        through = sum(self.leader.intersects_bbox(name) for name in names)
        return through + sum(line.intersects_bbox(self.box) for line in lines)


def _spots(pen: Pen, text: str, dot: tuple[float, float]) -> Iterator[_Spot]:
    """All around a point, right of the axis and above the other one."""
    frame, axes = pen.ax.get_figure(root=True).bbox, pen.ax.bbox  # type: ignore[union-attr]
    width, height = _width(text, SMALL), SMALL
    for far, (dx, dy, ha, va) in product(FAR, PLACES):
        x, y = dot[0] + far * dx, dot[1] + far * dy
        left = {"left": x, "center": x - width / 2, "right": x - width}[ha]
        bottom = {"bottom": y, "center": y - height / 2, "top": y - height}[va]
        box = Bbox.from_bounds(left, bottom, width, height)
        if axes.x0 <= box.x0 and box.x1 <= frame.x1 and axes.y0 <= box.y0:
            leader = Path([dot, (x, y)])
            yield _Spot(far=far, dx=far * dx, dy=far * dy, ha=ha, va=va, box=box, leader=leader)


def _box_beside(pen: Pen, note: Annotation) -> Bbox:
    """Where a level's name stands."""
    _, middle = _place(pen, pen.ax.get_xlim()[0], note.xy[1])
    dx, dy = note.xyann
    width = _width(note.get_text(), 9)
    return Bbox.from_bounds(pen.ax.bbox.x1 + dx, middle + dy - 5, width, 10)


def _levels(pen: Pen) -> list[Path]:
    """The lines of levels."""
    places = [pen.place(m.value, pen.chart.y) for m in pen.chart.marks if m.kind == "level"]
    left, right = pen.ax.get_xlim()
    return [
        Path([_place(pen, left, place), _place(pen, right, place)])
        for place in places
        if place is not None
    ]


def _bars(pen: Pen) -> list[Path]:
    """The upright intervals of points."""
    return [
        Path([_place(pen, point.x, end) for end in ends])
        for mark in pen.chart.marks
        if mark.kind == "points"
        for point in pen.points(mark, pen.rows)
        if (ends := ends_of(point.row[mark.column or ""], pen.chart.y))
    ]


def _place(pen: Pen, x: float, y: float) -> tuple[float, float]:
    """Where a value lies on the drawing."""
    x, y = pen.ax.transData.transform((x, y))
    return float(x), float(y)


def _width(text: str, size: float) -> float:
    return len(text) * 0.58 * size


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
