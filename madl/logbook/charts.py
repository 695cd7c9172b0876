"""A chart is data: rows, two axes, and marks that name columns. Nothing here draws.

    Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"),
          marks=[line("PTQ"), line("QAT"), level(fp32, "FP32"), span(0, 10, "start-up")])

A row's cell is a number, a text, an `Estimate` or an `Arm`; the last two carry an interval, which
marks draw as a band or a bar. Rows are the CSV, the table and the alt text too, so a chart cannot
show what its data do not hold. A series has the same colour in every chart, by its name.

Units: cells hold what `records` hold (fractions, seconds, bytes); an axis says what they are shown
in. With `facet`, a column, each of its values has a small chart of its own, with common axes.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal, TypeGuard

from madl.errors import MadlError
from madl.logbook.arms import Arm, TimedArm
from madl.logbook.records import Row
from madl.logbook.values import Estimate, Interval, number

Scale = Literal["linear", "log2", "log10", "category"]
Kind = Literal["line", "points", "bars", "intervals", "cells", "level", "span"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An x or y axis. `column` holds the places along it; an axis of values has none: marks do."""

    label: str
    unit: str = ""
    column: str | None = None
    scale: Scale = "linear"
    factor: float = 1.0  # from a cell's value to the shown one
    limits: tuple[float | None, float | None] = (None, None)  # of the shown values

    @property
    def title(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def number(self, value: int | float) -> str:
        """A cell's number as text, times `factor`; an integer without a factor stays exact."""
        return number(value if self.factor == 1 else value * self.factor)


def linear(
    column: str | None = None, label: str = "", unit: str = "", *, factor: float = 1.0, **more: Any
) -> Axis:
    """A linear axis of the places in a column; without a column, of values."""
    return Axis(column=column, label=label or column or "", unit=unit, factor=factor, **more)


log = partial(linear, scale="log10")  # for times against sizes


def doubling(column: str | None, unit: str = "", *, label: str = "", **more: Any) -> Axis:
    """A base-2 axis, for widths, batches and lengths: a tick where there is a measurement."""
    return Axis(column=column, label=label or column or "", unit=unit, scale="log2", **more)


def category(column: str, label: str = "") -> Axis:
    """An axis with a place for each text of a column, in the rows' order."""
    return Axis(column=column, label=label or column, scale="category")


def percent(label: str, *, column: str | None = None, **more: Any) -> Axis:
    """An axis on which fractions are shown in per cent."""
    return Axis(label=label, unit="%", column=column, factor=100.0, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A part of a chart, such as a line: `column` holds its values, `label` names its series."""

    kind: Kind
    label: str
    column: str | None = None
    text: str | None = None  # column of a point's own label
    by: str | None = None  # column whose values split the points into series
    value: Any = None  # of a level
    low: float = 0.0  # of a span
    high: float = 0.0
    stacked: bool = False
    markers: bool = True  # of a line: a marker at each point
    like: str | None = None  # takes the colour of this series

    @property
    def columns(self) -> list[str]:
        """The names of all columns that the mark reads."""
        named = [self.column, self.text, self.by]
        return [name for name in named if name is not None]

    def names(self, rows: Sequence[Row]) -> list[str]:
        """The names of its series: its label, or each distinct value of the column `by`."""
        if self.by is None:
            return [self.label]
        return list(
            dict.fromkeys(str(row[self.by]) for row in rows if row.get(self.by) is not None)
        )


def line(column: str, label: str = "", *, markers: bool = True, like: str | None = None) -> Mark:
    """A line through a column, with a band where its cells have intervals."""
    return Mark(kind="line", label=label or column, column=column, markers=markers, like=like)


def points(column: str, *, text: str | None = None, by: str | None = None) -> Mark:
    """A point for each row, with a bar if its cell has an interval; `by` and `text` are columns."""
    return Mark(kind="points", label=column, column=column, text=text, by=by)


def bars(*columns: str, stacked: bool = False) -> list[Mark]:
    """A mark for each column, over a category axis: bars side by side, or stacked."""
    return [Mark(kind="bars", label=name, column=name, stacked=stacked) for name in columns]


def intervals(column: str, *, by: str | None = None) -> Mark:
    """A dot with a horizontal interval for each row: values along x, categories along y."""
    return Mark(kind="intervals", label=column, column=column, by=by)


def cells(column: str) -> Mark:
    """A heat map over two category axes: a shaded cell for each row, with its number if it fits."""
    return Mark(kind="cells", label=column, column=column)


def level(value: Any, label: str = "") -> Mark:
    """A horizontal reference line at a number, an Estimate or an Arm; these have a band, too."""
    named = label or (value.label if isinstance(value, Arm | TimedArm) else "")
    return Mark(kind="level", label=named, value=value)


def span(low: float, high: float, label: str) -> Mark:
    """A shaded range of the x axis."""
    return Mark(kind="span", label=label, low=low, high=high)


class NoRows(MadlError):
    """Error of a chart without rows: a fault if all records are there, else it is pending."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows, the axes and marks that show them, and the column that splits them into small charts.

    A series that `beside`, a chart of the same page, draws too looks as it does there.

    Raises:
        MadlError: no rows, a mark or axis of an unknown column, no column along which marks stand,
            or a level that is no number.
    """

    rows: Sequence[Row]
    _: KW_ONLY
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    facet: str | None = None
    beside: "Chart | None" = None

    def __post_init__(self) -> None:
        if not self.rows:
            raise NoRows("has no rows to draw")
        known = {column: None for row in self.rows for column in row}
        named = [self.x.column, self.y.column, self.facet]
        named += [column for mark in self.marks for column in mark.columns]
        for column in named:
            if column is not None and column not in known:
                raise MadlError(f"names an unknown column {column!r}; known: {', '.join(known)}")
        if self.place_axis.column is None and any(mark.column for mark in self.marks):
            name = "y" if self.is_horizontal else "x"
            raise MadlError(f"its {name} axis names no column, so no mark has a place")
        for mark in self.marks:
            if mark.kind == "level" and not _is_number(plain(mark.value)):
                raise MadlError(f"the level {mark.label!r} is no number: {mark.value!r}")

    @property
    def is_horizontal(self) -> bool:
        """Whether categories stand on the y axis, so that values run along x."""
        return self.y.scale == "category"

    @property
    def value_axis(self) -> Axis:
        return self.x if self.is_horizontal else self.y

    @property
    def place_axis(self) -> Axis:
        """The axis along which widths, formats or layers stand, not the values measured of them."""
        return self.y if self.is_horizontal else self.x

    def owners(self) -> dict[str, Mark]:
        """Name in the legend → the first mark of that name; heat maps have none."""
        marks: dict[str, Mark] = {}
        for mark in self.marks:
            if mark.kind != "cells":
                for name in mark.names(self.rows):
                    marks.setdefault(name, mark)
        return marks


def plain(cell: Any) -> Any:
    """A cell as a bare number or text: of an Estimate its value, of an arm its accuracy or time."""
    estimate = estimated(cell)
    return cell if estimate is None else estimate.plain[0]


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def each_of(cell: Any) -> list[float]:
    """The values of a cell's units, of an Estimate or an arm with several; else none."""
    estimate = estimated(cell)
    return [] if estimate is None else estimate.plain_each


def interval_of(cell: Any) -> Interval | None:
    """The interval of a cell that is an Estimate or an arm; None of any other."""
    estimate = estimated(cell)
    return None if estimate is None else estimate.plain[1]


def estimated(cell: Any) -> Estimate | None:
    """The Estimate of a cell: of an arm its accuracy or time; None of a number or text."""
    if isinstance(cell, Arm):
        return cell.accuracy
    if isinstance(cell, TimedArm):
        return cell.time
    return cell if isinstance(cell, Estimate) else None


def data_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as bare numbers and texts; intervals get two columns, "NAME low" and "NAME high"."""
    columns = {column: None for row in rows for column in row}
    carried = {c for c in columns for row in rows if interval_of(row.get(c)) is not None}
    flat_rows: list[dict[str, Any]] = []
    for row in rows:
        flat: dict[str, Any] = {}
        for column in columns:
            flat[column] = plain(row.get(column))
            if column in carried:
                low, high = interval_of(row.get(column)) or (None, None)
                flat |= {f"{column} low": low, f"{column} high": high}
        flat_rows.append(flat)
    return flat_rows


def drawn_share(name: str, estimate: Estimate) -> Row:
    """A share as a drawing's row has it, in per cent: under `name`, with its interval's `low` and
    `high`; without an interval all three are the share."""
    value, interval = estimate.plain
    low, high = interval or (value, value)
    return {key: round(100 * x, 2) for key, x in ((name, value), ("low", low), ("high", high))}


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV text; numbers of more than three decimals get five significant digits."""
    flat, text = data_rows(rows), io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _rounded(cell) for name, cell in row.items()} for row in flat)
    return text.getvalue()


