"""Lays a chart out on Matplotlib axes, in one of the site's sizes, and returns Matplotlib's SVG.

Matplotlib finds the margins. Lines and points are named where they are, if there is room.

Units: pixels of the drawing, which are Matplotlib's points.
"""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import OffsetFrom
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from madl.logbook import charts
from madl.logbook.charts import Axis, Chart
from madl.logbook.values import superscript
from madl.site.plotting import marks
from madl.site.plotting.marks import Panel, categories, cell_name
from madl.site.plotting.palette import HEX, TEXT, looks
from madl.site.plotting.size import FONT, LINE, SMALL, Size, brief, cut, width, wrapped

HOUSE = {
    "svg.fonttype": "none",
    "figure.dpi": 72,
    "font.size": FONT,
    "text.parse_math": False,
    "text.color": HEX["ink"],
    "axes.edgecolor": HEX["muted"],
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0.03,
    "axes.ymargin": 0.06,
    "figure.facecolor": "none",
    "grid.color": HEX["grid"],
    "path.simplify_threshold": 0.3,
    **{f"{axis}tick.labelcolor": HEX["ink"] for axis in "xy"},
    **{f"{axis}tick.major.size": 0 for axis in "xy"},
    **{f"{axis}tick.major.pad": 5 for axis in "xy"},
}
PLOTTED = 0.75  # of a drawing's height the part that is not its axis, about
LABEL = 150.0  # the width of a line's name beside the plot, at most
MOVED = 40.0  # how far up or down a name may stand from its line's end
TOGETHER = 3.0  # pixels, within which lines end at one place


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawn chart: Matplotlib's SVG, and which series are named in it (`direct`).

    `tags` says for the id of each tagged group the number of its series and its points' titles.
    """

    svg: str
    tags: Mapping[str, tuple[int, Sequence[str]]]
    direct: set[str]


def plot(chart: Chart, size: Size, *, salt: str) -> Plot:
    """Draw a chart in one size; ids within its SVG depend on the salt."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # to few data
        matplotlib.rcdefaults()  # whatever the reader's matplotlibrc says
        matplotlib.rcParams.update({**HOUSE, "svg.hashsalt": salt})  # type: ignore[arg-type]
        return _plot(chart, size)


def _plot(chart: Chart, size: Size) -> Plot:
    """Draw a chart with the settings that Matplotlib has now."""
    facets = categories(chart, Axis(label="", column=chart.facet)) if chart.facet else [""]
    few = size.columns > 3 and len(facets) in (3, 5, 6, 9)  # then three leave no gap
    across = min(len(facets), 3 if few else size.columns)
    down = math.ceil(len(facets) / across)
    height = _height(chart, size, down)
    figure = Figure((size.width / 72, height / 72), layout="constrained")
    grid = [*figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat]
    panels = _panels(chart, size, facets, grid, (size.width - size.margin) / across)
    own = any(mark.kind == "cells" for mark in chart.marks)  # names below each panel
    for i, panel in enumerate(panels):
        _ticks(panel, chart.x, panel.wide)
        _ticks(panel, chart.y, height * PLOTTED / down)
        panel.ax.tick_params(labelbottom=own or i + across >= len(panels))
    _name_axes(figure, chart, size)
    direct: set[str] = set()
    if not size.is_thumbnail:
        direct = _name_panels(panels)
        margins = figure.get_layout_engine()
        assert margins is not None
        margins.execute(figure)  # now all is where it stays
        figure.set_layout_engine("none")
        for panel in panels:
            _name_points(panel)
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(text, metadata=nothing)  # `savefig` would draw twice
    return Plot(svg=text.getvalue(), tags=panels[0].tags, direct=direct)


def _panels(
    chart: Chart, size: Size, facets: Sequence[str], grid: Sequence[Axes], wide: float
) -> list[Panel]:
    """Draw each facet's marks on axes of the grid, and remove the axes that are left over."""
    shared: dict[str, Any] = {
        "chart": chart,
        "size": size,
        "wide": wide,
        "looks": looks(chart),
        "tags": {},
    }
    panels: list[Panel] = []
    for name, ax in zip(facets, grid):
        rows = [r for r in chart.rows if not name or cell_name(r.get(chart.facet or "")) == name]
        panel = Panel(ax=ax, rows=rows, facet=name, **shared)
        for axis, set_scale in ((chart.x, ax.set_xscale), (chart.y, ax.set_yscale)):
            if axis.scale.startswith("log"):
                set_scale("log", base=2 if axis.scale == "log2" else 10)
        marks.draw(panel)
        panels.append(panel)
    for ax in grid[len(facets) :]:
        ax.remove()
    return panels


