"""A chart as HTML that stands inside a page: title, legend, drawing in two widths, caption, data.

Matplotlib draws; its SVG takes its colours from CSS variables and says what each point is. So the
palette button, print and the reader's own fonts just work, text can be selected, and without a
script the figure is complete; `charts.js` adds to it.

Invariants: the same chart gives the same bytes; ids are the figure's own; a block has no blank line
and no line that Markdown would take for code.
Units: pixels of the drawing's own size, which CSS scales.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from madl.logbook import charts, stats, values
from madl.logbook.charts import Axis, Chart, Mark
from madl.logbook.stats import number
from madl.site.keeping import digest, digest_of_drawing, kept
from madl.site.plotting import layout, marks, palette, size
from madl.site.plotting.layout import Plot
from madl.site.plotting.palette import Look, variable
from madl.site.plotting.size import NARROW, OPENING, THUMBNAIL, WIDE, Size

SOURCES = (charts, stats, values, layout, marks, palette, size)


def figure(
    chart: Chart,
    *,
    id: str,
    title: str = "",
    caption: str,
    data: str | None = None,
    cache: Path | None = None,
) -> str:
    """The chart as one block of HTML; kept in the folder `cache` while nothing about it changes.

    The title is what the chart shows, as a sentence; without one, the figure has no heading.
    """
    words = (id, title, caption, data)
    name = f"{id}-{fingerprint(chart, *words)[:24]}.html"
    return kept(cache, name, lambda: _figure(chart, *words))


def thumbnail(chart: Chart, *, id: str, cache: Path | None = None, large: bool = False) -> str:
    """Marks and axes of the first panel, as an ornament beside the words that say it; a large one
    has its legend."""
    key = fingerprint(chart, id, str(large))
    return kept(cache, f"{id}-thumb-{key[:24]}.html", lambda: _thumbnail(chart, id, large))


def _figure(chart: Chart, id: str, title: str, caption: str, data: str | None) -> str:
    link = f' <a href="{escape(data)}" download="">Data (CSV)</a>' if data else ""
    plots = [layout.plot(chart, one, salt=f"{id}-{one.name}") for one in (WIDE, NARROW)]
    parts = [
        f'<figure id="{escape(id)}" class="chart" data-search-exclude="">',
        f'<div class="title">{_line(title)}</div>' if title else "",
        _legend(chart, plots[0].direct, plots[1].direct),
        f'<div class="view" role="img" aria-label="{_line(charts.alt_text(chart, title))}">',
        *(inline(plot, one) for plot, one in zip(plots, (WIDE, NARROW))),
        "</div>",
        f"<figcaption>{_line(caption)}{link}</figcaption>",
        "</figure>",
    ]
    return "\n".join(part for part in parts if part)


def _thumbnail(chart: Chart, id: str, large: bool) -> str:
    if chart.facet is not None:
        cells = [row.get(chart.facet) for row in chart.rows]
        first = next(cell for cell in cells if cell is not None)
        rows = [row for row, cell in zip(chart.rows, cells) if cell == first]
        known = {column for row in rows for column in row}
        drawn = [mark for mark in chart.marks if known.issuperset(mark.columns)]
        chart = replace(chart, rows=rows, marks=drawn, facet=None)
    shown = OPENING if large else THUMBNAIL
    drawn = inline(layout.plot(chart, shown, salt=f"{id}-thumb"), shown)
    return f"{_legend(chart, set(), set())}{drawn}" if large else drawn


def _line(text: str) -> str:
    return escape(" ".join(text.split()))


# ---- Matplotlib's SVG, to stand in a page -------------------------------------------------------

SUPERFLUOUS = (
    r"^.*?(?=<svg)",
    r"<!--.*?-->",
    r"<metadata>.*?</metadata>",
    r"<style.*?</style>",
    r' id="(?!tag-)[\w.]+_\d+"',
    r" font-family: [^;\"]*;",
    r' transform="rotate\(-?0 [^"]*"',
    r' xmlns(?::xlink)?="[^"]*"',
    r"<defs>\s*</defs>",
)


def bared(svg: str) -> str:
    """A drawing of Matplotlib without what no page needs, coordinates to a tenth of a pixel."""
    for pattern in SUPERFLUOUS:
        svg = re.sub(pattern, "", svg, flags=re.DOTALL)
    places = r' (d|x|y|width|height|transform|viewBox)="([^"]*)"'
    svg = re.sub(places, lambda at: f' {at[1]}="{_rounded(at[2])}"', svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(
        r' style="[^"]*"', lambda style: style[0].replace(": ", ":").replace("; ", ";"), svg
    )
    return re.sub(r">\s+<", "><", svg).replace("<g></g>", "")


def _rounded(numbers: str) -> str:
    short = re.sub(r"-?\d+\.\d+", lambda n: f"{round(float(n[0]), 1) + 0.0:g}", numbers)
    return " ".join(short.split())


def inline(plot: Plot, size: Size) -> str:
    """The drawing as an `svg` element: its series have numbers, its points titles.

    Titles stand in the wide drawing only: the narrow one has the same points in the same order,
    which is enough for the script, and phones have no pointer that could rest on one.
    """
    root = ElementTree.fromstring(bared(plot.svg))
    for group in root.iter("g"):
        if group.get("id") in plot.tags:
            _tagged(group, *plot.tags[group.attrib.pop("id")], size)
    root.attrib = {"class": size.name, "viewBox": root.attrib["viewBox"], "aria-hidden": "true"}
    svg = palette.colored(ElementTree.tostring(root, encoding="unicode"))
    svg = svg.replace(" />", "/>").replace("<g/>", "")
    return re.sub(r"<g>(<(?:text|path) [^<]*(?:</text>|(?<=/)>))</g>", r"\1", svg)


def _tagged(group: Element, series: int, titles: Sequence[str], size: Size) -> None:
    if size.name != "thumb":
        group.set("data-s", str(series))
    if group.find(".//text") is not None:
        group.set("class", "name")
    shape, drawn = group.find("defs/path"), [*group.iter("use")]
    if shape is not None and len({use.get("style") for use in drawn}) == 1:  # said once for all
        group.set(
            "style", f"{shape.attrib.pop('style', '')};{drawn[0].get('style', '')}".strip(";")
        )
        for use in drawn:
            use.attrib.pop("style", None)
    drawn = drawn or [*group.iter("path")]
    if size.name == "thumb":
        return
    for one, title in zip(drawn, titles, strict=bool(titles)):
        one.set("class", "pt")
        if size is WIDE:
            SubElement(one, "title").text = title


# ---- what makes a figure another one ------------------------------------------------------------


def fingerprint(chart: Chart, *more: str | None) -> str:
    """A digest of all that a drawing of the chart is made of, and of these words."""
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


def unnamed(chart: Chart, direct: set[str]) -> dict[str, Mark]:
    """The series that the drawing does not name, which a legend does; none where there is but one,
    whose name its axis is."""
    owners = chart.owners()
    alone = sum(mark.kind not in ("level", "span") for mark in owners.values()) == 1
    if alone and len(owners) == 1 + len(direct):
        return {}
    named = {"", *direct, *(name for name, mark in owners.items() if mark.kind == "span")}
    return {name: mark for name, mark in owners.items() if name not in named}


def _legend(chart: Chart, wide: set[str], narrow: set[str]) -> str:
    """Every series that is not named in the drawing; the scale of cells."""
    looks, places, entries = palette.looks(chart), [*chart.owners()], list[str]()
    for name, mark in unnamed(chart, narrow).items():
        direct = ' class="direct"' if name in wide else ""
        series, swatch = places.index(name), _swatch(mark, looks[name])
        entries.append(f'<li data-s="{series}"{direct}>{swatch}{escape(name)}</li>')
    for mark in chart.marks:
        if mark.kind == "cells":
            low, high = (number(end) for end in marks.scale_of(chart, mark))
            entries.append(f'<li class="shades">{escape(mark.label)}: {low} <i></i> {high}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _swatch(mark: Mark, look: Look) -> str:
    runs = mark.kind in ("line", "level")
    kinds = ["line"] * runs + ["dashed"] * bool(runs and look.dash)
    sign = look.glyph if not runs or (mark.kind == "line" and mark.markers) else ""
    sign = replace(look, marker="s").glyph if mark.kind == "bars" else sign
    return f'<i class="{" ".join(kinds)}" style="color:{variable(look.color)}">{sign}</i>'
