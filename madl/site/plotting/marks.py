"""Draws each kind of mark on the Matplotlib axes of one panel, and notes what each point says.

Units: of the shown values; sizes in pixels of the drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from madl.logbook import charts
from madl.logbook.charts import Axis, Chart, Mark
from madl.logbook.records import Row
from madl.logbook.values import number
from madl.site.plotting.palette import HEX, TEXT, Look
from madl.site.plotting.size import SMALL, Size, width

MARKED = 40  # points of a line, up to which each has a marker
SHOWN, POINTED = 8, 40  # of a longer line: markers, and places that can be pointed at
Point = tuple[float, float, Row]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Panel:
    """One axes and the rows that it shows; collects what groups of the drawing stand for."""

    ax: Axes
    chart: Chart
    rows: Sequence[Row]
    size: Size
    wide: float  # the width of the axes
    looks: dict[str, Look]
    tags: dict[str, tuple[int, Sequence[str]]]  # a group's series, and what its points say
    facet: str = ""

    @property
    def clips(self) -> bool:
        """Whether an axis has limits, beyond which marks are cut off."""
        return (*self.chart.x.limits, *self.chart.y.limits) != (None,) * 4

    def xy(self, place: T, value: T) -> tuple[T, T]:
        """The pair in the order x, y: on a horizontal chart (value, place), else (place, value)."""
        return (value, place) if self.chart.is_horizontal else (place, value)

    def tag(self, name: str, titles: Sequence[str] = ()) -> str:
        """Note a group of shapes as this series', with its points' titles; returns its id."""
        gid, names = f"tag-{len(self.tags)}", list(self.looks)
        self.tags[gid] = (names.index(name) if name in names else len(names), titles)
        return gid

    def place(self, cell: Any, axis: Axis) -> float | None:
        """A cell's coordinate on an axis; None if it has none, such as zero on a log axis."""
        if cell is None:
            return None
        if axis.scale == "category":
            return float(categories(self.chart, axis).index(cell_name(cell)))
        value = charts.plain(cell)
        if isinstance(value, str):
            return None
        shown = float(value) * axis.factor
        return None if axis.scale.startswith("log") and shown <= 0 else shown

    def series(self, mark: Mark) -> dict[str, list[Point]]:
        """The points (x, y, row) of each series of a mark; rows without x or y are left out."""
        points: dict[str, list[Point]] = {}
        x_column, y_column = columns(self.chart, mark)
        for row in self.rows:
            x = self.place(row.get(x_column), self.chart.x)
            y = self.place(row.get(y_column), self.chart.y)
            if x is not None and y is not None:
                name = mark.label if mark.by is None else str(row[mark.by])
                points.setdefault(name, []).append((x, y, row))
        return points

    def inside(self, points: Sequence[Point]) -> list[Point]:
        """The points that lie within the limits of both axes."""
        x, y = self.chart.x.limits, self.chart.y.limits
        return [point for point in points if _within(point[0], x) and _within(point[1], y)]

    def title(self, name: str, mark: Mark, row: Row) -> str:
        """The text that is shown when a point is pointed at."""
        chart, columns_ = self.chart, columns(self.chart, mark)
        x, y = (in_words(row.get(c), axis) for c, axis in zip(columns_, (chart.x, chart.y)))
        if not chart.x.unit and chart.x.scale != "category" and not chart.is_horizontal:
            x = f"{chart.x.label} {x}"
        where, value = self.xy(x, y)
        return self.words(name, str(row.get(mark.text or "") or ""), where, value=value)

    def words(self, *where: str, value: str) -> str:
        """A text "facet, where, …: value", each part once, and none that begins another."""
        parts = dict.fromkeys(filter(None, (self.facet, *where)))
        kept = (p for p in parts if not any(other.startswith(f"{p}, ") for other in parts))
        return f"{', '.join(kept)}: {value}"

    def text(
        self, text: str, at: tuple[float, float], away: tuple[float, float], **more: Any
    ) -> None:
        """Write a text `away` pixels from a place in data coordinates."""
        look: dict[str, Any] = {"fontsize": SMALL, "color": TEXT["ink"], "ha": "center"}
        look |= {"textcoords": "offset points", "annotation_clip": False, **more}
        self.ax.annotate(text, at, away, **look)


