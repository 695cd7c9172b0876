"""The architecture searches' workbench: the fine-tuned model, and trials on what is cut out of it.

A trial cuts a sub-network (`compression.subnetwork`), trains it shortly and looks at validation
data. It is a function of its parameters, so it is evaluated once on a machine and then remembered,
whichever study comes by it. The parameter `trial_draw` is part of them: which training sentences a
trial sees, and in which order. Trials train without dropout and hold the word embeddings, as a few
dozen steps neither need the one nor move the other.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
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
    from madl.training.train import Evaluation

CALIBRATION_EXAMPLES = 64
TRIAL_FIELDS = (
    *("trial_examples", "trial_learning_rate", "trial_batch_size", "choose_examples", "trial_draw"),
)
LINEAR, IDENTITY = "linear", "identity"
KINDS = ("query", "key", "value", "attention_output", "pooler")  # as `subnetwork.KINDS`
PARTS = {  # how many of the model's own a size may be
    "coarse": {
        "num_hidden_layers": (1 / 3, 2 / 3, 1),
        "num_attention_heads": (1 / 2, 1),
        "hidden_size": (1 / 2, 3 / 4, 1),
        "intermediate_size": (1 / 4, 1 / 2, 1),
    },
    "compact": {
        "num_hidden_layers": (1 / 3, 2 / 3, 1),
        "num_attention_heads": (1 / 2, 1),
        "hidden_size": (3 / 4, 1),
        "intermediate_size": (1 / 4, 1 / 2, 1),
    },
    "fine": {
        "num_hidden_layers": (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1),
        "num_attention_heads": (1 / 4, 1 / 2, 1),
        "hidden_size": (1 / 2, 3 / 4, 1),
        "intermediate_size": (1 / 4, 1 / 2, 1),
    },
}


def space(config: Mapping[str, Any], detail: str, *, identities: bool = True) -> Space:
    """The sizes to choose from, as parts of the model's own `BertConfig` fields.

    A model too small to offer a choice of a field is not searched along it. Each kind of Linear
    layer that is square in the whole model may be an identity, in all layers at once, if that is
    part of the search.
    """
    choices: dict[str, list[Scalar]] = {}
    for name, parts in PARTS[detail].items():
        sizes = sorted({max(round(part * config[name]), 1) for part in parts})
        if len(sizes) > 1:
            choices[name] = [*sizes]
    return {**choices, **({kind: [LINEAR, IDENTITY] for kind in KINDS} if identities else {})}


def of_trials(params: Params) -> Params:
    """A case's parameters as trials have them.

    The searches' cases call a trial's draw `draw`, which elsewhere deals the splits; here the
    splits are the same in all trials.
    """
    return {{"draw": "trial_draw"}.get(name, name): value for name, value in params.items()}


class Supernet:
    """The model that sub-networks are cut from, loaded when a trial first needs it."""

    def __init__(self, params: Params, ctx: Context) -> None:
        self.params, self.ctx = of_trials(params), ctx

    @cached_property
    def folder(self) -> Path:
        return baseline.checkpoint(self.params, self.ctx)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return json.loads((self.folder / "config.json").read_text())

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

    def build(self, point: Point) -> "nn.Module":
        """The sub-network at that point, before any training.

        Its attention is the plain one, as on a CPU the fused one's way back takes half of a step.
        """
        from torch import nn

        from madl.compression import subnetwork

        names = [field.name for field in fields(subnetwork.Shape)]
        shape = subnetwork.Shape(**{name: point.get(name, self.config[name]) for name in names})  # type: ignore[arg-type]
        identities = [kind for kind in KINDS if point.get(kind) == IDENTITY]
        model: Any = subnetwork.cut(self.whole, shape, self.importance, identities)
        model.set_attn_implementation("eager")
        model.bert.embeddings.word_embeddings.weight.requires_grad_(False)
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        return model

    def with_params(self, **changes: Scalar) -> "Supernet":
        """The same model under other parameters, of the trials' training for one."""
        other = copy.copy(self)  # with what is loaded already
        other.params = {**self.params, **changes}
        return other

    @property
    def trial_examples(self) -> "Encoded":
        """What a trial trains on: others for every draw, without a draw the first."""
        examples = baseline.load_splits(self.params).train
        count, draw = int(self.params["trial_examples"] or 0), self.params.get("trial_draw")
        if draw is None:
            return examples.first(count)
        picked = random.Random(draw).sample(range(len(examples)), min(count, len(examples)))
        return replace(
            examples,
            token_ids=[examples.token_ids[i] for i in picked],
            labels=[examples.labels[i] for i in picked],
        )

    def trained(self, point: Point) -> "nn.Module":
        """The sub-network at that point after a trial's training: one pass, by its recipe."""
        from madl.training import train

        model, draw = self.build(point), self.params.get("trial_draw")
        recipe = baseline.training_recipe(self.params, prefix="trial_", epochs=1, bf16=self.bf16)
        recipe = recipe if draw is None else replace(recipe, seed=int(draw))
        train.train(model, self.trial_examples, recipe, device=self.ctx.device)
        return model

    @property
    def bf16(self) -> bool:
        """Whether trials multiply in bfloat16, where that is fast."""
        from madl.training import train

        return train.has_fast_bf16(self.ctx.device)

    def trial(self, point: Point) -> dict[str, Any]:
        """Validation accuracy and loss, and the size, of that sub-network after its training."""

        def evaluate() -> dict[str, Any]:
            from madl.compression.size import num_parameters

            model = self.trained(point)
            found = self._on_validation(model)
            size = num_parameters(model)
            return {"accuracy": found.accuracy, "loss": found.loss, "parameters": size}

        return self._remember("trial", point, evaluate)

    def judged(self, point: Point) -> dict[str, Any]:
        """The same sub-network, trained the same way again, on the test split.

        Under `validation`, what it does on the sentences that trials choose by.
        """

        def evaluate() -> dict[str, Any]:
            model = self.trained(point)
            chosen_by = self._on_validation(model)
            return {
                **baseline.judge_on_test(model, self.params, self.ctx.device, bf16=self.bf16),
                "validation": _sealable(chosen_by),
            }

        return self._remember("test", point, evaluate, "test_examples")

    def _on_validation(self, model: "nn.Module") -> "Evaluation":
        """On the sentences that trials choose by."""
        from madl.training import train

        count = int(self.params["choose_examples"] or 0)
        some = baseline.load_splits(self.params).validation.first(count)
        return train.evaluate(model, some, device=self.ctx.device, bf16=self.bf16)

    def _remember(
        self, what: str, point: Point, evaluate: Callable[[], Mapping[str, Any]], *extra: str
    ) -> dict[str, Any]:
        """`evaluate()`, once for this point and these parameters; `extra` names further ones."""
        names = (*baseline.RECIPE_FIELDS, *TRIAL_FIELDS, *extra)
        known = {name: self.params.get(name) for name in names}
        return remembered(self.ctx, {"what": what, **known, **point}, evaluate)


def _sealable(found: "Evaluation") -> dict[str, Any]:
    """Validation outcomes as a record keeps those of the test split, to be compared likewise."""
    import numpy as np

    from madl.logbook.stats import Outcomes

    examples = f"the first {len(found.correct)} of validation"
    outcomes = Outcomes(np.array(found.correct), examples)
    return {"accuracy": found.accuracy, "outcomes": outcomes.to_json()}
