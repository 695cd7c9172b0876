"""The picture of a page beside its shared address."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from bs4 import BeautifulSoup
from PIL import Image, ImageChops

import cli
from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear, points
from madl.running.project import Project
from madl.site import build, hooks, report, share
from madl.site.markup import PICTURE
from madl.site.page import PageCalls
from madl.site.plotting import palette
from tests.conftest import ROOT, a_record, write
from tests.synthetic import evidence

ADDRESS = "https://here.example/at/"


def tags(html: str) -> dict[str, str]:
    """What a page's head says of it where its address is shared; each once."""
    found = BeautifulSoup(html, "html.parser").head.find_all("meta", property=True)
    told = {tag["property"]: tag["content"] for tag in found}
    assert len(told) == len(found)
    return told


def test_a_page_s_head_names_its_words_and_its_picture(tmp_path):
    meta = {"description": 'It says "no" & <more>.', "image": "figures/it/share.png"}
    page = SimpleNamespace(title="1.1 Widths", meta=meta, is_homepage=False, url="labs/it.html")
    page.canonical_url, page.file = f"{ADDRESS}labs/it.html", SimpleNamespace(src_uri="labs/it.md")

    def told() -> dict[str, str]:
        config = {"site_name": "S", "docs_dir": str(tmp_path)}
        return tags(hooks.on_post_page("<head></head>", page=page, config=config))

    assert told()["og:image"] == f"{ADDRESS}labs/figures/it/share.png"
    assert told()["og:description"] == 'It says "no" & <more>.'
    assert (told()["og:title"], told()["og:url"]) == ("1.1 Widths", page.canonical_url)
    assert "og:image:alt" not in told()  # where no picture says what it shows
    (tmp_path / "labs").mkdir()
    picture = share.picture("S", "1.1 Widths", "No & yes.", None, id="it", cache=None)
    (tmp_path / "labs" / "a_picture.png").write_bytes(picture)
    meta["image"] = "a&#95;picture.png"  # as templates print what they name
    assert told()["og:image:alt"] == "1.1 Widths: No & yes."
    assert told()["og:image"] == f"{ADDRESS}labs/a_picture.png"
    meta |= {"evidence": "published", "description": "`log` keeps 80 %."}
    assert (told()["og:title"], told()["og:description"]) == ("log keeps 80 %.", "1.1 Widths")
    page.canonical_url = None
    assert not {"og:image", "og:url", "twitter:card"} & told().keys()
    page.meta = {"evidence": "pending", "description": "Run it."}
    assert (told()["og:title"], told()["og:description"]) == ("1.1 Widths", "Run it.")


CODE = "One squared is `{{ one }}`, and its `code` is code."


@pytest.fixture
def built(plan, monkeypatch, caplog):
    """The pages of the toy's site, built for an address, and what was said of it."""
    root = plan.project.root
    settings = (ROOT / "mkdocs.yml").read_text().replace("site_name: ", "site_name: Toys & ")
    write(root / "mkdocs.yml", settings)
    page = root / "experiments" / "toy" / "page.md.j2"
    page.write_text(page.read_text().replace("One squared is {{ one }}.", CODE))
    plan.project.store.put(a_record(0))
    plan.project.store.put(a_record(1))

    def build_for(address: str) -> tuple[dict[str, str], list[str]]:
        monkeypatch.setenv("SITE_URL", address)
        report.write(plan, plan.project.store)
        build.log_once.cache_clear()
        caplog.clear()
        with caplog.at_level("INFO", logger="madl"):
            build.build(plan.project)
            for line in caplog.messages:  # as `all` does, which builds before and after it runs
                build.log_once(line)
        pages = {name: root / "site" / f"{name}.html" for name in ("labs/toy", "index", "ledger")}
        return {name: path.read_text() for name, path in pages.items()}, caplog.messages

    return build_for


