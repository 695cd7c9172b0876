"""Question 3.1: what a mix is, what its study evaluates, and what the page makes of its records."""

import copy
import math
from types import SimpleNamespace

import pytest

from experiments.lab1_quantization import design as lab1_quantization
from experiments.lab3_widths import design, mixes, page, study
from madl.compression.quantize import QuantizedLinear, linear_layers
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import PROFILES
from madl.training import baseline, data, models, precision, search, train
from tests.synthetic import judgement, kept_of, read

WITHIN = design.WITHIN


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
    splits = SimpleNamespace(train=made, validation=made, test=made, test_fingerprint="test")
    monkeypatch.setattr(baseline, "load_splits", lambda params: splits)
    return made


def test_each_layer_takes_its_format_of_a_mix(model):
    own = copy.deepcopy(model)
    layers = precision.layer_names(own)
    bits = study.set_mix_(own, mixes.write(["8 4 4"] * (len(layers) - 2) + [design.FULL, "4 5 2"]))
    first, pooler, last = (own.get_submodule(layers[i]) for i in (0, -2, -1))
    assert isinstance(first, QuantizedLinear)
    assert isinstance(pooler, QuantizedLinear)
    assert isinstance(last, QuantizedLinear)
    assert first.rule.weight == first.rule.input == FixedPoint(width=8, frac_width=4)
    assert last.rule.weight == last.rule.bias == FixedPoint(width=4, frac_width=5)
    assert last.rule.input == FixedPoint(width=4, frac_width=2)
    assert pooler.rule.weight is pooler.rule.bias is pooler.rule.input is None
    sizes = [layer.weight.numel() for layer in linear_layers(own)]
    assert bits == pytest.approx(8 + (24 * sizes[-2] - 4 * sizes[-1]) / sum(sizes))
    assert study.set_mix_(own, "5 5 2") == 5
    with pytest.raises(ValueError, match="zip"):
        study.set_mix_(own, "5 5 2, 4 5 2")


# ---- mixes within a budget ----------------------------------------------------------------------


def taken(mix, sizes):
    """Bits a weight of a mix."""
    by_layer = mixes.by_layer(mix, [*sizes])
    return sum(mixes.width(by_layer[name]) * n for name, n in sizes.items()) / sum(sizes.values())


def uniform(width, sizes):
    return mixes.write([design.FORMATS[width]] * len(sizes))


def test_a_mix_over_the_budget_is_repaired_by_itself_alone_and_one_within_stays():
    sizes = {"a": 192, "b": 768, "c": 192, "d": 1}
    over = uniform(8, sizes)
    repaired = study.repaired(over, sizes, WITHIN)
    assert repaired == study.repaired(over, sizes, WITHIN)
    assert WITHIN["budget"] - 1.5 < taken(repaired, sizes) <= WITHIN["budget"]
    assert study.repaired(uniform(5, sizes), sizes, WITHIN) == uniform(5, sizes)
    assert study.repaired(over, sizes, {}) == over
    assert mixes.room(sizes, 4.7) == 5419  # of 5419.1


# ---- one layer at a time ------------------------------------------------------------------------


def test_what_one_layer_does_is_that_of_a_plain_evaluation_to_the_last_bit(model, sentences, ctx):
    own = copy.deepcopy(model)
    layers, offered = precision.layer_names(own), {"offered": "4 5 2, 6 5 3, 8 7 3"}
    moved = study.layer_moves(own, layers, offered, ctx)

    def evaluated(mix):
        study.set_mix_(own, mix)
        return train.evaluate(own, sentences.first(3)).losses  # of six, half choose

    plain = evaluated("8 7 3")
    for i, layer in enumerate(layers):
        assert moved[layer].keys() == {"4", "6", "8"}
        assert moved[layer]["8"] == 0
        for text in ("4 5 2", "6 5 3"):
            alone = ["8 7 3"] * len(layers)
            alone[i] = text
            apart = [abs(a - b) for a, b in zip(evaluated(mixes.write(alone)), plain)]
            assert moved[layer][text[0]] == math.fsum(apart) / len(plain)
    assert len({by_width["4"] for by_width in moved.values()}) > 1


