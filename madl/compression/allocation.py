"""Widths for the layers of a model that together fit into a room of bits.

A layer of n weights takes n times its width of the room. Widths map the names of layers to bits a
weight, in the order of `sizes`, which map them to numbers of weights.

Source: HAWQ-V2 and HAWQ-V3, arXiv:1911.03852 and 2011.10680: widths of the least summed cost.
"""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

Sizes = Mapping[str, int]
Widths = dict[str, int]


def allocate(costs: Mapping[str, Mapping[int, float]], sizes: Sizes, room: int) -> Widths:
    """The widths of which the summed costs are least, within `room` bits.

    `costs` are by layer and by width. A knapsack, solved exactly by dynamic programming over the
    bits above each layer's narrowest width, in units of the greatest common divisor of sizes.

    Raises:
        ValueError: the narrowest widths take more than `room`.
    """
    least = {layer: min(costs[layer]) for layer in sizes}
    unit = math.gcd(*sizes.values())
    units = _left(least, sizes, room) // unit
    best, choices = np.zeros(units + 1), dict[str, Any]()  # best: of the layers so far, by units
    for layer, size in sizes.items():
        options = np.full((len(costs[layer]), units + 1), math.inf)
        for option, (width, cost) in enumerate(costs[layer].items()):
            taken = (width - least[layer]) * size // unit
            if taken <= units:
                options[option, taken:] = best[: units + 1 - taken] + cost
        choices[layer] = options.argmin(0)
        best = options.min(0)
    widths: Widths = {}
    for layer in reversed(choices):
        widths[layer] = [*costs[layer]][choices[layer][units]]
        units -= (widths[layer] - least[layer]) * sizes[layer] // unit
    return {layer: widths[layer] for layer in sizes}


def narrow_first(sizes: Sizes, order: Sequence[str], wide: int, narrow: int, room: int) -> Widths:
    """Widths by which the first layers of an order are narrow, all others wide.

    Layers become narrow until all fit the room. Then those that still fit become wide again, the
    last ones first, so that widths by any order take about as many bits.

    Raises:
        ValueError: all layers narrow take more than `room`.
    """
    _left(dict.fromkeys(sizes, narrow), sizes, room)
    widths = dict.fromkeys(sizes, wide)
    left = room - wide * sum(sizes.values())
    saved = {layer: (wide - narrow) * size for layer, size in sizes.items()}
    for layer in order:
        if left < 0:
            widths[layer] = narrow
            left += saved[layer]
    for layer in reversed(order):
        if widths[layer] == narrow and saved[layer] <= left:
            widths[layer] = wide
            left -= saved[layer]
    return widths


def narrowed_at_random(
    widths: Mapping[str, int],
    sizes: Sizes,
    offered: Collection[int],
    room: int,
    rng: random.Random,
) -> Widths:
    """Widths of which layers drawn at random lose a step each, until all fit the room.

    A step leads to the next narrower of the widths that are offered.

    Raises:
        ValueError: the narrowest width for all layers takes more than `room`.
    """
    _left(dict.fromkeys(sizes, min(offered)), sizes, room)
    own = dict(widths)
    while sum(own[layer] * size for layer, size in sizes.items()) > room:
        layer = rng.choice([layer for layer, width in own.items() if width > min(offered)])
        own[layer] = max(width for width in offered if width < own[layer])
    return own


def _left(widths: Mapping[str, int], sizes: Sizes, room: int) -> int:
    """The bits that these widths leave of the room. Raises ValueError: they do not fit."""
    left = room - sum(widths[layer] * size for layer, size in sizes.items())
    if left < 0:
        raise ValueError(f"the narrowest widths take {room - left} bits, and there are {room}")
    return left
