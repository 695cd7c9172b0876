"""Fixed point of one width on every Linear layer: choose its binary points, judge it, train it on.

A format is `width` bits with `weights` of them behind the point of weights and biases and `inputs`
of them behind the point of inputs, chosen by validation loss (`sweep`).

Units: widths and fraction widths in bits, losses in nats, shares of values 0…1.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from experiments.lab1_quantization import design
from experiments.lab1_quantization.scales import Clipped, learn_steps_
from madl.compression.quantize import Rule, linear_layers, quantize_, range_use, watched_inputs
from madl.formats.fixed import ScaledInteger
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, compressed
from madl.training.descent import Pair, around, descend
from madl.training.train import Evaluation, evaluate

FIRST, LAST = -18, 6  # octaves of magnitude that are counted; the ends hold all beyond


def run(params: Params, ctx: Context) -> Values:
    """Run one case: a sweep over formats, or a model, judged.

    A model is judged on validation on the tuning seed, on test on any other.
    """
    if params["method"] == "sweep":
        return sweep(params, ctx)
    model, splits = build(params, ctx), baseline.load_splits(params)
    values = baseline.history(params, ctx) if params["method"] == "fp32" else {}
    if params["seed"] == TUNING_SEED:
        return {**values, **baseline.judge_on_validation(model, params, ctx.device)}
    probe = splits.validation.first(design.PROBE_SENTENCES)
    batch = probe.batch(range(len(probe)))
    if params["method"] == "fp32":
        values |= {
            **baseline.judge_on_validation(model, params, ctx.device),
            "octaves": octaves(model, batch),
            "num_train": len(splits.train),
            "positive_share": sum(splits.test.labels) / len(splits.test),
        }
    values |= baseline.judge_on_test(model, params, ctx.device)
    if params["method"] == "control":
        return {**values, "then quantized": then_quantized(model, params, ctx)}
    return values if params.get("width") is None else {**values, "shares": range_use(model, batch)}


def then_quantized(model: torch.nn.Module, params: Params, ctx: Context) -> Values:
    """Width → a trained model, judged with its operands in the format chosen for that width."""
    judged: dict[str, Any] = {}
    for width in (design.NARROW_BITS, design.COURSE_BITS):
        weights, inputs = design.FRACTIONS[width]
        points = {"frac_width": weights, "input_frac_width": inputs}
        compressed.quantized_(model, {**params, "operands": "both", "width": width, **points})
        judged[str(width)] = baseline.judge_on_test(model, params, ctx.device)
    return judged


def build(params: Params, ctx: Context) -> torch.nn.Module:
    """The model of a case, quantized and trained on as its parameters say."""
    if params["method"] == "scaled":
        return scaled(params, ctx)
    if params["method"] == "learned":
        return with_learned_steps(params, ctx)
    model = compressed.build(params, ctx)
    if params.get("bias") == "FP32":
        for layer in linear_layers(model):
            layer.rule = replace(layer.rule, bias=None)  # pyright: ignore[reportAttributeAccessIssue]
    return model


def scaled(params: Params, ctx: Context) -> torch.nn.Module:
    """The fine-tuned model, integers with real scales in weights and inputs, biases in FP32.

    Inputs have a scale for each token, of its largest value.
    """
    width, input_width = int(params["width"] or 0), params["input_width"]
    per: Any = params["scale_per"]
    format_of = Clipped if params["scale_by"] == "clip" else ScaledInteger
    inputs = ScaledInteger(width=input_width) if isinstance(input_width, int) else None
    model = baseline.fine_tuned(params, ctx)
    quantize_(model, [Rule(weight=format_of(width=width, per=per), input=inputs)])
    return model


def with_learned_steps(params: Params, ctx: Context) -> torch.nn.Module:
    """The fine-tuned model, trained on with a learned step for each weight and each input."""
    model = baseline.fine_tuned(params, ctx)
    probe = baseline.load_splits(params).train.first(design.PROBE_SENTENCES)
    learn_steps_(model, int(params["width"] or 0), probe.batch(range(len(probe))))
    baseline.retrain_(model, params, ctx.device)
    return model


@torch.no_grad()
def octaves(model: torch.nn.Module, batch: dict[str, Tensor]) -> Values:
    """Shares of the weights, and of the inputs on a batch, of all Linear layers by octave.

    An octave is an exponent of two; the first holds all below it, and zero, the last all above it.
    """
    counts = {part: torch.zeros(LAST - FIRST + 1) for part in ("weights", "inputs")}

    def count(part: str, x: Tensor) -> None:
        _, exponents = torch.frexp(x.flatten())  # of m · 2^e with m in [1/2, 1)
        octave = torch.where(x.flatten() == 0, FIRST, exponents - 1).clamp(FIRST, LAST)
        counts[part] += torch.bincount(octave - FIRST, minlength=LAST - FIRST + 1)

    for layer in linear_layers(model):
        count("weights", layer.weight)
    with watched_inputs(model, lambda _, x: count("inputs", x)):
        model(**batch)
    return {"first": FIRST, **{part: (c / c.sum()).tolist() for part, c in counts.items()}}


# ---- the choice of fraction widths --------------------------------------------------------------


def sweep(params: Params, ctx: Context) -> Values:
    """Choose the binary points of one width by validation loss, and the best common one.

    It goes from `start_weights`, `start_inputs` to the best neighbour until none is better, so
    every neighbour of the choice was tried: on `sweep_sentences` of those that choose. `loss` is
    the choice's, on all that choose.
    """
    model = baseline.fine_tuned(params, ctx)
    validation = baseline.load_splits(params).validation
    few = validation.first(baseline.optional(params, "sweep_sentences"))
    tried: dict[Pair, Evaluation] = {}

    def loss(pair: Pair) -> float:
        if pair not in tried:
            fractions = dict(zip(("frac_width", "input_frac_width"), pair))
            compressed.quantized_(model, {**params, **fractions})
            tried[pair] = evaluate(model, few, device=ctx.device)
        return tried[pair].loss

    start = (int(params["start_weights"] or 0), int(params["start_inputs"] or 0))
    operands, width = params["operands"], int(params["width"] or 0)
    near = {"both": around, "weights": along_weights, "inputs": along_inputs}[str(operands)]
    weights, inputs = descend(start, near, loss, least_gain=design.LEAST_GAIN)
    values: Values = {"weights": weights, "inputs": inputs}
    if operands == "both":
        between = range(min(weights, inputs) - 1, max(weights, inputs) + 2)
        shared = [(f, f) for f in sorted({*between, 4, width // 2})]
        values["shared"] = min(shared, key=loss)[0]
    values["tried"] = [
        {"weights": pair[0], "inputs": pair[1], "loss": on.loss, "accuracy": on.accuracy}
        for pair, on in sorted(tried.items())
    ]
    best = {**params, "frac_width": weights, "input_frac_width": inputs}
    compressed.quantized_(model, best)
    return {**values, "loss": evaluate(model, validation, device=ctx.device).loss}


def along_weights(pair: Pair) -> list[Pair]:
    """The pair, and pairs with the first number up to two away."""
    return [(pair[0] + i, pair[1]) for i in (0, -1, 1, -2, 2)]


def along_inputs(pair: Pair) -> list[Pair]:
    """The pair, and pairs with the second number up to two away."""
    return [(pair[0], pair[1] + i) for i in (0, -1, 1, -2, 2)]
