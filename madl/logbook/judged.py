"""Verdicts whose sentences are made in Python, as the first pages make them.

It ends with the last of those pages: then this file goes, and what `claims` takes from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm, TimedArm
from madl.logbook.records import Case
from madl.logbook.stats import ALPHA, Comparison, Interval, Unit
from madl.logbook.values import shown_margin

Verdict = Literal["supported", "refuted", "undecided", "not measured"]
LACKS = {
    "contended": "a quiet machine (others used too much of this one, or many samples came late)",
    "unknown load": "a machine whose load can be read (this one's is unknown)",
}


class Contrast(Protocol):
    """What is read of `claims.Contrast`."""

    @property
    def comparison(self) -> Comparison: ...
    @property
    def cases(self) -> tuple[Case, ...]: ...
    @property
    def a(self) -> Arm | TimedArm | None: ...
    @property
    def b(self) -> Arm | TimedArm | None: ...
    @property
    def boundary(self) -> float: ...
    @property
    def margin(self) -> float | None: ...
    @property
    def boundaries(self) -> tuple[float, ...]: ...
    @property
    def interval(self) -> Interval: ...
    def p_values(self) -> tuple[float, float]: ...
    def smallest(self, level: float = ALPHA) -> float: ...


class Claim(Protocol):
    """What is read of `claims.Claim`."""

    @property
    def hypothesis(self) -> str: ...
    @property
    def headline(self) -> bool: ...
    @property
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What decided a claim, for the page to draw and for its JSON twin."""

    effect: float
    interval: Interval
    unit: Unit
    boundaries: tuple[float, ...]  # that the effect is held against: zero, or the margin's ends
    test: str
    drawn: str  # the units of replication, with their number
    p: float
    p_adjusted: float | None = None  # by Holm, within the page
    needed: str = ""  # what would decide, when this does not
    is_blocked: bool = False  # timed on a busy machine, so nothing is tested
    part: str = ""  # which of several comparisons it is, by name, or of what problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one claim's test says, before its page's other claims are known."""

    p: float
    agrees: bool
    supported: str
    refuted: str
    undecided: str
    evidence: Evidence
    needs: Callable[[float], str]  # what would decide it at a level of significance, in words
    cases: tuple[Case, ...]
    contrasts: tuple[Contrast, ...]  # what was compared

    def __post_init__(self) -> None:
        for verdict in ("supported", "refuted", "undecided"):
            if not getattr(self, verdict).strip():
                raise MadlError(f"has no finding for the verdict {verdict!r}; write one")

    def beside(self, more: str) -> "Judged":
        """The same, whose sentence goes on after a semicolon, however the verdict is."""
        verdicts = ("supported", "refuted", "undecided")
        return replace(self, **{name: f"{getattr(self, name)}; {more}" for name in verdicts})


def judge_contrast(one: Contrast, supported: str, refuted: str, undecided: str) -> Judged:
    """The test's answer, with the finding that each verdict would print."""
    for_it, against = one.p_values()
    made = one.comparison
    evidence = Evidence(
        effect=made.effect,
        interval=one.interval,
        unit=made.unit,
        boundaries=one.boundaries,
        test=_test(one),
        drawn=_drawn(made),
        p=min(for_it, against),
        is_blocked=bool(made.blocked),
    )
    return Judged(
        p=evidence.p,
        agrees=for_it <= against,
        supported=supported,
        refuted=refuted,
        undecided=undecided,
        evidence=evidence,
        needs=lambda level: _needed(one, level),
        cases=one.cases,
        contrasts=(one,),
    )


def _needed(one: Contrast, level: float) -> str:
    """What would decide: a quiet machine, or an effect that these data can show."""
    made = one.comparison
    if made.blocked:
        return LACKS[made.blocked]
    if not (smallest := one.smallest(level)):
        return ""
    beyond = " beyond the margin" if any(one.boundaries) else ""
    return f"these data decide effects of {shown_margin(smallest, made.unit)} or more{beyond}"


def _drawn(made: Comparison) -> str:
    examples = f" × {made.examples:,} test sentences" if made.examples else ""
    return f"{made.units:,} {made.population}{examples}"


def _test(one: Contrast) -> str:
    unit, method = one.comparison.unit, one.comparison.method
    if one.margin is not None:
        return f"equivalence within ±{shown_margin(one.margin, unit)}, {method}"
    if one.boundary < 0:
        return f"no worse than by {shown_margin(-one.boundary, unit)}, {method}"
    if one.boundary > 0:
        return f"more than {shown_margin(one.boundary, unit)}, {method}"
    return method


def faster(one: Contrast, a: TimedArm, b: TimedArm, where: str, part: str) -> Judged:
    """Whether A is faster than B, in the words of their labels; `where` says of what problem.

    What A's label has between commas is of both. `part` tells the problem from another, as
    `Evidence` keeps it, where `where` says more.
    """
    times = f"{a} a call against {b}"
    name, _, both = a.label.partition(", ")
    start = f"{both.rstrip(',')}, {name}" if both.endswith(",") else a.label
    start = start[:1].upper() + start[1:]
    why = "with the page's other claims corrected for"
    if blocked := one.comparison.blocked:
        why = f"which takes {LACKS[blocked]}"
    judged = judge_contrast(
        one,
        supported=f"{start} is {b / a} as fast as {b.label} {where}: {times}",
        refuted=f"{start} takes {a / b} the time of {b.label} {where}: {times}",
        undecided=f"Whether {a.label} is faster than {b.label} {where} is not decided, {why}: "
        f"{b / a:i} as fast; the processes' medians are {a.scatter} and {b.scatter}",
    )
    return replace(judged, evidence=replace(judged.evidence, part=part or where))


