"""The picture of a page beside its shared address."""

import io
import re
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from madl.logbook.charts import Chart, bars, category, linear
from madl.site import hooks, share
from madl.site.plotting import palette
from madl.site.plotting.size import width


def test_a_page_s_head_names_its_words_and_its_picture():
    meta = {"description": 'It says "no" & <more>.', "image": "figures/it/share.png"}
    url = "https://here.example/labs/it.html"
    page = SimpleNamespace(title="1.1 Widths", canonical_url=url, meta=meta, is_homepage=False)
    html = hooks.on_post_page("<head></head>", page=page, config={"site_name": "S"})
    tags = {tag["property"]: tag["content"] for tag in BeautifulSoup(html, "html.parser")("meta")}
    assert tags["og:image"] == "https://here.example/labs/figures/it/share.png"
    assert tags["og:description"] == 'It says "no" & <more>.'
    assert (tags["og:title"], tags["og:url"]) == ("1.1 Widths", url)
    meta |= {"evidence": "published", "description": "`log` keeps 80 %."}
    html = hooks.on_post_page("<head></head>", page=page, config={"site_name": "S"})
    tags = {tag["property"]: tag["content"] for tag in BeautifulSoup(html, "html.parser")("meta")}
    assert (tags["og:title"], tags["og:description"]) == ("log keeps 80 %.", "1.1 Widths")
    assert tags["og:image:alt"].startswith("log keeps 80 %.")
    page.meta = {}
    html = hooks.on_post_page("<head></head>", page=page, config={"site_name": "S"})
    assert "og:image" not in html


SERIES = [f"a part with a name, {i}" for i in range(9)]


@pytest.fixture
def chart():
    rows = [{"unit": u, **{name: 3 + i for i, name in enumerate(SERIES)}} for u in "abc"]
    x, y = linear(label="thousands"), category("unit")
    return Chart(rows, x=x, y=y, marks=bars(*SERIES, stacked=True))


WORDS = (
    "Deep learning systems logbook",
    "4.3a " + "`long` title " * 9,
    "It `keeps` much of it. " * 20,
)


def test_all_words_of_a_picture_lie_inside_it_and_none_is_code(chart):
    drawn = share._drawn(*(text.replace("`", "") for text in WORDS), chart)
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" font-family="[^"]+" font-size="(\d+)" '
                       r'fill="[^"]*" ([^>]*)>([^<]+)</text>', drawn)  # fmt: skip
    named = [text for *_, text in texts]
    assert all(any(name in text for text in named) for name in (*SERIES, WORDS[0]))
    for x, y, size, more, text in texts:
        wide = width(text, float(size)) * (share.BOLD if "700" in more else 1)
        left = float(x) - wide * ("end" in more)
        assert 0 <= left <= left + wide <= share.WIDTH, text
        assert 0 <= float(y) <= share.HEIGHT, text


def test_every_series_keeps_its_colour_in_the_picture(chart):
    png = Image.open(io.BytesIO(share.picture(*WORDS, chart, cache=None))).convert("RGB")
    assert png.size == (share.WIDTH, share.HEIGHT)
    there = {color for _, color in png.getcolors(share.WIDTH * share.HEIGHT)}
    css = share.STYLE.read_text()
    light = dict(reversed(re.findall(r"(--[\w-]+):\s*#(\w{6})\b", css)))
    for name, look in palette.looks(chart).items():
        wanted = bytes.fromhex(light[palette.variable(look.color)[4:-1]])
        nearest = min(max(abs(a - b) for a, b in zip(color, wanted)) for color in there)
        assert nearest <= 3, name
