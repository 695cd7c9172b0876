"""The picture that is shown where a page's address is shared: the page's answer above its chart.

Units: pixels.
"""

import io
import re
from base64 import b64decode, b64encode
from html import escape
from pathlib import Path
from textwrap import shorten

import numpy as np
import resvg_py
from matplotlib import get_data_path
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from madl.files import LIBRARY
from madl.logbook.charts import Chart, alt_text
from madl.site import svg
from madl.site.cache import digest, drawing_code_digest, memoized
from madl.site.markup import IN_WORDS, PICTURE, SHARED, unbroken
from madl.site.plotting import layout, palette
from madl.site.plotting.size import Size, brief, cut, width, wrapped

WIDTH, HEIGHT = SHARED
MARGIN = 48.0
HEADING, ANSWER, NAMES = 26.0, 38.0, 20.0  # sizes of the text
BOLD = 1.16  # width of bold letters over that of plain ones
MOST, FEW = 5, 4  # lines of the answer, and of the legend, at most
SCALE = 1.55  # of the chart's own pixels, at most
FAMILY = "DejaVu Sans"
FONTS = Path(get_data_path()) / "fonts" / "ttf"
STYLE = LIBRARY / "docs" / "assets" / "charts.css"
COLORS = 64  # in the file, which then is a third as large
LONGEST = 400  # characters of the picture in words, about where its readers cut


def path(stem: str) -> str:
    """The path of the picture of the experiment `stem`, from its page's folder."""
    return f"figures/{stem}/{PICTURE}"


def picture(
    site: str, heading: str, answer: str, chart: Chart | None, *, id: str, cache: Path | None
) -> bytes:
    """A page's picture as a PNG; read from the folder `cache` if nothing about it has changed.

    `id` is the page's.
    """
    site, heading, answer = (text.replace("`", "") for text in (site, heading, answer))
    shown = svg.fingerprint(chart) if chart else ""
    css = STYLE.read_text("utf-8")
    key = digest(shown, site, heading, answer, css, drawing_code_digest(__file__))

    def make() -> str:
        image = rasterized(drawing(site, heading, answer, chart))
        alt = f"{heading}: {answer} {alt_text(chart) if chart else ''}"
        return b64encode(_png(image, shorten(alt, LONGEST, placeholder=" …"))).decode()

    return b64decode(memoized(cache, f"{id}-share", key, make))


def drawing(site: str, heading: str, answer: str, chart: Chart | None) -> str:
    """The picture as SVG, in light colours."""
    y, muted = MARGIN + HEADING, palette.variable("muted")
    line = WIDTH - 2 * MARGIN
    site = cut(site, HEADING, line / 2)
    room = line - width(site, HEADING) - HEADING  # of the heading, left of the site's name
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{palette.variable("paper")}"/>',
        _text(brief(heading, HEADING, room), MARGIN, y, HEADING, muted),
        _text(site, WIDTH - MARGIN, y, HEADING, muted, 'text-anchor="end"'),
    ]
    lines = _balanced(unbroken(answer), line)
    if len(lines) > MOST:
        lines[MOST - 1 :] = [f"{lines[MOST - 1]} …"]
    for text in lines:
        y += 1.3 * ANSWER
        text, ink = cut(text, BOLD * ANSWER, line), palette.variable("ink")
        parts.append(_text(text, MARGIN, y, ANSWER, ink, 'font-weight="700"'))
    if chart is not None:
        parts += _chart(chart, y + 0.6 * ANSWER)
    return _in_light_colors("".join([*parts, "</svg>"]))


def _balanced(answer: str, room: float) -> list[str]:
    """The answer in as few lines as fit the room, broken so that all are about equally long."""
    lines = wrapped(answer, BOLD * ANSWER, room)
    while len(closer := wrapped(answer, BOLD * ANSWER, room := room - ANSWER)) == len(lines) > 1:
        lines = closer
    return lines


