"""Mixed precision: which layer has which format, and what that costs."""

import copy

import pytest
import torch

from madl.compression.quantize import QuantizedLinear, Rule, linear_layers, quantize_
from madl.formats import presets
from madl.formats.fixed import FixedPoint
from madl.training import models, precision


@pytest.fixture(scope="module")
def model(tiny_model):
    return models.load_pretrained(str(tiny_model), seed=0).eval()


@pytest.fixture
def batch():
    return {"input_ids": torch.tensor([[2, 7, 8, 9, 3]]), "attention_mask": torch.ones(1, 5)}


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def test_a_precision_can_be_set_again_and_taken_back(model, batch):
    own = copy.deepcopy(model)
    before = logits(own, batch)
    nothing = precision.uniform(own, None)
    precision.set_precision_(own, nothing)
    assert torch.equal(logits(own, batch), before)
    precision.set_precision_(own, precision.uniform(own, FixedPoint(width=4, frac_width=2)))
    changed = logits(own, batch)
    assert not torch.equal(changed, before)
    precision.set_precision_(own, precision.uniform(own, FixedPoint(width=8, frac_width=6)))
    assert not torch.equal(logits(own, batch), changed)
    precision.set_precision_(own, nothing)
    assert torch.equal(logits(own, batch), before)


def test_one_layer_alone_is_what_its_rule_says(model, batch):
    own, other = copy.deepcopy(model), copy.deepcopy(model)
    name, number_format = "bert.encoder.layer.1.output.dense", presets()["fixed(16,8)"]
    precision.set_precision_(own, precision.uniform(own, None) | {name: number_format})
    quantize_(other, [Rule.uniform(number_format, pattern=name.replace(".", r"\."))])
    assert torch.equal(logits(own, batch), logits(other, batch))
    quantized = [x for x in linear_layers(own) if isinstance(x, QuantizedLinear) and x.rule.weight]
    assert len(quantized) == 1


def test_bits_are_averaged_over_weights(model):
    nothing = precision.uniform(model, None)
    assert precision.mean_bits(model, nothing) == 32
    formats = nothing | {"classifier": FixedPoint(width=8, frac_width=4)}
    total = sum(layer.weight.numel() for layer in linear_layers(model))
    share = model.classifier.weight.numel() / total
    assert precision.mean_bits(model, formats) == pytest.approx(32 - 24 * share)
    assert precision.mean_bits(model, precision.uniform(model, presets()["mxint8"])) == 8.25
