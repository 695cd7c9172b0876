"""An estimate drawn in HTML: where its parts stand, and that its ticks are round."""

import math
import re

import pytest

from madl.logbook.claims import Contrast
from madl.logbook.stats import mean
from madl.logbook.values import Unit
from madl.site import intervals
from madl.site.intervals import Axis


def places(html: str, look: str) -> list[float]:
    """Where the parts of this look stand, in per cent of the width."""
    found = re.findall(rf'class="{look}[^"]*" style="--at:([\d.]+)%', html)
    return [float(place) for place in found]


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ([-0.043, 0.0], Unit.POINTS, ["−4", "−2 points"]),
        ([-0.089, 0.0], Unit.POINTS, ["−7.5", "−5", "−2.5 points"]),
        ([0.818, 0.835], Unit.PERCENT, ["82.0", "82.5", "83.0 %"]),
        ([0.0, math.log(1.5)], Unit.TIMES, ["1", "1.2", "1.4 ×"]),
        ([12.1, 12.4], Unit.MILLISECONDS, ["12.1", "12.2", "12.3 ms"]),
    ],
)
def test_ticks_are_round_as_a_reader_sees_them_and_stand_where_they_say(values, unit, texts):
    axis = Axis.over(values, unit)
    assert [text.replace("\xa0", " ") for _, text in axis.ticks()] == texts
    for place, text in axis.ticks():
        shown = float(text.partition("\xa0")[0].replace("−", "-"))
        assert unit.shown(place) == pytest.approx(shown, abs=1e-9)
    assert Axis.over([0.0], unit).ticks()  # all alike: there is still an axis


def test_units_stand_in_their_order_and_the_hypothesis_is_tinted_from_its_boundary_on():
    each = [-0.03, -0.01, 0.005]
    comparison = mean(each, unit=Unit.POINTS, unit_name="models")
    contrast = Contrast(comparison=comparison, cases=()).no_worse()
    how = {"words": "an effect", "contrast": contrast}
    html = intervals.drawn(comparison.effect, comparison.interval, each, Unit.POINTS, **how)
    assert places(html, "unit") == sorted(places(html, "unit"))
    (low,), (high,) = places(html, "bar"), re.findall(r'bar" style="[^"]*--to:([\d.]+)%', html)
    assert low < places(html, "mean")[0] < float(high)
    (margin,), (zero,) = places(html, "line margin"), places(html, "line zero")
    assert margin < zero
    assert places(html, "zone") == [margin]  # what is at most a point worse, and all that is better
    assert 'aria-label="an effect"' in html


def test_a_reported_number_stands_beside_ours_on_an_axis_from_nought():
    html = intervals.pair(86.7, 66.0, "66\xa0%")
    (theirs,), (ours,) = places(html, "theirs"), places(html, "mean")
    assert theirs / ours == pytest.approx(86.7 / 66, rel=1e-2)
    assert 'aria-label="reported 86.7\xa0%, measured 66\xa0%"' in html


def test_numbers_below_nought_lie_on_the_axis():
    html = intervals.pair(-2.0, -1.0, "−1")
    assert all(0 <= float(at) <= 100 for at in re.findall(r"--(?:at|to):([\d.-]+)%", html))
