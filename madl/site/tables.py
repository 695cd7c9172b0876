"""Rows as Markdown tables."""

import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from madl.logbook.charts import Axis, Chart, estimated
from madl.logbook.records import Row
from madl.logbook.values import Estimate, Unit, number
from madl.running.views import NOT_RUN
from madl.site.markup import html, inline


def markdown(rows: Sequence[Row], chart: Chart | None = None) -> str:
    """Rows as a Markdown table: numbers and estimates to the right, "not run here" for None.

    Columns that `chart` draws have the units of its values' axis.
    """
    columns = list({column: None for row in rows for column in row})
    numeric = {c: _are_numbers([row.get(c, "") for row in rows]) for c in columns}
    drawn = {mark.column for mark in chart.marks} if chart else set[str | None]()
    axis = chart and chart.value_axis
    lines = [
        "| " + " | ".join(inline(c) for c in columns) + " |",
        "| " + " | ".join("--:" if numeric[c] else ":--" for c in columns) + " |",
    ]
    for row in rows:
        cells = (_cell(row.get(c, ""), axis if c in drawn else None) for c in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _are_numbers(cells: Sequence[Any]) -> bool:
    """Whether a column has numbers or estimates alone, and one at least; some may be missing."""
    known = [
        cell for cell in cells if cell is not None and not (isinstance(cell, str) and not cell)
    ]
    return bool(known) and all(
        isinstance(c, int | float) or isinstance(estimated(c), Estimate) for c in known
    )


def _cell(value: Any, axis: Axis | None = None) -> str:
    """A cell as text: an estimate with its interval, an address as a link, None as such words."""
    estimate = estimated(value)
    if isinstance(estimate, Estimate):
        text = f"{estimate:{'+i' if estimate.unit is Unit.POINTS else 'i'}}"
        return re.sub(r"\[.*?\]", r'<small class="whole">\g<0></small>', text)
    if value is None:
        return NOT_RUN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return axis.number(value) if axis else number(value)
    if re.fullmatch(r"https://[\w./-]+", text := str(value)):
        return html('<a href="{}">{}</a>', text, text.removeprefix("https://github.com/"))
    return "<br>".join(_with_whole_names(inline(line)) for line in text.split("<br>"))


def _with_whole_names(text: Markup) -> str:
    """The text of a cell, in which names such as ResNet-18 and short code are not broken."""
    if "<" in text:
        return re.sub(r"<code>(?=[^<]{1,24}</code>)", '<code class="whole">', str(text))
    return re.sub(r"\b[A-Za-z]\w*-\w*\d\w*", r'<span class="whole">\g<0></span>', str(text))
