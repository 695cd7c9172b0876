"""Four-bit formats taken apart: which formats there are, and how many answers they change."""

import copy
import functools
import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from experiments.four_bits import design, page, study
from madl.compression import calibrated
from madl.compression.quantize import linear_layers
from madl.formats.fixed import ScaledInteger
from madl.logbook.records import read_published
from madl.training import models
from tests.synthetic import DATA, EXAMPLES, full_plan, judgement, kept_of, read
from tests.test_calibrated import SENTENCES, batch_of

CASES_A_SEED = 125  # models, each judged on test


@pytest.mark.parametrize("name", design.NAMED)
def test_a_named_format_has_the_bits_that_it_is_known_by(name):
    bits = {"MXFP4": 4.25, "MXFP4, even": 4.25, "NVFP4": 4.5, "INT4": 4.5}
    assert study.number_format(*design.NAMED[name]).bits == bits[name]


@functools.cache
def planned() -> list[dict]:
    return [dict(case.params) for case in page.page.planned("four_bits", full_plan())]


def test_every_case_names_a_format_that_exists_and_the_page_stays_as_small_as_it_says():
    cases = planned()
    rounded = [case for case in cases if "element" in case]
    formats = {
        study.number_format(*(case[part] for part in ("element", "block", "scale"))).name
        for case in rounded
    }
    assert len(formats) == len(design.FORMATS) + len(design.RULES)
    assert len(cases) == 5 * CASES_A_SEED + 1
    with pytest.raises(ValueError, match="rounded down"):
        study.number_format("int4", 32, "even")


def test_methods_are_tried_where_they_can_say_something():
    tried = Counter(
        (case["method"], case["outliers"], case["operands"])
        for case in planned()
        if case.get("outliers", design.NONE) != design.NONE and case["seed"] == 10
    )
    assert {where[2] for where in tried} == {page.ALL}
    assert ("SmoothQuant", "scaled", page.ALL) not in tried  # which undoes just that
    assert {method for method, kind, _ in tried if kind == "constant"} == {*design.METHODS}
    on_weights = {
        case["method"]
        for case in planned()
        if case.get("operands") == page.ALONE and case["scale"] == "even"
    }
    assert on_weights == {*design.METHODS} - {"SmoothQuant"}


# ---- what a case makes of a model ---------------------------------------------------------------


@pytest.fixture
def encoder(tiny_model, monkeypatch):
    """A tiny BERT whose weights are large enough for rounding to show, and padded sentences."""
    monkeypatch.setattr(study, "probe", lambda params: batch_of(SENTENCES))
    monkeypatch.setattr(
        study, "calibration", lambda params: [batch_of(SENTENCES[:3]), batch_of(SENTENCES[3:])]
    )
    model = models.load_pretrained(str(tiny_model), seed=0).eval()
    torch.manual_seed(0)
    for layer in linear_layers(model):
        layer.weight.data = torch.randn_like(layer.weight) / layer.in_features**0.5
    return model


@torch.no_grad()
def logits(model):
    return model(**batch_of(SENTENCES)).logits


def params_of(**changed) -> dict:
    return {**page.rounding("e2m1", 32, "floor"), "turned": 32, "seed": 3, **changed}


class Exact:
    """Stands for a format, and rounds nothing."""

    def quantize(self, x):
        return x


@pytest.mark.parametrize(("method", "outliers"), [*product(design.METHODS, design.OUTLIERS)])
def test_only_rounding_changes_what_a_model_computes(monkeypatch, encoder, method, outliers):
    exact = Exact()
    monkeypatch.setattr(study, "number_format", lambda *_: exact)
    monkeypatch.setattr(
        study.calibrated, "scale_searched", lambda weight, number_format: weight.clone()
    )
    monkeypatch.setattr(study.calibrated, "gptq", lambda weight, hessian, _: weight.clone())
    monkeypatch.setattr(study.calibrated, "saturated", lambda x, _: 0.0)
    expected = logits(encoder)
    kind, factor = outliers
    lost = study.round_(encoder, params_of(method=method, outliers=kind, factor=factor))
    assert lost["output_error"] < 1e-8
    torch.testing.assert_close(logits(encoder), expected, rtol=1e-3, atol=1e-4)


