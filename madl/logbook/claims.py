"""Claims that can lose: a hypothesis with its test, and what becomes of it.

The **hypothesis** is the docstring of the claim: one sentence without measured numbers, written
before the run, that the data can contradict. The claim's function returns a **contrast**: what is
compared, and the question asked of it. The one to three **primary** claims of a page are one
family: a verdict comes from Holm's adjusted p value. A secondary comparison has an effect and an
interval, and never a verdict. The page's template holds the sentences.

    @page.claim(primary=True)
    def training_on_wins_back_accuracy(r: Records) -> Contrast:
        '''At 4 bits, training on (QAT) is more accurate than quantization alone (PTQ).'''
        return compare(qat(r, 4), ptq(r, 4))  # or .no_worse(0.02), .within(0.02), .more_than(0.02)
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm, TimedArm, speed_up, versus
from madl.logbook.records import Case, Record, Records, Run
from madl.logbook.stats import ALPHA, Comparison

Verdict = Literal["supported", "refuted", "undecided", "not measured"]
State = Literal["registered", "known", "worded after"]
STATES: tuple[State, ...] = ("registered", "known", "worded after")  # the later, the worse
EQUAL = 1e-9  # of an effect: sums of fractions that should be equal differ by less


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A comparison and the question asked of it: by default, whether A is better than B."""

    comparison: Comparison
    cases: tuple[Case, ...]
    a: Arm | TimedArm | None = None
    b: Arm | TimedArm | None = None
    boundary: float = 0.0  # the truth that supports lies above it …
    margin: float | None = None  # … or, for an equivalence, within this of zero

    def more_than(self, margin: float) -> "Contrast":
        """Whether A is better than B by more than the margin (of times: 0.05 is 5 %)."""
        return replace(self, boundary=self.comparison.unit.stored(_positive(margin)))

    def no_worse(self, margin: float) -> "Contrast":
        """Non-inferiority: whether A is at most the margin worse than B. A better A passes."""
        return replace(self, boundary=-self.comparison.unit.stored(_positive(margin)))

    def within(self, margin: float) -> "Contrast":
        """Equivalence, by two one-sided tests: whether A and B differ by less than the margin."""
        return replace(self, margin=self.comparison.unit.stored(_positive(margin)))

    @property
    def boundaries(self) -> tuple[float, ...]:
        """That the effect is held against: zero, or the ends of a margin."""
        return (self.boundary,) if self.margin is None else (-self.margin, self.margin)

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

    def smallest(self, level: float = ALPHA) -> float:
        """Least distance of a truth from the boundary that is decided, with 80 % power."""
        return self.comparison.smallest(level if self.margin is None else 2 * level)

    def holds(self, effect: float) -> bool:
        """Whether an effect lies on the hypothesis' side: a loss of just the margin does, a gain of
        just the margin does not."""
        if self.margin is not None:
            return abs(effect) < self.margin
        return effect > self.boundary - (EQUAL if self.boundary < 0 else 0.0)


def _positive(margin: float) -> float:
    if margin <= 0:
        raise MadlError(f"a margin is positive, got {margin:g}")
    return margin


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


def contrast(comparison: Comparison, records: Iterable[Record]) -> Contrast:
    """Any comparison of `stats`, with the records that it was made of."""
    return Contrast(comparison=comparison, cases=tuple(record.case for record in records))


def pooled(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Contrasts of one kind, on the same seeds, which share the variance between seeds.

    Raises:
        MadlError: they are of other seeds.
    """
    drawn = {tuple(c.params.get("seed") for c in one.a.cases) for one in contrasts if one.a}
    try:
        if len(drawn) > 1:
            raise ValueError("only comparisons on the same seeds share their variance")
        made = stats.pooled([one.comparison for one in contrasts])
    except ValueError as error:
        names = ", ".join(one.a.label for one in contrasts if one.a)
        raise MadlError(f"{names} cannot be pooled: {error}") from error
    cases = tuple({case.key: case for one in contrasts for case in one.cases}.values())
    return [replace(one, comparison=new, cases=cases) for one, new in zip(contrasts, made)]


# ---- claims and what became of them -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A hypothesis and its test, as an experiment declares it."""

    name: str
    hypothesis: str
    test: Callable[[Records], Contrast]
    primary: bool = False

    @property
    def digest(self) -> str:
        """Of the hypothesis and the test."""
        text = self.hypothesis + "".join(_sources(self.test, {}).values())
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a claim. Of one that was not measured, `why`, and no number at all."""

    name: str
    hypothesis: str
    primary: bool
    verdict: Verdict | None  # None of a secondary comparison
    why: str = ""  # it was not measured
    contrast: Contrast | None = None
    p: float | None = None
    p_adjusted: float | None = None  # by Holm, among the page's primary claims
    level: float | None = None  # at which Holm tests it
    state: State = "worded after"

    @property
    def comparison(self) -> Comparison:
        """Raises: MadlError: it was not measured."""
        return self._measured.comparison

    @property
    def boundaries(self) -> tuple[float, ...]:
        return self.contrast.boundaries if self.contrast else ()

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.contrast.cases if self.contrast else ()

    @property
    def smallest(self) -> float:
        """Least distance from the boundary that could have been decided, at Holm's level.

        Raises:
            MadlError: it was not measured.
        """
        return self._measured.smallest(self.level or ALPHA)

    @property
    def agree(self) -> int:
        """How many of `comparison.by_unit` lie on the hypothesis' side of the boundary."""
        made = self.contrast
        return sum(map(made.holds, made.comparison.by_unit)) if made else 0

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
        if self.contrast is None:
            raise MadlError(f"claim {self.name!r} is not measured ({self.why})")
        return self.contrast


def judge(
    claims: Mapping[str, Claim],
    contrasts: Mapping[str, Contrast],
    missing: Mapping[str, str],
    registered: Mapping[str, Run],
) -> dict[str, Result]:
    """Every claim of a page; the primary ones are one family.

    `missing` says what keeps a claim from being measured; `registered` holds, by the key of a case
    of this page, the run of its record.
    """
    sides = {name: one.p_values() for name, one in contrasts.items()}
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
            why="" if name in contrasts else missing.get(name, ""),
            contrast=contrasts.get(name),
            p=family.get(name),
            p_adjusted=adjusted.get(name),
            level=levels.get(name),
            state=_state(claim, contrasts.get(name), registered),
        )
        for name, claim in claims.items()
    }


def _state(claim: Claim, made: Contrast | None, registered: Mapping[str, Run]) -> State:
    """The worst of all records that it rests on."""
    cases = made.cases if made else ()
    held = [registered[case.key] for case in cases if case.key in registered]
    held = held or list(registered.values())  # of others' data alone: registered by the page's own
    digest = claim.digest

    def of(run: Run) -> int:
        known = (run.at_first, run.claims)
        return next((i for i, one in enumerate(known) if one.get(claim.name) == digest), 2)

    return STATES[max(map(of, held), default=0)]


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
    """A function without comments, decorators and docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    for node in ast.walk(tree):
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
