"""Numbers only: estimates with intervals, and paired tests of a difference against any boundary.

A comparison is of A with B: its effect is A minus B, and it can be asked how surprising the data
were if the truth lay at some boundary. `claims` asks, and makes verdicts of the answers.

* **Two models** (one seed): the examples are random. McNemar's exact test where the boundary is
  zero, Tango's score elsewhere.
* **Two methods** (several seeds): seeds and examples are both random. A mixed model for fully
  crossed data, with Hillis' degrees of freedom: the analysis of readers × cases in radiology.
* **Means** of paired values (losses, studies), and **times**, whose ratio is compared on the log
  scale between processes: the paired t test.

Sources: Tango 1998, Statistics in Medicine 17:891; McNemar 1947; Obuchowski & Rockette 1995 and
Hillis 2007, Statistics in Medicine 26:596; Holm 1979, Scand. J. Statistics 6:65.
Units: accuracies and effects are fractions, so 0.01 is a point; ratios of times are logarithms.
"""

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit  # scipy.stats takes long to import

from madl.errors import MadlError
from madl.machine.lint import CONTENDED

ALPHA = 0.05
POWER = 0.80
WITH_POWER = f" beside the page's other claims, with {100 * POWER:g} % power"
LEVEL = 1 - ALPHA
Z = float(ndtri(1 - ALPHA / 2))


class Unit(StrEnum):
    """What a value is in, and how it is shown; shares are stored as fractions."""

    POINTS = "points"
    PERCENT = "%"
    NATS = "nats"
    TIMES = "×"
    SECONDS = "s"
    MILLISECONDS = "ms"
    BITS = "bits"
    STEPS = "steps"
    CORRELATION = "ρ"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise MadlError(f"unknown unit {value!r}; known: {', '.join(cls)}")

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


def numbers(values: Sequence[float], *, sign: bool = False, places: int | None = None) -> list[str]:
    """A value and its interval, with as many decimals as three digits of the largest need."""
    largest = max((abs(value) for value in values), default=0.0)
    if places is None:
        places = 0 if largest == 0 else min(max(2 - math.floor(math.log10(largest)), 0), 4)
    shown = (f"{value + 0.0:{'+' if sign else ''},.{places}f}" for value in values)
    return [text.replace("-", "−") for text in shown]


def superscript(exponent: int | str) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def counted(number: int, one: str) -> str:
    """A number of things: "1 row", "16 rows", "5 processes"."""
    many = f"{one}es" if one.endswith("s") else f"{one}s"
    return f"{number} {one if number == 1 else many}"


def per_cent(share: float) -> str:
    """A share as a reader sees an accuracy: one decimal."""
    return f"{100 * share:.1f} %".replace("-", "−")


