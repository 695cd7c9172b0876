"""The sweeps of fraction widths hold the coursework's rules; exact products change nothing."""

import pytest
import torch

from madl.training import compressed, models, width_facts, widths
from madl.training.data import Encoded
from tests.synthetic import an_arm


@pytest.mark.parametrize("width", widths.SHARED)
def test_both_rules_of_the_coursework_are_among_the_candidates(width):
    assert widths.half(width) in widths.SHARED[width]
    assert widths.FIXED_RULE in widths.SHARED[width]
    assert len(set(widths.pairs(width))) == len(widths.pairs(width))


def test_what_is_trained_at_first_is_tried_without_training_too():
    for width, pairs in widths.TRAINED.items():
        assert set(pairs) <= set(widths.pairs(width))


@pytest.mark.parametrize("operands", ["both", "weights", "inputs"])
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


def test_a_difference_is_told_of_each_model_where_there_are_several():
    a, b = an_arm("a", 1200, 1100, 900), an_arm("b", 1000, 1000, 1000)
    assert width_facts.apart(a, b).endswith(", by model +10.00, +5.00 and −5.00")
    assert width_facts.apart(a.first, b.first).startswith("+10.00 points [")
    assert "model" not in width_facts.apart(a.first, b.first)
