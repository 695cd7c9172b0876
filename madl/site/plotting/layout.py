"""Puts a chart on Matplotlib axes, for one width, and gives what Matplotlib writes as SVG.

Matplotlib finds the margins. Lines and points are named where they are, if there is room.

Units: pixels of the drawing, which are Matplotlib's points.
"""

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import OffsetFrom
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from madl.logbook import charts
from madl.logbook.charts import Axis, Chart
from madl.logbook.stats import superscript
from madl.site.plotting import marks
from madl.site.plotting.marks import Panel, categories, named
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
LABEL = 150.0  # of a line's name beside the plot, at most
MOVED = 40.0  # that a name may stand from its line's end


@dataclass(slots=True, kw_only=True)
class Plot:
    """Matplotlib's SVG, what its tagged groups are, and the series that are named in it."""

    svg: str = ""
    tags: dict[str, tuple[int, Sequence[str]]] = field(default_factory=dict)
    direct: set[str] = field(default_factory=set)


def plot(chart: Chart, size: Size, *, salt: str) -> Plot:
    """Draws a chart in one width; ids within it depend on the salt."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # to few data
        matplotlib.rcdefaults()  # whatever the reader's matplotlibrc says
        matplotlib.rcParams.update({**HOUSE, "svg.hashsalt": salt})  # type: ignore[arg-type]
        return _plot(chart, size)


def _plot(chart: Chart, size: Size) -> Plot:
    made, facets = Plot(), [""]
    if chart.facet is not None:
        facets = categories(chart, Axis(label="", column=chart.facet))
    few = size.columns > 3 and len(facets) in (3, 5, 6, 9)  # then three leave no gap
    across = min(len(facets), 3 if few else size.columns)
    down = math.ceil(len(facets) / across)
    height = _height(chart, size, down)
    figure = Figure((size.width / 72, height / 72), layout="constrained")
    grid = [*figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat]
    panels: list[Panel] = []
    for name, ax in zip(facets, grid):
        rows = [r for r in chart.rows if not chart.facet or named(r.get(chart.facet)) == name]
        drawn: dict[str, Any] = {"chart": chart, "size": size, "looks": looks(chart)}
        wide = (size.width - size.margin) / across
        panel = Panel(ax=ax, rows=rows, wide=wide, tags=made.tags, facet=name, **drawn)
        for axis, setter in ((chart.x, ax.set_xscale), (chart.y, ax.set_yscale)):
            if axis.scale.startswith("log"):
                setter("log", base=2 if axis.scale == "log2" else 10)
        marks.draw(panel)
        panels.append(panel)
    for ax in grid[len(facets) :]:
        ax.remove()
    own = any(mark.kind == "cells" for mark in chart.marks)  # names below each panel
    for i, panel in enumerate(panels):
        _ticks(panel, chart.x, panel.wide)
        _ticks(panel, chart.y, height * 0.75 / down)
        panel.ax.tick_params(labelbottom=own or i + across >= len(panels))
    if size.name == "thumb":
        _name_axes(figure, panels[0])
    else:
        made.direct |= _write(figure, panels)
        margins = figure.get_layout_engine()
        assert margins is not None
        margins.execute(figure)  # now all is where it stays
        figure.set_layout_engine("none")
        for panel in panels:
            _name_points(panel)
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=nothing)
    made.svg = text.getvalue()
    return made


def _name_axes(figure: Figure, panel: Panel) -> None:
    """What the axes measure; on a thumbnail in one line, and its categories say it themselves."""
    chart, size = panel.chart, panel.size
    room = size.width - 8

    def text(shown: Axis) -> str:
        if size.name != "thumb":
            return "\n".join(wrapped(shown.title, FONT, room))
        return "" if shown.scale == "category" else brief(shown.title, FONT, room)

    if chart.y.title:
        figure.suptitle(text(chart.y), x=2 / size.width, ha="left", fontsize=FONT)
    if chart.x.title:
        figure.supxlabel(text(chart.x), fontsize=FONT)


def _write(figure: Figure, panels: Sequence[Panel]) -> set[str]:
    """What stands around the panels; returns the series that are named there."""
    first = panels[0]
    size = first.size
    _name_axes(figure, first)
    above, named_above = _above(first)
    for panel in panels:
        head = "\n".join(wrapped(panel.facet, SMALL, panel.wide)[:2])
        look: dict[str, Any] = {"fontsize": SMALL, "fontweight": "bold", "loc": "left"}
        panel.ax.set_title(head, pad=5 + LINE * bool(above), **look)
        for x, text, side in above:
            look = {"xycoords": ("data", "axes fraction"), "ha": side, "color": TEXT["muted"]}
            panel.text(text, (x, 1), (0, 5), **look)
    ends = _ends(first) if size.name == "wide" and len(panels) == 1 else {}
    for name, end in ends.items():
        _name_end(first, name, *end)
    return {*named_above, *ends}


def _height(chart: Chart, size: Size, down: int) -> float:
    if size.name == "thumb":
        return size.height
    if chart.y.scale == "category":
        room = size.width * 0.38
        lines = max(len(wrapped(name, FONT, room)) for name in categories(chart, chart.y))
        many = len({m.label for m in chart.marks if m.kind == "bars" and not m.stacked})
        step = max(24.0, 17.0 * many + 8, LINE * lines + 6)
        extra = 44.0 if chart.facet else 20.0
        return (len(categories(chart, chart.y)) * step + extra) * down + 70
    if down == 1:
        return size.height if chart.facet is None else min(size.height, 260)
    return 150.0 * down + 60


# ---- scales, ticks and their names --------------------------------------------------------------


def _ticks(panel: Panel, shown: Axis, length: float) -> None:
    """Limits and ticks, no more of them than there is room for."""
    ax, is_x = panel.ax, shown is panel.chart.x
    axis = ax.xaxis if is_x else ax.yaxis
    axis.set_minor_locator(NullLocator())
    if shown.scale == "category":
        count = len(categories(panel.chart, shown))
        ends = (-0.5, count - 0.5) if is_x else (count - 0.5, -0.5)
        (ax.set_xlim if is_x else ax.set_ylim)(*ends)
        axis.set_ticks(range(count), _names(panel, shown, length / count - 2))
        axis.grid(visible=False)
        return
    low, high = shown.limits
    bars = any(mark.kind == "bars" for mark in panel.chart.marks)
    least = ax.dataLim.x0 if is_x else ax.dataLim.y0
    if bars and shown is panel.values and low is None and least >= 0 and shown.scale == "linear":
        low = 0.0
    (ax.set_xlim if is_x else ax.set_ylim)(low, high, auto=None)
    low, high = sorted(axis.get_view_interval())
    powers = shown.scale == "log10" and (low < 1e-4 or high > 2e6)
    axis.set_major_formatter(FuncFormatter(power if powers else tick))
    room = max(40.0, max(width(tick(float(f"{e:.2g}")), FONT) for e in (low, high)) + 14)
    most = max(2, min(panel.size.ticks, int(length / (room if is_x else 28.0))))
    if shown.scale == "log2" and is_x:
        axis.set_major_locator(FixedLocator(_doublings(panel, length / math.log2(high / low))))
    elif shown.scale == "log2":
        axis.set_major_locator(LogLocator(base=2, numticks=most + 2))
    elif shown.scale == "log10":
        few = math.log10(high / low) < 1.6
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=most + 1))
    else:
        cells = [charts.plain(row.get(shown.column or "")) for row in panel.chart.rows]
        whole = is_x and all(isinstance(cell, int) for cell in cells)
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=whole))


def _doublings(panel: Panel, each: float) -> list[float]:
    """A tick at every measurement that has room for its number: powers of two come first."""
    drawn = [panel.series(mark).values() for mark in panel.chart.marks if mark.column]
    found = {x for series in drawn for points in series for x, _, _ in points}
    chosen: list[tuple[float, float]] = []  # where it is along the axis, in pixels
    for place in sorted(found, key=lambda p: (not math.log2(p).is_integer(), p)):
        at, half = math.log2(place) * each, width(tick(place), FONT) / 2 + 4
        if all(abs(at - other) >= half + room for other, room in chosen):
            chosen.append((at, half))
    return sorted(2 ** (at / each) for at, _ in chosen)


def tick(value: float, _: int | None = None) -> str:
    """A number at an axis: thousands by comma, no offset, no exponent where a reader needs none."""
    size = abs(value)
    if 0 < size < 1e-4:
        return power(value)
    step, letter = (1e9, " G") if size >= 1e9 else (1e6, " M") if size >= 2e6 else (1.0, "")
    return f"{value / step:,.8g}{letter}".replace("-", "−")


def power(value: float, _: int | None = None) -> str:
    """A number as a power of ten, where an axis spans too many of them to write them out."""
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    factor = value / 10**exponent
    raised = f"10{superscript(exponent)}"
    return raised if abs(factor - 1) < 1e-6 else f"{factor:.3g}×{raised}"


def _names(panel: Panel, shown: Axis, room: float) -> list[str]:
    """Of the places of a category axis, in lines; those below it are turned where none has room."""
    names = categories(panel.chart, shown)
    is_x = shown is panel.chart.x
    if panel.size.name == "thumb":
        if room < (40 if is_x else LINE - 2):
            return [""] * len(names)
        if not is_x:
            return [cut(name, FONT, panel.size.width * 0.5) for name in names]
        two = ([first, " ".join(rest)] for first, *rest in (wrapped(n, FONT, room) for n in names))
        return ["\n".join(cut(line, FONT, room) for line in each if line) for each in two]
    lines = [wrapped(name, FONT, room if is_x else panel.size.width * 0.38) for name in names]
    if is_x and any(width(line, FONT) > room for each in lines for line in each):
        panel.ax.tick_params(axis="x", labelrotation=40)
        for label in panel.ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
        return names
    return ["\n".join(each) for each in lines]


# ---- names of lines, spans and points -----------------------------------------------------------


def _above(panel: Panel) -> tuple[list[tuple[float, str, str]], list[str]]:
    """Names above the panel: where, what, to which side. Of spans, and of one upright level."""
    chart = panel.chart
    spans = sorted((m for m in chart.marks if m.kind == "span" and m.label), key=lambda m: m.low)
    found: list[tuple[float, str, str]] = []
    for i, mark in enumerate(spans):  # of two, each name stands away from the other
        side = "left" if i == len(spans) - 1 else "right"
        end = max(mark.low * chart.x.factor, panel.ax.get_xlim()[0])
        found.append((end if side == "left" else mark.high * chart.x.factor, mark.label, side))
    levels = [mark for mark in chart.marks if mark.kind == "level" and mark.label]
    if not panel.lies or len(levels) != 1 or found or chart.facet:
        return found, []
    value = panel.place(levels[0].value, chart.x)
    return ([] if value is None else [(value, levels[0].label, "center")]), [levels[0].label]


def _ends(panel: Panel) -> dict[str, tuple[float, float, float]]:
    """Where lines and levels end, in shares of the axes, and how far up each name stands from it.

    Names that are too long, or lines that end early, are the legend's; so are all, if one would
    stand too far from its line.
    """
    if panel.lies:
        return {}
    found: dict[str, tuple[float, float]] = {}
    shares = panel.ax.transData + panel.ax.transAxes.inverted()
    for mark in panel.chart.marks:
        if mark.kind == "level":
            value = panel.place(mark.value, panel.chart.y)
            ends = {} if value is None else {mark.label: (panel.ax.get_xlim()[1], value)}
        else:
            ends = {
                name: max(points, key=lambda p: p[0])[:2]
                for name, points in panel.series(mark).items()
            }
            ends = ends if mark.kind == "line" else {}
        for name, end in ends.items():
            x, y = shares.transform(end)
            if name and x > 0.75 and -0.02 <= y <= 1.02 and width(name, SMALL) <= LABEL:
                found[name] = (float(x), float(y))
    names = sorted(found, key=lambda name: found[name][1])
    tall = panel.size.height - 75
    moved = _apart([found[name][1] * tall for name in names])
    if len(panel.looks) < 2 or any(abs(up) > MOVED for up in moved):
        return {}
    return {name: (*found[name], up) for name, up in zip(names, moved)}


def _apart(wanted: Sequence[float]) -> list[float]:
    """How far to move rising places, as little as can be, so that each has a line's room."""
    pools: list[list[float]] = []  # of neighbours that touch: each wants to begin there
    for i, place in enumerate(wanted):
        pools.append([place - i * LINE])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    begins = [fmean(pool) for pool in pools for _ in pool]
    return [begin + i * LINE - place for i, (begin, place) in enumerate(zip(begins, wanted))]


