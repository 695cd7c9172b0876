"""The architecture searches' workbench: the fine-tuned model, and trials on what is cut out of it.

A trial cuts a sub-network (`compression.subnetwork`), trains it shortly and looks at validation
data. It is a function of its parameters, so it is evaluated once on a machine and then remembered,
whichever study comes by it. The parameter `trial_draw` is part of them: which training sentences a
trial sees, and in which order. Trials train without dropout, as a few dozen steps do not need it.
In full, a sub-network takes a pass over all training sentences, with the dropout of the
fine-tuning, in an order of the same draw. Word embeddings are held in both.

Parameters: those of `baseline.drawn_params`, `trial_draw`, and for trials `trial_examples`,
`trial_learning_rate`, `trial_batch_size`; in full `full_examples` (None: all), `full_batch_size`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madl.logbook.experiment import Context
from madl.logbook.records import Params, Scalar
from madl.training import baseline
from madl.training.search import Point, Space, remembered

if TYPE_CHECKING:
    from torch import nn

    from madl.compression.subnetwork import Importance
    from madl.training.data import Encoded

CALIBRATION_EXAMPLES = 64
TRIAL_FIELDS = ("trial_draw", "trial_examples", "trial_learning_rate", "trial_batch_size")
FULL_FIELDS = ("trial_draw", "full_examples", "full_batch_size", "test_examples")
LINEAR, IDENTITY = "linear", "identity"
KINDS = ("query", "key", "value", "attention_output", "pooler")  # as `subnetwork.KINDS`
PARTS = {  # how many of the model's own a size may be
    "num_hidden_layers": (1 / 3, 2 / 3, 1),
    "num_attention_heads": (1 / 2, 1),
    "hidden_size": (1 / 2, 3 / 4, 1),
    "intermediate_size": (1 / 4, 1 / 2, 1),
}


def space(shape: Mapping[str, int]) -> Space:
    """The sizes to choose from, as parts of the model's own.

    A model too small to offer a choice of a field is not searched along it. Each kind of Linear
    layer that is square in the whole model may be an identity, in all layers at once.
    """
    choices: dict[str, list[Scalar]] = {}
    for name, parts in PARTS.items():
        sizes = sorted({max(round(part * shape[name]), 1) for part in parts})
        if len(sizes) > 1:
            choices[name] = [*sizes]
    return {**choices, **{kind: [LINEAR, IDENTITY] for kind in KINDS}}


def largest(choices: Space) -> Point:
    """The whole model: every size its own, every layer a Linear one."""
    return {name: LINEAR if LINEAR in values else values[-1] for name, values in choices.items()}


class Supernet:
    """The model that sub-networks are cut from, loaded when a trial first needs it."""

    def __init__(self, params: Params, ctx: Context) -> None:
        self.params, self.ctx = params, ctx

    @cached_property
    def folder(self) -> Path:
        return baseline.checkpoint(self.params, self.ctx)

    @cached_property
    def shape(self) -> Mapping[str, int]:
        """The whole model's size, in the fields of `subnetwork.Shape`."""
        from madl.compression import subnetwork

        return asdict(subnetwork.shape_of(self.whole))

    @cached_property
    def whole(self) -> "nn.Module":
        from madl.training import models

        return models.load_checkpoint(self.folder)

    @cached_property
    def importance(self) -> "Importance":
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
        """The sub-network at that point, untrained; with the fine-tuning's dropout or none.

        Its attention is the plain one, as on a CPU the fused one's way back takes half of a step.
        """
        from madl.compression import subnetwork

        sizes: Any = {name: point.get(name, size) for name, size in self.shape.items()}
        shape = subnetwork.Shape(**sizes)
        identities = [kind for kind in KINDS if point.get(kind) == IDENTITY]
        model: Any = subnetwork.cut(self.whole, shape, self.importance, identities)
        model.set_attn_implementation("eager")
        model.get_input_embeddings().weight.requires_grad_(False)
        return model if with_dropout else without_dropout_(model)

    # ---- a trial --------------------------------------------------------------------------------

    @property
    def trial_examples(self) -> "Encoded":
        """What a trial trains on: others for every draw."""
        examples = baseline.load_splits(self.params).train
        count, draw = self._int("trial_examples"), self._int("trial_draw")
        picked = random.Random(draw).sample(range(len(examples)), min(count, len(examples)))
        return replace(
            examples,
            token_ids=[examples.token_ids[i] for i in picked],
            labels=[examples.labels[i] for i in picked],
        )

    def trained(self, point: Point) -> "nn.Module":
        """The sub-network at that point after a trial's training: one pass, by its recipe."""
        return self._train(self.build(point), self.trial_examples, "trial_", {})

    def trial(self, point: Point) -> dict[str, Any]:
        """Validation loss and accuracy, and the size, of that sub-network after its training."""

        def evaluate() -> dict[str, Any]:
            from madl.compression.size import num_parameters

            model = self.trained(point)
            found = baseline.judge_on_validation(
                model, self.params, self.ctx.device, bf16=self.bf16
            )
            return {**found, "parameters": num_parameters(model)}

        return self._remember(("trial", *TRIAL_FIELDS), point, evaluate)

    # ---- in full --------------------------------------------------------------------------------

    def trained_in_full(self, point: Point, learning_rate: float) -> "nn.Module":
        """The sub-network at that point after one pass over all training sentences."""
        model = self.build(point, with_dropout=True)
        count = self.params["full_examples"]
        examples = baseline.load_splits(self.params).train
        examples = examples if count is None else examples.first(self._int("full_examples"))
        return self._train(model, examples, "full_", {"full_learning_rate": learning_rate})

    def judged_in_full(
        self, point: Point, learning_rate: float, *, on_test: bool
    ) -> dict[str, Any]:
        """What that is worth, in float32; the test split is met only where it may be."""
        judge = baseline.judge if on_test else baseline.judge_on_validation
        rate = {"full_learning_rate": learning_rate, "on_test": on_test}

        def evaluate() -> dict[str, Any]:
            return judge(self.trained_in_full(point, learning_rate), self.params, self.ctx.device)

        return self._remember(("full", *FULL_FIELDS), {**point, **rate}, evaluate)

    # ---- both -----------------------------------------------------------------------------------

    def _train(
        self, model: "nn.Module", examples: "Encoded", prefix: str, given: Params
    ) -> "nn.Module":
        from madl.training import train

        params = {**self.params, **given}
        recipe = baseline.training_recipe(params, prefix=prefix, epochs=1, bf16=self.bf16)
        recipe = replace(recipe, seed=self._int("trial_draw"))
        train.train(model, examples, recipe, device=self.ctx.device)
        return model

    def _remember(
        self, names: tuple[str, ...], point: Point, evaluate: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """`evaluate()`, once for this point and the parameters of these names."""
        what, *own = names
        known = {name: self.params.get(name) for name in (*baseline.RECIPE_FIELDS, *own)}
        return remembered(self.ctx, {"what": what, **known, **point}, evaluate)

    def _int(self, name: str) -> int:
        value = self.params[name]
        assert isinstance(value, int), (name, value)
        return value


def without_dropout_(model: "nn.Module") -> "nn.Module":
    """No dropout layer drops anything."""
    from torch import nn

    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return model
