"""The built site in a real browser: every page, light and dark, wide, zoomed, on a phone, on paper.

Needs playwright from PyPI and Debian's chromium. `test_sample.py` is what `make test` runs of it.
"""

import contextlib
import html
import json
import re
import zipfile
from itertools import product

import pytest
from PIL import Image

from tests.browser.conftest import PAGES
from tests.browser.looking import UNFOLD, WIDTHS, complaints, opened, search, served

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(browser, site, name, size, scheme):
    url = (site / name).as_uri()
    assert complaints(browser, url, width=WIDTHS[size], scheme=scheme) == {}


@pytest.mark.parametrize("prefix", ["/", "/logbook/"])
def test_on_a_server_every_page_is_whole_and_asks_it_alone(browser, site, prefix):
    with served(site, prefix) as address:
        for name in (name for name in PAGES if name != "404.html"):  # which knows one root, its own
            found = complaints(browser, address + name, width=1400, scheme="light")
            assert found == {}, name


FOUND = {  # words → the page that is first or second
    "MXFP4": "four_bits.html",
    "torch.compile": "lab4_compile.html",
    "86.7": "lab4_memory.html",
    "QAT": "lab1_quantization.html",
    "TPE": "lab2_samplers.html",
}


@pytest.mark.parametrize("prefix", ["/", "/logbook/", None])
def test_search_finds_the_page_of_a_word_on_a_server_and_in_a_folder(browser, site, prefix):
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(served(site, prefix)) if prefix else f"{site.as_uri()}/"
        failures: list[str] = []
        page = opened(browser, f"{address}labs/lab4_tiles.html", failures=failures)
        for words, name in FOUND.items():
            assert name in search(page, words)[:2], words
        box, found = (page.locator(f".md-search__{name}") for name in ("output", "scrollwrap"))
        assert found.bounding_box()["width"] <= box.bounding_box()["width"]  # nothing is cut
        assert failures == []
        page.close()


def test_the_index_of_the_search_is_asked_for_when_somebody_searches(browser, site, address):
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.goto(f"{address}index.html", wait_until="networkidle")
    assert "search_index.json" not in asked
    assert search(page, "MXFP4")
    assert "search_index.json" in asked
    page.goto(f"{address}formats.html?h=mxfp4", wait_until="networkidle")  # as a find's link
    assert page.locator("article mark").count() > 0
    page.close()


@pytest.mark.parametrize("name", ["index.html", "labs/lab3_formats.html"])
def test_a_page_is_styled_whole_at_most_three_times_as_it_opens(browser, address, name):
    """As the theme starts, five or six times without `hooks`: what a phone waits for most."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    tracing, events = page.context.new_cdp_session(page), []
    tracing.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    tracing.send("Tracing.start", {"categories": "devtools.timeline"})
    page.goto(address + name, wait_until="networkidle")
    with page.expect_event("close"):
        tracing.on("Tracing.tracingComplete", lambda _: page.close())
        tracing.send("Tracing.end")
    styled = [e["args"]["elementCount"] for e in events if e["name"] == "UpdateLayoutTree"]
    assert sum(count > 0.9 * max(styled) for count in styled) <= 3


def test_the_matrix_has_every_page(site):
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {name for name in built if "records/" not in name} == set(PAGES)


@pytest.fixture(scope="module")
def address(site):
    with served(site) as address:
        yield address


def barriers(browser, url: str, **how) -> list[tuple[str, str]]:
    """What axe finds against WCAG 2.1 AA, and labels that are not the name; all folds open."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here")
    page = opened(browser, url, **how)
    page.evaluate(UNFOLD)
    run = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa"]}
    label = {"label-content-name-mismatch": {"enabled": True}}
    options = {"resultTypes": ["violations"], "runOnly": run, "rules": label}
    result = axe.Axe().run(page, options=options).response["violations"]
    page.close()
    grave = [v for v in result if v["impact"] in ("serious", "critical")]
    return [(v["id"], n["html"][:120]) for v in grave for n in v["nodes"][:3]]


SIGHTS = [*product((390, 1400), ("light", "dark"))]  # width, scheme


@pytest.mark.parametrize("name", PAGES)
def test_nothing_serious_stands_in_the_way_of_anybody(browser, address, name):
    for width, scheme in SIGHTS:
        assert barriers(browser, address + name, width=width, scheme=scheme) == [], (width, scheme)


def test_evidence_is_whole_and_nothing_stands_in_its_way(browser, site, address):
    """Of each page's numbers the first, and its longest; of the hundreds, which are made alike."""
    for folder in {path.parent for path in site.rglob("records/*/*.html")}:
        files = sorted(folder.glob("*.html"), key=lambda path: path.stat().st_size)
        for path, (width, scheme) in product((files[0], files[-1]), SIGHTS):
            url = address + str(path.relative_to(site))
            assert complaints(browser, url, width=width, scheme=scheme) == {}, url
            assert barriers(browser, url, width=width, scheme=scheme) == [], url


