"""What a case runs: fixed point of one width on every Linear layer, chosen, judged, trained on.

A format is `width` bits with `weights` of them behind the point of weights and biases and `inputs`
of them behind the point of inputs. Where they lie is chosen by validation loss (`sweep`).

Units: widths and fraction widths in bits, losses in nats, shares of values 0…1.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from madl.compression.quantize import Rule, linear_layers, quantize_, range_use
from madl.formats.base import NumberFormat
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, compressed
from madl.training.train import Evaluation, evaluate

PROBE_SENTENCES = 64  # whose activations are counted
FIRST, LAST = -18, 6  # octaves of magnitude that are counted; the ends hold all beyond
GAIN = 1e-4  # nats: a smaller difference moves no point
CANDIDATES = range(3, 10)  # bits behind the point of a layer's or a row's own step, at 4 bits

Pair = tuple[int, int]  # bits behind the point: of weights and biases, of inputs


def judged(params: Params, ctx: Context) -> Values:
    """A model on the test split, and what its format loses of the values."""
    if params["method"] == "fp32":
        return fp32(params, ctx)
    model = build(params, ctx)
    values = baseline.judge_on_test(model, params, ctx.device)
    if params.get("width") is None:
        return values
    probe = baseline.load_splits(params).validation.first(PROBE_SENTENCES)
    return {**values, "shares": range_use(model, probe.batch(range(len(probe))))}


def fp32(params: Params, ctx: Context) -> Values:
    """The fine-tuned model, and what it was fine-tuned and judged on."""
    splits, model = baseline.load_splits(params), baseline.fine_tuned(params, ctx)
    probe = splits.validation.first(PROBE_SENTENCES)
    return {
        **baseline.judge(model, params, ctx.device),
        **baseline.history(params, ctx),
        "octaves": octaves(model, probe.batch(range(len(probe)))),
        "num_train": len(splits.train),
        "positive_share": sum(splits.test.labels) / len(splits.test),
    }


def validated(params: Params, ctx: Context) -> Values:
    """What there is to choose by, of a model or of every format that a sweep tries."""
    if params["method"] == "sweep":
        return sweep(params, ctx)
    if params["method"] == "fp32":
        return {
            **baseline.judge_on_validation(baseline.fine_tuned(params, ctx), params, ctx.device),
            **baseline.history(params, ctx),
        }
    return baseline.judge_on_validation(build(params, ctx), params, ctx.device)


def build(params: Params, ctx: Context) -> torch.nn.Module:
    """The model of a case: quantized, trained on, or both."""
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

    hooks = [
        layer.register_forward_pre_hook(lambda _, given: count("inputs", given[0]))
        for layer in linear_layers(model)
    ]
    for layer in linear_layers(model):
        count("weights", layer.weight)
    model.eval()(**batch)
    for hook in hooks:
        hook.remove()
    return {
        "first": FIRST,
        **{part: (found / found.sum()).tolist() for part, found in counts.items()},
    }


# ---- the choice of fraction widths --------------------------------------------------------------


def sweep(params: Params, ctx: Context) -> Values:
    """Validation loss of the formats of one width around the best, and of one point for both.

    It goes from `start_weights`, `start_inputs` to the best neighbour until none is better, so
    every neighbour of the choice was tried.
    """
    model = baseline.fine_tuned(params, ctx)
    validation = baseline.load_splits(params).validation
    found: dict[Pair, Evaluation] = {}

    def loss(pair: Pair) -> float:
        if pair not in found:
            weights, inputs = pair
            named = {"frac_width": weights, "input_frac_width": inputs}
            compressed.quantized_(model, {**params, **named})
            found[pair] = evaluate(model, validation, device=ctx.device)
        return found[pair].loss

    start = (int(params["start_weights"] or 0), int(params["start_inputs"] or 0))
    operands, width = params["operands"], int(params["width"] or 0)
    near = {"both": around, "weights": along_weights, "inputs": along_inputs}[str(operands)]
    weights, inputs = chosen = descend(start, near, loss)
    values: Values = {"weights": weights, "inputs": inputs, "loss": loss(chosen)}
    if operands == "both":
        between = range(min(weights, inputs) - 1, max(weights, inputs) + 2)
        shared = [(f, f) for f in sorted({*between, 4, width // 2})]
        values["shared"] = min(shared, key=loss)[0]
    tried = [
        {"weights": w, "inputs": i, "loss": made.loss, "accuracy": made.accuracy}
        for (w, i), made in sorted(found.items())
    ]
    return {**values, "tried": tried}


def descend(
    start: Pair, near: Callable[[Pair], Iterable[Pair]], loss: Callable[[Pair], float]
) -> Pair:
    """From neighbour to neighbour, to a pair that none of its own beats."""
    best = min(near(start), key=loss)
    return start if loss(best) > loss(start) - GAIN else descend(best, near, loss)


def around(pair: Pair) -> list[Pair]:
    weights, inputs = pair
    return [(weights + i, inputs + j) for i in (0, -1, 1) for j in (0, -1, 1)]


def along_weights(pair: Pair) -> list[Pair]:
    return [(pair[0] + i, pair[1]) for i in (0, -1, 1, -2, 2)]


def along_inputs(pair: Pair) -> list[Pair]:
    return [(pair[0], pair[1] + i) for i in (0, -1, 1, -2, 2)]


# ---- a step for every layer, or every row -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep(NumberFormat):
    """Fixed point whose weight matrix, or each of its rows, has the step of least squared error.

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
    def range(self) -> None:
        return None

    @property
    def exact_in_bf16(self) -> bool:
        return self.width <= 8

    def quantize_reference(self, x: Tensor) -> Tensor:
        best = torch.zeros_like(x)
        least = torch.full((len(x), 1), math.inf)
        for frac in CANDIDATES:
            q = FixedPoint(width=self.width, frac_width=frac).quantize(x)
            error = (q - x).square().sum(-1, keepdim=True)  # (rows, 1)
            if self.per == "layer":
                error = error.sum().expand_as(error)
            best = torch.where(error < least, q, best)
            least = torch.minimum(error, least)
        return best
