"""Searches: best-so-far curves, fronts and units of studies, checked by hand."""

import numpy as np
import pytest

from madl.logbook import searches
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
    made = searches.mean_estimate([1.0, 2.0, 3.0])
    half = 4.3027 / 3**0.5
    assert plain(made) == 2.0
    assert interval_of(made) == pytest.approx((2 - half, 2 + half), abs=1e-4)
    assert searches.mean_estimate([1.0]).interval is None


def test_curves_are_means_over_studies_with_an_interval():
    rows = searches.curve_rows({"A": [[1.0, 3.0], [2.0, 1.0]], "B": [[0.5]]})
    assert [row["trial"] for row in rows] == [1, 2]
    assert [plain(row["A"]) for row in rows] == [1.5, 2.5]
    low, high = interval_of(rows[1]["A"])
    assert low < 2.5 < high
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


def study(sampler, number, seed, value):
    correct = np.arange(40) % 4 != number
    outcomes = Outcomes(correct, "split").to_json()
    params = {"sampler": sampler, "study": number, "seed": seed}
    values = {"value": value, "judged": {"outcomes": outcomes, "accuracy": 0.75, "loss": 1.0}}
    return sealed(a_record(case=Case(experiment="x", params=params), values=values))


def value_of(record):
    return record.values["value"]


def test_the_units_of_one_model_are_its_studies_and_of_several_the_models():
    one = Records([study("tpe", i, 0, value) for i, value in enumerate((0.7, 0.9))])
    two = Records([*one, *(study("tpe", i, 1, 0.5) for i in range(2))])
    assert searches.of_units(one, value_of) == [0.7, 0.9]
    assert searches.of_units(two, value_of) == pytest.approx([0.8, 0.5])
    other = Records([study("random", i, 0, value) for i, value in enumerate((0.6, 0.7))])
    made = searches.compare_values(one, other, value_of).comparison
    assert made.effect == pytest.approx(0.15)
    assert made.drawn == "2 studies of 1 model"


def test_studies_of_one_model_are_not_called_seeds():
    one = Records([study("tpe", i, 0, 0.5) for i in range(3)])
    other = Records([study("random", 3 - i, 0, 0.5) for i in range(3)])
    a, b = (
        searches.chosen(records, name, "judged") for name, records in (("A", one), ("B", other))
    )
    made = searches.compare_chosen(a, b).comparison
    assert made.drawn == "3 studies of 1 model × 40 test examples"
    assert "seed" not in made.test + made.needs(0.01)


def test_of_several_models_the_first_study_is_what_is_judged():
    both = Records([study("tpe", i, seed, 0.5) for seed in range(2) for i in range(3)])
    arm = searches.chosen(both, "A", "judged")
    assert [record.case.params["seed"] for record in arm.records] == [0, 1]
    missing = Records(both, missing=[Case(experiment="x", params={"seed": 0, "study": 9})])
    with pytest.raises(Pending):
        searches.of_units(missing, value_of)