def test_each_line_of_a_command_that_is_copied_is_a_command(site):
    commands = [
        html.unescape(re.search("<pre><code>(.*?)</code>", path.read_text(), re.DOTALL)[1])
        for path in site.rglob("records/*/*.html")
    ]
    lines = [line for command in commands for line in command.splitlines()]
    assert len(lines) > len(commands)
    assert {line.count("python cli.py") for line in lines} == {1}


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_evidence_is_open_and_nothing_is_cut(browser, site, name):
    page = opened(browser, (site / name).as_uri(), width=703)  # A4 within its margins
    page.emulate_media(media="print")
    found = page.evaluate("""() => {
      const all = (what) => [...document.querySelectorAll(what)];
      const right = (e) => e.getBoundingClientRect().right;
      const bars = ".md-header, .md-tabs, .md-sidebar, .md-footer";
      return {
        navigation: all(bars).filter((e) => e.checkVisibility()).length,
        folded: all("article details:not(.drawing details) > :not(summary)")
          .filter((e) => !e.getClientRects().length)
          .filter((e) => !e.matches("[hidden], .unprinted:has(+ details)")).length, // whole there
        cut: all("article table").filter((e) => right(e) > innerWidth + 1)
          .map((e) => e.textContent.slice(0, 60)),
      };
    }""")
    page.close()
    assert found == {"navigation": 0, "folded": 0, "cut": []}


def test_home_can_be_touched_at_once_and_has_a_tile_for_every_question(browser, site):
    page = opened(browser, (site / "index.html").as_uri())
    said = page.locator(".touch .says").last
    before = said.text_content()
    page.locator(".touch button.bit").first.click()
    assert said.text_content() != before
    assert page.locator(".versus").count() == 3
    tiles = page.locator(".tile")
    assert tiles.count() >= 16
    assert tiles.count() == tiles.locator(".says a").count() == tiles.locator(".dot").count()
    assert tiles.locator(".thumb svg").count() == tiles.count()
    for width, columns in ((1400, 4), (800, 2), (390, 1)):  # and no row is half empty
        page.set_viewport_size({"width": width, "height": 900})
        tops = [tile.bounding_box()["y"] for tile in tiles.all()]
        assert {tops.count(top) for top in tops} == {columns}, width
    page.locator(".tile a").first.click()
    page.wait_for_load_state("load")
    assert page.locator(".answer").is_visible()
    page.close()


def test_the_ledger_is_one_sheet_of_paper_sorts_and_is_cards_on_a_phone(browser, site):
    page = opened(browser, (site / "ledger.html").as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    page = opened(browser, (site / "ledger.html").as_uri())
    first = page.locator(".ledger tbody tr td").first
    before = first.text_content()
    head = page.locator(".ledger th button").first
    head.press("Enter")
    assert first.text_content() == before  # they stood in this order
    head.press("Enter")
    assert page.locator(".ledger th").first.get_attribute("aria-sort") == "descending"
    assert first.text_content() != before
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 900})
    assert first.evaluate("(cell) => getComputedStyle(cell).display") == "block"
    page.close()


@pytest.fixture
def first(browser, site):
    page = opened(browser, (site / "labs/lab1_quantization.html").as_uri(), width=1400)
    yield page
    page.close()


def test_answer_and_figure_are_on_one_screen_read_by_keys_hidden_and_enlarged(first):
    assert first.locator(".answer a.mark").first.is_visible()
    assert first.locator("figure").first.bounding_box()["y"] < 700
    figure = first.locator("figure.chart").first
    figure.locator(".view").focus()
    first.keyboard.press("ArrowRight")
    told = figure.locator(".said").text_content()
    first.keyboard.press("ArrowRight")
    assert told
    assert told != figure.locator(".said").text_content()
    first.locator("figure.chart button", has_text="Enlarge").first.click()
    large = first.locator("dialog[open]")
    large.locator(".view").focus()
    first.keyboard.press("ArrowRight")
    assert large.locator(".said").text_content() == large.locator(".tip").text_content()
    first.keyboard.press("Escape")
    assert first.locator("dialog[open]").count() == 0


def test_a_chart_s_picture_has_its_letters_and_its_legend(browser, site):
    page = opened(browser, (site / "labs/lab1_quantization.html").as_uri(), width=1400)
    figure = page.locator("figure.chart").first

    def saved():
        with page.expect_download() as download:
            figure.get_by_role("button", name="PNG").click()
        return Image.open(download.value.path()).convert("L")

    def num_dark(picture):
        return sum(picture.histogram()[:100])

    whole = saved()
    page.add_style_tag(content=".chart svg text { opacity: 0 }")
    wordless = saved()
    figure.locator(".legend").evaluate("legend => legend.remove()")
    bare = saved()
    assert num_dark(whole) > num_dark(wordless) + 2000
    assert num_dark(wordless) > num_dark(bare) + 2000
    assert wordless.height > bare.height
    page.close()


