"""Lays a chart out on Matplotlib axes, for one width, and gives what Matplotlib writes as SVG.

Margins are computed from the texts that stand there, so nothing is drawn twice. Every text is a
line of its own, anchored at what it belongs to: a narrower font than DejaVu shifts none.

Units: pixels of the drawing, which are Matplotlib's points.
"""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from madl.logbook import charts
from madl.logbook.charts import Axis, Chart
from madl.logbook.stats import superscript
from madl.site.plotting import marks
from madl.site.plotting.marks import Panel, categories, named
from madl.site.plotting.palette import HEX, TEXT, looks
from madl.site.plotting.size import FONT, LINE, SMALL, Size, width, wrapped

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
Names = dict[float, list[str]]  # lines at a place
ALONG_X, ALONG_Y = ("data", "axes fraction"), ("axes fraction", "data")
LABEL = 150.0  # of a line's name beside the plot, at most
MOVED = 40.0  # that a name may stand from its line's end


@dataclass(slots=True, kw_only=True)
class Plot:
    """Matplotlib's SVG, what its tagged groups are, and the series that are named in it."""

    svg: str = ""
    tags: dict[str, tuple[int, Sequence[str]]] = field(default_factory=dict)
    direct: set[str] = field(default_factory=set)


class _Frame:
    """Where panels stand, and the texts around them."""

    def __init__(
        self, panels: Sequence[Panel], ends: Iterable[str], *, height: float, across: int
    ) -> None:
        first = panels[0]
        chart, size = first.chart, first.size
        self.size, self.height, self.across = size, height, across
        self.down = math.ceil(len(panels) / across)
        self.gap = 16.0 if across > 1 else 0.0
        self.above, self.named_above = _above(first) if size.name != "thumb" else ([], [])
        self.y_names = _y_names(first)
        y_lines = [line for name in self.y_names.values() for line in name]
        self.left = 10 + max([0.0, *(width(line, FONT) for line in y_lines)])
        last = [*_named_ticks(first, chart.x).values()][-1:] * (chart.x.scale != "category")
        numbers = [width(text, FONT) / 2 for text in last]
        right = max([12.0, *numbers, *(width(name, SMALL) + 24 for name in ends)])
        self.wide = (size.width - self.left - right - self.gap * (across - 1)) / across
        self.x_names, self.turned = _x_names(first, self.wide)
        titles = [wrapped(axis.title, FONT, size.width - 8) for axis in (chart.y, chart.x)]
        self.titles = [[] if size.name == "thumb" or one == [""] else one for one in titles]
        names = [panel.facet for panel in panels if panel.facet]
        self.heads = {name: wrapped(name, SMALL, self.wide)[:2] for name in names}
        self.own = any(mark.kind == "cells" for mark in chart.marks)  # names below each panel

    def box(self, i: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a panel, in shares of the figure."""
        names = _tall(self.x_names, turned=self.turned)
        head = max((LINE * len(lines) + 4 for lines in self.heads.values()), default=0.0)
        head += LINE if self.above else 0
        between = head + (names + 8 if self.own else 12)
        top = 8 + LINE * len(self.titles[0])
        bottom = 12 + names + LINE * len(self.titles[1])
        tall = (self.height - top - bottom - head - between * (self.down - 1)) / self.down
        left = self.left + (self.wide + self.gap) * (i % self.across)
        low = self.height - top - head - tall - (tall + between) * (i // self.across)
        shares = left / self.size.width, low / self.height
        return (*shares, self.wide / self.size.width, tall / self.height)


def plot(chart: Chart, size: Size, *, salt: str) -> Plot:
    """Draws a chart in one width; ids within it depend on the salt."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the reader's matplotlibrc says
        matplotlib.rcParams.update({**HOUSE, "svg.hashsalt": salt})  # type: ignore[arg-type]
        return _plot(chart, size)


def _plot(chart: Chart, size: Size) -> Plot:
    made, facets = Plot(), _facets(chart)
    few = size.columns > 3 and len(facets) in (3, 5, 6, 9)  # then three leave no gap
    across = min(len(facets), 3 if few else size.columns)
    down = math.ceil(len(facets) / across)
    height = _height(chart, size, down)
    figure = Figure((size.width / 72, height / 72))
    grid = [*figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat]
    panels: list[Panel] = []
    for name, ax in zip(facets, grid):
        rows = [r for r in chart.rows if not chart.facet or named(r.get(chart.facet)) == name]
        drawn: dict[str, Any] = {"chart": chart, "size": size, "looks": looks(chart)}
        wide = (size.width - 70) / across
        panel = Panel(ax=ax, rows=rows, wide=wide, tags=made.tags, facet=name, **drawn)
        for axis, setter in ((chart.x, ax.set_xscale), (chart.y, ax.set_yscale)):
            if axis.scale.startswith("log"):
                setter("log", base=2 if axis.scale == "log2" else 10)
        marks.draw(panel)
        panels.append(panel)
    for ax in grid[len(facets) :]:
        ax.remove()
    for panel in panels:
        _ticks(panel, chart.x, panel.wide)
        _ticks(panel, chart.y, height * 0.75 / down)
    ends = _ends(panels[0]) if size.name == "wide" and len(panels) == 1 else {}
    frame = _Frame(panels, ends, height=height, across=across)
    _write(panels, frame)
    for name, end in ends.items():
        _name_end(panels[0], name, *end)
    for panel in panels if size.name != "thumb" else ():
        _name_points(panel)
    made.direct |= {*frame.named_above, *ends}
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=nothing)
    made.svg = text.getvalue()
    return made


