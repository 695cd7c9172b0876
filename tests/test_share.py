"""The picture of a page beside its shared address."""

from types import SimpleNamespace

from bs4 import BeautifulSoup

from madl.site import hooks


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
