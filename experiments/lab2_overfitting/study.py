"""More epochs of a search's trial, watched: on what it trains on, and on what it does not.

The training loss is that of every step, with dropout. On the way the model is looked at: before the
first step, at parts of the first epoch and after every epoch. The one with the lowest validation
loss is kept, so that the last one can be held against it on sentences that chose neither. Products
are bfloat16 where that is fast, in all looks alike.

Units: losses in nats; an epoch is a pass over the sentences of the trial.
"""

import copy
import math
from dataclasses import replace
from typing import Any

from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.search import Point
from madl.training.supernet import Supernet
from madl.training.train import evaluate, train

PARTS = (0.25, 0.5)  # of the first epoch
BEST, LAST = "best", "last"


def trained_on(params: Params, ctx: Context, point: Point) -> Values:
    """The sub-network at that point, as it is cut, trained on the sentences of its trial.

    Validation is looked at at every check; the test split at some of them, and where validation
    loss is lowest. There and at the end, so are the sentences that are trained on.
    """
    net = Supernet(params, ctx)
    examples, validation = net.trial_examples, baseline.load_splits(params).validation
    epochs = int(params["more_epochs"] or 0)
    recipe = baseline.training_recipe(params, prefix="trial_", epochs=epochs, bf16=net.bf16)
    recipe = replace(recipe, seed=int(params["trial_draw"] or 0))  # the first epoch is the trial's
    model = net.build(point, with_dropout=True)
    per_epoch = math.ceil(len(examples) / recipe.batch_size)
    checks: list[dict[str, Any]] = []
    kept: Any = model
    judged: dict[int, Values] = {}  # by step

    def judge(one: Any, step: int) -> Values:
        if step not in judged:
            judged[step] = baseline.judge_on_test(
                one, params, ctx.device, keep_losses=True, bf16=net.bf16
            )
        return judged[step]

    def look(step: int) -> None:
        nonlocal kept
        if step not in validated_at(per_epoch, epochs):
            return
        found = evaluate(model, validation, device=ctx.device, bf16=net.bf16)
        checks.append({"step": step, "loss": found.loss, "accuracy": found.accuracy})
        if found.loss == min(check["loss"] for check in checks):
            kept = copy.deepcopy(model)
        if step in tested_at(per_epoch, epochs):
            test = judge(model, step)
            checks[-1]["test"] = {name: test[name] for name in test if name != "losses"}

    look(0)
    losses = train(model, examples, recipe, device=ctx.device, after_step=look)
    best = min(checks, key=lambda check: check["loss"])["step"]
    models: dict[str, Any] = {}
    for name, one, step in ((BEST, kept, best), (LAST, model, len(losses))):
        seen = evaluate(one, examples, device=ctx.device, bf16=net.bf16)
        own = {"accuracy": seen.accuracy, "losses": [round(loss, 4) for loss in seen.losses]}
        models[name] = {"trained": own, "test": judge(one, step)}
    return {
        "losses": losses,
        "steps_per_epoch": per_epoch,
        "checks": checks,
        "models": models,
        "best_step": best,
    }


def validated_at(per_epoch: int, epochs: int) -> set[int]:
    """Steps: none done, parts of the first epoch, and every epoch."""
    within = {round(part * per_epoch) for part in PARTS}
    return within | {epoch * per_epoch for epoch in range(epochs + 1)}


def tested_at(per_epoch: int, epochs: int) -> set[int]:
    """Steps: of every other epoch, the last among them."""
    return {epoch * per_epoch for epoch in range(epochs, 0, -2)}
