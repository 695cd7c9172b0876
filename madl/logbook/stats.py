"""Paired tests of a difference against any boundary, as numbers: no sentence is made here.

A comparison is of A with B: its effect is A minus B. It says how surprising the data are if the
truth lies at some boundary; `claims` chooses the boundaries, and makes verdicts.

* **Several units** (seeds, studies, sittings of a clock): each gives one effect, and Student's t
  tests their mean. A seed is judged on sentences of its own, so they are in its effect's scatter.
* **Two models** (one seed): the sentences are the units. McNemar's exact test where the boundary is
  zero, Tango's score elsewhere.

Sources: Student 1908, Biometrika 6:1; Tango 1998, Statistics in Medicine 17:891; McNemar 1947; Holm
1979, Scand. J. Statistics 6:65.
Units: accuracies and effects are fractions, so 0.01 is a point; ratios of times are logarithms.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr, ndtri, stdtr  # scipy.stats takes long to import

from madl.logbook.power import critical, errors_needed, root
from madl.logbook.values import ALPHA, LEVEL, Estimate, Interval, Outcomes, Unit
from madl.machine.lint import CONTENDED

Key = TypeVar("Key", bound=Hashable)

MODELS, SENTENCES, PROCESSES = "models", "test sentences", "processes"  # populations
SEEDS = "seeds"  # where several models of each are one unit
Blocked = Literal["", "contended", "unknown load"]
EQUAL = 1e-9  # effects that differ by less are equal: sums of fractions are rounded


class Tails(NamedTuple):
    """Two one-sided p values: how surprising the data are if the true effect is at a boundary."""

    above: float  # p against "the truth is at most the boundary"
    below: float  # p against "the truth is at least the boundary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A minus B: the mean effect of its units, and its error; tested by Student's t or exactly.

    A `blocked` comparison decides nothing, whatever its numbers are.
    """

    effect: float
    error: float  # standard error of the effect
    freedom: float  # degrees of freedom of the error; infinite where the test is normal
    unit: Unit
    population: str  # noun of the units drawn at random: "models", "studies", "test sentences"
    units: int  # how many of them
    by_unit: tuple[float, ...]  # effect of each single model, study or sitting
    method: str
    dropped: int = 0  # processes that ran beside too much else, and are not counted
    blocked: Blocked = ""
    pair: tuple[int, int, int] | None = None  # of two models: `only_a`, `only_b` and `n` examples

    def tails(self, boundary: float) -> Tails:
        """One-sided p values, if the true effect is at this boundary."""
        if self.pair is not None:
            return paired_tails(*self.pair, boundary)
        if self.error < EQUAL:  # all units agree to the last digit
            distance = self.effect - boundary
            side = (distance > EQUAL) - (distance < -EQUAL)
            return Tails(1.0 if side <= 0 else 0.0, 1.0 if side >= 0 else 0.0)
        score = (self.effect - boundary) / self.error
        return Tails(float(stdtr(self.freedom, -score)), float(stdtr(self.freedom, score)))

    def interval_at(self, level: float) -> Interval:
        """Confidence interval at a level such as 0.95."""
        if self.pair is not None:
            return paired_interval(*self.pair, level)
        half = critical(self.freedom, 1 - level) * self.error
        return Interval(self.effect - half, self.effect + half)

    @property
    def interval(self) -> Interval:
        return self.interval_at(LEVEL)

    @property
    def prediction(self) -> Interval:
        """The interval that holds the effect of one more unit 95 times in 100."""
        half = critical(self.freedom, ALPHA) * self.error * math.sqrt(1 + self.units)
        return Interval(self.effect - half, self.effect + half)

    def estimate(self, n: int = 0) -> Estimate:
        each = self.by_unit if len(self.by_unit) > 1 else ()
        return Estimate(self.effect, self.interval, self.unit, n, each=each)

    def smallest(self, level: float = ALPHA) -> float:
        """Least distance of a true effect from the boundary that is decided with 80 % power."""
        return self.error * errors_needed(self.freedom, level)


# ---- accuracies ---------------------------------------------------------------------------------

Groups = Sequence[Sequence[Outcomes]]  # the models of each unit


