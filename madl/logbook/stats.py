"""The only source of verdicts: paired tests, intervals, and what it would take to decide.

Two kinds of comparison, and they are not the same claim:

* **Two models** (one seed): the examples are random. McNemar's exact test on the examples that
  exactly one of the two gets right.
* **Two methods** (several seeds): seeds and examples are both random. A mixed model for fully
  crossed data, with Hillis' degrees of freedom: the analysis of readers × cases in radiology.

Sources: Tango 1998, Statistics in Medicine 17:891 (interval); McNemar 1947; Obuchowski & Rockette
1995 and Hillis 2007, Statistics in Medicine 26:596 (two random factors); Connor 1987, Biometrics
43:207 (sample size).
Units: accuracies and effects are fractions, so 0.01 is a point; every interval is 95 %.
"""

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm, sem, t

from madl.logbook.experiment import Claim, Verdict

ALPHA = 0.05
POWER = 0.80
Z = float(norm.ppf(1 - ALPHA / 2))
Z_POWER = float(norm.ppf(POWER))


class Unit(StrEnum):
    """What an effect is in; shares are stored as fractions and shown per hundred."""

    POINTS = "points"
    PERCENT = "%"
    DECIBEL = "dB"
    LOSS = "nats"
    STEPS = "steps"
    KERNELS = "kernels"
    GRAPHS = "graphs"
    POSITIONS = "positions"
    MEGABYTES = "MB"
    TIMES = "×"

    @property
    def scale(self) -> float:
        """From the stored value to the shown one."""
        return 100.0 if self in (Unit.POINTS, Unit.PERCENT) else 1.0


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What decided a claim: B's accuracy minus A's, or a ratio, with its interval."""

    effect: float
    interval: Interval
    n: int  # examples, or samples for a ratio
    seeds: int
    test: str
    p: float | None
    needed: str = ""  # what would decide, when this does not
    unit: Unit = Unit.POINTS


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Which examples one evaluated model got right.

    Shapes: correct (n,) of bool. `examples` is the fingerprint of the evaluated split: outcomes
    on different examples cannot be paired.
    """

    correct: NDArray[np.bool_] = field(repr=False)
    examples: str

    @property
    def n(self) -> int:
        return len(self.correct)

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def interval(self) -> Interval:
        """Wilson's score interval."""
        low, high = binomtest(int(self.correct.sum()), self.n).proportion_ci(method="wilson")
        return Interval(float(low), float(high))

    def to_json(self) -> dict[str, Any]:
        bits = base64.b64encode(np.packbits(self.correct).tobytes()).decode()
        return {"n": self.n, "bits": bits, "examples": self.examples}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Outcomes":
        packed = np.frombuffer(base64.b64decode(data["bits"]), dtype=np.uint8)
        correct = np.unpackbits(packed, count=data["n"]).astype(bool)
        return cls(correct, data["examples"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B against A, ready to be asked for a verdict."""

    evidence: Evidence
    decided: bool  # the test rejects "no difference" at ALPHA
    contended: bool = False  # timed beside other work, so nothing may be read from it

    def improves(self, text: str) -> Claim:
        """The claim that B is more accurate (or faster) than A."""
        return self._claim(text, self.evidence.effect > 0)

    def degrades(self, text: str) -> Claim:
        """The claim that B is less accurate (or slower) than A."""
        return self._claim(text, self.evidence.effect < 0)

    def _claim(self, text: str, agrees: bool) -> Claim:
        verdict: Verdict = "undecided"
        if self.decided:
            verdict = "supported" if agrees else "refuted"
        return Claim(text=text, verdict=verdict, evidence=self.evidence)

    def within(self, margin: float, text: str) -> Claim:
        """The claim that B and A differ by less than `margin`."""
        low, high = self.evidence.interval
        verdict: Verdict = "undecided"
        if self.contended:
            pass
        elif -margin < low and high < margin:
            verdict = "supported"
        elif low >= margin or high <= -margin:
            verdict = "refuted"
        needed = "more samples, so that the interval fits inside the margin or leaves it"
        if self.contended:
            needed = self.evidence.needed
        evidence = replace(
            self.evidence,
            test=f"interval inside ±{self.evidence.unit.scale * margin:g} {self.evidence.unit}",
            p=None,
            needed=needed if verdict == "undecided" else "",
        )
        return Claim(text=text, verdict=verdict, evidence=evidence)


def exceeds(outcomes: Outcomes, level: float) -> Comparison:
    """One model's accuracy against a known level, by the exact binomial test."""
    result = binomtest(int(outcomes.correct.sum()), outcomes.n, level)
    low, high = outcomes.interval
    evidence = Evidence(
        effect=outcomes.accuracy - level,
        interval=Interval(low - level, high - level),
        n=outcomes.n,
        seeds=1,
        test="exact binomial",
        p=float(result.pvalue),
    )
    return Comparison(evidence=evidence, decided=float(result.pvalue) <= ALPHA)


def counted(
    a: float, b: float, n: int, *, unit: Unit = Unit.POINTS, contention: float | None = None
) -> Comparison:
    """B against A where both are known: computed from all `n` values, so without an interval.

    `contention` is for values that were timed, as in `ratio`.
    """
    effect = b - a
    contended = (contention or 0.0) > CONTENDED
    evidence = Evidence(
        effect=effect,
        interval=Interval(effect, effect),
        n=n,
        seeds=1,
        test="counted, all",
        p=None,
        needed="" if not contended else _quiet(contention),
        unit=unit,
    )
    return Comparison(evidence=evidence, decided=effect != 0 and not contended, contended=contended)


def paired_mean(
    a: Sequence[float], b: Sequence[float], *, unit: Unit, of: str = "test examples"
) -> Comparison:
    """Mean of B minus mean of A over the same examples of two models, by the paired t test.

    `of` names what the pairs are, where they are not examples: studies by their seed, for one.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"need the same two or more examples, got {len(a)} and {len(b)}")
    difference = np.asarray(b) - np.asarray(a)
    effect, error = float(difference.mean()), float(sem(difference))
    half = float(t.ppf(1 - ALPHA / 2, len(difference) - 1)) * error
    p = 2 * float(t.sf(abs(effect) / error, len(difference) - 1)) if error > 0 else 1.0
    evidence = Evidence(
        effect=effect,
        interval=Interval(effect - half, effect + half),
        n=len(difference),
        seeds=1,
        test="paired t",
        p=p,
        needed="" if p <= ALPHA else f"more {of}",
        unit=unit,
    )
    return Comparison(evidence=evidence, decided=p <= ALPHA)


def none_of(count: int, n: int, text: str) -> Claim:
    """The claim that none of `n` things is so: all were looked at, so it is decided either way."""
    share = count / n
    evidence = Evidence(
        effect=share, interval=Interval(share, share), n=n, seeds=1, test="counted, all", p=None
    )
    return Claim(text=text, verdict="refuted" if count else "supported", evidence=evidence)


def accuracy_interval(outcomes: Sequence[Outcomes]) -> Interval:
    """Interval of an accuracy: of this model, or of the method when there are several seeds."""
    if len(outcomes) == 1:
        return outcomes[0].interval
    nothing = [Outcomes(np.zeros_like(o.correct), o.examples) for o in outcomes]
    return _compare_methods(nothing, outcomes).evidence.interval


def compare(a: Sequence[Outcomes], b: Sequence[Outcomes]) -> Comparison:
    """B minus A, one entry a seed, the same seeds and examples on both sides.

    Raises:
        ValueError: other examples, or another number of seeds, on the two sides.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"need the same seeds on both sides, got {len(a)} and {len(b)}")
    if len({o.examples for o in (*a, *b)}) > 1:
        raise ValueError("outcomes on different examples cannot be paired")
    return _compare_models(a[0], b[0]) if len(a) == 1 else _compare_methods(a, b)


def _compare_models(a: Outcomes, b: Outcomes) -> Comparison:
    only_a = int((a.correct & ~b.correct).sum())
    only_b = int((b.correct & ~a.correct).sum())
    p = mcnemar(only_a, only_b)
    interval = paired_interval(only_a, only_b, a.n)
    decided = p <= ALPHA and not interval.low <= 0 <= interval.high
    effect = (only_b - only_a) / a.n
    evidence = Evidence(
        effect=effect,
        interval=interval,
        n=a.n,
        seeds=1,
        test="exact McNemar",
        p=p,
        needed="" if decided else _examples_needed(effect, (only_a + only_b) / a.n),
    )
    return Comparison(evidence=evidence, decided=decided)


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided exact p-value of the discordant counts."""
    if only_a + only_b == 0:
        return 1.0
    return float(binomtest(only_b, only_a + only_b, 0.5).pvalue)


def paired_interval(only_a: int, only_b: int, n: int) -> Interval:
    """Tango's score interval for the difference of two paired proportions, B minus A."""

    def score(delta: float) -> float:
        """Standardized distance of the observed difference from `delta`."""
        x = 2 * n
        y = -only_b - only_a + (2 * n - only_b + only_a) * delta
        z = -only_a * delta * (1 - delta)
        q = (math.sqrt(max(y * y - 4 * x * z, 0.0)) - y) / (2 * x)  # only-A rate under delta
        variance = n * (2 * q + delta * (1 - delta))
        distance = only_b - only_a - n * delta
        if distance == 0:
            return 0.0
        return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)

    effect = (only_b - only_a) / n
    edge = 1 - 1e-9
    low = _root(lambda d: min(score(d), 1e9) - Z, -edge, effect) if effect > -edge else -1.0
    high = _root(lambda d: max(score(d), -1e9) + Z, effect, edge) if effect < edge else 1.0
    return Interval(low, high)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    found: Any = brentq(f, low, high)  # its type depends on an option we do not use
    return float(found)


