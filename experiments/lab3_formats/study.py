"""Question 3.2's cases: models in number formats, placed, judged and searched.

A case has a format for all layers, or one for each role of a layer, in the order of
`precision.roles`. To place a format is to choose its fraction widths or exponent biases.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from torch import nn

from experiments.lab3_formats.design import (
    BOTH,
    INPUT_BITS,
    LARGEST,
    LEAST_GAIN,
    PROBE_SENTENCES,
    WEIGHTS,
    WITH_BYTES,
)
from experiments.lab3_formats.placed import BEST, FP32, PlacedFormat
from madl.compression.quantize import range_use
from madl.compression.roles import role
from madl.formats.base import NumberFormat
from madl.formats.fixed import ScaledInteger
from madl.formats.presets import FORMATS
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, precision, search
from madl.training.axes import Axes
from madl.training.descent import Pair, around, descend
from madl.training.precision import LayerFormat, Operands
from madl.training.trial import worth


def run(params: Params, ctx: Context) -> Values:
    """Run one case; the tuning seed never meets the test split."""
    if params["seed"] == TUNING_SEED:
        if params["part"] == "search":
            return search_formats(params, ctx)
        if params["part"] == "trained":
            model = baseline.fine_tuned(params, ctx)
            return worth(model, precision.FULL_BITS, params, ctx)[1]
        return judge_single(PlacedFormat.of_params(params), params, ctx)
    model, formats = baseline.fine_tuned(params, ctx), case_formats(params)
    bits = set_formats_(model, formats, str(params.get("operands", BOTH)))
    judged = baseline.judge_on_test(model, params, ctx.device)
    return {"formats": write_mix(formats), "bits": bits, **judged}


def case_formats(params: Params) -> list[PlacedFormat]:
    """The formats of a case: its mix, one for each role of a layer, or the one for all layers."""
    return read_mix(str(params["mix"])) if "mix" in params else [PlacedFormat.of_params(params)]


def read_mix(text: str) -> list[PlacedFormat]:
    """Parse formats that spaces divide."""
    return [PlacedFormat.read(part) for part in text.split()]


def write_mix(formats: Sequence[PlacedFormat]) -> str:
    return " ".join(map(str, formats))


# ---- formats ------------------------------------------------------------------------------------


def set_formats_(model: nn.Module, formats: Sequence[PlacedFormat], operands: str = BOTH) -> float:
    """Give every layer its format, one for all or one a role; returns the mean bits of a weight."""
    layers = precision.layer_names(model)
    roles = precision.roles(layers)
    each = [layer_format(placed, operands) for placed in formats]
    by_role = dict(zip(roles, each * (len(roles) if len(each) == 1 else 1), strict=True))
    return precision.set_precision_(model, {layer: by_role[role(layer)] for layer in layers})


def layer_format(placed: PlacedFormat, operands: str = BOTH) -> LayerFormat:
    """The formats of a layer's weight and input, whose places are numbers; None for FP32.

    The bias stays in FP32.
    """
    if placed.name == FP32:
        return None
    weight = input_ = FORMATS[placed.name]
    if placed.places is not None:
        assert isinstance(placed.places, tuple), placed
        weight, input_ = (weight.placed(place) for place in placed.places)
    inputs = {WEIGHTS: None, WITH_BYTES: ScaledInteger(width=INPUT_BITS), BOTH: input_}
    return Operands(weight=weight, input=inputs[operands], full_bias=True)


# ---- places -------------------------------------------------------------------------------------


def with_places(placed: PlacedFormat, params: Params, ctx: Context) -> PlacedFormat:
    """The format with its places in numbers; "best" ones are searched by validation loss, once."""
    if placed.places != BEST:
        return placed
    name = placed.name

    def find() -> Values:
        model = baseline.fine_tuned(params, ctx)

        def loss(places: Pair) -> float:
            tried = layer_format(PlacedFormat(name, places))
            precision.set_precision_(model, precision.uniform(model, tried))
            return baseline.judge_on_validation(model, params, ctx.device)["validation_loss"]

        best = descend(first_places(FORMATS[name]), around, loss, least_gain=LEAST_GAIN)
        return {"places": PlacedFormat(name, best).at}

    key = {"placed": name, **baseline.recipe(params)}
    return PlacedFormat.read(f"{name}@{search.memoized(ctx, key, find)['places']}")


def first_places(preset: NumberFormat) -> Pair:
    """The places that bring the largest values nearest to `LARGEST`; a search starts there."""
    assert preset.place is not None
    assert preset.range is not None
    largest = preset.range[1]
    weights, inputs = (round(math.log2(largest / x)) for x in LARGEST[int(preset.bits)])
    return preset.place + weights, preset.place + inputs


# ---- on the tuning seed -------------------------------------------------------------------------


def judge_single(placed: PlacedFormat, params: Params, ctx: Context) -> Values:
    """Judge one format on all layers on validation, as quantized; a placed one unplaced, too.

    `weight_zeroed` is the share of the nonzero weights that become zero.
    """

    def judge(placed: PlacedFormat) -> Values:
        model = baseline.fine_tuned(params, ctx)
        bits = set_formats_(model, [placed])
        judged = baseline.judge_on_validation(model, params, ctx.device)
        probe = baseline.load_splits(params).validation.first(PROBE_SENTENCES)
        shares = range_use(model.cpu(), probe.batch(range(len(probe))))
        return {"bits": bits, **judged, "weight_zeroed": shares["weight_zeroed"]}

    numbers = with_places(placed, params, ctx)
    as_it_comes = {"as it comes": judge(PlacedFormat(placed.name))} if placed.places else {}
    return {"formats": str(numbers), **judge(numbers), **as_it_comes}


def search_formats(params: Params, ctx: Context) -> Values:
    """Search a format for each role of a layer, by what a trial is `worth`.

    If `begin` says so, it begins with each format for all layers; if `coin` says so, each kind of
    layer may stay in FP32 as often as not. Each study has draws of its own. Returns what each trial
    was worth (None: over the budget), and the formats, bits and judgement of the best, and of the
    best within the budget that has several formats (`mix`) where there is one.
    """
    model = baseline.fine_tuned(params, ctx)
    roles, offered = precision.roles(precision.layer_names(model)), str(params["offered"]).split()
    options = {text: {"format": text} for text in offered}
    axes = Axes(parts=roles, options=options, coin=FP32 if params.get("coin") else None)

    def objective(point: search.Point) -> tuple[float, Mapping[str, Any]]:
        offers = map(PlacedFormat.read, axes.options_at(point))
        formats = [with_places(offer, params, ctx) for offer in offers]
        bits = set_formats_(model, formats)
        value, judged = worth(model, bits, params, ctx)
        return value, {"formats": write_mix(formats), "bits": bits, **judged}

    single = [axes.point([text] * len(roles)) for text in offered] if params.get("begin") else []
    own_draws = {**params, "seed": crc32(str(params["study"]).encode())}
    trials, best = search.run_study(ctx, own_draws, axes.space, objective, single)
    judged = [trial for trial in trials if str(params["by"]) in trial.notes]
    mixes = [trial for trial in judged if len(set(trial.notes["formats"].split())) > 1]
    return {
        "roles": roles,
        "tried": [trial.notes.get(str(params["by"])) for trial in trials],
        "best": best.notes,
        "mix": max(mixes, key=lambda trial: trial.value).notes if mixes else None,
        "num_at_random": sum(trial.at_random for trial in trials),
    }
