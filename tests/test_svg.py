"""Charts become HTML: always the same bytes, ids of their own, real text, a title a point."""

import re
import shutil
import subprocess
import sys
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import markdown
import pytest

from experiments.formats import page as formats
from madl.logbook.charts import (
    Chart,
    bars,
    category,
    cells,
    doubling,
    intervals,
    level,
    line,
    linear,
    log,
    percent,
    points,
    span,
)
from madl.logbook.stats import Estimate, Interval, Unit
from madl.site import svg
from madl.site.plotting.axes import CHARACTER, FONT, tick
from madl.site.plotting.palette import FREE, KNOWN, styles
from madl.training import families

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32)


def an_estimate(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value, Interval(value - half, value + half), Unit.PERCENT, 1000)


def lines(**changes) -> Chart:
    rows = [
        {"width": w, "PTQ": an_estimate(0.5 + w / 100), "QAT": None if w > 16 else 0.6 + w / 200}
        for w in WIDTHS
    ]
    marks = [line("PTQ"), line("QAT"), level(an_estimate(0.86), "FP32"), level(0.5, "chance")]
    given = {"x": doubling("width", "bits"), "y": percent("test accuracy"), "marks": marks}
    return Chart(rows, **{**given, **changes})


def grid(marks, x, y, **more) -> Chart:
    rows = [
        {
            "format": f"format {i}",
            "inputs": f"{j} bits",
            "size": 2.0 ** (i + j),
            "error": an_estimate(0.1 * i + 0.2 * j + 0.1),
            "best": "best" if i == j else None,
            "kind": "even" if j % 2 == 0 else "odd",
            "low": 0.1 * i,
            "high": 0.1 * i + 0.1,
        }
        for i in range(3)
        for j in range(4)
    ]
    return Chart(rows, x=x, y=y, marks=marks, **more)


def faceted(count: int = 14) -> Chart:
    rows = [
        {"layer": f"encoder.{i}.attention", "width": w, "loss": (1 + i) * 2.0**-w}
        for i in range(count)
        for w in (2, 4, 8, 16, 32)
    ]
    y = log(None, "change of loss", "nats")
    return Chart(rows, x=doubling("width"), y=y, marks=[line("loss")], facet="layer")


def search(series: int = 3, trials: int = 120) -> Chart:
    names = ["Random", "Grid", "TPE", *(f"other {i}" for i in range(20))][:series]
    rows = [
        {"trial": t, **{name: 0.6 + 0.01 * i + t / 1000 for i, name in enumerate(names)}}
        for t in range(1, trials + 1)
    ]
    marks = [*(line(name) for name in names), span(0, 10, "start-up")]
    return Chart(rows, x=linear("trial"), y=percent("accuracy"), marks=marks)


CHARTS = {
    "lines": lines(),
    "lines without markers": lines(marks=[line("PTQ", markers=False), line("QAT")]),
    "search": search(),
    "facets": faceted(),
    "labelled points": grid(
        [points("error", text="format", by="inputs")], log("size", factor=1e3), percent("error")
    ),
    "points of two estimates": grid(
        [points("error")], percent("error", column="error"), percent("error")
    ),
    "bars": lines(
        x=category("width"), y=percent("accuracy"), marks=[*bars("PTQ", "QAT"), level(0.9, "FP32")]
    ),
    "lying bars": grid(bars("size", "high"), linear(None, "memory", "MB"), category("format")),
    "stacked bars": grid(
        bars("low", "high", stacked=True),
        category("format"),
        linear(None, "memory"),
        facet="inputs",
    ),
    "lying stacked bars": grid(
        bars("low", "high", stacked=True), linear(None, "share"), category("format"), facet="inputs"
    ),
    "intervals": grid(
        [intervals("error", by="inputs"), level(an_estimate(0.4), "FP32")],
        percent("error"),
        category("format"),
    ),
    "cells": grid([cells("error")], category("inputs"), category("format")),
    "outlined cells": grid(
        [cells("error", text="best", low=0.2, high=0.6)],
        category("kind"),
        category("format"),
        facet="inputs",
    ),
    "span": grid([line("high"), span(1, 4, "small")], log("size"), linear()),
    "limits": lines(y=percent("accuracy", limits=(55, 80))),
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return {name: svg.figure(chart, id="f", caption="It is.") for name, chart in CHARTS.items()}


def drawings(text: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [node for node in root.iter("svg") if node.get("class") in ("wide", "narrow")]


def corners(path: ElementTree.Element) -> list[tuple[float, float]]:
    """The corners of a path whose points are steps from one to the next."""
    numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.attrib["d"])]
    return list(zip(accumulate(numbers[::2]), accumulate(numbers[1::2])))


