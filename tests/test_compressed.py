"""Quantized models: products in bfloat16, where it holds every operand, change nothing."""

import copy
from dataclasses import replace

import pytest
import torch

from experiments.lab1_quantization.page import format_params
from madl.training import compressed, models
from madl.training.data import Encoded


@pytest.mark.parametrize("operands", ["both", "weights", "inputs"])
@pytest.mark.parametrize("pair", [(5, 2), (4, 4)])
def test_exact_products_give_the_models_answers(tiny_model, monkeypatch, operands, pair):
    """In bfloat16 where it holds every operand: the same sums in another order."""
    monkeypatch.setattr(
        compressed.baseline,
        "fine_tuned",
        lambda params, ctx: models.load_pretrained(str(tiny_model), seed=0),
    )
    exact = compressed.build(dict(format_params(6, pair, operands)), None)
    plain = copy.deepcopy(exact)
    for layer in quantized(plain):
        layer.rule = replace(layer.rule, products="float32")
    chosen = {layer.rule.products for layer in quantized(exact)}
    assert chosen == ({"bfloat16"} if operands == "both" else {"float32"})
    torch.manual_seed(0)
    tokens = [torch.randint(5, 25, (9,)).tolist() for _ in range(16)]
    data = Encoded(token_ids=tokens, labels=[0] * 16, pad_id=0)
    with torch.no_grad():
        batch = data.batch(range(16))
        a, b = (model.eval()(**batch).logits for model in (plain, exact))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert torch.equal(a.argmax(-1), b.argmax(-1))


def quantized(model):
    from madl.compression.quantize import QuantizedLinear

    return [module for module in model.modules() if isinstance(module, QuantizedLinear)]
