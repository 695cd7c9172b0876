"""Compression in the objective of a search, at equal size: what a case runs.

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

from experiments.lab2_compression.page import AFTER, BETWEEN, OBJECTIVES, PLAIN
from madl.compression.prune import prune_
from madl.compression.quantize import Rule, quantize_
from madl.compression.size import linear_bits
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.training import baseline, search
from madl.training.data import Encoded
from madl.training.models import NUM_LABELS
from madl.training.search import Point, Space
from madl.training.supernet import Supernet
from madl.training.train import Recipe, train

Halves = tuple[Encoded, Encoded]

LAYERS, HEADS, WIDTH = "num_hidden_layers", "num_attention_heads", "hidden_size"
FEED_FORWARD = "intermediate_size"  # not searched: what is left of the size
PARTS = {  # of the model's own
    LAYERS: (1 / 2, 2 / 3, 5 / 6, 1),
    HEADS: (1 / 4, 1 / 2, 1),
    WIDTH: (1 / 2, 3 / 4, 1),
}
SHAPES = {  # that stand without a search
    "shallow": {LAYERS: 1 / 2, HEADS: 1 / 2, WIDTH: 1},
    "middle": {LAYERS: 5 / 6, HEADS: 1 / 2, WIDTH: 3 / 4},
    "deep": {LAYERS: 1, HEADS: 1 / 2, WIDTH: 1 / 2},
}
SHARED = ((PLAIN, AFTER), (BETWEEN,))  # schedules of one training
RATE_OF = {PLAIN: "plain", AFTER: "after", BETWEEN: "between"}
OF_A_SEARCH = ("part", "objective", "sampler", "trials", "shape")  # what no training depends on
MISFIT = -100.0  # of a trial that cannot have the size: below every loss, with the sign changed


def run(params: Params, ctx: Context) -> Values:
    """A search, or a shape that stands without one: trained in full, or as in a trial."""
    net = Supernet(params, ctx)
    if params["part"] == "search":
        return searched(net)
    shape = of_size(net.shape, sizes(net.shape, SHAPES[str(params["shape"])]), params)
    found = in_full(net, shape) if params["part"] == "rate" else shortly(net, shape, OBJECTIVES)
    return {"chosen": list(shape.values()), **found}


# ---- shapes of one size -------------------------------------------------------------------------


def sizes(whole: Mapping[str, int], parts: Mapping[str, float]) -> Point:
    return {name: max(round(part * whole[name]), 1) for name, part in parts.items()}


def space(whole: Mapping[str, int]) -> Space:
    """What is searched; a model too small to offer a choice is not searched along it."""
    every = {
        name: sorted({max(round(part * whole[name]), 1) for part in parts})
        for name, parts in PARTS.items()
    }
    return {name: values for name, values in every.items() if len(values) > 1}


def fitted(whole: Mapping[str, int], point: Point, size: float) -> Point | None:
    """The point with the feed-forward width that spends the size; None where there is no such."""
    head = whole[WIDTH] // whole[HEADS]
    layers, heads, width = (int(point.get(name, whole[name]) or 0) for name in PARTS)

    def weights(layers: int, heads: int, width: int, feed_forward: int) -> int:
        """Of the Linear layers: encoder, pooler, classifier."""
        each = 4 * width * heads * head + 2 * width * feed_forward
        return layers * each + width * (width + NUM_LABELS)

    most = size * weights(whole[LAYERS], whole[HEADS], whole[WIDTH], whole[FEED_FORWARD])
    left = int(most - weights(layers, heads, width, 0)) // (2 * width * layers)
    if not 1 <= left <= whole[FEED_FORWARD]:
        return None
    return {LAYERS: layers, HEADS: heads, WIDTH: width, FEED_FORWARD: left}


def of_size(whole: Mapping[str, int], point: Point, params: Params) -> Point:
    """Raises: MadlError: no feed-forward width makes the point as large as that."""
    size = float(params["size"] or 0)
    found = fitted(whole, point, size)
    if found is None:
        raise MadlError(f"no shape with {dict(point)} has {size:.0%} of the model's weights")
    return found


# ---- a search -----------------------------------------------------------------------------------


def searched(net: Supernet) -> Values:
    """A study under one objective; its choice, trained in full under every schedule and judged."""
    params, objective = net.params, str(net.params["objective"])
    schedules = next(shared for shared in SHARED if objective in shared)
    size = float(params["size"] or 0)

    def worth(point: Point) -> tuple[float, Mapping[str, Any]]:
        shape = fitted(net.shape, point, size)
        if shape is None:
            return MISFIT, {}
        found = shortly(net, shape, schedules)[objective]
        return -found["validation_loss"], {"shape": list(shape.values()), **found}

    study = search.search(
        search.study_folder(net.ctx, params),
        space(net.shape),
        worth,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
    )
    best = max(study, key=lambda trial: trial.value)
    shape = of_size(net.shape, best.point, params)
    return {
        "chosen": list(shape.values()),
        "tried": [trial.notes or None for trial in study],  # None: it cannot have the size
        "startup": search.settings(str(params["sampler"])).get("startup_trials", 0),
        **in_full(net, shape),
    }


def shortly(net: Supernet, shape: Point, schedules: Sequence[str]) -> Values:
    """A trial's training: few sentences. Judged on validation where a search looks."""
    rates = dict.fromkeys(schedules, float(net.params["trial_learning_rate"] or 0))
    on_test = net.params["part"] == "candidate"
    return evaluated(net, shape, rates, "trial_", on_test=on_test)