def _examples_needed(effect: float, discordant: float) -> str:
    """How many examples would decide a difference of this size (Connor 1987), in words."""
    if abs(effect) < 1e-4:
        return "the two agree too closely for any affordable test set to tell them apart"
    spread = math.sqrt(max(discordant - effect**2, 0.0))
    examples = ((Z * math.sqrt(discordant) + Z_POWER * spread) / effect) ** 2
    return f"about {_round_up(examples)} test examples would decide a difference of this size"


def _compare_methods(a: Sequence[Outcomes], b: Sequence[Outcomes]) -> Comparison:
    difference = np.stack([y.correct for y in b]).astype(float) - np.stack(
        [x.correct for x in a]
    ).astype(float)  # (seeds, examples)
    if bool((difference == difference[0]).all()):
        return _compare_models(a[0], b[0])  # every seed gave the same: there is one pair of models
    seeds, n = difference.shape
    effect = float(difference.mean())
    by_seed, by_example = difference.mean(1), difference.mean(0)
    seed_ms = n * float(by_seed.var(ddof=1))
    example_ms = seeds * float(by_example.var(ddof=1))
    rest = difference - by_seed[:, None] - by_example[None, :] + effect
    rest_ms = float((rest**2).sum()) / ((seeds - 1) * (n - 1))
    # By chance a few seeds can agree better than the residual noise allows. Hillis' test takes
    # that at face value and rejects 6 % of true nulls at three seeds; this floor keeps it below 5.
    seed_ms = max(seed_ms, rest_ms)
    variance_ms = seed_ms + max(example_ms - rest_ms, 0.0)
    if variance_ms == 0.0:
        half, p = 0.0, 1.0
    else:
        freedom = variance_ms**2 / (seed_ms**2 / (seeds - 1))
        error = math.sqrt(variance_ms / (seeds * n))
        half = float(t.ppf(1 - ALPHA / 2, freedom)) * error
        p = 2 * float(t.sf(abs(effect) / error, freedom))
    decided = p <= ALPHA and variance_ms > 0
    evidence = Evidence(
        effect=effect,
        interval=Interval(effect - half, effect + half),
        n=n,
        seeds=seeds,
        test="seeds × examples, both random",
        p=p,
        needed="" if decided else _seeds_needed(effect, by_seed, variance_ms - seed_ms, n),
    )
    return Comparison(evidence=evidence, decided=decided)


