"""Fixed-point models, made anew from case parameters: quantized, retrained, or both.

A retrained model is an artifact like the baseline it came from, so a later experiment that takes it
as its starting point does not train it again.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.logbook.experiment import Context
from madl.logbook.records import Params, digest_of
from madl.training import baseline

if TYPE_CHECKING:
    from torch import nn

TUNE_FIELDS = ("tune_examples", "tune_learning_rate", "tune_batch_size")
FORMAT_FIELDS = ("operands", "width", "frac_width", "input_frac_width")


def build(params: Params, ctx: Context) -> "nn.Module":
    """The fine-tuned model, quantized to `width` and `frac_width`, and retrained.

    It is not quantized where the parameters have no `width`, and not retrained where they have no
    `tune_learning_rate`. `tune_examples` None retrains on all sentences. `operands` says what is
    quantized: weights, inputs or both.
    """
    from madl.training import models

    if params.get("tune_learning_rate") is None:
        return quantized_(baseline.fine_tuned(params, ctx), params)
    name = f"tuned-{digest_of(baseline.recipe(params, (*FORMAT_FIELDS, *TUNE_FIELDS)))}"
    folder = ctx.artifact(name, lambda folder: _tune(params, ctx, folder))
    return quantized_(models.load_checkpoint(folder), params)


def _tune(params: Params, ctx: Context, folder: Path) -> None:
    """Quantize and retrain the fine-tuned model, and write its checkpoint."""
    from madl.training import models

    model: Any = quantized_(baseline.fine_tuned(params, ctx), params)
    baseline.retrain_(model, params, ctx.device)
    models.save_checkpoint(model, folder)


def quantized_(model: "nn.Module", params: Params) -> "nn.Module":
    """Quantize the model in place, if the parameters name a format; returns the model."""
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import FixedPoint

    width, place = params.get("width"), params.get("frac_width")
    if not (isinstance(width, int) and isinstance(place, int)):
        return model
    input_place = baseline.optional(params, "input_frac_width")
    weights = FixedPoint(width=width, frac_width=place)
    inputs = weights if input_place is None else weights.placed(input_place)
    operands = params.get("operands")
    quantize_(
        model,
        [
            Rule.operands(
                None if operands == "inputs" else weights,
                None if operands == "weights" else inputs,
            )
        ],
    )
    return model
