"""Question 3.1: what a mix is, what its study evaluates, and what the page makes of its records."""

import copy
import math
from types import SimpleNamespace

import pytest

from experiments.lab3_widths import design, page, study
from madl.compression.quantize import QuantizedLinear, linear_layers
from madl.formats.fixed import FixedPoint
from madl.training import baseline, data, models, precision, train
from tests.synthetic import judgement, kept_of, read

ENDS = {"formats": "6 6 2, 4 5 2", "budget": 5.0}


@pytest.fixture(scope="module")
def model(tiny_model):
    """With weights that a few bits do not turn into zeros."""
    made = models.load_pretrained(str(tiny_model), seed=0).eval()
    for layer in linear_layers(made):
        layer.weight.data *= 8
    return made


@pytest.fixture
def sentences(monkeypatch):
    lengths = (9, 4, 7, 5, 12, 6)
    ids = [[2, *(5 + (i * j) % 20 for j in range(n)), 3] for i, n in enumerate(lengths, 3)]
    made = data.Encoded(token_ids=ids, labels=[0, 1, 1, 0, 1, 0], pad_id=0)
    splits = SimpleNamespace(validation=made)
    monkeypatch.setattr(baseline, "load_splits", lambda params: splits)
    return made


def test_each_layer_takes_the_format_of_its_digit(model):
    own, params = copy.deepcopy(model), {"formats": "8 4 4, 4 5 2"}
    layers = precision.layer_names(own)
    bits = study.set_mix_(own, "0" * (len(layers) - 1) + "1", params)
    first, last = (own.get_submodule(layers[i]) for i in (0, -1))
    assert isinstance(first, QuantizedLinear)
    assert isinstance(last, QuantizedLinear)
    assert first.rule.weight == first.rule.input == FixedPoint(width=8, frac_width=4)
    assert last.rule.weight == last.rule.bias == FixedPoint(width=4, frac_width=5)
    assert last.rule.input == FixedPoint(width=4, frac_width=2)
    sizes = [layer.weight.numel() for layer in linear_layers(own)]
    assert bits == pytest.approx(8 - 4 * sizes[-1] / sum(sizes))


def test_no_fewer_layers_of_an_order_fit_the_budget_and_a_blind_one_is_its_seed_s(model, ctx):
    own = copy.deepcopy(model)
    order = precision.layer_names(own)[::-1]
    digits = study.narrow_(own, order, ENDS)
    assert digits == digits[0] * digits.count("0") + "1" * digits.count("1")
    assert study.set_mix_(own, digits, ENDS) <= ENDS["budget"]
    assert study.set_mix_(own, digits.replace("1", "0", 1), ENDS) > ENDS["budget"]

    def blind(seed, order):
        return study.mix_digits(copy.deepcopy(model), {**ENDS, "seed": seed, "order": order}, ctx)

    found = [blind(seed, order) for seed in (10, 11) for order in range(4)]
    assert len(set(found)) > 4
    assert blind(10, 0) == found[0]


def test_what_one_layer_does_is_that_of_a_plain_evaluation_to_the_last_bit(model, sentences, ctx):
    own = copy.deepcopy(model)
    layers = precision.layer_names(own)
    found = dict(study.layer_sensitivities(own, layers, ENDS, ctx))
    assert list(found) == layers

    def losses(digits):
        study.set_mix_(own, digits, ENDS)
        return train.evaluate(own, sentences).losses

    plain = losses("0" * len(layers))
    for i, far in enumerate(found.values()):
        alone = losses("0" * i + "1" + "0" * (len(layers) - i - 1))
        assert far == math.fsum(abs(a - b) for a, b in zip(alone, plain)) / len(plain)
    assert len({*found.values()}) > 1


@pytest.fixture
def searching(model, sentences, ctx):
    def search(**changes):
        params = {"formats": design.OFFERED["narrow"], "sampler": "tpe", "seed": 0, "trials": 12}
        return study.search_mix(copy.deepcopy(model), {**params, **changes}, ctx)

    return search


def test_a_trial_over_the_budget_is_not_evaluated(searching, monkeypatch):
    found = searching(budget=5.0)
    evaluated = [loss for loss in found["tried"] if loss is not None]
    assert 0 < len(evaluated) < 12
    assert found["validation_loss"] == min(evaluated)
    assert found["bits"] <= 5.0
    monkeypatch.setattr(baseline, "judge_on_validation", lambda *_: {"validation_loss": 1.0})
    assert searching(budget=3.0)["tried"] == [None] * 12


def tuned(order_loss=0.38):
    names = ["a.0.key", "a.0.query", "classifier"]
    chosen = {"names": names, "bits": 5.0}
    asked, narrow = design.OFFERED["asked"], design.OFFERED["narrow"]
    ones = enumerate(asked.split(", "))
    tried = [{"format": one, "validation_loss": 0.5 - 0.01 * i} for i, one in ones]
    first = {"layers": "048", "validation_loss": 0.5, "tried": [0.6, 0.7, 0.5]}
    second = {"layers": "012", "validation_loss": 0.4, "tried": [None, 0.5, 0.4]}
    order = {"layers": "011", "validation_loss": order_loss}
    cases = [
        ({"part": "search", "formats": asked}, {**chosen, **first}),
        ({"part": "search", "formats": narrow}, {**chosen, **second}),
        (
            {"part": "sensitivity", **ENDS},
            {**chosen, **order, "moved": dict(zip(names, (0.3, 0.1, 0.2)))},
        ),
        ({"part": "one format", "formats": asked}, {"tried": tried}),
    ]
    at = {"seed": 0}
    return read(*(kept_of("lab3_widths_tuning", values, **at, **of) for of, values in cases))


def test_of_formats_for_all_the_least_loss_of_their_width_is_the_rival():
    assert page.preferred(tuned()) == "ordered"
    assert page.preferred(tuned(order_loss=0.41)) == "searched"
    found = page.mixes(tuned())
    assert found["asked 8"] == {"formats": "8 8 8"}
    assert found["asked 16"] == {"formats": "16 8 8"}
    assert found["5"] == {"formats": "5 6 3"}
    assert found["searched"] == {"formats": design.OFFERED["narrow"], "layers": "012"}


def test_the_order_by_sensitivity_meets_every_blind_order_of_its_seed():
    cases = [({"mix": "ordered", "seed": seed}, right) for seed, right in ((10, 1700), (11, 1720))]
    cases += [
        ({"mix": "blind", "seed": seed, "order": order}, 1600 + 10 * order)
        for seed in (11, 10)
        for order in range(3)
    ]
    every = read(
        *(kept_of("lab3_widths", judgement(n), part="untrained", **params) for params, n in cases)
    )
    made = page.order_matters(every).comparison
    assert made.population == "seeds"
    assert made.by_unit == pytest.approx((0.045, 0.055))