def draw(panel: Panel) -> None:
    """Draw every mark of the chart: spans and levels, then bars, then all others."""
    marks = panel.chart.marks
    for mark in marks:
        if mark.kind == "span":
            low, high = (end * panel.chart.x.factor for end in (mark.low, mark.high))
            area = _area("muted", 0.1)
            panel.ax.axvspan(low, high, gid=panel.tag(mark.label), zorder=0.4, **area)
        elif mark.kind == "level":
            _level(panel, mark)
    if bars := [mark for mark in marks if mark.kind == "bars"]:
        _bars(panel, bars)
    for mark in marks:
        if mark.kind == "line":
            _line(panel, mark)
        elif mark.kind in ("points", "intervals"):
            _points(panel, mark)
        elif mark.kind == "cells":
            _cells(panel, mark)


def _level(panel: Panel, mark: Mark) -> None:
    """Draw a line of reference across the axes, with a band for its interval."""
    axis, look, ax = panel.chart.value_axis, panel.looks[mark.label], panel.ax
    value, ends = panel.place(mark.value, axis), ends_of(mark.value, axis)
    if value is None:
        return
    is_horizontal = panel.chart.is_horizontal
    if ends is not None:
        shade = ax.axvspan if is_horizontal else ax.axhspan
        shade(*ends, gid=panel.tag(mark.label), zorder=0.5, **_area(look.color, 0.09))
    above_bars = any(other.kind == "bars" for other in panel.chart.marks)
    (ax.axvline if is_horizontal else ax.axhline)(
        value,
        color=HEX[look.color],
        linestyle=(0, look.dash),
        linewidth=1.3,
        zorder=2.5 if above_bars else 1,
        gid=panel.tag(mark.label, [panel.words(mark.label, value=in_words(mark.value, axis))]),
    )


def _area(color: str, alpha: float) -> dict[str, Any]:
    return {"color": HEX[color], "alpha": alpha, "linewidth": 0}


