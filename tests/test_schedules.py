"""Question 2.2: shapes of one size, schedules that differ in one thing, and what a search makes."""

import itertools

import pytest
import torch

from experiments.lab2_compression import design, page, study
from experiments.lab2_compression.design import AFTER, BETWEEN, OBJECTIVES, PLAIN
from madl.compression import size
from madl.compression.quantize import linear_layers
from madl.logbook.records import Record, read_published
from madl.training import baseline, train
from madl.training.supernet import Supernet
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


def test_all_shapes_that_fit_have_one_size_and_most_do():
    space = study.space(WHOLE)
    points = [dict(zip(space, values)) for values in itertools.product(*space.values())]
    found = [study.fit_feed_forward(WHOLE, point, design.SIZE) for point in points]
    kept = [one for one in found if one is not None]
    assert len(kept) > 2 / 3 * len(points)
    for one in kept:
        layers, heads, width, feed_forward = one.values()
        each = 4 * width * heads * 32 + 2 * width * feed_forward
        weights = layers * each + width * (width + 2)
        whole = 6 * (4 * 384 * 384 + 2 * 384 * 1536) + 384 * 386
        assert 0.99 * design.SIZE < weights / whole <= design.SIZE


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


def test_a_search_trains_what_it_chose_in_full_under_every_schedule(net):
    values = study.run_search(net)
    losses = [one["validation_loss"] for one in values["tried"] if one is not None]
    shapes = [one["shape"] for one in values["tried"] if one is not None]
    assert len(values["tried"]) == 3
    assert values["chosen"] == shapes[losses.index(min(losses))]
    assert all(values[one]["outcomes"]["n"] == 32 for one in OBJECTIVES)
    assert values["steps"] == 12


def test_rates_of_their_own_change_what_trains_and_on_the_tuning_seed_nothing_meets_test(net):
    shape = study.fit_feed_forward(net.shape, {design.LAYERS: 1}, 0.5)
    net.params = {**net.params, "part": "rate", "seed": page.TUNING_SEED}
    alike = study.judge_in_full(net, shape)
    net.params = {**net.params, "between_rate": 2e-3}
    apart = study.judge_in_full(net, shape)
    assert alike[AFTER] == apart[AFTER]
    assert alike[BETWEEN] != apart[BETWEEN]
    assert "outcomes" not in apart[BETWEEN]


def searched(objective: str, seed: int, chosen: int, losses: list[float | None]) -> Record:
    """A search; what it chose is right on 10 sentences more for every layer."""
    values = {
        one: judgement(1000 + 10 * chosen + 100 * (one == BETWEEN)) | {"linear_bits": 1e6}
        for one in OBJECTIVES
    }
    tried = [
        None if loss is None else {"shape": [i, 1], "validation_loss": loss}
        for i, loss in enumerate(losses)
    ]
    values |= {"chosen": [chosen, 1], "tried": tried}
    return kept_of(page.STEM, values, part="search", objective=objective, seed=seed)


@pytest.fixture
def found():
    return read(
        *(searched(PLAIN, seed, 3, [None, 0.6, 0.5, 0.4]) for seed in (10, 11)),
        *(searched(AFTER, seed, 3, [None, 0.7, 0.6, 0.5]) for seed in (10, 11)),
        searched(BETWEEN, 10, 3, [None, 0.6, 0.5, 0.4]),
        searched(BETWEEN, 11, 1, [None, 0.4, 0.5, 0.6]),
    )


def test_a_search_is_held_against_another_by_seed_and_a_schedule_by_shape(found):
    first, second = page.aware_search_wins(found), page.training_after_helps(found)
    assert first.comparison.by_unit == pytest.approx((0, -20 / 2000))
    assert second.comparison.by_unit == pytest.approx((100 / 2000, 100 / 2000))
    assert (second.comparison.units, second.comparison.population) == (2, "seeds")
    assert page.num_equal_choices(found).value == page.rank(found, AFTER).value == 1
    assert page.rank(found, BETWEEN).value == 0  # of one model alike, of the other upside down


def test_rates_are_those_that_tuning_chose_and_none_is_at_the_edge():
    records = read_published(TUNED)
    ties: dict[str, set[float]] = {}
    for schedule in design.RATES:
        losses = {
            float(one.case.params["after_rate"] or 0): one.values[schedule]["validation_loss"]
            for one in records
        }
        least = min(losses, key=lambda rate: losses[rate])
        assert min(losses) < least < max(losses)
        ties[schedule] = {
            r for r, loss in losses.items() if loss <= losses[least] + design.TIE_NATS
        }
        assert design.RATES[schedule] in ties[schedule]
    if both := ties[AFTER] & ties[BETWEEN]:
        assert {design.RATES[AFTER], design.RATES[BETWEEN]} == {min(both)}
