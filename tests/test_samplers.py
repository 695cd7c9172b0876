"""Studies of the architecture search, as their page and others compare them: checked by hand."""

import importlib

import pytest

from experiments.lab2_samplers import design
from experiments.lab2_samplers.records import STEM
from madl.logbook.charts import interval_of, plain
from tests.synthetic import judgement, kept_of, read

lab = importlib.import_module("experiments.lab2_samplers.page")
SEEDS, PAIRS, TEST = (10, 11), 2, 2000
POINTS = [[2, "linear"], [6, "identity"], [6, "linear"]]
RIGHT = {"tpe": (1700, 1660, 1680, 1690), "random": (1660, 1660, 1620, 1650)}
LOSSES = {"tpe": [0.7, 0.45, 0.5], "random": [0.7, 0.5, 0.6], "grid": [0.6, 0.6, 0.7]}
WHOLE = {"validation_loss": 0.48, "validation_accuracy": 0.8, "parameters": 200}


def study(sampler, seed, number, right):
    values = {
        "names": ["num_hidden_layers", "key"],
        "points": POINTS,
        "losses": LOSSES[sampler],
        "accuracies": [1 - loss for loss in LOSSES[sampler]],
        "parameters": 100,
        "whole": WHOLE,
        "judged": judgement(right, loss=0.4),
    }
    draw = design.DRAW_STRIDE * seed + number
    return kept_of(STEM, values, part="study", sampler=sampler, seed=seed, trial_draw=draw)


@pytest.fixture
def records():
    pairs = [(seed, number) for seed in SEEDS for number in range(PAIRS)]
    made = [
        study(sampler, *pair, one)
        for sampler, right in RIGHT.items()
        for pair, one in zip(pairs, right, strict=True)
    ]
    made.append(study("grid", 10, 0, 1640))
    made += [
        kept_of(STEM, {"judged": judgement(1650)}, part="whole", seed=seed, trial_draw=100 * seed)
        for seed in SEEDS
    ]
    made += [kept_of("baseline", judgement(1700), method="fp32", seed=seed) for seed in SEEDS]
    return read(*made)


def test_choices_of_one_draw_are_a_pair_and_studies_of_one_model_are_averaged(records):
    made = lab.tpe_chooses_better(records).comparison
    assert (made.units, made.population) == (2, "seeds")
    assert made.by_unit == pytest.approx((20 / TEST, 50 / TEST))
    made = lab.tpe_comes_close(records)
    assert (made.comparison.units, made.boundary) == (2, -design.MARGIN)
    assert made.comparison.by_unit == pytest.approx((-20 / TEST, -15 / TEST))
    trained = lab.tpe_beside_whole_trained(records).comparison
    assert trained.by_unit == pytest.approx((30 / TEST, 35 / TEST))


def test_a_study_chooses_by_loss_of_equal_ones_the_first(records):
    tpe, grid = (lab.studies(records, sampler)[0] for sampler in ("tpe", "grid"))
    assert lab.chosen_point(tpe) == {"num_hidden_layers": 6, "key": "identity"}
    assert lab.chosen_point(grid) == {"num_hidden_layers": 2, "key": "linear"}
    assert lab.so_far(tpe) == pytest.approx([0.3, 0.55, 0.55])
    assert (lab.chosen_at(tpe), lab.chosen_at(grid)) == (2, 1)
    assert lab.keeps_all(records, "num_hidden_layers").value == 4
    assert lab.kept(lab.studies(records, "tpe")).value == 50
    assert lab.trials_agree(records).value == 3  # on one draw the models are as good


def test_a_cut_is_the_mean_with_the_smallest_value_less_that_with_the_largest(records):
    space = [
        {"name": "num_hidden_layers", "values": [2, 4, 6]},
        {"name": "key", "values": ["linear", "identity"]},
    ]
    with_audit = read(kept_of(STEM, {"space": space}, part="audit", seed=10))
    layers, key = lab.cuts(type(records)([*records, *with_audit])).rows
    assert (layers["cut"], key["cut"]) == ("2 layers", "key: identity")
    assert plain(layers["change"]) == pytest.approx(0.3 - (0.5 + 0.4) / 2)
    assert plain(key["change"]) == pytest.approx(0.5 - (0.3 + 0.4) / 2)
    assert interval_of(layers["change"]) is not None
