"""Claims that can lose: a hypothesis with its test, and a finding for whatever the test says.

The **hypothesis** is the docstring of the claim: one sentence without measured numbers, written
before the run, that the data can contradict. The claim's function makes a comparison and gives a
**finding** for each verdict, each true as it reads. The claims of a page are one family: a verdict
comes from Holm's adjusted p value. A **fact** is counted over everything there is: no verdict, no
interval, and it says of how many.

    @page.claim
    def training_adds(r: Records) -> Judged:
        '''At 8 bits, training on is more accurate than the best fraction width alone.'''
        a, b = qat(r, 8), ptq(r, 8)
        return compare(a, b).judge(
            supported=f"Training on adds {a - b} at 8 bits: {a} after {b}",
            refuted=f"Training on costs {b - a} at 8 bits: {a} after {b}",
            undecided=f"At 8 bits nothing shows that training on changes accuracy: {a - b:+i}",
        )
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scipy.special import ndtr, ndtri

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm, TimedArm, speed_up, versus
from madl.logbook.records import Case, Record, Records
from madl.logbook.stats import ALPHA, Comparison, Interval, Unit

Verdict = Literal["supported", "refuted", "undecided", "not measured"]


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
    power: float | None = None  # of a margin's test to decide, if the two sides were the same
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
    contrasts: "tuple[Contrast, ...]"  # what was compared, for `nulls`

    def __post_init__(self) -> None:
        for verdict in ("supported", "refuted", "undecided"):
            if not getattr(self, verdict).strip():
                raise MadlError(f"has no finding for the verdict {verdict!r}; write one")

    def beside(self, more: str) -> "Judged":
        """The same, whose sentence goes on after a semicolon, however the verdict is."""
        verdicts = ("supported", "refuted", "undecided")
        return replace(self, **{name: f"{getattr(self, name)}; {more}" for name in verdicts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A comparison and the question asked of it: by default, whether A is better than B."""

    comparison: Comparison
    cases: tuple[Case, ...]
    a: Arm | TimedArm | None = None
    b: Arm | TimedArm | None = None
    boundary: float = 0.0  # the truth that supports lies above it …
    margin: float | None = None  # … or, for an equivalence, within this of zero
    level: float | None = None  # that A alone is held against

    def more_than(self, margin: float) -> "Contrast":
        """Whether A is better than B by more than the margin (of times: 0.05 is 5 %)."""
        return replace(self, boundary=self.comparison.unit.stored(_positive(margin)))

    def no_worse(self, margin: float) -> "Contrast":
        """Non-inferiority: whether A is at most the margin worse than B. A better A passes."""
        return replace(self, boundary=-self.comparison.unit.stored(_positive(margin)))

    def within(self, margin: float) -> "Contrast":
        """Equivalence, by two one-sided tests: whether A and B differ by less than the margin."""
        return replace(self, margin=self.comparison.unit.stored(_positive(margin)))

    def judge(self, *, supported: str = "", refuted: str = "", undecided: str = "") -> Judged:
        """The test's answer, with the finding that each verdict would print."""
        for_it, against = self.p_values()
        p, made = min(for_it, against), self.comparison
        edges = (-self.margin, self.margin) if self.margin is not None else (self.boundary,)
        distance = min((made.effect - edge for edge in edges), key=abs)
        evidence = Evidence(
            effect=made.effect,
            interval=made.interval if self.margin is None else made.interval_at(1 - 2 * ALPHA),
            unit=made.unit,
            boundaries=edges,
            test=self._name(),
            drawn=made.drawn,
            p=p,
            power=self.power(),
            is_blocked=bool(made.blocked),
        )
        return Judged(
            p=p,
            agrees=for_it <= against,
            supported=supported,
            refuted=refuted,
            undecided=undecided,
            evidence=evidence,
            needs=lambda level: made.blocked or made.needs(distance, level),
            cases=self.cases,
            contrasts=(self,),
        )

    def p_values(self) -> tuple[float, float]:
        """For the hypothesis, and against it."""
        if self.comparison.blocked:
            return 1.0, 1.0
        tails = self.comparison.tails
        if self.margin is None:
            at = tails(self.boundary)
            return min(1.0, 2 * at.above), min(1.0, 2 * at.below)
        low, high = tails(-self.margin), tails(self.margin)
        return max(low.above, high.below), min(1.0, 2 * min(high.above, low.below))

    def _name(self) -> str:
        unit = self.comparison.unit
        if self.margin is not None:
            return f"equivalence within ±{shown_margin(self.margin, unit)}, {self._score()}"
        if self.boundary < 0:
            return f"no worse than by {shown_margin(-self.boundary, unit)}, {self._score()}"
        if self.boundary > 0:
            return f"more than {shown_margin(self.boundary, unit)}, {self._score()}"
        return self.comparison.test

    def _score(self) -> str:
        """McNemar's test is of zero; at any other boundary the score test takes its place."""
        return self.comparison.test.replace("exact McNemar", "Tango's score")

    def power(self) -> float | None:
        """Chance to support a margin's claim about two sides that are the same."""
        error = self.comparison.error
        if error <= 0 or (self.margin is None and self.boundary >= 0):
            return None
        if self.margin is None:
            return float(ndtr(-self.boundary / error - stats.Z))
        return max(0.0, 2 * float(ndtr(self.margin / error - ndtri(1 - ALPHA))) - 1)


def _positive(margin: float) -> float:
    if margin <= 0:
        raise MadlError(f"a margin is positive, got {margin:g}")
    return margin


