"""Best-so-far curves: checked by hand."""

import pytest

from madl.logbook import searches

STUDY = [0.5, 0.7, 0.6, 0.7, 0.9]


def test_the_best_so_far_never_falls():
    assert searches.best_so_far(STUDY) == [0.5, 0.7, 0.7, 0.7, 0.9]


def test_the_best_is_found_at_its_first_trial():
    assert searches.found_at(STUDY) == 5
    assert searches.found_at([0.7, 0.7]) == 1


def test_trials_to_reach_a_level():
    assert searches.trials_to_reach(STUDY, 0.7) == 2
    assert searches.trials_to_reach(STUDY, 0.95) is None


def test_the_interval_of_a_mean_is_student_s():
    low, high = searches.mean_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert searches.mean_interval([1.0]) is None


def test_curves_are_means_over_studies_with_a_band():
    rows = searches.curve_rows({"A": [[1.0, 3.0], [2.0, 1.0]], "B": [[0.5]]})
    assert [row["trial"] for row in rows] == [1, 2]
    assert [row["A"] for row in rows] == [1.5, 2.5]
    assert rows[1]["A low"] < 2.5 < rows[1]["A high"]
    assert [row["B"] for row in rows] == [0.5, None]
    assert rows[0]["B low"] is None
    assert "after 2 trials A 250.0%" in searches.curves_alt(rows, ["A", "B"])


def test_curves_are_drawn_in_both_themes_and_sizes():
    from madl.logbook import plots
    from madl.logbook.experiment import Figure

    rows = searches.curve_rows({"A": [[0.1, 0.3], [0.2, 0.1]], "B": [[0.5, 0.6]]})
    roles = {"A": "first", "B": "second"}

    def draw(ax, rows):
        searches.draw_curves(ax, rows, roles, accuracy="validation accuracy", startup=1)

    figure = Figure(caption="", rows=lambda records: rows, draw=draw, alt=lambda rows: "")
    for theme in plots.THEMES:
        for size in plots.SIZES:
            assert "<svg" in plots.svg(figure, rows, theme=theme, size=size)


def test_the_front_is_what_no_smaller_point_reaches():
    sizes, values = [4, 1, 2, 3, 2, 5], [0.9, 0.5, 0.7, 0.6, 0.8, 0.9]
    assert searches.front(sizes, values) == [1, 4, 0]
    assert searches.front([1], [0.0]) == [0]
