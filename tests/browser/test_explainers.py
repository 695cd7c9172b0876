"""The explainers of the built site: live by keyboard and touch, whole without a script, and right.

Needs what `test_site` needs.
"""

import pytest

from experiments.lab4_tiles import layout
from tests.browser.looking import opened

pytestmark = pytest.mark.browser

PAGES = {  # script → page
    "decode": "lab4_decode",
    "tiles": "lab4_tiles",
    "memory": "lab4_memory",
    "width": "lab1_quantization",
    **dict.fromkeys(("grid", "repairs", "block"), "four_bits"),
}
TEXTS = "f => [...f.querySelectorAll('.panel [data-f]')].map(e => [e.dataset.f, e.textContent])"
EXPLAINED = "document.querySelector('figure[data-explain]').explained"


@pytest.fixture
def explained(browser, site):
    """Opens the page of an explainer: the page, and its figure."""

    def open_(name: str, **how):
        folder = site / "labs" if PAGES[name].startswith("lab") else site
        page = opened(browser, (folder / f"{PAGES[name]}.html").as_uri(), **how)
        return page, page.locator(f"figure[data-explain={name}]")

    return open_


@pytest.mark.parametrize("name", PAGES)
def test_without_a_script_it_shows_what_the_script_begins_with(explained, name):
    static, live = (explained(name, java_script_enabled=enabled)[1] for enabled in (False, True))
    assert static.locator("input, select, button").count() == 0
    before = dict(static.evaluate(TEXTS))
    assert before
    assert before == dict(live.evaluate(TEXTS))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_works_by_keyboard_and_says_so(explained, name, width):
    failures: list[str] = []
    page, figure = explained(name, failures=failures, width=width)
    said = figure.locator(".says")
    assert said.get_attribute("aria-live") == "polite"
    for control in figure.locator(".tools :is(input, select)").all():
        if not control.is_visible() or control.is_disabled():
            continue
        before = said.text_content()
        control.focus()
        kind = control.get_attribute("type") or "select"
        is_last = control.evaluate("e => e.selectedIndex === e.length - 1")
        is_most = control.evaluate("e => e.value === e.max")
        keys = {"checkbox": "Space", "range": "ArrowLeft" if is_most else "ArrowRight"}
        page.keyboard.press(keys.get(kind, "ArrowUp" if is_last else "ArrowDown"))
        assert said.text_content() != before, control.evaluate("e => e.labels[0].textContent")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert failures == []
    page.emulate_media(media="print")
    assert not figure.locator(".tools").is_visible()
    assert said.is_visible()


def test_a_bit_is_set_by_a_tap(explained):
    page, figure = explained("decode", has_touch=True, width=390)
    figure.locator("select").select_option(label="32, scale 127")
    sign, six = (figure.locator("button.bit").nth(i) for i in (0, 1))
    sign.tap()
    assert sign.get_attribute("aria-pressed") == "true"
    assert figure.locator("[data-f=mantissa]").text_content() == "−32"
    six.tap()
    assert figure.locator("[data-f=mantissa]").text_content() == "−96"
    assert figure.locator("[data-f=rule]").text_content() == "out"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("first", [(0, 0, 0), (96, 1, 5)], ids=["first", "other"])  # thread, block
def test_threads_have_the_bytes_that_cute_gives_them(explained, first):
    page, _ = explained("tiles")
    rows, found = page.evaluate(
        f"""([thread, down, along]) => {{
        const {{ rows, place }} = {EXPLAINED};
        const lanes = Array.from({{ length: 32 }}, (_, lane) => thread + lane);
        const block = (row) => [row.group > row["tile m"] ? down : 0, along];
        const warp = (row) => lanes.map((t) => place(row, t, block(row)));
        return [rows, rows.map((row) => warp(row).map((at) => Object.values(at)))];
        }}""",
        list(first),
    )
    assert len(rows) == 21
    thread, down, along = first
    for row, places in zip(rows, found, strict=True):
        block = (down if row["group"] > row["tile m"] else 0, along)
        made = [layout.place(row, thread + lane, block) for lane in range(32)]  # as CuTe has it
        assert places == list(map(list, made))


