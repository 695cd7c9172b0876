"""Paired tests of a difference against any boundary, as numbers: no sentence is made here.

A comparison is of A with B: its effect is A minus B, and it can be asked how surprising the data
were if the truth lay at some boundary. `claims` asks, and makes verdicts of the answers.

* **Two models** (one seed): the sentences are random. McNemar's exact test where the boundary is
  zero, Tango's score elsewhere.
* **Two methods** (several seeds): seeds and sentences are both random. A mixed model for fully
  crossed data, with Hillis' degrees of freedom: the analysis of readers × cases in radiology.
* **Means** of paired values (losses, studies), and **times**, whose ratio is compared on the log
  scale between processes: the paired t test.

Sources: Tango 1998, Statistics in Medicine 17:891; McNemar 1947; Obuchowski & Rockette 1995 and
Hillis 2007, Statistics in Medicine 26:596; Holm 1979, Scand. J. Statistics 6:65; Box 1954, Ann.
Math. Stat. 25:290 (the freedom of a sum of variances that are correlated).
Units: accuracies and effects are fractions, so 0.01 is a point; ratios of times are logarithms.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import (  # scipy.stats takes long to import
    bdtr,
    bdtrc,
    nctdtr,
    ndtr,
    ndtri,
    stdtr,
    stdtrit,
)

from madl.logbook.values import ALPHA as ALPHA
from madl.logbook.values import LEVEL as LEVEL
from madl.logbook.values import Estimate as Estimate
from madl.logbook.values import Interval as Interval
from madl.logbook.values import Outcomes as Outcomes
from madl.logbook.values import Sealed as Sealed
from madl.logbook.values import Unit as Unit
from madl.logbook.values import counted as counted
from madl.logbook.values import number as number
from madl.logbook.values import numbers as numbers
from madl.logbook.values import per_cent as per_cent
from madl.logbook.values import scientific as scientific
from madl.logbook.values import superscript as superscript
from madl.logbook.values import wilson as wilson
from madl.machine.lint import CONTENDED

POWER = 0.80
MODELS, SENTENCES, PROCESSES = "models", "test sentences", "processes"  # populations
NORMAL = 1e4  # degrees of freedom from which Student's t is the normal distribution
Blocked = Literal["", "contended", "unknown load"]


class Tails(NamedTuple):
    """How surprising the data are if the truth is at, or beyond, a boundary on one side of it."""

    above: float  # p against "the truth is at most the boundary"
    below: float  # p against "the truth is at least the boundary"


class Parts(NamedTuple):
    """Of what the variance of a mean over units is made: `of_a_unit / units + of_examples`."""

    of_a_unit: float  # between units
    of_examples: float  # of the whole mean, which more units do not make smaller
    floor: float  # least that `of_a_unit` can be: the sentences alone scatter a unit so


@dataclass(frozen=True, slots=True)
class Exact:
    """A test that is not Student's: as functions of a boundary, and of a level."""

    tails: Callable[[float], Tails]
    interval_at: Callable[[float], Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A minus B: the effect, its error, and what was drawn again; tested by Student's t or exactly.

    Where it is `blocked`, nothing may be read from it, whatever the numbers are. `these` is the
    second inference: of these very units, where the sentences alone are drawn again.
    """

    effect: float
    error: float  # standard error of the effect
    freedom: float  # degrees of freedom of the error; infinite where the test is normal
    unit: Unit
    population: str  # what was drawn again, a noun: "models", "studies", "test sentences"
    units: int  # how many of them
    examples: int | None = None  # that each of them was judged on
    by_unit: tuple[float, ...]  # effect of each single model, study or process
    method: str
    these: "Comparison | None" = None
    parts: Parts | None = None  # what `pooled` shares
    dropped: int = 0  # processes that ran beside too much else, and are not counted
    blocked: Blocked = ""
    exact: Exact | None = None

    def tails(self, boundary: float) -> Tails:
        """One-sided p values at a boundary."""
        if self.exact is not None:
            return self.exact.tails(boundary)
        if self.error == 0:  # all units agree to the last digit
            side = (self.effect > boundary) - (self.effect < boundary)
            return Tails(1.0 if side <= 0 else 0.0, 1.0 if side >= 0 else 0.0)
        score = (self.effect - boundary) / self.error
        return Tails(float(stdtr(self.freedom, -score)), float(stdtr(self.freedom, score)))

    def interval_at(self, level: float) -> Interval:
        """Of a given level, 0.95 for one."""
        if self.exact is not None:
            return self.exact.interval_at(level)
        half = critical(self.freedom, 1 - level) * self.error
        return Interval(self.effect - half, self.effect + half)

    @property
    def interval(self) -> Interval:
        return self.interval_at(LEVEL)

    def estimate(self, n: int = 0) -> Estimate:
        return Estimate(self.effect, self.interval, self.unit, n)

    def smallest(self, level: float = ALPHA) -> float:
        """Least distance from the boundary that is decided with 80 % power."""
        return self.error * errors_needed(self.freedom, level)


def power_at(distance: float, freedom: float, level: float) -> float:
    """Of a two-sided t test to decide one way, the truth so many standard errors beyond."""
    at = critical(freedom, level)
    if freedom > NORMAL or math.isinf(distance):
        return float(ndtr(distance - at))
    return float(1 - nctdtr(freedom, distance, at))


def critical(freedom: float, level: float) -> float:
    tail = 1 - level / 2
    return float(ndtri(tail) if freedom > NORMAL else stdtrit(freedom, tail))


def errors_needed(freedom: float, level: float = ALPHA, power: float = POWER) -> float:
    """Standard errors between a truth and its boundary that decide it with this power."""
    high = critical(freedom, level) + 1
    while power_at(high, freedom, level) < power:
        high *= 2
    return _root(lambda distance: power_at(distance, freedom, level) - power, 0.0, high)


def design_power(
    effect: float,
    *,
    between: float,
    within: float = 0.0,
    units: int,
    examples: int = 1,
    level: float = ALPHA,
) -> float:
    """Chance of a design to decide a truth this far from its boundary.

    `between`: standard deviation of the effect from unit to unit, as it was measured; `within`:
    that from sentence to sentence, of their means over units.

    Raises:
        ValueError: neither scatters, or there is one unit alone.
    """
    variance = between**2 / units + within**2 / examples
    if not variance or units < 2:
        raise ValueError("power is that of two or more units, which scatter")
    freedom = _freedom(units - 1, units, between**2, variance)
    return power_at(abs(effect) / math.sqrt(variance), freedom, level)


# Of each truth its distance from its margin, and what `design_power` takes as between and within.
Truths = Mapping[str, tuple[float, float, float]]


def chances(truths: Truths, made: Comparison, *, claims: int, units: int) -> list[dict[str, Any]]:
    """How likely a design decides claims that are true by so much: a row a truth, for a page.

    `made` is a comparison on its examples. With several `claims` Holm's hardest test has its own
    column.
    """
    levels = {"hardest": ALPHA / claims, "easiest": ALPHA} if claims > 1 else {"decided": ALPHA}
    of = {"units": units, "examples": made.examples or made.units}  # of one model, its sentences
    return [
        {"if the truth is": name}
        | ({"points from the margin": round(100 * distance)} if made.unit is Unit.POINTS else {})
        | {
            test: per_cent(design_power(distance, between=between, within=within, level=at, **of))
            for test, at in levels.items()
        }
        for name, (distance, between, within) in truths.items()
    ]


def _freedom(of_units: float, units: int, of_a_unit: float, variance: float) -> float:
    """Hillis': of a variance of which only the units' part was estimated from few values."""
    return of_units * (variance * units / of_a_unit) ** 2 if of_a_unit > 0 else of_units


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
        exact=Exact(
            lambda boundary: paired_tails(only_a, only_b, n, boundary),
            lambda level: paired_interval(only_a, only_b, n, level),
        ),
    )


def paired_tails(only_a: int, only_b: int, n: int, boundary: float) -> Tails:
    """One-sided p values of A minus B at a boundary: Tango's score, and McNemar's exact at zero."""
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

    low = _root(lambda d: beyond(d) - z, -edge, effect) if effect > -edge else -1.0
    high = _root(lambda d: beyond(d) + z, effect, edge) if effect < edge else 1.0
    return Interval(low, high)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    found: Any = brentq(f, low, high)  # its type depends on an option we do not use
    return float(found)


def _compare_methods(a: Sequence[Outcomes], b: Sequence[Outcomes]) -> Comparison:
    sides = [np.stack([one._correct for one in side]).astype(float) for side in (a, b)]
    difference = sides[0] - sides[1]  # (seeds, examples)
    if bool((difference == difference[0]).all()):  # there is one pair of models, several times
        made = _compare_models(a[0], b[0])
        return replace(made, by_unit=made.by_unit * len(a))
    return _crossed(difference, MODELS, "seeds × sentences")


Values = Sequence[Sequence[float]]  # of each unit, those of its examples
Groups = Sequence[Sequence[Outcomes]]  # several models of each unit of replication


def compare_groups(a: Groups, b: Groups, *, of: str) -> Comparison:
    """A minus B of several pairs of models in each group, which are averaged within it.

    `of` names the groups, two or more, as what was drawn again: "studies".

    Raises:
        ValueError: other examples, or another number of models, on the two sides.
    """
    difference = by_group(a, b, of)
    if not difference.any():  # the same models stand on both sides
        return replace(_compare_models(a[0][0], b[0][0]), by_unit=(0.0,) * len(a))
    return _crossed(difference, of, f"{of} × sentences")


def group_accuracy(groups: Groups, *, of: str) -> Estimate:
    """Mean accuracy of such groups."""
    made = compare_groups(groups, [[_all_wrong(o) for o in group] for group in groups], of=of)
    interval = made.interval.of_share()
    return Estimate(made.effect, interval, Unit.PERCENT, groups[0][0].n, len(groups))


def by_group(a: Groups, b: Groups, of: str) -> NDArray[np.float64]:
    """A minus B of each group and example (groups, examples), each the mean of its models.

    Raises:
        ValueError: as `compare_groups`.
    """
    every = [o for side in (a, b) for group in side for o in group]
    if [len(group) for group in a] != [len(group) for group in b] or len(a) < 2:
        raise ValueError(f"need the same two or more {of} on both sides")
    if len({o.examples for o in every}) > 1:
        raise ValueError("outcomes on different examples cannot be paired")
    sides = [np.stack([np.mean([o._correct for o in g], axis=0) for g in side]) for side in (a, b)]
    return sides[0] - sides[1]


def _crossed(difference: NDArray[np.float64], of: str, method: str) -> Comparison:
    """Mean of A minus B over units × examples, both random; difference (units, examples)."""
    units, n = difference.shape
    by_example = difference.mean(0)
    spread = max(float(by_example.var(ddof=1)), 1 / (units**2 * n))  # of one pair more, at least
    effect = float(difference.mean())
    made = over_units(effect, difference.mean(1), parts=parts_of(difference), of=of, method=method)
    alone: dict[str, Any] = {"population": SENTENCES, "units": n, "parts": None}
    error = math.sqrt(spread / n)
    these = replace(made, error=error, freedom=n - 1, method="paired t", **alone)
    return replace(made, examples=n, these=these)


def compare_values(a: Values, b: Values, *, unit: Unit, of: str) -> Comparison:
    """A minus B of a value that every unit has on each of the same examples: losses of sentences.

    Of one unit alone its examples are what was drawn.

    Raises:
        ValueError: the two sides have other units, or other examples.
    """
    if len({len(one) for one in (*a, *b)}) != 1 or len(a) != len(b):
        raise ValueError("need the same units and examples on both sides")
    if len(a) == 1:
        return paired_mean(a[0], b[0], unit=unit, drawn=SENTENCES)
    made = _crossed(
        np.asarray(a, dtype=float) - np.asarray(b, dtype=float), of, f"{of} × sentences"
    )
    return replace(made, unit=unit, these=made.these and replace(made.these, unit=unit))


def parts_of(difference: NDArray[np.float64]) -> Parts:
    """Of differences (units, examples)."""
    units, n = difference.shape
    by_unit, by_example = difference.mean(1), difference.mean(0)
    rest = difference - by_unit[:, None] - by_example[None, :] + difference.mean()
    rest_ms = float((rest**2).sum()) / ((units - 1) * (n - 1))
    of_examples = max(units * float(by_example.var(ddof=1)) - rest_ms, 0.0) / (units * n)
    return Parts(float(by_unit.var(ddof=1)), of_examples, rest_ms / n)


def over_units(
    effect: float, by_unit: NDArray[np.float64], *, parts: Parts, of: str, method: str
) -> Comparison:
    """A mean over units and examples, both random."""
    units = len(by_unit)
    # By chance a few units can agree better than the residual noise allows. Hillis' test takes
    # that at face value and rejects 6 % of true nulls at three; the floor keeps it below 5.
    of_a_unit = max(parts.of_a_unit, parts.floor)
    variance = of_a_unit / units + parts.of_examples
    freedom = _freedom(units - 1, units, of_a_unit, variance)
    return Comparison(
        effect=effect,
        error=math.sqrt(variance),
        freedom=freedom,
        unit=Unit.POINTS,
        population=of,
        units=units,
        by_unit=tuple(by_unit.tolist()),
        method=method,
        parts=parts,
    )


def pooled(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons of one kind, on the same units and examples, which share the variance of a unit.

    They are of one kind if their units scatter alike. What was compared on one pair of models, or
    against nothing that scatters, stays as it is. A control that several are held against makes
    their scatter alike beyond chance, so the shared freedom is that of correlated variances.

    Raises:
        ValueError: other units, or another number of them, or of examples.
    """
    kin = [one for one in comparisons if one.parts is not None]
    if len({(one.unit, one.population, one.units, one.examples) for one in kin}) > 1:
        raise ValueError("only comparisons on the same units and examples share their variance")
    if len(kin) < 2:
        return list(comparisons)
    units = kin[0].units
    covariance = np.cov(np.array([one.by_unit for one in kin]))
    floor = float(np.mean([one.parts.floor for one in kin if one.parts]))
    of_a_unit = max(float(np.trace(covariance)) / len(kin), floor)
    of_units = shared_freedom(covariance, units - 1)

    def shared(one: Comparison, own: Parts) -> Comparison:
        variance = of_a_unit / units + own.of_examples
        freedom = _freedom(of_units, units, of_a_unit, variance)
        error, method = math.sqrt(variance), f"{one.method}, pooled"
        return replace(one, error=error, freedom=freedom, method=method, parts=None)

    return [shared(one, one.parts) if one.parts else one for one in comparisons]


def shared_freedom(covariance: NDArray[np.float64], freedom: int) -> float:
    """Box's degrees of freedom of the mean of variances, from a sample of their covariance.

    Each was estimated with `freedom`; that of all lies between it and their number times it. The
    sample's correlations are too large by chance, which errs on the safe side.
    """
    several, trace = len(covariance), float(np.trace(covariance))
    squares = float((covariance**2).sum())
    if trace == 0:
        return freedom
    return float(min(max(freedom * trace**2 / squares, freedom), several * freedom))


# ---- means and ratios ---------------------------------------------------------------------------


def paired_mean(a: Sequence[float], b: Sequence[float], *, unit: Unit, drawn: str) -> Comparison:
    """Mean of A minus mean of B over paired units; `drawn` names them: "studies".

    Raises:
        ValueError: other units on the two sides, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"need the same two or more {drawn}, got {len(a)} and {len(b)}")
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    effect, variance, n = float(difference.mean()), float(difference.var(ddof=1)), len(difference)
    return Comparison(
        effect=effect,
        error=math.sqrt(variance / n),
        freedom=n - 1,
        unit=unit,
        population=drawn,
        units=n,
        by_unit=tuple(difference.tolist()),
        method="paired t",
        parts=Parts(variance, 0.0, 0.0),
    )


def mean(values: Sequence[float], *, unit: Unit, drawn: str) -> Comparison:
    """A mean against nothing, to be held against a boundary."""
    made = paired_mean(values, [0.0] * len(values), unit=unit, drawn=drawn)
    return replace(made, method="one-sample t")


PARTS = 5  # in a row, into which the samples of one process are taken apart


def ratio(
    baseline_s: Sequence[Sequence[float]],
    candidate_s: Sequence[Sequence[float]],
    *,
    contention: Sequence[float | None],
) -> Comparison:
    """How many times as fast the candidate is: median over median, on the log scale.

    Each entry is one process with its interleaved samples. With one process only, its samples are
    taken apart into parts in a row (Schmeiser 1982, Op. Res. 30:556): neighbours resemble each
    other, so samples are not units of their own. `contention` is the share of the machine that
    others used during each process. Contended processes are dropped; where fewer than two of
    several are left, or the share of one is unknown, the ratio is of all and blocked.

    Raises:
        ValueError: another number of processes, or of samples in one of them, on the two sides.
    """
    if not len(baseline_s) == len(candidate_s) == len(contention) or not baseline_s:
        raise ValueError(f"need pairs of processes, got {len(baseline_s)} and {len(candidate_s)}")
    for a, b in zip(baseline_s, candidate_s):
        if len(a) != len(b) or not a:
            raise ValueError(f"interleaved samples come in pairs, got {len(a)} and {len(b)}")
    kept, blocked = quiet(contention)
    sides = [log_medians([side[i] for i in kept]) for side in (baseline_s, candidate_s)]
    logs = [a - b for a, b in zip(*sides)]
    if len(logs) < 2:
        raise ValueError("one sample says nothing of its error; take two or more")
    what = PROCESSES if len(kept) > 1 else "parts of 1 process"
    made = mean(logs, unit=Unit.TIMES, drawn=what)
    dropped = len(contention) - len(kept)
    return replace(made, method="log ratio, t", dropped=dropped, blocked=blocked)


def quiet(contention: Sequence[float | None]) -> tuple[list[int], Blocked]:
    """Which processes count, and why none of them may: then, all stand for the size of it."""
    every = list(range(len(contention)))
    if None in contention:
        return every, "unknown load"
    kept = [i for i, share in enumerate(contention) if share is not None and share <= CONTENDED]
    return (kept, "") if len(kept) >= min(2, len(every)) else (every, "contended")


def log_medians(samples_s: Sequence[Sequence[float]]) -> list[float]:
    """Of each process; of a single one, of its parts in a row."""
    units = samples_s
    if len(units) == 1:
        parts = np.array_split(np.arange(len(units[0])), min(PARTS, len(units[0])))
        units = [[units[0][i] for i in part] for part in parts]
    return [math.log(np.median(unit)) for unit in units]


def _all_wrong(outcomes: Outcomes) -> Outcomes:
    return Outcomes(np.zeros_like(outcomes._correct), outcomes.examples)


# ---- families -----------------------------------------------------------------------------------


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
