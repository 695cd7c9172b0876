"""Question 3.1's cases: a search over layers, one narrow layer at a time, and models with a mix.

A mix gives each Linear layer one of a few formats. It is written as digits, one for each layer in
the model's order, which index `formats`: "6 6 2, 4 5 2" are two formats, each its width and how
many bits lie after the point of weight (and bias) and of input. Quantization draws nothing, so what
is not trained on is a function of checkpoint and mix.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import nn

from madl.compression.quantize import set_module_
from madl.compression.roles import block
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, precision, search
from madl.training.precision import Operands
from madl.training.train import evaluate

OVER_BUDGET = -100.0  # value of a trial that is not evaluated, less its bits: below any loss's
WIDE, NARROW = "0", "1"  # digits of the formats between which an order decides


def run(params: Params, ctx: Context) -> Values:
    """Run one case by its `part`; the tuning seed never meets the test split."""
    match params["part"]:
        case "search":
            return search_mix(baseline.fine_tuned(params, ctx), params, ctx)
        case "one format":
            return judge_single_formats(baseline.fine_tuned(params, ctx), params, ctx)
        case "sensitivity" if params["seed"] == TUNING_SEED:
            return mix_by_sensitivity(params, ctx)
        case "sensitivity":
            return repeat_sensitivity(baseline.fine_tuned(params, ctx), params, ctx)
        case _:
            return judge_mix(params, ctx)


# ---- mixes --------------------------------------------------------------------------------------


def offered_formats(params: Params) -> list[Operands]:
    """The formats that the text in the parameter `formats` offers a layer."""
    texts = str(params["formats"]).split(", ")
    return [
        Operands(
            weight=FixedPoint(width=width, frac_width=weights),
            input=FixedPoint(width=width, frac_width=inputs),
        )
        for width, weights, inputs in (map(int, text.split()) for text in texts)
    ]


def set_mix_(model: nn.Module, digits: str, params: Params) -> float:
    """Give each layer the format of its digit; returns the mean bits of a weight.

    Raises:
        ValueError: another number of digits than of layers.
    """
    offered, layers = offered_formats(params), precision.layer_names(model)
    mix = {layer: offered[int(digit)] for layer, digit in zip(layers, digits, strict=True)}
    precision.set_precision_(model, mix)
    return precision.mean_bits(model, mix)


def uniform_digits(model: nn.Module, digit: str = WIDE) -> str:
    """The digits of a mix that has one format for all layers."""
    return digit * len(precision.layer_names(model))


def narrow_(model: nn.Module, order: Sequence[str], params: Params) -> str:
    """Make layers narrow in this order until the budget holds; returns the digits of the mix."""
    layers = precision.layer_names(model)
    for count in range(len(order) + 1):
        digits = "".join(NARROW if layer in order[:count] else WIDE for layer in layers)
        if set_mix_(model, digits, params) <= float(params["budget"] or 0):
            return digits
    raise AssertionError(f"the narrow format of {params['formats']} is over the budget")


# ---- on the tuning seed -------------------------------------------------------------------------


def search_mix(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Search a mix, one format for each layer, of the least validation loss within a size.

    A mix of more bits than `params` allow is not evaluated: the more bits, the worse its value.
    Returns the chosen mix, its bits and losses, and all trials.
    """
    offered, layers = offered_formats(params), precision.layer_names(model)
    widths = list(dict.fromkeys(operands.bits for operands in offered))
    num_points = len(offered) // len(widths)  # of places of the point at each width
    axes = {"width": range(len(widths)), "point": range(num_points)}
    space = {
        f"{layer} {axis}": [*indices]
        for layer in layers
        for axis, indices in axes.items()
        if len(indices) > 1
    }

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        indices = (
            point[f"{layer} width"] * num_points + point.get(f"{layer} point", 0)
            for layer in layers
        )
        digits = "".join(map(str, indices))
        bits = set_mix_(model, digits, params)
        if params.get("budget") is not None and bits > float(params["budget"] or 0):
            return OVER_BUDGET - bits, {"layers": digits, "bits": bits}
        judged = baseline.judge_on_validation(model, params, ctx.device)
        return -judged["validation_loss"], {"layers": digits, "bits": bits, **judged}

    trials, best = search.run_study(ctx, params, space, objective)
    digits = str(best.notes["layers"])
    bits = set_mix_(model, digits, params)
    return {
        "names": layers,
        "layers": digits,
        "bits": bits,
        **baseline.judge_on_validation(model, params, ctx.device),
        "tried": [trial.notes.get("validation_loss") for trial in trials],  # None: over the budget
        "settings": {"startup_trials": search.STARTUP_TRIALS},
    }


