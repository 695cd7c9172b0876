"""Which fixed-point formats a search over layers may give each of them, and within which bits.

A choice for a layer is its width, and how many bits lie behind the point: of the weight (and bias),
and of the input. A space offers all layers the same choices. Its budget is the average of the
widths that it offers: what a blind draw spends.

Units: bits per weight, averaged over all weights of the Linear layers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from madl.logbook.records import Params, Scalar

PARTS_OF_A_NAT = 10_000  # records keep changes of a loss as whole numbers of these
Choice = tuple[int, int, int]  # width; behind the point: of weight and bias, of the input
Choices = Mapping[str, Choice]  # of every layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The values on offer, ascending; without `inputs`, an input takes its weight's."""

    widths: tuple[int, ...]
    fractions: tuple[int, ...]
    inputs: tuple[int, ...] = ()

    @classmethod
    def between(cls, narrow: Choice, wide: Choice) -> "Space":
        """All widths and fraction widths from one format to the other, inputs with their own."""
        ranges = (tuple(range(min(ends), max(ends) + 1)) for ends in zip(narrow, wide))
        return cls(**dict(zip(cls.__slots__, ranges)))

    @classmethod
    def of(cls, params: Params) -> "Space":
        """The space that a case's parameters name."""
        found = {name: numbers(params.get(name)) for name in cls.__slots__}
        return cls(**found)

    def params(self) -> dict[str, Scalar]:
        """As parameters of a case."""
        named = {name: getattr(self, name) for name in type(self).__slots__}
        return {name: " ".join(map(str, values)) for name, values in named.items() if values}

    @property
    def budget(self) -> float:
        """The bits per weight that a model may take."""
        return fmean(self.widths)

    def uniform(self) -> list[Choice]:
        """What all layers can be given within the budget."""
        offered = product(self.widths, self.fractions, self.inputs or (None,))
        return [(w, f, f if i is None else i) for w, f, i in offered if w <= self.budget]

    def around(self, width: int) -> list[Choice]:
        """Of that width, the fraction widths on offer and one more on either side of them."""
        weights, inputs = (
            range(max(min(values) - 1, 0), max(values) + 2)
            for values in (self.fractions, self.inputs or self.fractions)
        )
        return [(width, f, i) for f, i in product(weights, inputs)]

    def parameters(self, layers: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Of a search; what offers one value is none."""
        named = {"width": self.widths, "fraction": self.fractions, "input": self.inputs}
        return {
            f"{layer} {name}": values
            for layer in layers
            for name, values in named.items()
            if len(values) > 1
        }

    def choices(self, point: Mapping[str, Scalar], layers: Sequence[str]) -> dict[str, Choice]:
        """What a point of the search gives each layer."""

        def value(layer: str, name: str, offered: Sequence[int]) -> int:
            found = point.get(f"{layer} {name}", offered[0])
            assert isinstance(found, int)
            return found

        chosen: dict[str, Choice] = {}
        for layer in layers:
            fraction = value(layer, "fraction", self.fractions)
            given = value(layer, "input", self.inputs) if self.inputs else fraction
            chosen[layer] = (value(layer, "width", self.widths), fraction, given)
        return chosen


def numbers(text: Scalar) -> tuple[int, ...]:
    """`"8 16 32"` as a parameter; none for none."""
    return tuple(map(int, str(text or "").split()))


def written(choice: Choice) -> str:
    """A choice as a parameter."""
    return " ".join(map(str, choice))


def block(layer: str) -> int | None:
    """The number of the block that a layer stands in; None for the head, which comes after all."""
    found = re.search(r"\.(\d+)\.", layer)
    return int(found[1]) if found else None


def place(layer: str) -> str:
    """`block 3`, or what a layer of the head is called."""
    inside = block(layer)
    return kind(layer) if inside is None else f"block {inside}"


def kind(layer: str) -> str:
    """What a layer of BERT is for, the same in every block; a layer of the head stands alone."""
    tail = re.split(r"\.\d+\.", layer)[-1].removeprefix("bert.").removesuffix(".dense")
    known = {"attention.output": "output", "intermediate": "up", "output": "down"}
    return known.get(tail, tail.removeprefix("attention.self."))