def compare(a: Groups, b: Groups, *, unit_name: str = MODELS) -> Comparison:
    """A minus B, one group of models a unit; a group's effect is the mean of its pairs of models.

    `unit_name` names the units, which are drawn at random: "models" (one a seed), "studies". A pair
    is judged on the same examples. Of one single pair, the examples are drawn at random.

    Raises:
        ValueError: other units on the two sides, or a pair that was judged on other examples.
    """
    if not a or [len(group) for group in a] != [len(group) for group in b]:
        raise ValueError(f"need the same {unit_name} on both sides, got {len(a)} and {len(b)}")
    pairs = [(x, y) for i, j in zip(a, b) for x, y in zip(i, j)]
    if any(x.examples != y.examples for x, y in pairs):
        raise ValueError("outcomes on different examples cannot be paired")
    if len(pairs) == 1:
        return _compare_models(*pairs[0])
    return paired_mean(_shares(a), _shares(b), unit=Unit.POINTS, unit_name=unit_name)


def _shares(groups: Groups) -> list[float]:
    """The share of right answers of each group, a mean over its models."""
    return [float(np.mean([o._correct.mean() for o in group])) for group in groups]


def accuracy(groups: Groups) -> Estimate:
    """Mean test accuracy of groups of models; of a single model, with Wilson's interval."""
    if len(groups) == 1:
        return mean_of([outcomes.accuracy for outcomes in groups[0]])
    sizes = {outcomes.examples: outcomes.n for group in groups for outcomes in group}
    shares = mean(each := _shares(groups), unit=Unit.PERCENT, unit_name=MODELS)
    interval, n = shares.interval.of_share(), sum(sizes.values())
    return Estimate(shares.effect, interval, Unit.PERCENT, n, len(groups), tuple(each))


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Mean over trained models, without an interval; a single estimate as it is."""
    if len(estimates) == 1:
        return estimates[0]
    mean = float(np.mean([estimate._value for estimate in estimates]))
    return Estimate(mean, None, estimates[0].unit, estimates[0].n, len(estimates))


def _compare_models(a: Outcomes, b: Outcomes) -> Comparison:
    """A minus B of two models, whose sentences alone are random: tested by Tango and McNemar."""
    only_a = int((a._correct & ~b._correct).sum())
    only_b = int((b._correct & ~a._correct).sum())
    n, effect, discordant = a.n, (only_a - only_b) / a.n, (only_a + only_b) / a.n
    return Comparison(
        effect=effect,
        # With no discordant pair at all, the error is that of one pair more: it is not zero.
        error=math.sqrt(max(discordant - effect**2, 1 / n) / n),
        freedom=math.inf,
        unit=Unit.POINTS,
        population=SENTENCES,
        units=n,
        by_unit=(effect,),
        method="Tango's score, McNemar's exact at zero",
        pair=(only_a, only_b, n),
    )


def paired_tails(only_a: int, only_b: int, n: int, boundary: float) -> Tails:
    """One-sided p values of A minus B at a boundary: Tango's score, and McNemar's exact at zero.

    `only_a` and `only_b` count the examples, of `n`, that only A or only B got right.
    """
    score = _tango_score(only_a, only_b, n, boundary)
    above, below = float(ndtr(-score)), float(ndtr(score))
    if boundary != 0:
        return Tails(above, below)
    discordant = only_a + only_b
    exact_above = float(bdtrc(only_a - 1, discordant, 0.5)) if only_a else 1.0
    exact_below = float(bdtr(only_a, discordant, 0.5))
    return Tails(max(above, exact_above), max(below, exact_below))


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

    low = root(lambda d: beyond(d) - z, -edge, effect) if effect > -edge else -1.0
    high = root(lambda d: beyond(d) + z, effect, edge) if effect < edge else 1.0
    return Interval(low, high)


# ---- means and ratios ---------------------------------------------------------------------------


def paired_mean(
    a: Sequence[float], b: Sequence[float], *, unit: Unit, unit_name: str
) -> Comparison:
    """Mean of A minus mean of B over paired units, which `unit_name` names: "studies".

    Raises:
        ValueError: other units on the two sides, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"need the same two or more {unit_name}, got {len(a)} and {len(b)}")
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    effect, variance, n = float(difference.mean()), float(difference.var(ddof=1)), len(difference)
    return Comparison(
        effect=effect,
        error=math.sqrt(variance / n),
        freedom=n - 1,
        unit=unit,
        population=unit_name,
        units=n,
        by_unit=tuple(difference.tolist()),
        method="paired t",
    )


