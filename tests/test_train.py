"""Training and evaluation on a tiny real model: they learn, repeat exactly, and judge what is."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from madl.compression.quantize import QuantizedLinear, Rule, quantize_, range_use
from madl.formats.fixed import FixedPoint
from madl.training import data, models, train
from madl.training.train import Recipe


@pytest.fixture(scope="module")
def encoded(tiny_model, tiny_dataset):
    loaded = data.load_dataset(str(tiny_dataset), 10)
    tokenizer = models.load_tokenizer(str(tiny_model))
    return {
        name: data.encode(getattr(loaded, name), tokenizer, max_length=32)
        for name in ("train", "validation", "test")
    }


RECIPE = Recipe(epochs=3, learning_rate=3e-3, batch_size=16)


@pytest.fixture
def model(tiny_model):
    return models.load_pretrained(str(tiny_model), seed=0)


def test_fine_tuning_learns_and_a_checkpoint_is_the_model_without_a_pickle(
    model, encoded, tmp_path
):
    before = train.evaluate(model, encoded["test"]).accuracy
    losses = train.train(model, encoded["train"], RECIPE)
    after = train.evaluate(model, encoded["test"])
    assert before < 0.7 < 0.95 < after.accuracy
    assert losses[-1] < losses[0]
    assert not model.training
    models.save_checkpoint(model, tmp_path / "checkpoint")
    again = models.load_checkpoint(tmp_path / "checkpoint")
    assert train.evaluate(again, encoded["test"]) == after
    assert {p.suffix for p in (tmp_path / "checkpoint").iterdir()} == {".json", ".safetensors"}


def test_a_seed_draws_the_dropout_and_the_order_of_every_epoch(model, encoded, monkeypatch):
    drawn, orders = [], []
    shuffled = data.shuffled_batches

    def watched(*args, **how):
        drawn.append(torch.rand(()).item())  # as dropout would
        orders.append(shuffled(*args, **how))
        return orders[-1]

    monkeypatch.setattr(train, "shuffled_batches", watched)
    for seed in (0, 1, 1):
        recipe = Recipe(epochs=2, learning_rate=1e-4, batch_size=16, seed=seed)
        train.train(model, encoded["train"], recipe)
    (a, b), (c, d), again = orders[:2], orders[2:4], orders[4:]
    assert again == [c, d]
    assert drawn[2:4] == drawn[4:]
    assert drawn[0] != drawn[2]
    assert all(x != y for x, y in ((a, b), (c, d), (a, c), (b, d)))


def test_matrices_decay_and_biases_and_norms_do_not(model):
    optimizer = train.optimizer_of(model, RECIPE)
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    for name, parameter in model.named_parameters():
        assert bool(decays[id(parameter)]) == (parameter.ndim > 1), name


def test_another_seed_gives_another_head(tiny_model, tmp_path):
    """To a model without one, as pretrained encoders are."""
    models.load_pretrained(str(tiny_model), seed=0).bert.save_pretrained(tmp_path)
    shutil.copy(tiny_model / "vocab.txt", tmp_path)
    heads = [models.load_pretrained(str(tmp_path), seed=s).classifier.weight for s in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_evaluation_keeps_the_order_of_the_split(model, encoded):
    """Batches are sorted by length; correctness must come back in the split's own order."""
    test = encoded["test"]
    with torch.no_grad():
        batches = [test.batch([i]) for i in range(len(test))]
        found = [model.eval()(**batch).logits.argmax(-1) for batch in batches]
    one_by_one = [bool(one == batch["labels"]) for one, batch in zip(found, batches)]
    assert train.evaluate(model, test).correct == one_by_one


def test_qat_is_judged_with_the_weights_it_trained(model, encoded):
    """The optimizer is fused, which does not touch the version counter of what it updates."""
    quantize_(model, [Rule.uniform(FixedPoint(width=10, frac_width=8))])
    range_use(model, encoded["validation"].batch([0, 1]))  # an evaluation, before the training
    train.train(model, encoded["train"], RECIPE)
    judged = train.evaluate(model, encoded["test"])
    for layer in model.modules():
        getattr(layer, "_frozen", {}).clear()
    assert judged == train.evaluate(model, encoded["test"])
    assert judged.accuracy > 0.9


def test_range_use_counts_what_the_format_loses(model, encoded):
    quantize_(model, [Rule.uniform(FixedPoint(width=4, frac_width=3))])
    batch = encoded["validation"].batch(range(8))
    shares = range_use(model, batch)
    layers = [layer for layer in model.modules() if isinstance(layer, QuantizedLinear)]
    weights = torch.cat([layer.weight.flatten() for layer in layers])
    assert shares["weight_zeroed"] == pytest.approx(
        float(((weights.abs() <= 1 / 16) & (weights != 0)).float().mean())
    )
    outside = (weights < -1) | (weights > 7 / 8)
    assert shares["weight_saturated"] == pytest.approx(float(outside.float().mean()))
    assert 0 < shares["input_saturated"] < 1


class Steep(nn.Module):
    """A loss that rises by a hundred with each weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, labels):
        return SimpleNamespace(loss=100 * self.weight.sum())


def test_a_step_is_along_a_gradient_of_norm_one_at_most():
    model = Steep()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train.take_step(model, {"labels": torch.tensor([0])}, optimizer)
    assert model.weight.norm().item() == pytest.approx(1, rel=1e-4)
