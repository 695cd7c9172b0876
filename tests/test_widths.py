"""The width study: its candidates hold the rules, exact products change nothing, models are told.

What the page says of several models holds all of them: their mean, and each one's own value.
"""

import pytest
import torch

from madl.logbook.arms import arm
from madl.logbook.records import Case
from madl.training import compressed, models, width_facts, widths
from madl.training.data import Encoded
from tests.conftest import a_record
from tests.synthetic import an_arm, judgement, read


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


# ---- what the page says -------------------------------------------------------------------------


def points(correct, *, width=None, pair=None, validation=0.8, values=None, **params):
    """Records of one configuration, a model for each number of right answers."""
    place = {} if pair is None else widths.point(width, pair)
    return [
        a_record(
            case=Case(experiment="toy", params={**place, **params, "seed": seed}),
            values={**judgement(one, validation=validation, loss=0.5), **(values or {})},
        )
        for seed, one in enumerate(correct if isinstance(correct, tuple) else (correct,))
    ]


def test_a_difference_is_told_of_each_model_where_there_are_several():
    a, b = an_arm("a", 1200, 1100, 900), an_arm("b", 1000, 1000, 1000)
    assert width_facts.apart(a, b).endswith(", by model +10.00, +5.00 and −5.00")
    assert width_facts.apart(a.first, b.first).startswith("+10.00 points [")
    assert "model" not in width_facts.apart(a.first, b.first)
    assert width_facts.beyond(a) != width_facts.beyond(a.first)
    assert width_facts.means(a) == " (mean of 3 models)"
    assert width_facts.means(a.first) == ""


def test_what_is_lost_is_the_mean_over_models_beside_the_accuracy_of_each():
    names = [f"{part}_{what}" for part in ("weight", "input") for what in ("zeroed", "saturated")]
    found = [
        a_record(case=one.case, values={**one.values, "shares": dict.fromkeys(names, share)})
        for one, share in zip(points((1000, 1200), method="ptq", width=4, pair=(4, 4)), (0.1, 0.2))
    ]
    several, one = (widths.shared(read(*records), 4, 4) for records in (found, found[:1]))
    (row,) = width_facts.lost([several])
    assert row["weights to zero"] == "15.0 %"
    assert row["of each model"] == "50.0 and 60.0 %"
    assert row["test accuracy, mean"] == "55.0 %"  # no interval of two that reaches beyond both
    (row,) = width_facts.lost([one])
    assert row["weights to zero"] == "10.0 %"
    assert "of each model" not in row


def swept_by_ptq(swept):
    """The records of a sweep: width, fraction widths and validation accuracy of each point."""
    return read(
        *(
            record
            for width, pair, validation in swept
            for record in points(1000, swept="ptq", width=width, pair=pair, validation=validation)
        )
    )


def test_widths_where_only_one_fraction_width_for_both_was_tried_are_named_with_what_they_lack():
    swept = [(8, (8, 4), 0.9), (8, (5, 5), 0.8), (9, (5, 5), 0.8), (12, (5, 5), 0.8)]
    r = swept_by_ptq(swept)
    said = width_facts.shared_only(r, (8, 9, 12)).text
    assert "2 of the 3 widths (9 and 12 bits)" in said
    assert "8 | 4 at 9 bits" in said  # and not 5 | 5 at 12, which was tried
    whole = width_facts.shared_only(r, (8,)).text
    assert "0 of the 1 widths only" in whole
    assert "Not tried" not in whole
    assert "better" not in whole


def test_a_choice_at_the_end_of_what_was_tried_is_named_with_what_lies_beyond():
    around = [(7, 4), (8, 3), (8, 4), (8, 5), (9, 4)]
    swept = [
        *((8, pair, 0.9 if pair == (8, 4) else 0.8) for pair in around),
        *((6, pair, 0.9 if pair == (6, 2) else 0.8) for pair in ((5, 2), (6, 2), (7, 2), (6, 3))),
        (9, (5, 5), 0.8),  # one for both, which another fact tells
    ]
    r = swept_by_ptq(swept)
    said = width_facts.edges(r, (6, 8, 9)).text
    assert "At 2 widths" in said
    assert "At 1 of them all" in said
    assert "elsewhere not 6 | 1 at 6 bits, each" in said
    whole = width_facts.edges(r, (8,)).text
    assert "At 1 of them all" in whole
    assert "better" not in whole


