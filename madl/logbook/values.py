"""Values as they are printed: units, numbers in text, and what came of the test split.

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
    """What a value is in, and how it is shown; shares are stored as fractions."""

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
        """A margin, declared as a fraction or as a factor less one, as effects are stored."""
        return math.copysign(math.log1p(abs(value)), value) if self is Unit.TIMES else value


def number(value: int | float, *, sign: bool = False) -> str:
    """At most three significant digits, counts as counts, a true minus."""
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
    """A value and its interval, with as many decimals as three digits of the largest need."""
    largest = max((abs(value) for value in values), default=0.0)
    places = 0 if largest == 0 else min(max(2 - math.floor(math.log10(largest)), 0), 4)
    shown = (f"{value + 0.0:{'+' if sign else ''},.{places}f}" for value in values)
    return [text.replace("-", "−") for text in shown]


def scientific(value: Any) -> str:
    """A learning rate as one writes it: "3e-5", "1.6e-3"."""
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def superscript(exponent: int | str) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def counted(number: int, one: str) -> str:
    """A number of things: "1 row", "16 rows", "5 processes"."""
    many = f"{one}es" if one.endswith("s") else f"{one}s"
    return f"{number} {one if number == 1 else many}"


def per_cent(share: float) -> str:
    """A share as a reader sees an accuracy: one decimal."""
    return f"{100 * share:.1f} %".replace("-", "−")


class Interval(NamedTuple):
    """A confidence interval, of 95 % unless it says otherwise."""

    low: float
    high: float

    def of_share(self) -> "Interval":
        """What of it a share can be: that of few models may reach beyond."""
        return Interval(max(self.low, 0.0), min(self.high, 1.0))


_SEALED = (
    "a test value chooses nothing: choose by validation_loss on the tuning seed (r.tuning), and "
    "compare on test with compare(…)"
)


class Sealed:
    """What came of the test split: nothing can be chosen by it."""

    __slots__ = ()

    def _sealed(self, *_: object) -> NoReturn:
        raise TypeError(_SEALED)

    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = _sealed


@dataclass(frozen=True, slots=True, eq=False)
class Estimate(Sealed):
    """A value that can be printed, tabulated and drawn, and that nothing can be chosen by.

    Formats: `""` the value with its unit, `"+"` with a sign, `"i"` with its interval, `"+i"` both;
    Python's own, such as `".1%"`, act on the bare number.
    """

    _value: float
    interval: Interval | None
    unit: Unit
    n: int
    seeds: int = 1

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
            shown = (f"{100 * value:{'+' if sign else ''}.1f}" for value in values)
            return [text.replace("-", "−") for text in shown]
        if len(values) == 1:
            return [number(self.unit.shown(values[0]), sign=sign)]
        return numbers([self.unit.shown(value) for value in values], sign=sign)

    def __str__(self) -> str:
        return format(self)

    @property
    def plain(self) -> tuple[float, Interval | None]:
        """The value and its interval, as a reader sees them."""
        if self.unit is not Unit.TIMES:
            return self._value, self.interval
        drawn = None if self.interval is None else Interval(*map(math.exp, self.interval))
        return math.exp(self._value), drawn


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes(Sealed):
    """Which examples one evaluated model got right: to be compared, never to choose by.

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
        """With Wilson's score interval."""
        share = float(self._correct.mean())
        return Estimate(share, wilson(share, self.n), Unit.PERCENT, self.n)

    def differing(self, other: "Outcomes") -> int:
        """On how many of the same examples one is right and the other is not."""
        if self.examples != other.examples:
            raise ValueError("outcomes on different examples cannot be paired")
        return int((self._correct != other._correct).sum())

    def to_json(self) -> dict[str, Any]:
        bits = base64.b64encode(np.packbits(self._correct).tobytes()).decode()
        return {"n": self.n, "bits": bits, "examples": self.examples}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Outcomes":
        """Raises: ValueError: bits that are not the outcomes of `n` examples."""
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
    """Wilson's score interval of a share (1927, J. Am. Stat. Assoc. 22:209)."""
    z = float(ndtri((1 + LEVEL) / 2))
    shrink = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))
