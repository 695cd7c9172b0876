"""Facts of every number format, its errors on real weights and inputs, and other libraries'."""

from dataclasses import fields
from typing import Any

import torch

from experiments.formats.agreement import agreement
from experiments.formats.design import PLACED_BITS, QUANTILES
from madl.formats.base import NumberFormat
from madl.formats.presets import FORMATS
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, format_errors
from madl.training.format_errors import PARTS, Tensors, best_shifted, sampled, sqnr_db


def run(params: Params, ctx: Context) -> Values:
    """Run one case: all presets on real values, or a library beside us."""
    if params["part"] == "agreement":
        return agreement(params)
    model = baseline.fine_tuned(params, ctx)
    data = format_errors.tensors(model, baseline.load_splits(params))
    return {
        "formats": {name: measure_format(preset, data) for name, preset in FORMATS.items()},
        "magnitudes": magnitude_quantiles(data),
        **{f"num_{part}": sum(x.numel() for x in data[part]) for part in PARTS},
    }


def measure_format(preset: NumberFormat, data: Tensors) -> dict[str, Any]:
    """A format's facts, and its signal to error on weights and inputs.

    A narrow format that can be placed is measured again (`placed`), with the fraction width or
    exponent bias that keeps other data of the same kind best.
    """
    facts = format_facts(preset) | signal_to_error(dict.fromkeys(PARTS, preset), data)
    placed = best_shifted(preset, data) if preset.bits <= PLACED_BITS else {}
    if placed:
        places = ", ".join(f"{part} {place_text(shifted)}" for part, shifted in placed.items())
        facts["placed"] = {"at": places, **signal_to_error(placed, data)}
    return facts


def format_facts(number_format: Any) -> dict[str, Any]:
    """A format's kind, bits, constants in words, range and smallest positive value."""
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


def signal_to_error(formats: dict[str, NumberFormat], data: Tensors) -> dict[str, float]:
    """Signal to error in dB of weights and inputs in their formats: `weights_db`, `inputs_db`."""
    return {f"{part}_db": sqnr_db(formats[part], data[part]) for part in formats}


def magnitude_quantiles(data: Tensors) -> dict[str, list[float]]:
    """Part → `QUANTILES` of the magnitudes of weights or of inputs, means over the layers."""
    shares = torch.tensor(QUANTILES)
    return {
        part: torch.stack([sampled(x).abs().quantile(shares) for x in data[part]]).mean(0).tolist()
        for part in PARTS
    }


def place_text(number_format: NumberFormat) -> str:
    """A format's fraction width or exponent bias in words: "frac width 4"."""
    return f"{number_format.place_field.replace('_', ' ')} {number_format.place}"