def test_a_built_page_is_called_by_its_answer_and_a_site_without_address_has_no_half_of_it(
    built, plan
):
    pages, said = built(ADDRESS)
    assert said == []
    for name, html in pages.items():
        links = BeautifulSoup(html, "html.parser").find_all("link", rel="canonical")
        assert [link["href"] for link in links] == [f"{ADDRESS}{name}.html"]
        told = tags(html)
        assert told["og:url"] == f"{ADDRESS}{name}.html"
        assert told["og:image"] == f"{ADDRESS}labs/figures/toy/share.png"
        assert told["og:image:alt"].startswith(
            "9.1 Squares: One squared is 1, and its code is code."
        )
        assert told["og:site_name"].startswith("Toys & Deep learning")
        assert not any("`" in text or "<" in text for text in told.values())
    told = tags(pages["labs/toy"])
    assert told["og:title"] == "One squared is 1, and its code is code."
    assert told["og:description"] == "9.1 Squares"
    assert tags(pages["index"])["og:title"] == told["og:site_name"]
    assert tags(pages["ledger"])["og:title"] == "Ledger"
    assert [*plan.project.docs.rglob(PICTURE)]
    pages, said = built("")
    assert not [*plan.project.docs.rglob(PICTURE)]
    assert len(said) == 1
    assert said[0].startswith("no SITE_URL: shared addresses have no picture")
    assert "\n" not in said[0]
    for html in pages.values():
        assert "canonical" not in html
        told = tags(html)
        assert not {"og:url", "og:image", "og:image:alt", "twitter:card"} & told.keys()
        assert {"og:type", "og:site_name", "og:title", "og:description"} <= told.keys()


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("https://a.example/  # ours", "https://a.example/"),
        ('!ENV [SITE_URL, ""] # pictures', "https://of.the.environment/"),
        (None, ""),
    ],
)
def test_the_address_is_that_of_the_settings_or_of_the_environment(plan, monkeypatch, setting, url):
    monkeypatch.setenv("SITE_URL", "https://of.the.environment/")
    settings = "site_name: A\n" + (f"site_url: {setting}\n" if setting else "")
    write(plan.project.root / "mkdocs.yml", settings)
    assert plan.project.site_url == url


def test_an_address_that_pages_were_made_without_is_said_to_come_too_late(tmp_path, caplog):
    (tmp_path / "index.md").touch()
    with caplog.at_level("INFO"):
        hooks.on_config({"docs_dir": str(tmp_path), "site_url": ADDRESS})
    assert "the pages were made without SITE_URL" in caplog.text


def test_a_site_that_is_refused_is_not_said_to_be_open(toy, monkeypatch, capsys):
    def refused(project):
        raise MadlError("mkdocs could not build the site: it has no words")

    monkeypatch.setattr(cli, "_rendered", lambda: ("a summary", []))
    write(toy.root / "site" / "index.html", "an old one")
    for make, told, shown in ((refused, 1, False), (lambda project: None, 0, True)):
        monkeypatch.setattr("madl.site.build.build", make)
        assert len(cli._site({})) == told
        out = capsys.readouterr().out
        assert out.startswith("a summary\n")
        assert ("open " in out) is shown


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


AROUND = 100  # pixels of paper around a picture, where nothing may be drawn
RIM = 10  # pixels inside it, that stay paper, too


def around(drawing: str) -> Image.Image:
    """The picture with what would be drawn outside it."""
    wide, high = share.WIDTH + 2 * AROUND, share.HEIGHT + 2 * AROUND
    box = f'width="{wide}" height="{high}"'
    ours = f'width="{share.WIDTH}" height="{share.HEIGHT}"'
    corner = f'x="-{AROUND}" y="-{AROUND}"'
    drawing = drawing.replace(ours, f'{box} viewBox="-{AROUND} -{AROUND} {wide} {high}"', 1)
    assert ours in drawing, "the paper"
    return share.rasterized(drawing.replace(ours, f"{corner} {box}", 1))