def said(drawing: ElementTree.Element) -> list[tuple[str, str]]:
    """The points of a drawing as the page's script makes them: series and title, in their order."""
    found: list[tuple[str, str]] = []
    for node in drawing.iter():
        look = node.tag, node.get("class")
        if look == ("path", "pt"):
            found.append((node.attrib["data-s"], node.findtext("title") or ""))
        elif look == ("g", "pts"):
            found += [(node.attrib["data-s"], one.findtext("title") or "") for one in node]
        elif look == ("path", "pts"):
            begins, *ends = node.get("data-t", "").split("|")
            ends = ends or [""] * len(corners(node))
            assert len(ends) == len(corners(node))
            found += [(node.attrib["data-s"], begins + end) for end in ends]
    return found


def texts(drawing: ElementTree.Element) -> list[dict[str, str]]:
    """What each text says and is, with what it has from its group."""
    pairs = [(group, text) for group in drawing.iter() for text in group if text.tag == "text"]
    return [{**group.attrib, **text.attrib, "says": text.text or ""} for group, text in pairs]


# ---- what every chart keeps ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CHARTS)
def test_every_mark_is_drawn_in_both_widths_as_well_formed_xml(name, drawn):
    assert [one.get("class") for one in drawings(drawn[name])] == ["wide", "narrow"]
    assert "nan" not in re.findall(r' d="[^"]*nan|[xy]="nan', drawn[name])
    assert "\n\n" not in drawn[name]
    assert not re.search(r"^ {4}", drawn[name], re.MULTILINE)


@pytest.mark.parametrize("name", CHARTS)
def test_every_point_says_what_it_is_and_the_widths_have_the_same_points(name, drawn):
    wide, narrow = drawings(drawn[name])
    found = said(wide)
    assert found
    assert all(": " in title for _, title in found)
    assert [series for series, _ in found] == [series for series, _ in said(narrow)]


@pytest.mark.parametrize("name", CHARTS)
def test_text_is_text_and_colours_are_variables_that_the_sheet_defines(name, drawn):
    assert "DejaVu" not in drawn[name]
    assert "<text" in drawn[name]
    assert not re.search(r"#[0-9a-fA-F]{6}|rgb\(", drawn[name])
    sheet = (ASSETS / "charts.css").read_text()
    assert all(one.get("fill") == "none" for one in drawings(drawn[name]))
    assert ".chart svg text { fill:" in sheet  # which else has the drawing's
    for variable in set(re.findall(r"var\((--[a-z-]+)\)", drawn[name])):
        assert sheet.count(f"  {variable}:") >= 2, variable