def _write(panels: Sequence[Panel], frame: _Frame) -> None:
    """Puts the panels into their places, and what stands around them."""
    for i, panel in enumerate(panels):
        panel.ax.set_position(frame.box(i))
        panel.wide = frame.wide
        panel.ax.tick_params(labelleft=False, labelbottom=False)
        if i % frame.across == 0:
            _write_y(panel, frame.y_names)
        if frame.own or i + frame.across >= len(panels):
            _write_x(panel, frame.x_names, turned=frame.turned)
        for k, line in enumerate(reversed(frame.heads.get(panel.facet, []))):
            up = 5 + LINE * k + (LINE if frame.above else 0)
            panel.text(line, (0, 1), (0, up), xycoords="axes fraction", ha="left", weight="bold")
        for x, text, side in frame.above:
            panel.text(text, (x, 1), (0, 5), xycoords=ALONG_X, ha=side, color=TEXT["muted"])
    look: dict[str, Any] = {"fontsize": FONT, "color": TEXT["ink"]}
    figure = panels[0].ax.figure
    for k, line in enumerate(frame.titles[0]):
        figure.text(2 / frame.size.width, 1 - (LINE * k + 12) / frame.height, line, **look)
    middle = frame.left + (frame.wide + frame.gap) * frame.across / 2
    for k, line in enumerate(reversed(frame.titles[1])):
        place = middle / frame.size.width, (LINE * k + 5) / frame.height
        figure.text(*place, line, ha="center", **look)


def _facets(chart: Chart) -> list[str]:
    if chart.facet is None:
        return [""]
    return categories(chart, Axis(label="", column=chart.facet))


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
        axis.set_ticks(range(count), [""] * count)
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


def _named_ticks(panel: Panel, shown: Axis) -> dict[float, str]:
    """What stands at each tick of an axis."""
    if shown.scale == "category":
        return dict(enumerate(categories(panel.chart, shown)))
    axis = panel.ax.xaxis if shown is panel.chart.x else panel.ax.yaxis
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    places = [float(p) for p in axis.get_majorticklocs() if low - slack <= p <= high + slack]
    formatter = axis.get_major_formatter()
    return {place: formatter(place, None) for place in places}


def _y_names(panel: Panel) -> Names:
    size, found = panel.size, _named_ticks(panel, panel.chart.y)
    if panel.chart.y.scale != "category":
        return {place: [text] for place, text in found.items()}
    room = 0.0 if size.name == "thumb" else size.width * 0.38
    return {place: wrapped(text, FONT, room) for place, text in found.items() if room}


def _x_names(panel: Panel, wide: float) -> tuple[Names, bool]:
    """The names below the axis, and whether they are turned, as even wrapped they have no room."""
    found = _named_ticks(panel, panel.chart.x)
    names = {place: [text] for place, text in found.items()}
    if panel.chart.x.scale != "category":
        return names, False
    if panel.size.name == "thumb":
        return {}, False
    room = wide / len(found) - 2
    lines = {place: wrapped(text, FONT, room) for place, text in found.items()}
    fits = all(width(line, FONT) <= room for each in lines.values() for line in each)
    return (lines, False) if fits else (names, True)


def _tall(names: Names, *, turned: bool) -> float:
    if turned:
        return 0.65 * max(width(line, FONT) for each in names.values() for line in each) + 14
    return max((LINE * len(lines) for lines in names.values()), default=0.0) + 4


def _write_y(panel: Panel, names: Names) -> None:
    look = {"ha": "right", "va": "center_baseline", "fontsize": FONT}
    for place, lines in names.items():
        for k, line in enumerate(lines):
            up = ((len(lines) - 1) / 2 - k) * LINE
            panel.text(line, (0, place), (-6, up), xycoords=ALONG_Y, **look)


def _write_x(panel: Panel, names: Names, *, turned: bool) -> None:
    look: dict[str, Any] = {"fontsize": FONT, "xycoords": ALONG_X}
    if turned:
        look |= {"ha": "right", "va": "top", "rotation": 40, "rotation_mode": "anchor"}
    for place, lines in names.items():
        for k, line in enumerate(lines):
            panel.text(line, (place, 0), (0, -4 if turned else -LINE * (k + 1)), **look)


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
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    begins = [_mean(pool) for pool in pools for _ in pool]
    return [begin + i * LINE - place for i, (begin, place) in enumerate(zip(begins, wanted))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _name_end(panel: Panel, name: str, x: float, y: float, up: float) -> None:
    color = panel.looks[name].color
    leader = {"arrowstyle": "-", "linewidth": 0.8, "color": HEX["muted"], "relpos": (0, 0.5)}
    is_led = abs(up) > 3 or x < 0.96
    look: dict[str, Any] = {"arrowprops": {**leader, "shrinkA": 2, "shrinkB": 5}} if is_led else {}
    look |= {"ha": "left", "va": "center_baseline", "color": TEXT[color]}
    away = ((1 - x) * panel.wide + (18 if is_led else 9), up)
    panel.text(name, (x, y), away, xycoords="axes fraction", gid=panel.tag(name), **look)


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
