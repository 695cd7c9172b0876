"""Formats in a model: mixed precision, question 3.2, and the page of formats."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch

from experiments.formats import page as formats_page
from experiments.formats import study as formats_study
from experiments.lab1_quantization import design as lab1_quantization
from experiments.lab3_formats import design, study
from experiments.lab3_formats.placed import PlacedFormat
from madl.compression.quantize import linear_layers
from madl.formats.fixed import FixedPoint
from madl.formats.minifloat import Minifloat
from madl.formats.presets import FORMATS
from madl.logbook.experiment import PROFILES
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import baseline, format_errors, models, precision, trial, workloads
from madl.training.data import Encoded

PLAN = SimpleNamespace(profile=PROFILES["smoke"], workload={"model": "m", "dataset": "d"})


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


def test_bits_are_averaged_over_weights(model):
    nothing = precision.uniform(model, None)
    assert precision.mean_bits(model, nothing) == 32
    formats = nothing | {"classifier": FixedPoint(width=8, frac_width=4)}
    total = sum(layer.weight.numel() for layer in linear_layers(model))
    share = model.classifier.weight.numel() / total
    assert precision.mean_bits(model, formats) == pytest.approx(32 - 24 * share)
    assert precision.mean_bits(model, precision.uniform(model, FORMATS["mxint8"])) == 8.25


def test_every_narrow_format_without_a_scale_is_placed():
    free = {n for n, f in FORMATS.items() if f.place is not None and f.bits <= 8}
    assert free - {"log(8)"} == design.PLACES.keys() - {"fixed(16,8)"}


def operands(name, places):
    return study.layer_format(PlacedFormat(name, places))


def test_a_larger_place_makes_values_smaller_and_a_search_starts_where_the_sweep_ends():
    for name in design.PLACES:
        placed = operands(name, (9, 5))
        assert placed.weight.range[1] < placed.input.range[1], name
        assert placed.bits == FORMATS[name].bits
    assert operands("log(4)", (8, 4)).weight.range == (-0.5, 0.5)
    assert operands("fixed(8,4)", (7, 4)).input.name == "fixed(8,4)"
    for name in design.SEARCHED_PLACES:
        placed = operands(name, study.first_places(FORMATS[name]))
        wanted = design.LARGEST[int(placed.bits)]
        for part, largest in zip((placed.weight, placed.input), wanted, strict=True):
            assert largest / 1.5 < part.range[1] < largest * 1.5, name
    for name, places in design.FIXED_POINTS.items():
        width = int(FORMATS[name].bits)
        assert lab1_quantization.FRACTIONS[width] == places
        if width in design.LARGEST:
            halves = [2.0 ** (width - 1 - frac) for frac in lab1_quantization.FRACTIONS[width]]
            assert design.LARGEST[width] == tuple(halves)


@pytest.mark.parametrize("text", ["fp32", "mxint4", "log(4)@8,3", "minifloat(8,4,nan)@best"])
def test_a_placed_format_is_read_as_it_is_written(text):
    placed = PlacedFormat.read(text)
    assert str(placed) == text
    assert PlacedFormat.of_params(placed.params) == placed


@pytest.fixture
def params(monkeypatch, model):
    """Of the tuning seed, with the loss of a made-up landscape: the bits that a model has."""
    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    sentences = Encoded(token_ids=[[2, 7, 8, 3], [2, 9, 6, 3]] * 4, labels=[0, 1] * 4, pad_id=0)
    splits = SimpleNamespace(train=sentences, validation=sentences, test=sentences)
    monkeypatch.setattr(baseline, "load_splits", lambda params: splits)
    return dict(baseline.drawn_params(PLAN, 0))


def test_a_mix_gives_each_role_of_a_layer_its_own(model):
    own = copy.deepcopy(model)
    roles = precision.roles(precision.layer_names(own))
    named = ["mxint4", *["mxint8"] * (len(roles) - 2), "fp32"]
    bits = study.set_formats_(own, study.read_mix(" ".join(named)))
    assert 4.25 < bits < 32
    rules = {name: layer.rule for name, layer in own.named_modules() if hasattr(layer, "rule")}
    assert {rules[n].weight.name for n in rules if n.endswith("query")} == {"mxint4"}
    assert rules["classifier"].weight is None
    assert study.set_formats_(own, study.read_mix("mxint4")) == 4.25


def test_a_search_keeps_the_best_of_what_it_tried_and_goes_on_from_there(params, ctx):
    of = {
        "study": "two",
        "offered": "mxint4 binary",
        "by": "validation_loss",
        "sampler": "random",
        "trials": 4,
    }
    found = study.search_formats({**params, **of}, ctx)
    assert len(found["tried"]) == 4
    assert found["best"]["validation_loss"] == min(found["tried"])
    assert set(found["mix"]["formats"].split()) == {"mxint4", "binary"}
    assert 1 < found["mix"]["bits"] < 4.25
    assert study.search_formats({**params, **of}, ctx) == found
    within = {**params, **of, "offered": "binary mxint4 mxint8", "budget": 4.0, "begin": True}
    found = study.search_formats(within, ctx)
    assert found["tried"][0] is not None
    assert found["tried"][1:3] == [None, None]  # all layers in four bits and a quarter, and eight
    assert found["best"]["bits"] <= 4
    assert found["mix"] is None or found["mix"]["bits"] <= 4


def test_by_a_coin_a_kind_of_layer_stays_in_full_precision(params, ctx):
    of = {"offered": "mxint4", "by": "validation_loss", "sampler": "random", "trials": 16}
    of |= {"coin": True}
    found, other = (study.search_formats({**params, **of, "study": s}, ctx) for s in "ab")
    assert set(found["mix"]["formats"].split()) == {"mxint4", "fp32"}
    assert len({*found["tried"]}) > 4
    assert found["tried"] != other["tried"]  # each study leaves layers of its own in FP32


def test_weights_alone_leave_inputs_as_they_are_or_in_bytes(model):
    own = copy.deepcopy(model)
    for operands, expected in ((design.WEIGHTS, None), (design.WITH_BYTES, "scaled(8,row)")):
        assert study.set_formats_(own, study.read_mix("nvfp4"), operands) == 4.5
        rule = own.classifier.rule
        assert rule.weight.name == "nvfp4"
        assert rule.bias is None
        assert (rule.input and rule.input.name) == expected


def test_a_trial_that_trains_leaves_the_model_of_the_search_as_it_was(params, ctx, model):
    own, trains = copy.deepcopy(model), trial.training_params(PLAN, 1e-3, 8)
    by = {"by": "validation_accuracy"}
    value, judged = trial.worth(own, 4.0, {**params, **trains, **by}, ctx)
    assert value == judged["validation_accuracy"]
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), model.parameters(), strict=True))
    apart = {**params, **trains, **by, "trial_learning_rate": 1e30}
    assert trial.worth(own, 4.0, apart, ctx)[1]["validation_loss"] is None
    plain = trial.worth(own, 4.0, {**params, **by}, ctx)[1]["validation_loss"]
    assert plain != judged["validation_loss"]
    assert trial.worth(own, 4.5, {**params, **by, "budget": 4.0}, ctx) == (-104.5, {})


def test_signal_to_error_is_that_of_a_uniform_grid_placed_where_the_choosing_data_lie():
    x = torch.linspace(-0.9, 0.9, 100_001)
    found = format_errors.sqnr_db(FixedPoint(width=8, frac_width=7), [x])
    step = 2.0**-7
    assert found == pytest.approx(10 * math.log10(float((x**2).mean()) * 12 / step**2), abs=0.05)
    assert format_errors.sqnr_db(FixedPoint(width=8, frac_width=7), [torch.zeros(3)]) == math.inf
    generator = torch.Generator().manual_seed(0)
    data = {
        "choosing weights": [torch.randn(4096, generator=generator) / 32],
        "choosing inputs": [torch.randn(4096, generator=generator) * 4],
    }
    found = format_errors.best_shifted(Minifloat(width=4, exponent_width=2), data)
    assert found["weights"].range[1] < 0.2 < 4 < found["inputs"].range[1]
    assert format_errors.best_shifted(FORMATS["mxint8"], data) == {}


def test_what_chooses_is_not_what_is_shown(model):
    sentences = Encoded(token_ids=[[2, 7, 8, 3], [2, 3]], labels=[0, 1], pad_id=0)
    splits = SimpleNamespace(train=sentences, validation=sentences)
    data = format_errors.tensors(model, splits)
    assert {len(x) for x in data["inputs"]} == {6, 2}  # tokens, none of them padding; sentences
    weights = [*data["weights"], *data["choosing weights"]]
    assert len(data["choosing weights"]) == 6  # block 0 of two; pooler and classifier are shown
    assert len({x.data_ptr() for x in weights}) == len(weights) == 14
    found = formats_study.measure_format(FORMATS["log(4)"], data)
    assert found["placed"]["weights_db"] > found["weights_db"]


def test_a_new_preset_is_a_case_that_has_not_run(monkeypatch):
    project = Project()
    workload = workloads.resolve("snippets").params()
    plan = RunPlan(project, PROFILES["full"], workload, is_of_one_split=True)
    known, *_ = formats_page.cases(plan)
    monkeypatch.setattr(formats_page, "PRESETS", {**formats_page.PRESETS, "another": None})
    with_another, *_ = formats_page.cases(plan)
    assert with_another != known
