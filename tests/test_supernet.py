"""The searches' workbench: spaces that fit the model, trials that are functions of their point."""

import importlib
import json

import pytest

from madl.logbook.records import Store
from madl.training import search, supernet
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
        "weights": "inherited",
        "trial_examples": 16,
        "trial_learning_rate": 1e-4,
        "trial_batch_size": 8,
        "choose_examples": 32,
    }
    return Supernet(params, Ctx(tmp_path))


@pytest.mark.parametrize(
    ("detail", "points"), [("coarse", 3 * 2 * 3 * 3 * 2), ("fine", 6 * 3 * 3 * 3 * 2)]
)
def test_the_space_of_the_default_model_holds_sizes_that_exist(detail, points):
    space = supernet.space(MINILM, detail)
    assert search.num_points(space) == points
    assert space["num_hidden_layers"][-1] == 6
    assert space["hidden_size"] == [192, 288, 384]
    search.check_space(space)


def test_a_model_too_small_for_a_choice_is_not_searched_along_it():
    space = supernet.space({**MINILM, "num_hidden_layers": 1}, "compact", pooler=False)
    assert set(space) == {"num_attention_heads", "hidden_size", "intermediate_size"}


def test_every_parameter_of_the_space_changes_the_model(net):
    def signature(point):
        model = net.build(point)
        shapes = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
        return {"shapes": json.dumps(shapes)}

    search.refuse_idle(search.effects(supernet.space(net.config, "coarse"), signature))


def test_a_trial_is_made_once_and_gives_the_same_again(net, tmp_path, monkeypatch):
    first = net.trial(POINT)
    assert 0 <= first["accuracy"] <= 1
    fresh = Supernet(net.params, Ctx(tmp_path / "elsewhere"))
    fresh.folder = net.folder  # the same fine-tuned model
    assert fresh.trial(POINT) == first
    monkeypatch.setattr(Supernet, "build", lambda *_: pytest.fail("evaluated twice"))
    assert net.trial(POINT) == first


def test_another_training_is_another_trial(net):
    net.trial(POINT)
    other = Supernet({**net.params, "trial_examples": 8}, net.ctx)
    other.trial(POINT)
    assert len(list((net.ctx.artifact("x", lambda f: f.mkdir()).parent).glob("trial-*/"))) == 2


def test_from_scratch_keeps_nothing_of_the_trained_weights(net):
    inherited = net.build({}).classifier.weight
    scratch = Supernet({**net.params, "weights": "scratch"}, net.ctx).build({}).classifier.weight
    assert inherited.shape == scratch.shape
    assert not (inherited == scratch).any()


def test_equal_training_is_split_without_a_sentence_twice(net):
    lab = importlib.import_module("experiments.lab2_compression")
    examples = net.trial_examples
    first, second = examples.first(8), lab._after(examples, 8)
    assert [*first.token_ids, *second.token_ids] == list(examples.token_ids)
    assert [*first.labels, *second.labels] == list(examples.labels)


def test_what_a_search_would_choose_follows_its_own_objective():
    lab = importlib.import_module("experiments.lab2_compression")
    assert lab.chosen_so_far([0.5, 0.7, 0.7, 0.9], [4, 3, 2, 1]) == [4, 3, 3, 1]


def test_compression_prunes_and_quantizes_every_linear_layer(net):
    from madl.compression import prune, size

    lab = importlib.import_module("experiments.lab2_compression")
    net.params = {**net.params, "width": 8, "frac_width": 6, "sparsity": 0.5}
    model = net.build({})
    before = size.linear_bits(model)
    lab._compress(net, model)
    assert prune.weight_sparsity(model) == pytest.approx(0.5, abs=0.01)
    assert size.linear_bits(model) < before / 6  # 8 of 32 bits for half of them, and the bitmap
    model = lab._build_trained_on(net, {})
    assert prune.weight_sparsity(model) == pytest.approx(0.5, abs=0.01)  # the masks held
