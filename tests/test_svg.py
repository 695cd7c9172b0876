"""Charts become HTML: always the same bytes, ids of their own, real text, a title a point."""

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
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
)
from madl.logbook.stats import Estimate, Interval, Unit
from madl.site import svg
from madl.site.plotting.size import NARROW, SMALL, width

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


CHARTS = {
    "lines": lines(),
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


# ---- what every chart keeps ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_in_both_widths_with_the_same_points(name, drawn):
    wide, narrow = drawings(drawn[name])
    assert [one.get("class") for one in (wide, narrow)] == ["wide", "narrow"]
    assert "nan" not in re.findall(r' d="[^"]*nan|[xy]="nan', drawn[name])
    assert not re.search(r"\n\n|^ {4}", drawn[name], re.MULTILINE)
    assert titles(wide)
    assert all(": " in title for title in titles(wide))
    assert len(titles(wide)) == len(titles(narrow))


@pytest.mark.parametrize("name", CHARTS)
def test_text_is_text_and_colours_are_variables_that_the_sheet_defines(name, drawn):
    assert "DejaVu" not in drawn[name]
    assert "<text" in drawn[name]
    assert not re.search(r"#[0-9a-fA-F]{6}|rgb\(|<style", drawn[name])
    sheet = (ASSETS / "charts.css").read_text()
    for variable in set(re.findall(r"var\((--[a-z-]+)\)", drawn[name])):
        assert sheet.count(f"  {variable}:") >= 2, variable


@pytest.mark.parametrize("name", CHARTS)
def test_no_text_stands_on_another_and_all_are_readable_on_a_phone(name, drawn):
    for drawing in drawings(drawn[name]):
        for a, b in combinations(boxes(drawing), 2):
            overlaps = a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
            assert not overlaps, (drawing.get("class"), a, b)
    assert SMALL * 358 / NARROW.width >= 11


# ---- one figure ---------------------------------------------------------------------------------


def test_the_same_chart_gives_the_same_bytes_whoever_draws_it():
    import matplotlib

    code = "from tests.test_svg import *; print(svg.figure(lines(), id='f', caption='c'), end='')"
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    first = svg.figure(lines(), id="f", caption="c")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert svg.figure(lines(), id="f", caption="c") == first == other.stdout


def test_two_figures_on_a_page_share_no_id_and_refer_to_their_own():
    page = "".join(
        svg.figure(CHARTS["limits"], id=name, caption="c") for name in ("one", "another")
    )
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 6
    referred = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)}
    assert referred
    assert referred <= set(ids)


def test_texts_are_escaped_and_a_dollar_is_a_dollar():
    nasty = "<script>alert('1') & \"2\" $a$ $b</script>"
    rows = [{"x": i, nasty: i, "name": nasty} for i in range(3)]
    marks = [line(nasty), points(nasty, "p", text="name"), level(1, nasty + "!")]
    chart = Chart(rows, x=linear("x", nasty), y=linear(None, nasty), marks=marks)
    made = svg.figure(chart, id="f", title=nasty, caption=nasty, data='a"b.csv')
    assert "<script" not in made
    root = ElementTree.fromstring(made)
    assert root.findtext("figcaption").startswith(nasty)
    assert root.findtext("div[@class='title']") == nasty
    assert any(title.startswith(nasty) for title in titles(drawings(made)[0]))


def test_titles_have_values_in_readers_units_with_their_interval(drawn):
    said = titles(drawings(drawn["lines"])[0])
    assert "PTQ, 8 bits: 58.0 % [57.0, 59.0]" in said
    assert "FP32: 86.0 % [85.0, 87.0]" in said
    assert sum(title.startswith("QAT") for title in said) == 10  # of thirteen widths


# ---- looks --------------------------------------------------------------------------------------


# ---- the cache, and the script ------------------------------------------------------------------


def test_a_figure_is_drawn_again_only_if_something_about_it_changed(tmp_path, monkeypatch):
    made = svg.figure(lines(), id="f", caption="c", cache=tmp_path)
    svg.figure(lines(), id="f", caption="d", cache=tmp_path)
    svg.figure(lines(), id="f", title="t", caption="c", cache=tmp_path)
    svg.figure(lines(y=percent("accuracy")), id="f", caption="c", cache=tmp_path)
    for value in (0.7, 0.8):
        chart = lines(marks=[line("PTQ"), level(value, "FP32")])
        svg.figure(chart, id="f", caption="c", cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    monkeypatch.setattr(svg.layout, "plot", None)
    assert svg.figure(lines(), id="f", caption="c", cache=tmp_path) == made
