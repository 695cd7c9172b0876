"""Claims: hypotheses that the data can contradict, their tests, and the verdicts on them.

The **hypothesis** is the docstring of the claim: one sentence without measured numbers, written
before the run. The claim's function returns a **contrast**: what is compared, and the question
asked of it. The one to three **primary** claims of a page are one family: a verdict comes from
Holm's adjusted p value. A secondary comparison has an effect and an interval, and never a verdict.
The page's template holds the sentences.

    @page.claim(primary=True)
    def training_on_wins_back_accuracy(r: Records) -> Contrast:
        '''At 4 bits, training on (QAT) is more accurate than quantization alone (PTQ).'''
        return compare(qat(r, 4), ptq(r, 4))  # or .no_worse(0.02), .more_than(0.02)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm, TimedArm, speed_up, versus
from madl.logbook.records import Case, Record, Records, Run, distinct
from madl.logbook.registration import claim_digest
from madl.logbook.stats import EQUAL, Comparison
from madl.logbook.values import ALPHA, Interval

Verdict = Literal["supported", "refuted", "undecided", "not measured"]
State = Literal["registered", "known", "worded after"]
STATES: tuple[State, ...] = ("registered", "known", "worded after")  # from best to worst
MARGIN = 0.01  # of accuracy: a user notices less than a point as little as another seed
BLOCKED = {  # `Comparison.blocked` → why the comparison of times decides nothing
    "contended": "other programs kept the machine busy; run it again with --force",
    "unknown load": "how busy the machine was meanwhile is not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A comparison and the question asked of it: by default, whether A is better than B."""

    comparison: Comparison
    cases: tuple[Case, ...]
    a: Arm | TimedArm | None = None
    b: Arm | TimedArm | None = None
    boundary: float = 0.0  # the hypothesis is that the true effect is above this

    def more_than(self, margin: float) -> "Contrast":
        """The contrast: is A better than B by more than the margin (of times, 0.05 is 5 %)?"""
        return replace(self, boundary=self.comparison.unit.stored(_positive(margin)))

    def no_worse(self, margin: float = MARGIN) -> "Contrast":
        """The contrast: is A at most the margin worse than B, or better (non-inferiority)?"""
        return replace(self, boundary=-self.comparison.unit.stored(_positive(margin)))

    def p_values(self) -> tuple[float, float]:
        """Two p values: the first is small if the data support the hypothesis, the second if they
        refute it. Both are 1 if the comparison is blocked."""
        if self.comparison.blocked:
            return 1.0, 1.0
        at = self.comparison.tails(self.boundary)
        return min(1.0, 2 * at.above), min(1.0, 2 * at.below)

    def interval(self, level: float = ALPHA) -> Interval:
        """The interval that lies on one side of the boundary if a test at this level decides."""
        return self.comparison.interval_at(1 - level)

    def holds(self, effect: float) -> bool:
        """Whether an effect fits the hypothesis: with `no_worse`, a loss of just the margin does;
        with `more_than`, a gain of just the margin does not."""
        return effect > self.boundary + (-EQUAL if self.boundary < 0 else EQUAL)


def _positive(margin: float) -> float:
    """The margin itself. Raises: MadlError: it is not positive."""
    if margin <= 0:
        raise MadlError(f"a margin is positive, got {margin:g}")
    return margin


def compare(a: Arm | TimedArm, b: Arm | TimedArm) -> Contrast:
    """The contrast of A with B: by test accuracy, or by speed where both were timed.

    Raises:
        MadlError: one is a model and the other a time, or the two do not pair.
    """
    if isinstance(a, TimedArm) and isinstance(b, TimedArm):
        comparison = speed_up(a, over=b)
    elif isinstance(a, Arm) and isinstance(b, Arm):
        comparison = versus(a, b)
    else:
        raise MadlError(f"{a.label} and {b.label} are a model and a time")
    cases = tuple(distinct((*a.cases, *b.cases)))
    return Contrast(comparison=comparison, cases=cases, a=a, b=b)


def contrast(comparison: Comparison, records: Iterable[Record]) -> Contrast:
    """The contrast of any comparison of `stats`, made of the values of these records."""
    return Contrast(comparison=comparison, cases=tuple(record.case for record in records))