def _seeds_needed(effect: float, by_seed: NDArray[np.float64], example_ms: float, n: int) -> str:
    """Seeds that would decide this effect, if the examples allow it at all."""
    target = (abs(effect) / (Z + Z_POWER)) ** 2
    room = target - example_ms / (len(by_seed) * n)
    if room <= 0 or abs(effect) < 1e-4:
        return "no number of seeds would decide on this test set; a larger one is needed"
    seeds = max(float(by_seed.var(ddof=1)) / room, len(by_seed) + 1)
    return f"about {_round_up(seeds)} seeds would decide a difference of this size"


def _round_up(value: float) -> str:
    """Two significant digits, upward: a requirement is no place for false precision."""
    if value > 1e7:
        return "more than 10,000,000"
    unit = 10 ** max(math.floor(math.log10(max(value, 1.0))) - 1, 0)
    return f"{math.ceil(value / unit) * unit:,}"


def power(effect: float, discordant: float, n: int) -> float:
    """Chance that McNemar's exact test decides a true difference of this size, on n examples."""
    total = 0.0
    for m in range(int(binom.ppf(1e-6, n, discordant)), int(binom.isf(1e-6, n, discordant)) + 1):
        reject = int(binom.ppf(ALPHA / 2, m, 0.5))
        while reject >= 0 and 2 * binom.cdf(reject, m, 0.5) > ALPHA:
            reject -= 1
        towards_b = (discordant + effect) / (2 * discordant)
        tails = binom.cdf(reject, m, towards_b) + binom.sf(m - reject - 1, m, towards_b)
        total += float(binom.pmf(m, n, discordant)) * float(tails)
    return total


