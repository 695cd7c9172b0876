"""Descent on pairs of integers, such as the fraction bits of two formats, by a loss."""

import functools
from collections.abc import Callable, Iterable

Pair = tuple[int, int]


def descend(
    start: Pair,
    neighbours: Callable[[Pair], Iterable[Pair]],
    loss: Callable[[Pair], float],
    *,
    least_gain: float,
) -> Pair:
    """The pair from which no neighbour lowers the loss by `least_gain` (above 0) or more.

    It is reached by going to the best neighbour again and again. Each pair is evaluated once.
    """
    cached_loss = functools.cache(loss)
    while True:
        best = min(neighbours(start), key=cached_loss)
        if cached_loss(best) > cached_loss(start) - least_gain:
            return start
        start = best


def around(pair: Pair) -> list[Pair]:
    """The pair and its eight neighbours."""
    steps = (-1, 0, 1)
    return [(pair[0] + i, pair[1] + j) for i in steps for j in steps]
