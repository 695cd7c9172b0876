"""The picture of a page beside its shared address."""

import io
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from madl.site import hooks, share
from tests.test_svg import CHARTS


def made(answer="Four bits cost six points.", chart=None) -> Image.Image:
    png = share.picture("1.1 Widths", answer, chart, cache=None)
    return Image.open(io.BytesIO(png)).convert("L")


def ink(picture: Image.Image, top: int, bottom: int) -> int:
    """Pixels of a band that are not white."""
    return sum(picture.crop((0, top, share.WIDTH, bottom)).histogram()[:200])


def test_it_has_the_size_that_is_asked_for_and_the_chart_below_the_answer():
    plain, full = made(), made(chart=CHARTS["facets"])
    assert full.size == (share.WIDTH, share.HEIGHT)
    assert ink(plain, 200, share.HEIGHT) == 0
    assert ink(full, 200, share.HEIGHT) > 2000
    assert ink(full, 0, 140) == pytest.approx(ink(plain, 0, 140), rel=0.03)  # few colours
    full = made(answer="a word " * 200, chart=CHARTS["lines"])  # which is cut
    assert ink(full, share.HEIGHT - 8, share.HEIGHT) == 0
    assert ink(full, 450, share.HEIGHT) > 1000


def test_a_page_s_head_names_its_words_and_its_picture():
    meta = {"description": 'It says "no" & <more>.', "image": "figures/it/share.png"}
    url = "https://here.example/labs/it.html"
    page = SimpleNamespace(title="1.1 Widths", canonical_url=url, meta=meta, is_homepage=False)
    html = hooks.on_post_page("<head></head>", page=page, config={"site_name": "S"})
    tags = {tag["property"]: tag["content"] for tag in BeautifulSoup(html, "html.parser")("meta")}
    assert tags["og:image"] == "https://here.example/labs/figures/it/share.png"
    assert tags["og:description"] == 'It says "no" & <more>.'
    page.meta = {}
    html = hooks.on_post_page("<head></head>", page=page, config={"site_name": "S"})
    assert "og:image" not in html
