"""Experiments: each is a file whose decorated functions declare its cases, claims and charts.

An experiment lives in `experiments/<stem>/page.py` as the constant `page`, and is found there; its
template is `experiments/<stem>/page.md.j2`. A case is its parameters: `run(params, ctx)` may depend
on nothing else, so the key made of them names the result for good.

    page = Experiment(needs=("baseline",))

    @page.cases       the parameters of each case that a plan has
    @page.tuning      the cases of the tuning seed, among which validation chooses
    @page.run         runs one case: from its parameters and a context to its values; without it,
                      the function `run` of the page's `study.py` does
    @page.quick       which of full's cases the quick profile runs again
    @page.unavailable why a case cannot run on this machine, or None
    @page.claim       a hypothesis (its docstring) and its test; see `claims`
    @page.chart       a `charts.Chart` made of the records
    @page.drawing     panels of SVG made of rows, which are the CSV; with a script, live
    @page.table       rows
    @page.output      a text that a case captured, shown as it was
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from madl.errors import MadlError
from madl.files import LIBRARY
from madl.logbook.claims import Claim, Contrast
from madl.logbook.drawing import Panel
from madl.logbook.power import Truths, power_table
from madl.logbook.records import (
    Case,
    Params,
    Records,
    Row,
    Scalar,
    Store,
    Values,
    distinct,
)
from madl.logbook.values import Unit
from madl.machine import sources
from madl.machine.sources import TUNING

TUNING_SEED = 0  # chooses everything, by validation loss
CONFIRMING_SEEDS = (10, 11, 12, 13, 14)  # judge what was chosen
FURTHER_SEEDS = (15, 16, 17, 18, 19)  # repeat the cases of primary claims
NUM_SEEDS = len(CONFIRMING_SEEDS) + len(FURTHER_SEEDS)  # behind a primary claim

CUT = "an encoder that can be cut"  # what a model must have for some experiments
EXPORT = "a graph that can be captured"

# names that sentences in a claim block may print, the last three of runs that disagree
CLAIM_VARIABLES = ("effect", "smallest", "agree", "here", "elsewhere", "place")

T = TypeVar("T")
Made = TypeVar("Made", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much work a run is: full decides, quick runs a sample of full's cases, smoke proves that
    it works.
    """

    name: str

    def choose(self, *, smoke: T, quick: T) -> T:
        """The budget for this profile: `smoke` in the smoke profile, `quick` in quick and full."""
        return smoke if self.name == "smoke" else quick


