"""Question 3.1's cases: models with a mix, searches for one, and layers measured one at a time.

On the tuning seed a mix is what a search or the sensitivities of layers choose; on others it is
written in the parameters, as `mixes` has it. Quantization draws nothing, so what is not trained on
is a function of checkpoint and mix.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from torch import nn

from experiments.lab3_widths import design, mixes
from madl.compression import allocation
from madl.compression.quantize import named_linears, set_module_
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Scalar, Values
from madl.training import baseline, precision, search
from madl.training.axes import Axes
from madl.training.data import Encoded
from madl.training.precision import LayerFormat, Operands
from madl.training.train import evaluate
from madl.training.trial import worth


def run(params: Params, ctx: Context) -> Values:
    """Run one case by its `part`; the tuning seed never meets the test split."""
    match params["part"]:
        case "search":
            trials = run_search(params, ctx)
            return {
                "tried": [trial.notes[str(params["by"])] for trial in trials],
                "num_at_random": sum(trial.at_random for trial in trials),
                "num_repaired": sum(trial.notes["is_repaired"] for trial in trials),
            }
        case "sensitivity":
            return sensitivities(params, ctx)
        case _:
            return judge_mix(params, ctx)


# ---- models -------------------------------------------------------------------------------------


def judge_mix(params: Params, ctx: Context) -> Values:
    """Judge a model with its mix, trained on (QAT) if the case's `part` is "trained"."""
    model, mix = baseline.fine_tuned(params, ctx), mix_of(params, ctx)
    values = {"formats": mix, "bits": set_mix_(model, mix)}
    if params["part"] == "trained":
        baseline.retrain_(model, params, ctx.device)
    if params["seed"] != TUNING_SEED:
        return {**values, **baseline.judge_on_test(model, params, ctx.device)}
    kept_back = evaluate(model, halves(params)[1], device=ctx.device)
    judged = baseline.judge_on_validation(model, params, ctx.device)
    return {**values, **judged, "kept_back_loss": kept_back.loss}


def mix_of(params: Params, ctx: Context) -> str:
    """The mix of a case: as written, or as a search or the sensitivities of layers choose it."""
    if "formats" in params:
        return str(params["formats"])
    if "sampler" in params:
        return chosen_of(run_search(params, ctx), params)
    return mixes_by_sensitivity(params, ctx)[str(params["mix"])]


def halves(params: Params) -> tuple[Encoded, Encoded]:
    """Validation in two: mixes within the budget are chosen by one, and held to each other by the
    other, on which a search has no advantage."""
    validation = baseline.load_splits(params).validation
    middle = len(validation) // 2
    return validation.first(middle), validation.subset(range(middle, len(validation)))


def set_mix_(model: nn.Module, mix: str) -> float:
    """Give each layer its format of a mix; returns the mean bits of a weight."""
    by_layer = mixes.by_layer(mix, precision.layer_names(model))
    formats = {layer: read_format(text) for layer, text in by_layer.items()}
    return precision.set_precision_(model, formats)


def read_format(text: str) -> LayerFormat:
    """Parse a format; None is full precision."""
    if text == design.FULL:
        return None
    width, weights, inputs = map(int, text.split())
    return Operands(
        weight=FixedPoint(width=width, frac_width=weights),
        input=FixedPoint(width=width, frac_width=inputs),
    )


def layer_sizes(model: nn.Module) -> dict[str, int]:
    """Layer → number of its weights, in the model's order."""
    return {name: layer.weight.numel() for name, layer in named_linears(model).items()}


# ---- a search -----------------------------------------------------------------------------------


def run_search(params: Params, ctx: Context) -> list[search.Trial]:
    """The trials of a case's search, which are run once, whichever case asks first.

    A mix over the budget is repaired, and the sampler is told what the repaired one is worth.
    """
    model = baseline.fine_tuned(params, ctx)
    sizes = layer_sizes(model)
    axes = axes_of(sizes, str(params["offered"]))

    def objective(point: search.Point) -> tuple[float, Mapping[str, Any]]:
        drawn = mixes.write(axes.options_at(point))
        mix = repaired(drawn, sizes, params)
        bits = set_mix_(model, mix)
        if "budget" in params:
            loss = evaluate(model, halves(params)[0], device=ctx.device).loss
            value, judged = -loss, {"validation_loss": loss}
        else:
            value, judged = worth(model, bits, params, ctx)
        return value, {"formats": mix, "bits": bits, "is_repaired": mix != drawn, **judged}

    own = {k: v for k, v in params.items() if k != "part" and not k.startswith("tune_")}
    begin = [axes.point(mixes.read(mix)) for mix in first_mixes(sizes, own, ctx)]
    return search.run_study(ctx, own, axes.space, objective, begin)[0]


