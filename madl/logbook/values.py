"""Values as they are printed: units, numbers as text, and results on the test split.

An `Estimate` and `Outcomes` can be printed, drawn and compared, and nothing can be chosen by them.
Units: accuracies and effects are fractions, so 0.01 is a point; ratios of times are logarithms.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri  # scipy.stats takes long to import

ALPHA = 0.05
LEVEL = 1 - ALPHA


class Unit(StrEnum):
    """The unit of a value, and how it is shown; shares are stored as fractions."""

    POINTS = "points"
    PERCENT = "%"
    NATS = "nats"
    TIMES = "×"
    MILLISECONDS = "ms"
    BITS = "bits"

    def shown(self, value: float) -> float:
        """The stored value as a reader sees it: fractions per hundred, log ratios as ratios."""
        if self is Unit.TIMES:
            return math.exp(value)
        return 100 * value if self in (Unit.POINTS, Unit.PERCENT) else value

    def stored(self, value: float) -> float:
        """A margin as effects are stored: 0.05 stays 0.05; of times, it becomes log 1.05."""
        return math.copysign(math.log1p(abs(value)), value) if self is Unit.TIMES else value


def number(value: int | float, *, sign: bool = False) -> str:
    """A number as text: three significant digits at most, integers in full, a true minus sign."""
    shown = "+," if sign else ","
    if isinstance(value, int):
        return f"{value:{shown}}".replace("-", "−")
    value = round(float(f"{value:.3g}"), 6) + 0.0  # no minus before a nought
    exact = not value or not math.isfinite(value)
    places = 0 if exact else max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:{shown}.{places}f}"
    if places > 1:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")


def numbers(values: Sequence[float], *, sign: bool = False) -> list[str]:
    """Texts of a value and the ends of its interval, all rounded as the largest to three digits."""
    largest = max((abs(value) for value in values), default=0.0)
    places = 0 if largest == 0 else min(max(2 - math.floor(math.log10(largest)), 0), 4)
    return [fixed(value, places, sign=sign) for value in values]


def fixed(value: float, places: int, *, sign: bool = False) -> str:
    """A number with so many digits after the point, a true minus, and none before a nought."""
    return f"{value:{'+' if sign else ''}z,.{places}f}".replace("-", "−")


def scientific(value: Any) -> str:
    """A learning rate as one writes it: "3e-5", "1.6e-3"."""
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def superscript(exponent: int | str) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def pluralize(number: int, noun: str) -> str:
    """A number of things: "1 row", "16 rows", "5 processes"."""
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"


def per_cent(share: float) -> str:
    """A share (0…1) as text in per cent, with one decimal: "87.5 %"."""
    return f"{fixed(100 * share, 1)} %"


class Interval(NamedTuple):
    """A confidence interval, of 95 % unless it says otherwise."""

    low: float
    high: float

    def of_share(self) -> "Interval":
        """The interval cut to 0…1, for a share: that of few models may reach beyond."""
        return Interval(max(self.low, 0.0), min(self.high, 1.0))


_SEALED = (
    "a test value chooses nothing: choose by validation_loss on the tuning seed (r.tuning), and "
    "compare on test with compare(…)"
)


class Sealed:
    """A result on the test split: to order it, or to make it a number, raises TypeError."""

    __slots__ = ()

    def _sealed(self, *_: object) -> NoReturn:
        raise TypeError(_SEALED)

    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = _sealed


@dataclass(frozen=True, slots=True, eq=False)
class Estimate(Sealed):
    """A value that can be printed, tabulated and drawn, but not computed with or chosen by.

    `n` counts the examples (or other units) behind it, `seeds` the models; `each` holds the values
    of its models, processes or studies, for figures to draw.
    Formats: `""` the value with its unit, `"+"` with a sign, `"i"` with its interval, `"+i"` both;
    Python's own, such as `".1%"`, act on the bare number.
    """

    _value: float
    interval: Interval | None
    unit: Unit
    n: int
    seeds: int = 1
    each: tuple[float, ...] = ()

    _sealed = Sealed._sealed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _sealed
    __eq__ = _sealed  # type: ignore[assignment]
    __hash__ = _sealed  # type: ignore[assignment]
    __round__ = __neg__ = __abs__ = __index__ = __bool__ = _sealed

    def __format__(self, spec: str) -> str:
        sign = spec.startswith("+")
        if spec not in ("", "+", "i", "+i"):
            return format(self._value, spec)
        if not spec.endswith("i") or self.interval is None:
            return f"{self._digits([self._value], sign)[0]} {self.unit}"
        text, low, high = self._digits([self._value, *self.interval], sign)
        return f"{text} {self.unit} [{low}, {high}]"

    def _digits(self, values: Sequence[float], sign: bool) -> list[str]:
        if self.unit in (Unit.PERCENT, Unit.POINTS):
            return [fixed(100 * value, 1, sign=sign) for value in values]
        if len(values) == 1:
            return [number(self.unit.shown(values[0]), sign=sign)]
        return numbers([self.unit.shown(value) for value in values], sign=sign)

    def __str__(self) -> str:
        return format(self)

    @property
    def plain(self) -> tuple[float, Interval | None]:
        """The value and its interval as bare numbers: shares as fractions, log ratios as ratios."""
        interval = None if self.interval is None else Interval(*map(self._plain, self.interval))
        return self._plain(self._value), interval

    @property
    def bare(self) -> float:
        """The value as intervals have it: a share as a fraction, a ratio as its logarithm."""
        return self._value

    @property
    def plain_each(self) -> list[float]:
        """`each` as bare numbers."""
        return [*map(self._plain, self.each)]

    def _plain(self, value: float) -> float:
        return math.exp(value) if self.unit is Unit.TIMES else value


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes(Sealed):
    """The sentences that a model got right: to be compared, never to choose by.

    Shapes: correct (n,) of bool. `examples` is the fingerprint of the evaluated split: outcomes
    on different examples cannot be paired.
    """

    _correct: NDArray[np.bool_] = field(repr=False)
    examples: str

    @property
    def n(self) -> int:
        return len(self._correct)

    @property
    def accuracy(self) -> Estimate:
        """The share of right answers, with Wilson's score interval."""
        share = float(self._correct.mean())
        return Estimate(share, wilson(share, self.n), Unit.PERCENT, self.n)

    def differing(self, other: "Outcomes") -> int:
        """The number of examples that one model got right and the other wrong."""
        return int(self.apart(other)._correct.sum())

    def apart(self, other: "Outcomes") -> "Outcomes":
        """The examples that one model got right and the other wrong.

        Raises:
            ValueError: the two were evaluated on different examples.
        """
        if self.examples != other.examples:
            raise ValueError("outcomes on different examples cannot be paired")
        return Outcomes(self._correct != other._correct, self.examples)

    def to_json(self) -> dict[str, Any]:
        bits = base64.b64encode(np.packbits(self._correct).tobytes()).decode()
        return {"n": self.n, "bits": bits, "examples": self.examples}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Outcomes":
        """The outcomes that `to_json` wrote.

        Raises:
            ValueError: bits that are not the outcomes of `n` examples.
        """
        n, bits, examples = data["n"], data["bits"], data["examples"]
        if type(n) is not int or n < 1 or not all(isinstance(x, str) for x in (bits, examples)):
            raise ValueError("n is a positive number, bits and examples are texts")
        packed = np.frombuffer(base64.b64decode(bits, validate=True), dtype=np.uint8)
        if len(packed) != math.ceil(n / 8):
            raise ValueError(f"{len(packed)} bytes cannot be the outcomes of {n} examples")
        if np.unpackbits(packed)[n:].any():
            raise ValueError(f"there are bits beyond the {n} examples")
        correct = np.unpackbits(packed, count=n).astype(bool)
        return cls(correct, examples)


def wilson(share: float, n: int) -> Interval:
    """Wilson's score interval (95 %) of a share of `n` (1927, J. Am. Stat. Assoc. 22:209)."""
    z = float(ndtri((1 + LEVEL) / 2))
    shrink = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))