PROFILES = {name: Profile(name=name) for name in ("smoke", "quick", "full")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A part of what a question asks for: every combination of these values of parameters."""

    counts: str  # the noun for its combinations: "widths × methods"
    values: Mapping[str, tuple[Scalar, ...]]

    @property
    def combinations(self) -> list[dict[str, Scalar]]:
        return [
            dict(zip(self.values, combination)) for combination in product(*self.values.values())
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the coursework, in our words; an entry of `experiments/questions.toml`.

    `requirements` say what a whole answer covers. One that no lab sheet asks is `beyond` them.
    `sheet` is the workload that a lab sheet asks it of.
    """

    id: str
    stem: str
    title: str
    text: str
    requirements: tuple[Requirement, ...] = ()
    beyond: bool = False
    sheet: str = ""


class Plan(Protocol):
    """The part of a plan that an experiment's function `cases` may see."""

    @property
    def profile(self) -> Profile: ...
    @property
    def seeds(self) -> tuple[int, ...]:
        """The confirming seeds."""
        ...

    @property
    def workload(self) -> Params: ...
    def records(self, name: str) -> Records:
        """The results of an experiment that this one needs, and that is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """All that a case's `run` gets beside its parameters: the device, and folders for its work."""

    device: str
    store: Store
    code: str = ""  # digest of the experiment's code
    root: Path = LIBRARY  # of the logbook

    def artifact(
        self, name: str, build: Callable[[Path], None], *, by: Callable[..., Any] | None = None
    ) -> Path:
        """The folder of this name, which `build` fills at its first use; all cases share it.

        It is built again once the code that builds it has changed: the module of `by` (or else of
        `build`) and all that it imports.
        """
        code = sources.digest_of_module(self.root, (by or build).__module__)
        return self.store.artifact(name, build, code)

    def folder(self, name: str) -> Path:
        """The folder of this name, which a killed case finds again: a search's study, for example.

        It is emptied once the experiment's code has changed.
        """
        return self.store.folder(name, self.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A chart, drawing, table or text of a page, with the functions that make it of the records."""

    kind: str
    make: Callable[[Records], Any]
    panels: Callable[[Sequence[Row]], Sequence[Panel]] | None = None  # of a drawing
    alt: Callable[[Sequence[Row]], str] | None = None
    script: str = ""  # the name by which the page's `explain.js` finds the drawing it makes live
    reads: tuple[str, ...] = ()  # experiments whose records it may use, if there are any


class Experiment:
    """Everything one page needs, collected from the decorated functions of one file.

    A page of a single question has that one's title, not `title`. `timed` says which cases measure
    time, and so run alone. `needs` names the experiments whose results its cases and claims read.
    `requires` says what the model must have: for all cases, or as a function of a case's
    parameters. Another `version` gives all cases new keys.
    """

    def __init__(
        self,
        *,
        title: str = "",
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
        self.study = ""  # the module beside the page that runs cases, where there is one
        self.why_unavailable: Callable[[Params], str | None] = lambda params: None
        self.is_quick: Callable[[Params], bool] = lambda params: False
        self.claims: dict[str, Claim] = {}
        self.shown: dict[str, Shown] = {}
        self.made_numbers: dict[str, Callable[[Records], Any]] = {}

    # ---- declaring ------------------------------------------------------------------------------

    def cases(self, fn: Callable[[Plan], Iterable[Params]]) -> Callable[[Plan], Iterable[Params]]:
        """Declare the function that gives the parameters of each case of a plan."""
        self._cases = fn
        return fn

    def tuning(self, fn: Callable[[Plan], Iterable[Params]]) -> Callable[[Plan], Iterable[Params]]:
        """Declare the function that gives the cases of the tuning seed; `cases` reads them."""
        self._tuning = fn
        return fn

    def run(self, fn: Callable[[Params, Context], Values]) -> Callable[[Params, Context], Values]:
        """Declare the function that runs one case, where no `study.py` has it."""
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
        """Declare a claim: a function that has the hypothesis as docstring and returns a contrast.

        A `primary` claim answers the page's question, and gets a verdict.

        Raises:
            MadlError: there is no docstring, or the name is taken.
        """

        def declare(function: Callable[[Records], Contrast]) -> Callable[[Records], Contrast]:
            name, hypothesis = function.__name__, " ".join((function.__doc__ or "").split())
            if not hypothesis:
                raise MadlError(
                    f"claim {name!r} has no hypothesis; write as its docstring the sentence that "
                    "the data can contradict"
                )
            self._is_new(name)
            self.claims[name] = Claim(
                name=name, hypothesis=hypothesis, test=function, primary=primary
            )
            return function

        return declare if fn is None else declare(fn)

    def numbers(self, **functions: Callable[[Records], Any]) -> None:
        """Declare numbers that the template prints by these names: functions of the records."""
        for name, make in functions.items():
            self._is_new(name)
            if name in CLAIM_VARIABLES:
                raise MadlError(f"a number has the name {name!r} of a claim block; rename it")
            self.made_numbers[name] = make

    def chart(self, fn: Made) -> Made:
        """Declare a function that makes a chart; title and caption stand in the template."""
        return self._show("chart", fn)

    def drawing(
        self,
        *,
        panels: Callable[[Sequence[Row]], Sequence[Panel]],
        alt: Callable[[Sequence[Row]], str],
        script: str = "",
        reads: tuple[str, ...] = (),
    ) -> Callable[[Made], Made]:
        """Declare a function that makes a drawing's rows, which `panels` draws and `alt` describes.

        An explainer is a drawing with a `script`: the page's `explain.js` gets the same rows and
        makes the picture live; without it, the picture shows the script's first state.
        `reads` names experiments whose records the rows may use where there are any, by
        `r.of_experiment(name)`; the page does not wait for them, as it does for what it `needs`.
        """

        def declare(fn: Made) -> Made:
            how: dict[str, Any] = {"panels": panels, "alt": alt, "script": script, "reads": reads}
            return self._show("drawing", fn, **how)

        return declare

    def table(self, fn: Made) -> Made:
        """Declare a function that makes the rows of a table."""
        return self._show("table", fn)

    def output(self, fn: Made) -> Made:
        """Declare a function that gives a text that a case captured, such as an error message."""
        return self._show("output", fn)

    def power(self, truths: Truths, *, unit: Unit = Unit.POINTS, units: int = NUM_SEEDS) -> None:
        """Declare the table `power`: how likely the design decides, for each of the assumed truths.

        `unit` is that of the truths; `units` counts what is drawn at random (seeds, studies).
        """

        def power(_: Records) -> Sequence[Row]:
            family = sum(claim.primary for claim in self.claims.values())
            return power_table(truths, unit, claims=max(family, 1), units=units)

        self.table(power)

    def _show(self, kind: str, fn: Made, **how: Any) -> Made:
        """Keep the function under its name, as the maker of a chart, drawing, table or text."""
        self._is_new(fn.__name__)
        self.shown[fn.__name__] = Shown(kind=kind, make=fn, **how)
        return fn

    def _is_new(self, name: str) -> None:
        """Raises: MadlError: the page has declared this name already."""
        if any(name in declared for declared in (self.claims, self.shown, self.made_numbers)):
            raise MadlError(f"{name!r} is declared twice; give each its own name")

    # ---- reading --------------------------------------------------------------------------------

    def planned(self, name: str, plan: Plan) -> list[Case]:
        """The cases of the experiment `name` under this plan, without repeats."""
        if self._cases is None:
            raise MadlError(
                f"experiment {name} declares no cases; decorate a function: @page.cases"
            )
        cases = (
            Case(experiment=name, params=dict(params), version=self.version)
            for params in self._cases(plan)
        )
        return distinct(cases)

    @property
    def tuned_by(self) -> "Experiment | None":
        """The experiment of the cases on the tuning seed, which has no page; None without such."""
        if self._tuning is None:
            return None
        inherited = {"timed": self._timed, "requires": self._requires}
        tuning = Experiment(**inherited, version=self.version)  # pyright: ignore[reportArgumentType]
        tuning.needs = tuple(name for name in self.needs if not name.endswith(TUNING))
        tuning._cases, tuning._run, tuning.study = self._tuning, self._run, self.study
        tuning.why_unavailable = self.why_unavailable
        return tuning

    def execute(self, params: Params, ctx: Context) -> Values:
        """Run one case, and return its values."""
        if self._run is not None:
            return self._run(params, ctx)
        if not self.study:
            raise MadlError(
                "the experiment declares nothing to run; write a function `run` into its study.py, "
                "or decorate one of its page: @page.run"
            )
        return importlib.import_module(self.study).run(params, ctx)

    def runs_alone(self, params: Params) -> bool:
        """Whether this case measures time, and so runs alone."""
        return self._timed(params) if callable(self._timed) else self._timed

    @property
    def required(self) -> Sequence[str]:
        """Abilities that the model must have for all cases; none, if each case has its own."""
        return () if callable(self._requires) else self._requires

    def required_by(self, params: Params) -> Sequence[str]:
        """Abilities that the model must have for this case."""
        return self._requires(params) if callable(self._requires) else self._requires

    @cached_property
    def digests(self) -> dict[str, str]:
        """Claim name → digest of the claim as it is worded now, for records to keep."""
        return {name: claim.digest for name, claim in self.claims.items()}
