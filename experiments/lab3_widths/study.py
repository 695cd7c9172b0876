"""What a case runs: a search over layers, one layer at a time, models with formats of their own.

A mix gives each Linear layer one of a few formats. It is written as digits, a layer each in the
model's order, which count in `formats`: "6 6 2, 4 5 2" are two formats, each its width and how many
bits lie after the point of weight (and bias) and of input. Quantization draws nothing, so what is
not trained on is a function of checkpoint and mix.

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
from madl.training.train import evaluate, train

OVER_BUDGET = -100.0  # what a trial is worth that is not evaluated: less than any loss, less bits
WIDE, NARROW = "0", "1"  # the formats between which an order decides


def run(params: Params, ctx: Context) -> Values:
    """A case; on the tuning seed nothing meets the test split."""
    match params["part"]:
        case "search":
            return searched(baseline.fine_tuned(params, ctx), params, ctx)
        case "one format":
            return everywhere(baseline.fine_tuned(params, ctx), params, ctx)
        case "sensitivity" if params["draw"] == TUNING_SEED:
            return ordered(params, ctx)
        case "sensitivity":
            return repeated(baseline.fine_tuned(params, ctx), params, ctx)
        case _:
            return built(params, ctx)


# ---- mixes --------------------------------------------------------------------------------------


def formats(params: Params) -> list[Operands]:
    """What `formats` offers a layer."""
    every = (map(int, one.split()) for one in str(params["formats"]).split(", "))
    return [
        Operands(
            weight=FixedPoint(width=width, frac_width=weights),
            input=FixedPoint(width=width, frac_width=inputs),
        )
        for width, weights, inputs in every
    ]


def mix_(model: nn.Module, digits: str, params: Params) -> float:
    """Give each layer its format; returns the bits of a weight.

    Raises:
        ValueError: another number of digits than of layers.
    """
    offered, layers = formats(params), precision.layer_names(model)
    mixed = {layer: offered[int(digit)] for layer, digit in zip(layers, digits, strict=True)}
    precision.set_precision_(model, mixed)
    return precision.mean_bits(model, mixed)


def of_one_format(model: nn.Module, digit: str = WIDE) -> str:
    """The digits of a mix that is none."""
    return digit * len(precision.layer_names(model))


def narrowed(model: nn.Module, order: Sequence[str], params: Params) -> str:
    """As many layers become narrow, the first of the order first, as the budget asks for.

    Leaves the model with these formats.
    """
    layers = precision.layer_names(model)
    for count in range(len(order) + 1):
        digits = "".join(NARROW if layer in order[:count] else WIDE for layer in layers)
        if mix_(model, digits, params) <= float(params["budget"] or 0):
            return digits
    raise AssertionError(f"the narrow format of {params['formats']} is over the budget")


# ---- on the tuning seed -------------------------------------------------------------------------


def searched(model: nn.Module, params: Params, ctx: Context) -> Values:
    """A study over all layers at once; a trial is judged on all of validation.

    One that is over the budget is not evaluated, and is told by how much. What is chosen is the
    mix of the least loss.
    """
    offered, layers = formats(params), precision.layer_names(model)
    widths = list(dict.fromkeys(one.bits for one in offered))
    points = len(offered) // len(widths)  # on offer at each width
    axes = {"width": range(len(widths)), "point": range(points)}
    space = {f"{layer} {axis}": [*of] for layer in layers for axis, of in axes.items() if of[1:]}

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        at = [point[f"{x} width"] * points + point.get(f"{x} point", 0) for x in layers]
        digits = "".join(map(str, at))
        bits = mix_(model, digits, params)
        if params.get("budget") is not None and bits > float(params["budget"] or 0):
            return OVER_BUDGET - bits, {"layers": digits, "bits": bits}
        judged = baseline.judge_on_validation(model, params, ctx.device)
        return -judged["validation_loss"], {"layers": digits, "bits": bits, **judged}

    study = search.search(
        search.study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
    )
    best = str(max(study, key=lambda one: one.value).notes["layers"])
    bits = mix_(model, best, params)
    return {
        "names": layers,
        "layers": best,
        "bits": bits,
        **baseline.judge_on_validation(model, params, ctx.device),
        "tried": [one.notes.get("validation_loss") for one in study],  # None: over the budget
        "settings": search.settings(str(params["sampler"])),
    }


def everywhere(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Validation loss of each format that is offered, on all layers."""
    found: list[Values] = []
    for digit, one in enumerate(str(params["formats"]).split(", ")):
        mix_(model, of_one_format(model, str(digit)), params)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        found.append({"format": one, **judged})
    return {"tried": found}