def test_a_model_whose_width_the_chosen_block_does_not_divide_is_turned_in_smaller_ones(encoder):
    chosen, largest = (
        study.in_basis(encoder, params_of(method=page.ROTATION, turned=block)) for block in (96, 32)
    )
    for name, layer in chosen.items():
        assert layer.linear.in_features % 96
        assert torch.equal(layer.linear.weight, largest[name].linear.weight)


@pytest.mark.parametrize("operands", design.OPERANDS)
def test_pooler_classifier_and_biases_stay_as_they_are(encoder, operands):
    before = copy.deepcopy(encoder)
    study.round_(encoder, params_of(operands=operands))
    assert not torch.equal(logits(encoder), logits(before))
    rounded = dict(encoder.named_modules())
    for name, layer in before.named_modules():
        if name in ("bert.pooler.dense", "classifier"):
            assert type(rounded[name]) is torch.nn.Linear
            assert torch.equal(rounded[name].weight, layer.weight)
    for name, layer in calibrated.encoder_linears(before).items():
        own = rounded[name].linear
        expected = study.number_format("e2m1", 32, "floor").quantize(layer.weight)
        assert torch.equal(own.weight, expected)
        assert torch.equal(own.bias, layer.bias)
        formats = (None, ScaledInteger(width=8), study.number_format("e2m1", 32, "floor"))
        assert own.rule.input == formats[design.OPERANDS.index(operands)]


def seen_by(model, layers) -> dict:
    inputs = {}
    calibrated.see_inputs(
        model, [batch_of(SENTENCES)], lambda k, x: inputs.update({k: (x, layers[k].into(x))})
    )
    return inputs


@pytest.mark.parametrize("factor", [8, 32])
def test_constants_are_so_many_deviations_in_the_same_channels_of_an_input(encoder, factor):
    layers = study.with_outliers(encoder, params_of(outliers="constant", factor=factor))
    places = {}
    for name, (x, injected) in seen_by(encoder, layers).items():
        added = (injected - x).mean(0)
        at = added.abs() > 1e-3
        assert int(at.sum()) == design.OUTLIER_CHANNELS
        torch.testing.assert_close(
            added[at].abs(), (factor * x.std()).expand(design.OUTLIER_CHANNELS)
        )
        torch.testing.assert_close(injected, x + added)
        signs = tuple((added.sign() * at).int().tolist())
        assert places.setdefault(calibrated.input_of(name), signs) == signs
        weight = dict(encoder.named_modules())[name].weight
        assert torch.equal(layers[name].linear.weight, weight)
    assert len(set(places.values())) == len(places)
    other = study.with_outliers(encoder, params_of(outliers="constant", factor=factor, seed=4))
    assert {*map(str, seen_signs(encoder, other))} != {*map(str, seen_signs(encoder, layers))}


def seen_signs(model, layers) -> list:
    return [(y - x).mean(0).round().sign().tolist() for x, y in seen_by(model, layers).values()]


def test_scaled_outliers_are_in_the_same_channels_as_constants(encoder):
    scaled, constant = (
        study.with_outliers(encoder, params_of(outliers=kind, factor=32))
        for kind in ("scaled", "constant")
    )
    moved = seen_by(encoder, constant)
    for name, (x, injected) in seen_by(encoder, scaled).items():
        at = (moved[name][1] - x).mean(0).abs() > 1e-3
        torch.testing.assert_close(injected, torch.where(at, 32 * x, x))


@pytest.mark.parametrize("method", ["GPTQ", "SmoothQuant", "Hadamard, GPTQ"])
def test_methods_calibrate_on_inputs_that_have_the_outliers(monkeypatch, encoder, method):
    given = []

    def watched(real):
        def call(weight, seen, *more):
            given.append(seen)
            return real(weight, seen, *more)

        return call

    for name in ("gptq", "smoothing"):
        monkeypatch.setattr(study.calibrated, name, watched(getattr(calibrated, name)))
    params = params_of(method=method, outliers="constant", factor=32)
    layers = study.with_outliers(encoder, params)
    inputs = seen_by(encoder, layers)
    study.round_(encoder, params)
    for name, seen in zip(layers, given, strict=True):
        _, x = inputs[name]
        if "Hadamard" in method:
            x = (x.unflatten(-1, (-1, 32)) @ calibrated.hadamard(32)).flatten(-2)
        expected = x.abs().amax(0) if method == "SmoothQuant" else x.T @ x
        torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-2)