def _name_axes(figure: Figure, chart: Chart, size: Size) -> None:
    """Write the titles of the axes; on a thumbnail in one line, and none of a category axis."""
    room = size.width - 8

    def text(axis: Axis) -> str:
        if not size.is_thumbnail:
            return "\n".join(wrapped(axis.title, FONT, room))
        return "" if axis.scale == "category" else brief(axis.title, FONT, room)

    if chart.y.title:
        figure.suptitle(text(chart.y), x=2 / size.width, ha="left", fontsize=FONT)
    if chart.x.title:
        figure.supxlabel(text(chart.x), fontsize=FONT)


def _name_panels(panels: Sequence[Panel]) -> set[str]:
    """Write facets' names above the panels, and names of series beside and above them; returns the
    series that are named so.
    """
    first = panels[0]
    above, named_above = _above(first)
    for panel in panels:
        head = "\n".join(wrapped(panel.facet, SMALL, panel.wide)[:2])
        look: dict[str, Any] = {"fontsize": SMALL, "fontweight": "bold", "loc": "left"}
        panel.ax.set_title(head, pad=5 + LINE * bool(above), **look)
        for x, text, side in above:
            look = {"xycoords": ("data", "axes fraction"), "ha": side, "color": TEXT["muted"]}
            panel.text(text, (x, 1), (0, 5), **look)
    ends = _ends(first) if first.size.name == "wide" and len(panels) == 1 else {}
    for name, end in ends.items():
        _name_end(first, name, *end)
    return {*named_above, *ends}


def _height(chart: Chart, size: Size, down: int) -> float:
    """The height of the drawing, with this many rows of panels."""
    if chart.is_horizontal:
        room, names = size.width * 0.38, categories(chart, chart.y)
        lines = max(len(wrapped(name, FONT, room)) for name in names)
        if size.is_thumbnail:  # half as high again, if names need it
            high = len(names) * (lines * (LINE - 2) + 2) / PLOTTED
            return min(max(size.height, high), size.height * 1.5)
        many = len({m.label for m in chart.marks if m.kind == "bars" and not m.stacked})
        step = max(24.0, 17.0 * many + 8, LINE * lines + 6)
        return (len(names) * step + (44.0 if chart.facet else 20.0)) * down + 70
    if size.is_thumbnail:
        return size.height
    if down == 1:
        return size.height if chart.facet is None else min(size.height, 260)
    return 150.0 * down + 60


# ---- scales, ticks and their names --------------------------------------------------------------


def _ticks(panel: Panel, shown: Axis, length: float) -> None:
    """Set the limits of an axis, and as many ticks as its length has room for."""
    ax, chart, is_x = panel.ax, panel.chart, shown is panel.chart.x
    axis, set_limits = (ax.xaxis, ax.set_xlim) if is_x else (ax.yaxis, ax.set_ylim)
    axis.set_minor_locator(NullLocator())
    if shown.scale == "category":
        count = len(categories(chart, shown))
        set_limits(*((-0.5, count - 0.5) if is_x else (count - 0.5, -0.5)))
        axis.set_ticks(range(count), _names(panel, shown, length / count - 2))
        axis.grid(visible=False)
        return
    low, high = shown.limits
    has_bars = shown is chart.value_axis and any(mark.kind == "bars" for mark in chart.marks)
    if has_bars and low is None and shown.scale == "linear":
        least = ax.dataLim.x0 if is_x else ax.dataLim.y0
        low = 0.0 if least >= 0 else None
    set_limits(low, high, auto=None)
    low, high = sorted(axis.get_view_interval())
    powers = shown.scale == "log10" and (low < 1e-4 or high > 2e6)
    axis.set_major_formatter(FuncFormatter(power if powers else tick))
    room = max(40.0, max(width(tick(float(f"{e:.2g}")), FONT) for e in (low, high)) + 14)
    most = max(2, min(panel.size.ticks, int(length / (room if is_x else 28.0))))
    if shown.scale == "log2" and is_x:
        locator = FixedLocator(_doublings(panel, length / math.log2(high / low)))
    elif shown.scale == "log2":
        locator = LogLocator(base=2, numticks=most + 2)
    elif shown.scale == "log10":
        few = math.log10(high / low) < 2
        locator = LogLocator(subs=(1, 2, 5) if few else (1,), numticks=most + 1)
    else:
        cells = [charts.plain(row.get(shown.column or "")) for row in chart.rows]
        whole = is_x and all(isinstance(cell, int) for cell in cells)
        locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=whole)
    axis.set_major_locator(locator)


