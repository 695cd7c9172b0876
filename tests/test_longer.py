"""More training, watched: what is kept, what is judged, and how the page reads it."""

import importlib

import pytest

from experiments.lab2_overfitting import longer
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
    found, point = lab.best_trial(r, 0)
    assert found.case.params["draw"] == 4
    assert point == {"a": 2, "b": 2}


def trained(best_test, last_test, best_own, last_own):
    """A further training whose models have these losses on test and on their own sentences."""

    def one(test, own):
        judged = judgement(1000) | {"losses": test}
        return {"test": judged, "trained": {"losses": own, "accuracy": 0.5}}

    values = {
        "models": {"best": one(best_test, best_own), "last": one(last_test, last_own)},
        "best_step": 6,
        "steps_per_epoch": 24,
    }
    params = {"model_of": lab.FOUND, "seed": 0, "more_epochs": 6, "more_examples": 384}
    case = Case(experiment="lab2_overfitting", params=params)
    return Records([sealed(a_record(case=case, values=values))])


LOW, HIGH = [0.1, 0.2, 0.15, 0.12], [0.9, 1.1, 1.0, 1.2]


@pytest.mark.parametrize(
    ("losses", "agrees", "decided"),
    [
        ((LOW, HIGH, HIGH, LOW), True, True),  # it overfits
        ((HIGH, LOW, HIGH, LOW), False, True),  # it learns what it has not seen too
        ((LOW, HIGH, LOW, HIGH), False, True),  # it forgets its own: no overfitting
        ((LOW, LOW, HIGH, LOW), True, False),  # the end is where validation prefers it
    ],
)
def test_overfitting_is_both_halves(losses, agrees, decided):
    judged = lab.the_best_model_overfits(trained(*losses))
    assert (judged.p < 0.05) == decided
    assert judged.agrees == agrees or not decided
    assert "0.25 epochs" in judged.supported
