"""Mixed precision: which layer has which format, what it costs, and what the pages make of it."""

import copy
import itertools
import random

import numpy as np
import pytest
import torch

from experiments import lab3_formats, lab3_widths
from madl.compression.quantize import QuantizedLinear, Rule, linear_layers, quantize_
from madl.formats import presets
from madl.formats.fixed import FixedPoint
from madl.logbook.results import Pending, Records
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
        ("bert.encoder.layer.0.attention.self.query", "0 query"),
        ("bert.encoder.layer.3.attention.output.dense", "3 output"),
        ("bert.pooler.dense", "pooler"),
        ("classifier", "classifier"),
    ],
)
def test_a_layer_is_named_as_a_reader_says_it(layer, said):
    assert lab3_widths.short(layer) == said


def a_search_record(choices, **values):
    params = {"part": "search", "sampler": "tpe", "seed": 0, "trials": 3}
    best = {"choices": choices, "score": 0.8, "bits": 12.0}
    case = a_record().case
    return a_record(
        case=type(case)(experiment="lab3_widths", params=params), values={"best": best, **values}
    )


@pytest.mark.parametrize(("narrow", "verdict"), [(5, "undecided"), (12, "supported")])
def test_widths_that_a_blind_draw_gives_as_well_are_no_finding(narrow, verdict):
    choices = {str(i): (8 if i < narrow else 32, 4) for i in range(12)}
    claim = lab3_widths.widths_are_chosen(Records([a_search_record(choices)]))
    assert claim.verdict == verdict


def test_claims_wait_for_their_records():
    for claim in lab3_widths.experiment.claims.values():
        with pytest.raises(Pending):
            claim(Records())
    for claim in lab3_formats.experiment.claims.values():
        with pytest.raises(Pending):
            claim(Records())


# ---- 3.2 ----------------------------------------------------------------------------------------


def test_the_families_are_all_the_presets_each_once():
    assert sorted(lab3_formats.NAMES) == sorted(presets())


def test_every_family_is_drawn_in_one_group():
    grouped = [family for families, _ in lab3_formats.GROUPS.values() for family in families]
    assert sorted(grouped) == sorted([*lab3_formats.FAMILIES, lab3_formats.MIXED])


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


def test_labels_are_pushed_apart_and_keep_their_order():
    rng = random.Random(0)
    for _ in range(50):
        ends = {str(i): rng.random() for i in range(14)}
        places = list(lab3_formats.spread(ends, 0.06).values())
        assert all(a - b >= 0.06 - 1e-9 for a, b in itertools.pairwise(places))
        assert sum(places) == pytest.approx(sum(ends.values()))


def test_labels_that_have_room_stay_where_they_are():
    ends = {"a": 0.9, "b": 0.5, "c": 0.1}
    assert lab3_formats.spread(ends, 0.06) == pytest.approx(ends)


def test_the_front_is_what_nothing_as_narrow_beats():
    rows = [
        {"format": name, "bits": bits, "test accuracy": accuracy}
        for name, bits, accuracy in [
            *(("a", 8, 0.8), ("b", 8, 0.7), ("c", 4, 0.75), ("d", 16, 0.8), ("e", 2, 0.5)),
        ]
    ]
    assert [row["format"] for row in lab3_formats.on_front(rows)] == ["e", "c", "a"]


def uniform_record(accuracy, part="uniform", n=500, **values):
    correct = np.arange(n) < accuracy * n
    params = {"part": part, "seed": 0, "format": "x"}
    case = type(a_record().case)(experiment="lab3_formats", params=params)
    outcomes = Outcomes(correct, "test").to_json()
    return a_record(case=case, values={"outcomes": outcomes, "accuracy": accuracy, **values})


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        (0.84, lab3_formats.KEEPS),
        (0.70, lab3_formats.LOSES),
        (0.53, lab3_formats.GUESSES),
        (0.20, lab3_formats.GUESSES),
    ],
)
def test_a_format_keeps_loses_or_guesses_as_the_tests_say(accuracy, said):
    fp32 = uniform_record(0.85, part="fp32", larger_class=0.52)
    found = uniform_record(accuracy)
    assert lab3_formats.effect(Records([fp32, found]), Records([found])) == said