def _doublings(panel: Panel, each: float) -> list[float]:
    """The x values to tick on a base-2 axis: those measured whose number fits, powers of two first.

    `each` is the length of a doubling.
    """
    shared = replace(panel, rows=panel.chart.rows)  # all of its panels share the axis
    series = (shared.series(mark).values() for mark in panel.chart.marks if mark.column)
    values = {x for of_mark in series for points in of_mark for x, _, _ in points}
    chosen: list[tuple[float, float]] = []  # where it is along the axis, in pixels
    for value in sorted(values, key=lambda v: (not math.log2(v).is_integer(), v)):
        at, half = math.log2(value) * each, width(tick(value), FONT) / 2 + 4
        if all(abs(at - other) >= half + room for other, room in chosen):
            chosen.append((at, half))
    return sorted(2 ** (at / each) for at, _ in chosen)


def tick(value: float, _: int | None = None) -> str:
    """A number at an axis: "1,000", "2 M", "3 G"; as a power of ten only if it is tiny."""
    size = abs(value)
    if 0 < size < 1e-4:
        return power(value)
    step, letter = (1e9, " G") if size >= 1e9 else (1e6, " M") if size >= 2e6 else (1.0, "")
    return f"{value / step:,.8g}{letter}".replace("-", "−")


def power(value: float, _: int | None = None) -> str:
    """A number at an axis as a power of ten: "10⁷", "2×10⁻⁵"."""
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    factor = value / 10**exponent
    raised = f"10{superscript(exponent)}"
    return raised if abs(factor - 1) < 1e-6 else f"{factor:.3g}×{raised}"


def _names(panel: Panel, shown: Axis, room: float) -> list[str]:
    """The names at a category axis, wrapped to `room`; on x, they are turned if one does not fit.

    On a thumbnail they are shortened if they must be, or empty if there is no room at all.
    """
    names, size = categories(panel.chart, shown), panel.size
    is_x = shown is panel.chart.x
    if size.is_thumbnail and room < (40 if is_x else LINE - 2):
        return [""] * len(names)
    if size.is_thumbnail and not is_x:
        lines = [wrapped(name, FONT, size.width * 0.38) for name in names]
        if max(map(len, lines)) * (LINE - 2) <= room:
            return ["\n".join(each) for each in lines]
        short = [brief(name, FONT, size.width * 0.5) for name in names]
        alike = len({*short}) < len(names)
        return [cut(name, FONT, size.width * 0.5) for name in names] if alike else short
    lines = [wrapped(name, FONT, room if is_x else size.width * 0.38) for name in names]
    if size.is_thumbnail:
        two = ([first, " ".join(rest)] for first, *rest in lines)
        return ["\n".join(cut(line, FONT, room) for line in each if line) for each in two]
    if is_x and any(width(line, FONT) > room for each in lines for line in each):
        panel.ax.tick_params(axis="x", labelrotation=40)
        for label in panel.ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
        return names
    return ["\n".join(each) for each in lines]


# ---- names of lines, spans and points -----------------------------------------------------------


def _above(panel: Panel) -> tuple[list[tuple[float, str, str]], list[str]]:
    """The names to write above a panel, as (x, name, alignment), and the levels among them.

    Spans are named there; if there are none, so is the only level of a horizontal chart.
    """
    chart = panel.chart
    spans = sorted((m for m in chart.marks if m.kind == "span" and m.label), key=lambda m: m.low)
    names: list[tuple[float, str, str]] = []
    for i, mark in enumerate(spans):  # of two, each name stands away from the other
        side = "left" if i == len(spans) - 1 else "right"
        end = max(mark.low * chart.x.factor, panel.ax.get_xlim()[0])
        names.append((end if side == "left" else mark.high * chart.x.factor, mark.label, side))
    levels = [mark for mark in chart.marks if mark.kind == "level" and mark.label]
    if not chart.is_horizontal or len(levels) != 1 or names or chart.facet:
        return names, []
    value = panel.place(levels[0].value, chart.x)
    return ([] if value is None else [(value, levels[0].label, "center")]), [levels[0].label]


def _ends(panel: Panel) -> dict[str, tuple[float, float, float]]:
    """The lines and levels to name at their right end, as (x, y, pixels from there up to the name).

    x and y are shares of the axes. Names that are too long, or lines that end early, are left to
    the legend; so are all, if one would stand too far from its line, or three end at one place.
    """
    if panel.chart.is_horizontal or len(panel.looks) < 2:
        return {}
    shares = panel.ax.transData + panel.ax.transAxes.inverted()
    places: dict[str, tuple[float, float]] = {}
    for mark in panel.chart.marks:
        ends: dict[str, tuple[float, float]] = {}
        if mark.kind == "level":
            if (value := panel.place(mark.value, panel.chart.y)) is not None:
                ends = {mark.label: (panel.ax.get_xlim()[1], value)}
        elif mark.kind == "line":
            series = panel.series(mark).items()
            ends = {name: max(points, key=lambda p: p[0])[:2] for name, points in series}
        for name, end in ends.items():
            x, y = shares.transform(end)
            if name and x > 0.75 and -0.02 <= y <= 1.02 and width(name, SMALL) <= LABEL:
                places[name] = (float(x), float(y))
    names = sorted(places, key=lambda name: places[name][1])
    tall = panel.size.height - 75
    heights = [places[name][1] * tall for name in names]
    moves = _apart(heights)
    is_heap = any(third - first < TOGETHER for first, third in zip(heights, heights[2:]))
    if is_heap or any(abs(up) > MOVED for up in moves):
        return {}
    return {name: (*places[name], up) for name, up in zip(names, moves)}