def listed(names: Sequence[object]) -> str:
    """In a sentence: "a, b and c"."""
    *most, last = [*map(str, names)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def span(values: Iterable[float]) -> str:
    """From the least to the largest as they are shown: "8", or "7 to 9"."""
    found = sorted(values)
    low, high = number(found[0]), number(found[-1])
    return low if low == high else f"{low} to {high}"


class Interval(NamedTuple):
    """A confidence interval, of 95 % unless it says otherwise."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def of_share(self) -> "Interval":
        """What of it a share can be: that of few models may reach beyond."""
        return Interval(max(self.low, 0.0), min(self.high, 1.0))


_SEALED = (
    "a test value chooses nothing: choose on validation with best(records, …), and compare on test "
    "with compare(…)"
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

    def columns(self, name: str) -> dict[str, float | None]:
        """For a table of data: the value and its interval, as a reader sees them."""
        low, high = self.interval or (None, None)
        shown = {name: self._value, f"{name} low": low, f"{name} high": high}
        if self.unit is not Unit.TIMES:
            return shown
        return {key: None if v is None else math.exp(v) for key, v in shown.items()}


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


class Tails(NamedTuple):
    """How surprising the data are if the truth is at, or beyond, a boundary on one side of it."""

    above: float  # p against "the truth is at most the boundary"
    below: float  # p against "the truth is at least the boundary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A minus B: the effect, its error, and what it would take to decide.

    `tails` gives the one-sided p values at a boundary. `blocked` says why nothing may be read from
    it (a crowded machine), whatever the numbers are.
    """

    effect: float
    error: float  # standard error of the effect
    tails: Callable[[float], Tails]
    interval_at: Callable[[float], Interval]  # of a given level, 0.95 for one
    unit: Unit
    drawn: str  # what was drawn again, with its number: "2,000 test examples of 1 model"
    test: str
    needs: Callable[[float, float], str]  # to decide an effect so far from its boundary, at a level
    blocked: str = ""
    redraw: "Redraw | None" = None  # the same on data whose true effect is another; for `nulls`

    @property
    def interval(self) -> Interval:
        return self.interval_at(LEVEL)

    def estimate(self, n: int = 0) -> Estimate:
        return Estimate(self.effect, self.interval, self.unit, n)


Redraw = Callable[[np.random.Generator, float], Comparison]


def wilson(share: float, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a share (1927, J. Am. Stat. Assoc. 22:209)."""
    z = float(ndtri((1 + level) / 2))
    shrink = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))


# ---- accuracies ---------------------------------------------------------------------------------


def compare(a: Sequence[Outcomes], b: Sequence[Outcomes]) -> Comparison:
    """A minus B, one entry a seed, the same seeds and examples on both sides.

    Raises:
        ValueError: other examples, or another number of seeds, on the two sides.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"need the same seeds on both sides, got {len(a)} and {len(b)}")
    if len({o.examples for o in (*a, *b)}) > 1:
        raise ValueError("outcomes on different examples cannot be paired")
    return _compare_models(a[0], b[0]) if len(a) == 1 else _compare_methods(a, b)


def accuracy(outcomes: Sequence[Outcomes]) -> Estimate:
    """Of this model, or of the method where there are several seeds."""
    if len(outcomes) == 1:
        return outcomes[0].accuracy
    made = _compare_methods(outcomes, [_all_wrong(one) for one in outcomes])
    interval = made.interval.of_share()
    return Estimate(made.effect, interval, Unit.PERCENT, outcomes[0].n, len(outcomes))


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Of one quantity of several trained models, as sealed as they are; one alone as it is."""
    if len(estimates) == 1:
        return estimates[0]
    mean = float(np.mean([one._value for one in estimates]))
    return Estimate(mean, None, estimates[0].unit, estimates[0].n, len(estimates))


def _compare_models(a: Outcomes, b: Outcomes) -> Comparison:
    only_a = int((a._correct & ~b._correct).sum())
    only_b = int((b._correct & ~a._correct).sum())
    n, effect, discordant = a.n, (only_a - only_b) / a.n, (only_a + only_b) / a.n
    # With no discordant pair at all, the error is that of one pair more: it is not zero.
    error = math.sqrt(max(discordant - effect**2, 1 / n) / n)
    return Comparison(
        effect=effect,
        error=error,
        tails=lambda boundary: paired_tails(only_a, only_b, n, boundary),
        interval_at=lambda level: paired_interval(only_a, only_b, n, level),
        unit=Unit.POINTS,
        drawn=f"{n:,} test examples of 1 model on each side",
        test="exact McNemar",
        needs=lambda distance, level: more(n, error, distance, level, "test examples"),
    )


def paired_tails(only_a: int, only_b: int, n: int, boundary: float) -> Tails:
    """One-sided p values of A minus B at a boundary: Tango's score, and McNemar's exact at zero."""
    score = _tango_score(only_a, only_b, n, boundary)
    above, below = float(ndtr(-score)), float(ndtr(score))
    if boundary != 0:
        return Tails(above, below)
    discordant = only_a + only_b
    exact = _binomial_tails(only_a, discordant, 0.5) if discordant else Tails(1.0, 1.0)
    return Tails(*map(max, (above, below), exact))


def _binomial_tails(successes: int, n: int, p: float) -> Tails:
    from scipy.stats import binom

    return Tails(float(binom.sf(successes - 1, n, p)), float(binom.cdf(successes, n, p)))


def _tango_score(only_a: int, only_b: int, n: int, delta: float) -> float:
    """Standardized distance of the observed difference, A minus B, from `delta`."""
    x = 2 * n
    y = -only_a - only_b + (2 * n - only_a + only_b) * delta
    z = -only_b * delta * (1 - delta)
    q = (math.sqrt(max(y * y - 4 * x * z, 0.0)) - y) / (2 * x)  # only-B rate under delta
    variance = n * (2 * q + delta * (1 - delta))
    distance = only_a - only_b - n * delta
    if distance == 0:
        return 0.0
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def paired_interval(only_a: int, only_b: int, n: int, level: float = LEVEL) -> Interval:
    """Tango's score interval for the difference of two paired proportions, A minus B."""
    z = float(ndtri((1 + level) / 2))
    effect, edge = (only_a - only_b) / n, 1 - 1e-9

    def beyond(delta: float) -> float:
        return min(max(_tango_score(only_a, only_b, n, delta), -1e9), 1e9)

    low = _root(lambda d: beyond(d) - z, -edge, effect) if effect > -edge else -1.0
    high = _root(lambda d: beyond(d) + z, effect, edge) if effect < edge else 1.0
    return Interval(low, high)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    found: Any = brentq(f, low, high)  # its type depends on an option we do not use
    return float(found)


def _compare_methods(a: Sequence[Outcomes], b: Sequence[Outcomes]) -> Comparison:
    difference = np.stack([x._correct for x in a]).astype(float) - np.stack(
        [y._correct for y in b]
    ).astype(float)  # (seeds, examples)
    if bool((difference == difference[0]).all()):
        return _compare_models(a[0], b[0])  # every seed gave the same: there is one pair of models
    return _crossed(difference, "training seeds")


Groups = Sequence[Sequence[Outcomes]]  # several models of each unit of replication


def compare_groups(a: Groups, b: Groups, *, of: str) -> Comparison:
    """A minus B of several pairs of models in each group, which are averaged within it.

    `of` names the groups, two or more, as what was drawn again: "shapes of 1 model".

    Raises:
        ValueError: other examples, or another number of models, on the two sides.
    """
    difference = _by_group(a, b, of)

    def redraw(generator: np.random.Generator, effect: float) -> Comparison:
        """The sides of each group exchanged at random, and shifted."""
        signs = generator.choice((-1.0, 1.0), (len(difference), 1))
        return _crossed(signs * (difference - difference.mean()) + effect, of)

    if not difference.any():  # the same models stand on both sides
        return replace(_compare_models(a[0][0], b[0][0]), redraw=redraw)
    return replace(_crossed(difference, of), redraw=redraw)


def group_accuracy(groups: Sequence[Sequence[Outcomes]], *, of: str) -> Estimate:
    """Mean accuracy of such groups."""
    made = compare_groups(groups, [[_all_wrong(o) for o in group] for group in groups], of=of)
    interval = made.interval.of_share()
    return Estimate(made.effect, interval, Unit.PERCENT, groups[0][0].n, len(groups))


def compare_leads(
    seen: tuple[Groups, Groups], tested: tuple[Groups, Groups], *, of: str
) -> Comparison:
    """By how much more A leads B on validation than on test, over the same pairs of models.

    What a group has of its own on both splits cancels; single examples do not, nor do the two
    samples of them, which the groups share.

    Raises:
        ValueError: as `compare_groups`.
    """
    splits = [_by_group(*sides, of) for sides in (seen, tested)]
    parts = [_parts(difference) for difference in splits]
    more_seen = parts[0].by_unit - parts[1].by_unit
    single = sum(part.rest_ms / difference.shape[1] for part, difference in zip(parts, splits))
    of_a_unit = max(float(more_seen.var(ddof=1)), single)
    return _of_units(
        float(more_seen.mean()),
        units=len(more_seen),
        of_a_unit=of_a_unit,
        of_examples=sum(part.of_examples for part in parts),
        of=of,
        examples=f"{splits[0].shape[1]:,} validation and {splits[1].shape[1]:,} test examples",
        test="examples of two splits, all random",
    )


def _by_group(a: Groups, b: Groups, of: str) -> NDArray[np.float64]:
    """A minus B of each group and example (groups, examples), each the mean of its models."""
    every = [o for side in (a, b) for group in side for o in group]
    if [len(group) for group in a] != [len(group) for group in b] or len(a) < 2:
        raise ValueError(f"need the same two or more {of} on both sides")
    if len({o.examples for o in every}) > 1:
        raise ValueError("outcomes on different examples cannot be paired")
    sides = [np.stack([np.mean([o._correct for o in g], axis=0) for g in side]) for side in (a, b)]
    return sides[0] - sides[1]


class _Parts(NamedTuple):
    """Of differences (units, examples): means, the residual mean square, the variance of the whole
    mean that comes of the examples."""

    by_unit: NDArray[np.float64]
    rest_ms: float
    of_examples: float


def _parts(difference: NDArray[np.float64]) -> _Parts:
    units, n = difference.shape
    by_unit, by_example = difference.mean(1), difference.mean(0)
    rest = difference - by_unit[:, None] - by_example[None, :] + difference.mean()
    rest_ms = float((rest**2).sum()) / ((units - 1) * (n - 1))
    example_ms = units * float(by_example.var(ddof=1))
    return _Parts(by_unit, rest_ms, max(example_ms - rest_ms, 0.0) / (units * n))


def _crossed(difference: NDArray[np.float64], of: str) -> Comparison:
    """Mean of A minus B over units × examples, both random; difference (units, examples)."""
    units, n = difference.shape
    by_unit, rest_ms, of_examples = _parts(difference)
    return _of_units(
        float(difference.mean()),
        units=units,
        # By chance a few units can agree better than the residual noise allows. Hillis' test takes
        # that at face value and rejects 6 % of true nulls at three; this floor keeps it below 5.
        of_a_unit=max(float(by_unit.var(ddof=1)), rest_ms / n),
        of_examples=of_examples,
        of=of,
        examples=f"{n:,} test examples",
        test="examples, both random",
    )


def _of_units(
    effect: float,
    *,
    units: int,
    of_a_unit: float,
    of_examples: float,
    of: str,
    examples: str,
    test: str,
) -> Comparison:
    """A mean over units, whose variance is that of a unit over their number, and the examples'."""
    variance = of_a_unit / units + of_examples
    made = _of_mean(
        effect,
        error=math.sqrt(variance),
        freedom=(units - 1) * (variance * units / of_a_unit) ** 2 if of_a_unit > 0 else units - 1,
        n=units,
        of=f"{of} × {examples}",
        unit=Unit.POINTS,
        test=f"{_noun(of)} × {test}",
    )

    def needs(distance: float, level: float) -> str:
        words = _more_seeds(units, of_a_unit, of_examples, distance, level)
        return words.replace("seeds", _noun(of))

    return replace(made, needs=needs)


def _noun(of: str) -> str:
    """What units are called in short: "training seeds" are seeds, "shapes of 1 model" shapes."""
    return of.split(" of ")[0].split()[-1]


# ---- means and ratios ---------------------------------------------------------------------------


def paired_mean(a: Sequence[float], b: Sequence[float], *, unit: Unit, drawn: str) -> Comparison:
    """Mean of A minus mean of B over paired units; `drawn` names them: "test examples of 1 model".

    Raises:
        ValueError: other units on the two sides, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"need the same two or more {drawn}, got {len(a)} and {len(b)}")
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    n = len(difference)

    def redraw(generator: np.random.Generator, effect: float) -> Comparison:
        """The pairs exchanged at random, and shifted."""
        signs = generator.choice((-1.0, 1.0), n)
        centred = signs * (difference - difference.mean()) + effect
        return paired_mean(list(centred), [0.0] * n, unit=unit, drawn=drawn)

    made = _of_mean(
        float(difference.mean()),
        error=float(difference.std(ddof=1)) / math.sqrt(n),
        freedom=n - 1,
        n=n,
        of=drawn,
        unit=unit,
        test="paired t",
    )
    return replace(made, redraw=redraw)


def mean(values: Sequence[float], *, unit: Unit, drawn: str) -> Comparison:
    """A mean against nothing, to be held against a boundary."""
    made = paired_mean(values, [0.0] * len(values), unit=unit, drawn=drawn)
    return replace(made, test="one-sample t")


def _of_mean(
    effect: float, *, error: float, freedom: float, n: int, of: str, unit: Unit, test: str
) -> Comparison:
    def tails(boundary: float) -> Tails:
        if error == 0:  # all units agree to the last digit
            side = (effect > boundary) - (effect < boundary)
            return Tails(1.0 if side <= 0 else 0.0, 1.0 if side >= 0 else 0.0)
        score = (effect - boundary) / error
        return Tails(float(stdtr(freedom, -score)), float(stdtr(freedom, score)))

    def interval_at(level: float) -> Interval:
        half = float(stdtrit(freedom, (1 + level) / 2)) * error
        return Interval(effect - half, effect + half)

    return Comparison(
        effect=effect,
        error=error,
        tails=tails,
        interval_at=interval_at,
        unit=unit,
        drawn=f"{n:,} {of}",
        test=test,
        needs=lambda distance, level: more(n, error, distance, level, of, by_t=True),
    )


PARTS = 5  # in a row, into which the samples of one process are taken apart


def ratio(
    baseline_s: Sequence[Sequence[float]],
    candidate_s: Sequence[Sequence[float]],
    *,
    contention: float | None,
) -> Comparison:
    """How many times as fast the candidate is: median over median, on the log scale.

    Each entry is one process with its interleaved samples. With one process only, its samples are
    taken apart into parts in a row (Schmeiser 1982, Op. Res. 30:556): neighbours resemble each
    other, so samples are not units of their own. `contention` is the share of the machine that
    others used, the mean over processes; times taken beside other work, or beside nobody knows
    what, decide nothing.

    Raises:
        ValueError: another number of processes, or of samples in one of them, on the two sides.
    """
    if len(baseline_s) != len(candidate_s) or not baseline_s:
        raise ValueError(f"need pairs of processes, got {len(baseline_s)} and {len(candidate_s)}")
    for a, b in zip(baseline_s, candidate_s):
        if len(a) != len(b) or not a:
            raise ValueError(f"interleaved samples come in pairs, got {len(a)} and {len(b)}")
    what = "processes" if len(baseline_s) > 1 else "parts of 1 process"
    logs = [a - b for a, b in zip(log_medians(baseline_s), log_medians(candidate_s))]
    if len(logs) < 2:
        raise ValueError("one sample says nothing of its error; take two or more")
    made = replace(mean(logs, unit=Unit.TIMES, drawn=what), test="log ratio of medians, t")
    return replace(made, blocked=_not_quiet(contention))


def log_medians(samples_s: Sequence[Sequence[float]]) -> list[float]:
    """Of each process; of a single one, of its parts in a row."""
    units = samples_s
    if len(units) == 1:
        parts = np.array_split(np.arange(len(units[0])), min(PARTS, len(units[0])))
        units = [[units[0][i] for i in part] for part in parts]
    return [math.log(np.median(unit)) for unit in units]


def _not_quiet(contention: float | None) -> str:
    if contention is None:
        return "a machine whose load can be read (this one's is unknown)"
    if contention > CONTENDED:
        share = f"{100 * contention:.0f} %"
        return f"a quiet machine (others used {share} of this one, or so many samples came late)"
    return ""


def exceeding(outcomes: Sequence[Outcomes], level: float) -> Comparison:
    """Accuracy against a known level: of one model, or of a method with several seeds."""
    if len(outcomes) == 1:
        correct = outcomes[0]._correct
        return share(
            int(correct.sum()), len(correct), level=level, drawn="test examples of 1 model"
        )
    made = _compare_methods(outcomes, [_all_wrong(one) for one in outcomes])

    def shifted(boundary: float) -> Tails:
        return made.tails(boundary + level)

    def interval_at(confidence: float) -> Interval:
        low, high = made.interval_at(confidence)
        return Interval(low - level, high - level)

    return replace(
        made,
        effect=made.effect - level,
        tails=shifted,
        interval_at=interval_at,
    )


def _all_wrong(outcomes: Outcomes) -> Outcomes:
    return Outcomes(np.zeros_like(outcomes._correct), outcomes.examples)


def share(successes: int, n: int, *, level: float, drawn: str) -> Comparison:
    """A share of independent things against a known level, by the exact binomial test."""

    def tails(boundary: float) -> Tails:
        return _binomial_tails(successes, n, min(max(level + boundary, 0.0), 1.0))

    def interval_at(confidence: float) -> Interval:
        low, high = wilson(successes / n, n, confidence)
        return Interval(low - level, high - level)

    def redraw(generator: np.random.Generator, effect: float) -> Comparison:
        """As many drawn with that chance."""
        chance = min(max(level + effect, 0.0), 1.0)
        return share(int(generator.binomial(n, chance)), n, level=level, drawn=drawn)

    seen = successes / n
    error = math.sqrt(max(seen * (1 - seen), 1 / n) / n)
    return Comparison(
        effect=seen - level,
        error=error,
        tails=tails,
        interval_at=interval_at,
        unit=Unit.POINTS,
        drawn=f"{n:,} {drawn}",
        test="exact binomial",
        needs=lambda distance, level: more(n, error, distance, level, drawn),
        redraw=redraw,
    )


# ---- what would decide, and families ------------------------------------------------------------


def more(
    n: int, error: float, distance: float, level: float, what: str, *, by_t: bool = False
) -> str:
    """How many units would decide an effect this far from its boundary at a level, in words.

    `n` of them gave the `error` and did not decide. `by_t`: the test knows the error from these
    units alone, so few of them need a larger effect.
    """
    times = math.inf if abs(distance) < 1e-9 else (errors_needed(level) * error / distance) ** 2
    if n * times > MOST:
        return f"no affordable number of {what} would decide so small a difference"
    needed = max(math.ceil(n * times), n + 1)

    def power(units: int) -> float:
        return _power_of_t(units - 1, error * math.sqrt(n / units), distance, level)

    if by_t and error:
        needed = _enough(needed, power)
    return f"about {_round_up(needed)} {what} would decide an effect of this size{WITH_POWER}"


MOST = 1e7  # units that anybody could afford
MOST_TIMES = 1000  # as many test examples, too
FEW = 100  # units from which Student's t is the normal distribution, for what is asked here


def errors_needed(level: float) -> float:
    """Standard errors between an effect and its boundary that decide it, with `POWER`."""
    return float(ndtri(1 - level / 2) + ndtri(POWER))


def _power_of_t(freedom: float, error: float, distance: float, level: float) -> float:
    """Of a two-sided t test with this error of its effect."""
    from scipy.stats import nct

    return float(nct.sf(stdtrit(freedom, 1 - level / 2), freedom, abs(distance) / error))


def _enough(units: int, power: Callable[[int], float]) -> int:
    """From so many on, the first number of units whose test has `POWER`."""
    while units < FEW and power(units) < POWER:
        units += 1
    return units


def _more_seeds(
    seeds: int, of_a_seed: float, of_examples: float, distance: float, level: float
) -> str:
    """Seeds that would decide this effect, if the examples allow it at all.

    The effect's variance has a part that more seeds make smaller, and one of the test examples.
    """
    room = (abs(distance) / errors_needed(level)) ** 2
    if room <= of_examples:
        times = of_examples / room if room else math.inf
        if times > MOST_TIMES:
            return "no affordable number of seeds and test examples would decide so small an effect"
        larger = f"one of more than {_round_up(times)} times as many examples could"
        return f"no number of seeds would decide on this test set; {larger}"

    def power(units: int) -> float:
        variance = of_a_seed / units + of_examples
        freedom = (units - 1) * (variance * units / of_a_seed) ** 2 if of_a_seed else math.inf
        return _power_of_t(min(freedom, MOST), math.sqrt(variance), distance, level)

    needed = _enough(max(math.ceil(of_a_seed / (room - of_examples)), seeds + 1), power)
    return f"about {_round_up(needed)} seeds would decide an effect of this size{WITH_POWER}"


def _round_up(value: float) -> str:
    """Two significant digits, upward: a requirement is no place for false precision."""
    unit = 10 ** max(math.floor(math.log10(max(value, 1.0))) - 1, 0)
    return f"{math.ceil(value / unit) * unit:,}"


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values of a family: each at most 1, in the order of the originals."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for i, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - i) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def holm_levels(p_values: Mapping[str, float]) -> dict[str, float]:
    """The level at which each member of a family is tested, if all smaller p values are decided."""
    return {
        name: ALPHA / sum(other >= p for other in p_values.values()) for name, p in p_values.items()
    }
