"""A fine-tuned model whose encoder has four-bit operands, judged; nothing is trained.

Every Linear layer of the encoder takes the format in its weight, and its input takes it, eight
bits, or nothing. Pooler, classifier and biases stay in float32, as in recipes. Outliers come
first, without changing the function: methods that calibrate see inputs that have them.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.four_bits import design
from madl.compression import calibrated
from madl.compression.calibrated import Basis, Batch
from madl.compression.quantize import QuantizedLinear, Rule, set_module_
from madl.formats.blocked import Blocked, MXFloat, MXInt, RealScale
from madl.formats.fixed import ScaledInteger
from madl.formats.grid import ROW
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, search
from madl.training.data import batches_by_length
from madl.training.train import EVALUATION_BATCH

Layers = dict[str, Basis]  # by their full names
LEAST_NATS = 5e-5  # half of the last digit that is kept of a loss


def run(params: Params, ctx: Context) -> Values:
    """Run one case: the model, in FP32 or in four bits, judged on test; or a block of inputs."""
    model = baseline.fine_tuned(params, ctx)
    if params["method"] == "block":
        return block(model, params)
    if params["seed"] == TUNING_SEED:
        return {**round_(model, params), **baseline.judge_on_validation(model, params, ctx.device)}
    values = in_full(model, params, ctx)
    losses = values.pop("losses")
    if params["method"] == "fp32":
        return values
    lost, values = round_(model, params), judged(model, params, ctx)
    far = divergence(losses, values.pop("losses"))
    return {**lost, **values, "divergence": far}


def in_full(model: nn.Module, params: Params, ctx: Context) -> dict[str, Any]:
    """The model in FP32 as `judged`; once on a machine."""
    key = {"kind": "judged in FP32", **baseline.recipe(params, ["test_examples"])}
    return search.memoized(ctx, key, lambda: judged(model, params, ctx))


def judged(model: nn.Module, params: Params, ctx: Context) -> dict[str, Any]:
    """The model judged on test, with every sentence's loss."""
    return baseline.judge_on_test(model, params, ctx.device, keep_losses=True)


def divergence(full: Sequence[float], rounded: Sequence[float]) -> float:
    """The Kullback–Leibler divergence of two classes' probabilities from FP32's, in nats, the mean.

    `full` and `rounded` are the losses of the sentences: the logarithms of the right class's
    probability, negative.
    """
    p, q = (np.exp(-np.maximum(losses, LEAST_NATS)) for losses in (full, rounded))
    return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))


def number_format(element: str, block: int | str, scale: str) -> Blocked:
    """The format of these parts.

    Raises:
        ValueError: integers under a power of two that is not rounded down, or an unknown part.
    """
    size = ROW if block == "row" else int(block)
    sized: Any = {"block": size}
    if scale in ("e4m3", "fp16"):
        return RealScale(element_name=element, scale=scale, **sized)  # pyright: ignore[reportArgumentType]
    if element == "e2m1":
        return MXFloat(exponent_width=2, mantissa_width=1, rule=scale, **sized)  # pyright: ignore[reportArgumentType]
    if scale != "floor":
        raise ValueError(f"integers have a power of two that is rounded down, not {scale!r}")
    return MXInt(width=4, **sized)


@torch.no_grad()
def round_(model: nn.Module, params: Params) -> Values:
    """Round the encoder's Linear layers as the case says; returns what the rounding `lost`."""
    parts = (str(params["element"]), params["block"], str(params["scale"]))
    four_bits = number_format(*parts)  # pyright: ignore[reportArgumentType]
    inputs = {
        design.OPERANDS[0]: None,
        design.OPERANDS[1]: ScaledInteger(width=design.INPUT_BITS),
        design.OPERANDS[2]: four_bits,
    }[str(params["operands"])]
    layers = in_basis(model, params)
    weights = {name: layer.linear.weight.detach() for name, layer in layers.items()}
    for name, values in rounded_weights(model, layers, params, four_bits).items():
        layers[name].linear.weight = nn.Parameter(values)
        layers[name].linear = QuantizedLinear(layers[name].linear, Rule(input=inputs))
    if params["outliers"] == design.CONSTANT:
        errors = calibrated.mean_errors(model, layers, calibration(params))
        for name, error in errors.items():
            linear = layers[name].linear
            linear.bias = nn.Parameter(linear.bias - error)
    losses = lost(model, layers, params, weights, four_bits)
    for name, layer in layers.items():
        set_module_(model, name, layer)
    return losses


def probe(params: Params) -> Batch:
    """A batch of the first training sentences."""
    data = baseline.load_splits(params).train.first(design.PROBE_SENTENCES)
    return data.batch(range(len(data)))


def calibration(params: Params) -> Iterable[Batch]:
    """Batches of the training sentences that methods see."""
    data = baseline.load_splits(params).train.first(design.CALIBRATION_SENTENCES)
    return map(data.batch, batches_by_length(data, EVALUATION_BATCH))


# ---- outliers and methods -----------------------------------------------------------------------


