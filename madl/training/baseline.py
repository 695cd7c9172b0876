"""The fine-tuned classifier that every lab starts from: its recipe, checkpoint and evaluation.

The recipe is part of the parameters of every case that uses it, so a case's key says which
checkpoint it means. The checkpoint itself is an artifact: made once, found by its recipe.
Imports torch only when a case runs, because plans are made without it.
"""

import functools
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.logbook.arms import Arm, arm
from madl.logbook.experiment import Context, Plan
from madl.logbook.numbers import ExactValue, percentage
from madl.logbook.records import Params, Records, Scalar, digest_of
from madl.training.tables import Columns

if TYPE_CHECKING:
    from torch import nn

    from madl.training.data import Encoded
    from madl.training.train import Recipe

log = logging.getLogger(__name__)

PASSES = 2  # epochs of fine-tuning: of 1 to 3, validation loss prefers 2 on the tuning seed
PARTS = ("train", "validation", "test")

RECIPE_FIELDS = (
    *("model", "dataset", "text_column", "label_column"),
    *("max_length", "train_examples", "validation_examples"),
    *("epochs", "learning_rate", "batch_size", "seed", "draw"),
)


def drawn_params(plan: Plan, seed: int, passes: int = PASSES) -> dict[str, Scalar]:
    """The case parameters of the baseline: its recipe, and the sizes of its splits.

    The seed draws the training, and which sentences train and which test; `passes` are epochs.
    """
    choose = plan.profile.choose
    is_of_one_split = getattr(plan, "is_of_one_split", False)  # of evidence older than folds
    return {
        "seed": seed,
        **({"draw": seed} if is_of_one_split else {}),
        "max_length": choose(smoke=32, quick=128),
        "train_examples": choose(smoke=64, quick=None),
        "validation_examples": choose(smoke=32, quick=None),
        "test_examples": choose(smoke=64, quick=2000 if is_of_one_split else None),
        "epochs": choose(smoke=1, quick=passes),
        "learning_rate": 5e-5,
        "batch_size": 32,
        **plan.workload,
    }


def recipe(params: Params, further: Iterable[str] = ()) -> dict[str, Scalar]:
    """The case parameters that define the baseline, and those named in `further`, where given.

    What depends on these alone can be stored under their digest.
    """
    return {name: params[name] for name in (*RECIPE_FIELDS, *further) if name in params}


def retraining_params(plan: Plan, learning_rate: float) -> Params:
    """The case parameters that `retrain_` needs: sentences, learning rate, batch size."""
    return {
        "tune_examples": plan.profile.choose(smoke=32, quick=None),
        "tune_learning_rate": learning_rate,
        "tune_batch_size": 16,
    }


