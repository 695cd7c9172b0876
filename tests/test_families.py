"""Question 3.2 and the page of formats: which formats there are, how they are chosen and judged."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments.formats import page as formats_page
from experiments.lab3_formats import page as lab3_formats
from experiments.lab3_formats import study
from madl.formats import presets
from madl.formats.fixed import FixedPoint
from madl.formats.minifloat import Minifloat
from madl.logbook.claims import Claim, judge
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Pending, Records, sealed
from madl.logbook.stats import Outcomes
from madl.training import families, format_arms, format_errors, models, precision
from madl.training.data import Encoded
from tests.conftest import a_record


@pytest.fixture(scope="module")
def model(tiny_model):
    return models.load_pretrained(str(tiny_model), seed=0).eval()


@pytest.fixture
def batch():
    return {"input_ids": torch.tensor([[2, 7, 8, 9, 3]]), "attention_mask": torch.ones(1, 5)}


# ---- names and formats --------------------------------------------------------------------------


def test_the_families_are_all_the_presets_each_once():
    assert sorted(families.NAMES) == sorted(presets())


def test_every_family_is_in_one_group_and_a_moved_format_in_its_own():
    grouped = [family for members in families.GROUPS.values() for family in members]
    assert sorted(grouped) == sorted(families.FAMILIES)
    assert [families.family_of(name) for name in families.MOVED] == [
        *("fixed point", "fixed point", "logarithmic", "minifloat", "minifloat", "minifloat"),
        "denormal",
    ]


def test_a_scale_from_the_data_is_what_leaves_a_format_without_a_range():
    for name, preset in presets().items():
        assert families.has_scale(name) is (preset.range is None), name


def test_a_larger_position_makes_the_values_smaller():
    for name in families.MOVED:
        own = families.position(families.preset_of(name))
        moved = families.moved(name, own + 1, own)
        assert moved.weight.range[1] < moved.input.range[1], name
        assert moved.input.range == families.preset_of(name).range
        assert moved.bits == moved.input.bits == families.preset_of(name).bits
    assert families.moved("log(4) moved", 8, 4).weight.range == (-0.5, 0.5)
    assert families.moved("fixed(8) moved", 7, 4).input.name == "fixed(8,4)"


def test_a_format_is_moved_once_and_its_preset_is_known():
    moved = [families.moved_of(name) for name in families.NAMES]
    assert sorted(name for name in moved if name) == sorted(families.MOVED)
    assert families.moved_of("fixed(8,4)") == "fixed(8) moved"
    assert families.moved_of("log(8)") is None


def test_a_descent_ends_below_its_neighbors_wherever_it_begins():
    judged: list[tuple[int, int]] = []

    def loss(at):
        judged.append(at)
        return (at[0] - 8) ** 2 + (at[1] - 2) ** 2

    assert study.descended(loss, (5, 4)) == (8, 2)
    assert len(judged) == len(set(judged))
    assert study.descended(lambda at: 0.69, (3, 3)) == (3, 3)


def test_every_format_quantizes_a_whole_model(model, batch):
    """Binary, ternary, residual sign, block minifloat and the logarithmic ones among them."""
    own = copy.deepcopy(model)
    for name in families.NAMES:
        precision.set_precision_(own, precision.uniform(own, presets()[name]))
        with torch.no_grad():
            assert torch.isfinite(own(**batch).logits).all(), name


def test_the_space_of_a_family_is_fp32_and_its_formats_each_once():
    assert families.space("MX integer") == ("fp32", "mxint4", "mxint8")
    assert families.space("logarithmic") == ("fp32", "log(4) moved", "log(8)")
    assert families.space("denormal") == ("fp32", "denormal(4,2) moved", "denormal(8,4)")
    assert len(families.space(None)) == 1 + len(presets())


# ---- training -----------------------------------------------------------------------------------


TUNE = {"tune_learning_rate": 1e-3, "tune_batch_size": 2, "seed": 0}
SENTENCES = Encoded(token_ids=[[2, 7, 8, 3], [2, 9, 6, 3]] * 4, labels=[0, 1] * 4, pad_id=0)


def test_training_leaves_the_model_alone_and_holds_the_words(model):
    before = copy.deepcopy(model.state_dict())
    formats = precision.uniform(model, presets()["mxint8"])
    tuned = precision.trained_on(model, formats, SENTENCES, TUNE, "cpu")
    assert all(torch.equal(model.state_dict()[name], x) for name, x in before.items())
    changed = {n for n, x in tuned.state_dict().items() if not torch.equal(x, before[n])}
    assert "classifier.weight" in changed
    assert "bert.embeddings.word_embeddings.weight" not in changed


def test_shared_weights_are_trained_in_another_precision_at_every_step(model):
    seen: list[int] = []

    def drawn(step):
        seen.append(step)
        return precision.uniform(model, presets()["mxint4" if step % 2 else "mxint8"])

    shared = precision.trained_between(model, drawn, SENTENCES, TUNE, "cpu")
    assert seen == [0, 1, 2, 3, 4]  # four steps, and what the weights are left in
    alone = precision.trained_on(model, drawn(0), SENTENCES, TUNE, "cpu")
    assert not torch.equal(shared.classifier.weight, alone.classifier.weight)


def test_the_rate_that_validation_prefers_may_be_none():
    def made(accuracy, loss):
        return {"validation_accuracy": accuracy, "validation_loss": loss}

    alike = {0.0: made(0.8, 0.4), 1e-5: made(0.8, 0.4), 3e-5: made(0.79, 0.3)}
    assert study.preferred(alike) == 0.0
    assert study.preferred({**alike, 1e-5: made(0.8, 0.39)}) == 1e-5


def test_a_random_point_follows_from_its_seed():
    space = {"query": families.space("minifloat"), "value": families.space("MX float")}
    points = [study.random_point(space, f"0 {step}") for step in range(50)]
    assert points[7] == study.random_point(space, "0 7")
    assert {point["value"] for point in points} == set(space["value"])


# ---- what the page makes of records -------------------------------------------------------------


def verdict(made):
    """Of a contrast that is alone on its page."""
    claim = Claim(name="it", hypothesis="It is so.", test=lambda records: made, primary=True)
    return judge({"it": claim}, {"it": made}, {}, {})["it"].verdict


def a_model(accuracy, *, validation=None, bits=8.0, n=2000, **params):
    """A record of a model that is right about the first sentences, and was not trained on."""
    outcomes = Outcomes(np.arange(n) < accuracy * n, "test").to_json()
    validation = accuracy if validation is None else validation
    judged = {"validation_accuracy": validation, "validation_loss": 0.5}
    worse = {"validation_accuracy": validation - 0.01, "validation_loss": 0.6}
    rates = {"rate": 0.0, "by_rate": {"0": judged, "1e-05": worse}}
    places = {"weights_at": 8, "inputs_at": 2} if params["part"] == "moved" else {}
    case = Case(experiment="lab3_formats", params={"seed": 0, **params})
    values = {"outcomes": outcomes, "bits": bits, "weight_zeroed": 0.1}
    return sealed(a_record(case=case, values={**values, **judged, **rates, **places}))


def uniform(name, accuracy, **more):
    part = "moved" if name in families.MOVED else "uniform"
    return a_model(accuracy, part=part, format=name, **more)


CONTROL = a_model(0.85, bits=32.0, part="control")


def test_claims_wait_for_their_records():
    for claim in lab3_formats.page.claims.values():
        with pytest.raises(Pending):
            claim.test(Records())


@pytest.mark.parametrize(
    ("accuracy", "said"), [(0.86, "supported"), (0.849, "supported"), (0.70, "refuted")]
)
def test_the_narrowest_format_is_chosen_on_validation_and_tested_by_the_same_margin(accuracy, said):
    wide = uniform("fixed(16,8)", 0.85, bits=16.0)
    narrow = uniform("scaled(4,row)", accuracy, validation=0.835, bits=4.0)
    bad = uniform("binary", 0.85, validation=0.50, bits=1.0)  # good on test: not chosen
    records = Records([CONTROL, wide, narrow, bad])
    assert lab3_formats.chosen(records).label == "scaled(4,row)"
    assert verdict(lab3_formats.narrowest_keeps_accuracy(records)) == said


def test_a_format_outside_the_margin_on_validation_does_not_pass():
    narrow = uniform("scaled(4,row)", 0.85, validation=0.829, bits=4.0)
    wide = uniform("mxint8", 0.85, validation=0.845, bits=8.25)
    assert lab3_formats.chosen(Records([CONTROL, narrow, wide])).label == "mxint8"


def test_a_format_counts_once_at_the_position_that_validation_prefers():
    moved = uniform("log(4) moved", 0.80, bits=4.0)
    records = Records([CONTROL, uniform("log(4)", 0.50, bits=4.0), moved, uniform("log(8)", 0.84)])
    assert list(format_arms.once(records)) == ["log(4) moved", "log(8)"]
    rows = {row["format"]: row for row in lab3_formats.every_format(records)[:3]}
    assert list(rows) == ["`log(4)`", "`log(4) at 8 and 2`", "`log(8)`"]
    assert rows["`log(8)`"]["untrained, validation"] == "84.0 %"
    assert rows["`log(8)`"]["rate taken"] == "untrained"


def test_three_classes_of_eight_bits():
    records = Records(
        [
            uniform("mxfp6-e2m3", 0.89, bits=6.25),  # too narrow to be a rival
            uniform("mxint8", 0.86, bits=8.25),
            uniform("fixed(8) moved", 0.87),  # its position is from the data
            uniform("minifloat(8,4)", 0.85),
        ]
    )
    made = lab3_formats.scale_helps_at_8(records)
    assert (made.a.label, made.b.label) == ("mxint8", "minifloat(8,4)")


def test_the_strongest_has_no_more_bits_and_is_the_best_on_validation():
    records = Records(
        [
            uniform("mxint8", 0.86, bits=8.25),
            uniform("scaled(8,row)", 0.80, validation=0.85),
            uniform("fixed(8,4)", 0.85, validation=0.63),
            uniform("log(8)", 0.80, validation=0.86),
        ]
    )
    best = lab3_formats.strongest(records, 8, lambda name: not families.is_log(name))
    assert best.label == "scaled(8,row)"


def a_search(seed, scores, **params):
    """A search of one model: each trial as many bits as its score is of ten."""
    trials = [{"score": score} for score in scores]
    choices = {"query": "fp32", "key": "binary"}
    best = {"score": max(scores), "bits": 10 * max(scores), "choices": choices}
    made = a_model(0.8, seed=seed, bits=best["bits"], trials=len(scores), choices=2, **params)
    searched = {"trials": trials, "best": best, "nothing": 0.6, "startup": 1, "points": 4}
    searched["kinds"] = list(choices)
    return replace(made, values={**made.values, **searched})


def test_a_search_of_several_models_is_told_of_all_of_them():
    over = {"part": "combined", "probe_examples": 9}
    family = {"part": "family", "family": "binary", "probe_examples": 9}
    scores = [[0.8, 0.7], [0.5, 0.6], [0.4, 0.7]]
    records = Records(
        a_search(seed, own, **case) for case in (over, family) for seed, own in enumerate(scores)
    )
    row = lab3_formats.every_search(records)[0]
    assert row["best found at"] == "1, 2, 2"
    assert row["best score"] == "70.0 %"
    assert row["its bits"] == pytest.approx(7.0)
    assert lab3_formats.found_blindly(records).value == 2
    assert lab3_formats.curves(records).rows[1]["all formats"] == pytest.approx(0.7)


def test_the_rival_of_a_mix_may_have_as_many_bits_in_each_model():
    seeds, bits = range(2), [8.1, 5.0]
    mixed = [a_model(0.8, part="combined", seed=s, bits=b) for s, b in zip(seeds, bits)]
    widest = [uniform("fixed(16,8)", 0.85, seed=s, bits=16.0) for s in seeds]
    wide = [uniform("mxint8", 0.84, seed=s, bits=8.25) for s in seeds]
    middle = [uniform("mxfp6-e2m3", 0.83, seed=s, bits=6.25) for s in seeds]
    narrow = [uniform("scaled(4,row)", 0.82, seed=s, bits=4.0) for s in seeds]
    rival = lab3_formats.one_format(Records([*mixed, *widest, *wide, *middle, *narrow]))
    assert rival.each("bits") == [8.25, 6.25]


def test_every_seed_of_full_has_all_formats_and_searches():
    plan = SimpleNamespace(profile=PROFILES["full"], workload={"model": "m", "dataset": "d"})
    cases = list(lab3_formats.cases(plan))
    of = {part: [c for c in cases if c["part"] == part] for part in {c["part"] for c in cases}}
    assert {part: len(found) / PROFILES["full"].seeds for part, found in of.items()} == {
        **{"uniform": 36, "moved": 7, "control": 1, "family": 14, "combined": 1},
    }
    steps = {c["tune_examples"] // c["tune_batch_size"] for c in cases}
    assert steps == {32}


# ---- the page of formats ------------------------------------------------------------------------


def test_signal_to_error_is_that_of_a_uniform_grid():
    x = torch.linspace(-0.9, 0.9, 100_001)
    found = format_errors.sqnr_db(FixedPoint(width=8, frac_width=7), [x])
    step = 2.0**-7
    assert found == pytest.approx(10 * math.log10(float((x**2).mean()) * 12 / step**2), abs=0.05)
    assert format_errors.sqnr_db(FixedPoint(width=8, frac_width=7), [torch.zeros(3)]) == math.inf


def test_a_format_is_moved_to_where_the_choosing_data_lie():
    generator = torch.Generator().manual_seed(0)
    data = {
        "choosing weights": [torch.randn(4096, generator=generator) / 32],
        "choosing inputs": [torch.randn(4096, generator=generator) * 4],
    }
    found = format_errors.best_shifted(Minifloat(width=4, exponent_width=2), data)
    assert found["weights"].range[1] < 0.2 < 4 < found["inputs"].range[1]
    assert format_errors.best_shifted(presets()["mxint8"], data) == {}


def test_what_chooses_is_not_what_is_shown(model):
    sentences = Encoded(token_ids=[[2, 7, 8, 3]], labels=[0], pad_id=0)
    splits = SimpleNamespace(train=sentences, validation=sentences)
    data = format_errors.tensors(model, splits)
    weights = [*data["weights"], *data["choosing weights"]]
    assert len(data["choosing weights"]) == 6  # block 0 of two; pooler and classifier are shown
    assert len({x.data_ptr() for x in weights}) == len(weights) == 14


def test_every_kind_of_format_has_its_source():
    kinds = {type(preset).__name__ for preset in presets().values()}
    assert set(formats_page.SOURCES) == kinds