def with_outliers(model: nn.Module, params: Params) -> Layers:
    """The encoder's Linear layers with the case's outliers in their inputs: the same functions.

    Layers that share an input have them in the same channels.
    """
    kind, factor = params["outliers"], float(params["factor"] or 0)
    generator = torch.Generator().manual_seed(int(params["seed"] or 0))
    layers = {name: Basis(linear) for name, linear in calibrated.encoder_linears(model).items()}
    if kind == design.NONE:
        return layers
    signs: dict[str, Tensor] = {}
    for name, layer in layers.items():
        if calibrated.input_of(name) not in signs:
            signs[calibrated.input_of(name)] = outliers(layer.linear.in_features, generator)
    if kind == design.SCALED:
        factors = {name: 1 + (factor - 1) * at.abs() for name, at in signs.items()}
        return {k: calibrated.scaled(v, factors[calibrated.input_of(k)]) for k, v in layers.items()}
    offsets: dict[str, Tensor] = {}

    def measure(name: str, x: Tensor) -> None:
        offsets[name] = factor * x.std() * signs[calibrated.input_of(name)]

    calibrated.see_inputs(model, [probe(params)], measure)
    return {name: calibrated.shifted(layer, offsets[name]) for name, layer in layers.items()}


def outliers(channels: int, generator: torch.Generator) -> Tensor:
    """A sign, 1 or -1, at some channels, drawn at random, and zero at all others: (channels,)."""
    places = torch.randperm(channels, generator=generator)[: design.OUTLIER_CHANNELS]
    signs = torch.zeros(channels)
    signs[places] = torch.randint(2, places.shape, generator=generator) * 2.0 - 1
    return signs


def in_basis(model: nn.Module, params: Params) -> Layers:
    """The layers with outliers in their inputs and, over them, the method's change of basis.

    A rotation turns as many inputs together as the case says, or as divide those of the layer.
    """
    layers = with_outliers(model, params)
    if params["method"] in (design.ROTATION, design.BOTH):
        turned = baseline.integer(params, "turned")
        blocks = {k: math.gcd(turned, v.linear.in_features) for k, v in layers.items()}
        return {k: calibrated.rotated(v, blocks[k]) for k, v in layers.items()}
    if params["method"] != design.SMOOTH:
        return layers
    largest = calibrated.largest_inputs(model, layers, calibration(params))
    factors = {k: calibrated.smoothing(v.linear.weight, largest[k]) for k, v in layers.items()}
    return {name: calibrated.scaled(layer, factors[name]) for name, layer in layers.items()}


def rounded_weights(
    model: nn.Module, layers: Layers, params: Params, four_bits: Blocked
) -> dict[str, Tensor]:
    """Name → weight of the layers, rounded by the case's method."""
    if params["method"] in (design.GPTQ, design.BOTH):
        sums = calibrated.hessians(model, layers, calibration(params))
        return {k: calibrated.gptq(v.linear.weight, sums[k], four_bits) for k, v in layers.items()}
    quantize: Callable[[Tensor], Tensor] = four_bits.quantize
    if params["method"] == design.SEARCH:
        quantize = partial(calibrated.scale_searched, number_format=four_bits)
    return {name: quantize(layer.linear.weight) for name, layer in layers.items()}


def lost(
    model: nn.Module,
    layers: Layers,
    params: Params,
    weights: Mapping[str, Tensor],
    four_bits: Blocked,
) -> Values:
    """Losses by the rounding of the layers, each given FP32's input: means over layers.

    `output_error` is the sum of squared errors of outputs over that of their squares. Of weights,
    and of inputs of four bits: shares 0…1 of nonzero values that are `zeroed`, and of values beyond
    the largest of their block (`saturated`); not where a method chooses weights otherwise.
    """
    losses: defaultdict[str, list[float]] = defaultdict(list)
    linears = calibrated.encoder_linears(model)

    def count(part: str, x: Tensor, values: Tensor) -> None:
        losses[f"{part}_zeroed"].append(float(((values == 0) & (x != 0)).sum()) / x.numel())
        if part == "input" or params["method"] not in design.CHOOSING:
            losses[f"{part}_saturated"].append(calibrated.saturated(x, four_bits))

    def see(name: str, x: Tensor) -> None:
        layer, linear = layers[name], linears[name]
        y = F.linear(x, linear.weight, linear.bias)
        error = (layer(x) - y).square().sum() / y.square().sum()
        losses["output_error"].append(float(error))
        if params["operands"] == design.OPERANDS[-1]:
            mapped = layer.into(x)
            count("input", mapped, four_bits.quantize(mapped))

    calibrated.see_inputs(model, [probe(params)], see)
    for name, weight in weights.items():
        count("weight", weight, layers[name].linear.weight)
    return {name: float(f"{fmean(values):.4g}") for name, values in losses.items()}


# ---- a block of inputs --------------------------------------------------------------------------


def block(model: nn.Module, params: Params) -> Values:
    """Neighbours in a layer's input, one of which grows, as they are and in each named format.

    `values` are the neighbours; `rounded` has for each format, and each factor of the largest
    magnitude that the one grows to, all of them. The rest of the input stays, and has its part in
    scales of whole tensors.
    """
    inputs: list[Tensor] = []
    calibrated.see_inputs(model, [probe(params)], lambda _, x: inputs.append(x))
    x = inputs[design.SHOWN_LAYER]
    own = x[1, : design.SHOWN_VALUES]  # of the first sentence's first word
    largest = own.abs().max()
    values, rounded = own.tolist(), {name: list[Any]() for name in design.NAMED}
    for factor in design.GROWTH:
        own[design.SHOWN_VALUE] = largest * factor
        for name, parts in design.NAMED.items():
            q = number_format(*parts).quantize(x)[1, : design.SHOWN_VALUES]
            rounded[name].append([round(value, 5) for value in q.tolist()])
    return {"values": [round(value, 5) for value in values], "rounded": rounded}
