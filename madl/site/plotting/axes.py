"""Scales, ticks and limits of an axis, with no more ticks than there is room for.

Source: DejaVu Sans' widths, which are above those of the fonts that pages use.
Units: sizes in points, of the drawing; values as shown.
"""

import math
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis as MatplotlibAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from madl.logbook import charts
from madl.logbook.charts import Axis
from madl.logbook.stats import superscript
from madl.site.plotting.pen import Pen, categories

FONT, SMALL = 10.0, 8.5
CHARACTER = 0.62  # of the font's size: how wide DejaVu's are, on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A width in which charts are drawn."""

    name: str
    width: float
    height: float
    ticks: int  # intervals between the ticks of a linear axis, at most
    columns: int  # of small multiples
    bare: bool = False  # marks alone: no texts, and nothing to point at

    @property
    def wide(self) -> bool:
        return self.name == "wide"


SIZES = (
    Size(name="wide", width=7.4, height=4.0, ticks=7, columns=4),
    Size(name="narrow", width=4.0, height=3.6, ticks=6, columns=2),
)
THUMBNAIL = Size(name="thumb", width=2.6, height=1.5, ticks=3, columns=1, bare=True)


def scale(ax: Axes, name: Literal["x", "y"], shown: Axis) -> None:
    """Sets the scale, before marks are drawn."""
    setter = ax.set_xscale if name == "x" else ax.set_yscale
    if shown.scale == "log2":
        setter("log", base=2)
    elif shown.scale == "log10":
        setter("log")


def finish(pen: Pen, shown: Axis, size: Size, length: float) -> None:
    """Ticks and limits, after the marks are drawn."""
    is_x = shown is pen.chart.x
    axis: MatplotlibAxis = pen.ax.xaxis if is_x else pen.ax.yaxis
    axis.set_minor_locator(NullLocator())
    if shown.scale == "category":
        _places(pen, axis, shown, size, length)
        return
    _limits(pen, shown, is_x=is_x)
    low, high = axis.get_view_interval()
    powers = shown.scale == "log10" and (low < 1e-4 or high > 2e6)
    axis.set_major_formatter(FuncFormatter(_power_at if powers else _tick_at))
    most = max(3, min(size.ticks, int(length / _room(shown, low, high, is_x=is_x))))
    if shown.scale == "log2" and is_x:
        axis.set_major_locator(FixedLocator(_doublings(pen, shown, length)))
    elif shown.scale == "log2":
        axis.set_major_locator(LogLocator(base=2, numticks=most + 2))
    elif shown.scale == "log10":
        few = math.log10(high / low) < 1.6
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=most))
    else:
        whole = _whole(pen, is_x=is_x)
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=whole))


def _room(shown: Axis, low: float, high: float, *, is_x: bool) -> float:
    """What a tick's number needs along its axis."""
    if not is_x:
        return 26.0
    whole = shown.scale == "log10" or high - low > 10
    longest = max(len(tick(round(edge) if whole and edge > 1 else edge)) for edge in (low, high))
    return max(40.0, (min(longest, 9) + 1.5) * CHARACTER * FONT)


def _tick_at(value: float, _position: int | None) -> str:
    return tick(value)


def _power_at(value: float, _position: int | None) -> str:
    return power(value)


def tick(value: float) -> str:
    """A number at an axis: thousands by comma, no offset, no exponent where a reader needs none."""
    size = abs(value)
    if 0 < size < 1e-4:
        return power(value)
    step, letter = (1e9, " G") if size >= 1e9 else (1e6, " M") if size >= 2e6 else (1.0, "")
    return f"{value / step:,.8g}{letter}".replace("-", "−")


def power(value: float) -> str:
    """A number as a power of ten, where an axis spans too many of them to write them out."""
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    raised = superscript(exponent)
    factor = value / 10**exponent
    return f"10{raised}" if abs(factor - 1) < 1e-6 else f"{factor:.3g}×10{raised}"


def _whole(pen: Pen, *, is_x: bool) -> bool:
    """All x values are whole numbers, so ticks between them would mean nothing."""
    column = pen.chart.x.column
    if not is_x or column is None:
        return False
    cells = [charts.plain(row.get(column)) for row in pen.chart.rows]
    return all(isinstance(cell, int) for cell in cells if cell is not None)


def _limits(pen: Pen, shown: Axis, *, is_x: bool) -> None:
    ax, (low, high) = pen.ax, shown.limits
    drawn = {mark.kind for mark in pen.chart.marks}
    if "bars" in drawn and shown is pen.value_axis and shown.scale == "linear" and low is None:
        bottom, top = ax.get_xlim() if is_x else ax.get_ylim()
        low = 0.0 if min(bottom, 0) > -0.2 * top and _lowest(pen, is_x=is_x) >= 0 else low
    if is_x:
        ax.set_xlim(low, high, auto=None)
    else:
        ax.set_ylim(low, high, auto=None)


def _lowest(pen: Pen, *, is_x: bool) -> float:
    box = pen.ax.dataLim
    return box.x0 if is_x else box.y0


def _doublings(pen: Pen, shown: Axis, length: float) -> list[float]:
    """A tick at every measurement that has room for its number: powers of two come first."""
    chart = pen.chart
    columns = {mark.x or shown.column for mark in chart.marks if mark.kind != "level"}
    places = {
        place
        for row in chart.rows
        for column in columns
        if column is not None and (place := pen.place(row.get(column), shown)) is not None
    }
    if not places:
        return []
    per_doubling = length / max(math.log2(max(places) / min(places)), 1.0)
    powers = sorted(filter(_is_power, places))
    chosen = powers
    for step in range(1, len(powers) + 1):
        chosen = powers[::step]
        if all(_apart(a, b, per_doubling) for a, b in pairwise(chosen)):
            break
    if len(chosen) == len(powers):  # every power has room: perhaps some between them, ends first
        for place in sorted(places, key=lambda p: (p not in (min(places), max(places)), p)):
            if all(_apart(place, other, per_doubling) for other in chosen):
                chosen = [*chosen, place]
    return sorted(chosen)


def _is_power(value: float) -> bool:
    return math.log2(value).is_integer()


def _apart(a: float, b: float, per_doubling: float) -> bool:
    room = (len(tick(a)) + len(tick(b))) / 2 * CHARACTER * FONT + 5
    return abs(math.log2(a / b)) * per_doubling >= room


def _places(pen: Pen, axis: MatplotlibAxis, shown: Axis, size: Size, length: float) -> None:
    """Names of a category axis: wrapped, and turned where even that leaves no room."""
    names = categories(pen.chart, shown)
    axis.grid(visible=False)
    if shown is pen.chart.y:
        pen.ax.set_ylim(len(names) - 0.5, -0.5)
        axis.set_ticks(range(len(names)), [wrapped(name, size) for name in names])
        return
    pen.ax.set_xlim(-0.5, len(names) - 0.5)
    fits = int(length / len(names) / CHARACTER / FONT)
    lines = [textwrap.wrap(name, max(fits, 1), break_long_words=False) for name in names]
    if all(len(line) <= fits for each in lines for line in each):
        axis.set_ticks(range(len(names)), ["\n".join(each) for each in lines])
        return
    axis.set_ticks(range(len(names)), names)
    for text in axis.get_ticklabels():
        text.set(rotation=40, ha="right", va="top", rotation_mode="anchor")


def wrapped(name: str, size: Size) -> str:
    """A category's name beside a y axis."""
    return textwrap.fill(name, 32 if size.wide else 15)