def _rounded(cell: Any) -> Any:
    is_long = isinstance(cell, float) and len(str(cell).partition(".")[2]) > 3
    return f"{cell:.5g}" if is_long else cell


PER_NUMBER = ("%", "×")  # units that stand behind each number


def alt_text(chart: Chart, title: str = "") -> str:
    """The chart in words: title, axes, each series' first and last value, levels and spans."""
    y, x = (axis.label if axis.unit in PER_NUMBER else axis.title for axis in (chart.y, chart.x))
    axes = " against ".join(filter(None, (y, x)))
    parts = [title.removesuffix("."), axes]
    for mark in chart.marks:
        if mark.kind == "level":
            parts.append(f"{mark.label}: {shown(mark.value, chart.value_axis)}")
        elif mark.kind == "span":
            low, high = (shown(end, chart.x) for end in (mark.low, mark.high))
            parts.append(f"Shaded, {mark.label}: {low} to {high}")
        else:
            names = mark.names(chart.rows)
            parts += (_ends(chart, mark, name, small) for small in _facets(chart) for name in names)
    return " ".join(f"{part}." for part in parts if part)


def _facets(chart: Chart) -> list[Any]:
    """The values of the facet, in order; one None without it."""
    if chart.facet is None:
        return [None]
    return [*dict.fromkeys(row[chart.facet] for row in chart.rows if chart.facet in row)]