def test_mixes_by_sensitivity_are_chosen_once_and_within_the_budget(
    model, sentences, ctx, monkeypatch
):
    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    params = {"part": "sensitivity", "seed": 0, **WITHIN}
    layers = study.run(params, ctx)["layers"]
    monkeypatch.setattr(study, "layer_moves", None)
    sizes = {row["layer"]: row["weights"] for row in layers}
    assert sizes == study.layer_sizes(model)
    by_name = {
        name: study.run({**params, "part": "untrained", "mix": name}, ctx)
        for name in ("ordered", "allocated")
    }
    for mix in by_name.values():
        assert mix["bits"] == pytest.approx(taken(mix["formats"], sizes))
        assert mix["bits"] <= WITHIN["budget"]

    def summed(name):
        by_layer = mixes.by_layer(by_name[name]["formats"], [*sizes])
        return sum(row["moved"][str(mixes.width(by_layer[row["layer"]]))] for row in layers)

    assert summed("allocated") <= summed("ordered")
    nearest = min(layers, key=lambda row: row["moved"]["4"])["layer"]
    assert mixes.by_layer(by_name["ordered"]["formats"], [*sizes])[nearest] == "4 5 2"


def test_sensitivities_are_of_one_block_if_a_case_says_so(model, sentences, ctx, monkeypatch):
    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    few = {"part": "sensitivity", "seed": 10, "offered": "4 5 2, 8 7 3"}
    by_block = [study.run({**few, "block": name}, ctx)["layers"] for name in ("0", "1", "head")]
    every = study.run(few, ctx)["layers"]
    assert [row for layers in by_block for row in layers] == every
    assert [row["layer"] for row in every] == precision.layer_names(model)


# ---- a search -----------------------------------------------------------------------------------


@pytest.fixture
def searching(model, sentences, ctx, monkeypatch):
    def search(**changes):
        params = {"part": "search", "sampler": "tpe", "seed": 0, "trials": 12, **changes}
        return study.run({"by": "validation_loss", **params}, ctx)

    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    return search


def alone(model, mix, sentences):
    """Loss of a model with a mix on the half of validation that chooses, or on the other."""
    own = copy.deepcopy(model)
    study.set_mix_(own, mix)
    return train.evaluate(own, sentences).loss


def test_a_search_within_the_budget_begins_with_what_is_known_and_judges_every_trial(
    searching, model, sentences, ctx
):
    choosing, kept_back = sentences.first(3), sentences.subset((3, 4, 5))
    values = searching(**WITHIN, begin=True)
    assert len(values["tried"]) == 12
    assert None not in values["tried"]
    known = study.mixes_by_sensitivity({"seed": 0, **WITHIN}, ctx).values()
    first = [alone(model, mix, choosing) for mix in ("4 5 2", "5 5 2", *known)]
    assert values["tried"][:4] == pytest.approx(first)
    assert 0 < values["num_repaired"] <= 12 - len(first)
    chosen = searching(**WITHIN, begin=True, part="untrained")
    assert chosen["bits"] <= WITHIN["budget"]
    assert alone(model, chosen["formats"], choosing) <= min(first[2:])
    held = alone(model, chosen["formats"], kept_back)
    assert chosen["kept_back_loss"] == pytest.approx(held)
    for rate in (1e-4, 3e-4):  # a training takes the same search's mix
        more = {"sampler": "tpe", "trials": 12, "by": "validation_loss", "begin": True}
        case = {"part": "trained", "tune_learning_rate": rate, "seed": 0, **more, **WITHIN}
        assert study.mix_of(case, ctx) == chosen["formats"]


def test_within_a_budget_a_mix_of_one_width_is_never_chosen():
    tried = ((3.0, "5 5 2, 5 5 2"), (1.0, "4 5 2, 6 5 3"), (2.0, "6 5 3, 4 5 2"))
    trials = [
        search.Trial(index=i, point={}, value=v, notes={"formats": mix}, at_random=True)
        for i, (v, mix) in enumerate(tried)
    ]
    assert study.chosen_of(trials, WITHIN) == "6 5 3, 4 5 2"
    assert study.chosen_of(trials, {}) == "5 5 2, 5 5 2"


def test_a_layer_has_a_coin_a_width_and_a_point_or_a_width_alone():
    asked = study.axes_of(["a"], design.ASKED_OFFER)
    assert asked.space == {
        "a in 32 float": ("yes", "no"),
        "a width": [8, 16, 32],
        "a point": [0, 1, 2],
    }
    drawn = {"a in 32 float": "no", "a width": 16, "a point": 2}
    assert asked.options_at(drawn) == ["16 8 8"]
    assert asked.options_at({**drawn, "a in 32 float": "yes"}) == [design.FULL]
    narrow = study.axes_of(["a", "b"], str(WITHIN["offered"]))
    assert narrow.space == {name: [4, 5, 6, 8] for name in ("a width", "b width")}
    assert narrow.options_at({"a width": 4, "b width": 8}) == ["4 5 2", "8 7 3"]


