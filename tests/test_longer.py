"""Question 2.3: what is looked at on the way, what is kept, and how the page reads it."""

import pytest

from experiments.lab2_overfitting import page, study
from experiments.lab2_samplers.records import best_trial
from madl.logbook.experiment import Context
from madl.logbook.records import Store
from tests.synthetic import judgement, kept_of, read


@pytest.fixture(scope="module")
def values(training, tmp_path_factory):
    ctx = Context(device="cpu", store=Store(tmp_path_factory.mktemp("longer")))
    params = {
        **training,
        **{"validation_examples": 24, "trial_draw": 3, "trial_examples": 30, "more_epochs": 2},
        **{"trial_learning_rate": 1e-3, "trial_batch_size": 4},
    }
    return study.train_on(params, ctx, {"num_hidden_layers": 1})


def test_it_looks_before_and_after_every_epoch_and_reads_what_is_right_apart():
    assert sorted(study.validated_at(8, 4)) == [0, 2, 4, 8, 16, 24, 32]
    assert sorted(study.tested_at(8, 4)) == [16, 32]
    assert study.tested_at(8, 6) < study.validated_at(8, 6)
    every = read(trained(10, [0.1, 0.3, 2.0, 4.0], LOW))
    right, wrong = (page.loss_where(every, "best", is_right) for is_right in (True, False))
    assert (right.value, wrong.value) == (pytest.approx(0.2), pytest.approx(3.0))
    assert page.falls(every).value == 75


def test_every_look_is_kept_and_the_best_and_the_last_are_judged_on_all_of_test(values):
    assert len(values["losses"]) == 2 * values["steps_per_epoch"] == 16
    assert [check["step"] for check in values["checks"]] == [0, 2, 4, 8, 16]
    assert [check["step"] for check in values["checks"] if "test" in check] == [16]
    lowest = min(values["checks"], key=lambda check: check["loss"])
    assert values["best_step"] == lowest["step"]
    assert set(values["models"]) == {"best", "last"}
    for one in values["models"].values():
        assert (len(one["test"]["losses"]), len(one["trained"]["losses"])) == (32, 30)
    last = values["checks"][-1]["test"]
    assert last["outcomes"] == values["models"]["last"]["test"]["outcomes"]


def searched(losses, points, seed=10, draw=0):
    params = {"part": "study", "sampler": "tpe", "seed": seed, "trial_draw": draw}
    found = {"names": ["a", "b"], "points": points, "losses": losses}
    return kept_of("lab2_samplers", found, **params)


def test_the_best_of_all_studies_is_the_trial_that_validation_prefers_but_for_the_whole_model():
    r = read(
        searched([0.5, 0.4], [[1, 1], [1, 2]]),
        searched([0.5, 0.3, 0.3, 0.1], [[2, 1], [2, 2], [3, 2], [3, 3]], draw=4),
        searched([0.2], [[9, 9]], seed=11),
    )
    found, point = best_trial(r, 10)
    assert found.case.params["trial_draw"] == 4
    assert point == {"a": 2, "b": 2}


def trained(seed, best, last):
    models = {
        when: {"test": judgement(1000) | {"losses": found}, "trained": {"losses": found}}
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
