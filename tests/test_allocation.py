"""Widths within a room of bits: exactly the cheapest, by an order, and narrowed at random."""

import random
from itertools import product

import pytest

from madl.compression.allocation import allocate, narrow_first, narrowed_at_random

WIDTHS = (4, 5, 6, 8)


def taken(widths, sizes):
    """The bits of all weights."""
    return sum(widths[layer] * size for layer, size in sizes.items())


def test_the_cheapest_widths_are_those_of_brute_force():
    rng = random.Random(0)
    for _ in range(60):
        sizes = {name: rng.choice((2, 6, 12, 24)) for name in "abcde"[: rng.randint(1, 5)]}
        costs = {name: {w: rng.random() * (w < 8) for w in WIDTHS} for name in sizes}
        room = rng.randint(4 * sum(sizes.values()), 8 * sum(sizes.values()) + 3)

        def total(widths, costs=costs):
            return sum(costs[layer][width] for layer, width in widths.items())

        every = (dict(zip(sizes, each)) for each in product(WIDTHS, repeat=len(sizes)))
        fitting = [widths for widths in every if taken(widths, sizes) <= room]
        chosen = allocate(costs, sizes, room)
        assert chosen in fitting
        assert [*chosen] == [*sizes]
        assert total(chosen) == pytest.approx(min(map(total, fitting)))
    with pytest.raises(ValueError, match="take 8 bits, and there are 7"):
        allocate({"a": {4: 0.0}}, {"a": 2}, 7)


def test_no_fewer_layers_of_an_order_fit_the_room_and_widths_of_all_orders_take_as_many_bits():
    sizes = {str(i): 192 if i % 6 < 4 else 768 for i in range(36)} | {"pooler": 192, "last": 1}
    layers, most, room = [*sizes], 0, 5 * sum(sizes.values())
    for seed in range(20):
        order = random.Random(seed).sample(layers, len(layers))
        widths = narrow_first(sizes, order, 6, 4, room)
        assert [*widths] == layers
        assert {*widths.values()} == {4, 6}
        assert taken(widths, sizes) <= room
        for layer, width in widths.items():  # none that is narrow could be wide
            assert width == 6 or taken({**widths, layer: 6}, sizes) > room
        most = max(most, taken(widths, sizes))
        assert taken(widths, sizes) >= most - 2  # of the smallest layer
    ends = [*narrow_first(sizes, layers, 6, 4, room).values()]
    assert ends[:12] == [4] * 12
    assert ends[-12:] == [6] * 12
    with pytest.raises(ValueError, match="the narrowest widths take"):
        narrow_first(sizes, layers, 6, 4, 4 * sum(sizes.values()) - 1)


def test_widths_over_the_room_lose_steps_until_they_fit_and_those_within_stay():
    sizes = {"a": 192, "b": 768, "c": 192, "d": 1}
    room, over = 5 * sum(sizes.values()), dict.fromkeys(sizes, 8)
    narrowed = [narrowed_at_random(over, sizes, WIDTHS, room, random.Random(i)) for i in range(9)]
    for widths in narrowed:
        assert room - 2 * 768 < taken(widths, sizes) <= room
        assert {*widths.values()} <= {*WIDTHS}
    assert len({tuple(widths.values()) for widths in narrowed}) > 1
    assert over == dict.fromkeys(sizes, 8)
    within = dict.fromkeys(sizes, 5)
    assert narrowed_at_random(within, sizes, WIDTHS, room, random.Random(0)) == within
    with pytest.raises(ValueError, match="the narrowest widths take"):
        narrowed_at_random(over, sizes, WIDTHS, room // 2, random.Random(0))