def test_a_block_a_warp_and_any_mapping_are_chosen_and_drawn(explained):
    page, figure = explained("tiles", has_touch=True, width=390)
    figure.locator("[data-part=blocks] > g").nth(3).tap()
    figure.locator("[data-part=warps] > g").nth(2).tap()
    assert "T64 of block (0, 3)" in figure.locator(".says").text_content()
    for order in range(3):
        figure.locator("select").select_option(index=order)
        figure.locator("input[type=range]").first.focus()
        for key in ("Home", "End"):
            page.keyboard.press(key)
            assert figure.locator("[data-part=blocks] > g").count() in (8, 32)
            assert figure.locator("[data-part=warps] > g").count() in (9, 33)


def test_what_is_drawn_follows_its_controls(explained):
    _, figure = explained("memory")
    figure.locator("input[type=checkbox]").first.uncheck()
    texts = dict(figure.evaluate(TEXTS))
    assert texts["chosen"] == texts["dense"]
    assert "Nothing is saved" in texts["says"]
    page, figure = explained("width")
    zones = "f => [...f.querySelectorAll('.zone')].map(e => Number(e.getAttribute('width')))"
    slider = figure.locator("input[type=range]").first
    narrow = figure.evaluate(zones)
    slider.focus()
    page.keyboard.press("End")
    wide = figure.evaluate(zones)
    assert all(after <= before for before, after in zip(narrow, wide))
    assert sum(wide) < sum(narrow)


@pytest.mark.parametrize("name", PAGES)
def test_an_address_that_no_choice_fits_opens_the_figure_as_it_is(explained, browser, name):
    page, figure = explained(name)
    id, controls = figure.get_attribute("id"), figure.locator(".tools :is(input, select)").count()
    failures: list[str] = []
    given = ",".join(["no-such-choice"] * controls)
    again = opened(browser, f"{page.url}#{id}={given}", failures=failures).locator(f"#{id}.live")
    assert again.evaluate(TEXTS) == figure.evaluate(TEXTS)
    assert failures == []


def test_a_code_that_no_list_has_is_another_and_opens_again(explained, browser):
    page, figure = explained("decode")
    figure.locator("button.bit").nth(3).click()
    assert figure.locator("select option:checked").text_content() == "another"
    failures: list[str] = []
    again = opened(browser, page.url, failures=failures)
    assert again.locator(f"#{figure.get_attribute('id')}").evaluate(TEXTS) == figure.evaluate(TEXTS)
    assert failures == []


OTHER = """f => f.querySelectorAll('.tools :is(input, select)').forEach((control) => {
  const { min, max, options = [{ value: min }, { value: max || 12345 }] } = control;
  const [last, first] = [[...options].at(-1).value, options[0].value];
  if (control.type === "checkbox") control.checked = !control.checked;
  else control.value = control.value === last ? first : last;
  for (const event of ["input", "change"])
    control.dispatchEvent(new Event(event, { bubbles: true }));
})"""


@pytest.mark.parametrize("name", PAGES)
def test_any_choice_stands_in_the_address_and_opens_again(explained, browser, name):
    page, figure = explained(name)
    first, id = page.url, figure.get_attribute("id")
    figure.evaluate(OTHER)
    told = figure.evaluate(TEXTS)
    assert page.url != first
    again = opened(browser, page.url)
    assert again.locator(f"#{id}").evaluate(TEXTS) == told
    there = opened(browser, first)  # a page that is already open
    there.evaluate("address => location.assign(address)", page.url)
    there.wait_for_timeout(100)
    assert there.locator(f"#{id}").evaluate(TEXTS) == told


def test_what_its_controls_are_set_to_stands_in_the_address_and_opens_again(browser, site):
    url = (site / "labs/lab1_quantization.html").as_uri()
    page = opened(browser, url)
    slider = page.locator("figure[data-explain=width] input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.locator("figure[data-explain=width] input[type=checkbox]").check()
    said = page.locator("figure[data-explain=width] .says").text_content()
    again = opened(browser, page.url)
    assert again.locator("figure[data-explain=width] .says").text_content() == said
    first = opened(browser, url).locator("figure[data-explain=width] .says").text_content()
    assert said != first
    page.locator("figure[data-explain=width] input[type=checkbox]").uncheck()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    back = opened(browser, page.url)
    assert back.locator("figure[data-explain=width] .says").text_content() == first
