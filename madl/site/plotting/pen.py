"""What marks draw with: the axes and rows of one panel, where a cell goes, and what it says.

Every artist of a series carries a tag: `svg` turns it into attributes and titles, so the page's
script finds what belongs together.

Units: of the shown values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from madl.logbook import charts
from madl.logbook.charts import Axis, Chart, Mark
from madl.logbook.records import Row
from madl.logbook.stats import number
from madl.site.plotting.palette import Style


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """What an artist stands for: a series, and the titles of its points."""

    series: int
    titles: Sequence[str] = ()
    style: Style | None = None  # of markers; None: nothing is seen, only pointed at


@dataclass(frozen=True, slots=True)
class Point:
    """A cell's place on the axes, and its row."""

    x: float
    y: float
    row: Row


@dataclass(slots=True, kw_only=True)
class Pen:
    """One axes, the rows that it shows, and the notes on what was drawn."""

    ax: Axes
    chart: Chart
    rows: Sequence[Row]
    width: float  # of the axes, roughly
    styles: dict[str, Style]
    tags: dict[str, Tag]
    facet: str = ""
    wide: bool = True

    def tag(self, name: str, titles: Sequence[str] = (), style: Style | None = None) -> str:
        """A name for an artist."""
        gid = f"tag-{len(self.tags)}"
        names = list(self.styles)
        series = names.index(name) if name in names else len(names)
        self.tags[gid] = Tag(series=series, titles=titles, style=style)
        return gid

    @property
    def lies(self) -> bool:
        """Categories stand on the y axis, so values lie along x."""
        return self.chart.y.scale == "category" and self.chart.y.column is not None

    @property
    def value_axis(self) -> Axis:
        return self.chart.x if self.lies else self.chart.y

    @property
    def clips(self) -> bool:
        return (*self.chart.x.limits, *self.chart.y.limits) != (None,) * 4

    def place(self, cell: Any, axis: Axis) -> float | None:
        """Where a cell is on an axis; None: nowhere."""
        if cell is None:
            return None
        if axis.scale == "category":
            return float(categories(self.chart, axis).index(named(cell)))
        value = charts.plain(cell)
        if isinstance(value, str):
            return None
        shown = float(value) * axis.factor
        return None if axis.scale.startswith("log") and shown <= 0 else shown

    def points(self, mark: Mark, rows: Sequence[Row]) -> list[Point]:
        """The rows that have both places."""
        found: list[Point] = []
        across = mark.x or self.chart.x.column
        for row in rows:
            x = self.place(row.get(across), self.chart.x) if across else None
            y = self.place(row.get(mark.column or ""), self.chart.y)
            if x is not None and y is not None:
                found.append(Point(x, y, row))
        return found

    def inside(self, points: Sequence[Point]) -> list[Point]:
        """Those within the limits that the axes set: the others are cut off."""
        return [
            p
            for p in points
            if _within(p.x, self.chart.x.limits) and _within(p.y, self.chart.y.limits)
        ]

    def series(self, mark: Mark) -> dict[str, list[Row]]:
        """The rows of each series of a mark."""
        if mark.by is None:
            return {mark.label: list(self.rows)}
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.get(mark.by) is not None:
                found.setdefault(str(row[mark.by]), []).append(row)
        return found

    def title(self, name: str, where: Sequence[str], cell: Any, axis: Axis) -> str:
        """What a point says when pointed at."""
        parts = [part for part in (self.facet, name, *where) if part]
        return f"{', '.join(dict.fromkeys(parts))}: {said(cell, axis)}"


# ---- words and places ---------------------------------------------------------------------------


def categories(chart: Chart, axis: Axis) -> list[str]:
    """The places of a category axis: texts in the rows' order, numbers in their own."""
    assert axis.column is not None
    cells = [
        charts.plain(row[axis.column]) for row in chart.rows if row.get(axis.column) is not None
    ]
    if all(isinstance(cell, int | float) for cell in cells):
        cells = sorted(cells)
    return list(dict.fromkeys(named(cell) for cell in cells))


def named(cell: Any) -> str:
    """A cell as a category."""
    value = charts.plain(cell)
    return number(value) if isinstance(value, int | float) else str(value)


def said(cell: Any, axis: Axis) -> str:
    """A cell in a reader's units, with its interval."""
    value = charts.plain(cell)
    if isinstance(value, str) or value is None:
        return str(value or "–")
    text = axis.number(value) + (f" {axis.unit}" if axis.unit else "")
    ends = charts.interval_of(cell)
    return f"{text} [{axis.number(ends.low)}, {axis.number(ends.high)}]" if ends else text


def bare(cell: Any, axis: Axis) -> str:
    """A cell's number alone, as it is written into a drawing."""
    estimate = charts.estimated(cell)
    if estimate is not None and axis.factor == 1:
        return str(estimate).removesuffix(f" {estimate.unit}")
    value = charts.plain(cell)
    return str(value) if isinstance(value, str) else axis.number(value)


def ends_of(cell: Any, axis: Axis) -> tuple[float, float] | None:
    """A cell's interval on an axis; below nothing on a log axis, it ends at the value."""
    ends = charts.interval_of(cell)
    if ends is None:
        return None
    low, high = ends.low * axis.factor, ends.high * axis.factor
    if axis.scale.startswith("log") and low <= 0:
        low = float(charts.plain(cell)) * axis.factor
    return low, high


def _within(value: float, limits: tuple[float | None, float | None]) -> bool:
    low, high = limits
    return (low is None or value >= low) and (high is None or value <= high)
