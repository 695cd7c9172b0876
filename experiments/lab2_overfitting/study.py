"""More epochs of a search's trial, checked on sentences that it trains on and on others.

The training loss is that of every step, with dropout. The model is checked on validation before the
first step, at parts of the first epoch and after every epoch. The one with the lowest validation
loss is kept, so that it can be compared with the last one on sentences that chose neither. Products
are bfloat16 where that is fast, in all checks alike.

Units: losses in nats; an epoch is a pass over the sentences of the trial.
"""

import copy
import math
from dataclasses import replace
from typing import Any

from experiments.lab2_overfitting import design
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.search import Point
from madl.training.supernet import Supernet
from madl.training.train import evaluate, train

BEST, LAST = "best", "last"


def run(params: Params, ctx: Context) -> Values:
    """Run one case: cut its shape out of the whole model, and train it on."""
    prefix = "shape_"
    shape = {name.removeprefix(prefix): params[name] for name in params if name.startswith(prefix)}
    return train_on(params, ctx, shape)


def train_on(params: Params, ctx: Context, point: Point) -> Values:
    """Train the sub-network of a point on its trial's sentences: losses, checks, judgements.

    Every check is on validation; some of them, that of the lowest validation loss and the last are
    on test, too. The last two are also judged on the training's own sentences.
    """
    net = Supernet(params, ctx)
    examples, validation = net.trial_examples, baseline.load_splits(params).validation
    epochs = int(params["more_epochs"] or 0)
    recipe = baseline.training_recipe(params, prefix="trial_", epochs=epochs, bf16=net.bf16)
    recipe = replace(recipe, seed=int(params["trial_draw"] or 0))  # the first epoch is the trial's
    last = net.build(point, with_dropout=True)
    per_epoch = math.ceil(len(examples) / recipe.batch_size)
    checks: list[dict[str, Any]] = []
    best: Any = last
    tests: dict[int, Values] = {}  # by step

    def test(model: Any, step: int) -> Values:
        """Judge on test, once for each step."""
        if step not in tests:
            tests[step] = baseline.judge_on_test(
                model, params, ctx.device, keep_losses=True, bf16=net.bf16
            )
        return tests[step]

    def check(step: int) -> None:
        """Validate and test after a step, if that is due; keep the model of least validation
        loss."""
        nonlocal best
        if step not in validated_at(per_epoch, epochs):
            return
        on = evaluate(last, validation, device=ctx.device, bf16=net.bf16)
        checks.append({"step": step, "loss": on.loss, "accuracy": on.accuracy})
        if on.loss == min(row["loss"] for row in checks):
            best = copy.deepcopy(last)
        if step in tested_at(per_epoch, epochs):
            values = test(last, step)
            checks[-1]["test"] = {name: values[name] for name in values if name != "losses"}

    check(0)
    losses = train(last, examples, recipe, device=ctx.device, after_step=check)
    best_step = min(checks, key=lambda row: row["loss"])["step"]
    models: dict[str, Any] = {}
    for name, model, step in ((BEST, best, best_step), (LAST, last, len(losses))):
        on = evaluate(model, examples, device=ctx.device, bf16=net.bf16)
        own = {"accuracy": on.accuracy, "losses": [round(loss, 4) for loss in on.losses]}
        models[name] = {"trained": own, "test": test(model, step)}
    return {
        "losses": losses,
        "steps_per_epoch": per_epoch,
        "checks": checks,
        "models": models,
        "best_step": best_step,
    }


def validated_at(per_epoch: int, epochs: int) -> set[int]:
    """The steps of checks: before the first step, in the first epoch, and after every epoch."""
    within = {round(part * per_epoch) for part in design.LOOKS}
    return within | {epoch * per_epoch for epoch in range(epochs + 1)}


def tested_at(per_epoch: int, epochs: int) -> set[int]:
    """The steps of checks on test: after every other epoch, the last among them."""
    return {epoch * per_epoch for epoch in range(epochs, 0, -2)}
