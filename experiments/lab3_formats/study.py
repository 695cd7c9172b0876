"""What a case of question 3.2 runs: models in number formats, placed, judged, searched, trained on.

A format is written `mxint4`, or `log(4)@8,3` where its values are placed: with a fraction width or
an exponent's bias of 8 for weights and biases and of 3 for inputs; the larger that is, the smaller
are the values. `@best` asks for the places of least validation loss. `fp32` leaves a layer alone.
A case names one for all layers, or one for each role of a layer, in the order of `precision.roles`.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from madl.compression.quantize import range_use
from madl.compression.roles import role
from madl.formats import presets
from madl.formats.base import NumberFormat
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, precision, search
from madl.training.precision import LayerFormat, Operands
from madl.training.train import train

COUNTED_SENTENCES = 16  # whose activations are counted
GAIN = 1e-4  # nats: a smaller difference moves no place
# Where a search for places starts: about the largest weight and input that the fixed point of as
# many bits holds where question 1.1 places it.
LARGEST = {4: (0.25, 2.0), 6: (0.5, 8.0), 8: (0.5, 16.0)}
OF_SEARCH = ("offered", "price", "sampler", "trials")

Places = tuple[int, int]  # of weights and biases, of inputs


def run(params: Params, ctx: Context) -> Values:
    """A case; on the tuning seed nothing meets the test split."""
    if params["draw"] != TUNING_SEED:
        model, found = built(written(params), params, ctx)
        return {**found, **baseline.judge_on_test(model, params, ctx.device)}
    match params["part"]:
        case "search":
            return searched(params, ctx)
        case "trained":
            chosen = searched(params, ctx)["mix"] if params["of"] == "mix" else rival(params, ctx)
            model, found = built(chosen, params, ctx)
            return {**found, **baseline.judge_on_validation(model, params, ctx.device)}
        case _:
            return single(written(params), params, ctx)


def written(params: Params) -> str:
    """What a case names."""
    at = params.get("at")
    return str(params.get("mix") or params["format"]) + (f"@{at}" if at else "")


def built(named: str, params: Params, ctx: Context) -> tuple[nn.Module, Values]:
    """The fine-tuned model with these formats, trained on (QAT) where there is a rate."""
    model = baseline.fine_tuned(params, ctx)
    bits = set_(model, named, params, ctx)
    if params.get("tune_learning_rate") is not None:
        count = params["tune_examples"]
        assert count is None or isinstance(count, int)
        recipe = baseline.training_recipe(params, prefix="tune_", epochs=1)
        train(model, baseline.load_splits(params).train.first(count), recipe, device=ctx.device)
    return model, {"formats": named, "bits": bits}


# ---- formats ------------------------------------------------------------------------------------


def set_(model: nn.Module, named: str, params: Params, ctx: Context) -> float:
    """Give every layer its format, one for all or one a kind; returns the bits of a weight."""
    layers = precision.layer_names(model)
    roles, known = precision.roles(layers), {w: read(w, params, ctx) for w in named.split()}
    each = named.split() * (len(roles) if " " not in named else 1)
    of = dict(zip(roles, each, strict=True))
    formats = {layer: known[of[role(layer)]] for layer in layers}
    precision.set_precision_(model, formats)
    return precision.mean_bits(model, formats)


def read(named: str, params: Params, ctx: Context) -> LayerFormat:
    """The format that is written so."""
    name, _, at = placed(named, params, ctx).partition("@")
    if name == "fp32":
        return None
    return moved(name, *map(int, at.split(","))) if at else presets()[name]


def moved(name: str, weights: int, inputs: int) -> Operands:
    """That preset with these places."""
    return Operands(weight=_at(presets()[name], weights), input=_at(presets()[name], inputs))


def _at(preset: Any, place: int) -> NumberFormat:
    return replace(preset, **{"frac_width" if hasattr(preset, "frac_width") else "bias": place})


# ---- places -------------------------------------------------------------------------------------


def placed(named: str, params: Params, ctx: Context) -> str:
    """With its places in numbers; found once, by the loss on all of validation."""
    name, _, at = named.partition("@")
    if at != "best":
        return named

    def find() -> Values:
        model = baseline.fine_tuned(params, ctx)

        def loss(at: Places) -> float:
            precision.set_precision_(model, precision.uniform(model, moved(name, *at)))
            return baseline.judge_on_validation(model, params, ctx.device)["validation_loss"]

        weights, inputs = descend(start(presets()[name]), loss)
        return {"places": f"{weights},{inputs}"}

    found = search.remembered(ctx, {"placed": name, **precision.of_experiment(params, ())}, find)
    return f"{name}@{found['places']}"


def start(preset: Any) -> Places:
    """Where its largest values are the nearest to `LARGEST`."""
    own = preset.frac_width if hasattr(preset, "frac_width") else preset.effective_bias
    weights, inputs = (round(math.log2(preset.range[1] / x)) for x in LARGEST[int(preset.bits)])
    return own + weights, own + inputs


def descend(start: Places, loss: Callable[[Places], float]) -> Places:
    """From one to the best of its eight neighbours, until none is better; each is judged once."""
    known = {start: loss(start)}
    best = start
    while True:
        for at in ((best[0] + i, best[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
            if at not in known:
                known[at] = loss(at)
        lowest = min(known, key=lambda at: known[at])
        if known[lowest] > known[best] - GAIN:
            return best
        best = lowest


# ---- on the tuning seed -------------------------------------------------------------------------


def single(named: str, params: Params, ctx: Context) -> Values:
    """All layers in one format, as quantized, on validation; of a placed one, as it comes, too.

    `weight_zeroed` is the share of the nonzero weights that become zero.
    """

    def look(named: str) -> Values:
        model = baseline.fine_tuned(params, ctx)
        bits = set_(model, named, params, ctx)
        found = baseline.judge_on_validation(model, params, ctx.device)
        probe = baseline.load_splits(params).validation.first(COUNTED_SENTENCES)
        shares = range_use(model, probe.batch(range(len(probe))))
        return {"bits": bits, **found, "weight_zeroed": shares["weight_zeroed"]}

    def make() -> Values:
        found = {"formats": placed(named, params, ctx)}
        found |= look(found["formats"])
        name, _, at = named.partition("@")
        return found | ({"as it comes": look(name)} if at else {})

    return search.remembered(ctx, {"single": named, **precision.of_experiment(params, ())}, make)


def searched(params: Params, ctx: Context) -> Values:
    """A study over what is offered to each kind of layer, as quantized, on all of validation.

    It begins with each format for all layers. A trial's score is its loss and the price of its
    bits; the best has the least, and the mix the least of those with several formats.
    """
    model = baseline.fine_tuned(params, ctx)
    roles, offered = precision.roles(precision.layer_names(model)), str(params["offered"]).split()
    space: search.Space = dict.fromkeys(roles, offered)

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        named = " ".join(placed(str(point[name]), params, ctx) for name in roles)
        bits = set_(model, named, params, ctx)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        score = judged["validation_loss"] + float(params["price"] or 0) * bits
        return -score, {"formats": named, "bits": bits, **judged}

    of = precision.of_experiment(params, OF_SEARCH)
    begin = [dict.fromkeys(roles, one) for one in offered]
    trials, best = search.of_case(ctx, of, space, objective, begin)
    mixes = [trial for trial in trials if len(set(trial.notes["formats"].split())) > 1]
    mix = max(mixes, key=lambda trial: trial.value).notes if mixes else {}
    return {
        "scores": [-trial.value for trial in trials],
        **{name: best.notes[name] for name in ("bits", "validation_loss", "validation_accuracy")},
        "mix": mix.get("formats"),
        "mix_bits": mix.get("bits"),
        "kinds": roles,
        "points": search.num_points(space),
        "startup": search.STARTUP_TRIALS,
    }


def rival(params: Params, ctx: Context) -> str:
    """The single format of the least score among those of no fewer bits than the mix."""
    singles = [single(one, params, ctx) for one in str(params["offered"]).split()]
    least = min(searched(params, ctx)["mix_bits"], max(one["bits"] for one in singles))
    fitting = [one for one in singles if one["bits"] >= least]
    best = min(fitting, key=lambda one: one["validation_loss"] + params["price"] * one["bits"])
    return str(best["formats"])