def _line(panel: Panel, mark: Mark) -> None:
    """Draw a mark's lines, with markers, and bands for intervals.

    A band spans neighbours that have an interval each; one without such a neighbour has a bar.
    """
    for name, points in panel.series(mark).items():
        look, column = panel.looks[name], mark.column or ""
        ends = [(x, ends_of(row[column], panel.chart.y)) for x, _, row in points]
        spans = [(x, *interval) if interval else None for x, interval in ends]
        runs = [[*filter(None, run)] for _, run in groupby(spans, bool)]
        for run in runs:
            if len(run) > 1:
                xs, lows, highs = zip(*run)
                band = panel.ax.fill_between(xs, lows, highs, **_area(look.color, 0.15))
                band.set(gid=panel.tag(name), clip_on=panel.clips)
        alone = [run[0] for run in runs if len(run) == 1]
        _draw_bars(panel, name, [((x, low), (x, high)) for x, low, high in alone])
        panel.ax.plot(
            *zip(*((x, y) for x, y, _ in points)),
            color=HEX[look.color],
            linestyle=(0, look.dash) if look.dash else "-",
            linewidth=2.0,
            clip_on=panel.clips,
            gid=panel.tag(name),
        )
        inside = panel.inside(points)
        if mark.markers and len(points) <= min(MARKED, panel.wide / 8):
            _markers(panel, name, mark, inside)
            continue
        if mark.markers:
            step = -(-len(inside) // SHOWN)
            first = list(panel.looks).index(name) * step // 4 % step if step else 0
            _markers(panel, name, None, inside[first :: step or 1])
        _markers(panel, name, mark, inside[:: -(-len(inside) // POINTED) or 1], seen=False)


def _points(panel: Panel, mark: Mark) -> None:
    """Draw a mark's points, with bars for intervals."""
    x_column, y_column = columns(panel.chart, mark)
    for name, points in panel.series(mark).items():
        dx, dy = panel.xy(_shift(panel, name), 0.0)
        points = [(x + dx, y + dy, row) for x, y, row in points]
        _draw_bars(panel, name, bars_of(panel, mark, points))
        _dots(panel, name, [(x, y, row[x_column], row[y_column]) for x, y, row in points])
        _markers(panel, name, mark, panel.inside(points))


Bar = tuple[tuple[float, float], tuple[float, float]]  # from an end to the other


def _draw_bars(panel: Panel, name: str, bars: Sequence[Bar]) -> None:
    """Draw the bars of a series' intervals, as one path."""
    if bars:
        gap = (float("nan"), float("nan"))  # lifts the pen between two bars
        xs, ys = zip(*[at for bar in bars for at in (*bar, gap)][:-1])
        thin: dict[str, Any] = {"linewidth": 1.6, "alpha": 0.7}
        thin["color"] = HEX[panel.looks[name].color]
        panel.ax.plot(xs, ys, clip_on=panel.clips, gid=panel.tag(name), **thin)


def bars_of(
    panel: Panel, mark: Mark, points: Sequence[tuple[float, float, Row]], *, with_dots: bool = False
) -> list[Bar]:
    """The bars of the intervals of a mark's points, in the axes' units.

    Those `with_dots` reach as far as the small dots of a point's units.
    """

    def ends(cell: Any, axis: Axis) -> tuple[float, float] | None:
        if (interval := ends_of(cell, axis)) is None or not with_dots:
            return interval
        dots = [value * axis.factor for value in charts.each_of(cell)]
        return min([interval[0], *dots]), max([interval[1], *dots])

    x_column, y_column = columns(panel.chart, mark)
    bars: list[Bar] = []
    for x, y, row in points:
        if of_y := ends(row[y_column], panel.chart.y):
            bars.append(((x, of_y[0]), (x, of_y[1])))
        if of_x := ends(row[x_column], panel.chart.x):
            bars.append(((of_x[0], y), (of_x[1], y)))
    return bars


def _dots(panel: Panel, name: str, points: Sequence[tuple[float, float, Any, Any]]) -> None:
    """Draw a small dot for the effect of each unit of points (x, y, cell of x, cell of y)."""
    factors = panel.chart.x.factor, panel.chart.y.factor
    dots = [(each * factors[0], y) for _, y, cell, _ in points for each in charts.each_of(cell)]
    dots += [(x, each * factors[1]) for x, _, _, cell in points for each in charts.each_of(cell)]
    if dots and not panel.size.is_thumbnail:
        small: dict[str, Any] = {
            "linestyle": "none",
            "marker": "o",
            "markersize": 4.5,
            "alpha": 0.4,
        }
        small |= {"color": HEX[panel.looks[name].color], "markeredgewidth": 0.0}
        panel.ax.plot(*zip(*dots), clip_on=panel.clips, gid=panel.tag(name), **small)


def _shift(panel: Panel, name: str) -> float:
    """How far along a category axis to move a series, so that series stand side by side."""
    drawn = [m for m in panel.chart.marks if m.kind in ("points", "intervals")]
    names = list(dict.fromkeys(n for m in drawn for n in m.names(panel.chart.rows)))
    if "category" not in (panel.chart.x.scale, panel.chart.y.scale) or len(names) < 2:
        return 0.0
    return (names.index(name) - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))


def _markers(
    panel: Panel, name: str, mark: Mark | None, points: Sequence[Point], *, seen: bool = True
) -> None:
    """Draw a marker at each point, transparent unless `seen`; with a mark, points have titles."""
    if not points:
        return
    look = panel.looks[name]
    xs, ys, rows = zip(*points)
    is_hollow, color = look.hollow and seen, HEX[look.color] if seen else "none"
    panel.ax.plot(
        *(xs, ys),
        linestyle="none",
        marker=look.marker,
        markersize=4 if panel.size.is_thumbnail else 6.5 if len(points) <= MARKED else 5,
        markerfacecolor=HEX["paper"] if is_hollow else color,
        markeredgecolor=color,
        markeredgewidth=1.4 if is_hollow else 0.0,
        clip_on=False,
        zorder=3,
        gid=panel.tag(name, [panel.title(name, mark, row) for row in rows] if mark else ()),
    )


def _bars(panel: Panel, marks: Sequence[Mark]) -> None:
    """Draw all bars of a chart, side by side or stacked, with intervals and their numbers."""
    chart, ax = panel.chart, panel.ax
    axis, values = chart.place_axis, chart.value_axis
    draw, base = (ax.barh, "left") if chart.is_horizontal else (ax.bar, "bottom")
    stacked = any(mark.stacked for mark in marks)
    count = 1 if stacked else len(marks)
    thick = 0.66 if count == 1 else 0.8 / count
    cells = [row.get(mark.column or "") for mark in marks for row in panel.rows]
    widest = max([1.0, *(width(digits(c, values), SMALL) for c in cells if c is not None)])
    fits = chart.is_horizontal or panel.wide / widest > count * len(categories(chart, axis))
    tops: dict[float, float] = {}
    for i, mark in enumerate(marks):
        look = panel.looks[mark.label]
        fill: dict[str, Any] = {"color": HEX["paper" if look.hollow else look.color]}
        fill |= {"edgecolor": HEX[look.color if look.hollow else "paper"], "linewidth": 0.8}
        for row in panel.rows:
            cell = row.get(mark.column or "")
            at, end = panel.place(row.get(axis.column or ""), axis), panel.place(cell, values)
            if at is None or end is None:
                continue
            start = tops.get(at, 0.0) if stacked else 0.0
            at += 0.0 if stacked else (i - (count - 1) / 2) * thick
            (bar,) = draw(at, end, thick * 0.94, **{base: start}, **fill)
            where = in_words(row[axis.column or ""], axis)
            title = panel.words(mark.label, where, value=in_words(cell, values))
            bar.set(gid=panel.tag(mark.label, [title]), clip_on=panel.clips)
            tops[at] = start + end
            ends = ends_of(cell, values)
            if ends is not None:
                line = panel.xy((at, at), ends)
                ax.plot(*line, color=HEX["ink"], linewidth=1.2, gid=panel.tag(mark.label))
            if fits and not stacked and not panel.size.is_thumbnail:
                top = max(0.0, end, ends[1] if ends else 0.0)
                _at_end(panel, at, end if end < 0 else top, digits(cell, values))
    alone = all(mark.kind == "bars" for mark in chart.marks)  # else a mark may lie there
    if stacked and alone and not panel.size.is_thumbnail:
        for at, top in tops.items():
            _at_end(panel, at, top, number(int(top) if top.is_integer() else top))


def _at_end(panel: Panel, at: float, end: float, text: str) -> None:
    """Write a number just beyond the end of a bar."""
    up = end >= 0
    if panel.chart.is_horizontal:
        side = {"ha": "left" if up else "right", "va": "center_baseline"}
    else:
        side = {"va": "bottom" if up else "top"}
    panel.text(text, panel.xy(at, end), panel.xy(0, 4 if up else -4), **side)


def _cells(panel: Panel, mark: Mark) -> None:
    """Draw a heat map: a shaded rectangle a row, with its number if there is room for all."""
    chart, column = panel.chart, mark.column or ""
    low, high = scale_of(chart, mark)
    shades, titles, boxes = list[Any](), list[str](), list[Rectangle]()
    texts: list[tuple[float, float, str]] = []
    for x, y, row in panel.series(mark).get(mark.label, []):
        if (value := charts.plain(row.get(column))) is None:
            continue
        share = (value - low) / (high - low) if high > low else 0.5
        shades.append(to_rgba(HEX["heat"], 0.05 + 0.6 * share))
        boxes.append(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96))
        where = (cell_name(row[name]) for name in (chart.y.column or "", chart.x.column or ""))
        is_estimate = charts.estimated(row[column]) is not None
        value = str(row[column]) if is_estimate else in_words(row[column], charts.linear())
        titles.append(panel.words(*where, value=value))
        texts.append((x, y, digits(row[column], charts.linear())))
    patches = PatchCollection(boxes, facecolors=shades, linewidths=0, clip_on=False)
    patches.set_gid(panel.tag("", titles))
    panel.ax.add_collection(patches)
    room = panel.wide / len(categories(chart, chart.x)) - 4
    if panel.size.name == "wide" and all(width(text, SMALL) <= room for _, _, text in texts):
        for x, y, text in texts:
            panel.text(text, (x, y), (0, 0), va="center_baseline")


# ---- places and words ---------------------------------------------------------------------------


def columns(chart: Chart, mark: Mark) -> tuple[str, str]:
    """The columns that a mark reads for x and for y; the value of an interval is along x."""
    if mark.kind == "intervals":
        return mark.column or "", chart.y.column or ""
    return chart.x.column or "", (chart.y.column if mark.kind == "cells" else mark.column) or ""


def scale_of(chart: Chart, mark: Mark) -> tuple[float, float]:
    """The values of a heat map's lightest and darkest shade: the least and the greatest."""
    values = [charts.plain(row.get(mark.column or "")) for row in chart.rows]
    known = [value for value in values if value is not None] or [0.0, 1.0]
    return min(known), max(known)


def categories(chart: Chart, axis: Axis) -> list[str]:
    """The names along a category axis: texts in the rows' order, numbers in their own."""
    cells = [charts.plain(row.get(axis.column or "")) for row in chart.rows]
    cells = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, int | float) for cell in cells):
        cells = sorted(cells)
    return list(dict.fromkeys(cell_name(cell) for cell in cells))


