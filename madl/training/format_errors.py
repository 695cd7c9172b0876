"""The signal-to-error ratio of number formats, on a model's weights and on its layers' inputs.

A format's place (`NumberFormat.place`) is chosen on one part of the data, and the ratio is shown
for another: weights in the encoder's even blocks choose, and inputs from training sentences; the
other weights are shown, and inputs from validation sentences.

Units: decibels, of the squared values over the squared errors, all values of a part together.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from madl.compression.quantize import named_linears, watched_inputs
from madl.compression.roles import block
from madl.formats.base import NumberFormat
from madl.training import baseline

SENTENCES = 16
PARTS = ("weights", "inputs")
CHOOSING = "choosing "  # the name of a part's data to choose on begins so
SAMPLED = 50_000  # values per layer
SHIFTS = range(-4, 13)  # that are tried, added to the preset's own place
Tensors = Mapping[str, list[Tensor]]


def tensors(model: nn.Module, splits: baseline.Splits) -> Tensors:
    """Part (`PARTS`) → the tensors to be shown; `CHOOSING` + part → those to choose a place on."""
    parts: dict[str, list[Tensor]] = {"weights": [], CHOOSING + "weights": []}
    for name, layer in named_linears(model).items():
        number = block(name)
        chooses = number is not None and number % 2 == 0
        parts[CHOOSING * chooses + "weights"].append(layer.weight.detach())
    for part, split in (("inputs", splits.validation), (CHOOSING + "inputs", splits.train)):
        calls = linear_calls(model, split.batch(range(min(SENTENCES, len(split)))))
        parts[part] = [x for _, x in calls]
    return parts


def linear_calls(model: nn.Module, batch: Mapping[str, Any]) -> list[tuple[nn.Linear, Tensor]]:
    """Every call of a Linear layer for this batch, in order: (layer, its input), without gradients
    and without padding.

    A layer that blocks share is called more than once.
    """
    calls: list[tuple[nn.Linear, Tensor]] = []
    kept = batch["attention_mask"].bool()

    def watch(layer: nn.Linear, x: Tensor) -> None:
        calls.append((layer, x.detach()[kept] if x.dim() == kept.dim() + 1 else x.detach()))

    with watched_inputs(model, watch):
        model(**batch)
    return calls


def sqnr_db(number_format: NumberFormat, data: Iterable[Tensor]) -> float:
    """The signal-to-quantization-error ratio in decibels; infinite where nothing is lost."""
    signal = noise = 0.0
    for x in data:
        error = number_format.quantize(x).sub_(x)
        signal += float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
        noise += float(torch.linalg.vector_norm(error, dtype=torch.float64)) ** 2
    return 10 * math.log10(signal / noise) if noise else math.inf


def sampled(x: Tensor) -> Tensor:
    """At most `SAMPLED` values of a tensor, drawn at random: enough for formats without a scale.

    Every so many values would be of a few features alone, and outliers sit in features.
    """
    flat = x.flatten()
    if flat.numel() <= SAMPLED:
        return flat
    return flat[torch.randint(flat.numel(), (SAMPLED,), generator=torch.Generator().manual_seed(0))]


def best_shifted(number_format: NumberFormat, data: Tensors) -> dict[str, NumberFormat]:
    """Part → the format at its best place for the part's choosing data; empty without a place."""
    if number_format.place is None:
        return {}
    places = (number_format.place + shift for shift in SHIFTS)
    formats = [f for place in places if (f := _placed(number_format, place)) is not None]
    samples = {part: [sampled(x) for x in data[CHOOSING + part]] for part in PARTS}
    return {part: max(formats, key=lambda f: sqnr_db(f, samples[part])) for part in PARTS}


def _placed(number_format: NumberFormat, place: int) -> NumberFormat | None:
    """The format at that place; None: its values are beyond float32."""
    try:
        return number_format.placed(place)
    except ValueError:  # beyond float32
        return None
