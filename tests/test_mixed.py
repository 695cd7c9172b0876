"""Question 3.1: what a search may draw, what a model costs, and what one layer does to a loss."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.lab3_widths import page as lab3_widths
from experiments.lab3_widths import study
from madl.compression.quantize import QuantizedLinear, linear_layers
from madl.formats.fixed import FixedPoint
from madl.logbook.arms import Arm
from madl.logbook.records import Case, Pending, Records, sealed
from madl.training import data, models, precision, train, width_space
from madl.training.width_space import Space
from tests.conftest import a_record

ASKED = Space(widths=(8, 16, 32), fractions=(2, 4, 8))
NARROWER = Space.between((4, 5, 2), (6, 6, 3))


@pytest.fixture(scope="module")
def model(tiny_model):
    """With weights that a few bits do not turn into zeros."""
    made = models.load_pretrained(str(tiny_model), seed=0).eval()
    for layer in linear_layers(made):
        layer.weight.data *= 8
    return made


@pytest.fixture(scope="module")
def sentences():
    lengths = (9, 4, 7, 5, 12, 6)
    ids = [[2, *(5 + (i * j) % 20 for j in range(n)), 3] for i, n in enumerate(lengths, 3)]
    return data.Encoded(token_ids=ids, labels=[0, 1, 1, 0, 1, 0], pad_id=0)


# ---- the space ----------------------------------------------------------------------------------


def test_the_budget_is_the_average_of_the_widths_on_offer():
    assert ASKED.budget == pytest.approx(56 / 3)
    assert NARROWER.budget == 5


def test_a_space_between_two_formats_holds_both_and_all_between():
    assert Space(widths=(4, 5, 6), fractions=(5, 6), inputs=(2, 3)) == NARROWER
    assert Space.between((4, 6, 3), (6, 5, 1)).inputs == (1, 2, 3)


@pytest.mark.parametrize("space", [ASKED, NARROWER])
def test_a_space_comes_back_from_the_parameters_of_a_case(space):
    assert Space.of({"seed": 0, **space.params()}) == space


def test_one_format_for_all_layers_is_within_the_budget():
    assert ASKED.uniform() == [(w, f, f) for w in (8, 16) for f in (2, 4, 8)]
    assert len(NARROWER.uniform()) == 2 * 2 * 2
    assert max(NARROWER.uniform()) == (5, 6, 3)


def test_around_a_space_is_one_more_fraction_width_on_either_side():
    around = NARROWER.around(5)
    assert len(around) == len(set(around)) == 4 * 4
    assert {one[0] for one in around} == {5}
    assert (min(around), max(around)) == ((5, 4, 1), (5, 7, 4))
    assert {one for one in NARROWER.uniform() if one[0] == 5} < set(around)


def test_a_point_gives_every_layer_its_choice():
    layers = ["a", "b"]
    assert len(ASKED.parameters(layers)) == 4
    assert len(NARROWER.parameters(layers)) == 6
    point = {"a width": 8, "a fraction": 4, "b width": 32, "b fraction": 2}
    assert ASKED.choices(point, layers) == {"a": (8, 4, 4), "b": (32, 2, 2)}
    one = Space(widths=(4, 5), fractions=(5,), inputs=(2,))
    assert list(one.parameters(["a"])) == ["a width"]
    assert one.choices({"a width": 5}, ["a"]) == {"a": (5, 5, 2)}


@pytest.mark.parametrize(
    ("layer", "place", "kind"),
    [
        ("bert.encoder.layer.0.attention.self.query", "block 0", "query"),
        ("bert.encoder.layer.3.attention.output.dense", "block 3", "output"),
        ("bert.encoder.layer.3.intermediate.dense", "block 3", "up"),
        ("bert.encoder.layer.11.output.dense", "block 11", "down"),
        ("bert.pooler.dense", "pooler", "pooler"),
        ("classifier", "classifier", "classifier"),
    ],
)
def test_a_layer_is_named_as_a_reader_says_it(layer, place, kind):
    assert (width_space.place(layer), width_space.kind(layer)) == (place, kind)


# ---- models -------------------------------------------------------------------------------------


def test_weight_and_input_take_their_own_formats(model):
    own, name = copy.deepcopy(model), "classifier"
    choices = dict.fromkeys(precision.layer_names(own), (8, 4, 4)) | {name: (4, 5, 2)}
    precision.set_precision_(own, study.precision_of(choices))
    layer = own.get_submodule(name)
    assert isinstance(layer, QuantizedLinear)
    assert layer.rule.weight == layer.rule.bias == FixedPoint(width=4, frac_width=5)
    assert layer.rule.input == FixedPoint(width=4, frac_width=2)
    assert layer.rule.products == "bfloat16"
    assert precision.mean_bits(own, study.precision_of(choices)) < 8


def test_a_model_over_the_budget_is_not_evaluated(model, monkeypatch):
    monkeypatch.setattr(precision, "judge", lambda *_: pytest.fail("evaluated"))
    wide = dict.fromkeys(precision.layer_names(model), (6, 6, 3))
    found = study.trial(model, wide, NARROWER.params(), SimpleNamespace(device="cpu"))
    assert found == {"value": -1.0, "bits": 6.0}


def test_the_better_half_goes_on_with_the_one_in_the_middle():
    tried = [{"value": value} for value in (0.5, 0.9, 0.5, 0.7, 0.6)]
    assert [one["value"] for one in study.better_half(tried)] == [0.9, 0.7, 0.6]


def test_validation_chooses_among_the_better_half_of_a_width_and_its_best_is_tested(
    model, monkeypatch
):
    on_trial = {(4, 5): 0.6, (5, 4): 0.9, (5, 5): 0.8, (5, 6): 0.7, (5, 7): 0.1}
    on_all = {(5, 4): 0.5, (5, 5): 0.6, (5, 6): 0.55}

    def choice(choices):
        (same,) = set(choices.values())
        return same[:2]

    def validated(model, choices, *_):
        value = on_all.get(choice(choices), 0.0)
        return {"validation_accuracy": value, "validation_loss": 1.0}

    def trial(model, choices, *_):
        return {"value": on_trial.get(choice(choices), 0.0), "bits": choice(choices)[0]}

    monkeypatch.setattr(study, "trial", trial)
    monkeypatch.setattr(study, "_validated", validated)
    monkeypatch.setattr(study, "_tested", lambda model, choices, *_: {"met": choice(choices)})
    space = Space(widths=(4, 5, 6), fractions=(5, 6), inputs=(2,))
    params = {**space.params(), "tested": "5", "around": True}
    found = study.uniform(model, params, SimpleNamespace(device="cpu"))
    offered = [one["choice"] for one in found["trials"] if one["offered"]]
    assert offered == space.uniform()
    assert len(found["trials"]) == 4 + (4 * 3 - 2)  # on offer, and those around five bits
    assert list(found["at"]) == ["5"]
    assert len(found["at"]["5"]["judged"]) == 6
    assert found["at"]["5"]["met"] == (5, 5)


def test_each_format_is_tried_in_every_layer_alone(model, sentences, monkeypatch):
    splits = SimpleNamespace(validation=sentences)
    monkeypatch.setattr(study.baseline, "load_splits", lambda params: splits)
    params = {"sentences": 4, "base": "8 6 6", "others": "8 1 1, 8 6 6"}
    found = study.alone(copy.deepcopy(model), params, SimpleNamespace(device="cpu"))
    assert list(found["alone"]) == ["8 1 1", "8 6 6"]
    assert [*found["alone"]["8 1 1"]] == found["layers"] == precision.layer_names(model)
    assert {len(changes) for changes in found["alone"]["8 1 1"].values()} == {4}
    assert any(any(changes) for changes in found["alone"]["8 1 1"].values())
    assert not any(any(changes) for changes in found["alone"]["8 6 6"].values())


def test_what_one_layer_does_is_that_of_a_plain_evaluation_to_the_last_bit(
    model, sentences, monkeypatch
):
    monkeypatch.setattr(train, "EVALUATION_BATCH", 4)  # two batches
    own = copy.deepcopy(model)
    base = precision.uniform(own, study.format_of((8, 6, 4)))
    narrow = study.format_of((4, 3, 2))
    plain, found = study.one_at_a_time(own, base, narrow, sentences)
    assert plain == precision.judge(model, base, sentences, "cpu")
    assert list(found) == precision.layer_names(model)
    for layer, judged in found.items():
        assert judged == precision.judge(model, {**base, layer: narrow}, sentences, "cpu"), layer
        assert judged.losses != plain.losses, layer


def test_the_blocks_before_the_varied_one_do_not_run_again(model, sentences):
    own = copy.deepcopy(model)
    with study.recorded(own) as outputs:
        train.evaluate(own, sentences)
    ran: list[int] = []
    for i, one in enumerate(study.blocks(own)):
        one.register_forward_hook(lambda *_, i=i: ran.append(i))
    with study.replayed(own, outputs[:1]):
        train.evaluate(own, sentences)
    assert ran == [1]
    train.evaluate(own, sentences)
    assert ran == [1, 0, 1]  # and the model is whole again


def test_the_layers_that_move_losses_least_are_narrow_first():
    changes = {"a": [40, -40], "b": [5, -1], "c": [10, 10]}
    assert study.narrowed(changes) == [[], ["b"], ["b", "c"], ["b", "c", "a"]]


def test_the_way_goes_from_no_narrow_layer_to_all():
    assert study.steps(38, 6) == [0, 8, 15, 23, 30, 38]
    assert study.steps(2, 8) == [0, 1, 2]
    assert study.steps(38, 1) == [0]


# ---- reading the records ------------------------------------------------------------------------


def an_arm(*values, **params):
    cases = [
        Case(experiment="lab3_widths", params={"seed": s, **params}) for s in range(len(values))
    ]
    made = (sealed(a_record(case=case, values=one)) for case, one in zip(cases, values))
    return Arm(label="it", records=tuple(made))


LAYERS = [
    f"bert.encoder.layer.{i}.{tail}"
    for i in range(2)
    for tail in ("output.dense", "attention.self.query")
]

STUDIES = {
    "studies": [
        [{"value": -0.5, "head": 2}, {"value": 0.6, "head": 2}, {"value": 0.5, "head": 4}],
        [{"value": 0.7, "head": 4}, {"value": -0.1, "head": 4}, {"value": 0.8, "head": 8}],
    ]
}


def test_a_curve_begins_where_a_study_has_found_a_model_that_fits():
    first, second = lab3_widths.so_far(an_arm(STUDIES))
    assert np.isnan(first[0])
    assert first[1:] == [0.6, 0.6]
    assert second == [0.7, 0.7, 0.8]
    of_models = lab3_widths.so_far(an_arm(STUDIES, STUDIES))
    assert len(of_models) == 2
    assert np.isnan(of_models[0][0])
    assert of_models[0][1:] == pytest.approx([0.65, 0.7])


AGREEING = [
    {"a": [8, 2, 2], "b": [8, 4, 4], "c": [16, 4, 4], "d": [16, 4, 4]},
    {"a": [8, 4, 4], "b": [16, 4, 4], "c": [32, 4, 4], "d": [16, 4, 4]},
]


def test_layers_agree_where_all_studies_gave_them_one_width():
    same, blind = lab3_widths.agreeing(AGREEING)
    assert same == 2  # a and d
    assert blind == pytest.approx(4 * (2 / 4 * 1 / 4 + 2 / 4 * 2 / 4))


def test_coarse_layers_are_those_with_the_least_fraction_width_on_offer():
    models = [{"choices": one} for one in AGREEING]
    assert lab3_widths.coarse_layers(an_arm(*models, **ASKED.params())) == 0.5


def test_the_best_format_for_all_layers_is_chosen_for_each_model_among_those_on_offer():
    def model(*few):
        trials = [{"value": value, "offered": True} for value in few]
        return {"trials": [*trials, {"value": 0.99, "offered": False}]}

    assert lab3_widths.best_alike(an_arm(model(0.9, 0.7), model(0.6, 0.8))) == pytest.approx(0.85)


def sensitivity(*changes):
    """One seed a row of changes: of a down and a query layer of two blocks, then of the pooler."""
    layers = [*LAYERS, "bert.pooler.dense"]
    return [{"layers": layers, "changes": dict(zip(layers, one))} for one in changes]


def test_a_distance_is_averaged_over_layers_and_seeds_and_never_cancels():
    down, query = [[10_000, -10_000], [20_000, 0]], [[0, 0], [0, 0]]
    rows = [[one, zero, one, zero, [0, 0]] for one, zero in zip(down, query)]
    arm = an_arm(*sensitivity(*rows))
    found = lab3_widths.moved(arm)
    assert found[LAYERS[0]].tolist() == [1.5, 0.5]
    assert found[LAYERS[1]].tolist() == [0.0, 0.0]
    first, second = lab3_widths.by_half(arm)
    assert first.tolist() == second.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(("early", "sign"), [(500, 1), (9, -1)])
def test_the_head_is_in_neither_half_of_the_blocks(early, sign):
    noise = np.random.default_rng(1).integers(-9, 10, (5, 64))
    changes = noise + np.array([early, early, 100, 100, 9_999])[:, None]
    case = Case(experiment="lab3_widths", params={"seed": 0, "part": "sensitivity"})
    record = a_record(case=case, values=sensitivity(changes.tolist())[0])
    made = lab3_widths.early_layers_matter_more(Records([sealed(record)])).comparison
    assert np.sign(made.effect) == sign
    assert not made.interval.holds(0.0)


def test_the_narrow_layers_of_the_second_half_of_the_blocks_are_counted():
    narrow, wide = list(lab3_widths.NARROW), list(lab3_widths.WIDE)
    choices = dict(zip(LAYERS, (narrow, wide, narrow, narrow))) | {"bert.pooler.dense": narrow}
    arm = an_arm({"layers": [*choices], "choices": choices}, part="sensitivity")
    r = Records(arm.records)
    assert lab3_widths.late_and_narrow(r, every=True).value == 4
    assert lab3_widths.late_and_narrow(r, every=False).value == 2


def test_claims_wait_for_their_records():
    for claim in lab3_widths.page.claims.values():
        with pytest.raises(Pending):
            claim.test(Records())
