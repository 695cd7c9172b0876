"""Question 2.2: shapes of one size, schedules that differ in one thing, and what a search makes."""

from itertools import count

import pytest
import torch

from experiments.lab1_quantization import design as lab1_quantization
from experiments.lab2_compression import design, page, study
from experiments.lab2_compression.design import AFTER, BETWEEN, OBJECTIVES, PLAIN
from madl.compression import size
from madl.compression.quantize import linear_layers
from madl.logbook.claims import MARGIN
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Record, Records, read_published
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import baseline, train, workloads
from madl.training.supernet import Supernet, part_of
from tests.conftest import fine_tuned, supernet_of
from tests.synthetic import DATA, judgement, kept_of, read

TUNED = DATA / f"{page.STEM}_tuning.jsonl"
SIZES = (design.LAYERS, design.HEADS, design.WIDTH, design.FEED_FORWARD)
WHOLE = dict(zip(SIZES, (6, 12, 384, 1536)))  # as `config.json` has it


@pytest.fixture(scope="module")
def started(training, tmp_path_factory):
    rates = ("trial_learning_rate", "plain_rate", "after_rate", "between_rate")
    params = {
        **training,
        **{"part": "search", "objective": BETWEEN, "sampler": "tpe", "trials": 3},
        **{"train_examples": 48, "trial_examples": 24, "full_examples": None, "size": 0.5},
        **{"trial_batch_size": 4, "full_batch_size": 4, **dict.fromkeys(rates, 1e-3)},
        **{"width": 8, "frac_width": 7, "input_frac_width": 4, "sparsity": 0.5},
    }
    return fine_tuned(params, tmp_path_factory.mktemp("started"))


@pytest.fixture
def net(started, ctx) -> Supernet:
    return supernet_of(started, ctx)


def in_trial(net):
    halves = study.halved(baseline.load_splits(net.params).train.first(24))
    return halves, baseline.training_recipe(net.params, prefix="trial_", epochs=1)


def test_all_shapes_but_one_have_one_size_and_widths_that_every_number_of_heads_divides():
    space = study.space(WHOLE)
    found = [study.fit_feed_forward(WHOLE, p, design.SIZE) for p in study.points_of(space)]
    kept = [one for one in found if one is not None]
    assert (len(kept), len(found)) == (26, 27)
    for one in kept:
        layers, heads, width, feed_forward = one.values()
        each = 4 * width * heads * 32 + 2 * width * feed_forward
        weights = layers * each + width * (width + 2)
        whole = 6 * (4 * 384 * 384 + 2 * 384 * 1536) + 384 * 386
        assert 0.99 * design.SIZE < weights / whole <= design.SIZE
        assert not any(width % heads for heads in space[design.HEADS])


def test_shapes_without_a_search_are_points_of_the_space_that_have_the_size():
    points = list(study.points_of(study.space(WHOLE)))
    for parts in design.SHAPES.values():
        point = {name: part_of(WHOLE[name], part) for name, part in parts.items()}
        assert point in points
        assert study.fit_feed_forward(WHOLE, point, design.SIZE) is not None


def test_two_halves_hold_every_example_once(net):
    examples = baseline.load_splits(net.params).train
    first, second = study.halved(examples)
    assert [*first.token_ids, *second.token_ids] == list(examples.token_ids)
    assert [*first.labels, *second.labels] == list(examples.labels)
    assert [len(half) for half in study.halved(examples.first(7))] == [3, 3]


