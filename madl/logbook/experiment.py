"""What an experiment is: a file whose functions say by decorator what they are; never registered.

An experiment lives in `experiments/<stem>/page.py` as the constant `page`; its template is
`experiments/<stem>/page.md.j2`. A case is its parameters: `run(params, ctx)` may depend on nothing
else, so the key made of them names the result for good.

    page = Experiment(title="Fixed-point width: PTQ and QAT", needs=("baseline",))

    @page.cases       what there is to run under a plan: an iterable of parameters
    @page.tuning      the cases of the tuning seed, among which validation chooses
    @page.run         one case: its parameters and a context, to its values
    @page.quick       which of full's cases the quick profile runs again
    @page.unavailable why a case cannot run on this machine, or None
    @page.claim       a hypothesis (its docstring) and its test; see `claims`
    @page.chart       a `charts.Chart` made of the records
    @page.drawing     panels of SVG made of rows, which are the CSV; with a script, live
    @page.table       rows
    @page.output      a text that a case captured, shown as it was
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.claims import Claim, Contrast
from madl.logbook.drawing import Panel
from madl.logbook.records import Case, Params, Records, Row, Scalar, Store, Values

TUNING = "_tuning"  # behind a page's name: its cases on the tuning seed, which its own cases need
TUNING_SEED = 0  # chooses everything, by validation loss
CONFIRMING_SEEDS = (10, 11, 12, 13, 14)  # judge what was chosen

CUT = "an encoder that can be cut"  # what a model must have for some experiments
EXPORT = "a graph that can be captured"

SAID = ("effect", "smallest", "agree")  # what a sentence in a claim block has by name

T = TypeVar("T")
Made = TypeVar("Made", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much work a run is: full decides, quick runs a sample of full's cases, smoke proves that
    it works.
    """

    name: str

    def choose(self, *, smoke: T, quick: T) -> T:
        """An experiment's own budget for this profile; quick's is full's, too."""
        return smoke if self.name == "smoke" else quick