def axes_of(layers: Iterable[str], offered: str) -> Axes:
    """For each layer a coin for full precision, a width, and a point by its place at that width."""
    options: dict[str, dict[str, Scalar]] = {}
    for text in mixes.read(offered):
        if text != design.FULL:
            width = mixes.width(text)
            place = sum(option["width"] == width for option in options.values())
            options[text] = {"width": width, "point": place}
    coin = design.FULL if design.FULL in mixes.read(offered) else None
    return Axes(parts=[*layers], options=options, coin=coin)


def repaired(mix: str, sizes: allocation.Sizes, params: Params) -> str:
    """The mix, narrowed until it is within the budget, if there is one; drawn by the mix alone.

    Raises:
        ValueError: the narrowest format for all layers is over the budget.
    """
    if "budget" not in params:
        return mix
    widths = {layer: mixes.width(text) for layer, text in mixes.by_layer(mix, [*sizes]).items()}
    rng, room = random.Random(mix), mixes.room(sizes, params["budget"])
    return mixes.of_widths(allocation.narrowed_at_random(widths, sizes, design.FORMATS, room, rng))


def first_mixes(sizes: allocation.Sizes, params: Params, ctx: Context) -> list[str]:
    """The mixes that a search begins with: one format for all, within a budget those by
    sensitivity, too.
    """
    if not params["begin"]:
        return []
    uniform = (mixes.write([text] * len(sizes)) for text in mixes.read(str(params["offered"])))
    first = [mix for mix in uniform if repaired(mix, sizes, params) == mix]
    if "budget" in params:
        first += mixes_by_sensitivity(params, ctx).values()
    return [*dict.fromkeys(first)]


def chosen_of(trials: Sequence[search.Trial], params: Params) -> str:
    """The best mix of a search; within a budget, the best that has several widths."""
    if "budget" in params:
        trials = [trial for trial in trials if mixes.is_mixed(trial.notes["formats"])]
    return str(max(trials, key=lambda trial: trial.value).notes["formats"])


# ---- one layer at a time ------------------------------------------------------------------------


def sensitivities(params: Params, ctx: Context) -> Values:
    """Each layer's weights, and how far it alone moves a loss; of one block, if the case says so.

    Made once: a search, a training and the page take the same ones.
    """

    def measure() -> Values:
        model = baseline.fine_tuned(params, ctx)
        sizes = layer_sizes(model)
        layers = [name for name in sizes if params.get("block") in (None, mixes.block(name))]
        moved = layer_moves(model, layers, params, ctx)
        return {
            "layers": [
                {"layer": layer, "weights": sizes[layer], "moved": moved[layer]} for layer in layers
            ]
        }

    return search.memoized(ctx, baseline.recipe(params, ("offered", "block")), measure)


def layer_moves(
    model: nn.Module, layers: Sequence[str], params: Params, ctx: Context
) -> dict[str, dict[str, float]]:
    """Layer → width → how far that layer alone at that width moves a sentence's loss, in nats.

    All others have the widest format, which is the last on offer. The distance is the mean of those
    up or down: in the mean itself they cancel, and a layer that ruins as many sentences as it mends
    would seem to do nothing.
    """
    *narrower, widest = mixes.read(str(params["offered"]))
    set_mix_(model, widest)
    plain = validation_losses(model, params, ctx)
    moved = {layer: {str(mixes.width(widest)): 0.0} for layer in layers}
    for layer, text in product(layers, narrower):
        before = precision.set_layer_(model, layer, read_format(text))
        losses = validation_losses(model, params, ctx)
        set_module_(model, layer, before)
        distances = (abs(loss - other) for loss, other in zip(losses, plain, strict=True))
        moved[layer][str(mixes.width(text))] = fmean(distances)
    return moved


def validation_losses(model: nn.Module, params: Params, ctx: Context) -> list[float]:
    """The loss of each sentence that mixes within the budget are chosen by."""
    return evaluate(model, halves(params)[0], device=ctx.device).losses


def mixes_by_sensitivity(params: Params, ctx: Context) -> dict[str, str]:
    """Name → mix within the budget, by how far each layer alone moves a loss.

    "ordered" makes narrow first what moves it least; "allocated" moves it least, added up.
    """
    layers = sensitivities(params, ctx)["layers"]
    sizes = {row["layer"]: row["weights"] for row in layers}
    costs = {
        row["layer"]: {int(width): nats for width, nats in row["moved"].items()} for row in layers
    }
    order = sorted(sizes, key=lambda layer: costs[layer][design.NARROW_BITS])
    widths = allocation.allocate(costs, sizes, mixes.room(sizes, params["budget"]))
    return {
        "ordered": mixes.by_order(sizes, order, params["budget"]),
        "allocated": mixes.of_widths(widths),
    }