def shown_margin(value: float, unit: Unit) -> str:
    """A margin in a reader's unit; of ratios, the share that it allows."""
    if unit is Unit.TIMES:
        return f"{100 * (unit.shown(value) - 1):.3g} %"
    return with_unit(f"{unit.shown(value):.3g}", unit)


def with_unit(number: str, unit: Unit) -> str:
    """A number as it is shown, with its unit: "1 point", "2 points", "+1.00 points"."""
    is_one = number.lstrip("+−") == "1" and len(unit) > len("ms")
    return f"{number} {unit.removesuffix('s') if is_one else unit}"


def compare(a: Arm | TimedArm, b: Arm | TimedArm) -> Contrast:
    """A against B, on test: accuracy where they are models, speed where they were timed."""
    if isinstance(a, TimedArm) and isinstance(b, TimedArm):
        comparison = speed_up(a, over=b)
    elif isinstance(a, Arm) and isinstance(b, Arm):
        comparison = versus(a, b)
    else:
        raise MadlError(f"{a.label} and {b.label} are a model and a time")
    cases = tuple({case.key: case for case in (*a.cases, *b.cases)}.values())
    return Contrast(comparison=comparison, cases=cases, a=a, b=b)


def faster(a: TimedArm, b: TimedArm, where: str, *, part: str = "") -> Judged:
    """Whether A is faster than B, in the words of their labels; `where` says of what problem.

    What A's label has between commas is of both. `part` tells the problem from another, as
    `Evidence` keeps it, where `where` says more.
    """
    times = f"{a} a call against {b}"
    name, _, both = a.label.partition(", ")
    start = f"{both.rstrip(',')}, {name}" if both.endswith(",") else a.label
    start = start[:1].upper() + start[1:]
    made = compare(a, b)
    why = "with the page's other claims corrected for"
    if blocked := made.comparison.blocked:
        why = f"which takes {blocked}"
    judged = made.judge(
        supported=f"{start} is {b / a} as fast as {b.label} {where}: {times}",
        refuted=f"{start} takes {a / b} the time of {b.label} {where}: {times}",
        undecided=f"Whether {a.label} is faster than {b.label} {where} is not decided, {why}: "
        f"{b / a:i} as fast; the processes' medians are {a.scatter} and {b.scatter}",
    )
    return replace(judged, evidence=replace(judged.evidence, part=part or where))


def above(a: Arm, level: float) -> Contrast:
    """An arm's test accuracy against a known level, guessing for one."""
    return Contrast(comparison=stats.exceeding(a.outcomes, level), cases=a.cases, a=a, level=level)


def contrast(comparison: Comparison, records: Iterable[Record]) -> Contrast:
    """Any comparison of `stats`, with the records that it was made of."""
    return Contrast(comparison=comparison, cases=tuple(record.case for record in records))


def all_of(
    contrasts: Mapping[str, Contrast], *, supported: str, refuted: str, undecided: str
) -> Judged:
    """The claim that all of these hold: as sure as the least sure; refuted as soon as one is.

    The evidence shows that one, by its name.

    Source: Berger 1982, Technometrics 24:295 (intersection-union tests need no correction).
    """
    said = {"supported": supported, "refuted": refuted, "undecided": undecided}
    parts = {name: one.judge(**said) for name, one in contrasts.items()}
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


# ---- claims, facts and what became of them ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A hypothesis and its test, as an experiment declares it."""

    name: str
    hypothesis: str
    test: Callable[[Records], Judged]
    headline: bool = False

    @property
    def digest(self) -> str:
        """Of the hypothesis and the test, whatever the findings' wording."""
        text = self.hypothesis + "".join(_sources(self.test, {}).values())
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _sources(fn: Callable[..., Any], found: dict[str, str]) -> dict[str, str]:
    """The test's source, and the helpers and constants (margins) of its own file that it reads."""
    tree = _without_words(fn)
    found[fn.__qualname__] = _written(tree)
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    for name in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        value = inspect.unwrap(known[name]) if callable(known.get(name)) else known.get(name)
        if inspect.isfunction(value) and value.__module__ == fn.__module__:
            if value.__qualname__ not in found:
                _sources(value, found)
        elif name in known and _is_plain(value):
            found[f"{fn.__qualname__} {name}"] = repr(value)
    return found


def _without_words(fn: Callable[..., Any]) -> ast.Module:
    """A function without comments, decorators, docstring and the wording of findings."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [k for k in node.keywords if k.arg not in _WORDS]
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _written(node: Any) -> str:
    """A tree as text, the same on every version of Python: nothing that is empty, no positions."""
    if isinstance(node, list):
        return "[" + " ".join(_written(one) for one in node) + "]"  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind"))
    parts = (f"{name}={_written(value)}" for name, value in fields if value not in (None, []))
    return f"{type(node).__name__}({' '.join(parts)})"


def _is_plain(value: Any) -> bool:
    """Whether it is made of numbers and texts, which print the same in every process."""
    if isinstance(value, Mapping):
        return all(_is_plain(part) for pair in value.items() for part in pair)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return value is None or isinstance(value, str | int | float)


_WORDS = ("supported", "refuted", "undecided")


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


def declared(fn: Callable[..., Any], name: str | None, sentence: str | None) -> tuple[str, str]:
    """The name of what a decorator stands above, and its sentence: given, or the docstring."""
    found = name or fn.__name__
    text = " ".join((sentence or fn.__doc__ or "").split())
    return found, text
