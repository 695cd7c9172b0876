"""The site of the committed evidence: how much it weighs, and where its links lead."""

import gzip
import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser.conftest import site  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

WHOLE = 5_000_000  # bytes of all files
PAGE = 150_000  # bytes of a page with its figures, as a server sends it


def test_the_site_is_at_most_five_megabytes_and_a_page_150_kilobytes(site):  # noqa: F811
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert sum(sizes.values()) <= WHOLE, [(path.name, sizes[path]) for path in largest]
    sent = {p.name: len(gzip.compress(p.read_bytes())) for p in site.rglob("*.html")}
    assert max(sent.values()) <= PAGE, max(sent, key=sent.__getitem__)


class Read(HTMLParser):
    """The ids of a page, and all that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links += [given[name] for name in ("href", "src") if given.get(name)]


def test_every_link_of_the_built_pages_leads_somewhere(site):  # noqa: F811
    pages = {path: Read(path.read_text("utf-8")) for path in site.rglob("*.html")}
    dead: list[str] = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (
                Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            )
            known = pages[target].ids if target in pages else set()
            fragment = unquote(parts.fragment)
            if not target.is_file() or (fragment and target in pages and fragment not in known):
                dead.append(f"{path.name} → {link}")
    assert dead == []
