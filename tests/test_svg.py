"""Charts become HTML: always the same bytes, ids of their own, real text, a title a point."""

import os
import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest

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
from madl.logbook.stats import mean
from madl.logbook.values import Estimate, Interval, Unit
from madl.site import cache, svg
from madl.site.plotting.layout import tick
from madl.site.plotting.palette import KNOWN, MARKERS, looks
from madl.site.plotting.size import NARROW, SMALL, width
from tests.conftest import ROOT, python

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


def search(series: int = 3, trials: int = 120) -> Chart:
    names = ["Random", "Grid", "TPE", *(f"other {i}" for i in range(20))][:series]
    rows = [
        {"trial": t, **{name: 0.6 + 0.01 * i + t / 1000 for i, name in enumerate(names)}}
        for t in range(1, trials + 1)
    ]
    marks = [*(line(name) for name in names), span(0, 10, "start-up")]
    return Chart(rows, x=linear("trial"), y=percent("accuracy"), marks=marks)


def faceted(count: int = 14) -> Chart:
    rows = [
        {"layer": f"encoder.{i}.attention", "width": w, "loss": (1 + i) * 2.0**-w}
        for i in range(count)
        for w in (2, 4, 8, 16, 32)
    ]
    y = log(None, "change of loss", "nats")
    return Chart(rows, x=doubling("width"), y=y, marks=[line("loss")], facet="layer")


