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
from itertools import accumulate, cycle, pairwise
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from madl.logbook import charts, stats, values
from madl.logbook.charts import Chart, Mark
from madl.logbook.values import number
from madl.site.cache import digest, drawing_code_digest, memoized
from madl.site.plotting import layout, marks, palette, size
from madl.site.plotting.layout import Plot
from madl.site.plotting.palette import Look, variable
from madl.site.plotting.size import NARROW, THUMBNAIL, WIDE, Size

MODULES = (charts, stats, values, layout, marks, palette, size)  # that decide how a chart looks


def figure(
    chart: Chart,
    *,
    id: str,
    title: str = "",
    caption: str,
    data: str | None = None,
    cache: Path | None = None,
) -> str:
    """The chart as one HTML `figure`; read from the folder `cache` if nothing about it has changed.

    `title` is a sentence that the chart shows; without it, the figure has no heading. `data` is the
    address of its CSV.
    """
    texts = (id, title, caption, data)
    return memoized(cache, id, fingerprint(chart, *texts), lambda: _figure(chart, *texts))


def thumbnail(chart: Chart, *, id: str, cache: Path | None = None) -> str:
    """Marks and axes of the chart's first panel as a small SVG.

    It has no title: it stands beside words that say what it shows. Cached as a `figure` is.
    """
    key = fingerprint(chart, id)
    return memoized(cache, f"{id}-thumb", key, lambda: _thumbnail(chart, id))


def _figure(chart: Chart, id: str, title: str, caption: str, data: str | None) -> str:
    link = f' <a href="{escape(data)}" download="">Data (CSV)</a>' if data else ""
    wide, narrow = (layout.plot(chart, s, salt=f"{id}-{s.name}") for s in (WIDE, NARROW))
    parts = [
        f'<figure id="{escape(id)}" class="chart" data-search-exclude="">',
        f'<div class="title">{_line(title)}</div>' if title else "",
        _legend(chart, wide.direct, narrow.direct),
        f'<div class="view" role="img" aria-label="{_line(charts.alt_text(chart, title))}">',
        element(wide, WIDE),
        element(narrow, NARROW),
        "</div>",
        f"<figcaption>{_line(caption)}{link}</figcaption>",
        "</figure>",
    ]
    return "\n".join(filter(None, parts))


def _thumbnail(chart: Chart, id: str) -> str:
    if chart.facet is not None:
        first = next(cell for row in chart.rows if (cell := row.get(chart.facet)) is not None)
        rows = [row for row in chart.rows if row.get(chart.facet) == first]
        columns = {column for row in rows for column in row}
        drawn = [mark for mark in chart.marks if columns.issuperset(mark.columns)]
        chart = replace(chart, rows=rows, marks=drawn, facet=None)
    return element(layout.plot(chart, THUMBNAIL, salt=f"{id}-thumb"), THUMBNAIL)


def _line(text: str) -> str:
    """The text on one line, escaped for HTML."""
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