PROFILES = {name: Profile(name=name) for name in ("smoke", "quick", "full")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A part of what a question asks for: every combination of these values of parameters."""

    counts: str  # of what: "widths × methods"
    values: Mapping[str, tuple[Scalar, ...]]

    @property
    def combinations(self) -> list[dict[str, Scalar]]:
        return [dict(zip(self.values, one)) for one in product(*self.values.values())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the coursework, in our words, and what counts as all of it.

    Read from `experiments/questions.toml`. One that no lab sheet asks is `beyond` them.
    """

    id: str
    stem: str
    title: str
    text: str
    asked: tuple[Asked, ...] = ()
    beyond: bool = False


class Plan(Protocol):
    """All that `cases` may see."""

    @property
    def profile(self) -> Profile: ...
    @property
    def seeds(self) -> tuple[int, ...]:
        """The confirming seeds."""
        ...

    @property
    def workload(self) -> Params: ...
    def records(self, name: str) -> Records:
        """The upstream experiment's results: complete, or this experiment waits."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """All that `run` may see beside its parameters."""

    device: str
    store: Store

    def artifact(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder `build` filled once under that name; atomic, shared by all cases."""
        return self.store.artifact(name, build)

    def folder(self, name: str) -> Path:
        """A folder under that name that outlives a killed case: a search's study, for example."""
        return self.store.folder(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A chart, drawing, table or text of a page: how it is made of the records."""

    kind: str
    make: Callable[[Records], Any]
    panels: Callable[[Sequence[Row]], Sequence[Panel]] | None = None  # of a drawing
    alt: Callable[[Sequence[Row]], str] | None = None
    script: str = ""  # by what name the page's `explain.js` finds the drawing that it makes live
    reads: tuple[str, ...] = ()  # experiments that only this looks at


class Experiment:
    """Everything one page needs, collected from the decorated functions of one file.

    `timed` says which cases measure time, and so run alone. `needs` names the experiments whose
    results its cases and claims read. `requires` says what the model must have, for all cases or
    for those of these parameters.
    """

    def __init__(
        self,
        *,
        title: str,
        needs: tuple[str, ...] = (),
        timed: bool | Callable[[Params], bool] = False,
        requires: Sequence[str] | Callable[[Params], Sequence[str]] = (),
        version: int = 1,
    ) -> None:
        self.title, self.needs, self.version = title, needs, version
        self._timed, self._requires = timed, requires
        self._cases: Callable[[Plan], Iterable[Params]] | None = None
        self._tuning: Callable[[Plan], Iterable[Params]] | None = None
        self._run: Callable[[Params, Context], Values] | None = None
        self.why_unavailable: Callable[[Params], str | None] = lambda params: None
        self.is_quick: Callable[[Params], bool] = lambda params: False
        self.claims: dict[str, Claim] = {}
        self.shown: dict[str, Shown] = {}
        self.made_numbers: dict[str, Callable[[Records], Any]] = {}

    # ---- declaring ------------------------------------------------------------------------------

    def cases(self, fn: Callable[[Plan], Iterable[Params]]) -> Callable[[Plan], Iterable[Params]]:
        """Declare what there is to run under a plan."""
        self._cases = fn
        return fn

    def tuning(self, fn: Callable[[Plan], Iterable[Params]]) -> Callable[[Plan], Iterable[Params]]:
        """Declare the cases of the tuning seed, which `cases` reads by `plan.records`."""
        self._tuning = fn
        return fn

    def run(self, fn: Callable[[Params, Context], Values]) -> Callable[[Params, Context], Values]:
        """Declare how one case runs."""
        self._run = fn
        return fn

    def unavailable(self, fn: Callable[[Params], str | None]) -> Callable[[Params], str | None]:
        """Declare why a case cannot run on this machine (no GPU, no such program), or None."""
        self.why_unavailable = fn
        return fn

    def quick(self, fn: Callable[[Params], bool]) -> Callable[[Params], bool]:
        """Declare which of full's cases the quick profile runs again; without it, none."""
        self.is_quick = fn
        return fn

    @overload
    def claim(self, fn: Made) -> Made: ...
    @overload
    def claim(self, *, primary: bool) -> Callable[[Made], Made]: ...
    def claim(self, fn: Any = None, *, primary: bool = False) -> Any:
        """Declare a claim: its docstring is what the data can contradict.

        `primary`: it answers the page's question, and has a verdict.

        Raises:
            MadlError: there is no docstring, or the name is taken.
        """

        def declare(made: Callable[[Records], Contrast]) -> Callable[[Records], Contrast]:
            name, hypothesis = made.__name__, " ".join((made.__doc__ or "").split())
            if not hypothesis:
                raise MadlError(
                    f"claim {name!r} has no hypothesis; write as its docstring the sentence that "
                    "the data can contradict"
                )
            self._is_new(name)
            self.claims[name] = Claim(name=name, hypothesis=hypothesis, test=made, primary=primary)
            return made

        return declare if fn is None else declare(fn)

    def numbers(self, **made: Callable[[Records], Any]) -> None:
        """Declare what the template prints by name: functions of the records (see `numbers`)."""
        for name, make in made.items():
            self._is_new(name)
            if name in SAID:
                raise MadlError(f"a number has the name {name!r} of a claim block; rename it")
            self.made_numbers[name] = make

    def chart(self, fn: Made) -> Made:
        """Declare a chart, whose title and caption stand in the template."""
        return self._show("chart", fn)

    def drawing(
        self,
        *,
        panels: Callable[[Sequence[Row]], Sequence[Panel]],
        alt: Callable[[Sequence[Row]], str],
        script: str = "",
        reads: tuple[str, ...] = (),
    ) -> Callable[[Made], Made]:
        """Declare the rows of a drawing; `panels` sees nothing but them.

        An explainer is a drawing with a `script`: the page's `explain.js` gets the same rows and
        makes the picture live; without it, the picture shows the script's first state.
        `reads` names experiments whose records the rows may use where there are any, by
        `r.of(name)`; the page does not wait for them, as it does for what it `needs`.
        """

        def declare(fn: Made) -> Made:
            how: dict[str, Any] = {"panels": panels, "alt": alt, "script": script, "reads": reads}
            return self._show("drawing", fn, **how)

        return declare

    def table(self, fn: Made) -> Made:
        """Declare the rows of a table."""
        return self._show("table", fn)

    def output(self, fn: Made) -> Made:
        """Declare a text that a case captured, an error message for example."""
        return self._show("output", fn)

    def power(self, truths: stats.Truths, *, units: int, claims: int = 0) -> None:
        """Declare the table `chances`: how likely the design decides what is true by this much.

        `claims` of a family: as many as are primary, where none are given.
        """

        def chances(r: Records) -> Sequence[Row]:
            primary = [claim for claim in self.claims.values() if claim.primary]
            made = primary[0].test(r).comparison
            return stats.chances(truths, made, claims=claims or len(primary), units=units)

        self.table(chances)

    def _show(self, kind: str, fn: Made, **how: Any) -> Made:
        self._is_new(fn.__name__)
        self.shown[fn.__name__] = Shown(kind=kind, make=fn, **how)
        return fn

    def _is_new(self, name: str) -> None:
        if any(name in one for one in (self.claims, self.shown, self.made_numbers)):
            raise MadlError(f"{name!r} is declared twice; give each its own name")

    # ---- reading --------------------------------------------------------------------------------

    def planned(self, name: str, plan: Plan) -> list[Case]:
        """The cases of this plan, without repeats, in the order they are to run."""
        if self._cases is None:
            raise MadlError(
                f"experiment {name} declares no cases; decorate a function: @page.cases"
            )
        cases = [
            Case(experiment=name, params=dict(params), version=self.version)
            for params in self._cases(plan)
        ]
        return list({case.key: case for case in cases}.values())

    @property
    def tuned_by(self) -> "Experiment | None":
        """The cases of the tuning seed: an experiment that this one needs, without a page."""
        if self._tuning is None:
            return None
        title = f"{self.title}: tuning"
        of = {"timed": self._timed, "requires": self._requires}
        made = Experiment(title=title, **of, version=self.version)  # pyright: ignore[reportArgumentType]
        made.needs = tuple(name for name in self.needs if not name.endswith(TUNING))
        made._cases, made._run = self._tuning, self._run
        made.why_unavailable = self.why_unavailable
        return made

    def execute(self, params: Params, ctx: Context) -> Values:
        """Run one case."""
        if self._run is None:
            raise MadlError(
                "the experiment declares nothing to run; decorate a function: @page.run"
            )
        return self._run(params, ctx)

    def runs_alone(self, params: Params) -> bool:
        """Whether this case measures time."""
        return self._timed(params) if callable(self._timed) else self._timed

    @property
    def required(self) -> Sequence[str]:
        """What the model must have for any case."""
        return () if callable(self._requires) else self._requires

    def required_by(self, params: Params) -> Sequence[str]:
        """What the model must have for this case."""
        return self._requires(params) if callable(self._requires) else self._requires

    @cached_property
    def digests(self) -> dict[str, str]:
        """Every claim as it is worded in this file, for the record to keep."""
        return {name: claim.digest for name, claim in self.claims.items()}
