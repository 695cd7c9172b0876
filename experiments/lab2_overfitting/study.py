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

    Validation is looked at at every check. The test split is at some of them, at the end, and where
    validation loss is lowest; there, and at the start, so are the sentences that were trained on.
    """
    net = Supernet(params, ctx)
    params = net.params
    splits = baseline.load_splits(params)
    examples = splits.train.first(_int(params, "more_examples"))
    model, epochs = with_dropout_(net.trained(point)), _int(params, "more_epochs")
    recipe = baseline.training_recipe(params, prefix="more_", epochs=epochs, bf16=net.bf16)
    per_epoch = math.ceil(len(examples) / recipe.batch_size)
    checks: list[dict[str, Any]] = []
    kept: dict[str, nn.Module] = {}
    judged: dict[int, dict[str, Any]] = {}  # by step

    def judge(one: nn.Module, step: int) -> dict[str, Any]:
        if step not in judged:
            judged[step] = baseline.judge_on_test(
                one, params, ctx.device, keep_losses=True, bf16=net.bf16
            )
        return judged[step]

    def look(step: int) -> None:
        if step not in validated_at(per_epoch, epochs):
            return
        found = evaluate(model, splits.validation, device=ctx.device, bf16=net.bf16)
        checks.append({"step": step, "loss": found.loss, "accuracy": found.accuracy})
        if found.loss == min(check["loss"] for check in checks):
            kept[BEST] = copy.deepcopy(model)
        if step in tested_at(per_epoch, epochs):
            test = judge(model, step)
            checks[-1]["test"] = {k: v for k, v in test.items() if k != "losses"}

    look(0)
    kept[START] = kept[BEST]
    losses = train(model, examples, recipe, device=ctx.device, after_step=look)
    kept[LAST] = model
    best = min(checks, key=lambda check: check["loss"])["step"]
    models: dict[str, Any] = {}
    for name, one in kept.items():
        seen = evaluate(one, examples, device=ctx.device, bf16=net.bf16)
        own = {"accuracy": seen.accuracy, "losses": [round(loss, 4) for loss in seen.losses]}
        models[name] = {"trained": own}
        if name != START:  # which is the search's own model, and judged there
            models[name]["test"] = judge(one, best if name == BEST else len(losses))
    return {
        "losses": losses,
        "steps_per_epoch": per_epoch,
        "checks": checks,
        "models": models,
        "best_step": best,
        "accuracy": models[BEST]["test"]["accuracy"],
    }


def validated_at(per_epoch: int, epochs: int) -> set[int]:
    """Steps: none done, parts of the first epoch, and every epoch."""
    within = {round(part * per_epoch) for part in PARTS}
    return within | {epoch * per_epoch for epoch in range(epochs + 1)}


def tested_at(per_epoch: int, epochs: int) -> set[int]:
    """Steps: the last part of the first epoch, that epoch, half of all, and all."""
    ends = {epoch * per_epoch for epoch in (1, epochs // 2, epochs)}
    return ends | {round(PARTS[-1] * per_epoch)}


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