CHARTS = {
    "lines": lines(),
    "search": search(),
    "facets": faceted(),
    "labelled points": grid(
        [points("error", text="format", by="inputs")], log("size", factor=1e3), percent("error")
    ),
    "bars": lines(
        x=category("width"), y=percent("accuracy"), marks=[*bars("PTQ", "QAT"), level(0.9, "FP32")]
    ),
    "stacked bars": grid(
        bars("low", "high", stacked=True), linear(None, "share"), category("format"), facet="inputs"
    ),
    "intervals": grid(
        [intervals("error", by="inputs"), level(an_estimate(0.4), "FP32")],
        percent("error"),
        category("format"),
    ),
    "cells": grid([cells("error")], category("inputs"), category("format")),
    "limits": lines(y=percent("accuracy", limits=(55, 80))),
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return {
        name: svg.figure(chart, id="f", title="It grows.", caption="It is.")
        for name, chart in CHARTS.items()
    }


def drawings(text: str) -> list[ElementTree.Element]:
    return [n for n in ElementTree.fromstring(text).iter("svg") if n.get("class") != "thumb"]


def titles(drawing: ElementTree.Element) -> list[str]:
    """What the points of a drawing say, in their order."""
    return [node.findtext("title") or "" for node in drawing.iter() if node.get("class") == "pt"]


def boxes(drawing: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of each text that is not turned."""
    found = []
    for text in drawing.iter("text"):
        moved = re.fullmatch(
            r"translate\((\S+) (\S+)\)(?: rotate\(-0\))?", text.get("transform", "")
        )
        if moved or "transform" not in text.attrib:
            style = dict(one.split(":") for one in text.get("style", "").split(";"))
            size = float(style["font-size"].removesuffix("px"))
            wide = 0.85 * width(text.text or "", size)  # a page's fonts are narrower
            share = {"middle": 0.5, "end": 1.0}.get(style.get("text-anchor", ""), 0.0)
            x, y = map(float, moved.groups() if moved else (text.attrib["x"], text.attrib["y"]))
            found.append((x - share * wide, x + (1 - share) * wide, y - 0.7 * size, y))
    return found


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_in_both_widths_with_the_same_points_and_without_any(name, drawn):
    wide, narrow = drawings(drawn[name])
    assert [one.get("class") for one in (wide, narrow)] == ["wide", "narrow"]
    assert not re.search(r' d="[^"]*nan|[xy]="nan', drawn[name])
    assert not re.search(r"\n\n|^ {4}", drawn[name], re.MULTILINE)
    assert titles(wide)
    assert all(": " in title for title in titles(wide))
    assert len(titles(wide)) == len(titles(narrow))
    thumb = svg.thumbnail(CHARTS[name], id="f")
    for axis in (CHARTS[name].x, CHARTS[name].y):
        assert axis.scale == "category" or axis.title in thumb
    assert not titles(ElementTree.fromstring(thumb))


@pytest.mark.parametrize("name", CHARTS)
def test_texts_stand_apart_and_colours_are_variables_that_the_sheet_defines(name, drawn):
    assert not re.search(r"#[0-9a-fA-F]{6}|rgb\(|<style", drawn[name])
    sheet = (ROOT / "docs" / "assets" / "charts.css").read_text()
    for variable in set(re.findall(r"var\((--[a-z-]+)\)", drawn[name])):
        assert sheet.count(f"  {variable}:") >= 2, variable
    for drawing in drawings(drawn[name]):
        for a, b in combinations(boxes(drawing), 2):
            overlaps = a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
            assert not overlaps, (drawing.get("class"), a, b)
    assert SMALL * 358 / NARROW.width >= 11


@pytest.mark.parametrize(("ends", "is_named"), [((0.5, 0.6, 0.7), True), ((0.5, 0.5, 0.5), False)])
def test_lines_that_end_at_one_place_are_named_in_the_legend(ends, is_named):
    names = ("PTQ", "QAT", "LSQ")
    rows = [{"width": w, **{n: e * w / 32 for n, e in zip(names, ends)}} for w in WIDTHS]
    marks = [line(name) for name in names]
    chart = Chart(rows, x=doubling("width", "bits"), y=percent("accuracy"), marks=marks)
    figure = svg.figure(chart, id="f", caption="c")
    assert ('<li data-s="0" class="direct">' in figure) == is_named
    wide, _ = drawings(figure)
    assert {text.text for text in wide.iter("text")}.isdisjoint(names) != is_named


def test_names_of_points_that_stand_close_keep_off_all_bars():
    rows = [
        {"format": f"format {i}", "size": 50 + 4 * i, "error": an_estimate(0.5, 0.03)}
        for i in range(3)
    ]
    marks = [points("error", text="format")]
    chart = Chart(
        rows, x=linear("size", limits=(0, 200)), y=percent("error", limits=(30, 70)), marks=marks
    )
    wide, _ = drawings(svg.figure(chart, id="f", caption="c"))
    names = [t for t in wide.iter("text") if (t.text or "").startswith("format ")]
    assert len(names) == 3
    bars_ = [
        tuple(map(float, ends))
        for path in wide.iter("path")
        if "stroke-width:1.6" in path.get("style", "")
        for ends in re.findall(r"M (\S+) (\S+) L \S+ (\S+)", path.get("d", ""))
    ]
    assert len(bars_) == 3
    for left, right, top, bottom in boxes(wide):
        for x, *ends in bars_:
            assert not (left < x < right and top < max(ends) and min(ends) < bottom)


def test_the_same_chart_gives_the_same_bytes_whoever_draws_it(drawn):
    import matplotlib

    shown = "svg.figure(lines(), id='f', title='It grows.', caption='It is.')"
    other = python("-c", f"from tests.test_svg import *; print({shown}, end='')", check=True)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        again = svg.figure(lines(), id="f", title="It grows.", caption="It is.")
    assert again == drawn["lines"] == other.stdout


def test_ids_of_a_figure_are_its_own_and_its_texts_are_texts(drawn):
    page = drawn["limits"] + svg.figure(CHARTS["limits"], id="another", caption="c")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 6
    referred = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)}
    assert referred
    assert referred <= set(ids)
    nasty = "<script>alert('1') & \"2\" $a$ $b</script>"
    rows = [{"x": i, nasty: i, "name": nasty} for i in range(3)]
    marks = [line(nasty), points(nasty, text="name"), level(1, nasty + "!")]
    chart = Chart(rows, x=linear("x", nasty), y=linear(None, nasty), marks=marks)
    made = svg.figure(chart, id="f", title=nasty, caption=nasty, data='a"b.csv')
    assert "<script" not in made
    root = ElementTree.fromstring(made)
    assert root.findtext("figcaption").startswith(nasty)
    assert root.findtext("div[@class='title']") == nasty
    assert any(title.startswith(nasty) for title in titles(drawings(made)[0]))


def test_titles_cells_and_names_of_lines_say_what_they_stand_for(drawn):
    view = ElementTree.fromstring(drawn["lines"]).find("div[@class='view']")
    assert view.get("aria-label").startswith("It grows. test accuracy against width")
    said = titles(drawings(drawn["lines"])[0])
    assert "PTQ, 8 bits: 58.0 % [57.0, 59.0]" in said
    assert "FP32: 86.0 % [85.0, 87.0]" in said
    assert sum(title.startswith("QAT") for title in said) == 10  # of thirteen widths
    said = [t for t in titles(drawings(drawn["limits"])[0]) if t.startswith("PTQ")]
    assert len(said) == len([w for w in WIDTHS if 0.55 <= 0.5 + w / 100 <= 0.8])
    wide, narrow = (sum(t.text == "10.0" for t in d.iter("text")) for d in drawings(drawn["cells"]))
    assert (wide, narrow) == (1, 0)
    scale = ElementTree.fromstring(drawn["cells"]).find("ul/li[@class='shades']")
    assert "".join(scale.itertext()) == "error: 0.1  0.9"
    wide, narrow = drawings(drawn["lines"])
    assert {"PTQ", "FP32", "chance"} <= {text.text for text in wide.iter("text")}
    assert "PTQ" not in {text.text for text in narrow.iter("text")}
    entries = ElementTree.fromstring(drawn["lines"]).find("ul")
    assert [entry.get("class") for entry in entries] == [None] * 4  # QAT is not named in it
    names = ["".join(entry.itertext()) for entry in entries]
    assert [name.lstrip("●■") for name in names] == ["PTQ", "QAT", "FP32", "chance"]


def test_a_tick_is_readable():
    values = (0, 0.1, 1, 1000, 100_000, 2_500_000, 3e9, -5, 1e-5)
    shown = ["0", "0.1", "1", "1,000", "100,000", "2.5 M", "3 G", "−5", "10⁻⁵"]
    assert [tick(value) for value in values] == shown


def test_no_two_series_look_alike_and_a_name_has_its_colour_on_every_page():
    for count in (2, 8, 9, 16):
        made = list(looks(search(count)).values())[:-1]  # without the span
        assert all(a != b for a, b in combinations(made, 2))
        assert len({look.color for look in made}) == min(count, len(MARKERS))
    assert looks(lines(marks=[line("QAT")]))["QAT"].color == KNOWN["qat"]
    assert looks(lines(marks=[line("PTQ", "x"), line("QAT")]))["QAT"].color == KNOWN["qat"]
    owner, other = looks(lines(marks=[line("PTQ"), line("QAT", "its", like="PTQ")])).values()
    assert owner.color == other.color
    assert other.hollow
    assert owner.dash != other.dash
    borrower, lender = looks(lines(marks=[line("QAT", like="FP32"), level(0.5, "FP32")])).values()
    assert (borrower.color, borrower.hollow, lender.hollow) == (lender.color, True, False)
    fewer = replace(
        search(9), marks=[*search(9).marks[4:], line("Random", "new")], beside=search(9)
    )
    kept, there = looks(fewer), looks(search(9))
    assert all(kept[name] == there[name] for name in there.keys() & kept.keys())
    assert kept["new"] not in [look for name, look in kept.items() if name != "new"]


@pytest.mark.parametrize("factor", [1.0, 1 / 8])
def test_what_is_ticked_by_doublings_is_in_the_unit_of_the_axis(factor):
    chart = lines(x=replace(doubling("width"), factor=factor))
    wide, _ = drawings(svg.figure(chart, id="f", title="t", caption="c"))
    assert {tick(width * factor) for width in (4, 8, 16)} <= {
        text.text for text in wide.iter("text")
    }


def test_a_figure_is_drawn_again_only_if_something_about_it_changed(tmp_path, monkeypatch):
    def made(chart=None, **changes):
        given = {"id": "f", "caption": "c", "cache": tmp_path, **changes}
        return svg.figure(chart or lines(), **given)

    first = made()
    levels = [lines(marks=[line("PTQ"), level(value, "FP32")]) for value in (0.7, 0.8)]
    different = [made(caption="d"), made(title="t"), made(lines(y=percent("accuracy")))]
    assert len({first, *different, *map(made, levels)}) == len(list(tmp_path.iterdir())) == 6
    monkeypatch.setattr(svg.layout, "plot", None)
    assert made() == first


def test_of_drawings_of_a_name_those_made_last_are_kept(tmp_path):
    for name, count in (("f", cache.KEPT + 3), ("f-thumb", 1)):
        for i in range(count):
            key = cache.digest(str(i))
            assert cache.memoized(tmp_path, name, key, str(i).upper) == str(i)
            os.utime(tmp_path / f"{name}-{key[:24]}.txt", (i, i))
    texts = [path.read_text("utf-8").partition("\n")[2] for path in tmp_path.glob("f-[0-9a-f]*")]
    assert sorted(texts, key=int) == [str(i) for i in range(3, cache.KEPT + 3)]
    assert len([*tmp_path.glob("f-thumb*")]) == 1


def test_an_effect_has_a_small_dot_for_each_of_its_units():
    effect = mean([0.01, 0.02, 0.04], unit=Unit.POINTS, unit_name="models").estimate()
    drawings = [
        svg.figure(
            Chart(
                [{"pair": "A over B", "effect": cell}],
                x=linear("effect", "points"),
                y=category("pair"),
                marks=[intervals("effect")],
            ),
            id="f",
            caption="It is.",
        )
        for cell in (effect, replace(effect, each=()))
    ]
    shapes = [drawing.count("<use ") for drawing in drawings]
    assert shapes[0] - shapes[1] == 2 * 3  # in the wide and in the narrow drawing


@pytest.mark.parametrize(
    ("known", "bands", "num_bars"), [("1111", 1, 0), ("1011", 1, 1), ("1010", 0, 2)]
)
def test_a_band_spans_neighbours_that_have_intervals_and_one_alone_has_a_bar(
    known, bands, num_bars
):
    rows = [
        {"width": width, "PTQ": an_estimate(0.5 + width / 100) if has == "1" else 0.5 + width / 100}
        for width, has in zip(WIDTHS, known, strict=False)
    ]
    made = svg.figure(replace(lines(marks=[line("PTQ")]), rows=rows), id="f", caption="c")
    shown = re.findall(r'<path d="([^"]*)" style="[^"]*stroke-opacity[^"]*"', made)
    assert [path.count("M") for path in shown] == [num_bars] * (2 if num_bars else 0)  # both widths
    assert made.count("fill-opacity") == 2 * bands
