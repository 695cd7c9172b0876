"""More training of a model, watched: what it does to what was trained on, and to what was not.

The training loss is that of every step, with dropout. On the way the model is looked at: at its
start, at parts of the first epoch and after every epoch. The one with the lowest validation loss is
kept, so that the last one can be held against it on examples that chose neither.

Units: losses in nats; an epoch is a pass over the examples of `more_examples`.
"""

import copy
import math
from typing import Any

from torch import nn

from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.search import Point
from madl.training.supernet import Supernet
from madl.training.train import evaluate, train

PARTS = (0.25, 0.5)  # of the first epoch
START, BEST, LAST = "start", "best", "last"


def trained_on(params: Params, ctx: Context, point: Point) -> dict[str, Any]:
    """The sub-network at that point as a search's trial leaves it, and trained on from there.

    On the way the model is judged on the first `watch_examples` of the test split; on all of it,
    where validation prefers it and at the end.
    """
    net = Supernet(params, ctx)
    splits = baseline.load_splits(params)
    examples = splits.train.first(_int(params, "more_examples"))
    model, epochs = with_dropout_(net.trained(point)), _int(params, "more_epochs")
    recipe = baseline.training_recipe(params, prefix="more_", epochs=epochs, bf16=net.bf16)
    per_epoch = math.ceil(len(examples) / recipe.batch_size)
    some_of_test = {**params, "test_examples": params["watch_examples"]}
    checks: list[dict[str, Any]] = []
    kept: dict[str, nn.Module] = {}

    def look(step: int) -> None:
        if step not in steps_to_look_at(per_epoch, epochs):
            return
        found = evaluate(model, splits.validation, device=ctx.device, bf16=net.bf16)
        test = baseline.judge_on_test(model, some_of_test, ctx.device, bf16=net.bf16)
        checks.append({"step": step, "loss": found.loss, "accuracy": found.accuracy, "test": test})
        if found.loss == min(check["loss"] for check in checks):
            kept[BEST] = copy.deepcopy(model)

    look(0)
    kept[START] = kept[BEST]
    losses = train(model, examples, recipe, device=ctx.device, after_step=look)
    kept[LAST] = model
    found: dict[str, Any] = {}
    for name, one in kept.items():
        seen = evaluate(one, examples, device=ctx.device, bf16=net.bf16)
        trained = {"accuracy": seen.accuracy, "losses": [round(loss, 4) for loss in seen.losses]}
        found[name] = {"trained": trained}
        if name != START:  # which is the search's own model, judged there
            found[name]["test"] = baseline.judge_on_test(
                one, params, ctx.device, keep_losses=True, bf16=net.bf16
            )
    return {
        "losses": losses,
        "steps_per_epoch": per_epoch,
        "checks": checks,
        "models": found,
        "best_step": min(checks, key=lambda check: check["loss"])["step"],
        "accuracy": found[BEST]["test"]["accuracy"],
    }


def steps_to_look_at(per_epoch: int, epochs: int) -> set[int]:
    """Before the first step, within the first epoch, and after every epoch."""
    within = {round(part * per_epoch) for part in PARTS}
    return within | {epoch * per_epoch for epoch in range(epochs + 1)}


def with_dropout_(model: nn.Module) -> nn.Module:
    """As in the fine-tuning; trials of a search train without."""
    config: Any = model.config
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = float(config.hidden_dropout_prob)
    return model


def _int(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int), (name, value)
    return value