@pytest.mark.parametrize("name", CHARTS)
def test_names_of_ticks_do_not_stand_on_one_another(name, drawn):
    for drawing in drawings(drawn[name]):
        placed: dict[float, list[tuple[float, float]]] = {}
        for text in texts(drawing):
            if "transform" in text or text.get("font-size") != drawing.get("font-size"):
                continue  # turned, or beside a mark
            width = 0.85 * CHARACTER * FONT * len(text["says"])
            shift = {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", ""), 0.0)
            left = float(text["x"]) - shift * width
            placed.setdefault(float(text["y"]), []).append((left, left + width))
        for row in placed.values():
            for (_, end), (start, _) in pairwise(sorted(row)):
                assert end <= start, (drawing.get("class"), sorted(row))


# ---- one figure ---------------------------------------------------------------------------------


def test_the_same_chart_gives_the_same_bytes_in_another_process_too():
    code = "from tests.test_svg import *; print(svg.figure(lines(), id='f', caption='c'), end='')"
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    first, second = (svg.figure(lines(), id="f", caption="c") for _ in range(2))
    assert first == second == other.stdout


def test_a_readers_own_matplotlibrc_changes_nothing():
    import matplotlib

    plain = svg.figure(lines(), id="f", caption="c")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert svg.figure(lines(), id="f", caption="c") == plain


def test_two_figures_on_a_page_share_no_id_and_refer_to_their_own():
    page = "".join(
        svg.figure(CHARTS["limits"], id=name, caption="c") for name in ("one", "another")
    )
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 6
    referred = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert {a or b for a, b in referred} <= set(ids)
    assert any(b for _, b in referred)


def test_a_chart_of_two_lines_is_small(drawn):
    for drawing in drawings(drawn["lines"]):
        assert len(ElementTree.tostring(drawing)) < 8000


def test_a_search_of_many_trials_is_small_too(drawn):
    """A series is a path, however many points it has, and not an element a point."""
    assert len(drawn["search"]) < 14_000
    for drawing in drawings(drawn["search"]):
        assert len(list(drawing.iter("path"))) < 20


def test_markers_stand_on_the_points(drawn):
    wide, _ = drawings(drawn["lines"])
    ptq, qat = (path for path in wide.iter("path") if path.get("class") == "pts")
    x, y = zip(*corners(ptq))
    at = dict(zip(WIDTHS, x))
    gaps = [at[2 * width] - at[width] for width in (2, 4, 8, 16)]
    assert max(gaps) - min(gaps) < 0.3
    assert list(y) == sorted(y, reverse=True)
    shapes = {f"url(#{one.get('id')})": one.find("path") for one in wide.iter("marker")}
    drawn_as = [shapes[path.attrib["style"].removeprefix("marker:")] for path in (ptq, qat)]
    assert [shape.get("style") for shape in drawn_as] == [
        "fill:var(--c-blue)",
        "fill:var(--c-orange)",
    ]


def test_neighbours_of_one_look_have_it_once(drawn):
    for drawing in drawings(drawn["cells"]):
        made = ElementTree.tostring(drawing, encoding="unicode")
        assert made.count("var(--c-heat)") == 1
        assert len(set(re.findall(r' opacity="([^"]+)"', made))) > 4
        assert made.count('text-anchor="middle"') < 4 < made.count("<text")


def test_a_map_s_panels_have_ticks_of_their_own_a_given_scale_and_outlines(drawn):
    for drawing in drawings(drawn["outlined cells"]):
        said_in = [text["says"] for text in texts(drawing)]
        assert said_in.count("even") == said_in.count("odd") == 4
        made = ElementTree.tostring(drawing, encoding="unicode")
        assert made.count("stroke:var(--chart-ink)") in (1, 2, 3)
        shades = [float(one) for one in re.findall(r' opacity="([^"]+)"', made)]
        assert (min(shades), max(shades)) == (0.05, 0.6)  # beyond the scale's ends


@pytest.mark.parametrize("name", CHARTS)
def test_a_thumbnail_has_marks_and_no_words(name):
    made = svg.thumbnail(CHARTS[name], id="f")
    assert len(made) < 3000
    drawing = ElementTree.fromstring(made)
    assert drawing.get("aria-hidden") == "true"
    assert {node.tag for node in drawing.iter()} <= {
        "svg",
        "defs",
        "clipPath",
        "rect",
        "path",
        "g",
        "marker",
    }
    assert not said(drawing)


def test_a_thumbnail_of_a_map_keeps_its_shades():
    made = svg.thumbnail(CHARTS["cells"], id="f")
    assert len(set(re.findall(r' opacity="([^"]+)"', made))) > 4


def test_the_names_of_spans_do_not_stand_on_the_titles_of_panels():
    rows = [{"t": t, "y": t + i, "p": f"panel {i}"} for i in range(4) for t in range(20)]
    marks = [line("y", markers=False), span(0, 10, "drawn at random")]
    chart = Chart(rows, x=linear("t"), y=linear(None, "y"), marks=marks, facet="p")
    for drawing in drawings(svg.figure(chart, id="f", caption="c")):
        names = [float(t["y"]) for t in texts(drawing) if t["says"] == "drawn at random"]
        titles = [float(t["y"]) for t in texts(drawing) if t["says"].startswith("panel")]
        assert len(names) == len(titles) == 4
        gaps = [min(abs(name - title) for title in titles) for name in names]
        assert min(gaps) >= 9  # a line of text apart


def test_the_names_of_two_spans_stand_away_from_each_other():
    marks = [line("y", markers=False), span(9, 10, "the later one"), span(7, 8, "the first one")]
    rows = [{"t": t, "y": t} for t in range(20)]
    chart = Chart(rows, x=linear("t"), y=linear(None, "y"), marks=marks)
    for drawing in drawings(svg.figure(chart, id="f", caption="c")):
        found = {t["says"]: t for t in texts(drawing) if t["says"].startswith("the ")}
        first, later = found["the first one"], found["the later one"]
        assert first["text-anchor"] == "end"
        assert later.get("text-anchor", "start") == "start"
        assert float(first["x"]) < float(later["x"])


def test_names_in_a_crowd_stand_on_no_other_name():
    rows = [
        {"x": i % 7 + i / 50, "y": 0.8 + 0.002 * (i % 5), "name": f"format {i}"} for i in range(60)
    ]
    rows.append({"x": 8.5, "y": 0.805, "name": "format"})  # right beside the level's name
    marks = [level(0.805, "FP32"), points("y", "p", text="name")]
    chart = Chart(rows, x=linear("x"), y=percent("accuracy"), marks=marks)
    wide, narrow = drawings(svg.figure(chart, id="f", caption="c"))
    named = [[t for t in texts(one) if t["says"][:2] in ("fo", "FP")] for one in (wide, narrow)]
    assert len(named[0]) > len(named[1]) > 5  # those without a place are left out
    assert "FP32" in [t["says"] for t in named[0]]
    for drawing in named:
        assert not [pair for pair in combinations(map(_box, drawing), 2) if _overlap(*pair)]


def _box(text: dict[str, str]) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of a name, in letters as wide as a page's own."""
    x, y, width = float(text["x"]), float(text["y"]), 4.2 * len(text["says"])
    share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
    return x - share * width, x + (1 - share) * width, y - 6, y


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def test_a_line_has_a_marker_at_each_point_where_there_is_room():
    rows = [{"t": t, "y": t + i, "p": f"panel {i}"} for i in range(4) for t in range(20)]
    for shown, facet, count in ((rows[:20], None, 20), (rows, "p", 10)):
        chart = Chart(shown, x=linear("t"), y=linear(None, "y"), marks=[line("y")], facet=facet)
        wide, _ = drawings(svg.figure(chart, id="f", caption="c"))
        marked = [p for p in wide.iter("path") if "marker" in p.get("style", "")]
        assert [len(corners(path)) for path in marked] == [count] * (4 if facet else 1)


def test_coordinates_have_one_decimal_at_most(drawn):
    for text in drawn.values():
        coordinates = re.findall(r' (?:d|x|y|viewBox|transform)="([^"]*)"', text)
        assert not re.search(r"\.\d{2}", " ".join(coordinates))


def test_a_figure_survives_markdown():
    made = svg.figure(lines(), id="f", caption="It is.", data="f.csv")
    extensions = ["md_in_html", "tables", "attr_list", "toc"]
    page = markdown.markdown(f"# One\n\n{made}\n\nAfter *it*.\n", extensions=extensions)
    assert made in page
    assert "<em>it</em>" in page


def test_names_and_captions_are_escaped():
    nasty = "<script>alert('1') & \"2\"</script>"
    rows = [{"x": i, nasty: i, "name": nasty} for i in range(3)]
    marks = [line(nasty), points(nasty, "p", text="name"), level(1, nasty + "!")]
    chart = Chart(rows, x=linear("x", nasty), y=linear(None, nasty), marks=marks)
    made = svg.figure(chart, id="f", caption=nasty, data='a"b.csv')
    assert "<script" not in made
    root = ElementTree.fromstring(made)
    assert root.findtext("figcaption").startswith(nasty)
    assert any(title.startswith(nasty) for _, title in said(drawings(made)[0]))


def test_a_dollar_is_a_dollar_and_no_formula():
    rows = [{"x": "$a$ $b", "y": 1}, {"x": "c_d", "y": 2}]
    chart = Chart(rows, x=category("x"), y=linear(None, "cost ($)"), marks=bars("y"))
    made = svg.figure(chart, id="f", caption="c")
    assert "cost ($)" in made
    assert "$a$ $b" in made


def test_the_picture_has_a_name_and_its_drawings_are_hidden_from_readers_of_screens(drawn):
    root = ElementTree.fromstring(drawn["lines"])
    view = root.find("div")
    assert view.get("role") == "img"
    assert view.get("aria-label").startswith("test accuracy against width")
    assert all(one.get("aria-hidden") == "true" for one in view)


def test_titles_have_values_in_readers_units_with_their_interval(drawn):
    titles = {title for _, title in said(drawings(drawn["lines"])[0])}
    assert "PTQ, 8 bits: 58.0 % [57.0, 59.0]" in titles
    assert "FP32: 86.0 % [85.0, 87.0]" in titles


def test_a_missing_cell_is_no_point(drawn):
    wide, _ = drawings(drawn["lines"])
    assert [series for series, _ in said(wide)].count("1") == 10  # of thirteen widths


def test_an_interval_is_never_cut_off():
    chart = lines(marks=[points("PTQ")])
    for drawing in drawings(svg.figure(chart, id="f", caption="c")):
        *_, height = (float(edge) for edge in drawing.attrib["viewBox"].split())
        for path in drawing.iter("path"):
            for y, step in re.findall(r"M[\d.]+ ([\d.]+)v(-[\d.]+)", path.get("d", "")):
                assert 0 < float(y) + float(step) < float(y) < height


def test_long_lines_have_some_places_to_point_at(drawn):
    wide, _ = drawings(drawn["search"])
    for series in "012":
        assert 20 <= [one for one, _ in said(wide)].count(series) <= 60


def test_values_outside_the_limits_are_cut_off_and_not_pointed_at(drawn):
    wide, _ = drawings(drawn["limits"])
    ptq = [title for series, title in said(wide) if series == "0"]
    assert len(ptq) == len([w for w in WIDTHS if 0.55 <= 0.5 + w / 100 <= 0.8])


def test_fourteen_panels_each_have_their_title_and_grow_the_drawing(drawn):
    for drawing in drawings(drawn["facets"]):
        words = "".join(text["says"] for text in texts(drawing))
        assert all(f"encoder.{i}.attention" in words for i in range(14))
        _, _, width, height = (float(edge) for edge in drawing.attrib["viewBox"].split())
        assert height > 0.9 * width
    assert "<ul" not in drawn["facets"]  # one series: nothing to tell apart


def test_the_legend_names_each_series_once_and_spans_not_at_all(drawn):
    entries = ElementTree.fromstring(drawn["search"]).find("ul")
    assert ["".join(entry.itertext()) for entry in entries] == ["Random", "Grid", "TPE"]
    levels = ElementTree.fromstring(drawn["lines"]).findall("ul/li[@class='direct']")
    assert ["".join(entry.itertext()) for entry in levels] == ["FP32", "chance"]


def test_a_tick_is_readable():
    values = (0, 0.1, 1, 1000, 100_000, 2_500_000, 3e9, -5, 1e-5)
    shown = ["0", "0.1", "1", "1,000", "100,000", "2.5 M", "3 G", "−5", "10⁻⁵"]
    assert [tick(value) for value in values] == shown


def test_a_value_of_nothing_is_a_bar_that_can_be_pointed_at():
    rows = [{"x": "a", "y": 0.0}, {"x": "b", "y": -1.0}, {"x": "c", "y": 2}]
    chart = Chart(rows, x=category("x"), y=linear(None, "y"), marks=bars("y"))
    assert svg.figure(chart, id="f", caption="c").count("<title>") == 3


# ---- looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 8, 9, 16, 23])
def test_no_two_series_look_alike(count):
    looks = list(styles(search(count)).values())
    assert all(a != b for a, b in combinations(looks, 2))
    colors = [look.color for look in looks[:-1]]  # without the span
    assert len(set(colors)) == min(count, len(FREE))


def test_a_name_has_its_colour_on_every_page():
    alone = styles(lines(marks=[line("QAT")]))["QAT"]
    assert alone == styles(lines())["QAT"] == KNOWN["qat"]


@pytest.mark.parametrize("names", [families.GROUPS, formats.FAMILIES.values()])
def test_families_of_formats_have_the_same_colours_on_every_page(names):
    looks = [KNOWN[name] for name in names]
    assert len({look.color for look in looks}) == len(looks)


def test_what_borrows_a_colour_is_still_another_line():
    chart = lines(marks=[line("PTQ"), line("QAT", "PTQ, other rule", like="PTQ")])
    owner, other = styles(chart).values()
    assert owner.color == other.color
    assert owner.dash != other.dash
    assert other.hollow


def test_what_borrows_a_colour_has_a_dash_of_its_own_among_the_lines():
    methods = ("L1-norm", "Random")
    rows = [{"x": 1, "chance": 0.5} | dict.fromkeys([*methods, *(f"{m}, u" for m in methods)], 1)]
    pairs = [[line(name), line(f"{name}, u", like=name)] for name in methods]
    looks = styles(Chart(rows, x=linear("x"), y=linear(None, "y"), marks=pairs))
    assert len({look.dash for look in looks.values()}) == 4  # grey print tells them apart


def test_known_names_of_one_colour_differ_within_a_chart():
    rows = [{"x": 1, "weights": 1, "L1": 2, "MXINT8": 3}]
    marks = [line("weights"), line("L1"), line("MXINT8")]
    looks = styles(Chart(rows, x=linear("x"), y=linear(None, "y"), marks=marks))
    assert len({look.color for look in looks.values()}) == 3


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    shares = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), shares))


