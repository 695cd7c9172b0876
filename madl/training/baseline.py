"""The fine-tuned classifier that every lab starts from, and the two things done with it.

Its recipe is part of the parameters of every case that uses it, so a case's key says which
checkpoint it means. The checkpoint itself is an artifact: made once, found by its recipe.
Imports torch only when a case runs, because plans are made without it.
"""

import functools
import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.logbook.arms import Arm, arm
from madl.logbook.experiment import Context, Plan
from madl.logbook.records import Params, Records, Scalar
from madl.training.tables import Columns

if TYPE_CHECKING:
    from torch import nn

    from madl.training.data import Encoded
    from madl.training.train import Recipe

log = logging.getLogger(__name__)

PASSES = 2  # of fine-tuning: of one, two and three, what validation loss prefers on the tuning seed

RECIPE_FIELDS = (
    *("model", "dataset", "text_column", "label_column"),
    *("max_length", "train_examples", "validation_examples"),
    *("epochs", "learning_rate", "batch_size", "seed", "draw"),
)


def recipe_params(plan: Plan, seed: int) -> dict[str, Scalar]:
    """What defines the baseline of this plan and seed, and the examples it is judged on."""
    choose = plan.profile.choose
    return {
        "seed": seed,
        "max_length": choose(smoke=32, quick=128),
        "train_examples": choose(smoke=64, quick=None),
        "validation_examples": choose(smoke=32, quick=None),
        "test_examples": choose(smoke=64, quick=2000),
        "epochs": choose(smoke=1, quick=1),
        "learning_rate": 5e-5,
        "batch_size": 32,
        **plan.workload,
    }


