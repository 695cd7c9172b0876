"""Question 3.1: what a mix is, what its study evaluates, and what the page makes of its records."""

import copy
import math
import random
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from experiments.lab1_quantization import design as lab1_quantization
from experiments.lab3_widths import design, page, study
from madl.compression.quantize import QuantizedLinear, linear_layers
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import PROFILES
from madl.training import baseline, data, models, precision, train
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


def test_each_layer_takes_the_format_of_its_digit(model):
    own, params = copy.deepcopy(model), {"formats": "8 4 4, 4 5 2, FP32"}
    layers = precision.layer_names(own)
    bits = study.set_mix_(own, "0" * (len(layers) - 2) + "21", params)
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


# ---- mixes within a budget ----------------------------------------------------------------------


def taken(digits, sizes, params=WITHIN):
    """Bits a weight of a mix."""
    widths = study.widths_of(params)
    each = zip(digits, sizes, strict=True)
    return sum(widths[int(digit)] * size for digit, size in each) / sum(sizes)


def test_a_knapsack_is_that_of_brute_force():
    rng, widths = random.Random(0), (4, 5, 6, 8)
    for _ in range(60):
        sizes = [rng.choice((2, 6, 12, 24)) for _ in range(rng.randint(1, 5))]
        costs = [[rng.random() * (width < 8) for width in widths] for _ in sizes]
        room = rng.randint(4 * sum(sizes), 8 * sum(sizes) + 3)

        def total(mix, costs=costs):
            return sum(row[i] for row, i in zip(costs, mix))

        fitting = [
            mix
            for mix in product(range(len(widths)), repeat=len(sizes))
            if sum(widths[i] * size for i, size in zip(mix, sizes)) <= room
        ]
        chosen = study.allocate(costs, sizes, widths, room)
        assert tuple(chosen) in fitting
        assert total(chosen) == pytest.approx(min(map(total, fitting)))
    with pytest.raises(ValueError, match="take more than the 7 bits"):
        study.allocate([[0.0]], [2], [4], 7)


def test_an_allocation_narrows_what_moves_least_and_spends_the_whole_budget():
    sizes = {"a": 1, "b": 1, "c": 2}
    moves = {
        "a": {"4": 9.0, "5": 3.0, "6": 1.0},
        "b": {"4": 0.3, "5": 0.2, "6": 0.1},
        "c": {"4": 0.5, "5": 0.4, "6": 0.3},
    }
    digits = study.allocated(moves, sizes, WITHIN)
    assert digits == "300"  # eight bits for a, four for the others
    assert taken(digits, sizes.values()) == WITHIN["budget"]
    assert study.room([3, 4], {"budget": 4.7}) == 32  # of 32.9


def test_no_fewer_layers_of_an_order_fit_the_budget_and_mixes_of_all_orders_take_as_many_bits():
    sizes = {str(i): 192 if i % 6 < 4 else 768 for i in range(36)} | {"pooler": 192, "last": 1}
    narrow, wide = (str(study.widths_of(WITHIN).index(bits)) for bits in (4, 6))
    layers, most = [*sizes], 0
    for seed in range(20):
        order = random.Random(seed).sample(layers, len(layers))
        digits = study.narrowed(sizes, order, WITHIN)
        assert set(digits) == {narrow, wide}
        bits = taken(digits, sizes.values())
        assert bits <= WITHIN["budget"]
        for i, digit in enumerate(digits):  # none that is narrow could be wide
            wider = digits[:i] + wide + digits[i + 1 :]
            assert digit == wide or taken(wider, sizes.values()) > WITHIN["budget"]
        most = max(most, bits)
        assert bits == pytest.approx(most, abs=3e-4)  # but for the smallest layer
    ends = study.narrowed(sizes, layers, WITHIN)
    assert ends.startswith(narrow * 12)
    assert ends.endswith(wide * 12)
    with pytest.raises(ValueError, match="4 bits for all layers are over the budget"):
        study.narrowed(sizes, layers, {**WITHIN, "budget": 3.9})


def test_a_blind_order_is_its_seed_s_and_that_by_depth_takes_the_last_layers(model, ctx):
    sizes = study.layer_sizes(model)
    layers = [*sizes]

    def mix(order, seed=10):
        params = {**WITHIN, "seed": seed, "order": order}
        return study.mix_digits(copy.deepcopy(model), params, ctx)

    found = [mix(order, seed) for seed in (10, 11) for order in range(4)]
    assert len(set(found)) > 4
    assert mix(0) == found[0]
    by_depth = {"seed": 10, "order": study.LAST_FIRST}
    assert study.order_of(layers, by_depth) == layers[::-1]
    assert mix(study.LAST_FIRST) == study.narrowed(sizes, layers[::-1], WITHIN)