def test_smoothing_undoes_scaled_outliers_and_not_constants(encoder):
    """So under scaled ones SmoothQuant is a single model, whatever the factor."""
    models_of = {}
    for kind, factor in (("none", 1), ("scaled", 32), ("constant", 32)):
        model = copy.deepcopy(encoder)
        study.round_(model, params_of(method="SmoothQuant", outliers=kind, factor=factor))
        models_of[kind] = model
    plain, scaled, constant = (
        [layer.weight for layer in linear_layers(model)] for model in models_of.values()
    )
    for a, b in zip(plain, scaled, strict=True):
        assert (a != b).float().mean() < 0.01  # a float's last digit decides a tie
    assert any(not torch.allclose(a, b) for a, b in zip(plain, constant, strict=True))


@pytest.mark.parametrize("method", design.METHODS)
def test_losses_are_those_of_each_layer_by_itself(encoder, method):
    before = copy.deepcopy(encoder)
    params = params_of(method=method, outliers="constant", factor=8)
    lost = study.round_(encoder, params)
    assert ("weight_saturated" in lost) == (method in ("rounding", "SmoothQuant", "Hadamard"))
    rounded, four_bits = dict(encoder.named_modules()), study.number_format("e2m1", 32, "floor")
    errors, zeroed = [], []
    for name, layer in calibrated.encoder_linears(before).items():
        inputs = []
        calibrated.see_inputs(
            before,
            [batch_of(SENTENCES)],
            lambda k, x, name=name, inputs=inputs: inputs.append(x) if k == name else None,
        )
        (x,) = inputs
        y, own = layer(x).double().detach().numpy(), rounded[name](x).double().detach().numpy()
        errors.append(((y - own) ** 2).sum() / (y**2).sum())
        mapped = rounded[name].into(x)
        zeroed.append(float(((four_bits.quantize(mapped) == 0) & (mapped != 0)).float().mean()))
    assert lost["output_error"] == pytest.approx(np.mean(errors), rel=1e-3)
    assert lost["input_zeroed"] == pytest.approx(np.mean(zeroed), rel=1e-3)
    assert 0 < lost["input_saturated"] < 0.2
    assert 0 < lost["weight_zeroed"] < 0.5


def test_losses_of_inputs_are_counted_where_they_have_four_bits(encoder):
    lost = study.round_(encoder, params_of(operands=page.WITH_BYTES))
    assert {*lost} == {"output_error", "weight_zeroed", "weight_saturated"}


def test_gptq_and_scale_search_lower_what_they_are_for(encoder):
    errors = {
        method: study.round_(copy.deepcopy(encoder), params_of(method=method, operands=page.ALONE))[
            "output_error"
        ]
        for method in design.ON_WEIGHTS
    }
    assert errors["GPTQ"] < errors["rounding"]
    assert errors["scale search"] < errors["rounding"]
    assert errors["Hadamard, GPTQ"] < errors["Hadamard"]


def test_a_block_is_shown_as_every_named_format_rounds_it(encoder):
    shown = study.block(encoder, {"seed": 3})
    assert len(shown["values"]) == design.SHOWN_VALUES
    assert {*shown["rounded"]} == {*design.NAMED}
    for by_factor in shown["rounded"].values():
        assert len(by_factor) == len(design.GROWTH)
        dead = [block.count(0.0) for block in by_factor]
        assert dead[0] < dead[-1]  # one value grows, and its neighbours become zero


# ---- what a case is worth --------------------------------------------------------------------


