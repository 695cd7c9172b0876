"""The site of the committed evidence: how much it weighs, and where its links lead."""

import gzip

import pytest

from tests.browser.conftest import site  # noqa: F401 (a fixture)
from tests.links import broken

pytestmark = pytest.mark.slow

WHOLE = 6_000_000  # bytes of all files
PAGE = 150_000  # bytes of a page with its figures, as a server sends it


def test_the_site_is_at_most_six_megabytes_and_a_page_150_kilobytes(site):  # noqa: F811
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert sum(sizes.values()) <= WHOLE, [(path.name, sizes[path]) for path in largest]
    sent = {p.name: len(gzip.compress(p.read_bytes())) for p in site.rglob("*.html")}
    assert max(sent.values()) <= PAGE, max(sent, key=sent.__getitem__)


def test_every_address_of_the_built_pages_leads_somewhere(site):  # noqa: F811
    assert broken(site) == []