def test_a_search_may_begin_with_each_format_for_all_layers(searching, model, sentences):
    offered = f"8 2 2, 8 4 4, 16 2 2, 16 4 4, {design.FULL}"
    few = {"offered": offered, "trials": 5, "begin": True}
    values = searching(**few)
    assert values["tried"] == [alone(model, text, sentences) for text in mixes.read(offered)]
    assert values["num_repaired"] == 0
    best = mixes.read(offered)[values["tried"].index(min(values["tried"]))]
    chosen = searching(**few, part="untrained")["formats"]
    assert {*mixes.read(chosen)} == {best}


# ---- the page -----------------------------------------------------------------------------------

MOVED = {"a.0.query": 0.1, "a.0.key": 0.3, "classifier": 0.2}
SIZES = {"a.0.query": 300, "a.0.key": 100, "classifier": 100}


def mix_of(*widths):
    return mixes.write([design.FORMATS[width] for width in widths])


def tuned(*, ordered=0.38, trained=(0.33, 0.32, 0.31), allocated=(6, 4, 5), sizes=SIZES):
    """The tuning seed's records; of `trained` and of what is not, losses of the candidates."""
    layers = [
        {
            **{"layer": layer, "weights": sizes[layer]},
            "moved": {"4": nats, "5": nats / 2, "6": nats / 4, "8": 0.0},
        }
        for layer, nats in MOVED.items()
    ]
    formats = {
        "asked": ("8 2 2, 16 4 4, 32 float", 0.5),
        "begun": ("16 8 8, 16 8 8, 16 8 8", 0.5),
        "allocated": (mix_of(*allocated), 0.39),
        "searched": (mix_of(4, 5, 6), 0.4),
        "ordered": (mix_of(4, 6, 6), ordered),
        **{width: (design.FORMATS[int(width)], 0.4) for width in page.ONE_WIDTH},
    }
    untrained = [
        (name, {"formats": mix, "kept_back_loss": loss}) for name, (mix, loss) in formats.items()
    ]
    accuracies = (0.5, 0.6, 0.8, 0.7, 0.9, 0.9, 0.8, 0.8, 0.8)
    untrained += [
        (text, {"formats": text, "validation_loss": 0.5 - 0.01 * i, "validation_accuracy": share})
        for i, (text, share) in enumerate(zip(design.ASKED, accuracies, strict=True))
    ]
    cases = [
        ({"part": "search", "mix": "searched"}, {"tried": [0.5, 0.4], "num_repaired": 1}),
        ({"part": "sensitivity"}, {"layers": layers}),
        *(({"part": "untrained", "mix": name}, values) for name, values in untrained),
    ]
    for name, loss in zip(design.CANDIDATES, trained, strict=True):
        for rate, by_rate in ((design.RATES["mix"], loss), (3e-4, 0.1)):
            at = {"part": "trained", "mix": name, "tune_learning_rate": rate}
            cases.append((at, {"kept_back_loss": by_rate}))
    return read(*(kept_of("lab3_widths_tuning", v, seed=0, **at) for at, v in cases))


def test_a_layer_of_the_map_has_its_bits_and_the_words_count_what_they_take():
    rows = page.budget(SimpleNamespace(tuning=tuned()))
    assert [(row["block"], row["layer"]) for row in rows] == [
        ("block 0", "query"),
        ("block 0", "key"),
        ("head", "classifier"),
    ]
    assert [row["ordered"] for row in rows] == [4, 6, 6]
    assert [row["allocated"] for row in rows] == [6, 4, 5]
    said = page.says_budget(rows)
    assert said.startswith("1 of 3 layers have four bits: 4.80 bits a weight, within the budget")
    assert "by 225 thousandths of a nat; allocated, by 425." in said
    wide = [{**row, "ordered": 8} for row in rows]
    said = page.says_budget(wide)
    assert "0 of 3 layers have four bits: 8.00 bits a weight, over the budget" in said
    assert "by 0 thousandths" in said
    assert page.budget_svg(rows).count('class="cell narrow"') == 1