def ratio_interval(
    baseline_s: Sequence[float], candidate_s: Sequence[float], *, resamples: int = 4000
) -> Interval:
    """Interval of median(baseline) / median(candidate): a speed-up when above 1.

    The samples are interleaved, so pairs are resampled together and drift cancels; the wider of
    that and of an interval from batches in a row counts.
    """
    a, b = np.asarray(baseline_s), np.asarray(candidate_s)
    if len(a) != len(b):
        raise ValueError(f"interleaved samples come in pairs, got {len(a)} and {len(b)}")
    picks = np.random.default_rng(0).integers(0, len(a), (resamples, len(a)))
    ratios = np.median(a[picks], axis=1) / np.median(b[picks], axis=1)
    low, high = np.quantile(ratios, [ALPHA / 2, 1 - ALPHA / 2])
    middle, half = math.log(np.median(a) / np.median(b)), _batch_half(a, b)
    return Interval(
        min(float(low), math.exp(middle - half)), max(float(high), math.exp(middle + half))
    )


BATCHES = 5


def _batch_half(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Half the interval of the log ratio by batch means (Schmeiser 1982, Op. Res. 30:556).

    Neighbouring samples resemble each other (drift, where the memory lies), which resampling them
    one by one does not see. Five batches in a row, each with its own ratio, do.
    """
    if len(a) < 2 * BATCHES:
        return 0.0
    batches = np.array_split(np.arange(len(a)), BATCHES)
    logs = [math.log(np.median(a[batch]) / np.median(b[batch])) for batch in batches]
    return float(t.ppf(1 - ALPHA / 2, BATCHES - 1) * sem(logs))


CONTENDED = 0.2  # share of the machine in others' use from which a timing decides nothing


def _quiet(contention: float | None) -> str:
    return f"a quiet machine: others used {contention or 0.0:.0%} of this one meanwhile"


def ratio(
    baseline_s: Sequence[float], candidate_s: Sequence[float], *, contention: float | None = None
) -> Comparison:
    """The speed-up of candidate over baseline; `effect` is the ratio of medians minus one.

    `contention` is the record's (0…1): times taken beside other busy processes decide nothing.
    """
    contended = (contention or 0.0) > CONTENDED
    interval = ratio_interval(baseline_s, candidate_s)
    effect = float(np.median(baseline_s) / np.median(candidate_s)) - 1
    decided = not contended and not interval.low <= 1 <= interval.high
    needed = "more interleaved samples on a quiet machine would decide"
    if contended:
        needed = _quiet(contention)
    evidence = Evidence(
        effect=effect,
        interval=Interval(interval.low - 1, interval.high - 1),
        n=len(baseline_s),
        seeds=1,
        test="ratio of medians, bootstrap and batches",
        p=None,
        needed="" if decided else needed,
        unit=Unit.PERCENT,
    )
    return Comparison(evidence=evidence, decided=decided, contended=contended)


def break_even(
    extra_s: Sequence[float],
    baseline_s: Sequence[float],
    candidate_s: Sequence[float],
    *,
    resamples: int = 4000,
) -> tuple[float, Interval] | None:
    """Calls after which a candidate that costs `extra_s` once has paid for itself.

    The interval resamples the calls in pairs, and the extra cost where it was taken several times;
    taken once, its own scatter is not in the interval. None: the gain's interval reaches zero, so
    no number of calls is known to be enough.
    """
    a, b = np.asarray(baseline_s), np.asarray(candidate_s)
    if len(a) != len(b) or not len(extra_s):
        raise ValueError(f"need pairs and an extra cost, got {len(a)}, {len(b)}, {len(extra_s)}")
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(a), (resamples, len(a)))
    gains = np.median(a[picks], axis=1) - np.median(b[picks], axis=1)
    extras = np.asarray(extra_s)[generator.integers(0, len(extra_s), (resamples, len(extra_s)))]
    if float(np.quantile(gains, ALPHA / 2)) <= 0:
        return None
    calls = extras.mean(axis=1) / np.maximum(gains, 1e-12)
    low, high = np.quantile(calls, [ALPHA / 2, 1 - ALPHA / 2])
    gain = float(np.median(a) - np.median(b))
    return float(np.mean(extra_s)) / gain, Interval(float(low), float(high))
