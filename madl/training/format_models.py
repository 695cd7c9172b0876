"""What a case of question 3.2 does: models in number formats, trained on, judged and searched.

Every model is trained on from the fine-tuned one, on the same sentences in the same order, with the
same few steps; the FP32 control too. A search trains once, in another random point of its space at
every step, and judges all its trials with the weights that this gives.

Source: one training for all points of a space, of bit widths among others, Guo et al. 2020,
"Single path one-shot neural architecture search with uniform sampling", ECCV.
"""

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

from torch import nn

from madl.compression.quantize import range_use
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, families, precision, search
from madl.training.data import Encoded
from madl.training.precision import LayerFormat, Precision

COUNTED_SENTENCES = 16  # whose activations a format is counted on


def judged(model: nn.Module, params: Params, ctx: Context) -> Values:
    """The model of a case that names a format, or the control: trained on, and judged."""
    if params["part"] == "control":
        return trained(model, precision.uniform(model, None), params, ctx)
    layer_format, positions = format_of(model, str(params["format"]), params, ctx)
    return positions | trained(model, precision.uniform(model, layer_format), params, ctx)


def trained(model: nn.Module, formats: Precision, params: Params, ctx: Context) -> dict[str, Any]:
    """A copy in that precision, trained on and judged."""
    tuned = precision.trained_on(model, formats, _tuning(params), params, ctx.device)
    bits = precision.mean_bits(model, formats)
    return {**baseline.judge(tuned, params, ctx.device), "bits": bits}


def untrained(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Each format of the case's class right after quantization, on validation; the best on test."""
    found: dict[str, dict[str, Any]] = {}
    formats: dict[str, Precision] = {}
    low, high = families.CLASSES[int(params["most_bits"] or 0)]
    for name in families.EVERY:
        if families.has_scale(name) is not params["scale"]:
            continue
        if not low < families.bits_of(name) <= high:
            continue
        layer_format, positions = format_of(model, name, params, ctx)
        formats[name] = precision.uniform(model, layer_format)
        precision.set_precision_(model, formats[name])
        shares = range_use(model, _tuning(params).batch(range(COUNTED_SENTENCES)))
        made = baseline.judge_on_validation(model, params, ctx.device)
        found[name] = {**positions, **made, "weight_zeroed": shares["weight_zeroed"]}
    best = max(found, key=lambda n: (found[n]["validation_accuracy"], -found[n]["validation_loss"]))
    precision.set_precision_(model, formats[best])
    judged = baseline.judge_on_test(model, params, ctx.device)
    bits = precision.mean_bits(model, formats[best])
    return {"format": best, "bits": bits, "tried": found, **found[best], **judged}


def format_of(
    model: nn.Module, name: str, params: Params, ctx: Context
) -> tuple[LayerFormat, dict[str, int]]:
    """What all layers take under that name; of a moved format, the positions too.

    They are those of its pairs, for weights and inputs, with the least validation loss.
    """
    if name not in families.MOVED:
        return families.named(name), {}
    losses: dict[tuple[int, int], float] = {}
    for pair in product(*families.positions(name)):
        formats = precision.uniform(model, families.moved(name, *pair))
        losses[pair] = precision.judge(model, formats, _probe(params), ctx.device).loss
    weights, inputs = min(losses, key=lambda pair: losses[pair])
    found = {"weights_at": weights, "inputs_at": inputs}
    return families.moved(name, weights, inputs), found


def searched(model: nn.Module, params: Params, ctx: Context) -> Values:
    """A format or FP32 for each kind of layer; the combined search's choice is trained on too."""
    layers, choices = precision.layer_names(model), families.space(params.get("family"))
    space = dict.fromkeys(precision.kinds(layers), choices)
    known = {name: format_of(model, name, params, ctx)[0] for name in choices}

    def formats(point: Mapping[str, Any]) -> dict[str, LayerFormat]:
        return {layer: known[point[precision.kind(layer)]] for layer in layers}

    def drawn(step: int) -> Precision:
        return formats(random_point(space, f"{params['seed']} {step}"))

    shared = precision.trained_between(model, drawn, _tuning(params), params, ctx.device)

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        accuracy = precision.judge(shared, formats(point), _probe(params), ctx.device).accuracy
        bits = precision.mean_bits(model, formats(point))
        notes = {"validation": accuracy, "bits": bits, "choices": dict(point)}
        return accuracy - float(params["price"] or 0) * bits, notes

    trials, best = search.of_case(ctx, params, space, objective)
    found = {
        "trials": [{"score": trial.value, **trial.notes} for trial in trials],
        "best": {"score": best.value, **best.notes},
        "nothing": objective(dict.fromkeys(space, families.FP32))[0],
        "startup": search.STARTUP_TRIALS,
        "points": search.num_points(space),
        "kinds": list(space),
    }
    if params["part"] == "family":
        return found
    return {**found, **trained(model, formats(best.point), params, ctx)}


def random_point(space: search.Space, seed: str) -> dict[str, Any]:
    """A point of the space, the same for the same seed."""
    draw = random.Random(seed)
    return {name: draw.choice(values) for name, values in space.items()}


def _tuning(params: Params) -> Encoded:
    return baseline.load_splits(params).train.first(int(params["tune_examples"] or 0))


def _probe(params: Params) -> Encoded:
    """The validation sentences that trials and positions are chosen by."""
    return baseline.load_splits(params).validation.first(int(params["probe_examples"] or 0))