def untrained_params(plan: Plan, seed: int) -> dict[str, Scalar]:
    """The `drawn_params` that a case needs which trains nothing."""
    params = drawn_params(plan, seed)
    return {k: v for k, v in params.items() if k not in ("epochs", "learning_rate", "batch_size")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """The encoded splits, and the fingerprint of the test split, which paired tests compare."""

    train: "Encoded"
    validation: "Encoded"
    test: "Encoded"
    test_fingerprint: str


def load_splits(params: Params) -> Splits:
    """The splits that case parameters ask for, cut to size and encoded; the last two are kept."""
    sizes = tuple(optional(params, f"{part}_examples") for part in PARTS)
    return _load_splits(
        *(str(params["model"]), str(params["dataset"]), columns_of(params)),
        *(integer(params, "max_length"), sizes, integer(params, "seed"), "draw" in params),
    )


def columns_of(params: Params) -> Columns:
    """The text and label columns that case parameters name."""
    text, label = (params.get(f"{name}_column") for name in ("text", "label"))
    return Columns(
        text=None if text is None else str(text), label=None if label is None else str(label)
    )


@functools.lru_cache(maxsize=2)
def _load_splits(
    model: str,
    name: str,
    columns: Columns,
    max_length: int,
    sizes: tuple[int | None, ...],
    seed: int,
    is_of_one_split: bool,
) -> Splits:
    """`load_splits` of parameters that can be hashed; `sizes` are those of `PARTS`."""
    from madl.training import data, models

    tokenizer = models.load_tokenizer(model)
    max_length = min(max_length, models.longest_input(model) or max_length)
    loaded = data.load_dataset(name, seed, columns, is_of_one_split=is_of_one_split)
    parts = {part: getattr(loaded, part).first(size) for part, size in zip(PARTS, sizes)}
    encoded = {k: data.encode(v, tokenizer, max_length=max_length) for k, v in parts.items()}
    return Splits(**encoded, test_fingerprint=parts["test"].fingerprint)


def fine_tuned(params: Params, ctx: Context) -> "nn.Module":
    """The baseline classifier; it is trained if its checkpoint is not there yet."""
    from madl.training import models

    return models.load_checkpoint(checkpoint(params, ctx))


def history(params: Params, ctx: Context) -> dict[str, Any]:
    """The log of the baseline's training: `losses`, `validation_accuracies` by epoch, `bf16`."""
    return json.loads((checkpoint(params, ctx) / "history.json").read_text())


def checkpoint(params: Params, ctx: Context) -> Path:
    """The folder of the baseline's weights, trained if it is not there yet."""
    name = f"baseline-{digest_of(recipe(params))}"
    return ctx.artifact(name, lambda folder: _fine_tune(params, ctx.device, folder))


def _fine_tune(params: Params, device: str, folder: Path) -> None:
    """Train the baseline, evaluate it after every epoch, and write checkpoint and history."""
    from madl.training import models, train

    splits = load_splits(params)
    model = models.load_pretrained(str(params["model"]), seed=integer(params, "seed"))
    bf16 = train.has_fast_bf16(device)
    accuracies: list[float] = []

    def look(epoch: int) -> None:
        accuracies.append(train.evaluate(model, splits.validation, device=device).accuracy)
        log.info("epoch %d: validation accuracy %.3f", epoch + 1, accuracies[-1])

    by = training_recipe(params, bf16=bf16)
    losses = train.train(model, splits.train, by, device=device, after_epoch=look)
    models.save_checkpoint(model, folder)
    values = {"losses": losses, "validation_accuracies": accuracies, "bf16": bf16}
    (folder / "history.json").write_text(json.dumps(values))


def training_recipe(
    params: Params, *, bf16: bool = False, prefix: str = "", epochs: int | None = None
) -> "Recipe":
    """The recipe in the parameters `{prefix}learning_rate`, …; `epochs` overrides their number."""
    from madl.training.train import Recipe

    return Recipe(
        epochs=epochs or integer(params, f"{prefix}epochs"),
        learning_rate=float(params[f"{prefix}learning_rate"] or 0),
        batch_size=integer(params, f"{prefix}batch_size"),
        seed=integer(params, "seed"),
        bf16=bf16,
    )


def retrain_(model: "nn.Module", params: Params, device: str, *, prefix: str = "tune_") -> None:
    """Train a changed model on, in place, by the parameters with that prefix; by default a pass."""
    from madl.training.train import train

    examples = load_splits(params).train.first(optional(params, f"{prefix}examples"))
    passes = integer(params, f"{prefix}epochs") if f"{prefix}epochs" in params else 1
    by = training_recipe(params, prefix=prefix, epochs=passes)
    train(model, examples, by, device=device)


def fp32(r: Records) -> Arm:
    """The arm of the fine-tuned model as it is, which the experiment `baseline` evaluates."""
    return arm(r, "FP32", method="fp32")


def larger_class(r: Records) -> float:
    """The share of test sentences, 0…1, that always answering with the larger class gets right."""
    share = fp32(r).mean("positive_share")
    return max(share, 1 - share)


def guessing(r: Records) -> ExactValue:
    """`larger_class` in per cent, as a number of a page."""
    return percentage(larger_class(r), fp32(r).records)


def judge(model: "nn.Module", params: Params, device: str, *, bf16: bool = False) -> dict[str, Any]:
    """Evaluate on test and validation: the values of `judge_on_test` and `judge_on_validation`."""
    return {
        **judge_on_test(model, params, device, bf16=bf16),
        **judge_on_validation(model, params, device, bf16=bf16),
    }


def judge_on_validation(
    model: "nn.Module", params: Params, device: str, *, bf16: bool = False
) -> dict[str, Any]:
    """Evaluate on validation, to choose by: `validation_accuracy` and `validation_loss`."""
    from madl.training.train import evaluate

    validation = evaluate(model, load_splits(params).validation, device=device, bf16=bf16)
    return {"validation_accuracy": validation.accuracy, "validation_loss": validation.loss}


def judge_on_test(
    model: "nn.Module",
    params: Params,
    device: str,
    *,
    keep_losses: bool = False,
    bf16: bool = False,
) -> dict[str, Any]:
    """Evaluate on test: `accuracy`, `loss`, and `outcomes`, which is every example's correctness.

    `keep_losses` adds `losses`, one per example. `bf16` multiplies in bfloat16, as training may do.
    """
    import numpy as np

    from madl.logbook.values import Outcomes
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


def integer(params: Params, name: str) -> int:
    """A case parameter that is an int."""
    value = params[name]
    assert isinstance(value, int), (name, value)
    return value


def optional(params: Params, name: str) -> int | None:
    """A case parameter that is an int; None where it is left out."""
    return None if params.get(name) is None else integer(params, name)