def test_every_schedule_takes_the_same_steps_on_the_same_sentences_at_the_same_rates(
    net, monkeypatch
):
    """Read off the optimizer at work; alone, a schedule is what it is beside the others."""
    took: list[tuple[float, list[list[int]]]] = []  # learning rate and sentences of every step
    step = train.take_step

    def watched(model, batch, optimizer, **how):
        took.append((optimizer.param_groups[0]["lr"], batch["input_ids"].tolist()))
        return step(model, batch, optimizer, **how)

    halves, how = in_trial(net)
    monkeypatch.setattr(train, "take_step", watched)
    of: dict[str, list[tuple[float, list[list[int]]]]] = {}
    every = {}
    for schedule, made in study.train_schedules(net.build({}), halves, how, net, OBJECTIVES):
        of[schedule], every[schedule] = list(took), made.classifier.weight.clone()
    steps = len(of[PLAIN])
    between = [*of[BETWEEN][: steps // 2], *of[BETWEEN][steps:]]  # the first half is shared
    assert of[AFTER] == of[PLAIN] == between
    assert steps == sum(how.num_steps(len(half)) for half in halves) == 6
    for schedule in (AFTER, BETWEEN):
        ((_, alone),) = study.train_schedules(net.build({}), halves, how, net, [schedule])
        assert torch.equal(alone.classifier.weight, every[schedule])
    assert not torch.equal(every[AFTER], every[BETWEEN])


def test_all_is_trained_and_judged_in_float32_where_bfloat16_is_faster_too(net, monkeypatch):
    ways: list[bool] = []
    monkeypatch.setattr(train, "has_fast_bf16", lambda device: True)

    def watched(own):
        def call(*args, **how):
            ways.append(how.get("bf16", False))
            return own(*args, **how)

        return call

    for name in ("take_step", "evaluate"):
        monkeypatch.setattr(train, name, watched(getattr(train, name)))
    shape = study.fit_feed_forward(net.shape, {design.LAYERS: 1}, 0.5)
    study.judge_in_full(net, shape)
    study.judge_in_trial(net, shape)
    assert len(ways) > 9
    assert not any(ways)


def test_compression_prunes_and_quantizes_every_linear_layer_and_holds_in_training(net):
    shape = study.fit_feed_forward(net.shape, {design.LAYERS: 1}, 0.5)
    weights = [sum(x.weight.numel() for x in linear_layers(net.build(s))) for s in (shape, {})]
    assert 0.45 < weights[0] / weights[1] <= 0.5
    halves, how = in_trial(net)
    bits: dict[str, float] = {}
    zeros: dict[str, float] = {}
    for schedule, model in study.train_schedules(net.build({}), halves, how, net, OBJECTIVES):
        weights = torch.cat([layer.weight.flatten() for layer in linear_layers(model)])
        bits[schedule] = size.linear_bits(model)
        zeros[schedule] = float((weights == 0).float().mean())
    assert zeros[PLAIN] < 0.01
    assert zeros[AFTER] == zeros[BETWEEN] == pytest.approx(0.5, abs=0.01)
    assert bits[AFTER] == bits[BETWEEN] < bits[PLAIN] / 6  # 8 of 32 bits, half of them, the bitmap


def test_a_search_trains_what_it_chose_in_full_and_a_blind_one_its_first_shape(net):
    values = study.run_search(net)
    found = [one[BETWEEN]["validation_accuracy"] for one in values["tried"]]
    shapes = [one["shape"] for one in values["tried"]]
    assert len(shapes) == 3
    assert values["chosen"] == shapes[found.index(max(found))]
    assert all(values[one]["outcomes"]["n"] == 32 for one in OBJECTIVES)
    assert values["steps"] == 12
    assert values["parameters"] > values[PLAIN]["linear_bits"] / 32  # embeddings, too
    net.params = {**net.params, "part": "blind", "objective": PLAIN, "trials": 1}
    assert study.run_search(net)["chosen"] == shapes[0]


def test_a_draw_without_the_size_is_no_trial_and_another_takes_its_place(net):
    draws = count()

    def score(point):
        return (0.5, {"shape": [1]}) if next(draws) not in (0, 2) else (study.MISFIT, {})

    drawn = study.draw(net, score)
    assert [bool(one.notes) for one in drawn] == [False, True, False, True, True]
    net.params = {**net.params, "size": 1e-6}
    with pytest.raises(study.MadlError, match="no point of the space"):
        study.draw(net, score)


def test_a_trial_trains_three_halves_once_for_the_searches_of_all_objectives(net, monkeypatch):
    trained: list[int] = []
    own = study.train

    def watched(model, data, *args, **how):
        trained.append(len(data))
        return own(model, data, *args, **how)

    monkeypatch.setattr(study, "train", watched)
    shape = study.fit_feed_forward(net.shape, {design.LAYERS: 1}, 0.5)
    judged = study.judge_in_trial(net, shape)
    assert {*OBJECTIVES} < judged.keys()
    assert trained == [12, 12, 12]
    for objective in (PLAIN, AFTER):
        net.params = {**net.params, "objective": objective, "plain_rate": 2e-3}
        assert study.judge_in_trial(net, shape) == judged
    assert len(trained) == 3
    net.params = {**net.params, "trial_learning_rate": 2e-3}
    assert study.judge_in_trial(net, shape) != judged


def test_every_shape_is_judged_after_a_trial_and_in_full_and_one_without_the_size_is_not(net):
    parts = {f"{name}_part": 1 for name in design.SIZES_SEARCHED}
    net.params = {**net.params, "part": "every shape", "seed": page.TUNING_SEED, **parts}
    assert study.judge_twice(net, study.given_point(net)) == {"chosen": None}
    net.params = {**net.params, f"{design.LAYERS}_part": 1 / 2}
    values = study.judge_twice(net, study.given_point(net))
    assert values["chosen"][0] == 1
    for judged in (values, values["trial"]):
        assert all("outcomes" not in judged[one] for one in OBJECTIVES)
    assert values["trial"][PLAIN] != values[PLAIN]


def test_rates_of_their_own_change_what_trains_and_on_the_tuning_seed_nothing_meets_test(net):
    shape = study.fit_feed_forward(net.shape, {design.LAYERS: 1}, 0.5)
    net.params = {**net.params, "part": "rate", "seed": page.TUNING_SEED}
    alike = study.judge_in_full(net, shape)
    net.params = {**net.params, "between_rate": 2e-3}
    apart = study.judge_in_full(net, shape)
    assert alike[AFTER] == apart[AFTER]
    assert alike[BETWEEN] != apart[BETWEEN]
    assert "outcomes" not in apart[BETWEEN]


def judged(*accuracies: float) -> dict[str, dict[str, float]]:
    """Validation accuracies under the three objectives."""
    return {o: {"validation_accuracy": a} for o, a in zip(OBJECTIVES, accuracies, strict=True)}


def searched(objective: str, seed: int, chosen: int, *shapes: int, part: str = "search") -> Record:
    """A search that tried these shapes: what it chose is right on 10 sentences more for each layer.

    Compressed last, shapes rank as never compressed; trained on, the other way round.
    """
    values = {
        one: judgement(1000 + 10 * chosen + 100 * (one == BETWEEN)) | {"linear_bits": 1e6 + chosen}
        for one in OBJECTIVES
    }
    tried = [
        {"shape": [i, 1], **judged(i / 10, i / 20, (9 - i if seed == 11 else i) / 10)}
        for i in shapes
    ]
    values |= {"chosen": [chosen, 1], "tried": tried, "misfits": 1, "parameters": 100 + chosen}
    return kept_of(page.STEM, values, part=part, objective=objective, seed=seed)


@pytest.fixture
def found():
    return read(
        *(searched(PLAIN, seed, 3, 1, 2) for seed in (10, 11)),
        *(searched(AFTER, seed, 7, 2, 4) for seed in (10, 11)),
        searched(BETWEEN, 10, 3, 1, 2),
        searched(BETWEEN, 11, 1, 5),
        *(searched(PLAIN, seed, 2, 1, part="blind") for seed in (10, 11)),
    )


def test_a_search_is_held_against_another_by_seed_and_a_schedule_by_shape(found):
    on, last = page.training_on_gains(found), page.compressing_last(found)
    assert on.comparison.by_unit == pytest.approx((0, -20 / 2000))
    assert last.comparison.by_unit == pytest.approx((40 / 2000, 40 / 2000))
    assert (on.boundary, last.boundary) == (MARGIN, 0)
    assert {distance for distance, _ in design.TRUTHS.values()} == {-MARGIN, MARGIN}
    second = page.training_after(found)
    assert second.comparison.by_unit == pytest.approx((100 / 2000, 100 / 2000))
    assert (second.comparison.units, second.comparison.population) == (2, "seeds")
    assert page.search_adds(found).comparison.by_unit == pytest.approx((10 / 2000, 10 / 2000))
    assert sum(page.equal_choices(found)) == 1
    assert page.num_misfits(found).value == 6
    assert page.apart(found, page.num_parameters).value == pytest.approx(5.9)


def test_ranks_are_those_of_all_shapes_that_the_searches_of_a_model_tried(found):
    assert [len(page.tried(one)) for one in page.by_model(found)] == [3, 4]
    assert page.rank(found, AFTER).value == 1
    assert page.rank(found, BETWEEN).value == 0  # of one model alike, of the other upside down
    assert page.rank(found, BETWEEN, min).value == -1
    assert page.num_shapes(found).value == 4


def test_what_every_shape_leaves_to_gain_is_over_the_one_that_is_best_without_compression():
    full = [judged(0.8, 0.7, 0.75), judged(0.7, 0.72, 0.74), judged(0.6, 0.6, 0.6)]
    each = [{"chosen": [i], "trial": one, **one} for i, one in enumerate(full)]
    each[0]["trial"], each[1]["trial"] = full[1], full[0]
    shapes = [
        kept_of(f"{page.STEM}_tuning", one, part="every shape", shape=i)
        for i, one in enumerate([*each, {"chosen": None}])
    ]
    found = Records(tuning=read(*shapes))
    assert len(page.shapes_of_size(found)) == 3
    assert page.room(found, PLAIN).value == page.room(found, BETWEEN).value == 0
    assert page.room(found, AFTER).value == 2
    assert page.trials_tell(found, PLAIN) == pytest.approx(0.5)
    (_, last, _) = page.every_shape(found)
    assert (last["least"], last["most"]) == ("60.0 %", "72.0 %")


def test_tuning_tries_every_point_of_the_space_and_every_rate_of_three_trials():
    params = list(page.tuning(full_plan()))
    shares = [{n: one.get(f"{n}_part") for n in design.SIZES_SEARCHED} for one in params]
    every = [one for one, case in zip(shares, params, strict=True) if case["part"] == "every shape"]
    assert len(every) == len({tuple(one.values()) for one in every}) == 27
    tried = {
        (one["shape"], one["trial_learning_rate"]) for one in params if one["part"] == "trial rate"
    }
    assert len(tried) == len(design.SHAPES) * len(design.TRIAL_RATES_TRIED) == 12
    assert {one["seed"] for one in params} == {page.TUNING_SEED}


def full_plan() -> RunPlan:
    workload = workloads.resolve("snippets", model=None, dataset=None).params()
    return RunPlan(Project(), PROFILES["full"], workload)


def tuned(part: str) -> list[Record]:
    """The published tuning of the design's compression, shapes and sentences; skips without it."""
    compression = {
        **{"width": design.BITS, "sparsity": design.SPARSITY, "size": design.SIZE},
        **dict(zip(("frac_width", "input_frac_width"), design.FRACTIONS, strict=True)),
    }
    middle = {name: part_of(WHOLE[name], of) for name, of in design.SHAPES["middle"].items()}
    shape = study.fit_feed_forward(WHOLE, middle, design.SIZE)
    assert shape is not None
    records = [
        one
        for one in read_published(TUNED)
        if {**compression, "part": part}.items() <= one.case.params.items()
        and "draw" not in one.case.params  # of one split for all seeds
        and (part != "rate" or one.values["chosen"] == list(shape.values()))
    ]
    if not records:
        pytest.skip("the published tuning is of another compression or shape: it has to run")
    return records


def test_the_format_is_the_one_that_the_width_study_chose():
    assert lab1_quantization.FRACTIONS[design.BITS] == design.FRACTIONS


def test_rates_are_those_that_tuning_of_this_compression_chose_and_none_is_at_the_edge():
    records = tuned("rate")
    ties: dict[str, set[float]] = {}
    for schedule in design.RATES:
        losses = {
            float(one.case.params["after_rate"] or 0): one.values[schedule]["validation_loss"]
            for one in records
        }
        assert losses.keys() == {*design.RATES_TRIED}
        least = min(losses, key=lambda rate: losses[rate])
        assert min(losses) < least < max(losses)
        ties[schedule] = {
            r for r, loss in losses.items() if loss <= losses[least] + design.TIE_NATS
        }
        assert design.RATES[schedule] in ties[schedule]
    if both := ties[AFTER] & ties[BETWEEN]:
        assert {design.RATES[AFTER], design.RATES[BETWEEN]} == {min(both)}


def test_the_trial_rate_is_that_of_least_loss_over_shapes_and_objectives_not_at_the_edge():
    of_rate: dict[float, list[float]] = {}
    for one in tuned("trial rate"):
        losses = [one.values[objective]["validation_loss"] for objective in design.OBJECTIVES]
        of_rate.setdefault(float(one.case.params["trial_learning_rate"] or 0), []).extend(losses)
    assert of_rate.keys() == {*design.TRIAL_RATES_TRIED}
    mean = {rate: sum(losses) for rate, losses in of_rate.items()}
    assert min(mean, key=lambda rate: mean[rate]) == design.TRIAL_RATE
    assert min(mean) < design.TRIAL_RATE < max(mean)


def test_every_shape_was_tuned_at_the_chosen_rates():
    rates = {study.RATES[schedule]: rate for schedule, rate in design.RATES.items()}
    every = [one for one in tuned("every shape") if rates.items() <= one.case.params.items()]
    assert sum(one.values["chosen"] is not None for one in every) == 26
