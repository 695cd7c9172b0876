"""Question 2.3: what is looked at on the way, what is kept, and how the page reads it."""

import pytest
import torch
import torch.nn.functional as F

from experiments.lab2_overfitting import page, study
from experiments.lab2_samplers.records import best_choice
from madl.logbook.experiment import Context
from madl.logbook.records import Pending, Store
from tests.synthetic import judgement, kept_of, read


@pytest.fixture(scope="module")
def values(training, tmp_path_factory):
    ctx = Context(device="cpu", store=Store(tmp_path_factory.mktemp("longer")))
    params = {
        **training,
        **{"validation_examples": 24, "trial_draw": 3, "full_examples": 30, "full_epochs": 2},
        **{"full_learning_rate": 1e-3, "full_batch_size": 4},
    }
    return study.train_on(params, ctx, {"num_hidden_layers": 1})


def test_it_looks_before_and_after_every_epoch_and_reads_what_is_right_apart():
    assert sorted(study.validated_at(8, 4)) == [0, 2, 4, 8, 16, 24, 32]
    every = read(trained(10, [0.1, 0.3, 2.0, 4.0], LOW))
    right, wrong = (page.loss_where(every, "best", is_right) for is_right in (True, False))
    assert (right.value, wrong.value) == (pytest.approx(0.2), pytest.approx(3.0))
    assert page.falls(every).value == 75


def test_every_look_is_kept_and_the_best_and_the_last_are_judged_on_all_of_test(values):
    assert len(values["losses"]) == 2 * values["steps_per_epoch"] == 16
    assert [check["step"] for check in values["checks"]] == [0, 2, 4, 8, 16]
    assert all("test" in check for check in values["checks"])
    assert values["peak_step"] in [check["step"] for check in values["checks"]]
    lowest = min(values["checks"], key=lambda check: check["loss"])
    assert values["best_step"] == lowest["step"]
    assert set(values["models"]) == {"best", "last", "peak"}
    for when in ("best", "last"):
        kept = values["models"][when]
        assert len(kept["test"]["losses"]) == len(kept["cooled"]) == 32
    last = values["checks"][-1]["test"]
    assert last["outcomes"] == values["models"]["last"]["test"]["outcomes"]


def test_a_temperature_is_that_of_least_loss_and_one_changes_nothing():
    torch.manual_seed(0)
    logits = torch.randn(2000, 2)
    labels = torch.distributions.Categorical(logits=logits).sample()
    losses = F.cross_entropy(3 * logits, labels, reduction="none")
    temperature = study.fitted_temperature(losses.tolist())
    assert temperature == pytest.approx(3, rel=0.1)
    cooled = F.cross_entropy(3 * logits / temperature, labels, reduction="none")
    assert study.at_temperature(losses.tolist(), temperature) == pytest.approx(
        cooled.tolist(), abs=5e-3
    )
    assert study.at_temperature([0.1, 2.0], 1.0) == pytest.approx([0.1, 2.0])


def test_one_epoch_is_judged_as_the_sampler_study_judges_its_choice(values):
    assert values["one_epoch"].keys() >= {"accuracy", "loss", "outcomes"}
    assert values["one_epoch"]["loss"] != values["models"]["last"]["test"]["loss"]


def searched(accuracies, points, seed=10, sampler="tpe"):
    params = {"part": "study", "sampler": sampler, "seed": seed, "trial_draw": seed}
    found = {"names": ["a", "b"], "points": points, "accuracies": accuracies}
    return kept_of("lab2_samplers", found, **params)


def test_the_best_model_is_the_choice_that_validation_prefers_but_for_the_whole_model():
    r = read(
        searched([0.5, 0.6], [[1, 1], [1, 2]]),
        searched([0.5, 0.7, 0.7], [[2, 1], [2, 2], [3, 2]], sampler="grid"),
        searched([0.5, 0.9], [[2, 1], [3, 3]], sampler="random"),  # the whole model
        searched([0.95], [[2, 3]], sampler="independent tpe"),  # no sampler that is compared
        *(searched([0.8], [[9, 9]], seed=11, sampler=name) for name in ("tpe", "grid", "random")),
    )
    best, point = best_choice(r, 10)
    assert best.case.params["sampler"] == "grid"
    assert point == {"a": 2, "b": 2}
    with pytest.raises(Pending, match="less than the whole"):
        best_choice(r, 11)


def trained(seed, best, last):
    models = {
        when: {"test": judgement(1000) | {"losses": found}}
        for when, found in (("best", best), ("last", last))
    }
    return kept_of(page.STEM, {"models": models}, model_of=page.CUT_MODEL, seed=seed)


LOW, HIGH = [0.1, 0.2, 0.15, 0.12], [0.9, 1.1, 1.0, 1.2]


def test_the_loss_of_one_model_is_compared_by_sentence_and_of_several_by_model():
    made = page.loss_rises(read(trained(10, LOW, HIGH))).comparison
    assert made.effect == pytest.approx(sum(HIGH) / 4 - sum(LOW) / 4)
    assert (made.units, made.population) == (4, "test sentences")
    every = read(trained(10, LOW, HIGH), trained(11, [0.2] * 4, [0.4] * 4))
    made = page.loss_rises(every).comparison
    assert made.by_unit == pytest.approx((1.05 - 0.1425, 0.2))
    assert (made.units, made.population) == (2, "models")