def test_a_mix_over_the_budget_loses_widths_until_it_holds_and_one_within_stays():
    sizes = [192, 768, 192, 1]
    over = "3333"
    repaired = study.repaired(over, sizes, WITHIN)
    assert repaired == study.repaired(over, sizes, WITHIN)
    assert WITHIN["budget"] - 1 < taken(repaired, sizes) <= WITHIN["budget"]
    assert all(new <= old for new, old in zip(repaired, over))
    assert study.repaired("1111", sizes, WITHIN) == "1111"
    assert study.repaired(over, sizes, {"budget": None}) == over
    with pytest.raises(ValueError, match="4 bits for all layers"):
        study.repaired(over, sizes, {**WITHIN, "budget": 3.0})


# ---- one layer at a time ------------------------------------------------------------------------


def test_what_one_layer_does_is_that_of_a_plain_evaluation_to_the_last_bit(model, sentences, ctx):
    own = copy.deepcopy(model)
    layers, widths = precision.layer_names(own), study.widths_of(WITHIN)
    plain = study.plain_losses(own, WITHIN, ctx)
    narrower = [4, 6]
    found = [*study.layer_moves(own, plain, layers, narrower, WITHIN, ctx)]
    assert [(layer, width) for layer, width, _ in found] == [*product(layers, narrower)]

    def evaluated(digits):
        study.set_mix_(own, digits, WITHIN)
        return train.evaluate(own, sentences).losses

    widest = str(widths.index(8))
    assert evaluated(widest * len(layers)) == plain
    for layer, width, measured in found:
        digits = [widest] * len(layers)
        digits[layers.index(layer)] = str(widths.index(width))
        apart = [a - b for a, b in zip(evaluated("".join(digits)), plain)]
        assert measured["moved"] == math.fsum(map(abs, apart)) / len(plain)
        assert measured["signed"] == math.fsum(apart) / len(plain)
        assert abs(measured["signed"]) <= measured["moved"]
    tables = study.by_measure(found)
    assert tables["moved"][layers[0]].keys() == {"4", "6"}
    assert len({by_width["4"] for by_width in tables["moved"].values()}) > 1


def test_of_two_labels_losses_give_the_divergence_of_answers():
    torch.manual_seed(0)
    plain, other = torch.randn(2, 9, 2, dtype=torch.float64) * 3
    labels = torch.randint(2, (9,))
    losses = [
        torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist()
        for logits in (plain, other)
    ]
    p, q = (logits.log_softmax(-1) for logits in (plain, other))
    expected = (p.exp() * (p - q)).sum(-1).mean().item()
    assert study.distances(losses[1], losses[0])["divergence"] == pytest.approx(expected)
    assert study.divergence(0.0, 0.0) == 0
    assert 0 < study.divergence(0.0, 1.0) < 1.01


def test_mixes_by_sensitivity_are_made_once_and_judged_beside_their_parts(
    model, sentences, ctx, monkeypatch
):
    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    params = {"part": "sensitivity", "seed": 0, **WITHIN}
    values = study.run(params, ctx)
    assert values["mixes"].keys() == {"ordered", *design.ALLOCATED_BY}
    for mix in values["mixes"].values():
        assert mix["bits"] == pytest.approx(taken(mix["layers"], values["sizes"]))
        assert mix["bits"] <= WITHIN["budget"]

    def summed(mix, measure):
        each = zip(values["names"], values["mixes"][mix]["layers"])
        widths = ((layer, str(study.widths_of(WITHIN)[int(digit)])) for layer, digit in each)
        return sum(values[measure][layer].get(width, 0) for layer, width in widths)

    assert summed("allocated", "moved") <= summed("ordered", "moved")
    by_divergence = summed("allocated by divergence", "divergence")
    assert by_divergence <= summed("allocated", "divergence")
    monkeypatch.setattr(study, "layer_moves", None)
    for name, mix in values["mixes"].items():
        digits = study.mix_digits(model, {**params, "part": "trained", "mix": name}, ctx)
        assert digits == mix["layers"]


# ---- a search -----------------------------------------------------------------------------------


@pytest.fixture
def searching(model, sentences, ctx, monkeypatch):
    def search(**changes):
        params = {"part": "search", "sampler": "tpe", "seed": 0, "trials": 12, **changes}
        return study.run({"by": "validation_loss", **params}, ctx)

    monkeypatch.setattr(baseline, "fine_tuned", lambda params, ctx: copy.deepcopy(model))
    return search