# ---- claims and what became of them -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A hypothesis and its test, as an experiment declares it."""

    name: str
    hypothesis: str
    test: Callable[[Records], object]  # returns a `Contrast`, if the page is right
    primary: bool = False

    @cached_property
    def digest(self) -> str:
        """The digest of hypothesis, test, design and rank, by which records register the claim."""
        rank = "primary" if self.primary else "secondary"
        return claim_digest(self.hypothesis, self.test, rank)

    @cached_property
    def digests(self) -> set[str]:
        """The digest, and those of records older than the part that rank or design have in it."""
        own = self.hypothesis, self.test
        return {self.digest, claim_digest(*own), claim_digest(*own, with_design=False)}

    def contrast(self, records: Records) -> Contrast:
        """The contrast that the claim's test makes of these records.

        Raises:
            TypeError: the test returns something else.
        """
        result = self.test(records)
        if isinstance(result, Contrast):
            return result
        returned = type(result).__name__
        raise TypeError(f"it returns {returned}; return a comparison, compare(a, b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a claim; if it was not measured, `why` is the reason and no number is set."""

    name: str
    hypothesis: str
    primary: bool
    verdict: Verdict | None  # None of a secondary comparison
    why: str = ""  # the reason, if it was not measured
    contrast: Contrast | None = None
    p: float | None = None
    p_adjusted: float | None = None  # by Holm, among the page's primary claims
    level: float | None = None  # at which Holm tests it
    state: State = "worded after"

    @property
    def comparison(self) -> Comparison:
        """The claim's comparison. Raises: MadlError: it was not measured."""
        return self._measured.comparison

    @property
    def boundary(self) -> float:
        """The true effect that the data are tested against. Raises: MadlError: not measured."""
        return self._measured.boundary

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.contrast.cases if self.contrast else ()

    @property
    def interval(self) -> Interval:
        """The interval that excludes the boundary if the claim is decided: at Holm's level.

        Raises:
            MadlError: it was not measured.
        """
        return self._measured.interval(self.level or ALPHA)

    @property
    def coverage(self) -> float:
        """The share of such intervals, 0…1, that hold the true effect."""
        return 1 - (self.level or ALPHA)

    @property
    def smallest(self) -> float:
        """Least distance of a true effect from the boundary that is decided with 80 % power.

        Raises:
            MadlError: it was not measured.
        """
        return self.comparison.smallest(self.level or ALPHA)

    @property
    def agree(self) -> int:
        """The number of units (models, studies, processes) whose own effect fits the hypothesis."""
        contrast = self.contrast
        return sum(map(contrast.holds, contrast.comparison.by_unit)) if contrast else 0

    @property
    def decided(self) -> Verdict:
        """The verdict of a primary claim.

        Raises:
            MadlError: it is a secondary comparison.
        """
        if self.verdict is None:
            raise MadlError(
                f"claim {self.name!r} is a secondary comparison and has no verdict; print its "
                "effect, or declare it with @page.claim(primary=True)"
            )
        return self.verdict

    @property
    def _measured(self) -> Contrast:
        """The claim's contrast. Raises: MadlError: it was not measured."""
        if self.contrast is None:
            raise MadlError(f"claim {self.name!r} is not measured ({self.why})")
        return self.contrast


def judge(
    claims: Mapping[str, Claim],
    contrasts: Mapping[str, Contrast | str],
    registered: Mapping[str, Run],
) -> dict[str, Result]:
    """The result of each claim of a page, by name; Holm's test takes the primary ones as a family.

    Other claims get no verdict. `contrasts` holds each claim's contrast, or why there is none.
    `registered` holds the run of each record of this page, by the key of its case: by the claims
    that it registered, a result says whether its claim stood before the data.
    """
    measured = {
        name: contrast
        for name, contrast in contrasts.items()
        if isinstance(contrast, Contrast) and not contrast.comparison.blocked
    }
    sides = {name: contrast.p_values() for name, contrast in measured.items()}
    family = {name: min(sides[name]) for name in sides if claims[name].primary}
    adjusted, levels = stats.holm(family), stats.holm_levels(family)

    def verdict(name: str) -> Verdict | None:
        if not claims[name].primary:
            return None
        if name not in family:
            return "not measured"
        if adjusted[name] > ALPHA:
            return "undecided"
        for_it, against = sides[name]
        return "supported" if for_it <= against else "refuted"

    return {
        name: Result(
            name=name,
            hypothesis=claim.hypothesis,
            primary=claim.primary,
            verdict=verdict(name),
            why=_why_none(contrasts[name]),
            contrast=measured.get(name),
            p=family.get(name),
            p_adjusted=adjusted.get(name),
            level=levels.get(name),
            state=_state(claim, measured.get(name), registered),
        )
        for name, claim in claims.items()
    }


def _why_none(contrast: Contrast | str) -> str:
    """Why a claim has no comparison that can decide it; empty where it has one."""
    return contrast if isinstance(contrast, str) else BLOCKED.get(contrast.comparison.blocked, "")


def _state(claim: Claim, contrast: Contrast | None, registered: Mapping[str, Run]) -> State:
    """The worst registration among the page's own records that the claim's contrast uses; if it
    uses none of them, among all of the page's own."""
    cases = contrast.cases if contrast else ()
    held = [registered[case.key] for case in cases if case.key in registered]
    held = held or list(registered.values())  # of others' data alone: registered by the page's own

    def rank(run: Run) -> int:
        known = (run.preregistered_claims.values(), run.claims.values())
        return next((i for i, those in enumerate(known) if claim.digests & {*those}), 2)

    return STATES[max(map(rank, held), default=0)]