def _name_end(panel: Panel, name: str, x: float, y: float, up: float) -> None:
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
    """Points' own names, where no other name, point or level is; none where there is no room."""
    transform, frame = panel.ax.transData.transform, panel.ax.bbox
    named_marks = [m for m in panel.chart.marks if m.text is not None and m.kind == "points"]
    points = [
        (x, y, str(row[mark.text or ""]) if row.get(mark.text or "") else "")
        for mark in named_marks
        for of_series in panel.series(mark).values()
        for x, y, row in panel.inside(of_series)
    ]
    dots = [transform((x, y)) for x, y, _ in points]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    for mark in panel.chart.marks if named_marks else ():
        if mark.kind == "level" and (value := panel.place(mark.value, panel.chart.y)) is not None:
            level = transform((panel.ax.get_xlim()[0], value))[1]
            taken.append(Bbox.from_bounds(frame.x0, level - 1, frame.width, 2))
    for (x, y, text), here in zip(points, dots):
        wide = width(text, SMALL)
        for dx, dy, side, down in PLACES if text else ():
            left, bottom = here[0] + dx - SIDES[side] * wide, here[1] + dy - down * SMALL
            box = Bbox.from_bounds(left, bottom, wide, SMALL)
            is_in = left > frame.x0 and bottom > frame.y0 and box.x1 <= panel.size.width
            if is_in and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                up = bottom + 2 - here[1]
                panel.text(text, (x, y), (dx, up), ha=side)
                break
