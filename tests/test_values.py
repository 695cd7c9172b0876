"""Values: printed as a reader sees them, read again as they were, and nothing chosen by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from madl.logbook.numbers import count_of_units, magnitude
from madl.logbook.values import (
    Estimate,
    Interval,
    Outcomes,
    Unit,
    number,
    numbers,
    per_cent,
    wilson,
)


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_outcomes_survive_json(correct):
    outcomes = Outcomes(np.array(correct), "x")
    again = Outcomes.from_json(outcomes.to_json())
    assert again._correct.tolist() == correct
    assert again.n == len(correct)


def test_an_estimate_is_printed_and_chooses_nothing():
    estimate = Estimate(0.8215, Interval(0.80, 0.84), Unit.PERCENT, 2000)
    assert f"{estimate}" == "82.2 %" or f"{estimate}" == "82.1 %"
    assert f"{estimate:i}".endswith("% [80.0, 84.0]")
    assert f"{Estimate(-0.012, None, Unit.POINTS, 9):+}" == "−1.2 points"
    assert f"{Estimate(np.log(1.5), None, Unit.TIMES, 9)}" == "1.5 ×"
    for choose in (
        lambda: max(estimate, estimate),
        lambda: estimate > 0.8,
        lambda: float(estimate),
        lambda: estimate + estimate,
        lambda: sorted([estimate, estimate]),
        lambda: estimate == estimate,
        lambda: round(estimate, 2),
        lambda: {estimate: 1},
        lambda: bool(estimate),
    ):
        with pytest.raises(TypeError, match="a test value chooses nothing"):
            choose()


def test_what_rounds_to_nought_has_no_minus():
    estimate = Estimate(-0.0003, Interval(-0.0004, 0.02), Unit.POINTS, 9)
    assert f"{estimate}" == "0.0 points"
    assert f"{estimate:+i}" == "+0.0 points [+0.0, +2.0]"
    assert magnitude(-0.0003, Unit.POINTS) == "0.0\u00a0points"
    assert per_cent(-0.0003) == "0.0 %"
    assert numbers([-0.001, 100.0]) == ["0", "100"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (64, "64"),
        (1024, "1,024"),
        (3.14159, "3.14"),
        (-0.5, "−0.5"),
        (1234.5, "1,230"),
        (758859782.0, "759,000,000"),
        (0.000123, "0.000123"),
        (20.6, "20.6"),
        (99.96, "100"),
        (999.6, "1,000"),
        (-1e-9, "0"),
    ],
)
def test_numbers_have_three_significant_digits_and_counts_are_counts(value, shown):
    assert number(value) == shown


@given(st.integers(0, 50), st.integers(1, 50))
def test_the_interval_of_an_accuracy_is_wilsons(successes, more):
    n = successes + more
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert tuple(wilson(successes / n, n)) == pytest.approx(tuple(expected), abs=1e-12)


def test_one_of_each_population_is_named():
    units = ("models", "seeds", "studies", "processes", "test sentences", "parts of a process")
    named = [count_of_units(1, unit) for unit in units]
    ones = ["model", "seed", "study", "process", "test sentence", "part of a process"]
    assert named == [f"1 {one}" for one in ones]