def faults(drawing: str, chart: Chart) -> list[str]:
    """What a picture's reader would miss: words that leave it, names and colours that it lacks."""
    image = around(drawing)
    paper = Image.new("RGB", image.size, image.getpixel((0, 0)))
    left, top, right, bottom = ImageChops.difference(image, paper).getbbox()
    edges = {
        "left": left - AROUND,
        "top": top - AROUND,
        "right": share.WIDTH - (right - AROUND),
        "bottom": share.HEIGHT - (bottom - AROUND),
    }
    told = [f"{room} pixels from its {side}" for side, room in edges.items() if room < RIM]
    ends = (AROUND, AROUND, AROUND + share.WIDTH, AROUND + share.HEIGHT)
    whole = image.crop(ends)
    pixels = np.asarray(whole).astype(int)
    moved = abs(pixels - np.asarray(share.with_few_colors(whole).convert("RGB"))).max(2)
    written = BeautifulSoup(drawing, "html.parser").get_text(" ")
    css = share.STYLE.read_text()
    light = dict(reversed(re.findall(r"(--[\w-]+):\s*#(\w{6})\b", css)))
    wanted = {name: palette.variable(look.color) for name, look in palette.looks(chart).items()}
    for name, color in (wanted | {"the paper": palette.variable("paper")}).items():
        is_drawn = (pixels == [*bytes.fromhex(light[color[4:-1]])]).all(2)
        if not is_drawn.any():
            told.append(f"{name!r} is not drawn")
        elif moved[is_drawn].max() > 3:
            told.append(f"the colour of {name!r} is another")
    for name in wanted:
        alone = sum(mark.kind not in ("level", "span") for mark in chart.owners().values()) == 1
        if name not in written and not alone:
            told.append(f"{name!r} is not named")
    return told


def test_every_published_picture_is_whole_with_every_name_and_colour():
    drawn = 0
    for page in evidence():
        calls = PageCalls(Project(), page)
        name = calls.first_chart()
        assert name, page.name
        answer = calls.description
        assert "`" not in answer + calls.title()
        shown = page.view.shown[name]
        drawing = share.drawing(Project().site_name, calls.title(), answer, shown)
        assert faults(drawing, shown) == [], page.name
        drawn += 1
    assert drawn > 15


def test_a_name_has_one_colour_in_all_charts_of_a_page():
    for page in evidence():
        colors: dict[str, set[str]] = {}
        for content in page.view.shown.values():
            for name, look in palette.looks(content).items() if isinstance(content, Chart) else ():
                colors.setdefault(name, set()).add(look.color)
        assert {name: c for name, c in colors.items() if len(c) > 1} == {}, page.name


@pytest.mark.parametrize("words", [WORDS, ("A site " * 30, "W" * 90, "W" * 120), ("", "", "")])
def test_a_picture_of_any_words_is_whole(chart, words):
    assert faults(share.drawing(*words, chart), chart) == []


def test_more_names_than_have_room_leave_the_chart_its_own():
    names = [f"a series with a long name of its own, {i:03}" for i in range(60)]
    marks = [points(name) for name in names]
    many = Chart([{"x": 1, **dict.fromkeys(names, 2)}], x=linear("x"), y=linear(), marks=marks)
    drawing = share.drawing(*WORDS, many)
    assert names[0] in drawing
    assert names[-1] not in drawing
    assert float(re.search(r'<svg x=[^>]* height="([-\d.]+)"', drawing)[1]) > 100


def test_many_rows_are_drawn_smaller_and_as_wide():
    rows = [{"unit": f"unit {i}", "size": i} for i in range(30)]
    many = Chart(rows, x=linear(label="size"), y=category("unit"), marks=bars("size"))
    drawing = share.drawing("A site", "1.1 Units", "Many units.", many)
    image = share.rasterized(drawing)
    left, _, right, _ = ImageChops.difference(
        image, Image.new("RGB", image.size, image.getpixel((0, 0)))
    ).crop((0, 300, share.WIDTH, share.HEIGHT)).getbbox()  # fmt: skip
    assert left < 100
    assert right > share.WIDTH - 100
    assert faults(drawing, many) == []


def test_a_picture_says_in_its_file_what_it_shows_without_code(chart, tmp_path):
    path = tmp_path / "share.png"
    path.write_bytes(share.picture(*WORDS, chart, id="it", cache=None))
    said = hooks._in_words(path)
    assert said.startswith("4.3a long title")
    assert "It keeps much of it." in said
    assert len(said) <= share.LONGEST
    assert "`" not in said + share.drawing(*(text.replace("`", "") for text in WORDS), chart)
    with Image.open(path) as image:
        assert image.size == (share.WIDTH, share.HEIGHT)
    path.write_text("no picture")
    assert hooks._in_words(path) == hooks._in_words(tmp_path / "none.png") == ""
