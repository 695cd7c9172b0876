"""The picture of a page for where its address is shared: its answer, and below it its chart.

Units: pixels.
"""

import io
import re
from base64 import b64decode, b64encode
from html import escape
from pathlib import Path

import resvg_py
from matplotlib import get_data_path
from PIL import Image

from madl.logbook.charts import Chart
from madl.site import svg
from madl.site.keeping import digest, digest_of_drawing, kept
from madl.site.markup import SHARED
from madl.site.plotting import layout, palette
from madl.site.plotting.size import Size, brief, width, wrapped

WIDTH, HEIGHT = SHARED
MARGIN = 48.0
HEADING, ANSWER, NAMES = 26.0, 42.0, 20.0  # sizes of the text
BOLD = 1.16  # how much wider its letters are
MOST = 5  # lines of the answer
SCALE = 1.55  # of the chart's own pixels
FAMILY = "DejaVu Sans"
FONTS = Path(get_data_path()) / "fonts" / "ttf"
STYLE = Path(__file__).parents[2] / "docs" / "assets" / "charts.css"
COLORS = 256  # in the file, which then is a third as large; fewer merge those of series


def path(stem: str) -> str:
    """Where a page's picture lies, from the page's folder."""
    return f"figures/{stem}/share.png"


def picture(
    site: str, heading: str, answer: str, chart: Chart | None, *, cache: Path | None
) -> bytes:
    """A PNG in light colours; kept in the folder `cache` while nothing about it changes."""
    site, heading, answer = (text.replace("`", "") for text in (site, heading, answer))
    css = STYLE.read_text("utf-8")
    drawn = svg.fingerprint(chart) if chart else ""
    key = digest("\0".join([drawn, site, heading, answer, css, digest_of_drawing(__file__)]))
    made = kept(
        cache, f"share-{key[:24]}.txt", lambda: _png(_drawn(site, heading, answer, chart), css)
    )
    return b64decode(made)


def _drawn(site: str, heading: str, answer: str, chart: Chart | None) -> str:
    y, muted = MARGIN + HEADING, palette.variable("muted")
    room = WIDTH - 2 * MARGIN - width(site, HEADING) - HEADING  # of the heading, left of the site's
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{palette.variable("paper")}"/>',
        _text(brief(heading, HEADING, room), MARGIN, y, HEADING, muted),
        _text(site, WIDTH - MARGIN, y, HEADING, muted, 'text-anchor="end"'),
    ]
    lines = wrapped(answer, BOLD * ANSWER, WIDTH - 2 * MARGIN)
    if len(lines) > MOST:
        lines[MOST - 1 :] = [f"{lines[MOST - 1]} …"]
    for line in lines:
        y += 1.3 * ANSWER
        parts.append(_text(line, MARGIN, y, ANSWER, palette.variable("ink"), 'font-weight="700"'))
    if chart is not None:
        parts += _chart(chart, y + 0.6 * ANSWER)
    return "".join([*parts, "</svg>"])


def _text(text: str, x: float, y: float, size: float, color: str, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{FAMILY}" font-size="{size:g}" fill="{color}" '
        f"{more}>{escape(text)}</text>"
    )


def _chart(chart: Chart, top: float) -> list[str]:
    """What is left of the picture's height, but for the names of the series that the chart does
    not name itself."""
    wide = (WIDTH - 2 * MARGIN) / SCALE

    def plotted(top: float) -> tuple[layout.Plot, Size]:
        high = (HEIGHT - MARGIN / 2 - top) / SCALE
        size = Size(name="wide", width=wide, height=high, ticks=6, columns=4)
        return layout.plot(chart, size, salt="share"), size

    direct = plotted(top + 1.5 * NAMES)[0].direct
    parts, x, y = list[str](), MARGIN, top + NAMES
    for name, look in palette.looks(chart).items():
        if not name or name in direct:
            continue
        text = f"{look.glyph} {name}"
        if x > MARGIN and x + width(text, NAMES) > WIDTH - MARGIN:
            x, y = MARGIN, y + 1.4 * NAMES
        parts.append(_text(text, x, y, NAMES, palette.variable(look.color)))
        x += width(text, NAMES) + 1.5 * NAMES
    top = y + 0.5 * NAMES
    plot, size = plotted(top)
    place = f'x="{MARGIN:g}" y="{top:g}" preserveAspectRatio="xMidYMin"'
    room = f'width="{wide * SCALE:g}" height="{size.height * SCALE:g}" font-family="{FAMILY}"'
    return [*parts, svg.inline(plot, size).replace("<svg ", f"<svg {place} {room} ", 1)]


def _png(drawing: str, css: str) -> str:
    """In base64; the first value that the style sheet gives a colour is that in light."""
    drawing = re.sub(r"color-mix\(in srgb,(var\([\w-]+\)) [^()]*var\([\w-]+\)\)", r"\1", drawing)
    light = dict(reversed(re.findall(r"(--[\w-]+):\s*(#\w+)", css)))
    drawing = re.sub(r"var\((--[\w-]+)\)", lambda found: light[found[1]], drawing)
    fonts = [str(FONTS / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    made = resvg_py.svg_to_bytes(svg_string=drawing, font_files=fonts, skip_system_fonts=True)
    small = io.BytesIO()
    Image.open(io.BytesIO(made)).convert("RGB").quantize(COLORS).save(small, "png", optimize=True)
    return b64encode(small.getvalue()).decode()
