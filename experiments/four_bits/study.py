"""A fine-tuned model whose Linear layers have four-bit operands, judged; nothing is trained.

Every Linear layer takes the format in its weight, and its input takes it, eight bits, or nothing.
Biases stay float32. Outliers are put in without changing the function: some channels of a layer's
input are made larger, and their columns of the weight smaller.
"""

from typing import Any

import torch
from torch import Tensor, nn

from experiments.four_bits import design
from madl.compression import calibrated
from madl.compression.calibrated import Basis, Hessian
from madl.compression.quantize import QuantizedLinear, Rule, replace_linears_, watched_inputs
from madl.formats.base import NumberFormat
from madl.formats.blocked import Blocked, MXFloat, MXInt, RealScale
from madl.formats.fixed import ScaledInteger
from madl.formats.grid import ROW
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.data import middle_batch


def run(params: Params, ctx: Context) -> Values:
    """Run one case: the model, in FP32 or in four bits, judged on test; or a block of inputs."""
    model = baseline.fine_tuned(params, ctx)
    if params["method"] == "block":
        return block(model, params)
    if params["method"] != "fp32":
        round_(model, params)
    return baseline.judge_on_test(model, params, ctx.device)


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


def round_(model: nn.Module, params: Params) -> None:
    """Round all Linear layers as the case says, by its method."""
    parts = (str(params["element"]), params["block"], str(params["scale"]))
    four_bits = number_format(*parts)  # pyright: ignore[reportArgumentType]
    inputs = {
        design.OPERANDS[0]: None,
        design.OPERANDS[1]: ScaledInteger(width=design.INPUT_BITS),
        design.OPERANDS[2]: four_bits,
    }[str(params["operands"])]
    method, seed = str(params["method"]), int(params["seed"] or 0)
    hessians = seen(model, params) if method in ("GPTQ", "SmoothQuant") else {}
    generator = torch.Generator().manual_seed(seed)

    def make(linear: nn.Linear, _: Rule) -> nn.Module:
        factors = outliers(linear.in_features, float(params["outliers"] or 1), generator)
        hessian = hessians.get(linear)
        layer = _in_basis(linear, method, factors, hessian)
        return rounded(layer, method, four_bits, inputs, hessian)

    replace_linears_(model, [Rule()], make)


def outliers(channels: int, factor: float, generator: torch.Generator) -> Tensor:
    """The factor at some channels, drawn at random, one at all others: (channels,)."""
    factors = torch.ones(channels)
    factors[torch.randperm(channels, generator=generator)[: design.OUTLIER_CHANNELS]] = factor
    return factors


def _in_basis(linear: nn.Linear, method: str, factors: Tensor, hessian: Hessian | None) -> Basis:
    """The Linear with outliers in its input and, over them, the method's change of basis."""
    layer = calibrated.scaled(linear, factors)
    if method == "Hadamard":
        return calibrated.rotated(layer, design.ROTATED)
    if method == "SmoothQuant":
        assert hessian is not None
        smooth = calibrated.smoothing(layer.linear.weight.detach(), hessian.largest * factors)
        return calibrated.scaled(layer, smooth)
    return layer


def rounded(
    layer: Basis,
    method: str,
    four_bits: Blocked,
    inputs: NumberFormat | None,
    hessian: Hessian | None,
) -> Basis:
    """The layer with its weight rounded by the method, and its input's format."""
    weight = layer.linear.weight.detach()
    if method == "clipping":
        weight = calibrated.clipped(weight, four_bits)
    elif method == "GPTQ":
        assert hessian is not None
        weight = calibrated.gptq(weight, hessian.mapped(layer.into), four_bits)
    else:
        weight = four_bits.quantize(weight)
    layer.linear.weight = nn.Parameter(weight)
    layer.linear = QuantizedLinear(layer.linear, Rule(input=inputs))
    return layer


def seen(model: nn.Module, params: Params) -> dict[nn.Linear, Hessian]:
    """The inputs of each Linear on some training sentences of one length, without padding."""
    data = baseline.load_splits(params).train.first(32 * design.CALIBRATION_SENTENCES)
    batch = middle_batch(data, design.CALIBRATION_SENTENCES)
    hessians: dict[nn.Linear, Hessian] = {}

    def watch(layer: nn.Linear, x: Tensor) -> None:
        hessians.setdefault(layer, Hessian(layer.in_features)).add(x)

    with watched_inputs(model, watch):
        model(**batch)
    return hessians


def block(model: nn.Module, params: Params) -> Values:
    """Neighbours in a layer's input, one of which grows, as they are and in each format shown.

    `values` are the neighbours; `rounded` has for each format, and each factor of the largest
    magnitude that the one grows to, all of them. The rest of the input stays, and has its part in
    scales of whole tensors.
    """
    data = baseline.load_splits(params).train.first(32 * design.CALIBRATION_SENTENCES)
    inputs: list[Tensor] = []
    with watched_inputs(model, lambda _, x: inputs.append(x.clone())):
        model(**middle_batch(data, design.CALIBRATION_SENTENCES))
    x = inputs[design.SHOWN_LAYER]
    own = x[0, 1, : design.SHOWN_VALUES]  # of the first sentence's first word
    largest = own.abs().max()
    values, rounded = own.tolist(), {name: list[Any]() for name in design.SHOWN}
    for factor in design.GROWTH:
        own[design.SHOWN_VALUE] = largest * factor
        for name, parts in design.SHOWN.items():
            q = number_format(*parts).quantize(x)[0, 1, : design.SHOWN_VALUES]
            rounded[name].append([round(value, 5) for value in q.tolist()])
    return {"values": [round(value, 5) for value in values], "rounded": rounded}
