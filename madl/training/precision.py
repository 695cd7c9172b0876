"""Models whose layers have number formats of their own: what that costs, and what it does.

A precision is a mapping from the names of Linear layers to formats: one for all operands, or one
for the weight (and the bias) and one for the input; None leaves a layer in FP32.

Units: bits per weight, averaged over all weights of the Linear layers.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import nn

from madl.compression.quantize import Rule, linear_layers, quantize_
from madl.compression.roles import role
from madl.formats.base import NumberFormat
from madl.logbook.records import Params, Scalar
from madl.training import baseline

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


def roles(names: Iterable[str]) -> list[str]:
    """The roles of these layers, each once, in their order."""
    return list(dict.fromkeys(role(name) for name in names))


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


def of_experiment(params: Params, names: Iterable[str]) -> dict[str, Scalar]:
    """The recipe of the baseline and the named parameters: what a cached value may depend on."""
    return {name: params[name] for name in (*baseline.RECIPE_FIELDS, *names) if name in params}
