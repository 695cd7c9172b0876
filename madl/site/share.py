"""The picture of a page for where its address is shared: its answer, and below it its chart.

Units: pixels.
"""

import io
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from html import escape
from pathlib import Path
from textwrap import shorten

import numpy as np
import resvg_py
from matplotlib import get_data_path
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from madl.logbook.charts import Chart, alt_text
from madl.site import svg
from madl.site.keeping import digest, digest_of_drawing, kept
from madl.site.markup import IN_WORDS, SHARED, unbroken
from madl.site.plotting import layout, palette
from madl.site.plotting.size import Size, brief, cut, width, wrapped

WIDTH, HEIGHT = SHARED
MARGIN = 48.0
HEADING, ANSWER, NAMES = 26.0, 38.0, 20.0  # sizes of the text
BOLD = 1.16  # how much wider its letters are
MOST, FEW = 5, 4  # lines of the answer, and of the legend
SCALE = 1.55  # of the chart's own pixels, at most
FAMILY = "DejaVu Sans"
FONTS = Path(get_data_path()) / "fonts" / "ttf"
STYLE = Path(__file__).parents[2] / "docs" / "assets" / "charts.css"
COLORS = 64  # in the file, which then is a third as large
LONGEST = 400  # characters of the picture in words, about where its readers cut


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

    def made() -> str:
        image = rendered(drawing(site, heading, answer, chart))
        alt = f"{heading}: {answer} {alt_text(chart) if chart else ''}"
        return b64encode(_png(image, shorten(alt, LONGEST, placeholder=" …"))).decode()

    return b64decode(kept(cache, f"share-{key[:24]}.txt", made))


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
    for said in lines:
        y += 1.3 * ANSWER
        said = cut(said, BOLD * ANSWER, line)
        parts.append(_text(said, MARGIN, y, ANSWER, palette.variable("ink"), 'font-weight="700"'))
    if chart is not None:
        parts += _chart(chart, y + 0.6 * ANSWER)
    return _lit("".join([*parts, "</svg>"]))


def _balanced(answer: str, room: float) -> list[str]:
    """The answer in as few lines as fit the room, which are about as long as each other."""
    lines = wrapped(answer, BOLD * ANSWER, room)
    while len(closer := wrapped(answer, BOLD * ANSWER, room := room - ANSWER)) == len(lines) > 1:
        lines = closer
    return lines


def _text(text: str, x: float, y: float, size: float, color: str, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{FAMILY}" font-size="{size:g}" fill="{color}" '
        f"{more}>{escape(text)}</text>"
    )


def _chart(chart: Chart, top: float) -> list[str]:
    """The names of the series that the chart does not name itself, and the chart in what is left of
    the height: it is drawn larger than on its page, or smaller where it has too many rows."""
    lines, scale, wide = 1, SCALE, WIDTH - 2 * MARGIN
    while True:
        high = HEIGHT - MARGIN / 2 - top - (1.4 * lines + 0.1) * NAMES
        size = Size(name="wide", width=wide / scale, height=high / scale, ticks=6, columns=4)
        plot = layout.plot(chart, size, salt="share")
        drawn, named = svg.inline(plot, size), _names(chart, plot.direct, top)
        _, _, _, tall = map(float, re.findall(r'viewBox="([^"]+)"', drawn)[0].split())
        if len(named) <= lines and tall * scale < high + 1:
            break
        lines, scale = max(lines, len(named)), min(scale, high / tall)
    place = f'x="{MARGIN:g}" y="{HEIGHT - MARGIN / 2 - high:g}" preserveAspectRatio="xMidYMin"'
    room = f'width="{wide:g}" height="{high:g}" font-family="{FAMILY}" overflow="visible"'
    return ["".join(line) for line in named] + [drawn.replace("<svg ", f"<svg {place} {room} ", 1)]


def _names(chart: Chart, direct: set[str], top: float) -> list[list[str]]:
    """The legend, in lines; the chart needs the rest of the picture."""
    lines, x, looks = list[list[str]](), float(WIDTH), palette.looks(chart)
    for name, mark in svg.unnamed(chart, direct).items():
        look = replace(looks[name], marker="s") if mark.kind == "bars" else looks[name]
        sign = "╌" if mark.kind == "level" else look.glyph
        text = cut(f"{sign} {name}", NAMES, WIDTH - 2 * MARGIN)
        if x + width(text, NAMES) > WIDTH - MARGIN:
            if len(lines) == FEW:
                break
            lines.append([])
            x = MARGIN
        y = top + NAMES + 1.4 * NAMES * (len(lines) - 1)
        lines[-1].append(_text(text, x, y, NAMES, palette.variable(look.color)))
        x += width(text, NAMES) + 1.5 * NAMES
    return lines


def _lit(drawing: str) -> str:
    """With colours for their variables: the first value that the style sheet gives is the light."""
    drawing = re.sub(r"color-mix\(in srgb,(var\([\w-]+\)) [^()]*var\([\w-]+\)\)", r"\1", drawing)
    light = dict(reversed(re.findall(r"(--[\w-]+):\s*(#\w+)", STYLE.read_text("utf-8"))))
    return re.sub(r"var\((--[\w-]+)\)", lambda found: light[found[1]], drawing)


def rendered(drawing: str) -> Image.Image:
    """The pixels of a drawing."""
    fonts = [str(FONTS / name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    made = resvg_py.svg_to_bytes(svg_string=drawing, font_files=fonts, skip_system_fonts=True)
    return Image.open(io.BytesIO(made)).convert("RGB")


def _png(image: Image.Image, alt: str) -> bytes:
    info, file = PngInfo(), io.BytesIO()
    info.add_text(IN_WORDS, alt)
    few(image).save(file, "png", optimize=True, pnginfo=info)
    return file.getvalue()


def few(image: Image.Image) -> Image.Image:
    """The picture in its most frequent colours, which those of paper and series are: they stay as
    they are, and only shades at the edges of letters move."""
    pixels = np.asarray(image).astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    codes, places, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    colors = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], 1).astype(int)
    most = colors[np.argsort(-counts, kind="stable")[:COLORS]]
    nearest = ((colors[:, None] - most) ** 2).sum(2).argmin(1).astype(np.uint8)
    made = Image.fromarray(nearest[places.reshape(pixels.shape)])
    made.putpalette(most.astype(np.uint8).tobytes())
    return made
