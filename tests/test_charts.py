"""Charts as data: what cannot be drawn is refused, and words and CSV say what the rows hold."""

import csv
import io

import pytest

from madl.errors import MadlError
from madl.logbook import charts
from madl.logbook.charts import Chart, doubling, level, line, linear, percent, points, span
from madl.logbook.values import Estimate, Interval, Unit
from tests.synthetic import an_arm

X, Y = linear("n"), linear(label="t")


def share(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    interval = None if low is None or high is None else Interval(low, high)
    return Estimate(value, interval, Unit.PERCENT, 9)


def a_chart(rows=({"n": 1, "t": 2},), *, x=X, y=Y, marks=None, facet=None) -> Chart:
    return Chart(rows, x=x, y=y, marks=[line("t")] if marks is None else marks, facet=facet)


@pytest.mark.parametrize(
    ("what", "unknown"),
    [
        ({"marks": [line("time")]}, "time"),
        ({"marks": [points("t", by="family")]}, "family"),
        ({"marks": [points("t", text="name")]}, "name"),
        ({"marks": charts.bars("t", "u")}, "u"),
        ({"x": linear("m")}, "m"),
        ({"y": charts.category("kind")}, "kind"),
        ({"facet": "device"}, "device"),
    ],
)
def test_an_unknown_column_is_one_line_with_the_known_ones(what, unknown):
    with pytest.raises(MadlError) as caught:
        a_chart(**what)
    assert str(caught.value) == f"names an unknown column {unknown!r}; known: n, t"


def test_marks_without_a_place_are_no_empty_chart_but_an_error():
    with pytest.raises(MadlError, match="its x axis names no column"):
        a_chart(x=charts.percent("removed"))


def test_alt_texts_and_csv_hold_what_the_rows_do():
    rows = [
        {"width": 4, "PTQ": share(0.5, 0.4, 0.6), "QAT": 0.8},
        {"width": 6, "PTQ": share(0.6), "QAT": None},
        {"width": 8, "PTQ": share(0.75, 0.7, 0.8), "QAT": None},
    ]
    marks = [line("PTQ"), line("QAT", "training on"), level(0.85, "FP32"), span(4, 6, "too few")]
    y = percent("test accuracy")
    chart = a_chart(rows, x=doubling("width", "bits"), y=y, marks=marks)
    assert charts.alt_text(chart, "Six bits keep it.") == (
        "Six bits keep it. test accuracy against width (bits). PTQ: 50.0 % at 4 to 75.0 % at 8. "
        "training on: 80.0 % at 4. FP32: 85.0 %. Shaded, too few: 4 to 6."
    )
    rows = [{**row, "on": on} for on in ("weights", "inputs") for row in rows]
    assert charts.alt_text(a_chart(rows, x=chart.x, y=y, marks=marks[:1], facet="on")) == (
        "test accuracy against width (bits). "
        "weights, PTQ: 50.0 % at 4 to 75.0 % at 8. inputs, PTQ: 50.0 % at 4 to 75.0 % at 8."
    )
    arm = an_arm("A", 1600)
    rows = [{"n": 1, "A": arm, "B": share(0.5)}, {"n": 2, "A": None, "B": 0.25}]
    low, high = arm.accuracy.interval
    assert list(csv.DictReader(io.StringIO(charts.to_csv(rows)))) == [
        {"n": "1", "A": "0.8", "A low": f"{low:.5g}", "A high": f"{high:.5g}", "B": "0.5"},
        {"n": "2", "A": "", "A low": "", "A high": "", "B": "0.25"},
    ]
    assert charts.to_csv(rows).splitlines()[0] == "n,A,A low,A high,B"
