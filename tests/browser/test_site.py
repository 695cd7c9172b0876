"""The built site in a real browser: every page, light and dark, wide and on a phone.

Needs `site/` (run `make logbook` first), playwright from PyPI, and Debian's chromium.
"""

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(str(p.relative_to(SITE)) for p in SITE.rglob("*.html") if p.name != "404.html")
WIDTHS = {"wide": 1280, "phone": 390}


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
    page.on("console", lambda said: failures.append(said.text) if said.type == "error" else None)
    page.goto((SITE / name).as_uri())
    page.wait_for_load_state("networkidle")
    unnamed = page.evaluate("[...document.images].filter(i => !i.alt).length")
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    shown = page.evaluate(
        "[...document.querySelectorAll('figure.chart')].filter(f => f.checkVisibility()).map("
        "f => [...f.querySelectorAll('.view > svg')].filter(s => s.checkVisibility())"
        ".map(s => s.getAttribute('class')))"
    )
    page.close()
    assert failures == []
    assert unnamed == 0
    assert overflow <= 0
    drawn = {"wide": "wide", "phone": "narrow"}[size]
    assert all(len(classes) == 1 and drawn in classes[0] for classes in shown), shown


@pytest.fixture
def first(browser):
    """The page of question 1.1, wide."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.goto((SITE / "labs/lab1_quantization.html").as_uri())
    page.wait_for_load_state("networkidle")
    yield page
    page.close()


def test_the_answer_and_its_figure_are_on_one_screen(first):
    top = first.locator("figure.chart").first.bounding_box()["y"]
    assert first.locator("details.finding").count() >= 3
    assert top < 900


def test_a_verdict_opens_its_evidence_down_to_the_record(first):
    finding = first.locator("details.finding").first
    assert not finding.locator("dl").is_visible()
    finding.locator("summary").click()
    assert finding.locator("dl").is_visible()
    assert finding.locator("svg.effect").is_visible()
    link = finding.locator("dl a").first.get_attribute("href")
    assert link.startswith("records/")
    assert (SITE / "labs" / link).is_file()


def test_values_are_reached_by_pointer_and_by_keys(first):
    view = first.locator("figure.chart .view").first
    view.focus()
    first.keyboard.press("ArrowRight")
    told = first.locator("[aria-live]").first.text_content()
    first.keyboard.press("ArrowRight")
    assert told
    assert told != first.locator("[aria-live]").first.text_content()


def test_a_legend_entry_hides_its_series_and_shows_it_again(first):
    button = first.locator("figure.chart ul.legend button").first
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"


def test_a_chart_is_enlarged_and_closed_by_escape(first):
    first.locator("figure.chart button", has_text="Enlarge").first.click()
    assert first.locator("dialog[open]").count() == 1
    first.keyboard.press("Escape")
    assert first.locator("dialog[open]").count() == 0


def test_the_search_finds_a_page_without_a_server(first):
    first.locator("input[data-md-component='search-query']").fill("straight-through")
    first.wait_for_selector(".md-search-result__item a", timeout=10_000)
    assert first.locator(".md-search-result__item").count() > 0
