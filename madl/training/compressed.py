"""Fixed-point models, rebuilt from their parameters: quantized, trained on, or both.

A model that was trained on is an artifact like the baseline it came from, so a later experiment
that takes it as its starting point does not train it again.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline

if TYPE_CHECKING:
    from torch import nn


def build(params: Params, ctx: Context, *, exact_products: bool = True) -> "nn.Module":
    """The fine-tuned model, quantized to `width`, `frac_width` and trained on.

    Either is left out where the parameters have no `width` or no `tune_learning_rate`;
    `tune_examples` None trains on with all sentences. `operands` says what is quantized:
    weights, inputs or both. `exact_products` multiplies in bfloat16 where it holds every operand,
    which changes nothing but the order of a sum, in evaluation and in training.
    """
    from madl.training import models

    tuned = params.get("tune_learning_rate") is not None
    model = (
        models.load_checkpoint(_tuned(params, ctx)) if tuned else baseline.fine_tuned(params, ctx)
    )
    return quantized_(model, params, exact_products=exact_products)


def quantized_(model: "nn.Module", params: Params, *, exact_products: bool = True) -> "nn.Module":
    """The model in the format of the parameters, as it is where they name none."""
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import FixedPoint

    width, frac_width = params.get("width"), params.get("frac_width")
    if not (isinstance(width, int) and isinstance(frac_width, int)):
        return model
    of_inputs = params.get("input_frac_width")
    weights = FixedPoint(width=width, frac_width=frac_width)
    inputs = FixedPoint(
        width=width, frac_width=of_inputs if isinstance(of_inputs, int) else frac_width
    )
    operands = params.get("operands")
    if operands == "weights":
        rule = Rule(weight=weights, bias=weights)
    elif operands == "inputs":
        rule = Rule(input=inputs)
    else:
        exact = exact_products and weights.exact_in_bf16 and inputs.exact_in_bf16
        rule = Rule(
            weight=weights,
            bias=weights,
            input=inputs,
            products="bfloat16" if exact else "float32",
        )
    quantize_(model, [rule])
    return model


def _tuned(params: Params, ctx: Context) -> Path:
    fields = (
        *baseline.RECIPE_FIELDS,
        "operands",
        "width",
        "frac_width",
        "input_frac_width",
        *TUNE_FIELDS,
    )
    recipe = {field: params.get(field) for field in fields}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    return ctx.artifact(f"tuned-{digest}", lambda folder: _tune(params, ctx, folder))


TUNE_FIELDS = ("tune_examples", "tune_learning_rate", "tune_batch_size")


def _tune(params: Params, ctx: Context, folder: Path) -> None:
    from madl.training import models
    from madl.training.train import train

    model: Any = quantized_(baseline.fine_tuned(params, ctx), params)
    num_examples = params.get("tune_examples")
    assert num_examples is None or isinstance(num_examples, int)
    examples = baseline.load_splits(params).train.first(num_examples)
    recipe = baseline.training_recipe(params, prefix="tune_", epochs=1)
    train(model, examples, recipe, device=ctx.device)
    models.save_checkpoint(model, folder)