def test_biases_take_off_what_rounding_moves_for_all_tokens_alike(encoder):
    errors = {}
    for kind in ("constant", "scaled"):
        model = copy.deepcopy(encoder)
        study.round_(model, params_of(outliers=kind, factor=8))
        rounded = dict(model.named_modules())
        layers = {name: rounded[name] for name in calibrated.encoder_linears(encoder)}
        means = calibrated.mean_errors(encoder, layers, study.calibration({}))
        errors[kind] = max(float(mean.abs().max()) for mean in means.values())
    assert errors["constant"] < 1e-5 < errors["scaled"]


def test_a_divergence_is_that_of_two_distributions_and_none_is_zero():
    p, q = np.array([0.9, 0.2, 1.0]), np.array([0.7, 0.4, 1.0])
    pairs = torch.tensor([[a, 1 - a] for a in p[:2]]), torch.tensor([[a, 1 - a] for a in q[:2]])
    full, other = (torch.distributions.Categorical(probs=probs) for probs in pairs)
    expected = float(torch.distributions.kl_divergence(full, other).sum()) / 3
    found = study.divergence(*(abs(np.log(right)) for right in (p, q)))
    assert found == pytest.approx(expected, rel=1e-3)
    assert study.divergence([0.1, 2.0], [0.1, 2.0]) == 0


def test_so_many_inputs_are_turned_as_tuning_prefers():
    path = DATA / "four_bits_tuning.jsonl"
    if not path.exists():
        pytest.skip("it has to run")
    for name, parts in design.NAMED.items():
        where = dict(zip(page.PARTS, parts, strict=True))
        losses = {
            one.case.params["turned"]: one.values["validation_loss"]
            for one in read_published(path)
            if where.items() <= one.case.params.items()
        }
        assert losses.keys() == {*design.ROTATIONS_TRIED}
        assert min(losses, key=lambda size: losses[size]) == design.ROTATED[name]


# ---- what the page makes of records -------------------------------------------------------------


def test_fewer_answers_changed_is_better():
    def records(**wrong_by: range):
        for seed in (10, 11):
            for scale, wrong in wrong_by.items():
                correct = ~np.isin(np.arange(EXAMPLES), wrong)
                kept = judgement(correct, examples=f"fold {seed}")
                kept["divergence"] = len(wrong) / 1000
                how = {"method": "fp32"} if scale == "fp32" else page.rounding("e2m1", 32, scale)
                yield kept_of("four_bits", kept, **how, seed=seed)

    r = read(*records(fp32=range(100), even=range(50, 100), floor=range(300)))
    found = page.even_changes_fewer(r).comparison
    assert found.effect == pytest.approx((200 - 50) / EXAMPLES)
    assert page.rounding_of_the_scale(r).comparison.effect == pytest.approx(math.log(300 / 50))
    assert format(page.share_changed(r, page.named(r, "MXFP4")), "") == "10.0 %"


def test_of_a_primary_contrast_one_thing_differs():
    """Of a contrast of two models; `finer_scales` holds a finer scale against a shorter block."""

    def differing(claim) -> dict[str, set]:
        sides = [case for case in claim if case["method"] != "fp32"]
        return {
            name: {case[name] for case in sides}
            for name in sides[0].keys() - {"turned"}  # of a rotation alone
            if len({case[name] for case in sides}) > 1
        }

    def judged(examples: str) -> dict:
        return judgement(EXAMPLES // 2, examples=examples) | {"divergence": 0.1}

    def read_by(claim) -> list[dict]:
        records = [
            kept_of("four_bits", judged(f"{case['seed']}"), **case)
            for case in planned()
            if case["method"] != "block" and case["seed"] in (10, 11)
        ]
        cases = [dict(case.params) for case in claim(read(*records)).cases]
        return [case for case in cases if case["seed"] == 10]

    assert {*differing(read_by(page.rotation))} == {"method"}
    assert {*differing(read_by(page.rotation_repairs))} == {"method", "outliers", "factor"}
    assert differing(read_by(page.rounding_of_the_scale)) == {"scale": {"floor", "even"}}
    assert differing(read_by(page.finer_scales)) == {"scale": {"e4m3", "even"}, "block": {16, 32}}