@pytest.mark.parametrize(("scheme", "paper"), [("default", "#ffffff"), ("slate", "#1e2129")])
def test_texts_and_lines_stand_out_from_the_paper(scheme, paper):
    sheet = (ASSETS / "charts.css").read_text()
    block = sheet[sheet.index(f'[data-md-color-scheme="{scheme}"] {{') :]
    colors = dict(re.findall(r"--(c(?:hart)?-\w+): (#\w{6});", block[: block.index("}")]))
    for name, color in colors.items():
        if name in ("chart-grid", "chart-paper", "c-heat"):
            continue
        high, low = sorted((luminance(color), luminance(paper)), reverse=True)
        is_text = name in ("chart-ink", "chart-muted", "c-blue", "c-green", "c-purple")
        assert (high + 0.05) / (low + 0.05) >= (4.5 if is_text else 3), name


# ---- the cache, and the script ------------------------------------------------------------------


def test_a_kept_figure_is_not_drawn_again(tmp_path, monkeypatch):
    made = svg.figure(lines(), id="f", caption="c", cache=tmp_path)
    assert made == svg.figure(lines(), id="f", caption="c")
    monkeypatch.setattr(svg.layout, "plot", None)
    assert svg.figure(lines(), id="f", caption="c", cache=tmp_path) == made
    assert len(list(tmp_path.iterdir())) == 1


