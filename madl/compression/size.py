"""The bits that a model takes in storage: parts in their formats, pruned weights without zeros.

Units: bits. A weight with zeros is stored as whichever is smaller: all its values, or the values
that are not zero and one bit a position that says which they are.
Not handled: bits that an entropy coder would save, and what a format keeps per tensor.
"""

from torch import Tensor, nn

from madl.compression.quantize import QuantizedLinear
from madl.formats.base import NumberFormat

FLOAT_BITS = 32


def num_parameters(model: nn.Module) -> int:
    """The number of a model's parameters; a shared one counts once."""
    return sum(p.numel() for p in model.parameters())


def linear_bits(model: nn.Module) -> float:
    """The bits of all weights and biases of the Linear layers."""
    return sum(_layer_bits(m) for m in model.modules() if isinstance(m, nn.Linear))


def _layer_bits(layer: nn.Linear) -> float:
    rule = layer.rule if isinstance(layer, QuantizedLinear) else None
    bits = weight_bits(layer.weight, rule.weight if rule else None)
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison] - may be None
        bits += layer.bias.numel() * _value_bits(rule.bias if rule else None)
    return bits


def weight_bits(weight: Tensor, number_format: NumberFormat | None) -> float:
    """The bits of a weight: of all values, or of nonzero ones with a bitmap, if that is smaller."""
    bits, nonzero = _value_bits(number_format), int((weight != 0).sum())
    return min(weight.numel() * bits, nonzero * bits + weight.numel())


def _value_bits(number_format: NumberFormat | None) -> float:
    """Bits per value."""
    return FLOAT_BITS if number_format is None else number_format.bits