def ordered(params: Params, ctx: Context) -> Values:
    """How far each layer moves a loss, and the mix in which those that move it least are narrow.

    Made once: a training that tries rates takes the same mix.
    """

    def make() -> Values:
        model = baseline.fine_tuned(params, ctx)
        moved = dict(one_at_a_time(model, precision.layer_names(model), params, ctx))
        digits = narrowed(model, sorted(moved, key=lambda layer: moved[layer]), params)
        bits = mix_(model, digits, params)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        return {"names": [*moved], "moved": moved, "layers": digits, "bits": bits, **judged}

    named = ("validation_examples", "formats", "budget")
    return search.remembered(ctx, precision.of_experiment(params, named), make)


# ---- one layer at a time ------------------------------------------------------------------------


def one_at_a_time(
    model: nn.Module, layers: Sequence[str], params: Params, ctx: Context
) -> Iterator[tuple[str, float]]:
    """All layers wide and one of them narrow: how far that moves a validation sentence's loss.

    The mean distance, up or down: in the mean itself they cancel, and a layer that ruins as many
    sentences as it mends would seem to do nothing.
    """
    data, (_, narrow) = baseline.load_splits(params).validation, formats(params)
    mix_(model, of_one_format(model), params)
    plain = evaluate(model, data, device=ctx.device).losses
    for layer in layers:
        before = precision.set_layer_(model, layer, narrow)
        losses = evaluate(model, data, device=ctx.device).losses
        set_module_(model, layer, before)
        yield layer, fmean(abs(a - b) for a, b in zip(losses, plain, strict=True))


def repeated(model: nn.Module, params: Params, ctx: Context) -> Values:
    """The same of a block's layers, or of the head's, on another seed; nothing is chosen by it."""
    number = None if params["block"] == "head" else int(params["block"] or 0)
    layers = [layer for layer in precision.layer_names(model) if block(layer) == number]
    moved = dict(one_at_a_time(model, layers, params, ctx))  # leaves all layers wide
    return {"moved": moved, **baseline.judge_on_test(model, params, ctx.device)}


# ---- models -------------------------------------------------------------------------------------


def built(params: Params, ctx: Context) -> Values:
    """A model with its formats, trained on (QAT) where there is a rate."""
    model = baseline.fine_tuned(params, ctx)
    bits = mix_(model, digits_of(model, params, ctx), params)
    if params["part"] == "trained":
        count = params["tune_examples"]
        assert count is None or isinstance(count, int)
        recipe = baseline.training_recipe(params, prefix="tune_", epochs=1)
        train(model, baseline.load_splits(params).train.first(count), recipe, device=ctx.device)
    tuning = params["draw"] == TUNING_SEED
    judge = baseline.judge_on_validation if tuning else baseline.judge_on_test
    return {"bits": bits, **judge(model, params, ctx.device)}


def digits_of(model: nn.Module, params: Params, ctx: Context) -> str:
    """As written; or by an order: one that is drawn, or that of sensitivity."""
    if params.get("layers"):
        return str(params["layers"])
    if params.get("order") is not None:
        layers, order = precision.layer_names(model), f"{params['seed']} {params['order']}"
        return narrowed(model, random.Random(order).sample(layers, len(layers)), params)
    if params.get("budget") is not None:
        return str(ordered(params, ctx)["layers"])
    return of_one_format(model)