def drawn_params(plan: Plan, seed: int, passes: int = PASSES) -> dict[str, Scalar]:
    """The same of a seed that draws its training and validation sentences, too."""
    return {
        **recipe_params(plan, seed),
        "draw": seed,
        "epochs": plan.profile.choose(smoke=1, quick=passes),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """The encoded splits, and the test split's fingerprint, for paired tests."""

    train: "Encoded"
    validation: "Encoded"
    test: "Encoded"
    test_fingerprint: str


def load_splits(params: Params) -> Splits:
    """Load, cut to the parameters' sizes and encode; once per process."""
    return _load_splits(
        str(params["model"]),
        str(params["dataset"]),
        columns_of(params),
        _int(params["max_length"]),
        *(_optional(params[f"{part}_examples"]) for part in ("train", "validation", "test")),
        _optional(params.get("draw")),
    )


def columns_of(params: Params) -> Columns:
    """The columns of the data set that a case reads."""
    names = {name: params.get(f"{name}_column") for name in ("text", "label")}
    return Columns(**{name: None if given is None else str(given) for name, given in names.items()})


@functools.lru_cache(maxsize=2)
def _load_splits(
    model: str,
    name: str,
    columns: Columns,
    max_length: int,
    train: int | None,
    val: int | None,
    test: int | None,
    draw: int | None,
) -> Splits:
    from madl.training import data, models

    tokenizer = models.load_tokenizer(model)
    max_length = min(max_length, models.longest_input(model) or max_length)
    loaded = data.load_dataset(name, draw, columns)
    parts = {
        "train": loaded.train.first(train),
        "validation": loaded.validation.first(val),
        "test": loaded.test.first(test),
    }
    encoded = {k: data.encode(v, tokenizer, max_length=max_length) for k, v in parts.items()}
    return Splits(
        **encoded,
        test_fingerprint=parts["test"].fingerprint,
    )


def fine_tuned(params: Params, ctx: Context) -> "nn.Module":
    """The baseline classifier, trained if its checkpoint is not there yet."""
    from madl.training import models

    return models.load_checkpoint(checkpoint(params, ctx))


def history(params: Params, ctx: Context) -> dict[str, Any]:
    """How that training went: loss per step, validation accuracy per epoch, arithmetic used."""
    return json.loads((checkpoint(params, ctx) / "history.json").read_text())


def checkpoint(params: Params, ctx: Context) -> Path:
    """The folder of the baseline's weights, trained if it is not there yet."""
    recipe = {field: params[field] for field in RECIPE_FIELDS if field in params}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    return ctx.artifact(
        f"baseline-{digest}", lambda folder: _fine_tune(recipe, params, ctx.device, folder)
    )


def _fine_tune(recipe: Params, params: Params, device: str, folder: Path) -> None:
    """Train, and look at validation data after every pass."""
    from madl.training import models, train

    splits = load_splits(params)
    model = models.load_pretrained(str(recipe["model"]), seed=_int(recipe["seed"]))
    bf16 = train.has_fast_bf16(device)
    accuracies: list[float] = []

    def look(epoch: int) -> None:
        accuracies.append(train.evaluate(model, splits.validation, device=device).accuracy)
        log.info("epoch %d: validation accuracy %.3f", epoch + 1, accuracies[-1])

    how = training_recipe(recipe, bf16=bf16)
    losses = train.train(model, splits.train, how, device=device, after_epoch=look)
    models.save_checkpoint(model, folder)
    story = {"losses": losses, "validation_accuracies": accuracies, "bf16": bf16}
    (folder / "history.json").write_text(json.dumps(story))


def training_recipe(
    params: Params, *, bf16: bool = False, prefix: str = "", epochs: int | None = None
) -> "Recipe":
    """The parameters (`{prefix}learning_rate`, …) as a recipe."""
    from madl.training.train import Recipe

    return Recipe(
        epochs=epochs or _int(params[f"{prefix}epochs"]),
        learning_rate=float(params[f"{prefix}learning_rate"] or 0),
        batch_size=_int(params[f"{prefix}batch_size"]),
        seed=_int(params["seed"]),
        bf16=bf16,
    )


def fp32(r: Records) -> Arm:
    """The fine-tuned model as every page shows it: judged once, by the experiment `baseline`."""
    return arm(r, "FP32", method="fp32")


def larger_class(r: Records) -> float:
    """Accuracy on test of always answering with the larger class."""
    share = float(fp32(r).value("positive_share"))
    return max(share, 1 - share)


def judge(model: "nn.Module", params: Params, device: str, *, bf16: bool = False) -> dict[str, Any]:
    """Test accuracy with per-example correctness, and validation accuracy, to choose by."""
    return {
        **judge_on_test(model, params, device, bf16=bf16),
        **judge_on_validation(model, params, device, bf16=bf16),
    }


def judge_on_validation(
    model: "nn.Module", params: Params, device: str, *, bf16: bool = False
) -> dict[str, Any]:
    """What there is to choose by.

    `choosing_examples`, where it is among the parameters, says how many of the split choose.
    """
    from madl.training.train import evaluate

    choosing = load_splits(params).validation.first(_optional(params.get("choosing_examples")))
    validation = evaluate(model, choosing, device=device, bf16=bf16)
    return {"validation_accuracy": validation.accuracy, "validation_loss": validation.loss}


def judge_on_test(
    model: "nn.Module",
    params: Params,
    device: str,
    *,
    keep_losses: bool = False,
    bf16: bool = False,
) -> dict[str, Any]:
    """Test accuracy where nothing is chosen; `keep_losses` adds the loss of every example.

    `bf16` multiplies in bfloat16, as a model that was trained so may be judged too.
    """
    import numpy as np

    from madl.logbook.stats import Outcomes
    from madl.training.train import evaluate

    splits = load_splits(params)
    test = evaluate(model, splits.test, device=device, bf16=bf16)
    values: dict[str, Any] = {
        "accuracy": test.accuracy,
        "loss": test.loss,
        "outcomes": Outcomes(np.array(test.correct), splits.test_fingerprint).to_json(),
    }
    if keep_losses:
        values["losses"] = [round(loss, 4) for loss in test.losses]
    return values


def _int(value: Scalar) -> int:
    assert isinstance(value, int), value
    return value


def _optional(value: Scalar) -> int | None:
    return None if value is None else _int(value)
