"""Compression in the objective of a search, at equal size of the Linear layers.

A candidate is a shape cut out of the fine-tuned model. Its layers, heads and width are searched;
its feed-forward layers take what these leave of the size, so that all candidates have the same. It
is trained on in two halves, each with its own warm-up and decay. The schedules share their
sentences, order and steps, and differ in where the compression stands:

    plain                       half, half
    compressed                  half, half, quantize + prune
    compressed and trained on   half, quantize + prune, half

Masks and formats stay in place in the training after them. All is trained and judged in float32. A
trial judges its shape under every schedule, so the searches of a model share their trials.

Units: sizes as shares of the whole model's Linear weights, or in bits.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from torch import nn

from experiments.lab2_compression import design
from experiments.lab2_compression.design import AFTER, BETWEEN, FEED_FORWARD, OBJECTIVES, PLAIN
from madl.compression.prune import prune_, prune_inputs_
from madl.compression.size import linear_bits, num_parameters
from madl.errors import MadlError
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, compressed, search
from madl.training.data import Encoded, middle_batch
from madl.training.models import NUM_LABELS
from madl.training.search import Point, Space, Trial
from madl.training.supernet import Supernet, part_of, size_space
from madl.training.train import Recipe, train

Halves = tuple[Encoded, Encoded]

RATES = {PLAIN: "plain_rate", AFTER: "after_rate", BETWEEN: "between_rate"}
JUDGED_BY = (*compressed.FORMAT_FIELDS, "sparsity", "test_examples")  # beside shape and training
MISFIT = -1.0  # of a draw that cannot have the size: below every accuracy


def run(params: Params, ctx: Context) -> Values:
    """Run one case: a search for a compressed shape, or the training of a given shape."""
    net, part = Supernet(params, ctx), params["part"]
    if part in ("search", "blind"):
        return run_search(net)
    point = given_point(net)
    if part == "every shape":
        return judge_twice(net, point)
    shape = shape_of_size(net, point)
    judged = judge_in_full(net, shape) if part == "rate" else judge_in_trial(net, shape)
    return {"chosen": list(shape.values()), **judged}


def judge_twice(net: Supernet, point: Point) -> Values:
    """Judge the shape of a point in full and after a `trial`; without the size, it is not
    `chosen`."""
    shape = fit_feed_forward(net.shape, point, size_of(net))
    if shape is None:
        return {"chosen": None}
    trial = judge_in_trial(net, shape)
    return {"chosen": list(shape.values()), "trial": trial, **judge_in_full(net, shape)}


# ---- shapes of one size -------------------------------------------------------------------------


def space(whole: Mapping[str, int]) -> Space:
    """The search space: sizes of layers, heads and width, as parts of the whole model's."""
    return size_space(whole, design.SIZES_SEARCHED)


def points_of(choices: Space) -> Iterator[Point]:
    """Every point of a space."""
    return (dict(zip(choices, values)) for values in product(*choices.values()))


def given_point(net: Supernet) -> Point:
    """The point of the case's shape, which is given by its name or by the share of each size."""
    params = net.params
    if "shape" in params:
        parts = design.SHAPES[str(params["shape"])]
    else:
        parts = {name: float(params[f"{name}_part"] or 0) for name in design.SIZES_SEARCHED}
    return {name: part_of(net.shape[name], part) for name, part in parts.items()}


def fit_feed_forward(whole: Mapping[str, int], point: Point, size: float) -> Point | None:
    """The point with the largest feed-forward width that keeps its Linear weights within the share
    `size` of the whole model's; None where that width is below one or above the whole model's."""
    head_width = whole[design.WIDTH] // whole[design.HEADS]
    searched = {name: int(point.get(name, whole[name]) or 0) for name in design.SIZES_SEARCHED}

    def num_weights(layers: int, heads: int, width: int, feed_forward: int) -> int:
        """Weights of the Linear layers: encoder, pooler, classifier."""
        in_layer = 4 * width * heads * head_width + 2 * width * feed_forward
        return layers * in_layer + width * (width + NUM_LABELS)

    of_whole = (whole[name] for name in (*design.SIZES_SEARCHED, FEED_FORWARD))
    most = size * num_weights(*of_whole)
    layers, heads, width = searched.values()
    feed_forward = int(most - num_weights(layers, heads, width, 0)) // (2 * width * layers)
    if not 1 <= feed_forward <= whole[FEED_FORWARD]:
        return None
    return {**searched, FEED_FORWARD: feed_forward}


def size_of(net: Supernet) -> float:
    """The case's size, a share of the whole model's Linear weights."""
    return float(net.params["size"] or 0)


def shape_of_size(net: Supernet, point: Point) -> Point:
    """The point with the feed-forward width that gives it the case's size.

    Raises:
        MadlError: there is no such width.
    """
    shape = fit_feed_forward(net.shape, point, size_of(net))
    if shape is None:
        raise MadlError(
            f"no shape with {dict(point)} has {size_of(net):.0%} of the model's weights"
        )
    return shape


# ---- a search -----------------------------------------------------------------------------------


def run_search(net: Supernet) -> Values:
    """Search under the case's objective; train the choice under every schedule, and judge it.

    A search of one trial chooses a shape blindly.
    """
    objective = str(net.params["objective"])

    def score(point: Point) -> tuple[float, Mapping[str, Any]]:
        shape = fit_feed_forward(net.shape, point, size_of(net))
        if shape is None:
            return MISFIT, {}
        judged = judge_in_trial(net, shape)
        return judged[objective]["validation_accuracy"], {"shape": list(shape.values()), **judged}

    draws = draw(net, score)
    trials = [trial for trial in draws if trial.notes]
    best = max(trials, key=lambda trial: trial.value)  # of equal ones the first
    shape = shape_of_size(net, best.point)
    return {
        "chosen": list(shape.values()),
        "tried": [trial.notes for trial in trials],
        "misfits": len(draws) - len(trials),
        "startup": sum(trial.at_random for trial in draws),
        **judge_in_full(net, shape),
    }


