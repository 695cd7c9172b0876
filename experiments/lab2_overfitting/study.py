"""Epochs of training, checked on the sentences that are trained on and on others.

The training loss is that of every step, with dropout. The model is checked on validation before the
first step, at parts of the first epoch and after every epoch. The one with the lowest validation
loss is kept, so that it can be compared with the last one on sentences that chose neither. Products
are bfloat16 where that is fast, in training and on validation; test is judged in float32.

A temperature divides a model's logits; it is fitted on validation, by the loss.
Source: Guo et al. 2017, arXiv:1706.04599.

Units: losses in nats; an epoch is a pass over all training sentences.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.lab2_overfitting import design
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.search import Point
from madl.training.supernet import Supernet
from madl.training.train import evaluate, train

BEST, PEAK, LAST = "best", "peak", "last"


def run(params: Params, ctx: Context) -> Values:
    """Run one case: cut its shape out of the whole model, and train it for epochs."""
    prefix = "shape_"
    shape = {name.removeprefix(prefix): params[name] for name in params if name.startswith(prefix)}
    return train_on(params, ctx, shape)


def train_on(params: Params, ctx: Context, point: Point) -> Values:
    """Train the sub-network of a point on all sentences: losses, checks, judgements.

    Every check is on validation and test. The model of the lowest validation loss ("best") and the
    last are also judged on the training's own sentences; that of the highest validation accuracy is
    the "peak".
    """
    net = Supernet(params, ctx)
    splits, epochs = baseline.load_splits(params), int(params["full_epochs"] or 0)
    examples = splits.train.first(baseline.optional(params, "full_examples"))
    recipe = baseline.training_recipe(params, prefix="full_", epochs=epochs, bf16=net.bf16)
    recipe = replace(recipe, seed=int(params["trial_draw"] or 0))
    last = net.build(point, with_dropout=True)
    per_epoch = math.ceil(len(examples) / recipe.batch_size)
    checks: list[dict[str, Any]] = []
    best: Any = last
    tests: dict[int, Values] = {}  # by step

    def test(model: Any, step: int) -> Values:
        """Judge on test, once for each step."""
        if step not in tests:
            tests[step] = baseline.judge_on_test(model, params, ctx.device, keep_losses=True)
        return tests[step]

    def check(step: int) -> None:
        """Validate and test after a step, if that is due; keep the model of least validation
        loss."""
        nonlocal best
        if step not in validated_at(per_epoch, epochs):
            return
        on = evaluate(last, splits.validation, device=ctx.device, bf16=net.bf16)
        checks.append({"step": step, "loss": on.loss, "accuracy": on.accuracy})
        if on.loss == min(row["loss"] for row in checks):
            best = copy.deepcopy(last)
        checks[-1]["test"] = without_losses(test(last, step))

    check(0)
    losses = train(last, examples, recipe, device=ctx.device, after_step=check)
    best_step = min(checks, key=lambda row: row["loss"])["step"]
    models: dict[str, Any] = {}
    for name, model, step in ((BEST, best, best_step), (LAST, last, len(losses))):
        on = evaluate(model, examples, device=ctx.device, bf16=net.bf16)
        judged = test(model, step)
        chosen = evaluate(model, splits.validation, device=ctx.device, bf16=net.bf16)
        temperature = fitted_temperature(chosen.losses)
        tested = evaluate(model, splits.test, device=ctx.device)  # its losses unrounded
        models[name] = {
            "trained": {"accuracy": on.accuracy, "loss": on.loss},
            "test": judged,
            "temperature": temperature,
            "cooled": [round(loss, 4) for loss in at_temperature(tested.losses, temperature)],
        }
    peak_step = max(checks, key=lambda row: row["accuracy"])["step"]
    models[PEAK] = {"test": without_losses(tests[peak_step])}
    rate = recipe.learning_rate
    return {
        "one_epoch": net.judged_in_full(point, rate, on_test=True),  # as its study has judged it
        "losses": losses,
        "steps_per_epoch": per_epoch,
        "checks": checks,
        "models": models,
        "best_step": best_step,
        "peak_step": peak_step,
    }


def without_losses(judged: Values) -> Values:
    return {name: judged[name] for name in judged if name != "losses"}


def at_temperature(losses: Sequence[float], temperature: float) -> list[float]:
    """The losses of answers between two classes, had their logits been divided by a temperature.

    With the right logit m above the other, a loss is log(1 + exp(-m)).
    """
    kept = np.maximum(losses, 1e-6)  # below, a loss has lost the digits of its logits
    margins = -np.log(np.expm1(kept))
    return np.logaddexp(0.0, -margins / temperature).tolist()


def fitted_temperature(losses: Sequence[float]) -> float:
    """The temperature of least mean loss, from a tenth to ten."""
    from scipy.optimize import minimize_scalar

    def mean_loss(log_t: float) -> float:
        return float(np.mean(at_temperature(losses, math.exp(log_t))))

    ends = (-math.log(10), math.log(10))
    fit: Any = minimize_scalar(mean_loss, bounds=ends, method="bounded")
    return math.exp(fit.x)


def validated_at(per_epoch: int, epochs: int) -> set[int]:
    """The steps of checks: before the first step, in the first epoch, and after every epoch."""
    within = {round(part * per_epoch) for part in design.LOOKS}
    return within | {epoch * per_epoch for epoch in range(epochs + 1)}
