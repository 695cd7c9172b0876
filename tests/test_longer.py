"""More training, watched: what is kept, what is judged, and how the page reads it."""

import importlib

import pytest

from experiments.lab2_overfitting import study as longer
from experiments.lab2_samplers.records import best_trial
from madl.logbook.records import Case, Records, Store, sealed
from tests.conftest import a_record
from tests.synthetic import judgement

lab = importlib.import_module("experiments.lab2_overfitting.page")


class Ctx:
    device = "cpu"

    def __init__(self, root):
        self.artifact, self.folder = Store(root).artifact, Store(root).folder


@pytest.fixture
def values(tmp_path, tiny_model, tiny_dataset):
    params = {
        "model": str(tiny_model),
        "dataset": str(tiny_dataset),
        "seed": 0,
        "max_length": 32,
        "train_examples": 32,
        "validation_examples": 24,
        "test_examples": 32,
        "epochs": 1,
        "learning_rate": 5e-5,
        "batch_size": 32,
        "trial_examples": 16,
        "trial_learning_rate": 1e-3,
        "trial_batch_size": 8,
        "draw": 3,
        "more_epochs": 2,
        "more_examples": 30,
        "more_learning_rate": 1e-3,
        "more_batch_size": 4,
    }
    return longer.trained_on(params, Ctx(tmp_path), {"num_hidden_layers": 1})


def test_it_looks_before_within_the_first_and_after_every_epoch():
    assert sorted(longer.validated_at(8, 4)) == [0, 2, 4, 8, 16, 24, 32]
    assert sorted(longer.tested_at(8, 4)) == [4, 8, 16, 32]
    assert longer.tested_at(8, 4) < longer.validated_at(8, 4)


def test_every_step_and_every_look_is_kept_and_the_lowest_validation_loss_is_the_best(values):
    assert len(values["losses"]) == 2 * values["steps_per_epoch"] == 16
    assert [check["step"] for check in values["checks"]] == [0, 2, 4, 8, 16]
    lowest = min(values["checks"], key=lambda check: check["loss"])
    assert values["best_step"] == lowest["step"]
    assert [check["step"] for check in values["checks"] if "test" in check] == [4, 8, 16]


def test_the_best_and_the_last_are_judged_on_all_of_test_and_all_on_their_training(values):
    assert set(values["models"]) == {"start", "best", "last"}
    assert "test" not in values["models"]["start"]
    for when in ("best", "last"):
        assert len(values["models"][when]["test"]["losses"]) == 32
    assert {len(one["trained"]["losses"]) for one in values["models"].values()} == {30}
    last = values["checks"][-1]["test"]
    assert last["outcomes"] == values["models"]["last"]["test"]["outcomes"]


def test_dropout_is_on_in_the_further_training(tiny_model):
    from torch import nn

    from madl.training import models

    model = models.load_pretrained(str(tiny_model), seed=0)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    layers = [m for m in longer.with_dropout_(model).modules() if isinstance(m, nn.Dropout)]
    assert layers
    assert {layer.p for layer in layers} == {model.config.hidden_dropout_prob}


# ---- the best of the searches -------------------------------------------------------------------


def study(sampler, values, points, seed=0, draw=0):
    params = {"part": "study", "sampler": sampler, "seed": seed, "draw": draw}
    found = {"names": ["a", "b"], "points": points, "values": values, "judged": judgement(900)}
    return sealed(a_record(case=Case(experiment="lab2_samplers", params=params), values=found))


def test_the_best_of_all_studies_is_the_trial_that_validation_prefers_but_for_the_whole_model():
    r = Records(
        [
            study("random", [0.5, 0.7], [[1, 1], [1, 2]]),
            study("tpe", [0.8, 0.9, 0.9, 0.95], [[2, 1], [2, 2], [3, 2], [3, 3]], draw=4),
            study("tpe", [0.99], [[9, 9]], seed=1),
        ]
    )
    found, point = best_trial(r, 0)
    assert found.case.params["draw"] == 4
    assert point == {"a": 2, "b": 2}


def trained(seed, best, last):
    """A further training of that model, whose test sentences have these losses."""
    models = {
        when: {"test": judgement(1000) | {"losses": found}, "trained": {"losses": found}}
        for when, found in (("best", best), ("last", last))
    }
    params = {"model_of": lab.FOUND, "seed": seed}
    case = Case(experiment="lab2_overfitting", params=params)
    return sealed(a_record(case=case, values={"models": models}))


LOW, HIGH = [0.1, 0.2, 0.15, 0.12], [0.9, 1.1, 1.0, 1.2]


def test_the_loss_of_one_model_is_compared_by_sentence():
    made = lab.loss_rises(Records([trained(0, LOW, HIGH)])).comparison
    assert made.effect == pytest.approx(sum(HIGH) / 4 - sum(LOW) / 4)
    assert (made.units, made.population) == (4, "sentences of 1 model")


def test_the_losses_of_several_models_are_compared_by_model():
    every = Records([trained(0, LOW, HIGH), trained(1, [0.2] * 4, [0.4] * 4)])
    made = lab.loss_rises(every).comparison
    assert made.by_unit == pytest.approx((1.05 - 0.1425, 0.2))
    assert (made.units, made.population) == (2, "models")


def test_means_are_taken_apart_by_what_is_right():
    every = Records([trained(0, [0.1, 0.3, 2.0, 4.0], LOW)])
    right, wrong = (lab.where_answer_is(every, "best", is_right) for is_right in (True, False))
    assert (right.value, wrong.value) == (pytest.approx(0.2), pytest.approx(3.0))
    assert lab.falls(every).value == 75
