"""What the page of formats measures: facts of every format, and what it loses of real values."""

import re
from dataclasses import fields
from typing import Any

import torch

from madl.formats import presets
from madl.formats.base import NumberFormat
from madl.training.format_errors import PARTS, Tensors, best_shifted, sampled, sqnr_db

LISTED_BITS = 8  # up to which a format's values are kept, and positions are tried
QUANTILES = (0.05, 0.5, 0.95)


def measured(data: Tensors) -> dict[str, dict[str, Any]]:
    """Every preset, and every one that has a position at the best ones: facts, signal to error."""
    found: dict[str, dict[str, Any]] = {}
    for name, preset in presets().items():
        found[name] = described(preset) | losses(preset, data)
        moved = best_shifted(preset, data) if preset.bits <= LISTED_BITS else {}
        if not moved:
            continue
        made = described(preset) | {"values": None, "range": None, "smallest": None}
        for part, best in moved.items():
            of = losses(best, data)
            made |= {key: value for key, value in of.items() if part in key}
        made["constants"] = ", ".join(f"{part} {placed(best)}" for part, best in moved.items())
        made["moved"] = {best.name: described(best)["values"] for best in moved.values()}
        # a fraction width is a fixed-point format's only position, and part of its name
        found[re.sub(r"(fixed.*),.*", r"\1)", name) + " moved"] = made
    return found


def described(number_format: Any) -> dict[str, Any]:
    """Facts of the format itself, from its constants, and its values where they are few."""
    values = number_format.values()
    positive = [] if values is None else values[values > 0].tolist()
    constants = {field.name: getattr(number_format, field.name) for field in fields(number_format)}
    return {
        "family": type(number_format).__module__.rpartition(".")[2],
        "kind": type(number_format).__name__,
        "bits": number_format.bits,
        "constants": ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in constants.items()
            if value is not None
        ),
        "is_scaled": number_format.range is None,
        "range": number_format.range,
        "smallest": min(positive, default=None),
        "values": positive if number_format.bits <= LISTED_BITS else None,
    }


def losses(number_format: NumberFormat, data: Tensors) -> dict[str, float]:
    """Signal to error of every part."""
    return {f"{part}_db": sqnr_db(number_format, found) for part, found in data.items()}


def magnitudes(data: Tensors) -> dict[str, list[float]]:
    """Where the values of a part lie: quantiles of their magnitudes, each layer's mean."""
    at = torch.tensor(QUANTILES)
    return {
        part: torch.stack([sampled(x).abs().quantile(at) for x in data[part]]).mean(0).tolist()
        for part in PARTS
    }


def placed(number_format: Any) -> str:
    """Where a format with a position has it."""
    if hasattr(number_format, "frac_width"):
        return f"frac width {number_format.frac_width}"
    return f"bias {number_format.effective_bias}"