def compare_values(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], *, unit: Unit, unit_name: str
) -> Comparison:
    """A minus B of a value of examples (losses of sentences), of which each unit has the mean.

    With one unit on each side, its examples are drawn at random.

    Raises:
        ValueError: other units on the two sides, or a unit with other examples.
    """
    if [*map(len, a)] != [*map(len, b)]:
        raise ValueError("need the same units and examples on both sides")
    if len(a) == 1:
        return paired_mean(a[0], b[0], unit=unit, unit_name=SENTENCES)
    means = ([float(np.mean(values)) for values in side] for side in (a, b))
    return paired_mean(*means, unit=unit, unit_name=unit_name)


def mean(values: Sequence[float], *, unit: Unit, unit_name: str) -> Comparison:
    """Mean of values drawn at random, as a comparison with zero; `unit_name` is their noun."""
    comparison = paired_mean(values, [0.0] * len(values), unit=unit, unit_name=unit_name)
    return replace(comparison, method="one-sample t")


def difference(a: Comparison, b: Comparison) -> Comparison:
    """The effect of A less that of B, two independent comparisons in one unit: Welch's t.

    Source: Welch 1947, Biometrika 34:28.
    """
    error = math.hypot(a.error, b.error)
    parts = sum(c.error**4 / c.freedom for c in (a, b))
    return Comparison(
        effect=a.effect - b.effect,
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        unit=a.unit,
        population="runs",
        units=2,
        by_unit=(),
        method="Welch's t",
    )


PARTS = 5  # consecutive parts, into which the samples of a single process are cut


def ratio(
    baseline_s: Sequence[Sequence[float]],
    candidate_s: Sequence[Sequence[float]],
    *,
    contention: Sequence[float | None],
) -> Comparison:
    """Log of (median of the baseline / of the candidate): above 0, the candidate is faster.

    Each entry is one process with its interleaved samples. The samples of a single process are cut
    into consecutive parts (Schmeiser 1982, Op. Res. 30:556): neighbours resemble each other, so
    samples are not units of their own. `contention` is the share of the machine that others used
    during each process. Contended processes are dropped; where fewer than two of several remain,
    or a share is unknown, the ratio is of all processes, and blocked.

    Raises:
        ValueError: another number of processes, or of samples in one of them, on the two sides.
    """
    if not len(baseline_s) == len(candidate_s) == len(contention) or not baseline_s:
        raise ValueError(f"need pairs of processes, got {len(baseline_s)} and {len(candidate_s)}")
    for a, b in zip(baseline_s, candidate_s):
        if len(a) != len(b) or not a:
            raise ValueError(f"interleaved samples come in pairs, got {len(a)} and {len(b)}")
    kept, blocked = uncontended(contention)
    sides = [log_medians([side[i] for i in kept]) for side in (baseline_s, candidate_s)]
    logs = [a - b for a, b in zip(*sides)]
    if len(logs) < 2:
        raise ValueError("one sample says nothing of its error; take two or more")
    unit_name = PROCESSES if len(kept) > 1 else "parts of a process"
    comparison = mean(logs, unit=Unit.TIMES, unit_name=unit_name)
    dropped = len(contention) - len(kept)
    return replace(comparison, method="log ratio, t", dropped=dropped, blocked=blocked)


def uncontended(contention: Sequence[float | None]) -> tuple[list[int], Blocked]:
    """Indices of the processes that count, and "".

    Where too few are left, or a share is unknown: indices of all, and why they decide nothing.
    """
    every = list(range(len(contention)))
    if None in contention:
        return every, "unknown load"
    kept = [i for i, share in enumerate(contention) if share is not None and share <= CONTENDED]
    return (kept, "") if len(kept) >= min(2, len(every)) else (every, "contended")


def log_medians(samples_s: Sequence[Sequence[float]]) -> list[float]:
    """Log of the median of each process's samples; of a single process, of each of its parts."""
    units = samples_s
    if len(units) == 1:
        parts = np.array_split(np.arange(len(units[0])), min(PARTS, len(units[0])))
        units = [[units[0][i] for i in part] for part in parts]
    return [math.log(np.median(unit)) for unit in units]


# ---- families -----------------------------------------------------------------------------------


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's adjusted p values of a family, name → p, in the order given, each at most 1."""
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for i, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - i) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def holm_levels(p_values: Mapping[str, float]) -> dict[str, float]:
    """Level at which Holm tests each member of a family.

    Once one is not decided, no later one is: they have its level, so that an interval at that level
    says what the verdict says.
    """
    levels: dict[str, float] = {}
    is_open, level = True, 0.0
    for i, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        level = ALPHA / (len(p_values) - i) if is_open else level
        levels[name] = level
        is_open = is_open and p_values[name] <= level
    return {name: levels[name] for name in p_values}
