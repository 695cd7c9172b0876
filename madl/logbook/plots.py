"""House style of the figures: one look, one colour for one thing, four renderings of each.

Every figure is drawn light and dark, wide and narrow (for a phone), as deterministic SVG, with its
rows as CSV beside it. Colours are Okabe and Ito's, which colour-blind readers can tell apart; each
role also has its own marker and line style.

Source: Okabe & Ito 2008, "Color universal design".
Units: sizes in inches, as Matplotlib wants them.
"""

import csv
import hashlib
import io
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from madl.logbook.experiment import Drawing, Figure, Row
from madl.logbook.results import write_atomically

THEMES = ("light", "dark")
SIZES = {"wide": (7.4, 4.0), "narrow": (4.0, 3.6)}

_INK = {"light": "#1f2430", "dark": "#e4e7ef"}
_MUTED = {"light": "#6b7280", "dark": "#9aa3b5"}
_GRID = {"light": "#e5e7eb", "dark": "#363b4a"}


@dataclass(frozen=True, slots=True)
class Role:
    """How one thing looks on every page."""

    label: str
    light: str
    dark: str
    marker: str = "o"
    line: str = "-"


ROLES = {
    "fp32": Role("FP32", "#1f2430", "#e4e7ef", "", "--"),
    "control": Role("FP32 + same training", "#00795a", "#2fc79a", "D", "-."),
    "ptq": Role("PTQ", "#0072b2", "#56b4e9", "o", "-"),
    "qat": Role("QAT", "#d55e00", "#ff9a52", "s", "-"),
    "chance": Role("chance", "#6b7280", "#9aa3b5", "", ":"),
    "reference": Role("reported by others", "#cc79a7", "#e2a3c4", "", "-"),
    "first": Role("", "#0072b2", "#56b4e9", "o", "-"),
    "second": Role("", "#d55e00", "#ff9a52", "s", "--"),
    "third": Role("", "#00795a", "#2fc79a", "D", "-."),
    "fourth": Role("", "#aa4a8d", "#e2a3c4", "^", ":"),
}

_theme: ContextVar[str] = ContextVar("theme", default="light")


def color(role: str) -> str:
    """The role's colour in the theme being drawn."""
    return getattr(ROLES[role], _theme.get())


def line(role: str, **more: Any) -> dict[str, Any]:
    """Keyword arguments that draw a line as that role."""
    look = ROLES[role]
    style = {"color": color(role), "marker": look.marker, "linestyle": look.line}
    return {**style, "label": look.label, "markersize": 5, "linewidth": 1.8, **more}


def curve(
    ax: Axes, rows: Sequence[Row], x: str, y: str, role: str, *, label: str | None = None
) -> None:
    """A line through `y`, where measured, and its band from `{y} low` and `{y} high`."""
    rows = [row for row in rows if row.get(y) is not None]
    if not rows:
        return
    xs, ys = [row[x] for row in rows], [row[y] for row in rows]
    ax.plot(xs, ys, **line(role, **({"label": label} if label else {})))  # type: ignore[arg-type]
    lows, highs = [row.get(f"{y} low") for row in rows], [row.get(f"{y} high") for row in rows]
    if None not in lows and None not in highs:
        ax.fill_between(xs, lows, highs, color=color(role), alpha=0.16, linewidth=0)  # type: ignore[arg-type]


def level(ax: Axes, y: float, role: str, *, label: str | None = None) -> None:
    """A horizontal reference line, named in the legend."""
    look = ROLES[role]
    ax.axhline(
        y,
        color=color(role),
        linestyle=look.line,
        linewidth=1.4,
        label=label or look.label,
        zorder=1,
    )


def percent_axis(ax: Axes, label: str) -> None:
    """A y axis in per cent for values that are fractions."""
    ax.yaxis.set_major_formatter(FuncFormatter(_as_percent))
    ax.set_ylabel(f"{label} (%)")


def _as_percent(value: float, _position: int) -> str:
    return f"{100 * value:g}"


def doubling_axis(ax: Axes, ticks: Sequence[float], label: str) -> None:
    """A log-2 x axis with a tick where there is a measurement and room for its number."""
    ax.set_xscale("log", base=2)
    shown: list[float] = []
    for tick in sorted(ticks):
        if not shown or tick / shown[-1] >= 1.19:
            shown.append(tick)
    ax.set_xticks(shown, [f"{tick:g}" for tick in shown])
    ax.minorticks_off()
    ax.set_xlabel(label)


def legend(ax: Axes) -> None:
    """The legend above the axes, where no curve runs into it, in as many columns as fit."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    handles, labels = ax.get_legend_handles_labels()
    for columns in range(len(handles), 0, -1):
        made = figure.legend(handles, labels, loc="outside upper left", ncols=columns)
        if made.get_window_extent().width < 0.98 * figure.bbox.width:
            return
        made.remove()


@contextmanager
def _style(theme: str) -> Generator[None]:
    token = _theme.set(theme)
    ink, muted, grid = _INK[theme], _MUTED[theme], _GRID[theme]
    rc = {
        "svg.hashsalt": "madl",
        "font.size": 11,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": muted,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "grid.color": grid,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.fontsize": 10,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.4,
        "figure.constrained_layout.use": True,
    }
    try:
        with matplotlib.rc_context(rc):  # type: ignore[arg-type]
            yield
    finally:
        _theme.reset(token)


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV, full precision."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def svg(figure: Figure, rows: Sequence[Row], *, theme: str, size: str) -> str:
    """One rendering, the same bytes every time."""
    with _style(theme):
        drawing, ax = plt.subplots(figsize=SIZES[size])
        try:
            figure.draw(ax, rows)
            text = io.StringIO()
            drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            plt.close(drawing)
    return text.getvalue()


def write(figure: Figure | Drawing, rows: Sequence[Row], base: Path, *, code: str) -> set[Path]:
    """Write `base`.csv and, of a plot, `base`.{theme}.{size}.svg; returns the files.

    `code` is the text of the sources that draw: when it and the rows are what they were, nothing
    is drawn.
    """
    table = to_csv(rows)
    if isinstance(figure, Drawing):
        write_atomically(base.parent / f"{base.name}.csv", table)
        return {base.parent / f"{base.name}.csv"}
    stamp = hashlib.sha256(json.dumps([table, code, matplotlib.__version__]).encode()).hexdigest()
    marker = base.parent / f".{base.name}.stamp"
    targets = {
        (theme, size): base.parent / f"{base.name}.{theme}.{size}.svg"
        for theme in THEMES
        for size in SIZES
    }
    data = base.parent / f"{base.name}.csv"
    files = {marker, data, *targets.values()}
    if all(path.exists() for path in files) and marker.read_text() == stamp:
        return files
    for (theme, size), path in targets.items():
        write_atomically(path, svg(figure, rows, theme=theme, size=size))
    write_atomically(data, table)
    write_atomically(marker, stamp)
    return files
