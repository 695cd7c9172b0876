"""Models whose layers each have a number format, and the bits that these take.

A precision is a mapping from the names of Linear layers to formats: one for all operands, or one
for the weight (and, if wished, the bias) and one for the input; None leaves a layer in FP32.

Units: bits per weight, averaged over all weights of the Linear layers.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from torch import nn

from madl.compression.quantize import Rule, named_linears, quantize_
from madl.compression.roles import role
from madl.formats.base import NumberFormat

FULL_BITS = 32.0  # per weight of a layer that is left in FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Two formats of a layer: one for its weight and bias, one for its input, or None for FP32."""

    weight: NumberFormat
    input: NumberFormat | None
    full_bias: bool = False  # leaves the bias in FP32

    @property
    def bits(self) -> float:
        """Bits per weight."""
        return self.weight.bits


LayerFormat = NumberFormat | Operands | None
Precision = Mapping[str, LayerFormat]


def layer_names(model: nn.Module) -> list[str]:
    """The names of all Linear layers, in the model's order."""
    return [*named_linears(model)]


def roles(names: Iterable[str]) -> list[str]:
    """The roles of layers with these names, each once, in the order of their first layers."""
    return list(dict.fromkeys(role(name) for name in names))


def set_precision_(model: nn.Module, precision: Precision) -> float:
    """Give every Linear its format, in place of what it had; the weights stay.

    Returns the mean bits of a weight.

    Raises:
        ValueError: a layer without an entry, or an entry without a layer.
    """
    names = layer_names(model)
    if set(names) != set(precision):
        wrong = ", ".join(sorted(set(names) ^ set(precision)))
        raise ValueError(f"a precision names every Linear layer, and no other: see {wrong}")
    quantize_(model, [_rule(name, precision[name]) for name in names])
    return mean_bits(model, precision)


def set_layer_(model: nn.Module, name: str, layer_format: LayerFormat) -> nn.Module:
    """Quantize one layer in place, leaving the others; returns the layer that it replaces."""
    before = model.get_submodule(name)
    quantize_(model, [_rule(name, layer_format)])
    return before


def _rule(name: str, layer_format: LayerFormat) -> Rule:
    """The rule that gives a format to the layer of that name."""
    f, pattern = layer_format, re.escape(name)
    if not isinstance(f, Operands):
        return Rule.operands(f, f, pattern=pattern)
    rule = Rule.operands(f.weight, f.input, pattern=pattern)
    return replace(rule, bias=None) if f.full_bias else rule


def uniform(model: nn.Module, layer_format: LayerFormat) -> dict[str, LayerFormat]:
    """A precision with the same format for every layer."""
    return dict.fromkeys(layer_names(model), layer_format)


def mean_bits(model: nn.Module, precision: Precision) -> float:
    """Bits per weight of a model in this precision."""
    sizes = {name: layer.weight.numel() for name, layer in named_linears(model).items()}
    bits = {name: f.bits if f is not None else FULL_BITS for name, f in precision.items()}
    return sum(sizes[name] * bits[name] for name in sizes) / sum(sizes.values())
