"""A chart as HTML that stands inside a page: legend, drawing in two widths, caption, link to data.

Matplotlib draws; here its SVG becomes small, takes its colours from CSS variables, and says what
each point is. So the palette button, print and the reader's own fonts just work, text can be
selected, and without a script the figure is complete; `charts.js` adds to it.

Invariants: the same chart gives the same bytes; ids are the figure's own; a block has no
blank line and no line that Markdown would take for code.
Units: coordinates are points of the drawing's own size, which CSS scales.
"""

import json
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from madl.logbook import charts, stats
from madl.logbook.charts import Axis, Chart, Mark
from madl.site.keeping import digest, digest_of_drawing, kept
from madl.site.plotting import axes, labels, layout, marks, palette, pen, shrink
from madl.site.plotting.axes import SIZES, THUMBNAIL, Size
from madl.site.plotting.palette import MARKERS, Style, filled, variable

SOURCES = (charts, stats, axes, labels, layout, marks, palette, pen, shrink)


def figure(
    chart: Chart, *, id: str, caption: str, data: str | None = None, cache: Path | None = None
) -> str:
    """The chart as one block of HTML; kept in the folder `cache` while nothing about it changes."""
    key = _fingerprint(chart, id, caption, data)
    return kept(cache, f"{id}-{key[:24]}.html", lambda: _figure(chart, id, caption, data))


def thumbnail(chart: Chart, *, id: str, cache: Path | None = None) -> str:
    """The marks alone, of the first panel, as an ornament beside the words that say it."""
    key = _fingerprint(chart, id)
    return kept(cache, f"{id}-thumb-{key[:24]}.html", lambda: _thumbnail(chart, id))


def _prefix(id: str, size: Size) -> str:
    """What ids within a drawing begin with: short, for a drawing refers to them at every point."""
    return f"{size.name[0]}{digest(id)[:5]}"


def _drawn(chart: Chart, id: str, size: Size) -> str:
    return shrink.shrunk(layout.plot(chart, size), prefix=_prefix(id, size), size=size)


def _figure(chart: Chart, id: str, caption: str, data: str | None) -> str:
    link = f' <a href="{escape(data)}" download="">Data (CSV)</a>' if data else ""
    parts = [
        f'<figure id="{escape(id)}" class="chart" data-search-exclude="">',
        _legend(chart),
        f'<div class="view" role="img" aria-label="{_line(charts.alt_text(chart))}">',
        *(_drawn(chart, id, size) for size in SIZES),
        "</div>",
        f"<figcaption>{_line(caption)}{link}</figcaption>",
        "</figure>",
    ]
    return "\n".join(part for part in parts if part)


def _thumbnail(chart: Chart, id: str) -> str:
    if chart.facet is not None:
        cells = [row.get(chart.facet) for row in chart.rows]
        first = next(cell for cell in cells if cell is not None)
        rows = [row for row, cell in zip(chart.rows, cells) if cell == first]
        chart = replace(chart, rows=rows, facet=None)
    return _drawn(chart, f"{id}-thumb", THUMBNAIL)


def _line(text: str) -> str:
    return escape(" ".join(text.split()))


# ---- what makes a figure another one ------------------------------------------------------------


def _fingerprint(chart: Chart, *more: str | None) -> str:
    said = [
        charts.data_rows(chart.rows),
        [[str(charts.estimated(cell)) for cell in row.values()] for row in chart.rows],
        [_plainly(axis) for axis in (chart.x, chart.y)],
        [_plainly(mark) for mark in chart.marks],
        chart.facet,
        more,
        digest_of_drawing(__file__, *(str(module.__file__) for module in SOURCES)),
    ]
    return digest(json.dumps(said, default=str))


def _plainly(thing: Axis | Mark) -> list[Any]:
    cells = [getattr(thing, name) for name in thing.__slots__]  # type: ignore[attr-defined]
    return [(charts.plain(cell), charts.interval_of(cell)) for cell in cells]


# ---- the legend ---------------------------------------------------------------------------------


def _legend(chart: Chart) -> str:
    owners = {name: _owner(chart, name) for name in chart.series()}
    looks = palette.styles(chart)
    entries = [
        f'<li data-s="{i}"{_direct(chart, mark)}>{_swatch(mark, looks[name])}{escape(name)}</li>'
        for i, (name, mark) in enumerate(owners.items())
        if name and mark.kind != "span"
    ]
    return f'<ul class="legend">{"".join(entries)}</ul>' if len(entries) > 1 else ""


def _owner(chart: Chart, name: str) -> Mark:
    return next((m for m in chart.marks if m.by is None and m.label == name), None) or next(
        m for m in chart.marks if m.by is not None
    )


def _direct(chart: Chart, mark: Mark) -> str:
    is_direct = mark.kind == "level" and labels.is_direct(chart, mark.label)
    return ' class="direct"' if is_direct else ""


def _swatch(mark: Mark, style: Style) -> str:
    color = variable(style.color)
    parts: list[str] = []
    runs = mark.kind in ("line", "level")
    if mark.kind == "bars":
        parts.append(f'<path d="M0 1h12v10H0z" style="{filled(style)}"/>')
    if runs:
        dash = f' stroke-dasharray="{_dashes(style)}"' if style.dash else ""
        parts.append(f'<path d="M1 6h26" style="stroke:{color};stroke-width:1.8"{dash}/>')
    if mark.kind in ("points", "intervals") or (mark.kind == "line" and mark.markers):
        place = f'transform="translate({14 if runs else 6} 6)"'
        parts.append(f'<path d="{MARKERS[style.marker or "o"]}" {place} style="{filled(style)}"/>')
    width = 28 if runs else 12
    return (
        f'<svg class="swatch" viewBox="0 0 {width} 12" width="{width}" height="12" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


def _dashes(style: Style) -> str:
    return " ".join(f"{1.8 * length:g}" for length in style.dash)
