"""Draws each kind of mark of a chart on Matplotlib axes.

Units: of the shown values; sizes in points.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from madl.logbook import charts
from madl.logbook.charts import Axis, Mark
from madl.logbook.stats import number
from madl.site.plotting.palette import HEX, Style
from madl.site.plotting.pen import Pen, Point, bare, categories, ends_of, named, said

HOVERED = 40  # points of a series that can be pointed at where none is drawn
MARKED, ROOM = 40, 7.0  # points of a line up to which each has a marker, if it has this much room
SHOWN = 10  # markers of a longer line
FAINT, WIDTH, SMALL = 0.15, 1.8, 8.5
INK = Style(color="ink")
GAP = float("nan")  # lifts the pen between two bars of one path


# ---- lines and points ---------------------------------------------------------------------------


def _line(pen: Pen, mark: Mark) -> None:
    for name, rows in pen.series(mark).items():
        points, style = pen.points(mark, rows), pen.styles[name]
        if not points:
            continue
        xs, ys = [p.x for p in points], [p.y for p in points]
        few = len(points) <= min(MARKED, pen.width / ROOM)
        _interval_band(pen, name, mark, points)
        pen.ax.plot(
            *(xs, ys),
            color=HEX[style.color],
            linestyle=(0, style.dash) if style.dash else "-",
            linewidth=WIDTH if len(points) <= MARKED else 1.5,
            clip_on=pen.clips,
            gid=pen.tag(name),
        )
        if mark.markers and not few:
            _some_markers(pen, name, pen.inside(points))
        _markers(pen, name, mark, points, seen=mark.markers and few)


def _interval_band(pen: Pen, name: str, mark: Mark, points: Sequence[Point]) -> None:
    ends = [(p.x, ends_of(p.row[mark.column or ""], pen.chart.y)) for p in points]
    known = [(x, *found) for x, found in ends if found is not None]
    if len(known) > 1:
        xs, lows, highs = zip(*known)
        _area(pen, name, xs, lows, highs)


def _area(
    pen: Pen, name: str, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> None:
    pen.ax.fill(
        [*xs, *reversed(xs)],
        [*lows, *reversed(highs)],
        color=HEX[pen.styles[name].color],
        alpha=FAINT,
        linewidth=0,
        clip_on=pen.clips,
        gid=pen.tag(name),
    )


def _markers(pen: Pen, name: str, mark: Mark, points: Sequence[Point], *, seen: bool) -> None:
    points = pen.inside(points)
    if not seen:
        step = max(1, -(-len(points) // HOVERED))
        points = [p for i, p in enumerate(points) if i % step == 0 or i == len(points) - 1]
    if not points:
        return
    style = pen.styles.get(name, INK)
    titles = [_point_title(pen, name, mark, p) for p in points]
    pen.ax.plot(
        [p.x for p in points],
        [p.y for p in points],
        marker="o",
        linestyle="none",
        color=HEX[style.color],
        clip_on=False,
        zorder=3,
        gid=pen.tag(name, titles, style if seen else None),
    )


def _some_markers(pen: Pen, name: str, points: Sequence[Point]) -> None:
    """A long line still shows what tells it from the others, at places of its own."""
    step, first = -(-len(points) // SHOWN), list(pen.styles).index(name)
    some = points[min(first * step // 4, step - 1) :: step]
    pen.ax.plot(
        [p.x for p in some],
        [p.y for p in some],
        marker="o",
        linestyle="none",
        clip_on=False,
        zorder=3,
        gid=pen.tag(name, style=pen.styles[name]),
    )


def _point_title(pen: Pen, name: str, mark: Mark, point: Point) -> str:
    across = mark.x or pen.chart.x.column or ""
    where = [str(point.row[mark.text])] if mark.text and point.row.get(mark.text) else []
    if pen.lies:
        where.append(said(point.row[mark.column or ""], pen.chart.y))
        return pen.title(name, where, point.row[across], pen.chart.x)
    bare_number = not pen.chart.x.unit and pen.chart.x.scale != "category" and not mark.x
    label = f"{pen.chart.x.label} " if bare_number else ""
    where.append(label + said(point.row[across], pen.chart.x))
    return pen.title(name, where, point.row[mark.column or ""], pen.chart.y)


def _points(pen: Pen, mark: Mark) -> None:
    for name, rows in pen.series(mark).items():
        across = mark.x or pen.chart.x.column or ""
        points = [_dodged(pen, name, p) for p in pen.points(mark, rows)]
        upright = [(p, ends_of(p.row[mark.column or ""], pen.chart.y)) for p in points]
        lying = [(p, ends_of(p.row[across], pen.chart.x)) for p in points]
        _interval_bars(pen, name, [(p.x, *ends) for p, ends in upright if ends], upright=True)
        _interval_bars(pen, name, [(p.y, *ends) for p, ends in lying if ends], upright=False)
        _markers(pen, name, mark, points, seen=True)


def _dodged(pen: Pen, name: str, point: Point) -> Point:
    """On a category axis, series stand beside one another."""
    axes = (pen.chart.x.scale, pen.chart.y.scale)
    drawn = [m for m in pen.chart.marks if m.kind in ("points", "intervals")]
    names = list(dict.fromkeys(n for m in drawn for n in pen.series(m)))
    if "category" not in axes or len(names) < 2 or name not in names:
        return point
    shift = (names.index(name) - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
    if pen.lies:
        return Point(point.x, point.y + shift, point.row)
    return Point(point.x + shift, point.y, point.row)


def _interval_bars(
    pen: Pen, name: str, bars: Sequence[tuple[float, float, float]], *, upright: bool
) -> None:
    """One path of all the bars: each a place, and its two ends."""
    if not bars:
        return
    places = [value for at, _, _ in bars for value in (at, at, GAP)][:-1]
    ends = [value for _, low, high in bars for value in (low, high, GAP)][:-1]
    pen.ax.plot(
        *((places, ends) if upright else (ends, places)),
        color=HEX[pen.styles[name].color],
        linewidth=1.3,
        alpha=0.75,
        clip_on=pen.clips,
        gid=pen.tag(name),
    )


def _intervals(pen: Pen, mark: Mark) -> None:
    axis = pen.chart.y
    assert axis.column is not None
    lying = Mark(kind="points", label=mark.label, column=axis.column, x=mark.column, by=mark.by)
    _points(pen, lying)


# ---- bars and cells -----------------------------------------------------------------------------


def bars(pen: Pen, marks: Sequence[Mark]) -> None:
    """All the bars of a chart: they stand side by side or on top of one another."""
    axis = pen.chart.y if pen.lies else pen.chart.x
    assert axis.column is not None
    stacked = any(mark.stacked for mark in marks)
    count = 1 if stacked else len(marks)
    thick = 0.62 if count == 1 else 0.8 / count
    tops: dict[float, float] = {}
    for i, mark in enumerate(marks):
        shift = 0.0 if stacked else (i - (count - 1) / 2) * thick
        for row in pen.rows:
            at = pen.place(row.get(axis.column), axis)
            length = pen.place(row.get(mark.column or ""), pen.value_axis)
            if at is None or length is None:
                continue
            start = tops.get(at, 0.0) if stacked else 0.0
            if mark.since is not None:
                start = pen.place(row.get(mark.since), pen.value_axis) or 0.0
                length -= start
            tops[at] = start + length
            cell = row[mark.column or ""]
            title = pen.title(mark.label, [said(row[axis.column], axis)], cell, pen.value_axis)
            _bar(pen, mark.label, title, at + shift, thick * 0.94, start, length)
            _bar_interval(pen, mark.label, cell, at + shift)
            if not stacked and _has_room(pen, count, axis):
                ends = ends_of(cell, pen.value_axis)
                text = bare(cell, pen.value_axis)
                top = max(start, start + length, ends[1] if ends else 0.0)
                _at_end(pen, at + shift, start + length if start + length < 0 else top, text)
    if stacked and all(mark.kind == "bars" for mark in pen.chart.marks):  # else a mark lies there
        for at, top in tops.items():
            _at_end(pen, at, top, number(int(top) if top.is_integer() else top))


def _bar(
    pen: Pen, name: str, title: str, at: float, thick: float, start: float, length: float
) -> None:
    style = pen.styles[name]
    draw: Callable[..., Any] = pen.ax.barh if pen.lies else pen.ax.bar
    sizes = {"left": start, "height": thick} if pen.lies else {"bottom": start, "width": thick}
    drawn = draw(
        *(at, length),
        **sizes,
        color=HEX["paper" if style.hollow else style.color],
        edgecolor=HEX[style.color if style.hollow else "paper"],
        linewidth=1.4 if style.hollow else 0.6,
        clip_on=pen.clips,
    )
    drawn[0].set_gid(pen.tag(name, [title]))


def _bar_interval(pen: Pen, name: str, cell: Any, at: float) -> None:
    ends = ends_of(cell, pen.value_axis)
    if ends is None:
        return
    pen.ax.plot(
        *(((ends, (at, at))) if pen.lies else ((at, at), ends)),
        color=HEX["ink"],
        linewidth=1.2,
        clip_on=pen.clips,
        gid=pen.tag(name),
    )


def _has_room(pen: Pen, count: int, axis: Axis) -> bool:
    return pen.lies or pen.width / (count * len(categories(pen.chart, axis))) > 26


def _at_end(pen: Pen, at: float, end: float, text: str) -> None:
    away = 3 if end >= 0 else -3
    pen.ax.annotate(
        text,
        (end, at) if pen.lies else (at, end),
        (away, 0) if pen.lies else (0, away),
        textcoords="offset points",
        ha=("left" if away > 0 else "right") if pen.lies else "center",
        va="center" if pen.lies else ("bottom" if away > 0 else "top"),
        fontsize=SMALL,
    )


def _cells(pen: Pen, mark: Mark) -> None:
    chart, column = pen.chart, mark.column or ""
    assert chart.x.column is not None
    assert chart.y.column is not None
    values = [charts.plain(row.get(column)) for row in chart.rows]
    known = [value for value in values if value is not None]
    low, high = mark.low, mark.high
    if low == high:
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
    xs, ys = categories(chart, chart.x), categories(chart, chart.y)
    plain_axis = charts.linear()
    widest = max(
        (len(bare(row[column], plain_axis)) for row in chart.rows if row[column] is not None),
        default=1,
    )
    font = min(10.0, pen.width / len(xs) / (0.66 * widest))
    for row in pen.rows:
        x, y = xs.index(named(row[chart.x.column])), ys.index(named(row[chart.y.column]))
        value = charts.plain(row.get(column))
        if value is not None:
            share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
            own = row.get(mark.text or "")
            where = f"{ys[y]}, {xs[x]}{f', {own}' if own else ''}"
            text = str(row[column]) if charts.estimated(row[column]) is not None else number(value)
            _cell(pen, x, y, 0.05 + 0.55 * share, f"{where}: {text}")
            if own:
                _outline(pen, x, y)
        if font >= 6.5:
            pen.ax.text(
                *(x, y),
                "–" if value is None else bare(row[column], plain_axis),
                ha="center",
                va="center_baseline",
                fontsize=font,
            )


def _cell(pen: Pen, x: int, y: int, shade: float, title: str) -> None:
    made = pen.ax.bar(x, 0.96, bottom=y - 0.48, width=0.96, color=HEX["heat"], alpha=shade)
    made[0].set(gid=pen.tag("", [title]), clip_on=False, linewidth=0)


def _outline(pen: Pen, x: int, y: int) -> None:
    near, far = -0.45, 0.45
    pen.ax.plot(
        [x + near, x + far, x + far, x + near, x + near],
        [y + near, y + near, y + far, y + far, y + near],
        color=HEX["ink"],
        linewidth=1.4,
        clip_on=False,
        gid=pen.tag(""),
    )


# ---- references ---------------------------------------------------------------------------------


def _level(pen: Pen, mark: Mark) -> None:
    axis, style = pen.value_axis, pen.styles[mark.label]
    value = pen.place(mark.value, axis)
    if value is None:
        return
    ends = ends_of(mark.value, axis)
    color, clips = HEX[style.color], pen.clips
    if ends is not None:
        area: Callable[..., Any] = pen.ax.axvspan if pen.lies else pen.ax.axhspan
        area(
            *ends,
            color=color,
            alpha=0.09,
            linewidth=0,
            clip_on=clips,
            gid=pen.tag(mark.label),
            zorder=0.5,
        )
    draw: Callable[..., Any] = pen.ax.axvline if pen.lies else pen.ax.axhline
    title = pen.title(mark.label, [], mark.value, axis)
    draw(
        value,
        color=color,
        linestyle=(0, style.dash) if style.dash else "-",
        linewidth=1.3,
        clip_on=clips,
        zorder=2.5 if any(other.kind == "bars" for other in pen.chart.marks) else 1,
        gid=pen.tag(mark.label, [title]),
    )


def _span(pen: Pen, mark: Mark) -> None:
    factor = pen.chart.x.factor
    pen.ax.axvspan(
        *(mark.low * factor, mark.high * factor),
        color=HEX["muted"],
        alpha=0.1,
        linewidth=0,
        clip_on=pen.clips,
        zorder=0.4,
        gid=pen.tag(mark.label),
    )


_DRAW: dict[str, Callable[[Pen, Mark], None]] = {
    "line": _line,
    "points": _points,
    "intervals": _intervals,
    "cells": _cells,
    "level": _level,
    "span": _span,
}


def draw(pen: Pen) -> None:
    """Every mark of the chart, areas of reference first."""
    early = ("span", "level")
    ordered = sorted(pen.chart.marks, key=lambda mark: mark.kind not in early)
    for kind, same in groupby(ordered, key=lambda mark: mark.kind):
        if kind == "bars":
            bars(pen, list(same))
            continue
        for mark in same:
            _DRAW[kind](pen, mark)
