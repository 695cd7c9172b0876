"""A format for the operands of a layer, as question 3.2's parameters and records have it.

Its text is a preset's name, `mxint4`, or the name with places, `log(4)@8,3`: fraction widths or
biases of exponents, here 8 for weights and 3 for inputs; the larger a place, the smaller
are the values. `@best` asks for the places of least validation loss. `fp32` leaves a layer alone.
"""

import re
from dataclasses import dataclass
from typing import Self

from madl.logbook.records import Params

BEST = "best"
FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class PlacedFormat:
    """A preset and its places (fraction widths or exponent biases) for weights and for inputs."""

    name: str  # of the preset, or `fp32`
    places: tuple[int, int] | str | None = None  # for weights; for inputs; or `best`

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse the text of a format; places that are not two numbers stay as they are."""
        name, _, at = text.partition("@")
        places = re.fullmatch(r"(-?[0-9]+),(-?[0-9]+)", at)
        return cls(name, (int(places[1]), int(places[2])) if places else at or None)

    @classmethod
    def of_params(cls, params: Params) -> Self:
        """The format that a case has for all layers."""
        return cls.read(f"{params['format']}@{params.get('at') or ''}")

    @property
    def at(self) -> str:
        """The places as text, "8,3" or "best"; empty without."""
        if isinstance(self.places, tuple):
            return ",".join(map(str, self.places))
        return self.places or ""

    @property
    def params(self) -> Params:
        """The parameters of a case that has this format for all layers."""
        return {"format": self.name, **({"at": self.at} if self.places else {})}

    def __str__(self) -> str:
        return f"{self.name}@{self.at}" if self.places else self.name
