"""What a case of question 3.2 does: models in number formats, trained on, judged and searched.

Every model starts from the fine-tuned one and is judged three ways on validation: as quantization
leaves it, and trained on with each of a few learning rates, on the same sentences in the same
order. The best one meets the test split; so does the best of the FP32 controls. A search trains
once, in another random point of its space at every step, and judges all its trials with the weights
that this gives.

Source: one training for all points of a space, of bit widths among others, Guo et al. 2020,
"Single path one-shot neural architecture search with uniform sampling", ECCV.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from madl.compression.quantize import range_use
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, families, format_errors, precision, search
from madl.training.data import Encoded
from madl.training.precision import LayerFormat, Precision

COUNTED_SENTENCES = 16  # whose activations a format is counted on


def judged(model: nn.Module, params: Params, ctx: Context) -> Values:
    """The model of a case that names a format, or of the control, which names none."""
    if params["part"] == "control":
        return tuned(model, precision.uniform(model, None), params, ctx)
    layer_format, positions = format_of(model, str(params["format"]), params, ctx)
    formats = precision.uniform(model, layer_format)
    precision.set_precision_(model, formats)
    shares = range_use(model, _tuning(params).batch(range(COUNTED_SENTENCES)))
    counted = {"weight_zeroed": shares["weight_zeroed"], **positions}
    return {**counted, **tuned(model, formats, params, ctx)}


def tuned(model: nn.Module, formats: Precision, params: Params, ctx: Context) -> dict[str, Any]:
    """That precision at the learning rate that validation prefers, zero among them, judged."""
    found: dict[float, tuple[nn.Module, dict[str, Any]]] = {}
    for rate in (0.0, *_rates(params)):
        made = precision.set_precision_(model, formats)
        if rate:
            own = {**params, "tune_learning_rate": rate}
            made = precision.trained_on(model, formats, _tuning(params), own, ctx.device)
        found[rate] = made, baseline.judge_on_validation(made, params, ctx.device)
    rate = preferred({rate: values for rate, (_, values) in found.items()})
    best, values = found[rate]
    return {
        **baseline.judge_on_test(best, params, ctx.device),
        **values,
        "rate": rate,
        "by_rate": {f"{rate:g}": values for rate, (_, values) in found.items()},
        "bits": precision.mean_bits(model, formats),
    }


def preferred(found: Mapping[float, Mapping[str, Any]]) -> float:
    """The rate with the best validation accuracy, then loss; the first of those that are alike."""
    return max(found, key=lambda r: (found[r]["validation_accuracy"], -found[r]["validation_loss"]))


# ---- where a format's values lie ----------------------------------------------------------------


def format_of(
    model: nn.Module, name: str, params: Params, ctx: Context
) -> tuple[LayerFormat, dict[str, int]]:
    """What all layers take under that name; of a moved format, its positions too.

    From the positions that keep the values best (signal to error), step by step to a neighbor that
    lowers the validation loss right after quantization, until none does.
    """
    if name not in families.MOVED:
        return families.named(name), {}

    def loss(at: tuple[int, int]) -> float:
        formats = precision.uniform(model, families.moved(name, *at))
        return precision.judge(model, formats, _probe(params), ctx.device).loss

    def found() -> dict[str, int]:
        precision.set_precision_(model, precision.uniform(model, None))
        data = format_errors.tensors(model, baseline.load_splits(params))
        kept = format_errors.best_shifted(families.preset_of(name), data)
        start = (families.position(kept["weights"]), families.position(kept["inputs"]))
        weights, inputs = descended(loss, start)
        return {"weights_at": weights, "inputs_at": inputs}

    of = precision.of_experiment(params, ("probe_examples",))
    positions = search.remembered(ctx, {"descent of": name, **of}, found)
    return families.moved(name, positions["weights_at"], positions["inputs_at"]), positions


def descended(loss: Callable[[tuple[int, int]], float], start: tuple[int, int]) -> tuple[int, int]:
    """A pair that has less loss than its four neighbors, one step in either number; each is judged
    once."""
    known = {start: loss(start)}
    best = start
    while True:
        a, b = best
        for at in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
            if at not in known:
                known[at] = loss(at)
        lowest = min(known, key=lambda at: known[at])
        if lowest == best:
            return best
        best = lowest


# ---- searches -----------------------------------------------------------------------------------


def searched(model: nn.Module, params: Params, ctx: Context) -> Values:
    """A format or FP32 for each kind of layer; the combined search's choice is judged as well."""
    layers, choices = precision.layer_names(model), families.space(params.get("family"))
    space = dict.fromkeys(precision.kinds(layers), choices)
    known = {name: format_of(model, name, params, ctx)[0] for name in choices}

    def formats(point: Mapping[str, Any]) -> dict[str, LayerFormat]:
        return {layer: known[point[precision.kind(layer)]] for layer in layers}

    objective = _objective(model, space, formats, params, ctx)
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
    return {**found, **tuned(model, formats(best.point), params, ctx)}


def _objective(
    model: nn.Module,
    space: search.Space,
    formats: Callable[[Mapping[str, Any]], Precision],
    params: Params,
    ctx: Context,
) -> search.Objective:
    """A trial's score: accuracy less the price of its bits, with weights trained once for all."""

    def drawn(step: int) -> Precision:
        return formats(random_point(space, f"{params['seed']} {step}"))

    own = {**params, "tune_learning_rate": max(_rates(params))}
    shared = precision.trained_between(model, drawn, _tuning(params), own, ctx.device)

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        accuracy = precision.judge(shared, formats(point), _probe(params), ctx.device).accuracy
        bits = precision.mean_bits(model, formats(point))
        notes = {"validation": accuracy, "bits": bits, "choices": dict(point)}
        return accuracy - float(params["price"] or 0) * bits, notes

    return objective


def random_point(space: search.Space, seed: str) -> dict[str, Any]:
    """A point of the space, the same for the same seed."""
    draw = random.Random(seed)
    return {name: draw.choice(values) for name, values in space.items()}


def _tuning(params: Params) -> Encoded:
    return baseline.load_splits(params).train.first(int(params["tune_examples"] or 0))


def _probe(params: Params) -> Encoded:
    """The validation sentences that trials and positions are chosen by."""
    return baseline.load_splits(params).validation.first(int(params["probe_examples"] or 0))


def _rates(params: Params) -> list[float]:
    """Learning rates that are tried beside not training at all: "1e-05 3e-05"."""
    return [float(rate) for rate in str(params["tune_learning_rates"]).split()]
