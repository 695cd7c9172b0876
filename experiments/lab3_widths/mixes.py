"""Mixes, as question 3.1's parameters and records write them, for its study and its page.

A mix is a format for all Linear layers, "8 2 2", or one for each, in the model's order:
"6 5 3, 4 5 2, 32 float".
"""

from collections.abc import Mapping, Sequence

from experiments.lab3_widths import design
from madl.compression import roles
from madl.compression.allocation import Sizes, narrow_first
from madl.logbook.records import Scalar

HEAD = "head"  # of the layers that stand in no block


def read(mix: str) -> list[str]:
    """The formats of a mix, or those on offer to a layer."""
    return mix.split(", ")


def write(formats: Sequence[str]) -> str:
    return ", ".join(formats)


def width(number_format: str) -> int:
    """The bits a weight of a format."""
    return int(number_format.split()[0])


def by_layer(mix: str, layers: Sequence[str]) -> dict[str, str]:
    """Layer → format. Raises ValueError: neither one format nor as many as layers."""
    formats = read(mix)
    return dict(zip(layers, formats * (len(layers) if len(formats) == 1 else 1), strict=True))


def is_mixed(mix: str) -> bool:
    """Whether not all layers have the same format."""
    return len({*read(mix)}) > 1


def of_widths(widths: Mapping[str, int]) -> str:
    """The mix of four to eight bits with these widths by layer."""
    return write([design.FORMATS[bits] for bits in widths.values()])


def by_order(sizes: Sizes, order: Sequence[str], budget: Scalar) -> str:
    """The mix within the budget in which the first layers of an order are narrow, others wide."""
    wide, narrow = design.WIDE_BITS, design.NARROW_BITS
    return of_widths(narrow_first(sizes, order, wide, narrow, room(sizes, budget)))


def room(sizes: Sizes, budget: Scalar) -> int:
    """The bits that all weights together may take, if one may take the budget's on average."""
    return int(float(budget or 0) * sum(sizes.values()))


def block(layer: str) -> str:
    """The number of the encoder's block that a layer stands in, as text, or `HEAD`."""
    number = roles.block(layer)
    return HEAD if number is None else str(number)
