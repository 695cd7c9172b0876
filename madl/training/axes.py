"""The axes of a search in which each of several parts, such as layers, takes one of a few options.

An option has a value on each axis: a number format has a width and a place of its point. One more
option, such as full precision, may be decided by a coin of its own, so that a search draws it as
often as not, however many options there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from madl.logbook.records import Scalar
from madl.training.search import Point, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Axes for every part; one without a choice is left out of the space.

    `options` map an option to its values by axis, alike in axes; no two have equal values. `coin`
    is the option beside them that a coin decides, or None.
    """

    parts: Sequence[str]
    options: Mapping[str, Mapping[str, Scalar]]
    coin: str | None = None

    @property
    def space(self) -> Space:
        """Every part's coin, then the axes one by one, each for every part."""
        space: dict[str, Sequence[Scalar]] = {}
        if self.coin is not None:
            space |= {self._coin_of(part): ("yes", "no") for part in self.parts}
        for axis in next(iter(self.options.values())):
            values = [*dict.fromkeys(option[axis] for option in self.options.values())]
            if len(values) > 1:
                space |= {f"{part} {axis}": values for part in self.parts}
        return space

    def options_at(self, point: Point) -> list[str]:
        """The option of each part at a point of the space."""
        return [self._option_at(part, point) for part in self.parts]

    def _option_at(self, part: str, point: Point) -> str:
        if self.coin is not None and point[self._coin_of(part)] == "yes":
            return self.coin
        return next(
            option
            for option, values in self.options.items()
            if all(point.get(f"{part} {axis}", value) == value for axis, value in values.items())
        )

    def point(self, options: Sequence[str]) -> Point:
        """The point of the space at which the parts have these options.

        Where the coin decides, the axes have the values of the first option.
        """
        point: dict[str, Scalar] = {}
        for part, option in zip(self.parts, options, strict=True):
            is_coin = option == self.coin
            values = self.options[next(iter(self.options)) if is_coin else option]
            point[self._coin_of(part)] = "yes" if is_coin else "no"
            point |= {f"{part} {axis}": value for axis, value in values.items()}
        return {name: point[name] for name in self.space}

    def _coin_of(self, part: str) -> str:
        return f"{part} in {self.coin}"
