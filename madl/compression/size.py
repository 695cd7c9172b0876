"""How many bits a model takes: what was quantized in its format, what was pruned without its zeros.

Units: bits. A weight with zeros is stored as whichever is smaller: all its values, or the values
that are not zero and one bit a position that says which they are.
Not handled: bits that an entropy coder would save, and what a format keeps per tensor.
"""

from torch import Tensor, nn

from madl.compression.quantize import QuantizedLinear
from madl.formats.base import NumberFormat

FLOAT_BITS = 32


def num_parameters(model: nn.Module) -> int:
    """All parameters, each counted once."""
    return sum(p.numel() for p in model.parameters())


def linear_bits(model: nn.Module) -> float:
    """Weights and biases of the Linear layers."""
    return sum(_layer_bits(m) for m in model.modules() if isinstance(m, nn.Linear))


def _layer_bits(layer: nn.Linear) -> float:
    rule = layer.rule if isinstance(layer, QuantizedLinear) else None
    bits = weight_bits(layer.weight, rule.weight if rule else None)
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison] - may be None
        bits += layer.bias.numel() * _value_bits(rule.bias if rule else None)
    return bits


def weight_bits(weight: Tensor, number_format: NumberFormat | None) -> float:
    """The smaller of dense storage and values with a bitmap of where they are."""
    each = _value_bits(number_format)
    kept = int((weight != 0).sum())
    return min(weight.numel() * each, kept * each + weight.numel())


def _value_bits(number_format: NumberFormat | None) -> float:
    return FLOAT_BITS if number_format is None else number_format.bits
