"""Models whose layers have number formats of their own: what that costs, and what it does.

A precision is a mapping from the names of Linear layers to formats: one for all operands, or one
for the weight (and the bias) and one for the input; None leaves a layer in FP32. It is judged after
quantization alone (PTQ) unless it is trained on, so what it gives is a function of
the checkpoint and the mapping: nothing in it is random.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import copy
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from madl.compression.quantize import Rule, linear_layers, quantize_
from madl.formats.base import NumberFormat
from madl.logbook.records import Params, Scalar
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.train import Evaluation, evaluate, train

FULL_BITS = 32.0  # of a layer that is left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """A format for the weight and the bias of a layer, and one for its input."""

    weight: NumberFormat
    input: NumberFormat

    @property
    def bits(self) -> float:
        """Of a weight."""
        return self.weight.bits


LayerFormat = NumberFormat | Operands | None
Precision = Mapping[str, LayerFormat]


def layer_names(model: nn.Module) -> list[str]:
    """Every Linear layer, in the order of the model."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def kind(name: str) -> str:
    """What a layer is for, the same in every block: `attention.output`, `pooler`."""
    tail = re.split(r"\.\d+\.", name)[-1]
    return tail.removeprefix("bert.").removeprefix("attention.self.").removesuffix(".dense")


def kinds(names: Iterable[str]) -> list[str]:
    """The kinds of these layers, each once, in their order."""
    return list(dict.fromkeys(kind(name) for name in names))


def set_precision_(model: nn.Module, precision: Precision) -> nn.Module:
    """Give every Linear its format, whatever it had before; the weights are not touched.

    Formats that bfloat16 holds exactly are multiplied in bfloat16, which changes nothing but the
    order of a sum, and is faster.

    Raises:
        ValueError: a layer without an entry, or an entry without a layer.
    """
    names = layer_names(model)
    if set(names) != set(precision):
        wrong = ", ".join(sorted(set(names) ^ set(precision)))
        raise ValueError(f"a precision names every Linear layer, and no other: see {wrong}")
    quantize_(model, [_rule_of(name, precision[name]) for name in names])
    return model


def set_layer_(model: nn.Module, name: str, layer_format: LayerFormat) -> nn.Module:
    """Quantize one layer alone, the others keep what they have; returns what stood there."""
    before = model.get_submodule(name)
    quantize_(model, [_rule_of(name, layer_format)])
    return before


def _rule_of(name: str, layer_format: LayerFormat) -> Rule:
    if not isinstance(layer_format, Operands):
        return _rule(name, layer_format)
    weight, given = layer_format.weight, layer_format.input
    products = "bfloat16" if _is_exact(weight) and _is_exact(given) else "float32"
    return Rule(pattern=re.escape(name), weight=weight, bias=weight, input=given, products=products)


def _rule(name: str, number_format: NumberFormat | None) -> Rule:
    if number_format is None:
        return Rule(pattern=re.escape(name))
    products = "bfloat16" if _is_exact(number_format) else "float32"
    return Rule.uniform(number_format, pattern=re.escape(name), products=products)


@functools.cache
def _is_exact(number_format: NumberFormat) -> bool:
    """Whether bfloat16 holds it: known once, since all values of 16 bits take a while to list."""
    return number_format.exact_in_bf16


def uniform(model: nn.Module, layer_format: LayerFormat) -> dict[str, LayerFormat]:
    """The same format for every layer."""
    return dict.fromkeys(layer_names(model), layer_format)


def mean_bits(model: nn.Module, precision: Precision) -> float:
    """Bits per weight, each layer counted by its weights."""
    sizes = {
        name: layer.weight.numel() for name, layer in zip(layer_names(model), linear_layers(model))
    }
    bits = {name: f.bits if f is not None else FULL_BITS for name, f in precision.items()}
    return sum(sizes[name] * bits[name] for name in sizes) / sum(sizes.values())


def judge(model: nn.Module, precision: Precision, data: Encoded, device: str) -> Evaluation:
    """Quantize and evaluate."""
    return evaluate(set_precision_(model, precision), data, device=device)


def trained_on(
    model: nn.Module, precision: Precision, data: Encoded, params: Params, device: str
) -> nn.Module:
    """A copy in that precision, trained on (QAT) by the parameters `tune_…`, for a few steps."""
    return trained_between(model, lambda step: precision, data, params, device)


def trained_between(
    model: nn.Module,
    drawn: Callable[[int], Precision],
    data: Encoded,
    params: Params,
    device: str,
) -> nn.Module:
    """The same with a precision for every step, counted from 0: its weights then serve all."""
    tuned = set_precision_(copy.deepcopy(model), drawn(0))
    for_few_steps_(tuned)

    def move_on(step: int) -> None:
        set_precision_(tuned, drawn(step))

    recipe = baseline.training_recipe(params, prefix="tune_", epochs=1)
    train(tuned, data, recipe, device=device, after_step=move_on)
    return tuned


def for_few_steps_(model: Any) -> None:
    """Leave out dropout and hold the word embeddings of a Transformers model.

    A few dozen steps neither need the one nor move the other, which is half of all that an
    optimizer would visit.
    """
    model.get_input_embeddings().weight.requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0


def of_experiment(params: Params, names: Iterable[str]) -> dict[str, Scalar]:
    """The recipe of the baseline and the named parameters: what a cached value may depend on."""
    return {name: params[name] for name in (*baseline.RECIPE_FIELDS, *names) if name in params}