def test_another_value_caption_or_axis_is_another_figure(tmp_path):
    svg.figure(lines(), id="f", caption="c", cache=tmp_path)
    svg.figure(lines(), id="f", caption="d", cache=tmp_path)
    svg.figure(lines(y=percent("accuracy")), id="f", caption="c", cache=tmp_path)
    svg.figure(lines(marks=[line("PTQ"), level(0.7, "FP32")]), id="f", caption="c", cache=tmp_path)
    svg.figure(lines(marks=[line("PTQ"), level(0.8, "FP32")]), id="f", caption="c", cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_the_script_is_small_and_asks_nobody():
    text = (ASSETS / "charts.js").read_text()
    assert len(text) <= 7 * 1024
    assert not re.search(r"https?:|import|fetch|XMLHttp", text)


SCRIPT = """addEventListener("load", () => {
  const said = [], view = document.querySelector(".view");
  const press = (key) => {
    view.dispatchEvent(new KeyboardEvent("keydown", { key }));
    said.push(document.querySelector(".said").textContent);
  };
  ["ArrowRight", "ArrowRight", "ArrowDown", "End"].forEach(press);
  const first = document.querySelector(".legend button");
  first.click();
  said.push(first.getAttribute("aria-pressed"));
  document.querySelector("figcaption button").click();
  said.push(String(document.querySelector("dialog").open));
  document.body.innerHTML = `<pre>${said.join("|")}</pre>`;
});"""


@pytest.mark.browser
def test_keys_walk_the_points_and_buttons_work(tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    made = svg.figure(lines(), id="f", caption="c")
    page = tmp_path / "page.html"
    page.write_text(
        f'<meta charset="utf-8"><link rel="stylesheet" href="{(ASSETS / "charts.css").as_uri()}">'
        f'<script defer src="{(ASSETS / "charts.js").as_uri()}"></script>{made}'
        f"<script>{SCRIPT}</script>"
    )
    options = ["--headless", "--no-sandbox", "--virtual-time-budget=2000", "--dump-dom"]
    shown = subprocess.run(
        [chromium, *options, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    first, second = "PTQ, 2 bits: 52.0 % [51.0, 53.0]", "PTQ, 3 bits: 53.0 % [52.0, 54.0]"
    across, last = "QAT, 3 bits: 61.5 %", "QAT, 16 bits: 68.0 %"
    assert f"<pre>{'|'.join([first, second, across, last, 'false', 'true'])}</pre>" in shown
