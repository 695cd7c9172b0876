"""Compression in the objective of a search: three schedules of one short training, side by side.

A candidate is a shape cut out of the fine-tuned model, and a draw of training sentences. It is
trained on in two halves, each with its own warm-up and decay, in float32. The schedules have both
halves in common and differ in where the compression stands:

    plain                       half, half
    compressed                  half, half, quantize + prune
    compressed and trained on   half, quantize + prune, half

Compressed layers multiply in bfloat16 where it holds their operands, which is float32 in another
order. Masks and formats stay in place in the training behind them.

Units: sizes are bits of the Linear layers.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from experiments.lab2_compression.page import AFTER, BETWEEN, PLAIN
from madl.compression.prune import prune_
from madl.compression.quantize import Rule, quantize_
from madl.compression.size import linear_bits
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.search import Point, Space, grid_point, num_points
from madl.training.supernet import Supernet, space
from madl.training.train import Recipe, rate_at, train

Halves = tuple[Encoded, Encoded]


def candidate(params: Params, ctx: Context) -> dict[str, Any]:
    """One candidate under every schedule: validation, size, and on test what is compressed."""
    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]), identities=False)
    point = drawn(choices, _int(params, "study"), _int(params, "trial"))
    recipe = baseline.training_recipe(params, prefix="trial_", epochs=1)
    recipe, halves = (
        replace(recipe, seed=_int(net.params, "trial_draw")),
        halved(net.trial_examples),
    )
    values: dict[str, Any] = {"point": list(point.values()), **training(recipe, halves)}
    for schedule, model in trained(net.build(point), halves, recipe, params, ctx.device):
        judge = baseline.judge_on_validation if schedule == PLAIN else baseline.judge
        judged = judge(model, net.params, ctx.device)
        values[schedule] = {**judged, "linear_bits": linear_bits(model)}
    return {**values, "accuracy": values[BETWEEN]["accuracy"]}


def drawn(choices: Space, study: int, trial: int) -> Point:
    """A study's points: those of the space in random order, again from the first after the last."""
    numbers = list(range(num_points(choices)))
    random.Random(study).shuffle(numbers)
    return grid_point(choices, numbers[trial % len(numbers)])


def halved(examples: Encoded) -> Halves:
    """Two halves without a common example; of an odd number the last is left out."""
    middle = len(examples) // 2
    second = replace(
        examples,
        token_ids=examples.token_ids[middle : 2 * middle],
        labels=examples.labels[middle : 2 * middle],
    )
    return examples.first(middle), second


def training(recipe: Recipe, halves: Halves) -> Mapping[str, float]:
    """How much every schedule trains, and the same number of steps as one schedule, undivided.

    `rates` sums the steps' shares of the learning rate.
    """
    steps = [recipe.num_steps(len(half)) for half in halves]
    return {
        "steps": sum(steps),
        "rates": sum(map(_rates, steps)),
        "rates_undivided": _rates(sum(steps)),
    }


def _rates(steps: int) -> float:
    return sum(rate_at(i, steps) for i in range(steps))


def trained(
    model: nn.Module, halves: Halves, recipe: Recipe, params: Params, device: str
) -> Iterator[tuple[str, nn.Module]]:
    """Each schedule with its model, to be judged before the next; the first half is shared."""
    first, second = halves
    train(model, first, recipe, device=device)
    other = copy.deepcopy(model)
    train(model, second, recipe, device=device)
    yield PLAIN, model
    compress_(model, params)
    yield AFTER, model
    compress_(other, params)
    train(other, second, recipe, device=device)
    yield BETWEEN, other


def compress_(model: nn.Module, params: Params) -> None:
    """Quantize weights, biases and inputs of every Linear layer, and mask its smallest weights."""
    width = _int(params, "width")
    weights = FixedPoint(width=width, frac_width=_int(params, "frac_width"))
    inputs = FixedPoint(width=width, frac_width=_int(params, "input_frac_width"))
    exact = weights.exact_in_bf16 and inputs.exact_in_bf16
    products = "bfloat16" if exact else "float32"
    quantize_(model, [Rule(weight=weights, bias=weights, input=inputs, products=products)])
    prune_(model, sparsity=float(params["sparsity"] or 0), method="l1")


def _int(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int), (name, value)
    return value