def test_a_search_within_the_budget_begins_with_what_is_known_and_judges_every_trial(
    searching, model, ctx
):
    found = searching(**WITHIN, begin=study.KNOWN)
    assert len(found["tried"]) == 12
    assert None not in found["tried"]
    assert found["bits"] <= WITHIN["budget"]
    known = study.run({"part": "sensitivity", "seed": 0, **WITHIN}, ctx)["mixes"]
    alone = study.judge_single_formats(copy.deepcopy(model), WITHIN, ctx)["tried"]
    first = [one["validation_loss"] for one in alone[:2]]  # four and five bits
    first += list(dict.fromkeys(mix["validation_loss"] for mix in known.values()))
    assert found["tried"][: len(first)] == pytest.approx(first)
    assert 0 < found["num_repaired"] <= 12 - len(first)
    assert found["validation_loss"] <= min(mix["validation_loss"] for mix in known.values())
    for rate in (1e-4, 3e-4):  # a training takes the same search's mix
        case = {"part": "trained", "mix": "searched", "tune_learning_rate": rate, "seed": 0}
        more = {"sampler": "tpe", "trials": 12, "by": "validation_loss", "begin": study.KNOWN}
        assert study.mix_digits(model, {**case, **more, **WITHIN}, ctx) == found["layers"]


def test_within_a_budget_a_mix_of_one_width_is_never_chosen():
    trials = [
        study.Trial(index=i, point={}, value=v, notes={"layers": digits}, at_random=True)
        for i, (v, digits) in enumerate(((3.0, "111"), (1.0, "012"), (2.0, "021")))
    ]
    assert study.chosen_of(trials, WITHIN) == "021"
    assert study.chosen_of(trials, {"budget": None}) == "111"
    with pytest.raises(MadlError, match="no mix to compare"):
        study.chosen_of(trials[:1], WITHIN)


def test_axes_give_each_mix_its_point_and_back():
    layers = ["a", "b", "c"]
    axes = study.Axes(layers=layers, texts=design.OFFERED["asked"].split(", "))
    assert axes.texts[9] == design.FULL
    assert axes.space["a FP32"] == ["yes", "no"]
    assert axes.space["b width"] == axes.space["b point"] == [0, 1, 2]
    for digits in ("049", "951", "777"):
        assert axes.digits(axes.point(digits)) == digits
    assert axes.digits({**axes.point("049"), "c width": 2, "c point": 1}) == "049"
    assert axes.point("500")["a width"] == 1
    assert axes.point("500")["a point"] == 2
    narrow = study.Axes(layers=layers, texts=design.OFFERED["narrow"].split(", "))
    assert narrow.space == {f"{layer} width": [0, 1, 2, 3] for layer in layers}
    assert narrow.point("032") == {"a width": 0, "b width": 3, "c width": 2}
    assert narrow.digits(narrow.point("032")) == "032"
    widths = study.widths_of({"formats": design.OFFERED["asked"]})
    assert widths == [8, 8, 8, 16, 16, 16, 32, 32, 32, 32]


def test_a_search_may_begin_with_each_format_for_all_layers(searching, model, ctx):
    few = {"formats": "8 2 2, 8 4 4, 16 2 2, 16 4 4, FP32", "trials": 5}
    found = searching(**few, begin=study.UNIFORM)
    alone = study.judge_single_formats(copy.deepcopy(model), few, ctx)["tried"]
    assert found["tried"] == [one["validation_loss"] for one in alone]
    assert found["num_repaired"] == 0
    assert found["layers"] == str(found["tried"].index(min(found["tried"]))) * len(found["names"])


# ---- the page -----------------------------------------------------------------------------------

NAMES = ["a.0.key", "a.0.query", "classifier"]
MOVED = {"a.0.key": 0.3, "a.0.query": 0.1, "classifier": 0.2}


