"""Question 3.1: what a search may draw, what a model costs, and what one layer does to a loss."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.lab3_widths import mixed, mixed_charts, mixed_facts, mixed_records, prefix
from experiments.lab3_widths import page as lab3_widths
from madl.compression.quantize import QuantizedLinear, linear_layers
from madl.formats.fixed import FixedPoint
from madl.logbook.arms import Arm
from madl.logbook.claims import Claim, judge_family
from madl.logbook.records import Case, Pending, Records, sealed
from madl.logbook.stats import Outcomes
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
    precision.set_precision_(own, mixed.precision_of(choices))
    layer = own.get_submodule(name)
    assert isinstance(layer, QuantizedLinear)
    assert layer.rule.weight == layer.rule.bias == FixedPoint(width=4, frac_width=5)
    assert layer.rule.input == FixedPoint(width=4, frac_width=2)
    assert layer.rule.products == "bfloat16"
    assert precision.mean_bits(own, mixed.precision_of(choices)) < 8


def test_a_model_over_the_budget_is_not_evaluated(model, monkeypatch):
    monkeypatch.setattr(precision, "judge", lambda *_: pytest.fail("evaluated"))
    wide = dict.fromkeys(precision.layer_names(model), (6, 6, 3))
    found = mixed.trial(model, wide, NARROWER.params(), SimpleNamespace(device="cpu"))
    assert found == {"value": -1.0, "bits": 6.0}


def test_the_better_half_goes_on_with_the_one_in_the_middle():
    tried = [{"value": value} for value in (0.5, 0.9, 0.5, 0.7, 0.6)]
    assert [one["value"] for one in mixed.better_half(tried)] == [0.9, 0.7, 0.6]


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

    monkeypatch.setattr(mixed, "trial", trial)
    monkeypatch.setattr(mixed, "_validated", validated)
    monkeypatch.setattr(mixed, "_tested", lambda model, choices, *_: {"met": choice(choices)})
    space = Space(widths=(4, 5, 6), fractions=(5, 6), inputs=(2,))
    params = {**space.params(), "tested": "5", "around": True}
    found = mixed.uniform(model, params, SimpleNamespace(device="cpu"))
    offered = [one["choice"] for one in found["trials"] if one["offered"]]
    assert offered == space.uniform()
    assert len(found["trials"]) == 4 + (4 * 3 - 2)  # on offer, and those around five bits
    assert list(found["at"]) == ["5"]
    assert len(found["at"]["5"]["judged"]) == 6
    assert found["at"]["5"]["met"] == (5, 5)


def test_each_format_is_tried_in_every_layer_alone(model, sentences, monkeypatch):
    splits = SimpleNamespace(validation=sentences)
    monkeypatch.setattr(mixed.baseline, "load_splits", lambda params: splits)
    params = {"sentences": 4, "base": "8 6 6", "others": "8 1 1, 8 6 6"}
    found = mixed.alone(copy.deepcopy(model), params, SimpleNamespace(device="cpu"))
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
    base = precision.uniform(own, mixed.format_of((8, 6, 4)))
    narrow = mixed.format_of((4, 3, 2))
    plain, found = prefix.one_at_a_time(own, base, narrow, sentences)
    assert plain == precision.judge(model, base, sentences, "cpu")
    assert list(found) == precision.layer_names(model)
    for layer, judged in found.items():
        assert judged == precision.judge(model, {**base, layer: narrow}, sentences, "cpu"), layer
        assert judged.losses != plain.losses, layer


def test_the_blocks_before_the_varied_one_do_not_run_again(model, sentences):
    own = copy.deepcopy(model)
    with prefix.recorded(own) as outputs:
        train.evaluate(own, sentences)
    ran: list[int] = []
    for i, one in enumerate(prefix.blocks(own)):
        one.register_forward_hook(lambda *_, i=i: ran.append(i))
    with prefix.replayed(own, outputs[:1]):
        train.evaluate(own, sentences)
    assert ran == [1]
    train.evaluate(own, sentences)
    assert ran == [1, 0, 1]  # and the model is whole again


def test_the_layers_that_move_losses_least_are_narrow_first():
    changes = {"a": [40, -40], "b": [5, -1], "c": [10, 10]}
    assert mixed.narrowed(changes) == [[], ["b"], ["b", "c"], ["b", "c", "a"]]


def test_the_way_goes_from_no_narrow_layer_to_all():
    assert mixed.steps(38, 6) == [0, 8, 15, 23, 30, 38]
    assert mixed.steps(2, 8) == [0, 1, 2]
    assert mixed.steps(38, 1) == [0]


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

OUTCOMES = {
    "validation_accuracy": 0.8,
    "outcomes": Outcomes(np.array([True, False]), "two").to_json(),
}

STUDIES = {
    "studies": [
        [{"value": -0.5, "head": 2}, {"value": 0.6, "head": 2}, {"value": 0.5, "head": 4}],
        [{"value": 0.7, "head": 4}, {"value": -0.1, "head": 4}, {"value": 0.8, "head": 8}],
    ]
}


def test_a_curve_begins_where_a_study_has_found_a_model_that_fits():
    first, second = mixed_records.so_far(an_arm(STUDIES))
    assert np.isnan(first[0])
    assert first[1:] == [0.6, 0.6]
    assert second == [0.7, 0.7, 0.8]
    of_models = mixed_records.so_far(an_arm(STUDIES, STUDIES))
    assert len(of_models) == 2
    assert np.isnan(of_models[0][0])
    assert of_models[0][1:] == pytest.approx([0.65, 0.7])


def test_trials_over_the_budget_are_not_counted():
    arm = an_arm(STUDIES)
    assert [one["value"] for one in mixed_records.within_budget(arm)] == [0.6, 0.5, 0.7, 0.8]
    assert mixed_records.best_trial(arm) == 0.8
    assert mixed_records.best_trial(arm, 2) == 0.6
    assert mixed_records.best_trial(arm, 16) == 0.0


AGREEING = [
    {"a": [8, 2, 2], "b": [8, 4, 4], "c": [16, 4, 4], "d": [16, 4, 4]},
    {"a": [8, 4, 4], "b": [16, 4, 4], "c": [32, 4, 4], "d": [16, 4, 4]},
]


def test_layers_agree_where_all_studies_gave_them_one_width():
    same, blind = mixed_records.agreeing(AGREEING)
    assert same == 2  # a and d
    assert blind == pytest.approx(4 * (2 / 4 * 1 / 4 + 2 / 4 * 2 / 4))
    assert mixed_records.agreeing(AGREEING, 1) == (3, pytest.approx(3.0))


def test_agreement_is_counted_within_every_model_and_search():
    other = [{layer: [8, 4, 4] for layer in "abcd"} for _ in range(2)]
    models = [
        {"layers": list("abcd"), "chosen": [{"choices": one} for one in chosen]}
        for chosen in (AGREEING, other)
    ]

    def row(*values):
        found = {"TPE": an_arm(*values, studies=2)}
        (only,) = mixed_charts.agreements({"narrower": found})
        return list(only.values())

    one = ["narrower", "TPE", 4, 2, "1.5 (0 to 3)", "2 of 4", 3, "3.0 (3 to 3)", "3 of 4"]
    assert row(models[0]) == one
    assert row(*models)[:4] == ["narrower", "TPE", 8, 6]
    both = mixed_facts.agreed(Records(an_arm(*models, part="search").records))
    assert both.text.startswith("Of 4 layers, at most 1 has the same width in all studies")
    assert both.of == "4 studies of each sampler in each space, on 2 models"


def test_a_format_for_all_layers_is_told_on_few_sentences_and_on_all():
    def model(few, every):
        trials = [{"choice": [8, x, x], "value": few, "offered": x < 8} for x in (2, 4, 8)]
        judged = [{"choice": [8, x, x], "validation_accuracy": every} for x in (4, 8)]
        return {"trials": trials, "at": {"8": {"judged": judged}}}

    (both,) = mixed_records.tried_on_all(an_arm(model(0.9, 0.8), model(0.7, 0.5)))
    assert both == pytest.approx((0.8, 0.65))
    assert mixed_records.best_on_both(an_arm({"trials": [], "at": {}})) is None


def test_the_best_format_for_all_layers_is_chosen_for_each_model():
    def model(*few):
        trials = [{"choice": [8, x, x], "value": v, "offered": True} for x, v in enumerate(few)]
        judged = [{"choice": [8, x, x], "validation_accuracy": v - 0.1} for x, v in enumerate(few)]
        return {"trials": trials, "at": {"8": {"judged": judged}}}

    a = an_arm(model(0.9, 0.7), model(0.6, 0.8))
    assert mixed_records.best_alike(a) == pytest.approx(0.85)
    assert mixed_records.best_on_both(a) == pytest.approx((0.85, 0.75))


def test_growth_and_the_fall_on_all_of_validation_are_both_means_over_all_studies():
    chosen = [{"validation_accuracy": 0.5}, {"validation_accuracy": 0.7}]
    values = {**STUDIES, "chosen": chosen, "settings": {"startup_trials": 2}}
    tpe = an_arm(values, values, studies=2, trials=3, trial_examples=8)
    tpe = replace(tpe, label="TPE, narrower")
    formats = {
        "trials": [{"choice": [5, 5, 2], "value": 0.9, "offered": True}],
        "at": {"5": {"judged": [{"choice": [5, 5, 2], "validation_accuracy": 0.8}]}},
    }
    said = mixed_facts.over_trials({"narrower": {"TPE": tpe}}, {"narrower": an_arm(formats)})
    assert "TPE's best grows from 65.0 % to 70.0 % and has 60.0 % on all of validation" in said.text
    assert said.text.endswith("one format for all layers has 90.0 % and 80.0 %")


def test_only_formats_on_offer_are_the_rivals_of_trials():
    trials = [{"value": 0.7, "offered": True}, {"value": 0.9, "offered": False}]
    assert mixed_records.alike(an_arm({"trials": trials})) == [0.7]


def test_a_format_is_held_against_the_trials_on_its_own_model():
    def model(formats, trial):
        searched = {"studies": [[{"value": trial, "head": 2}]]}
        return {"trials": [{"value": x, "offered": True} for x in formats], **searched}

    arm = an_arm(
        model((0.7, 0.6), 0.65), model((0.9, 0.8), 0.85), studies=1, trials=1, trial_examples=8
    )
    said = mixed_facts.rivals({"narrower": {"TPE": arm}}, {"narrower": arm})
    assert "2 of the 4 formats on offer within the budget (2 for each of 2 models)" in said.text
    assert "the best of them 80.0 %, the best trial 75.0 %" in said.text
    assert said.of.startswith("2 studies of 1 trials a sampler (1 on each of 2 models)")


def test_evaluations_are_all_that_were_made():
    params = {"trial_examples": 10, "studies": 2}
    values = {**STUDIES, "sentences": 100}
    assert mixed_records.search_evaluations(an_arm(values, **params)) == 4 * 10 + 2 * 100
    layers = sensitivity([[0, 0]] * 5)[0]  # two blocks, two layers in each, and the pooler
    found = mixed_records.evaluations(an_arm({**layers, "path": [{}, {}]}))
    assert found == 2 * (1 + (2 * 2 + 2 * 1 + 0) / 2 + 2)


def test_a_format_is_named_by_what_it_changes():
    alone = an_arm({}, base="16 8 8", others="16 2 2, 8 8 8, 8 4 4")
    said = [mixed_facts.change(alone, other) for other in mixed_facts.others(alone)]
    assert said == ["fraction width 2", "8 bits, fraction width 8", "8 bits, fraction width 4"]


def validated(accuracy, loss):
    return {"validation_accuracy": accuracy, "validation_loss": loss}


def blind_orders(*models):
    """What the fact says of models: the one by sensitivity, then its blind orders."""
    records = [
        a_record(case=Case(experiment="lab3_widths", params={"part": part, "seed": i}), values=one)
        for i, (own, *tried) in enumerate(models)
        for part, one in (
            ("sensitivity", own),
            ("blind", {"tried": tried, **max(tried, key=lambda one: one["validation_accuracy"])}),
        )
    ]
    return mixed_facts.blind_orders(Records(map(sealed, records), ())).text


FIRST = validated(0.81, 0.41), validated(0.8, 0.5), validated(0.82, 0.44), validated(0.7, 0.4)
SECOND = validated(0.6, 0.9), validated(0.7, 0.8), validated(0.65, 0.7), validated(0.61, 0.95)


def test_every_blind_order_is_held_against_the_one_by_sensitivity_on_validation():
    said = blind_orders(FIRST)
    assert (
        "1 of 3 blind orders beat the order by sensitivity in loss (−0.010 to +0.090 nats" in said
    )
    assert "and 1 in accuracy (−11.0 to +1.0 points from it)" in said
    assert "first by accuracy and number 2 by loss" in said


def test_blind_orders_are_counted_on_every_model_against_its_own():
    said = blind_orders(FIRST, SECOND)
    assert "3 of 6 blind orders beat the order by sensitivity of their model in loss" in said
    assert "and 4 in accuracy (−11.0 to +10.0 points from it)" in said
    assert "numbers 2, 2 by loss" in said


def test_layers_that_are_narrow_on_every_model_are_named_and_others_counted():
    def model(*narrow):
        choices = {layer: [4 if layer in narrow else 6, 5, 2] for layer in LAYERS}
        return {"choices": choices, **validated(0.8, 0.5)}

    first, second, third = model(*LAYERS[:2]), model(*LAYERS[:3]), model(*LAYERS[:2], LAYERS[3])
    rival = {"the rival": an_arm(first, first)}
    one = mixed_facts.which_are_narrow(an_arm(first), rival).text
    assert "gives 4 bits to 2 of 4 layers (all of block 0). The others have 6" in one
    two = mixed_facts.which_are_narrow(an_arm(second, third), rival).text
    assert "4 bits to 3 of 4 layers: the same 2 on all 2 models (all of block 0)" in two
    assert "and down of block 1 (1 of 2 models), query of block 1 (1 of 2 models). The" in two
    assert "the rival 80.0 %" in two


def test_the_table_names_every_format_that_was_chosen_for_a_model():
    def model(*choice):
        return {"at": {"5": {"choice": list(choice), "bits": 5.0, **OUTCOMES}}}

    def row(*models):
        chosen = replace(an_arm(*models, widths="4 5 6"), within=("at", "5"))
        return mixed_charts.model_row("narrower", "one format", chosen)["model"]

    plain, other = model(5, 5, 5), model(5, 5, 2)
    assert row(plain, plain) == "one format, fixed(5,5)"
    assert row(other, plain, other) == (
        "one format, fixed(5,5) and for inputs fixed(5,2) (2 of 3), fixed(5,5) (1 of 3)"
    )


def test_the_format_for_all_layers_may_be_one_that_no_search_was_offered():
    tried = [[5, weights, inputs] for weights in (4, 5) for inputs in (2, 3)]

    def model(*choice):
        trials = [{"choice": one, "offered": one[2] == 2, "value": 0.5} for one in tried]
        return {"trials": trials, "at": {"5": {"choice": list(choice)}}}

    space = {"widths": "5", "fractions": "5", "inputs": "2"}
    params = {"part": "uniform", "space": "narrower", "tested": "5", **space}
    arm = an_arm(model(5, 5, 2), model(5, 5, 3), **params)
    said = mixed_facts.rival_formats(Records(arm.records, ())).text
    assert "one of 4 formats of 5 bits (behind the point: 4 to 5 for weights, 2 to 3" in said
    assert "offers a layer 1 of these (5 for weights, 2 for inputs)" in said
    assert "chosen for 1 of 2 models is among them" in said


def test_a_finding_says_of_how_many_models_a_mean_is():
    rows = [[[900, 800]] * 5, [[700, 900]] * 5]
    arm = an_arm(*sensitivity(*rows))
    halves = mixed_records.by_half(arm)
    made = mixed_facts.further(arm, *halves, "here", "there")
    assert made.evidence.drawn == "2 validation sentences in the mean of 2 models"
    alone = mixed_facts.further(replace(arm, records=arm.records[:1]), *halves, "here", "there")
    assert alone.evidence.drawn == "2 validation sentences of 1 model"


def furthest(alone, narrow):
    """What the fact says of models."""
    params = {"part": "alone", "base": "16 8 8", "others": "8 8 8", "sentences": 2}
    arms = an_arm(*alone, **params), an_arm(*narrow, part="sensitivity")
    return mixed_facts.furthest(Records([x for arm in arms for x in arm.records], ())).text


def test_the_order_of_the_mean_may_be_that_of_no_model():
    def model(*changes):
        return {"layers": LAYERS, "alone": {"8 8 8": dict(zip(LAYERS, changes))}}

    models = [model([9000], [1], [5000], [0]), model([0], [9000], [5000], [0])]
    said = furthest(models, sensitivity([[9]] * 5, [[9]] * 5))
    assert "in this order on 0 of 2 models. Narrower" in said


def test_layers_that_change_every_loss_by_the_same_are_named():
    changes = {"8 8 8": dict(zip(LAYERS, ([3, -4], [3, -4], [0, 0], [0, 0])))}
    model = {"layers": LAYERS, "alone": changes}
    assert mixed_records.same_changes(an_arm(model), "alone", "8 8 8") == [tuple(LAYERS[:2])]
    said = furthest([model], sensitivity([[9, 9]] * 5))
    assert "down of block 0 and query of block 0 change the loss of each sentence" in said


def test_kinds_are_told_where_they_are_tested_in_all_blocks_and_in_the_early_ones():
    changes = [[900, 100], [800, 9000], [0, 0], [0, 0], [2000, 1000]]
    case = Case(experiment="lab3_widths", params={"seed": 0, "part": "sensitivity"})
    record = sealed(a_record(case=case, values=sensitivity(changes)[0]))
    said = mixed_facts.kinds(Records([record], ())).text
    assert said.startswith("Where pooler was chosen as the first, ")
    assert "the strongest of the others is query (0.45). By" in said
    assert "By kind: pooler 0.1, down 0.005, query 0.45. In the first half" in said
    assert "of the blocks alone: down 0.01, query 0.9. Single" in said
    assert said.endswith("of another kind above 0.1: query of block 0 (0.9)")


def test_of_blind_orders_a_finding_names_the_one_that_validation_chose():
    judged = {"bits": 4.9, **OUTCOMES}
    blind = an_arm({"tried": [], **judged}, draws=5, widths="4 5 6")
    assert mixed_facts.rival(blind, "that of 5").startswith(
        "the best, on validation, of 5 blind orders of the same two formats at 4.9 bits, 50.0 %"
    )
    assert mixed_facts.rival(an_arm(judged), "the best format") == "the best format"


def test_reviews_apart_are_chance_where_two_models_disagree_often():
    said = mixed_facts.apart(0.8792, 0.88, 25_000).text
    assert "20 reviews apart" in said
    assert "fewer than 105 reviews" in said  # (20 / 1.96)² is 104.1
    assert "0.4 points" in said


def sensitivity(*changes):
    """One seed a row of changes: of a down and a query layer of two blocks, then of the pooler."""
    layers = [*LAYERS, "bert.pooler.dense"]
    return [{"layers": layers, "changes": dict(zip(layers, one))} for one in changes]


def test_a_distance_is_averaged_over_layers_and_seeds_and_never_cancels():
    down, query = [[10_000, -10_000], [20_000, 0]], [[0, 0], [0, 0]]
    rows = [[one, zero, one, zero, [0, 0]] for one, zero in zip(down, query)]
    arm = an_arm(*sensitivity(*rows))
    found = mixed_records.moved(arm, width_space.kind)
    assert found["down"].tolist() == [1.5, 0.5]
    assert found["query"].tolist() == [0.0, 0.0]
    first, second = mixed_records.by_half(arm)
    assert first.tolist() == second.tolist() == [0.75, 0.25]


def verdict(claim, changes):
    """Of a claim that is alone on its page."""
    values = sensitivity(changes)[0]
    case = Case(experiment="lab3_widths", params={"seed": 0, "part": "sensitivity"})
    judged = claim(Records([sealed(a_record(case=case, values=values))]))
    alone = Claim(name="it", hypothesis="It is so.", test=lambda records: judged)
    return judge_family({"it": alone}, {"it": judged}, {}, {})["it"].verdict


@pytest.mark.parametrize(
    ("elsewhere", "said"), [(900, "supported"), (100, "undecided"), (0, "refuted")]
)
def test_the_kind_that_leads_is_judged_on_sentences_that_did_not_choose_it(elsewhere, said):
    noise = np.random.default_rng(0).integers(90, 111, (5, 64))
    changes = noise.copy()
    changes[4, ::2] = 900  # the pooler leads where it is chosen
    changes[4, 1::2] = elsewhere + noise[4, 1::2] - 100
    assert verdict(lab3_widths.one_kind_stands_out, changes.tolist()) == said


@pytest.mark.parametrize(
    ("early", "said"), [(500, "supported"), (100, "undecided"), (9, "refuted")]
)
def test_the_head_is_in_neither_half_of_the_blocks(early, said):
    noise = np.random.default_rng(1).integers(-9, 10, (5, 64))
    changes = noise + np.array([early, early, 100, 100, 9_999])[:, None]
    assert verdict(lab3_widths.early_layers_matter_more, changes.tolist()) == said


def test_claims_wait_for_their_records():
    for claim in lab3_widths.page.claims.values():
        with pytest.raises(Pending):
            claim.test(Records())
