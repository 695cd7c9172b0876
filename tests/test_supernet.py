"""The searches' workbench: spaces that fit the model, trials that are functions of their point."""

import pytest
import torch
from torch import nn

from experiments.lab2_samplers import study
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Store
from madl.logbook.values import Outcomes
from madl.training import baseline, search, supernet
from madl.training.supernet import Supernet
from tests.conftest import fine_tuned, supernet_of

POINT = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 16, "pooler": "identity"}


@pytest.fixture(scope="module")
def started(training, tmp_path_factory):
    params = {
        **training,
        **{"seed": 0, "trial_examples": 16, "trial_learning_rate": 1e-4, "trial_draw": 1},
        **{"full_examples": None, "trial_batch_size": 8, "full_batch_size": 8},
    }
    return fine_tuned(params, tmp_path_factory.mktemp("started"))


@pytest.fixture
def net(started, ctx) -> Supernet:
    return supernet_of(started, ctx)


def test_the_space_of_the_default_model_holds_sizes_that_exist():
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
    space = supernet.space(dict(zip(sizes, (6, 12, 384, 1536))))
    assert search.num_points(space) == 3 * 2 * 3 * 3 * 2**5
    assert space["num_hidden_layers"][-1] == 6
    assert space["hidden_size"] == [192, 288, 384]
    search.check_space(space)


def test_every_parameter_changes_the_model_and_an_idle_one_is_refused(net, monkeypatch):
    choices = supernet.space(net.shape)
    seen = study.audit_space(net, choices)
    assert [row["name"] for row in seen] == list(choices)
    assert all(row["changes"] == ["parameters", "output"] for row in seen)
    build = Supernet.build
    always = {"key": supernet.LINEAR}
    monkeypatch.setattr(Supernet, "build", lambda net, point: build(net, {**point, **always}))
    with pytest.raises(MadlError, match="search parameter key changes nothing"):
        study.audit_space(net, supernet.space(net.shape))


def test_the_largest_point_is_the_whole_model_and_two_names_of_the_coursework_are_idle(net):
    model = net.build(study.largest(supernet.space(net.shape)))
    whole = net.whole.eval()
    batch = baseline.load_splits(net.params).validation.batch(range(4))
    assert torch.allclose(model.eval()(**batch).logits, whole(**batch).logits, atol=1e-5)
    idle = [one["name"] for one in study.audit_course_config(net) if not one["changes"]]
    assert idle == ["num_layers", "num_heads"]


def test_a_trial_is_made_once_and_gives_the_same_again(net, tmp_path, monkeypatch):
    first = net.trial(POINT)
    fresh = Supernet(net.params, Context(device="cpu", store=Store(tmp_path / "elsewhere")))
    fresh.folder = net.folder  # the same fine-tuned model
    assert fresh.trial(POINT) == first
    monkeypatch.setattr(Supernet, "build", lambda *_: pytest.fail("evaluated twice"))
    assert net.trial(POINT) == first


def test_another_training_is_another_trial(net, monkeypatch):
    keys: list[dict] = []
    monkeypatch.setattr(supernet, "memoized", lambda ctx, what, evaluate: keys.append(what))
    recipe = {"trial_batch_size": 4, "trial_learning_rate": 1e-3}
    changes = {"seed": 1, "trial_draw": 2, "trial_examples": 8, **recipe}
    for change in ({}, *({name: value} for name, value in changes.items())):
        Supernet({**net.params, **change}, net.ctx).trial(POINT)
    assert len({repr(key) for key in keys}) == 6


def test_a_draw_decides_the_sentences_of_a_trial_and_nothing_else(net):
    other, again = Supernet({**net.params, "trial_draw": 2}, net.ctx), Supernet(net.params, net.ctx)
    drawn, train = net.trial_examples.token_ids, baseline.load_splits(net.params).train.token_ids
    assert drawn == again.trial_examples.token_ids != other.trial_examples.token_ids
    assert len(drawn) == 16
    assert all(ids in train for ids in drawn)
    assert baseline.load_splits(other.params) is baseline.load_splits(net.params)
    assert other.folder == net.folder


def test_in_full_dropout_is_on_and_test_is_met_only_where_it_may_be(net, monkeypatch):
    shares = {layer.p for layer in net.whole.modules() if isinstance(layer, nn.Dropout)}
    model = net.trained_in_full(POINT, 1e-3)
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == shares
    assert shares != {0.0}
    assert Outcomes.from_json(net.judged_in_full(POINT, 1e-3, on_test=True)["outcomes"]).n == 32
    monkeypatch.setattr(baseline, "judge_on_test", lambda *_, **__: pytest.fail("met test"))
    assert "outcomes" not in net.judged_in_full(POINT, 1e-3, on_test=False)
    rates = {"full_learning_rate": 1e-3, "whole_learning_rate": 1e-3}
    params = {**net.params, **rates, "sampler": "tpe", "trials": 2}
    values = study.run({**params, "part": "study"}, net.ctx)
    again = study.run({**params, "part": "study", "full_learning_rate": 2e-3}, net.ctx)
    assert again["points"] == values["points"]
    assert values["judged"].keys() == {"validation_accuracy", "validation_loss"}


def test_a_trial_trains_without_dropout_and_holds_the_word_embeddings(net):
    model, before = net.trained(POINT), net.build(POINT)
    for part, same in (("bert.embeddings.word_embeddings", True), ("classifier", False)):
        weights = [one.get_submodule(part).weight for one in (model, before)]
        assert torch.equal(*weights) == same
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {0.0}
    assert {layer.p for layer in net.whole.modules() if isinstance(layer, nn.Dropout)} != {0.0}
