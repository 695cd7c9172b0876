"""Searches: best-so-far curves and their means, checked by hand."""

import re

import pytest

from madl.errors import MadlError
from madl.logbook import searches
from madl.logbook.charts import interval_of, plain
from tests.synthetic import kept_of, read


def test_the_interval_of_a_mean_and_of_each_point_of_a_curve_is_student_s():
    made = searches.mean_estimate([0.4, 0.5, 0.6])
    half = 0.43027 / 3**0.5
    assert plain(made) == 0.5
    assert interval_of(made) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    assert interval_of(searches.mean_estimate([0.8, 0.9, 1.0]))[1] == 1.0  # no share is more
    assert searches.mean_estimate([1.0]).interval is None
    rows = searches.mean_rows({"A": [[0.4, 0.6], [0.5, 0.5]], "B": [[0.5]], "C": [[None, 0.3]]})
    assert [row["trial"] for row in rows] == [1, 2]
    assert [plain(row["A"]) for row in rows] == [0.45, 0.55]
    low, high = interval_of(rows[1]["A"])
    assert low < 0.55 < high
    assert [plain(row["B"]) for row in rows] == [0.5, None]
    assert interval_of(rows[0]["B"]) is None
    assert [plain(row["C"]) for row in rows] == [None, 0.3]


def test_ranks_look_at_the_order_alone_and_a_curve_begins_with_what_fits_and_never_rises():
    a = [0.1, 0.2, 0.3, 0.5, 0.9]
    assert searches.rank_correlation(a, [x**3 for x in a]) == pytest.approx(1)
    assert searches.rank_correlation(a, a[::-1]) == pytest.approx(-1)
    assert searches.rank_correlation(a, [0.5] * 5) == 0
    assert searches.rank_correlation(a, [0.2, 0.1, 0.3, 0.5, 0.9]) == pytest.approx(1 - 6 * 2 / 120)
    assert searches.least_so_far([None, 0.6, None, 0.7, 0.5]) == [None, 0.6, 0.6, 0.6, 0.5]
    assert searches.highest_so_far([None, 0.6, None, 0.5, 0.7]) == [None, 0.6, 0.6, 0.6, 0.7]


@pytest.mark.parametrize(
    ("losses", "taken"),
    [
        ({1e-5: 0.32, 3e-5: 0.31, 1e-4: 0.33}, 3e-5),
        ({3e-5: 0.36, 1e-4: 0.35, 3e-4: 0.33, 1e-3: 0.693}, 1e-4),  # 3e-4 is next to a collapse
        ({1e-5: 0.30, 3e-5: 0.31}, 1e-5),  # a lower one tends to no training at all
        ({1e-5: 0.32, 3e-5: 0.31}, "the largest is best (3e-05); try a larger one"),
        ({1e-4: 0.40, 3e-4: 0.694}, "collapses at all rates, or next to them; try smaller ones"),
    ],
)
def test_the_rate_of_least_loss_is_taken_unless_it_is_next_to_a_collapse(losses, taken):
    if isinstance(taken, str):
        with pytest.raises(MadlError, match=re.escape(taken)):
            searches.preferred_rate(losses)
    else:
        assert searches.preferred_rate(losses) == taken


def test_a_table_of_rates_marks_the_chosen_one_and_the_preferred_if_it_is_another():
    losses = {1e-5: 0.32, 3e-5: 0.31, 1e-4: 0.33}
    tuned = read(*(kept_of("x", {"validation_loss": v}, rate=r) for r, v in losses.items()))

    def row(**chosen):
        (made,) = searches.rate_rows(tuned, {"A": {}}, "rate", chosen=chosen)
        return [made["1e-5"], made["3e-5"], made["1e-4"]]

    assert row(A=3e-5) == ["0.3200", "0.3100, chosen", "0.3300"]
    assert row(A=1e-4) == ["0.3200", "0.3100, preferred", "0.3300, chosen"]
    assert row(B=1e-4) == row(A=9.0) == ["0.3200", "0.3100", "0.3300"]