def draw(net: Supernet, score: Callable[[Point], tuple[float, Mapping[str, Any]]]) -> list[Trial]:
    """The draws of the case's study, as many as it takes for its trials.

    A draw that cannot have the size has no notes. It is no trial: another one takes its place.

    Raises:
        MadlError: no point of the space can have the size.
    """
    params, choices = net.params, space(net.shape)
    if not any(fit_feed_forward(net.shape, point, size_of(net)) for point in points_of(choices)):
        raise MadlError(f"no point of the space can have {size_of(net):.0%} of the model's weights")
    folder = search.study_folder(net.ctx, params)
    how: Any = {"sampler": str(params["sampler"]), "seed": baseline.integer(params, "seed")}
    num_trials = num_draws = baseline.integer(params, "trials")
    while True:
        draws = search.search(folder, choices, score, trials=num_draws, **how)
        num_missing = num_trials - sum(bool(trial.notes) for trial in draws)
        if not num_missing:
            return draws
        num_draws += num_missing


def judge_in_trial(net: Supernet, shape: Point) -> Values:
    """Train a shape as a trial does and judge it under every schedule: on validation, and a
    candidate that stands without a search on test, too."""
    rate = float(net.params["trial_learning_rate"] or 0)
    rates: dict[str, float] = dict.fromkeys(OBJECTIVES, rate)
    return judge(net, shape, rates, "trial_", on_test=net.params["part"] == "candidate")


def judge_in_full(net: Supernet, shape: Point) -> Values:
    """Train a shape on all sentences and judge it: on the tuning seed on validation alone."""
    rates = {schedule: float(net.params[name] or 0) for schedule, name in RATES.items()}
    return judge(net, shape, rates, "full_", on_test=net.params["seed"] != TUNING_SEED)


def judge(
    net: Supernet, shape: Point, rates: Mapping[str, float], prefix: str, *, on_test: bool
) -> Values:
    """Train a shape under schedules, each at its learning rate, and judge it; once on a machine.

    `prefix` names the parameters of the training; in full it has the dropout of the fine-tuning.
    Beside the judgement of each schedule stand `steps` and `parameters`, embeddings included.
    """
    params, judge_model = net.params, baseline.judge if on_test else baseline.judge_on_validation
    count = baseline.optional(params, f"{prefix}examples")
    halves = halved(baseline.load_splits(params).train.first(count))
    with_rate = {**params, f"{prefix}learning_rate": max(rates.values())}
    recipe = baseline.training_recipe(with_rate, prefix=prefix, epochs=1)

    def compute() -> Values:
        values: dict[str, Any] = {"steps": sum(recipe.num_steps(len(half)) for half in halves)}
        for rate in dict.fromkeys(rates.values()):
            schedules = [schedule for schedule, own in rates.items() if own == rate]
            model = net.build(shape, with_dropout=prefix == "full_")
            values["parameters"] = num_parameters(model)
            at_rate = replace(recipe, learning_rate=rate)
            for schedule, trained in train_schedules(model, halves, at_rate, net, schedules):
                judged = judge_model(trained, params, net.ctx.device)
                values[schedule] = {**judged, "linear_bits": linear_bits(trained)}
        return values

    fields = (*JUDGED_BY, f"{prefix}examples", f"{prefix}batch_size")
    how = {"training": prefix, "on_test": on_test, "rates": f"{dict(rates)}"}
    return search.memoized(net.ctx, {**baseline.recipe(params, fields), **shape, **how}, compute)


# ---- the schedules ------------------------------------------------------------------------------


def halved(examples: Encoded) -> Halves:
    """Two halves without a common example; of an odd number the last is left out."""
    middle = len(examples) // 2
    return examples.first(middle), examples.subset(range(middle, 2 * middle))


def train_schedules(
    model: nn.Module, halves: Halves, recipe: Recipe, net: Supernet, schedules: Sequence[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield (schedule, trained model), to be judged before the next, which may change the model.

    The schedules share the first half of the training.
    """
    first, second = halves
    train(model, first, recipe, device=net.ctx.device)
    other = copy.deepcopy(model) if BETWEEN in schedules else model
    if PLAIN in schedules or AFTER in schedules:
        train(model, second, recipe, device=net.ctx.device)
        if PLAIN in schedules:
            yield PLAIN, model
    if AFTER in schedules:
        compress_(model, net.params)
        yield AFTER, model
    if BETWEEN in schedules:
        compress_(other, net.params)
        train(other, second, recipe, device=net.ctx.device)
        yield BETWEEN, other


def compress_(model: nn.Module, params: Params) -> None:
    """Quantize weights, biases and inputs of every Linear layer, and remove its smallest weights
    and inputs."""
    compressed.quantized_(model, params)
    smallest: Any = {"sparsity": float(params["sparsity"] or 0), "method": "l1"}
    prune_(model, **smallest)
    examples = baseline.load_splits(params).train.first(32 * design.CALIBRATION_SENTENCES)
    batch = middle_batch(examples, design.CALIBRATION_SENTENCES)
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    prune_inputs_(model, **smallest, calibration=batch)
