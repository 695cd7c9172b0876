"""What a number format loses of a model's weights and of its layers' inputs, as signal to error.

What is chosen is chosen on one part of the data, and what is shown is measured on the other: of the
weights, the encoder's even blocks choose and all else is shown; of the inputs, what the layers are
given for training sentences, and for validation sentences.

Units: decibels, of the squared values over the squared errors, all values of a part together.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from madl.compression.quantize import linear_layers
from madl.formats.base import NumberFormat
from madl.training import baseline
from madl.training.precision import layer_names

SENTENCES = 16
PARTS = ("weights", "inputs")
CHOOSING = "choosing "  # a part's name begins so where something is chosen on it
SAMPLED = 50_000  # values a layer
SHIFTS = range(-4, 13)  # of a position, from the preset's own
Tensors = Mapping[str, list[Tensor]]


def tensors(model: nn.Module, splits: baseline.Splits) -> Tensors:
    """The two parts, and the data that choose for each."""
    found: dict[str, list[Tensor]] = {"weights": [], CHOOSING + "weights": []}
    for name, layer in zip(layer_names(model), linear_layers(model)):
        block = re.search(r"\.(\d+)\.", name)
        chooses = block is not None and int(block[1]) % 2 == 0
        found[CHOOSING * chooses + "weights"].append(layer.weight.detach())
    for part, split in (("inputs", splits.validation), (CHOOSING + "inputs", splits.train)):
        calls = linear_calls(model, split.batch(range(min(SENTENCES, len(split)))))
        found[part] = [x for _, x in calls]
    return found


def linear_calls(model: nn.Module, batch: Mapping[str, Any]) -> list[tuple[nn.Linear, Tensor]]:
    """Every call of a Linear layer for this batch, in order: the layer, and its input.

    A layer that blocks share is called more than once. Without gradients.
    """
    calls: list[tuple[nn.Linear, Tensor]] = []

    def keep(layer: nn.Module, given: tuple[Tensor]) -> None:
        calls.append((cast("nn.Linear", layer), given[0].detach()))

    hooks = [layer.register_forward_pre_hook(keep) for layer in linear_layers(model)]
    with torch.no_grad():
        model.eval()(**batch)
    for hook in hooks:
        hook.remove()
    return calls


def sqnr_db(number_format: NumberFormat, data: Iterable[Tensor]) -> float:
    """Signal to quantization error; infinite where nothing is lost."""
    signal = noise = 0.0
    for x in data:
        error = number_format.quantize(x).sub_(x)
        signal += float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
        noise += float(torch.linalg.vector_norm(error, dtype=torch.float64)) ** 2
    return 10 * math.log10(signal / noise) if noise else math.inf


def sampled(x: Tensor) -> Tensor:
    """Some values of a tensor, drawn at random: without a scale, no value needs its neighbours.

    Every so many values would be of a few features alone, and outliers sit in features.
    """
    flat = x.flatten()
    if flat.numel() <= SAMPLED:
        return flat
    return flat[torch.randint(flat.numel(), (SAMPLED,), generator=torch.Generator().manual_seed(0))]


# ---- positions ----------------------------------------------------------------------------------


def shifted(number_format: Any, shift: int) -> NumberFormat | None:
    """The format with its values made smaller by 2^shift; None where it has no position."""
    names = {field.name for field in fields(number_format)}
    if "frac_width" in names:
        return replace(number_format, frac_width=number_format.frac_width + shift)
    if "bias" in names:
        return replace(number_format, bias=number_format.effective_bias + shift)
    return None


def best_shifted(number_format: NumberFormat, data: Tensors) -> dict[str, NumberFormat]:
    """Part → the format at the position that keeps the choosing data best; empty without one."""
    every = [x for shift in SHIFTS if (x := _valid(number_format, shift)) is not None]
    if not every:
        return {}
    some = {part: [sampled(x) for x in data[CHOOSING + part]] for part in PARTS}
    return {part: max(every, key=lambda f: sqnr_db(f, some[part])) for part in PARTS}


def _valid(number_format: NumberFormat, shift: int) -> NumberFormat | None:
    try:
        return shifted(number_format, shift)
    except ValueError:  # beyond float32
        return None
