"""Fixed point of one width on every Linear layer: choose its binary points, judge it, train it on.

A format is `width` bits with `weights` of them behind the point of weights and biases and `inputs`
of them behind the point of inputs, chosen by validation loss (`sweep`).

Units: widths and fraction widths in bits, losses in nats, shares of values 0…1.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from experiments.lab1_quantization import design
from madl.compression.quantize import Rule, linear_layers, quantize_, range_use, watched_inputs
from madl.formats.base import NumberFormat
from madl.formats.fixed import FixedPoint
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
    return values if params.get("width") is None else {**values, "shares": range_use(model, batch)}


def build(params: Params, ctx: Context) -> torch.nn.Module:
    """The model of a case, quantized and trained on as its parameters say."""
    per = params.get("step_per")
    if per is None:
        return compressed.build(params, ctx)
    assert per in ("layer", "row")
    width, frac = int(params["width"] or 0), int(params["frac_width"] or 0)
    model = baseline.fine_tuned(params, ctx)
    rule = Rule(
        weight=OwnStep(width=width, per=per),
        bias=FixedPoint(width=width, frac_width=frac),
        input=FixedPoint(width=width, frac_width=int(params["input_frac_width"] or 0)),
        products="bfloat16",
    )
    quantize_(model, [rule])
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
    every neighbour of the choice was tried.
    """
    model = baseline.fine_tuned(params, ctx)
    validation = baseline.load_splits(params).validation
    tried: dict[Pair, Evaluation] = {}

    def loss(pair: Pair) -> float:
        if pair not in tried:
            fractions = dict(zip(("frac_width", "input_frac_width"), pair))
            compressed.quantized_(model, {**params, **fractions})
            tried[pair] = evaluate(model, validation, device=ctx.device)
        return tried[pair].loss

    start = (int(params["start_weights"] or 0), int(params["start_inputs"] or 0))
    operands, width = params["operands"], int(params["width"] or 0)
    near = {"both": around, "weights": along_weights, "inputs": along_inputs}[str(operands)]
    weights, inputs = chosen = descend(start, near, loss, least_gain=design.LEAST_GAIN)
    values: Values = {"weights": weights, "inputs": inputs, "loss": loss(chosen)}
    if operands == "both":
        between = range(min(weights, inputs) - 1, max(weights, inputs) + 2)
        shared = [(f, f) for f in sorted({*between, 4, width // 2})]
        values["shared"] = min(shared, key=loss)[0]
    values["tried"] = [
        {"weights": pair[0], "inputs": pair[1], "loss": on.loss, "accuracy": on.accuracy}
        for pair, on in sorted(tried.items())
    ]
    return values


def along_weights(pair: Pair) -> list[Pair]:
    """The pair, and pairs with the first number up to two away."""
    return [(pair[0] + i, pair[1]) for i in (0, -1, 1, -2, 2)]


def along_inputs(pair: Pair) -> list[Pair]:
    """The pair, and pairs with the second number up to two away."""
    return [(pair[0], pair[1] + i) for i in (0, -1, 1, -2, 2)]


# ---- a step for every layer, or every row -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep(NumberFormat):
    """Fixed point that gives a weight matrix, or each of its rows, the step of least squared error.

    Shapes: (rows, columns).
    """

    width: int
    per: Literal["layer", "row"]

    @property
    def name(self) -> str:
        return f"fixed({self.width}, per {self.per})"

    @property
    def bits(self) -> float:
        return float(self.width)

    @property
    def exact_in_bf16(self) -> bool:
        return self.width <= 8

    def quantize_reference(self, x: Tensor) -> Tensor:
        best = torch.zeros_like(x)
        least = torch.full((len(x), 1), math.inf)
        for frac in design.STEP_FRACTIONS:
            q = FixedPoint(width=self.width, frac_width=frac).quantize(x)
            error = (q - x).square().sum(-1, keepdim=True)  # (rows, 1)
            if self.per == "layer":
                error = error.sum().expand_as(error)
            best = torch.where(error < least, q, best)
            least = torch.minimum(error, least)
        return best
