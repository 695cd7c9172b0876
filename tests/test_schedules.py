"""Compression in a short training: schedules that differ in nothing but where it stands."""

import pytest
import torch

from experiments.lab2_compression import study
from experiments.lab2_compression.page import AFTER, BETWEEN, PLAIN
from madl.compression import size
from madl.compression.quantize import linear_layers
from madl.logbook.records import Store
from madl.training import baseline, train
from madl.training.supernet import Supernet


class Ctx:
    device = "cpu"

    def __init__(self, root):
        self.artifact, self.folder = Store(root).artifact, Store(root).folder


@pytest.fixture
def net(tmp_path, tiny_model, tiny_dataset) -> Supernet:
    params = {
        "model": str(tiny_model),
        "dataset": str(tiny_dataset),
        "seed": 0,
        "max_length": 32,
        "train_examples": 48,
        "validation_examples": 32,
        "test_examples": 32,
        "epochs": 1,
        "learning_rate": 5e-5,
        "batch_size": 32,
        "space": "compact",
        "study": 0,
        "trial": 1,
        "draw": 1,
        "trial_examples": 24,
        "trial_learning_rate": 1e-3,
        "trial_batch_size": 4,
        "width": 8,
        "frac_width": 7,
        "input_frac_width": 4,
        "sparsity": 0.5,
    }
    return Supernet(params, Ctx(tmp_path))


def recipe(net):
    return baseline.training_recipe(net.params, prefix="trial_", epochs=1)


def test_every_schedule_takes_the_same_steps_on_the_same_sentences_at_the_same_rates(
    net, monkeypatch
):
    """Read off the optimizer at work, and equal to what the page says of it."""
    took: list[tuple[float, list[list[int]]]] = []  # learning rate and sentences of every step
    step = train.take_step

    def watched(model, batch, optimizer, **how):
        took.append((optimizer.param_groups[0]["lr"], batch["input_ids"].tolist()))
        return step(model, batch, optimizer, **how)

    model, halves, how = net.build({}), study.halved(net.trial_examples), recipe(net)
    monkeypatch.setattr(train, "take_step", watched)
    of: dict[str, list[tuple[float, list[list[int]]]]] = {}
    for schedule, _ in study.trained(model, halves, how, net.params, "cpu"):
        of[schedule] = list(took)
    steps = len(of[PLAIN])
    between = [*of[BETWEEN][: steps // 2], *of[BETWEEN][steps:]]  # the first half is shared
    assert of[AFTER] == of[PLAIN] == between
    said = study.training(how, halves)
    assert said["steps"] == steps == 6
    assert sum(rate for rate, _ in between) == pytest.approx(how.learning_rate * said["rates"])
    assert said["rates"] == pytest.approx(2 * (1 + 1 + 1 / 2))
    assert said["rates_undivided"] == pytest.approx(1 + (5 + 4 + 3 + 2 + 1) / 5)


def zeros_of(model) -> float:
    """The share of zeros among the Linear layers' weights."""
    weights = torch.cat([layer.weight.flatten() for layer in linear_layers(model)])
    return float((weights == 0).float().mean())


def test_compression_prunes_and_quantizes_every_linear_layer_and_holds_in_training(net):
    halves = study.halved(net.trial_examples)
    bits: dict[str, float] = {}
    zeros: dict[str, float] = {}
    for schedule, model in study.trained(
        net.build({}), halves, recipe(net), net.params, net.ctx.device
    ):
        bits[schedule], zeros[schedule] = size.linear_bits(model), zeros_of(model)
    assert zeros[PLAIN] < 0.01
    assert zeros[AFTER] == zeros[BETWEEN] == pytest.approx(0.5, abs=0.01)
    assert bits[AFTER] == bits[BETWEEN] < bits[PLAIN] / 6  # 8 of 32 bits, half of them, the bitmap


def test_a_candidate_is_judged_on_test_where_it_is_compressed_only(net):
    values = study.candidate(net.params, net.ctx)
    assert "outcomes" not in values[PLAIN]
    assert all(values[schedule]["outcomes"]["n"] == 32 for schedule in (AFTER, BETWEEN))
    assert values["point"] == list(study.drawn(lab_space(net), study=0, trial=1).values())


def lab_space(net):
    from madl.training.supernet import space

    return space(net.config, "compact", identities=False)


# ---- what the page makes of the candidates ------------------------------------------------------