def _within(value: float, limits: tuple[float | None, float | None]) -> bool:
    low, high = limits
    return (low is None or value >= low) and (high is None or value <= high)


def cell_name(cell: Any) -> str:
    """A cell's name on a category axis."""
    value = charts.plain(cell)
    return number(value) if isinstance(value, int | float) else str(value)


def in_words(cell: Any, axis: Axis) -> str:
    """A cell as text: its value in the axis' unit, and its interval; "–" if it is missing."""
    value = charts.plain(cell)
    if isinstance(value, str) or value is None:
        return str(value or "–")
    text = axis.number(value) + (f" {axis.unit}" if axis.unit else "")
    ends = charts.interval_of(cell)
    return f"{text} [{axis.number(ends.low)}, {axis.number(ends.high)}]" if ends else text


def digits(cell: Any, axis: Axis) -> str:
    """A cell's value as text without unit and interval, to be written into a drawing."""
    estimate = charts.estimated(cell)
    if estimate is not None and axis.factor == 1:
        return str(estimate).removesuffix(f" {estimate.unit}")
    value = charts.plain(cell)
    return str(value) if isinstance(value, str) else axis.number(value)


def ends_of(cell: Any, axis: Axis) -> tuple[float, float] | None:
    """The ends of a cell's interval in an axis' units; None if it has none.

    On a log axis, the value stands in for a low end of zero or less.
    """
    ends = charts.interval_of(cell)
    if ends is None:
        return None
    low, high = ends.low * axis.factor, ends.high * axis.factor
    if axis.scale.startswith("log") and low <= 0:
        low = float(charts.plain(cell)) * axis.factor
    return low, high
