"""Question 3.2's cases: models in number formats, placed, judged, searched and trained on.

A case has a format for all layers, or one for each role of a layer, in the order of
`precision.roles`. To place a format is to choose its fraction widths or exponent biases.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from experiments.lab3_formats.design import LARGEST, LEAST_GAIN, PROBE_SENTENCES
from experiments.lab3_formats.placed import BEST, FP32, PlacedFormat
from madl.compression.quantize import range_use
from madl.compression.roles import role
from madl.formats.base import NumberFormat
from madl.formats.presets import FORMATS
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, precision, search
from madl.training.descent import Pair, around, descend
from madl.training.precision import LayerFormat, Operands

STUDY_FIELDS = ("offered", "price", "sampler", "trials")


def run(params: Params, ctx: Context) -> Values:
    """Run one case by its `part`; the tuning seed never meets the test split."""
    if params["seed"] != TUNING_SEED:
        model, values = build(case_formats(params), params, ctx)
        return {**values, **baseline.judge_on_test(model, params, ctx.device)}
    match params["part"]:
        case "search":
            return search_formats(params, ctx)
        case "trained":
            is_mix = params["of"] == "mix"
            text = search_formats(params, ctx)["mix"] if is_mix else rival_format(params, ctx)
            model, values = build(read_mix(text), params, ctx)
            return {**values, **baseline.judge_on_validation(model, params, ctx.device)}
        case _:
            return judge_single(PlacedFormat.of_params(params), params, ctx)


def case_formats(params: Params) -> list[PlacedFormat]:
    """The formats of a case: its mix, one for each role of a layer, or the one for all layers."""
    return read_mix(params["mix"]) if "mix" in params else [PlacedFormat.of_params(params)]


def read_mix(text: str) -> list[PlacedFormat]:
    """Parse formats that spaces divide."""
    return [PlacedFormat.read(part) for part in text.split()]


def write_mix(formats: Sequence[PlacedFormat]) -> str:
    return " ".join(map(str, formats))


def build(
    formats: Sequence[PlacedFormat], params: Params, ctx: Context
) -> tuple[nn.Module, Values]:
    """The fine-tuned model with these formats, trained on (QAT) where there is a rate.

    Returns it with the text of its formats and its bits a weight.
    """
    model = baseline.fine_tuned(params, ctx)
    bits = set_formats_(model, formats)
    if params.get("tune_learning_rate") is not None:
        baseline.retrain_(model, params, ctx.device)
    return model, {"formats": write_mix(formats), "bits": bits}


# ---- formats ------------------------------------------------------------------------------------


def set_formats_(model: nn.Module, formats: Sequence[PlacedFormat]) -> float:
    """Give every layer its format, one for all or one a role; returns the mean bits of a weight."""
    layers = precision.layer_names(model)
    roles = precision.roles(layers)
    each = [layer_format(placed) for placed in formats]
    by_role = dict(zip(roles, each * (len(roles) if len(each) == 1 else 1), strict=True))
    by_layer = {layer: by_role[role(layer)] for layer in layers}
    precision.set_precision_(model, by_layer)
    return precision.mean_bits(model, by_layer)


def layer_format(placed: PlacedFormat) -> LayerFormat:
    """The formats of a layer's weight and input, whose places are numbers; None for FP32."""
    if placed.name == FP32:
        return None
    preset = FORMATS[placed.name]
    if placed.places is None:
        return preset
    assert isinstance(placed.places, tuple), placed
    weights, inputs = placed.places
    return Operands(weight=preset.placed(weights), input=preset.placed(inputs))


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
        shares = range_use(model, probe.batch(range(len(probe))))
        return {"bits": bits, **judged, "weight_zeroed": shares["weight_zeroed"]}

    def judge_states() -> Values:
        numbers = with_places(placed, params, ctx)
        as_it_comes = {"as it comes": judge(PlacedFormat(placed.name))} if placed.places else {}
        return {"formats": str(numbers), **judge(numbers), **as_it_comes}

    key = {"single": str(placed), **baseline.recipe(params)}
    return search.memoized(ctx, key, judge_states)


def search_formats(params: Params, ctx: Context) -> Values:
    """Search a format for each role of a layer, as quantized, by validation.

    It begins with each format for all layers. A trial's score is its loss and the price of its
    bits; the best has the least, and the mix the least of those with several formats.
    """
    model = baseline.fine_tuned(params, ctx)
    roles, offered = precision.roles(precision.layer_names(model)), params["offered"].split()
    space: search.Space = dict.fromkeys(roles, offered)

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        offers = (PlacedFormat.read(point[role]) for role in roles)
        formats = [with_places(offer, params, ctx) for offer in offers]
        bits = set_formats_(model, formats)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        score = judged["validation_loss"] + params["price"] * bits
        return -score, {"formats": write_mix(formats), "bits": bits, **judged}

    study = baseline.recipe(params, STUDY_FIELDS)
    single = [dict.fromkeys(roles, text) for text in offered]
    trials, best = search.run_study(ctx, study, space, objective, single)
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


def rival_format(params: Params, ctx: Context) -> str:
    """The single format of the least score among those of no fewer bits than the mix."""
    singles = [judge_single(offer, params, ctx) for offer in read_mix(params["offered"])]
    least_bits = min(search_formats(params, ctx)["mix_bits"], max(x["bits"] for x in singles))
    fitting = [single for single in singles if single["bits"] >= least_bits]
    best = min(fitting, key=lambda x: x["validation_loss"] + params["price"] * x["bits"])
    return best["formats"]