def judge_single_formats(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Validation loss of each format that is offered, on all layers."""
    tried: list[Values] = []
    for digit, text in enumerate(str(params["formats"]).split(", ")):
        set_mix_(model, uniform_digits(model, str(digit)), params)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        tried.append({"format": text, **judged})
    return {"tried": tried}


def mix_by_sensitivity(params: Params, ctx: Context) -> Values:
    """How far each single narrow layer moves a loss; a mix in which those that do least are narrow.

    Made once: a training that tries rates takes the same mix.
    """

    def make() -> Values:
        model = baseline.fine_tuned(params, ctx)
        moved = dict(layer_sensitivities(model, precision.layer_names(model), params, ctx))
        digits = narrow_(model, sorted(moved, key=lambda layer: moved[layer]), params)
        bits = set_mix_(model, digits, params)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        return {"names": [*moved], "moved": moved, "layers": digits, "bits": bits, **judged}

    names = ("validation_examples", "formats", "budget")
    return search.memoized(ctx, baseline.recipe(params, names), make)


# ---- one layer at a time ------------------------------------------------------------------------


def layer_sensitivities(
    model: nn.Module, layers: Sequence[str], params: Params, ctx: Context
) -> Iterator[tuple[str, float]]:
    """Yield (layer, how far a validation sentence's loss moves if that layer alone is narrow).

    The mean distance, up or down: in the mean itself they cancel, and a layer that ruins as many
    sentences as it mends would seem to do nothing.
    """
    data, (_, narrow) = baseline.load_splits(params).validation, offered_formats(params)
    set_mix_(model, uniform_digits(model), params)
    plain = evaluate(model, data, device=ctx.device).losses
    for layer in layers:
        before = precision.set_layer_(model, layer, narrow)
        losses = evaluate(model, data, device=ctx.device).losses
        set_module_(model, layer, before)
        yield layer, fmean(abs(a - b) for a, b in zip(losses, plain, strict=True))


def repeat_sensitivity(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Sensitivities of a block's layers, or of the head's, on a seed by which nothing is chosen."""
    number = None if params["block"] == "head" else int(params["block"] or 0)
    layers = [layer for layer in precision.layer_names(model) if block(layer) == number]
    moved = dict(layer_sensitivities(model, layers, params, ctx))  # leaves all layers wide
    return {"moved": moved, **baseline.judge_on_test(model, params, ctx.device)}


# ---- models -------------------------------------------------------------------------------------


def judge_mix(params: Params, ctx: Context) -> Values:
    """Judge a model with its mix, trained on (QAT) if the case's `part` is "trained"."""
    model = baseline.fine_tuned(params, ctx)
    bits = set_mix_(model, mix_digits(model, params, ctx), params)
    if params["part"] == "trained":
        baseline.retrain_(model, params, ctx.device)
    is_tuning = params["seed"] == TUNING_SEED
    judge = baseline.judge_on_validation if is_tuning else baseline.judge_on_test
    return {"bits": bits, **judge(model, params, ctx.device)}


def mix_digits(model: nn.Module, params: Params, ctx: Context) -> str:
    """The digits of a case's mix: as written, by a random order, by sensitivity, or all wide."""
    if params.get("layers"):
        return str(params["layers"])
    if params.get("order") is not None:
        layers, seed = precision.layer_names(model), f"{params['seed']} {params['order']}"
        return narrow_(model, random.Random(seed).sample(layers, len(layers)), params)
    if params.get("budget") is not None:
        return str(mix_by_sensitivity(params, ctx)["layers"])
    return uniform_digits(model)
