"""The architecture searches' workbench: the fine-tuned model, and trials on what is cut out of it.

A trial cuts a sub-network (`compression.subnetwork`), trains it shortly and looks at validation
data. It is a function of its parameters, so it is evaluated once on a machine and then remembered,
whichever study comes by it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
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
TRIAL_FIELDS = (
    *("weights", "trial_examples", "trial_learning_rate", "trial_batch_size", "choose_examples"),
)
LINEAR, IDENTITY = "linear", "identity"
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


def space(config: Mapping[str, Any], detail: str, *, pooler: bool = True) -> Space:
    """The sizes to choose from, as parts of the model's own `BertConfig` fields.

    A model too small to offer a choice of a field is not searched along it. The pooler is the one
    layer that is square at every point, so it may be a Linear layer or an identity at every point.
    """
    choices: dict[str, list[Scalar]] = {}
    for name, parts in PARTS[detail].items():
        sizes = sorted({max(round(part * config[name]), 1) for part in parts})
        if len(sizes) > 1:
            choices[name] = [*sizes]
    return {**choices, **({"pooler": [LINEAR, IDENTITY]} if pooler else {})}


class Supernet:
    """The model that sub-networks are cut from, loaded when a trial first needs it."""

    def __init__(self, params: Params, ctx: Context) -> None:
        self.params, self.ctx = params, ctx

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
        """The sub-network at that point, before any training; `weights` may be `scratch`."""
        from madl.compression import subnetwork

        names = [field.name for field in fields(subnetwork.Shape)]
        shape = subnetwork.Shape(**{name: point.get(name, self.config[name]) for name in names})  # type: ignore[arg-type]
        model: Any = subnetwork.cut(self.whole, shape, self.importance)
        if point.get("pooler") == IDENTITY:
            subnetwork.to_identity_(model, ["bert.pooler.dense"])
        if self.params["weights"] == "scratch":
            subnetwork.start_over_(model, seed=int(self.params["seed"] or 0))
        else:  # a short training hardly moves what single words mean, and it costs half the step
            model.bert.embeddings.word_embeddings.weight.requires_grad_(False)
        return model

    def train(self, model: "nn.Module", examples: "Encoded", *, quantized: bool = False) -> None:
        """One pass over the examples, by the trials' recipe.

        Products are bfloat16 where that is fast; a quantized model's rules say that themselves.
        """
        from madl.training import train

        bf16 = train.has_fast_bf16(self.ctx.device) and not quantized
        recipe = baseline.training_recipe(self.params, prefix="trial_", epochs=1, bf16=bf16)
        train.train(model, examples, recipe, device=self.ctx.device)

    @property
    def trial_examples(self) -> "Encoded":
        return baseline.load_splits(self.params).train.first(
            int(self.params["trial_examples"] or 0)
        )

    def accuracy(self, model: "nn.Module", *, quantized: bool = False) -> float:
        """On the validation sentences that trials choose by."""
        from madl.training import train

        count = int(self.params["choose_examples"] or 0)
        some = baseline.load_splits(self.params).validation.first(count)
        bf16 = train.has_fast_bf16(self.ctx.device) and not quantized
        return train.evaluate(model, some, device=self.ctx.device, bf16=bf16).accuracy

    def remember(
        self, what: str, point: Point, evaluate: Callable[[], Mapping[str, Any]], *extra: str
    ) -> dict[str, Any]:
        """`evaluate()`, once for this point and these parameters; `extra` names further ones."""
        names = (*baseline.RECIPE_FIELDS, *TRIAL_FIELDS, *extra)
        known = {name: self.params.get(name) for name in names}
        return remembered(self.ctx, {"what": what, **known, **point}, evaluate)

    def trial(self, point: Point) -> dict[str, Any]:
        """Validation accuracy and size of that sub-network after the trial's training."""

        def evaluate() -> dict[str, Any]:
            from madl.compression.size import num_parameters

            model = self.build(point)
            self.train(model, self.trial_examples)
            return {"accuracy": self.accuracy(model), "parameters": num_parameters(model)}

        return self.remember("trial", point, evaluate)

    def judged(self, point: Point) -> dict[str, Any]:
        """The same sub-network, trained the same way again, on the test split."""

        def evaluate() -> dict[str, Any]:
            model = self.build(point)
            self.train(model, self.trial_examples)
            return baseline.judge_on_test(model, self.params, self.ctx.device)

        return self.remember("test", point, evaluate, "test_examples")
