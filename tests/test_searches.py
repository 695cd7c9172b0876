"""Searches: best-so-far curves, fronts and units of studies, checked by hand."""

import numpy as np
import pytest

from madl.logbook import searches
from madl.logbook.arms import Arm
from madl.logbook.charts import doubling, interval_of, plain
from madl.logbook.records import Case, Pending, Records, sealed
from madl.logbook.stats import Estimate, Outcomes, Unit
from tests.conftest import a_record

STUDY = [0.5, 0.7, 0.6, 0.7, 0.9]


def test_the_best_so_far_never_falls():
    assert searches.best_so_far(STUDY) == [0.5, 0.7, 0.7, 0.7, 0.9]


def test_the_best_is_found_at_its_first_trial():
    assert searches.found_at(STUDY) == 5
    assert searches.found_at([0.7, 0.7]) == 1


def test_the_interval_of_a_mean_is_student_s():
    made = searches.mean_estimate([0.4, 0.5, 0.6])
    half = 0.43027 / 3**0.5
    assert plain(made) == 0.5
    assert interval_of(made) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    assert interval_of(searches.mean_estimate([0.8, 0.9, 1.0]))[1] == 1.0  # no share is more
    assert searches.mean_estimate([1.0]).interval is None


def test_curves_are_means_over_studies_with_an_interval():
    rows = searches.curve_rows({"A": [[0.4, 0.6], [0.5, 0.4]], "B": [[0.5]]})
    assert [row["trial"] for row in rows] == [1, 2]
    assert [plain(row["A"]) for row in rows] == [0.45, 0.55]
    low, high = interval_of(rows[1]["A"])
    assert low < 0.55 < high
    assert [plain(row["B"]) for row in rows] == [0.5, None]
    assert interval_of(rows[0]["B"]) is None


def test_a_chart_of_curves_has_a_line_a_search_and_shades_what_is_random():
    rows = searches.curve_rows({"A": [[0.1, 0.3], [0.2, 0.1]], "B": [[0.5, 0.6]]})
    chart = searches.curves_chart(rows, accuracy="validation accuracy", startup=1)
    assert [mark.kind for mark in chart.marks] == ["span", "line", "line"]
    assert chart.series()[1:] == ["A", "B"]


# ---- fronts -------------------------------------------------------------------------------------


def test_the_front_is_what_no_smaller_point_reaches():
    sizes, values = [4, 1, 2, 3, 2, 5], [0.9, 0.5, 0.7, 0.6, 0.8, 0.9]
    assert searches.front(sizes, values) == [1, 4, 0]
    assert searches.front([1], [0.0]) == [0]


POINTS = [
    {"bits": 4, "value": 0.8, "model": "A"},
    {"bits": 2, "value": 0.9, "model": "B"},
    {"bits": 1, "value": 0.5, "model": "A"},
    {"bits": 2, "value": 0.4, "model": "A"},
]


def fronts(**options):
    chart = searches.front_chart(
        POINTS, size=doubling("bits"), **({"value": "value", "by": "model"} | options)
    )
    named = [mark.column for mark in chart.marks if mark.kind == "line"]
    return {
        name: [(row["bits"], row["value"]) for row in chart.rows if row.get(name) is not None]
        for name in named
    }


def test_a_chart_has_a_front_a_series_or_one_for_all():
    assert fronts() == {"A, front": [(1, 0.5), (4, 0.8)], "B, front": [(2, 0.9)]}
    assert fronts(common=True) == {"front": [(1, 0.5), (2, 0.9)]}
    assert all("A, front" not in row for row in POINTS)  # nobody else's rows were touched


def test_no_front_is_made_of_test_values():
    tested = [row | {"test": Estimate(0.5, None, Unit.PERCENT, 9)} for row in POINTS]
    with pytest.raises(TypeError, match="a test value chooses nothing"):
        searches.front_chart(tested, size=doubling("bits"), value="test")
    chart = searches.front_chart(tested, size=doubling("bits"), value="test", front_by="value")
    assert [row["bits"] for row in chart.rows if "front" in row] == [1, 2]


# ---- studies as units ---------------------------------------------------------------------------


def study(sampler, number, seed, value, *, wrong=4, seen_wrong=4):
    """One in `wrong` test examples is wrong, and one in `seen_wrong` of validation, not the same
    ones in every study."""
    params = {"sampler": sampler, "study": number, "seed": seed}
    judged = judgement_of(np.arange(400) % wrong != number % wrong, "test")
    judged["validation"] = judgement_of(np.arange(200) % seen_wrong != number % seen_wrong, "val")
    values = {"value": value, "judged": judged}
    return sealed(a_record(case=Case(experiment="x", params=params), values=values))


def judgement_of(correct, examples):
    outcomes = Outcomes(correct, examples)
    return {"outcomes": outcomes.to_json(), "accuracy": float(correct.mean())}


def value_of(record):
    return record.values["value"]


def an_arm(*records):
    return Arm(label="a", records=records, within=("judged",), units=searches.STUDIES)


VALIDATION = ("judged", "validation")


def test_the_units_of_one_model_are_its_studies_and_of_several_the_models():
    one = Records([study("tpe", i, 0, value) for i, value in enumerate((0.7, 0.9))])
    two = Records([*one, *(study("tpe", i, 1, 0.5) for i in range(2))])
    assert searches.of_units(one, value_of) == [0.7, 0.9]
    assert searches.of_units(two, value_of) == pytest.approx([0.8, 0.5])
    other = Records([study("random", i, 0, value) for i, value in enumerate((0.6, 0.7))])
    made = searches.compare_values(one, other, value_of).comparison
    assert made.effect == pytest.approx(0.15)
    assert (made.population, made.units) == ("studies", 2)
    missing = Records(two, missing=[Case(experiment="x", params={"seed": 0, "study": 9})])
    with pytest.raises(Pending):
        searches.of_units(missing, value_of)


# ---- ranks --------------------------------------------------------------------------------------


def test_a_rank_correlation_looks_at_the_order_alone():
    a = [0.1, 0.2, 0.3, 0.5, 0.9]
    assert searches.rank_correlation(a, [x**3 for x in a]) == pytest.approx(1)
    assert searches.rank_correlation(a, a[::-1]) == pytest.approx(-1)
    assert searches.rank_correlation(a, [0.5] * 5) == 0
    assert searches.rank_correlation(a, [0.2, 0.1, 0.3, 0.5, 0.9]) == pytest.approx(1 - 6 * 2 / 120)