def _ends(chart: Chart, mark: Mark, name: str, facet: Any) -> str:
    """A series of a facet in words: its first and last value and their places; of a heat map, its
    range."""
    column = mark.column or ""
    rows = [row for row in chart.rows if chart.facet is None or row.get(chart.facet) == facet]
    rows = [row for row in rows if mark.by is None or str(row.get(mark.by)) == name]
    rows = [row for row in rows if plain(row.get(column)) is not None]
    if not rows:
        return ""
    if mark.kind == "cells":
        values = sorted(plain(row[column]) for row in rows)
        return f"{name}: {number(values[0])} to {number(values[-1])} in {len(rows)} cells"
    axis = chart.place_axis
    if (place := axis.column) is not None and axis.scale != "category":
        rows.sort(key=lambda row: plain(row.get(place)) or 0)
    ends = [rows[0], rows[-1]] if len(rows) > 1 else rows
    values = (f"{shown(row[column], chart.value_axis)}{_where(chart, row)}" for row in ends)
    named = name if facet is None else f"{facet}, {name}"
    return f"{named}: {' to '.join(values)}"


def _where(chart: Chart, row: Row) -> str:
    """The place of a row in words, " at 4"; empty if it has none."""
    place = row.get(chart.place_axis.column or "")
    return "" if place is None else f" at {shown(place, chart.place_axis)}"


def shown(cell: Any, axis: Axis) -> str:
    """A cell's value as text in the axis' unit, which is written only if it is % or ×."""
    value = plain(cell)
    if not _is_number(value):
        return str(value)
    text = axis.number(value)
    return f"{text} {axis.unit}" if axis.unit in PER_NUMBER else text
