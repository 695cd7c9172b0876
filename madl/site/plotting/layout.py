"""Lays a chart out on Matplotlib axes, for one width, and gives what Matplotlib writes as SVG.

Layout is computed with DejaVu Sans, which is wider than the fonts that pages use, so what fits here
fits there; every text is anchored at the point that it belongs to, so a narrower font shifts none.

Units: inches for sizes, points for everything inside.
"""

import io
import math
import re
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from madl.logbook.charts import Chart
from madl.site.plotting import axes, labels, marks
from madl.site.plotting.axes import CHARACTER, FONT, SMALL, Size
from madl.site.plotting.palette import HEX, styles
from madl.site.plotting.pen import Pen, Tag, categories, named

HOUSE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "madl",
    "figure.dpi": 72,
    "font.size": FONT,
    "text.parse_math": False,
    "text.color": HEX["ink"],
    "axes.labelcolor": HEX["ink"],
    "axes.labelsize": FONT,
    "axes.edgecolor": HEX["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": FONT,
    "axes.xmargin": 0.03,
    "axes.ymargin": 0.06,
    "figure.facecolor": "none",
    "figure.titlesize": FONT,
    "grid.color": HEX["grid"],
    "xtick.labelcolor": HEX["ink"],
    "ytick.labelcolor": HEX["ink"],
    "xtick.bottom": False,
    "ytick.left": False,
    "xtick.minor.bottom": False,
    "ytick.minor.left": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Matplotlib's SVG, and what its tagged groups are."""

    svg: str
    tags: dict[str, Tag]


def plot(chart: Chart, size: Size) -> Plot:
    """Draws a chart in one width."""
    with _house_style():
        names = _facets(chart)
        figure, grid = _figure(chart, size, len(names))
        tags: dict[str, Tag] = {}
        pens: list[Pen] = []
        for name, ax in zip(names, grid):
            pens.append(_draw(chart, size, ax, name, tags, across=_across(size, len(names))))
        late: list[Annotation] = []
        if size.bare:
            _strip(grid)
        else:
            _titles(chart, figure, grid, size, len(names))
            late = [note for pen in pens for note in labels.references(pen)]
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        labels.spread(late)
        for pen in pens if not size.bare else ():
            labels.name_points(pen, late)
        labels.anchor_lines(figure)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    return Plot(svg=text.getvalue(), tags=tags)


def _strip(grid: Sequence[Axes]) -> None:
    """Leaves what is drawn, without the texts around it."""
    for ax in grid:
        ax.tick_params(labelbottom=False, labelleft=False)
        ax.set_title("", loc="left")


@contextmanager
def _house_style() -> Generator[None]:
    """Matplotlib's defaults and ours, whatever the reader's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(HOUSE)  # type: ignore[arg-type]
        yield


def _facets(chart: Chart) -> list[str]:
    if chart.facet is None:
        return [""]
    cells = [row.get(chart.facet) for row in chart.rows]
    return list(dict.fromkeys(named(cell) for cell in cells if cell is not None))


def _across(size: Size, panels: int) -> int:
    """Panels in a row: three where that leaves no gap that four would."""
    most = 3 if size.wide and panels in (3, 5, 6, 9) else size.columns
    return min(panels, most)


def _figure(chart: Chart, size: Size, panels: int) -> tuple[Figure, list[Axes]]:
    across = _across(size, panels)
    down = math.ceil(panels / across)
    figure = Figure((size.width, _height(chart, size, down)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.05, h_pad=0.04, wspace=0.04, hspace=0.03)  # type: ignore[union-attr]
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    every: list[Axes] = list(grid.flat)
    is_map = any(mark.kind == "cells" for mark in chart.marks)  # read cell by cell, below its own
    for i, ax in enumerate(every):
        ax.set_visible(i < panels)
        ax.tick_params(labelbottom=is_map or i + across >= panels, labelleft=i % across == 0)
    return figure, every[:panels]


def _height(chart: Chart, size: Size, down: int) -> float:
    if size.bare:
        return size.height
    kinds = {mark.kind for mark in chart.marks}
    if chart.y.scale == "category":
        names = categories(chart, chart.y) if chart.y.column else [""] * 8
        lines = max(len(axes.wrapped(name, size).splitlines()) for name in names)
        many = len({m.label for m in chart.marks if m.kind in ("bars", "intervals")})
        stacked = any(mark.stacked for mark in chart.marks)
        step = 0.34 if "cells" in kinds or stacked or many < 2 else 0.2 * many + 0.1
        one = max(1.1, len(names) * max(step, 0.17 * lines + 0.08) + 0.4)
        return one * down + 0.6
    if down == 1:
        return size.height if chart.facet is None else min(size.height, 3.0)
    return (1.75 if size.wide else 1.6) * down + 0.5


def _draw(
    chart: Chart, size: Size, ax: Axes, facet: str, tags: dict[str, Tag], *, across: int
) -> Pen:
    rows = [r for r in chart.rows if not chart.facet or named(r.get(chart.facet)) == facet]
    pen = Pen(
        ax=ax,
        chart=chart,
        rows=rows,
        width=72 * (size.width - 0.7) / across,
        styles=styles(chart),
        tags=tags,
        facet=facet,
        wide=size.wide,
    )
    axes.scale(ax, "x", chart.x)
    axes.scale(ax, "y", chart.y)
    marks.draw(pen)
    axes.finish(pen, chart.x, size, pen.width)
    axes.finish(pen, chart.y, size, 72 * size.height * 0.75)
    if facet:
        above = any(mark.kind == "span" and mark.label for mark in chart.marks)
        pad = 3 + (SMALL + 4 if above else 0)  # the names of spans stand between it and the panel
        ax.set_title(_two_lines(facet, pen.width), loc="left", fontsize=9, pad=pad)
    if any(mark.kind == "cells" for mark in chart.marks):
        ax.spines[:].set_visible(False)
    return pen


def _two_lines(name: str, width: float) -> str:
    """The name on at most two lines, broken after a blank, dot, dash or slash, else shortened."""
    fits = int(width / CHARACTER / 9)
    lines = [""]
    for part in re.findall(r"[^\s./_-]*[\s./_-]?", name):
        if len(lines[-1]) + len(part.rstrip()) > fits and lines[-1]:
            lines.append("")
        lines[-1] += part
    whole = [line.strip() for line in lines]
    if len(whole) > 2:
        whole = [whole[0], "…" + name[1 - fits :]]
    return "\n".join(line if len(line) <= fits else f"{line[: fits - 1]}…" for line in whole)


def _titles(chart: Chart, figure: Figure, grid: Sequence[Axes], size: Size, panels: int) -> None:
    """What the axes show: the vertical one's title lies at the top, where it can be read."""
    if chart.y.title:
        figure.suptitle(_fitted(chart.y.title, size), x=0.003, ha="left", fontsize=FONT)
    if panels > 1:
        figure.supxlabel(_fitted(chart.x.title, size), fontsize=FONT)
    else:
        grid[0].set_xlabel(_fitted(chart.x.title, size))


def _fitted(text: str, size: Size) -> str:
    return textwrap.fill(text, int(72 * size.width / FONT / CHARACTER) - 2)
