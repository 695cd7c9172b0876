"""Formats in a model: mixed precision, question 3.2, and the page of formats."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch

from experiments.formats import page as formats_page
from experiments.formats import study as formats_study
from experiments.lab1_quantization import design as lab1_quantization
from experiments.lab3_formats import design, records, study
from experiments.lab3_formats.placed import PlacedFormat
from madl.compression.quantize import linear_layers
from madl.formats.fixed import FixedPoint
from madl.formats.minifloat import Minifloat
from madl.formats.presets import FORMATS
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Records, read_published, sealed
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import baseline, format_errors, models, precision, workloads
from madl.training.data import Encoded
from tests.synthetic import DATA, kept_of


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
        assert lab1_quantization.FIRST_FRACTIONS[width] == places  # of an earlier sweep
        if width in design.LARGEST:
            halves = [2.0 ** (width - 1 - frac) for frac in places]
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
    plan = SimpleNamespace(profile=PROFILES["smoke"], workload={"model": "m", "dataset": "d"})
    return dict(baseline.drawn_params(plan, 0))


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


def test_the_rival_has_no_fewer_bits_and_the_least_score(params, ctx, monkeypatch):
    of = {"offered": "mxint4 mxint8 scaled(4,row)", "price": 0.02}
    made = {"mxint4": (4.25, 0.32), "mxint8": (8.25, 0.30), "scaled(4,row)": (4.0, 0.30)}

    def judge_single(placed, params, ctx):
        bits, loss = made[placed.name]
        return {"formats": placed.name, "bits": bits, "validation_loss": loss}

    monkeypatch.setattr(study, "judge_single", judge_single)
    for bits, best in ((4.0, "scaled(4,row)"), (4.1, "mxint4"), (5.0, "mxint8"), (20, "mxint8")):
        monkeypatch.setattr(
            study, "search_formats", lambda params, ctx, bits=bits: {"mix_bits": bits}
        )
        assert study.rival_format({**params, **of}, ctx) == best


def test_a_search_keeps_the_best_of_what_it_tried_and_goes_on_from_there(params, ctx):
    of = {"offered": "mxint4 binary", "price": 0.02, "sampler": "random", "trials": 4}
    found = study.search_formats({**params, **of}, ctx)
    assert len(found["scores"]) == 4
    assert set(found["mix"].split()) == {"mxint4", "binary"}
    assert 1 < found["mix_bits"] < 4.25
    assert min(found["scores"]) == pytest.approx(found["validation_loss"] + 0.02 * found["bits"])
    assert study.search_formats({**params, **of}, ctx) == found


def tuned(name, bits, loss, accuracy):
    part = "fp32" if name == "fp32" else "untrained"
    values = {"bits": bits, "validation_loss": loss, "validation_accuracy": accuracy}
    return sealed(kept_of(records.TUNED, {**values, "formats": name}, part=part, format=name))


FULL = tuned("fp32", 32.0, 0.300, 0.880)
NARROW = tuned("mxint4", 4.25, 0.322, 0.870)


def test_what_keeps_is_within_the_margin_narrow_first():
    six = tuned("minifloat(6,3)", 6.0, 0.304, 0.876)
    worse = tuned("minifloat(6,2)", 6.0, 0.308, 0.884)
    far = tuned("log(8)", 8.0, 0.299, 0.858)
    assert records.accurate_formats(Records([FULL, NARROW, worse, far, six])) == [
        *("mxint4", "minifloat(6,3)", "minifloat(6,2)")
    ]
    assert records.accurate_formats(Records([FULL, far])) == ["log(8)"]  # none keeps it


@pytest.mark.parametrize("of", design.RATES)
def test_rates_are_chosen_on_the_tuning_seed(of):
    found = read_published(DATA / f"{records.TUNED}.jsonl")
    trained = [r for r in found if r.case.params.get("of") == of]
    by_rate = {r.case.params["tune_learning_rate"]: r.values["validation_loss"] for r in trained}
    least = min(by_rate.values())
    assert by_rate[design.RATES[of]] <= least + design.TIE_NATS
    assert min(by_rate, key=lambda rate: by_rate[rate]) not in (min(by_rate), max(by_rate))


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
    sentences = Encoded(token_ids=[[2, 7, 8, 3]], labels=[0], pad_id=0)
    splits = SimpleNamespace(train=sentences, validation=sentences)
    data = format_errors.tensors(model, splits)
    weights = [*data["weights"], *data["choosing weights"]]
    assert len(data["choosing weights"]) == 6  # block 0 of two; pooler and classifier are shown
    assert len({x.data_ptr() for x in weights}) == len(weights) == 14
    found = formats_study.measure_format(FORMATS["log(4)"], data)
    assert found["placed"]["weights_db"] > found["weights_db"]


def test_a_new_preset_is_a_case_that_has_not_run(monkeypatch):
    project = Project()
    workload = workloads.resolve("snippets").params()
    plan = RunPlan(project, PROFILES["full"], workload, is_of_one_split=True)
    (known,) = formats_page.cases(plan)
    published = read_published(DATA / "formats.jsonl")
    assert [record.case.params for record in published] == [known]
    monkeypatch.setattr(formats_page, "PRESETS", {**formats_page.PRESETS, "another": None})
    (with_another,) = formats_page.cases(plan)
    assert with_another != known
