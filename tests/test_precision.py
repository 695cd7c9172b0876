"""Mixed precision: which layer has which format, what it costs, and what the pages make of it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import lab3_formats, lab3_widths
from madl.compression.quantize import QuantizedLinear, Rule, linear_layers, quantize_
from madl.formats import presets
from madl.formats.fixed import FixedPoint
from madl.logbook.claims import Claim, judge_family
from madl.logbook.records import Case, Pending, Records, sealed
from madl.logbook.stats import Outcomes
from madl.training import models, precision
from tests.conftest import a_record


@pytest.fixture(scope="module")
def model(tiny_model):
    return models.load_pretrained(str(tiny_model), seed=0).eval()


@pytest.fixture
def batch():
    return {"input_ids": torch.tensor([[2, 7, 8, 9, 3]]), "attention_mask": torch.ones(1, 5)}


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def test_every_layer_has_a_kind_and_blocks_share_theirs(model):
    names = precision.layer_names(model)
    assert len(names) == 2 * 6 + 2
    assert precision.kinds(names) == [
        *("query", "key", "value", "attention.output", "intermediate", "output"),
        *("pooler", "classifier"),
    ]


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


@pytest.mark.parametrize("change", ["less", "more"])
def test_a_precision_for_other_layers_is_refused(model, change):
    formats = precision.uniform(model, None)
    if change == "less":
        del formats["classifier"]
    else:
        formats["classifer"] = None
    with pytest.raises(ValueError, match="names every Linear layer, and no other: see classif"):
        precision.set_precision_(copy.deepcopy(model), formats)


def test_bits_are_averaged_over_weights(model):
    nothing = precision.uniform(model, None)
    assert precision.mean_bits(model, nothing) == 32
    formats = nothing | {"classifier": FixedPoint(width=8, frac_width=4)}
    total = sum(layer.weight.numel() for layer in linear_layers(model))
    share = model.classifier.weight.numel() / total
    assert precision.mean_bits(model, formats) == pytest.approx(32 - 24 * share)
    assert precision.mean_bits(model, precision.uniform(model, presets()["mxint8"])) == 8.25


# ---- 3.1 ----------------------------------------------------------------------------------------


def test_the_layer_that_bears_it_best_comes_first_with_its_own_fraction():
    measured = {
        "fp32": [0.3, 0.5],
        "losses": {
            "a": {"2": [0.9, 0.9], "4": [0.4, 0.5], "8": [0.6, 0.6]},
            "b": {"2": [0.3, 0.52], "4": [0.5, 0.3], "8": [0.6, 0.6]},  # 4: the same mean as FP32
        },
    }
    assert lab3_widths.by_tolerance(measured) == [("b", (8, 2)), ("a", (8, 4))]


def test_the_way_goes_from_no_narrow_layer_to_all():
    assert lab3_widths.steps(38, 8)[0] == 0
    assert lab3_widths.steps(38, 8)[-1] == 38
    assert len(lab3_widths.steps(38, 8)) == 8
    assert lab3_widths.steps(3, 8) == [0, 1, 2, 3]
    assert lab3_widths.steps(38, 1) == [0]


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("bert.encoder.layer.0.attention.self.query", "block 0 query"),
        ("bert.encoder.layer.3.attention.output.dense", "block 3 attention output"),
        ("bert.encoder.layer.3.output.dense", "block 3 output"),
        ("bert.pooler.dense", "pooler"),
        ("classifier", "classifier"),
    ],
)
def test_a_layer_is_named_as_a_reader_says_it(layer, said):
    assert lab3_widths.short(layer) == said


def verdict(judged):
    """Of a claim that is alone on its page."""
    claim = Claim(name="it", hypothesis="It is so.", test=lambda records: judged)
    return judge_family({"it": claim}, {"it": judged}, {}, {})["it"].verdict


def a_record_of(experiment, params, values):
    case = Case(experiment=experiment, params={"seed": 0, **params})
    return sealed(a_record(case=case, values=values))


@pytest.mark.parametrize(("narrow", "said"), [(0, "refuted"), (5, "undecided"), (12, "supported")])
def test_widths_that_a_blind_draw_gives_as_well_are_no_finding(narrow, said):
    choices = {str(i): (8 if i < narrow else 32, 4) for i in range(12)}
    values = {"best": {"choices": choices, "score": 0.8, "bits": 12.0}}
    search = a_record_of("lab3_widths", {"part": "search", "sampler": "tpe"}, values)
    assert verdict(lab3_widths.widths_are_chosen(Records([search]))) == said


@pytest.mark.parametrize(("risen", "said"), [(1.0, "supported"), (0.0, "undecided")])
def test_the_layer_that_hurts_is_judged_on_sentences_that_did_not_choose_it(risen, said):
    noise = np.random.default_rng(0).normal(0.0, 0.01, 32)
    fp32 = [0.3] * 32
    by_frac = {str(frac): [0.3 + x for x in noise] for frac in lab3_widths.FRACS}
    hurt = by_frac | {"2": [0.3 + risen * (i % 2) + (i % 2 == 0) for i in range(32)]}
    halves = [
        a_record_of(
            "lab3_widths",
            {"part": "sensitivity", "half": half},
            {"layers": ["a", "b"], "fp32": fp32, "losses": losses},
        )
        for half, losses in enumerate([{"a": by_frac}, {"b": hurt}])
    ]
    assert verdict(lab3_widths.one_layer_is_enough(Records(halves))) == said


@pytest.mark.parametrize("page", [lab3_widths.page, lab3_formats.page])
def test_claims_wait_for_their_records(page):
    for claim in page.claims.values():
        with pytest.raises(Pending):
            claim.test(Records())


# ---- 3.2 ----------------------------------------------------------------------------------------


def test_the_families_are_all_the_presets_each_once():
    assert sorted(lab3_formats.NAMES) == sorted(presets())


def test_every_family_is_drawn_in_one_group():
    grouped = [family for families in lab3_formats.GROUPS.values() for family in families]
    assert sorted(grouped) == sorted(lab3_formats.FAMILIES)


def test_every_format_quantizes_a_whole_model(model, batch):
    """Binary, ternary, residual sign, block minifloat and the logarithmic ones among them."""
    own = copy.deepcopy(model)
    for name in lab3_formats.NAMES:
        precision.set_precision_(own, precision.uniform(own, presets()[name]))
        assert torch.isfinite(logits(own, batch)).all(), name


def test_a_kind_s_choice_is_every_block_s(model):
    layers = precision.layer_names(model)
    point = dict.fromkeys(precision.kinds(layers), lab3_formats.FP32) | {"query": "mxint8"}
    formats = lab3_formats.chosen(layers, point)
    assert [name for name, f in formats.items() if f] == [x for x in layers if x.endswith("query")]


def a_uniform_record(accuracy, n=500, **params):
    outcomes = Outcomes(np.arange(n) < accuracy * n, "test").to_json()
    values = {"outcomes": outcomes, "bits": 8.0, "validation": accuracy, "trained": False}
    return a_record_of("lab3_formats", params, {**values, "larger_class": 0.52})


@pytest.mark.parametrize(
    ("accuracy", "works", "costs"),
    [
        (0.84, "supported", "undecided"),
        (0.70, "supported", "supported"),
        (0.53, "undecided", "supported"),
        (0.20, "refuted", "supported"),
    ],
)
def test_a_format_works_and_costs_as_the_tests_say(accuracy, works, costs):
    records = Records(
        [
            a_uniform_record(0.85, part="fp32"),
            a_uniform_record(accuracy, part="uniform", format="log(8)"),
        ]
    )
    assert verdict(lab3_formats.log_works(records)) == works
    assert verdict(lab3_formats.log_costs(records)) == costs


def test_a_format_works_only_if_every_seed_s_model_does():
    records = Records(
        [
            a_uniform_record(0.85, part="fp32"),
            a_uniform_record(0.80, part="uniform", format="log(8)", seed=0),
            a_uniform_record(0.52, part="uniform", format="log(8)", seed=1),
        ]
    )
    assert verdict(lab3_formats.log_works(records)) == "undecided"


def test_the_format_is_chosen_on_validation_at_the_price_of_its_bits():
    wide = a_uniform_record(0.85, part="uniform", format="fixed(16,8)")
    narrow = a_uniform_record(0.85, part="uniform", format="fixed(8,4)")
    wide = replace(wide, values={**wide.values, "bits": 16.0})
    formats = lab3_formats.uniform(Records([wide, narrow]))
    assert lab3_formats.best_of(formats).label == "fixed(8,4)"
    wide = replace(wide, values={**wide.values, "validation": 0.86})
    formats = lab3_formats.uniform(Records([wide, narrow]))
    assert lab3_formats.best_of(formats).label == "fixed(16,8)"
