"""Studies of the architecture search, as their page compares them: checked by hand."""

import importlib

import numpy as np
import pytest

from madl.logbook.charts import interval_of, plain
from madl.logbook.records import Case, Records, sealed
from madl.logbook.stats import Outcomes
from tests.conftest import a_record

lab = importlib.import_module("experiments.lab2_samplers.page")
NAMES = ["num_hidden_layers", "key"]


def study(sampler, seed, number, *, wrong, values, points):
    correct = np.arange(400) >= wrong
    judged = {
        "outcomes": Outcomes(correct, "test").to_json(),
        "accuracy": float(correct.mean()),
    }
    found = {
        "judged": judged,
        "names": NAMES,
        "points": points,
        "values": values,
        "accuracy": max(values),
    }
    params = {"part": "study", "sampler": sampler, "seed": seed, "study": number}
    if sampler == "whole":
        params = {"part": "whole", "seed": seed, "study": number}
    case = Case(experiment="lab2_samplers", params=params)
    return sealed(a_record(case=case, values=found))


POINTS = [[2, "linear"], [6, "identity"], [6, "linear"]]
WRONG = {"tpe": (80, 100, 90, 60), "random": (100, 100, 120, 100), "whole": (80, 90, 100, 100)}


@pytest.fixture
def records():
    values = {"tpe": [0.5, 0.6, 0.8], "random": [0.5, 0.7, 0.6], "grid": [0.6, 0.5, 0.8]}
    return Records(
        study(sampler, i // 2, i % 2, wrong=wrong, values=values.get(sampler, [0.9]), points=POINTS)
        for sampler, each in {**WRONG, "grid": (90,) * 4}.items()
        for i, wrong in enumerate(each)
    )


def test_choices_are_compared_by_study_whatever_model_they_are_of(records):
    made = lab.tpe_chooses_better(records).comparison
    assert (made.units, made.population) == (4, "studies")
    assert made.by_unit == pytest.approx((20 / 400, 0, 30 / 400, 40 / 400))
    assert lab.search_beats_none(records).comparison.effect == pytest.approx(40 / 1600)


def test_models_are_the_units_of_the_second_comparison(records):
    made = lab.tpe_chooses_better_by_model(records).comparison
    assert (made.units, made.population) == (2, "models")
    assert made.by_unit == pytest.approx((10 / 400, 35 / 400))


def test_what_is_found_is_paired_by_study(records):
    made = lab.tpe_finds_more(records).comparison
    assert made.effect == pytest.approx(0.1)
    assert (made.units, made.population) == (4, "studies")


def test_a_study_chooses_the_point_of_its_best_trial(records):
    chosen = lab.chosen_point(lab.studies(records, "random")[0])
    assert chosen == {"num_hidden_layers": 6, "key": "identity"}
    assert lab.keeping(records, "num_hidden_layers").value == 4


def test_a_cut_is_worth_the_mean_with_the_smallest_less_that_with_the_largest(records):
    space = [
        {"name": "num_hidden_layers", "values": [2, 4, 6]},
        {"name": "key", "values": ["linear", "identity"]},
    ]
    case = Case(experiment="lab2_samplers", params={"part": "audit", "seed": 0})
    audit = sealed(a_record(case=case, values={"space": space}))
    layers, key = lab.cuts(Records([*records, audit])).rows
    assert (layers["cut"], key["cut"]) == ("2 layers, not 6", "key: identity")
    assert plain(layers["change"]) == pytest.approx((0.5 + 0.6) / 2 - (0.7 + 0.6 + 0.5 + 0.8) / 4)
    assert plain(key["change"]) == pytest.approx((0.7 + 0.5) / 2 - (0.5 + 0.6 + 0.6 + 0.8) / 4)
    assert interval_of(layers["change"]) is not None