def test_formats_for_all_are_those_of_the_sweep_and_as_asked_those_of_most_accuracy():
    fractions = lab1_quantization.FRACTIONS
    assert {width: fractions[width] for width in design.FRACTIONS} == design.FRACTIONS
    assert design.RATES["mix"] == lab1_quantization.RATES[design.RIVAL_BITS]
    assert design.RATES["asked"] == lab1_quantization.RATES[design.WIDE_BITS]
    chosen = page.mixes_of(tuned())
    assert chosen["asked 8"] == "8 8 8"
    assert chosen["asked 16"] == "16 8 8"  # of equal accuracy, that of less loss
    assert chosen["5"] == "5 5 2"
    assert chosen["searched"] == mix_of(4, 5, 6)
    assert chosen[page.LAST_FIRST] == mix_of(4, 6, 6)  # all three narrow, until two fit again
    by_layer = {"a.0.query": 8, "a.0.key": 16, "classifier": 32}
    assert page.widths(tuned(), "asked") == by_layer
    assert page.widths(tuned(), "5") == dict.fromkeys(by_layer, 5)
    in_full = [page.in_full(page.choice(tuned(), name)) for name in ("asked", "begun")]
    assert in_full == [1, 0]


def test_the_best_mix_is_chosen_by_loss_and_is_never_one_width():
    assert page.best_untrained(tuned()) == "ordered"
    assert page.best_untrained(tuned(ordered=0.41)) == "allocated"
    assert page.best_untrained(tuned(ordered=0.41, allocated=(5, 5, 5))) == "searched"
    assert page.best_trained(tuned()) == "ordered"  # at the rate in use, not at a better one
    assert page.best_trained(tuned(trained=(0.30, 0.31, 0.30))) == "allocated"
    assert page.best_trained(tuned(trained=(0.30, 0.31, 0.32), allocated=(5, 5, 5))) == "searched"


def test_a_mix_moves_a_loss_by_what_its_layers_do_added_up():
    rows = {row["a layer has"]: row for row in page.predictions(SimpleNamespace(tuning=tuned()))}
    added_up = {label: row["moves a loss, added up"] for label, row in rows.items()}
    assert added_up["4 or 6 bits by sensitivity"] == "0.225"
    assert added_up["5 bits for all"] == "0.300"
    assert added_up["8 bits for all"] == "0.000"
    assert rows["4 or 6 bits by sensitivity"]["loss"] == "0.380"
    assert rows["5 bits for all"]["loss"] == "0.400"


PLAN = SimpleNamespace(
    profile=PROFILES["full"],
    seeds=(10, 11),
    workload={"model": "m", "dataset": "d"},
    records=lambda name: tuned(),
)


def test_blind_orders_are_their_seed_s_and_depth_s_is_that_of_all():
    sizes = dict.fromkeys(SIZES, 100)
    plan = SimpleNamespace(**{**vars(PLAN), "records": lambda name: tuned(sizes=sizes)})
    cases = [params for params in page.cases(plan) if params["part"] == "untrained"]
    blind = {(p["seed"], p["order"]): p["formats"] for p in cases if p["mix"] == "blind"}
    assert [*blind] == [(seed, order) for seed in (10, 11) for order in range(design.BLIND_ORDERS)]
    assert len({*blind.values()}) > 1
    by_depth = {p["formats"] for p in cases if p["mix"] == page.LAST_FIRST}
    assert by_depth == {mix_of(6, 4, 4)}
    for mix in (*blind.values(), *by_depth):
        assert taken(mix, sizes) <= design.BUDGET_BITS


def test_what_is_compared_is_trained_by_one_recipe():
    trained = {p["mix"]: p for p in page.cases(PLAN) if p["part"] == "trained" and p["seed"] == 10}
    assert {*trained} == {"ordered", page.RIVAL, page.WIDEST, "asked", "begun", "asked 16"}
    differ = {"mix": None, "formats": None}
    assert {**trained["ordered"], **differ} == {**trained[page.RIVAL], **differ}
    assert {**trained["asked"], **differ} == {**trained["asked 16"], **differ}
    r = read(
        kept_of("lab3_widths", judgement(1700), **trained[page.RIVAL]),
        kept_of("lab3_widths", judgement(1720), **trained["ordered"]),
    )
    r._tuning = tuned()
    made = page.a_mix_beats_one_width(r).comparison
    assert made.effect == pytest.approx(0.01)


def test_the_order_by_sensitivity_meets_every_blind_order_of_its_seed():
    cases = [({"mix": "ordered", "seed": seed}, right) for seed, right in ((10, 1700), (11, 1720))]
    cases += [
        ({"mix": "blind", "seed": seed, "order": order}, 1600 + 10 * order)
        for seed in (10, 11)
        for order in range(3)
    ]
    every = read(
        *(kept_of("lab3_widths", judgement(n), part="untrained", **params) for params, n in cases)
    )
    made = page.order_over_chance(every).comparison
    assert made.population == "seeds"
    assert made.by_unit == pytest.approx((0.045, 0.055))