def tuned(*, ordered=0.38, trained=(0.33, 0.32, 0.31), allocated="021"):
    """The tuning seed's records; of `trained` and of what is not, losses of the candidates."""
    asked, narrow = design.OFFERED["asked"], design.OFFERED["narrow"]
    accuracies = (0.5, 0.6, 0.8, 0.7, 0.9, 0.9, 0.8, 0.8, 0.8, 0.85)
    tried = [
        {"format": one, "validation_loss": 0.5 - 0.01 * i, "validation_accuracy": accuracies[i]}
        for i, one in enumerate(asked.split(", "))
    ]
    singles = [{"format": f, "validation_loss": 0.4} for f in narrow.split(", ")]
    chosen = {"names": NAMES, "bits": 5.0}
    moves = {layer: {"4": nats, "5": nats / 2, "6": nats / 4} for layer, nats in MOVED.items()}
    by_name = {
        "ordered": {"layers": "202", "validation_loss": ordered},
        "allocated": {"layers": allocated, "validation_loss": 0.39},
        "allocated by divergence": {"layers": "120", "validation_loss": 0.45},
    }
    search = {"part": "search", "formats": asked}
    sensitivity = {**dict.fromkeys(("moved", "signed", "divergence"), moves), "mixes": by_name}
    first = {"layers": "049", "tried": [0.6, 0.7, 0.5], "validation_loss": 0.5}
    within = {"layers": "012", "tried": [0.5, 0.4], "num_repaired": 1, "validation_loss": 0.4}
    cases = [
        ({**search, "study": "asked"}, {**chosen, **first}),
        ({**search, "study": "begun"}, {**chosen, **first, "layers": "555"}),
        ({"part": "search", "study": "searched", "formats": narrow}, {**chosen, **within}),
        ({"part": "sensitivity", **WITHIN}, {**chosen, "sizes": [100, 300, 100], **sensitivity}),
        ({"part": "one format", "formats": asked}, {"tried": tried}),
        ({"part": "one format", "formats": narrow}, {"tried": singles}),
    ]
    for name, loss in zip(design.CANDIDATES, trained, strict=True):
        for rate, by_rate in ((1e-4, loss), (3e-4, 0.1)):
            at = {"part": "trained", "mix": name, "tune_learning_rate": rate}
            cases.append((at, {"validation_loss": by_rate}))
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
    assert {*map(int, page.ONE_WIDTH)} <= {*lab1_quantization.WIDTHS_TRAINED}
    found = page.mixes(tuned())
    assert found["asked 8"] == {"formats": "8 8 8"}
    assert found["asked 16"] == {"formats": "16 8 8"}  # of equal accuracy, that of less loss
    assert found["5"] == {"formats": "5 5 2"}
    assert found["searched"] == {"formats": design.OFFERED["narrow"], "layers": "012"}
    assert found["begun"] == {"formats": design.OFFERED["asked"], "layers": "555"}
    r = SimpleNamespace(tuning=tuned())
    assert page.widths(r, "asked") == {"a.0.key": 8, "a.0.query": 16, "classifier": 32}
    assert page.in_full(r, "asked").value == 1
    assert page.in_full(r, "begun").value == 0


def test_the_best_mix_is_chosen_by_loss_and_is_never_one_width():
    assert page.best_untrained(tuned()) == "ordered"
    assert page.best_untrained(tuned(ordered=0.41)) == "allocated"
    assert page.best_untrained(tuned(ordered=0.41, allocated="111")) == "searched"
    assert page.best_trained(tuned()) == "ordered"  # at the rate in use, not at a better one
    assert page.best_trained(tuned(trained=(0.30, 0.31, 0.30))) == "allocated"
    assert page.best_trained(tuned(trained=(0.30, 0.31, 0.32), allocated="111")) == "searched"
    same = {"layers": "111", "validation_loss": 0.4}
    one_width = read(
        kept_of("t", {"mixes": dict.fromkeys(("ordered", "allocated"), same)}, part="sensitivity"),
        kept_of("t", same, part="search", study="searched"),
    )
    with pytest.raises(MadlError, match="all have one width"):
        page.candidates(one_width)


def test_a_layer_s_moves_predict_the_loss_of_a_mix():
    rows = {row["a layer has"]: row for row in page.predictions(SimpleNamespace(tuning=tuned()))}
    ordered = rows["4 or 6 bits by sensitivity"]
    assert ordered["moves a loss, added up"] == "0.225"
    assert ordered["loss, predicted"] == "0.625"
    assert ordered["loss, measured"] == "0.380"
    assert rows["5 bits for all"]["loss, predicted"] == "0.700"
    assert rows["5 bits for all"]["loss, measured"] == "0.400"


PLAN = SimpleNamespace(
    profile=PROFILES["full"],
    seeds=(10, 11),
    workload={"model": "m", "dataset": "d"},
    records=lambda name: tuned(),
)


def test_models_of_one_width_are_trained_by_the_sweep_s_recipe():
    cases = [*page.cases(PLAN)]
    trained = [params for params in cases if params["part"] == "trained"]
    assert {params["mix"] for params in trained} == {"ordered", "asked", "begun", "asked 16"}
    own = next(params for params in trained if params["mix"] == "ordered")
    theirs = {**baseline.drawn_params(PLAN, 10), **baseline.retraining_params(PLAN, 1e-4)}
    assert theirs.items() <= own.items()
    where = {"operands": "both", "width": 5, "frac_width": 5, "input_frac_width": 2}
    r = read(
        kept_of("lab1_quantization", judgement(1700), method="qat", **where, **theirs),
        kept_of("lab3_widths", judgement(1720), **own),
    )
    r._tuning = tuned()
    made = page.a_trained_mix_beats_one_width(r).comparison
    assert made.effect == pytest.approx(0.01)


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
    made = page.order_over_chance(every).comparison
    assert made.population == "models"
    assert made.by_unit == pytest.approx((0.045, 0.055))
