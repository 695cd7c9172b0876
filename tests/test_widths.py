"""The width study: its candidates hold the rules, and exact products change nothing."""

import pytest
import torch

from madl.training import compressed, models, widths
from madl.training.data import Encoded


@pytest.mark.parametrize("width", widths.SHARED)
def test_both_rules_of_the_coursework_are_among_the_candidates(width):
    assert widths.half(width) in widths.SHARED[width]
    assert widths.FIXED_RULE in widths.SHARED[width]
    assert len(set(widths.pairs(width))) == len(widths.pairs(width))


def test_what_is_trained_at_first_is_tried_without_training_too():
    for width, pairs in widths.TRAINED.items():
        assert set(pairs) <= set(widths.pairs(width))


@pytest.mark.parametrize("operands", ["both", "weights", "inputs", "both, head spared"])
@pytest.mark.parametrize("pair", [(5, 2), (4, 4)])
def test_exact_products_give_the_models_answers(tiny_model, monkeypatch, operands, pair):
    """In bfloat16 where it holds every operand: the same sums in another order."""
    monkeypatch.setattr(
        compressed.baseline,
        "fine_tuned",
        lambda params, ctx: models.load_pretrained(str(tiny_model), seed=0),
    )
    params = dict(widths.point(6, pair, operands))
    plain, exact = (compressed.build(params, None, exact_products=how) for how in (False, True))
    chosen = {layer.rule.products for layer in quantized(exact)}
    assert chosen == ({"bfloat16"} if operands.startswith("both") else {"float32"})
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


def test_sparing_the_head_leaves_pooler_and_classifier_alone(tiny_model, monkeypatch):
    monkeypatch.setattr(
        compressed.baseline,
        "fine_tuned",
        lambda params, ctx: models.load_pretrained(str(tiny_model), seed=0),
    )
    model = compressed.build(dict(widths.point(8, (4, 4), "both, head spared")), None)
    named = {name for name, module in model.named_modules() if module in quantized(model)}
    assert named
    assert all(".encoder." in name for name in named)
    assert type(model.classifier) is torch.nn.Linear
    assert type(model.bert.pooler.dense) is torch.nn.Linear
