"""The built site in a real browser: every page, light and dark, wide and on a phone.

Needs `site/` (run `make logbook` first), playwright from PyPI, and Debian's chromium.
"""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(str(p.relative_to(SITE)) for p in SITE.rglob("*.html") if p.name != "404.html")
WIDTHS = {"wide": 1280, "phone": 390}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as session:
        started = session.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(browser, name, size, scheme):
    page = browser.new_page(
        viewport={"width": WIDTHS[size], "height": 900}, color_scheme=scheme, offline=True
    )
    failures: list[str] = []
    page.on("requestfailed", lambda request: failures.append(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto((SITE / name).as_uri())
    page.evaluate("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    page.wait_for_load_state("networkidle")
    broken = page.evaluate(
        "[...document.images].filter(i => i.offsetParent && !i.naturalWidth).map(i => i.src)"
    )
    shown = page.evaluate("[...document.images].filter(i => i.offsetParent).map(i => i.currentSrc)")
    unnamed = page.evaluate("[...document.images].filter(i => !i.alt).length")
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.close()
    assert failures == []
    assert broken == []
    assert unnamed == 0
    assert overflow <= 0
    suffix = {"wide": "wide", "phone": "narrow"}[size]
    assert all(f".{scheme}.{suffix}.svg" in source for source in shown if "/figures/" in source)
