"""What the page of formats measures: facts of every format, and what it loses of real values."""

from dataclasses import fields
from typing import Any

import torch

from madl.formats import presets
from madl.formats.base import NumberFormat
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, format_errors
from madl.training.format_errors import PARTS, Tensors, best_shifted, sampled, sqnr_db

PLACED_BITS = 8  # up to which a format's place is chosen
QUANTILES = (0.05, 0.5, 0.95)


def run(params: Params, ctx: Context) -> Values:
    """Every preset, and where the values lie that it is measured on."""
    model = baseline.fine_tuned(params, ctx)
    data = format_errors.tensors(model, baseline.load_splits(params))
    return {
        "formats": {name: measured(preset, data) for name, preset in presets().items()},
        "magnitudes": magnitudes(data),
        **{f"num_{part}": sum(x.numel() for x in data[part]) for part in PARTS},
    }


def measured(preset: NumberFormat, data: Tensors) -> dict[str, Any]:
    """Facts, and signal to error: as it comes, and at the places that keep other data best."""
    found = described(preset) | losses(dict.fromkeys(PARTS, preset), data)
    placed = best_shifted(preset, data) if preset.bits <= PLACED_BITS else {}
    if placed:
        at = ", ".join(f"{part} {place(one)}" for part, one in placed.items())
        found["placed"] = {"at": at, **losses(placed, data)}
    return found


def described(number_format: Any) -> dict[str, Any]:
    """Facts of the format itself, from its constants."""
    values = number_format.values()
    constants = {field.name: getattr(number_format, field.name) for field in fields(number_format)}
    return {
        "kind": type(number_format).__name__,
        "bits": number_format.bits,
        "constants": ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in constants.items()
            if value is not None
        ),
        "range": number_format.range,
        "smallest": None if values is None else min(values[values > 0].tolist(), default=None),
    }


def losses(formats: dict[str, NumberFormat], data: Tensors) -> dict[str, float]:
    """Signal to error of weights and inputs."""
    return {f"{part}_db": sqnr_db(one, data[part]) for part, one in formats.items()}


def magnitudes(data: Tensors) -> dict[str, list[float]]:
    """Where the values of a part lie: quantiles of their magnitudes, each layer's mean."""
    at = torch.tensor(QUANTILES)
    return {
        part: torch.stack([sampled(x).abs().quantile(at) for x in data[part]]).mean(0).tolist()
        for part in PARTS
    }


def place(number_format: Any) -> str:
    """Where a format with a place has it."""
    if hasattr(number_format, "frac_width"):
        return f"frac width {number_format.frac_width}"
    return f"bias {number_format.effective_bias}"