def minified(svg: str) -> str:
    """Matplotlib's SVG without what no page needs, coordinates to a tenth of a pixel."""
    for pattern in SUPERFLUOUS:
        svg = re.sub(pattern, "", svg, flags=re.DOTALL)
    places = r' (d|x|y|width|height|transform|viewBox)="([^"]*)"'
    svg = re.sub(places, lambda match: f' {match[1]}="{_rounded(match[2])}"', svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(
        r' style="[^"]*"', lambda style: style[0].replace(": ", ":").replace("; ", ";"), svg
    )
    svg = re.sub(r'<path [^>]*style="fill:none"/>', "", svg)  # the ground, which is the page's
    return re.sub(r">\s+<", "><", svg).replace("<g></g>", "")


def _rounded(numbers: str) -> str:
    """The text with every fraction in it rounded to one place."""
    short = re.sub(r"-?\d+\.\d+", lambda n: f"{round(float(n[0]), 1) + 0.0:g}", numbers)
    return " ".join(short.split())


def element(plot: Plot, size: Size) -> str:
    """The drawing as the text of an `svg` element, for the script that makes figures live.

    Each group has the index of its series (`data-s`). In the wide drawing points have a `title`;
    the narrow one has the same points in the same order, and phones have no pointer to rest on one.
    """
    root = ElementTree.fromstring(minified(plot.svg))
    for group in root.iter("g"):
        if group.get("id") in plot.tags:
            _annotate(group, *plot.tags[group.attrib.pop("id")], size)
    root.attrib = {"class": size.name, "viewBox": root.attrib["viewBox"], "aria-hidden": "true"}
    svg = palette.colored(ElementTree.tostring(root, encoding="unicode"))
    svg = svg.replace(" />", "/>").replace("<g/>", "")
    return re.sub(r"<g>(<(?:text|path) [^<]*(?:</text>|(?<=/)>))</g>", r"\1", svg)


def _annotate(group: Element, series: int, titles: Sequence[str], size: Size) -> None:
    """Give a group the number of its series, and its points a class and their titles.

    A style that all points share moves to the group.
    """
    if not size.is_thumbnail:
        group.set("data-s", str(series))
    if group.find(".//text") is not None:
        group.set("class", "name")
    shape, points = group.find("defs/path"), [*group.iter("use")]
    if shape is not None and len({use.get("style") for use in points}) == 1:
        style = f"{shape.attrib.pop('style', '')};{points[0].get('style', '')}"
        group.set("style", style.strip(";"))
        for use in points:
            use.attrib.pop("style", None)
    if size.is_thumbnail:
        return
    for point, title in zip(points or [*group.iter("path")], titles, strict=bool(titles)):
        point.set("class", "pt")
        if size is WIDE:
            SubElement(point, "title").text = title


def fingerprint(chart: Chart, *texts: str | None) -> str:
    """A digest of the chart, of these texts, and of the code that draws: a key of the cache."""
    parts = (chart.x, chart.y, *chart.marks)
    fields = [[getattr(part, name) for name in part.__slots__] for part in parts]  # type: ignore[attr-defined]
    content = [
        charts.data_rows(chart.rows),
        [[str(charts.estimated(cell)) for cell in row.values()] for row in chart.rows],
        [[charts.each_of(cell) for cell in row.values()] for row in chart.rows],
        [[(charts.plain(f), charts.interval_of(f)) for f in part] for part in fields],
        chart.facet,
        fingerprint(chart.beside) if chart.beside else None,
        texts,
        drawing_code_digest(__file__, *(str(module.__file__) for module in MODULES)),
    ]
    return digest(json.dumps(content, default=str))


# ---- the legend ---------------------------------------------------------------------------------


def legend_entries(chart: Chart, direct: set[str]) -> dict[str, Mark]:
    """The series that a legend names, with their marks: those that are not in `direct`, the series
    named in the drawing itself.

    There are none if the chart has a single series, as the axis' title names it.
    """
    owners = chart.owners()
    lines = [name for name, mark in owners.items() if mark.kind in ("level", "span")]
    named = {"", *direct, *(name for name in lines if owners[name].kind == "span")}
    entries = {name: mark for name, mark in owners.items() if name not in named}
    is_alone = len(owners) - len(lines) == 1 and entries.keys().isdisjoint(lines)
    return {} if is_alone else entries


def _legend(chart: Chart, wide: set[str], narrow: set[str]) -> str:
    """The legend as an HTML list, with the scale of a heat map; "" if nothing has to be named.

    `wide` and `narrow` are the series that the drawing of that width names itself. A wide drawing
    has no legend if it names all of them, and else a whole one: a single name looks like an error.
    """
    looks, series, entries = palette.looks(chart), [*chart.owners()], list[str]()
    shown = legend_entries(chart, narrow)
    direct = "" if legend_entries(chart, wide) else ' class="direct"'
    for name, mark in shown.items():
        swatch = f"{_swatch(mark, looks[name])}{escape(name)}"
        entries.append(f'<li data-s="{series.index(name)}"{direct}>{swatch}</li>')
    for mark in chart.marks:
        if mark.kind == "cells":
            low, high = (number(end) for end in marks.scale_of(chart, mark))
            entries.append(f'<li class="shades">{escape(mark.label)}: {low} <i></i> {high}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _swatch(mark: Mark, look: Look) -> str:
    """A sample of a series' look, for the legend: its line, its marker, or both."""
    is_line = mark.kind in ("line", "level")
    kinds, style = "line" if is_line else "", f"color:{variable(look.color)}"
    if is_line and look.dash:
        kinds, style = "line dashed", f"{style};--dashes:{_dashes(look)}"
    glyph = look.glyph if not is_line or (mark.kind == "line" and mark.markers) else ""
    return f'<i class="{kinds}" style="{style}">{glyph}</i>'


THICK = 2  # pixels, of a line in the legend (charts.css)


def _dashes(look: Look) -> str:
    """A look's dashes as the stops of a repeated gradient: ink, gap, ink, gap."""
    ends = [f"{THICK * end:g}px" for end in accumulate(look.dash, initial=0.0)]
    inks = cycle(("currentColor", "transparent"))
    return ",".join(f"{ink} {low} {high}" for ink, (low, high) in zip(inks, pairwise(ends)))
