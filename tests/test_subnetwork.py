"""Sub-networks: what is cut is what was named, and what is kept is what it was."""

import copy

import pytest
import torch

from madl.compression import size, subnetwork
from madl.compression.subnetwork import Importance, Shape, cut
from madl.errors import MadlError

WHOLE = Shape(
    num_hidden_layers=2, num_attention_heads=2, hidden_size=32, intermediate_size=64
)  # of the tiny model


@pytest.fixture
def model(tiny_model):
    from madl.training import models

    return models.load_pretrained(str(tiny_model), seed=0).eval()


@pytest.fixture
def batch():
    ids = torch.tensor([[2, 7, 9, 8, 3], [2, 6, 3, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.fixture
def scores(model, batch) -> Importance:
    return subnetwork.importance(model, batch)


def smaller(**changes) -> Shape:
    return Shape(**{name: getattr(WHOLE, name) for name in WHOLE.__slots__} | changes)


@pytest.mark.parametrize(
    ("change", "removed"),
    [
        # 32 wide: a layer is 4 · (32 · 32 + 32) + 2 · 32 · 64 + 64 + 32 + 4 · 32
        ({"num_hidden_layers": 1}, 4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 4 * 32),
        # a head of 16: its rows of three products with biases, its columns of the fourth
        ({"num_attention_heads": 1}, 2 * (3 * (16 * 32 + 16) + 16 * 32)),
        ({"intermediate_size": 24}, 2 * 40 * (32 + 32 + 1)),
    ],
)
def test_a_smaller_shape_has_as_many_parameters_as_counted_by_hand(
    model, batch, scores, change, removed
):
    small = cut(model, smaller(**change), scores)
    assert size.num_parameters(small) == size.num_parameters(model) - removed
    assert subnetwork.shape_of(small) == smaller(**change)
    assert not torch.equal(small(**batch).logits, model(**batch).logits)


def test_the_whole_shape_is_the_whole_model_and_the_one_that_is_cut_stays(model, batch, scores):
    assert subnetwork.shape_of(model) == WHOLE
    same = cut(model, WHOLE, scores)
    assert torch.equal(same(**batch).logits, model(**batch).logits)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = cut(model, smaller(hidden_size=16), scores)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_dead_head_a_dead_neuron_and_a_dead_channel_go_first_and_change_nothing(model, batch):
    dead = ((slice(0, 16), [3, 5]), (slice(16, 32), [0, 63]))  # a layer's head and neurons
    with torch.no_grad():
        for layer, (head, neurons) in zip(model.bert.encoder.layer, dead):
            layer.attention.output.dense.weight[:, head] = 0  # they add nothing
            layer.output.dense.weight[:, neurons] = 0
    scores = subnetwork.importance(model, batch)
    assert (scores.heads == 0).tolist() == [[True, False], [False, True]]
    assert set(scores.intermediate[0].argsort()[:2].tolist()) == {3, 5}
    small = cut(model, smaller(num_attention_heads=1, intermediate_size=62), scores)
    assert torch.allclose(small(**batch).logits, model(**batch).logits, atol=1e-6)


def test_a_layer_that_does_nothing_goes_first(model, batch):
    second = model.bert.encoder.layer[1]
    with torch.no_grad():
        for dense in (second.attention.output.dense, second.output.dense):
            dense.weight.zero_()
            dense.bias.zero_()
    scores = subnetwork.importance(model, batch)
    assert scores.layers[1] < scores.layers[0]
    small = cut(model, smaller(num_hidden_layers=1), scores)
    assert torch.allclose(small(**batch).logits, model(**batch).logits, atol=1e-4)


def test_padding_does_not_count_and_width_keeps_the_channels_weights(model, batch, scores):
    alone = {name: value[1:, :3] for name, value in batch.items()}
    padded = {name: value[1:] for name, value in batch.items()}
    a, b = subnetwork.importance(model, alone), subnetwork.importance(model, padded)
    assert torch.allclose(a.hidden, b.hidden, rtol=1e-4)
    assert torch.allclose(a.intermediate, b.intermediate, rtol=1e-4)
    small = cut(model, smaller(hidden_size=16), scores)
    kept = subnetwork.most_important(scores.hidden, 16)
    whole = model.bert.encoder.layer[0].intermediate.dense.weight
    assert torch.equal(small.bert.encoder.layer[0].intermediate.dense.weight, whole[:, kept])
    words = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(small.bert.embeddings.word_embeddings.weight, words[:, kept])


@pytest.mark.parametrize("shape", [WHOLE, smaller(hidden_size=20, num_attention_heads=1)])
def test_identities_have_no_parameters_at_any_shape(model, batch, scores, shape):
    width, rows = shape.hidden_size, 16 * shape.num_attention_heads
    square = width * width + width  # the pooler, with its bias
    attention = {"query": width * rows + rows, "attention_output": rows * width + width}
    whole = size.num_parameters(cut(model, shape, scores))
    for kinds, removed in (
        (["query"], 2 * attention["query"]),
        (["key", "value"], 4 * attention["query"]),
        (["attention_output", "pooler"], 2 * attention["attention_output"] + square),
    ):
        small = cut(model, shape, scores, kinds)
        assert size.num_parameters(small) == whole - removed
        small(**batch, labels=torch.tensor([0, 1])).loss.backward()


def test_an_identity_is_cut_as_a_layer_of_ones_on_the_diagonal(model, batch, scores):
    shape = smaller(hidden_size=20, num_attention_heads=1)
    passing = copy.deepcopy(model)
    with torch.no_grad():
        for layer in passing.bert.encoder.layer:
            layer.attention.self.value.weight.copy_(torch.eye(32))
            layer.attention.self.value.bias.zero_()
    expected = cut(passing, shape, scores)(**batch).logits
    assert torch.allclose(cut(model, shape, scores, ["value"])(**batch).logits, expected, atol=1e-6)


def test_what_cannot_be_cut_is_refused(model, scores):
    for change in ({"hidden_size": 33}, {"num_hidden_layers": 0}):
        with pytest.raises(MadlError, match=r"is from 1 to the model's own"):
            cut(model, smaller(**change), scores)
    with pytest.raises(MadlError, match="'ffn' cannot be an identity; known: query, key"):
        cut(model, WHOLE, scores, ["ffn"])