def test_qats_format_is_told_apart_from_what_its_sweep_chose():
    r = read(
        *points(1000, swept="qat", width=5, pair=(6, 3), validation=0.82),
        *points(1300, method="qat", width=5, pair=(6, 3), validation=0.82),
        *points(1200, method="qat", width=5, pair=(5, 2), validation=0.83),
        *points(1100, method="ptq", width=5, pair=(5, 2)),
        *points(1000, swept="qat", width=8, pair=(7, 4)),
        *points(1100, method="qat", width=8, pair=(7, 4), validation=0.83),
        *points(1300, method="qat", width=8, pair=(8, 4), validation=0.82),
        *points(1000, method="ptq", width=8, pair=(8, 4)),
    )
    said = width_facts.formats_of_qat(r, [5]).text
    assert "not PTQ's" not in said
    assert "at 1 of the 1 narrow widths: at 5 bits 5 | 2 in place of 6 | 3" in said
    assert "test 60.0 % against 65.0 %" in said
    both = width_facts.formats_of_qat(r, [5, 8]).text
    assert "at 8 bits, where 7 | 4 gives 55.0 % on test, and PTQ's 8 | 4, trained on, 65.0" in both


def test_equals_on_validation_are_named():
    arms = [
        widths.qat(read(*points(1000, method="qat", width=width, pair=(4, 4))), width)
        for width in (8, 12)
    ]
    assert "12 bits are as accurate" in width_facts.as_good(arms, arms[0])
    assert width_facts.as_good(arms[:1], arms[0]) == ""


def test_the_learning_rates_tried_are_told_with_how_often_each_won():
    r = read(
        *(
            record
            for rate, validation in ((3e-5, 0.9), (1e-4, 0.8))
            for record in points(
                1000, swept="control", tune_learning_rate=rate, validation=validation
            )
        ),
        *points(1000, swept="qat", width=4, pair=(5, 5), tune_learning_rate=3e-5),
        *points(1000, method="fp32", values={"num_validation": 500}),
    )
    said = width_facts.learning_rates(r)
    assert "Of the 1 settings" in said.text
    assert "3e-5 at 1 and 1e-4 at 0" in said.text
    assert "500 validation sentences" in said.of


def test_training_on_is_told_at_every_width_with_its_sign():
    judged = [("ptq", 8, 1000), ("qat", 8, 900), ("ptq", 16, 1000), ("qat", 16, 1001)]
    rates = {"ptq": {}, "qat": {"tune_learning_rate": 3e-5}}
    own = {"pair": (5, 4), "validation": 0.9, "tune_learning_rate": 1e-4}
    r = read(
        *(
            record
            for method, width, correct in judged
            for record in points(correct, method=method, width=width, pair=(4, 4), **rates[method])
        ),
        *points(1200, method="qat", width=8, **own),
        *points(1000, swept="control", tune_learning_rate=3e-5),
        *points(1000, swept="control", tune_learning_rate=1e-4),
        *points(1000, method="fp32"),
        *points(990, method="control", tune_learning_rate=3e-5),
    )
    said = width_facts.trained_on(r, (8, 16), arm(r, method="control")).text
    assert "50.0 and 50.0 %" in said
    assert "at the lowest learning rate tried (3e-5)" in said
    assert "less at 1 of these 2 widths. Zero lies inside 1 of the 2" in said
    assert "In a format of its own QAT has 60.0 % at 8 bits (5 | 4)" in said
    rated = width_facts.rates_taken(r, (8, 16), arm(r, method="control"))
    assert rated == "It is 3e-5 for all that the table has trained, but for QAT at 8 bits at 1e-4"


def test_learning_rates_are_counted_in_the_format_that_is_told_of():
    rated = [("control", None, 3e-5), ("control", None, 1e-4), ("qat", (8, 4), 3e-5)]
    rated += [("qat", (8, 4), 1e-4), ("qat", (7, 4), 3e-5)]
    r = read(
        *(
            record
            for swept, pair, rate in rated
            for record in points(1000, swept=swept, width=8, pair=pair, tune_learning_rate=rate)
        ),
        *points(1000, method="qat", width=8, pair=(7, 4), tune_learning_rate=3e-5),
    )
    said = width_facts.rates_tried(r, widths.qat(r, 8))
    assert said == "Its format (7 | 4) tried 1 of the control's 2 learning rates"


def test_the_collapse_is_told_with_what_is_clipped():
    def format_of(width, pair, correct, zeroed, clipped):
        names = [f"{one}_{what}" for one in ("weight", "input") for what in ("zeroed", "saturated")]
        shares = dict(zip(names, (zeroed, 0.0, 0.0, clipped)))
        made = points(correct, method="ptq", width=width, pair=pair, values={"shares": shares})
        return arm(read(*made), method="ptq")

    fine = [format_of(4, (5, 5), 1000, 0.4, 0.2), format_of(8, (5, 5), 1600, 0.4, 0.01)]
    coarse = [format_of(8, (4, 4), 1400, 0.5, 0.0)]
    said = width_facts.clipped_alone(fine, coarse).text
    assert "With 5 bits behind the point for both, 40.0 % of the weights become zero" in said
    assert "20.0 % at 4 and 1.0 % at 8 bits; on test these have 50.0 and 80.0 %" in said
    assert said.endswith(
        "With 4 behind it, 50.0 % of the weights become zero, and 8 bits have 70.0 %"
    )
    assert width_facts.clipped_alone(fine).text.endswith("50.0 and 80.0 %")