@pytest.mark.parametrize("names", [".legend [data-s]", ".wide .name[data-s]"])
def test_a_name_in_the_legend_or_at_a_line_s_end_hides_the_line(browser, site, names):
    named = {".legend [data-s]": "lab1_pruning", ".wide .name[data-s]": "lab4_attention"}[names]
    page = opened(browser, (site / f"labs/{named}.html").as_uri(), width=1400)
    figure = page.locator(f"figure.chart:has({names})").first
    figure.scroll_into_view_if_needed()
    name = figure.locator(names).first
    line = figure.locator(f".wide [data-s='{name.get_attribute('data-s')}']:not(.name)").first
    shown = "(part) => getComputedStyle(part).display !== 'none'"  # a level has no height
    name.locator("button, text").click()
    assert not line.evaluate(shown)
    name.locator("button, text").click()
    assert line.evaluate(shown)
    page.close()


def test_by_keys_alone_a_verdict_is_opened_down_to_its_records(first, site):
    reached = "document.activeElement?.matches('a.mark')"
    for _ in range(80):
        first.keyboard.press("Tab")
        if first.evaluate(reached):
            break
    assert first.evaluate(reached)
    assert first.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    first.keyboard.press("Enter")
    row = first.locator(first.url[first.url.index("#claim-") :])
    assert row.locator(".interval").is_visible()
    link = row.locator("a").first.get_attribute("href")
    twin = json.loads((site / "labs" / link).with_suffix(".json").read_text())
    assert twin["hypothesis"] in row.text_content()
    with zipfile.ZipFile((site / "labs" / link).parent / twin["in"]) as file:
        assert len(twin["records"]) <= len(file.read("cases.jsonl").splitlines())


def test_a_first_visit_in_the_dark_is_dark_before_the_theme_s_script_comes(browser, address):
    page = browser.new_page(color_scheme="dark")
    page.route("**/bundle*.js", lambda route: route.abort())  # so that it never comes
    for name in ("index.html", "labs/lab1_pruning.html", "404.html"):
        page.goto(f"{address}{name}", wait_until="domcontentloaded")
        assert page.evaluate("document.body.dataset.mdColorScheme") == "slate", name
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_where_a_system_forces_its_colours_on_pages_marks_are_still_seen(browser, site, scheme):
    url = (site / "labs/lab1_quantization.html").as_uri()
    page = opened(browser, url, scheme=scheme, forced_colors="active")
    painted = "es => es.map((e) => getComputedStyle(e).backgroundColor)"
    (paper,) = page.locator("body").evaluate_all(painted)
    for marks in (".interval .bar", ".interval .mean", ".interval .unit"):
        colours = page.locator(marks).evaluate_all(painted)
        assert colours
        assert paper not in colours
        assert "rgba(0, 0, 0, 0)" not in colours
    drawn = ".chart :is(.view, .legend), .explain .panel"
    kept = "es => es.map((e) => getComputedStyle(e).forcedColorAdjust)"
    assert set(page.locator(drawn).evaluate_all(kept)) == {"none"}
    page.close()


@pytest.mark.parametrize("has_touch", [False, True])
def test_a_number_opens_its_evidence_in_a_card_that_escape_closes(browser, site, has_touch):
    with served(site) as address:
        url, width = f"{address}labs/lab1_quantization.html", 390 if has_touch else 1400
        page = opened(browser, url, width=width, has_touch=has_touch)
        number, card = page.locator(".lead a.n").first, page.locator(".card")
        touch = number.tap if has_touch else number.click
        touch()
        evidence = page.frame_locator(".card iframe")
        evidence.locator("h1").wait_for()
        value = number.get_attribute("data-n").split(" · ")[0]
        assert value in evidence.locator("h1").text_content()
        assert evidence.locator(".interval .unit").count() == 5
        room, window = card.bounding_box(), page.viewport_size
        assert min(room["x"], room["y"]) >= 0
        assert room["x"] + room["width"] <= window["width"]
        assert room["y"] + room["height"] <= window["height"]
        page.keyboard.press("Tab")
        assert card.evaluate("card => card.contains(document.activeElement)")
        page.keyboard.press("Escape")
        assert not card.is_visible()
        assert page.url == url
        touch()
        evidence.get_by_text("as JSON").click()
        page.wait_for_url("**/records/lab1_quantization/*.json")
        page.close()
