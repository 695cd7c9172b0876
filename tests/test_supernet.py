"""The searches' workbench: spaces that fit the model, trials that are functions of their point."""

import pytest
import torch
from torch import nn

from experiments.lab2_samplers import study
from madl.errors import MadlError
from madl.logbook.records import Store
from madl.logbook.stats import Outcomes
from madl.training import baseline, search, supernet
from madl.training.supernet import Supernet

MINILM = {
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "hidden_size": 384,
    "intermediate_size": 1536,
}
POINT = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 16, "pooler": "identity"}


class Ctx:
    device = "cpu"

    def __init__(self, root):
        self.artifact, self.folder = Store(root).artifact, Store(root).folder


@pytest.fixture
def net(tmp_path, tiny_model, tiny_dataset) -> Supernet:
    params = {
        "model": str(tiny_model),
        "dataset": str(tiny_dataset),
        "seed": 0,
        "max_length": 32,
        "train_examples": 32,
        "validation_examples": 32,
        "test_examples": 32,
        "epochs": 1,
        "learning_rate": 5e-5,
        "batch_size": 32,
        "trial_examples": 16,
        "trial_learning_rate": 1e-4,
        "trial_batch_size": 8,
        "choose_examples": 32,
    }
    return Supernet(params, Ctx(tmp_path))


@pytest.mark.parametrize(
    ("detail", "points"), [("coarse", 3 * 2 * 3 * 3 * 2**5), ("fine", 6 * 3 * 3 * 3 * 2**5)]
)
def test_the_space_of_the_default_model_holds_sizes_that_exist(detail, points):
    space = supernet.space(MINILM, detail)
    assert search.num_points(space) == points
    assert space["num_hidden_layers"][-1] == 6
    assert space["hidden_size"] == [192, 288, 384]
    search.check_space(space)


def test_a_model_too_small_for_a_choice_is_not_searched_along_it():
    space = supernet.space({**MINILM, "num_hidden_layers": 1}, "compact", identities=False)
    assert set(space) == {"num_attention_heads", "hidden_size", "intermediate_size"}


def test_every_parameter_of_the_space_changes_what_the_model_does(net):
    choices = supernet.space(net.config, "coarse")
    seen = study.of_space(net, choices)
    assert [effect["name"] for effect in seen] == list(choices)
    assert all(effect["changes"] == ["parameters", "output"] for effect in seen)


def test_effects_find_the_parameter_that_changes_nothing():
    space = {"depth": [1, 2], "kind": ["a", "b"], "bias": [0, 1], "width": [3, 4]}

    def build(point):
        return {"parameters": point["depth"] * 10, "output": point["depth"] + point["bias"]}

    found = study.effects(space, build)
    assert {one.name: one.changes for one in found} == {
        "depth": ("parameters", "output"),
        "kind": (),
        "bias": ("output",),
        "width": (),
    }
    with pytest.raises(MadlError, match="search parameter kind changes nothing"):
        study.refuse_idle(found)
    study.refuse_idle(study.effects({"depth": [1, 2]}, lambda p: {"n": p["depth"]}))


def test_a_parameter_that_is_idle_at_some_point_is_refused(net, monkeypatch):
    build = Supernet.build
    always = {"key": supernet.LINEAR}
    monkeypatch.setattr(Supernet, "build", lambda net, point: build(net, {**point, **always}))
    with pytest.raises(MadlError, match="search parameter key changes nothing"):
        study.of_space(net, supernet.space(net.config, "coarse"))


def test_the_largest_point_is_the_whole_model(net):
    model = net.build(study.largest(supernet.space(net.config, "coarse")))
    whole = net.whole.eval()
    batch = baseline.load_splits(net.params).validation.batch(range(4))
    assert torch.allclose(model.eval()(**batch).logits, whole(**batch).logits, atol=1e-5)


def test_a_bert_config_takes_two_of_the_courseworks_names_and_ignores_them(net):
    idle = [one["name"] for one in study.of_course_config(net) if not one["changes"]]
    assert idle == ["num_layers", "num_heads"]


def test_linear_layers_that_are_square_are_of_the_kinds_offered(net):
    # two layers of six Linear ones, the pooler, the classifier
    counted = study.linear_layers(net)
    assert counted == {
        "all": 14,
        "query": 2,
        "key": 2,
        "value": 2,
        "attention_output": 2,
        "pooler": 1,
    }


def test_a_trial_is_made_once_and_gives_the_same_again(net, tmp_path, monkeypatch):
    first = net.trial(POINT)
    assert 0 <= first["accuracy"] <= 1
    fresh = Supernet(net.params, Ctx(tmp_path / "elsewhere"))
    fresh.folder = net.folder  # the same fine-tuned model
    assert fresh.trial(POINT) == first
    monkeypatch.setattr(Supernet, "build", lambda *_: pytest.fail("evaluated twice"))
    assert net.trial(POINT) == first


def test_what_is_judged_is_what_the_trial_saw(net):
    judged, trial = net.judged(POINT), net.trial(POINT)
    assert judged["validation"]["accuracy"] == trial["accuracy"]
    assert Outcomes.from_json(judged["outcomes"]).n == 32


def test_another_training_is_another_trial(net):
    net.trial(POINT)
    net.with_params(trial_examples=8).trial(POINT)
    assert len(list((net.ctx.artifact("x", lambda f: f.mkdir()).parent).glob("trial-*/"))) == 2


def test_a_draw_decides_the_sentences_of_a_trial(net):
    train = baseline.load_splits(net.params).train
    one, again, other = (net.with_params(trial_draw=draw).trial_examples for draw in (1, 1, 2))
    assert list(net.trial_examples.token_ids) == list(train.token_ids[:16])
    assert one.token_ids == again.token_ids != other.token_ids
    assert len(one) == 16
    assert all(ids in train.token_ids for ids in one.token_ids)


def test_a_draw_of_a_trial_leaves_the_splits_and_the_model_that_is_cut_as_they_are(net):
    drawn = Supernet({**net.params, "draw": 7}, net.ctx)
    assert drawn.trial_examples.token_ids != net.trial_examples.token_ids
    assert baseline.load_splits(drawn.params) is baseline.load_splits(net.params)
    assert drawn.folder == net.folder


def test_a_trial_trains_without_dropout_and_holds_the_word_embeddings(net):
    model = net.trained(POINT)
    words = net.build(POINT).bert.embeddings.word_embeddings.weight
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, words)
    assert not torch.equal(model.classifier.weight, net.build(POINT).classifier.weight)
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {0.0}
    assert net.whole.config.hidden_dropout_prob > 0  # the whole model is as it was
    assert {layer.p for layer in net.whole.modules() if isinstance(layer, nn.Dropout)} != {0.0}