def in_full(net: Supernet, shape: Point) -> Values:
    """Every schedule at its own rate on all sentences; on test once nothing is chosen by it."""
    rates = {one: float(net.params[f"{of}_rate"] or 0) for one, of in RATE_OF.items()}
    return evaluated(net, shape, rates, "full_", on_test=net.params["draw"] != TUNING_SEED)


def evaluated(
    net: Supernet, shape: Point, rates: Mapping[str, float], prefix: str, *, on_test: bool
) -> Values:
    """A shape under these schedules, each at its learning rate; made once on a machine.

    `prefix` says of which training; that in full has the dropout of the fine-tuning.
    """
    params, judge = net.params, baseline.judge if on_test else baseline.judge_on_validation
    count = params[f"{prefix}examples"]
    assert count is None or isinstance(count, int)

    halves = halved(baseline.load_splits(params).train.first(count))
    some = {**params, f"{prefix}learning_rate": max(rates.values())}
    recipe = baseline.training_recipe(some, prefix=prefix, epochs=1, bf16=net.bf16)

    def make() -> Values:
        found: Values = {"steps": sum(recipe.num_steps(len(half)) for half in halves)}
        for rate in dict.fromkeys(rates.values()):
            wanted = [schedule for schedule, own in rates.items() if own == rate]
            model = net.build(shape, with_dropout=prefix == "full_")
            at_rate = replace(recipe, learning_rate=rate)
            for schedule, one in trained(model, halves, at_rate, net, wanted):
                bf16 = net.bf16 and schedule == PLAIN
                judged = judge(one, params, net.ctx.device, bf16=bf16)
                found = {**found, schedule: {**judged, "linear_bits": linear_bits(one)}}
        return found

    of_case = {name: value for name, value in params.items() if name not in OF_A_SEARCH}
    what = {**of_case, **shape, "training": prefix, "on_test": on_test, "rates": f"{dict(rates)}"}
    return search.remembered(net.ctx, what, make)


# ---- the schedules ------------------------------------------------------------------------------


def halved(examples: Encoded) -> Halves:
    """Two halves without a common example; of an odd number the last is left out."""
    middle = len(examples) // 2
    second = replace(
        examples,
        token_ids=examples.token_ids[middle : 2 * middle],
        labels=examples.labels[middle : 2 * middle],
    )
    return examples.first(middle), second


def trained(
    model: nn.Module, halves: Halves, recipe: Recipe, net: Supernet, wanted: Sequence[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Each wanted schedule with its model, to be judged before the next; they share a half."""
    first, second = halves
    train(model, first, recipe, device=net.ctx.device)
    other = copy.deepcopy(model) if BETWEEN in wanted else model
    if PLAIN in wanted or AFTER in wanted:
        train(model, second, recipe, device=net.ctx.device)
        if PLAIN in wanted:
            yield PLAIN, model
    if AFTER in wanted:
        compress_(model, net.params)
        yield AFTER, model
    if BETWEEN in wanted:
        compress_(other, net.params)
        train(other, second, replace(recipe, bf16=False), device=net.ctx.device)
        yield BETWEEN, other


def compress_(model: nn.Module, params: Params) -> None:
    """Quantize weights, biases and inputs of every Linear layer, and mask its smallest weights."""
    width = int(params["width"] or 0)
    weights = FixedPoint(width=width, frac_width=int(params["frac_width"] or 0))
    inputs = FixedPoint(width=width, frac_width=int(params["input_frac_width"] or 0))
    exact = weights.exact_in_bf16 and inputs.exact_in_bf16
    products = "bfloat16" if exact else "float32"
    quantize_(model, [Rule(weight=weights, bias=weights, input=inputs, products=products)])
    prune_(model, sparsity=float(params["sparsity"] or 0), method="l1")