def _apart(places: Sequence[float]) -> list[float]:
    """How far to move ascending places so that neighbours are a text line apart: least squares."""
    from scipy.optimize import isotonic_regression  # which few charts need

    if not places:
        return []
    wanted = [place - i * LINE for i, place in enumerate(places)]
    begins = isotonic_regression(wanted).x
    return [float(begin - at) for begin, at in zip(begins, wanted)]


def _name_end(panel: Panel, name: str, x: float, y: float, up: float) -> None:
    """Write a series' name right of its end, with a leader if it stands away from it."""
    leader = {"arrowstyle": "-", "linewidth": 0.8, "color": HEX["muted"], "relpos": (0, 0.5)}
    is_led = abs(up) > 3 or x < 0.96
    look: dict[str, Any] = {"arrowprops": {**leader, "shrinkA": 2, "shrinkB": 5}} if is_led else {}
    look |= {"ha": "left", "va": "center_baseline", "color": TEXT[panel.looks[name].color]}
    look |= {"xycoords": "axes fraction", "textcoords": OffsetFrom(panel.ax.patch, (1, y))}
    panel.text(name, (x, y), (18 if is_led else 9, up), gid=panel.tag(name), **look)


PLACES = (
    *((7, 0, "left", 0.5), (0, 7, "center", 0.0), (0, -7, "center", 1.0), (-7, 0, "right", 0.5)),
    *((6, 6, "left", 0.0), (6, -6, "left", 1.0), (-6, 6, "right", 0.0), (-6, -6, "right", 1.0)),
)
SIDES = {"left": 0.0, "center": 0.5, "right": 1.0}


def _name_points(panel: Panel) -> None:
    """Write points' own names beside them, or at an end of their bar if that is all that is free.

    A name that would cover something else than a bar at all of these places is left out.
    """
    named = [mark for mark in panel.chart.marks if mark.text is not None and mark.kind == "points"]
    if not named:
        return
    transform, frame = panel.ax.transData.transform, panel.ax.bbox
    points = [
        (x, y, str(row.get(mark.text or "") or ""), transform((x, y)))
        for mark in named
        for series in panel.series(mark).values()
        for x, y, row in panel.inside(series)
    ]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for *_, (x, y) in points]
    for mark in panel.chart.marks:
        if mark.kind == "level" and (value := panel.place(mark.value, panel.chart.y)) is not None:
            level = transform((panel.ax.get_xlim()[0], value))[1]
            taken.append(Bbox.from_bounds(frame.x0, level - 1, frame.width, 2))
    bars = [
        Bbox(transform(bar)).padded(4)
        for mark in named
        for series in panel.series(mark).values()
        for bar in marks.bars_of(panel, mark, panel.inside(series), with_dots=True)
    ]
    for x, y, text, (left, bottom) in points:
        wide = width(text, SMALL)
        free = list[tuple[bool, Bbox, float, float, str]]()
        own = [bar for bar in bars if bar.contains(left, bottom)]
        top = max((bar.y1 - bottom for bar in own), default=0) + 2
        foot = min((bar.y0 - bottom for bar in own), default=0) - 2
        at_ends = [
            (dx, dy, side, down)
            for dx, side in ((0, "center"), (-5, "left"), (5, "right"))
            for dy, down in ((top, 0.0), (foot, 1.0))
        ]
        for dx, dy, side, down in (*PLACES, *at_ends) if text else ():
            move = dx - SIDES[side] * wide, dy - down * SMALL
            box = Bbox.from_bounds(left + move[0], bottom + move[1], wide, SMALL)
            is_in = box.x0 > frame.x0 and box.y0 > frame.y0 and box.x1 <= panel.size.width
            if is_in and not any(box.overlaps(other) for other in taken):
                free.append((any(map(box.overlaps, bars)), box, dx, move[1] + 2, side))
        if free:
            _, box, right, up, side = min(free, key=lambda place: place[0])  # first off bars
            taken.append(box)
            panel.text(text, (x, y), (right, up), ha=side)