def all_of(
    contrasts: Mapping[str, Contrast], *, supported: str, refuted: str, undecided: str
) -> Judged:
    """The claim that all of these hold: as sure as the least sure; refuted as soon as one is.

    The evidence shows that one, by its name.

    Source: Berger 1982, Technometrics 24:295 (intersection-union tests need no correction).
    """
    said = {"supported": supported, "refuted": refuted, "undecided": undecided}
    parts = {name: judge_contrast(one, **said) for name, one in contrasts.items()}
    losing = {name: part.p for name, part in parts.items() if not part.agrees}
    p = min(1.0, len(parts) * min(losing.values())) if losing else 0.0
    shown = min(losing, key=lambda n: losing[n]) if losing else max(parts, key=lambda n: parts[n].p)
    weakest = parts[shown]
    cases = {case.key: case for part in parts.values() for case in part.cases}
    return Judged(
        p=p if losing else weakest.p,
        agrees=not losing,
        supported=supported,
        refuted=refuted,
        undecided=undecided,
        evidence=replace(
            weakest.evidence,
            part=shown,
            test=f"{weakest.evidence.test}; the least sure of {len(parts)} comparisons, {shown}",
        ),
        needs=weakest.needs,
        cases=tuple(cases.values()),
        contrasts=tuple(contrasts.values()),
    )


def compare_leads(
    seen: tuple[stats.Groups, stats.Groups], tested: tuple[stats.Groups, stats.Groups], *, of: str
) -> Comparison:
    """By how much more A leads B on validation than on test, over the same pairs of models.

    What a group has of its own on both splits cancels; single examples do not, nor do the two
    samples of them, which the groups share.

    Raises:
        ValueError: as `stats.compare_groups`.
    """
    splits = [stats.by_group(*sides, of) for sides in (seen, tested)]
    parts = [stats.parts_of(difference) for difference in splits]
    more_seen = splits[0].mean(1) - splits[1].mean(1)
    both = stats.Parts(
        float(more_seen.var(ddof=1)),
        sum(part.of_examples for part in parts),
        sum(part.floor for part in parts),
    )
    every = f"{of} × validation and test sentences"
    return stats.over_units(float(more_seen.mean()), more_seen, parts=both, of=every, method=every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A sentence that is counted or computed over everything there is; `of` says of how many."""

    text: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the page prints of a claim."""

    name: str
    hypothesis: str
    verdict: Verdict
    text: str
    headline: bool = False
    evidence: Evidence | None = None
    cases: tuple[Case, ...] = ()
    worded_after: bool = False  # the hypothesis or its test changed after these data


def judge_family(
    claims: Mapping[str, Claim],
    judged: Mapping[str, Judged],
    missing: Mapping[str, str],
    registered: Mapping[str, Mapping[str, str]],
) -> dict[str, Finding]:
    """Every claim of a page, with the verdicts of one family.

    `missing` says what keeps a claim from being measured. `registered` holds, by the key of a case
    of this page, the digests that its record keeps.
    """
    p_values = {name: one.p for name, one in judged.items()}
    adjusted, levels = stats.holm(p_values), stats.holm_levels(p_values)
    found: dict[str, Finding] = {}
    for name, claim in claims.items():
        made = Finding(
            name=name,
            hypothesis=claim.hypothesis,
            verdict="not measured",
            text=missing.get(name, ""),
            headline=claim.headline,
        )
        if name in judged:
            p, level = adjusted[name], levels[name]
            made = _judged(made, judged[name], p, level, claim, registered)
        found[name] = made
    return found


def _judged(
    made: Finding,
    judged: Judged,
    p: float,
    level: float,
    claim: Claim,
    registered: Mapping[str, Mapping[str, str]],
) -> Finding:
    verdict: Verdict = "undecided"
    if p <= ALPHA:
        verdict = "supported" if judged.agrees else "refuted"
    needed = judged.needs(level) if verdict == "undecided" else ""
    held = [registered[case.key] for case in judged.cases if case.key in registered]
    held = held or list(registered.values())  # of others' data alone: registered by the page's own
    text = getattr(judged, verdict)
    if verdict == "undecided" and judged.p <= ALPHA and "corrected for" not in text:
        alone = "supported" if judged.agrees else "refuted"
        text += f" (alone it would be {alone}; corrected for the page's other claims it is open)"
    if judged.evidence.is_blocked:
        text += f" (not tested, for it needs {needed.partition(' (')[0]})"
    return replace(
        made,
        verdict=verdict,
        text=text,
        evidence=replace(judged.evidence, p_adjusted=p, needed=needed),
        cases=judged.cases,
        worded_after=any(digests.get(made.name) != claim.digest for digests in held),
    )
