"""Compression in the objective of a search, at equal size.

A candidate is a shape cut out of the fine-tuned model. Its layers, heads and width are searched;
its feed-forward layers take what these leave of the size, so that all candidates have the same. It
is trained on in two halves, each with its own warm-up and decay. The schedules share their
sentences, order and steps, and differ in where the compression stands:

    plain                       half, half
    compressed                  half, half, quantize + prune
    compressed and trained on   half, quantize + prune, half

Masks and formats stay in place in the training after them. Before them products are bfloat16 where
that is fast; after them they are exact.

Units: sizes as shares of the whole model's Linear weights, or in bits; losses in nats.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from experiments.lab2_compression import design
from experiments.lab2_compression.design import AFTER, BETWEEN, FEED_FORWARD, OBJECTIVES, PLAIN
from madl.compression.prune import prune_
from madl.compression.size import linear_bits
from madl.errors import MadlError
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, compressed, search
from madl.training.data import Encoded
from madl.training.models import NUM_LABELS
from madl.training.search import Point, Space
from madl.training.supernet import Supernet, part_of, size_space
from madl.training.train import Recipe, train

Halves = tuple[Encoded, Encoded]

SCHEDULES_TOGETHER = ((PLAIN, AFTER), (BETWEEN,))  # of one training
RATES = {PLAIN: "plain_rate", AFTER: "after_rate", BETWEEN: "between_rate"}
SEARCH_FIELDS = ("part", "objective", "sampler", "trials", "shape")  # that change no training
MISFIT = -100.0  # of a trial that cannot have the size: below every loss, with the sign changed


def run(params: Params, ctx: Context) -> Values:
    """Run one case: a search for a compressed shape, or the training of a given shape."""
    net = Supernet(params, ctx)
    if params["part"] == "search":
        return run_search(net)
    parts = design.SHAPES[str(params["shape"])]
    point = {name: part_of(net.shape[name], part) for name, part in parts.items()}
    shape = shape_of_size(net, point)
    is_rate = params["part"] == "rate"
    judged = judge_in_full(net, shape) if is_rate else judge_in_trial(net, shape, OBJECTIVES)
    return {"chosen": list(shape.values()), **judged}


# ---- shapes of one size -------------------------------------------------------------------------


def space(whole: Mapping[str, int]) -> Space:
    """The search space: sizes of layers, heads and width, as parts of the whole model's."""
    return size_space(whole, design.SIZES_SEARCHED)


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
    layers, _, width = searched.values()
    feed_forward = int(most - num_weights(*searched.values(), 0)) // (2 * width * layers)
    if not 1 <= feed_forward <= whole[FEED_FORWARD]:
        return None
    return {**searched, FEED_FORWARD: feed_forward}


def shape_of_size(net: Supernet, point: Point) -> Point:
    """The point with the feed-forward width that gives it the case's size.

    Raises:
        MadlError: there is no such width.
    """
    size = float(net.params["size"] or 0)
    shape = fit_feed_forward(net.shape, point, size)
    if shape is None:
        raise MadlError(f"no shape with {dict(point)} has {size:.0%} of the model's weights")
    return shape


# ---- a search -----------------------------------------------------------------------------------


def run_search(net: Supernet) -> Values:
    """Search under the case's objective; train the choice under every schedule, and judge it."""
    params, objective = net.params, str(net.params["objective"])
    schedules = next(together for together in SCHEDULES_TOGETHER if objective in together)

    def score(point: Point) -> tuple[float, Mapping[str, Any]]:
        shape = fit_feed_forward(net.shape, point, float(params["size"] or 0))
        if shape is None:
            return MISFIT, {}
        judged = judge_in_trial(net, shape, schedules)[objective]
        return -judged["validation_loss"], {"shape": list(shape.values()), **judged}

    trials, best = search.run_study(net.ctx, params, space(net.shape), score)
    shape = shape_of_size(net, best.point)
    return {
        "chosen": list(shape.values()),
        "tried": [trial.notes or None for trial in trials],  # None: it cannot have the size
        "startup": search.STARTUP_TRIALS,
        **judge_in_full(net, shape),
    }


def judge_in_trial(net: Supernet, shape: Point, schedules: Sequence[str]) -> Values:
    """Train a shape as a trial does and judge it: on validation in a search, else on test, too."""
    rates = dict.fromkeys(schedules, float(net.params["trial_learning_rate"] or 0))
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
    """
    params, judge_model = net.params, baseline.judge if on_test else baseline.judge_on_validation
    count = baseline.optional(params, f"{prefix}examples")
    halves = halved(baseline.load_splits(params).train.first(count))
    with_rate = {**params, f"{prefix}learning_rate": max(rates.values())}
    recipe = baseline.training_recipe(with_rate, prefix=prefix, epochs=1, bf16=net.bf16)

    def compute() -> Values:
        values: Values = {"steps": sum(recipe.num_steps(len(half)) for half in halves)}
        for rate in dict.fromkeys(rates.values()):
            schedules = [schedule for schedule, own in rates.items() if own == rate]
            model = net.build(shape, with_dropout=prefix == "full_")
            at_rate = replace(recipe, learning_rate=rate)
            for schedule, trained in train_schedules(model, halves, at_rate, net, schedules):
                bf16 = net.bf16 and schedule == PLAIN
                judged = judge_model(trained, params, net.ctx.device, bf16=bf16)
                values = {**values, schedule: {**judged, "linear_bits": linear_bits(trained)}}
        return values

    of_training = {name: value for name, value in params.items() if name not in SEARCH_FIELDS}
    how = {"training": prefix, "on_test": on_test, "rates": f"{dict(rates)}"}
    return search.memoized(net.ctx, {**of_training, **shape, **how}, compute)


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
        train(other, second, replace(recipe, bf16=False), device=net.ctx.device)
        yield BETWEEN, other


def compress_(model: nn.Module, params: Params) -> None:
    """Quantize weights, biases and inputs of every Linear layer, and mask its smallest weights."""
    compressed.quantized_(model, params)
    prune_(model, sparsity=float(params["sparsity"] or 0), method="l1")
