"""Trials of architecture searches: sub-networks cut out of the fine-tuned model and trained.

A trial cuts a sub-network (`compression.subnetwork`), trains it shortly and evaluates it on
validation data. Its values depend on its parameters alone, so it runs once on a machine and is
memoized for all studies. The parameter `trial_draw` draws which training sentences a trial sees,
and in which order. Trials train without dropout, as a few dozen steps do not need it. Trained in
full, a sub-network takes one epoch over all training sentences, with the dropout of the
fine-tuning, in an order that `trial_draw` draws. Word embeddings are not trained in either.

Parameters: those of `baseline.drawn_params`, `trial_draw`, and for trials `trial_examples`,
`trial_learning_rate`, `trial_batch_size`; in full `full_examples` (None: all), `full_batch_size`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.compression.roles import SQUARE_KINDS
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.search import Point, Space, memoized

if TYPE_CHECKING:
    from torch import nn

    from madl.compression.subnetwork import Importance
    from madl.training.data import Encoded

CALIBRATION_EXAMPLES = 64
TRIAL_FIELDS = ("trial_draw", "trial_examples", "trial_learning_rate", "trial_batch_size")
FULL_FIELDS = ("trial_draw", "full_examples", "full_batch_size", "test_examples")
LINEAR, IDENTITY = "linear", "identity"
PARTS = {  # the sizes to choose from, as shares of the model's own
    "num_hidden_layers": (1 / 3, 2 / 3, 1),
    "num_attention_heads": (1 / 2, 1),
    "hidden_size": (1 / 2, 3 / 4, 1),
    "intermediate_size": (1 / 4, 1 / 2, 1),
}


def space(shape: Mapping[str, int]) -> Space:
    """The search space: sizes, and for each square kind of Linear layer whether it is an identity.

    A kind is an identity in all layers at once.
    """
    return {**size_space(shape, PARTS), **{kind: [LINEAR, IDENTITY] for kind in SQUARE_KINDS}}


def size_space(shape: Mapping[str, int], parts: Mapping[str, Sequence[float]]) -> Space:
    """The sizes to choose from, given as shares (`parts`) of the whole model's sizes (`shape`).

    A size with one choice only, as of a small model, is left out.
    """
    sizes = {name: sorted({part_of(shape[name], part) for part in parts[name]}) for name in parts}
    return {name: choices for name, choices in sizes.items() if len(choices) > 1}


def part_of(size: int, part: float) -> int:
    """The size times the share, rounded, and at least 1."""
    return max(round(part * size), 1)


def largest(choices: Space) -> Point:
    """The point of the whole model: every size its own, every layer a Linear one."""
    return {name: LINEAR if LINEAR in values else values[-1] for name, values in choices.items()}


class Supernet:
    """The model that sub-networks are cut from, loaded when a trial first needs it."""

    def __init__(self, params: Params, ctx: Context) -> None:
        self.params, self.ctx = params, ctx

    @cached_property
    def folder(self) -> Path:
        """The folder of its checkpoint."""
        return baseline.checkpoint(self.params, self.ctx)

    @cached_property
    def shape(self) -> Mapping[str, int]:
        """The whole model's size, by the fields of `subnetwork.Shape`."""
        from madl.compression import subnetwork

        return asdict(subnetwork.shape_of(self.whole))

    @cached_property
    def whole(self) -> "nn.Module":
        """The whole fine-tuned model."""
        from madl.training import models

        return models.load_checkpoint(self.folder)

    @cached_property
    def importance(self) -> "Importance":
        """The importance of its parts on `CALIBRATION_EXAMPLES` training sentences."""
        from madl.compression import subnetwork

        examples = baseline.load_splits(self.params).train
        some = range(min(CALIBRATION_EXAMPLES, len(examples)))
        return subnetwork.importance(self.whole, examples.batch(some))

    @property
    def bf16(self) -> bool:
        """Whether training multiplies in bfloat16, as it does where that is fast."""
        from madl.training import train

        return train.has_fast_bf16(self.ctx.device)

    def build(self, point: Point, *, with_dropout: bool = False) -> "nn.Module":
        """The sub-network at a point of the search space, untrained; other sizes are the model's.

        `with_dropout` keeps the fine-tuning's dropout. Attention is the plain one: on a CPU, the
        backward pass of the fused one takes half of a step.
        """
        from madl.compression import subnetwork

        sizes: Any = {name: point.get(name, size) for name, size in self.shape.items()}
        shape = subnetwork.Shape(**sizes)
        identities = [kind for kind in SQUARE_KINDS if point.get(kind) == IDENTITY]
        model: Any = subnetwork.cut(self.whole, shape, self.importance, identities)
        model.set_attn_implementation("eager")
        model.get_input_embeddings().weight.requires_grad_(False)
        return model if with_dropout else without_dropout_(model)

    # ---- a trial --------------------------------------------------------------------------------

    @property
    def trial_examples(self) -> "Encoded":
        """The training examples of a trial, drawn by `trial_draw`."""
        examples = baseline.load_splits(self.params).train
        count = min(baseline.integer(self.params, "trial_examples"), len(examples))
        draw = random.Random(baseline.integer(self.params, "trial_draw"))
        return examples.subset(draw.sample(range(len(examples)), count))

    def trained(self, point: Point) -> "nn.Module":
        """The sub-network at that point, trained as in a trial: one epoch of `trial_examples`."""
        return self._train(self.build(point), self.trial_examples, "trial_", {})

    def trial(self, point: Point) -> dict[str, Any]:
        """The sub-network after a trial: validation accuracy and loss, `parameters`; memoized."""

        def evaluate() -> dict[str, Any]:
            from madl.compression.size import num_parameters

            model = self.trained(point)
            judge = baseline.judge_on_validation
            judged = judge(model, self.params, self.ctx.device, bf16=self.bf16)
            return {**judged, "parameters": num_parameters(model)}

        return self._memoized(("trial", *TRIAL_FIELDS), point, evaluate)

    # ---- in full --------------------------------------------------------------------------------

    def trained_in_full(self, point: Point, learning_rate: float) -> "nn.Module":
        """The sub-network at that point after one epoch over `full_examples` sentences."""
        model = self.build(point, with_dropout=True)
        count = baseline.optional(self.params, "full_examples")
        examples = baseline.load_splits(self.params).train.first(count)
        return self._train(model, examples, "full_", {"full_learning_rate": learning_rate})

    def judged_in_full(
        self, point: Point, learning_rate: float, *, on_test: bool
    ) -> dict[str, Any]:
        """Evaluate `trained_in_full` in float32 on validation, and test if `on_test`; memoized."""
        judge = baseline.judge if on_test else baseline.judge_on_validation
        rate = {"full_learning_rate": learning_rate, "on_test": on_test}

        def evaluate() -> dict[str, Any]:
            return judge(self.trained_in_full(point, learning_rate), self.params, self.ctx.device)

        return self._memoized(("full", *FULL_FIELDS), {**point, **rate}, evaluate)

    # ---- both -----------------------------------------------------------------------------------

    def _train(
        self, model: "nn.Module", examples: "Encoded", prefix: str, further: Params
    ) -> "nn.Module":
        """Train a sub-network for an epoch by the parameters with that prefix; returns it."""
        from madl.training import train

        params = {**self.params, **further}
        recipe = baseline.training_recipe(params, prefix=prefix, epochs=1, bf16=self.bf16)
        recipe = replace(recipe, seed=baseline.integer(self.params, "trial_draw"))
        train.train(model, examples, recipe, device=self.ctx.device)
        return model

    def _memoized(
        self, names: tuple[str, ...], point: Point, evaluate: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The memoized `evaluate()`; `names` are its kind and further parameters of its key."""
        kind, *further = names
        key = {"kind": kind, **baseline.recipe(self.params, further), **point}
        return memoized(self.ctx, key, evaluate)


def without_dropout_(model: "nn.Module") -> "nn.Module":
    """Set the probability of every dropout layer to zero, in place; returns the model."""
    from torch import nn

    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return model
