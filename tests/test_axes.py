"""Axes of a search over parts that each take an option: the space, and mixes as its points."""

from itertools import product

import pytest

from madl.training.axes import Axes

SIZED = {
    f"{width} {place}": {"width": width, "place": place} for width in (8, 16) for place in (0, 1)
}


def test_a_mix_has_its_point_and_back():
    axes = Axes(parts=["a", "b"], options=SIZED, coin="full")
    assert axes.space == {
        **{"a in full": ("yes", "no"), "b in full": ("yes", "no")},
        **{"a width": [8, 16], "b width": [8, 16], "a place": [0, 1], "b place": [0, 1]},
    }
    for mix in product((*SIZED, "full"), repeat=2):
        point = axes.point(mix)
        assert point.keys() == axes.space.keys()
        assert axes.options_at(point) == [*mix]
    at_coin = axes.point(["full", "16 1"])
    assert (at_coin["a width"], at_coin["a place"]) == (8, 0)
    assert axes.options_at({**at_coin, "a width": 16, "a place": 1}) == ["full", "16 1"]
    with pytest.raises(ValueError, match="shorter"):
        axes.point(["full"])


def test_an_axis_without_a_choice_is_left_out():
    options = {"narrow": {"width": 4, "place": 0}, "wide": {"width": 8, "place": 0}}
    axes = Axes(parts=["a", "b"], options=options)
    assert axes.space == {"a width": [4, 8], "b width": [4, 8]}
    assert axes.point(["wide", "narrow"]) == {"a width": 8, "b width": 4}
    assert axes.options_at({"a width": 8, "b width": 4}) == ["wide", "narrow"]
    by_coin = Axes(parts=["a"], options={"narrow": {"width": 4}}, coin="full")
    assert by_coin.space == {"a in full": ("yes", "no")}
    assert [by_coin.options_at({"a in full": coin}) for coin in ("yes", "no")] == [
        ["full"],
        ["narrow"],
    ]