def _text(text: str, x: float, y: float, size: float, color: str, more: str = "") -> str:
    """A line of text as an SVG element, with `more` attributes."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{FAMILY}" font-size="{size:g}" fill="{color}" '
        f"{more}>{escape(text)}</text>"
    )


def _chart(chart: Chart, top: float) -> list[str]:
    """The SVG of the legend and the chart, in the height that is left below `top`.

    The chart is drawn larger than on its page, or smaller if it has too many rows.
    """
    lines, scale, wide = 1, SCALE, WIDTH - 2 * MARGIN
    while True:
        high = HEIGHT - MARGIN / 2 - top - (1.4 * lines + 0.1) * NAMES
        size = Size(name="wide", width=wide / scale, height=high / scale, ticks=6, columns=4)
        plot = layout.plot(chart, size, salt="share")
        element, legend = svg.element(plot, size), _legend(chart, plot.direct, top)
        _, _, _, tall = map(float, re.findall(r'viewBox="([^"]+)"', element)[0].split())
        if len(legend) <= lines and tall * scale < high + 1:
            break
        lines, scale = max(lines, len(legend)), min(scale, high / tall)
    place = f'x="{MARGIN:g}" y="{HEIGHT - MARGIN / 2 - high:g}" preserveAspectRatio="xMidYMin"'
    room = f'width="{wide:g}" height="{high:g}" font-family="{FAMILY}" overflow="visible"'
    return [*map("".join, legend), element.replace("<svg ", f"<svg {place} {room} ", 1)]


def _legend(chart: Chart, direct: set[str], top: float) -> list[list[str]]:
    """The legend as lines of SVG texts; entries beyond `FEW` lines are left out."""
    lines, x, looks = list[list[str]](), float(WIDTH), palette.looks(chart)
    for name, mark in svg.legend_entries(chart, direct).items():
        sign = "╌" if mark.kind == "level" else looks[name].glyph
        text = cut(f"{sign} {name}", NAMES, WIDTH - 2 * MARGIN)
        if x + width(text, NAMES) > WIDTH - MARGIN:
            if len(lines) == FEW:
                break
            lines.append([])
            x = MARGIN
        y = top + NAMES + 1.4 * NAMES * (len(lines) - 1)
        lines[-1].append(_text(text, x, y, NAMES, palette.variable(looks[name].color)))
        x += width(text, NAMES) + 1.5 * NAMES
    return lines


def _in_light_colors(drawing: str) -> str:
    """The drawing with light colours for CSS variables: those that `STYLE` gives first."""
    drawing = re.sub(r"color-mix\(in srgb,(var\([\w-]+\)) [^()]*var\([\w-]+\)\)", r"\1", drawing)
    light = dict(reversed(re.findall(r"(--[\w-]+):\s*(#\w+)", STYLE.read_text("utf-8"))))
    return re.sub(r"var\((--[\w-]+)\)", lambda match: light[match[1]], drawing)


def rasterized(drawing: str) -> Image.Image:
    """The pixels of an SVG, as an RGB image."""
    fonts = [str(FONTS / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    png = resvg_py.svg_to_bytes(svg_string=drawing, font_files=fonts, skip_system_fonts=True)
    return Image.open(io.BytesIO(png)).convert("RGB")


def _png(image: Image.Image, alt: str) -> bytes:
    """The image as a PNG of few colours, which holds the text `alt` as its description."""
    info, file = PngInfo(), io.BytesIO()
    info.add_text(IN_WORDS, alt)
    with_few_colors(image).save(file, "png", optimize=True, pnginfo=info)
    return file.getvalue()


def with_few_colors(image: Image.Image) -> Image.Image:
    """The image in its `COLORS` most frequent colours, each other pixel in the nearest one of them.

    Colours of paper and series are among them: only shades at the edges of letters move.
    """
    pixels = np.asarray(image).astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    codes, places, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    colors = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], 1).astype(int)
    most = colors[np.argsort(-counts, kind="stable")[:COLORS]]
    nearest = ((colors[:, None] - most) ** 2).sum(2).argmin(1).astype(np.uint8)
    indexed = Image.fromarray(nearest[places.reshape(pixels.shape)])
    indexed.putpalette(most.astype(np.uint8).tobytes())
    return indexed
