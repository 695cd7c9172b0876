"""What an experiment is: a file with questions, cases, claims and figures; found, never registered.

An experiment lives in `experiments/<stem>.py` as the constant `experiment`; its page is
`templates/<stem>.md.j2`. A case is its parameters: `run(params, ctx)` may depend on nothing else,
so the key made of them names the result for good.
"""

import graphlib
import hashlib
import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from madl.errors import MadlError
from madl.logbook.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from madl.logbook.results import Records
    from madl.logbook.stats import Evidence

Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]
Row = Mapping[str, Scalar]  # of a table: column title → value
Verdict = Literal["supported", "refuted", "undecided", "pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the coursework, in our words (`experiments/questions.toml`)."""

    id: str
    stem: str
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One unit of work: some seconds to some minutes, done once, never repeated.

    `key` is made of everything that defines the result.
    """

    experiment: str
    params: Params
    version: int = 1

    @property
    def key(self) -> str:
        identity = {"experiment": self.experiment, "params": self.params, "version": self.version}
        text = json.dumps(identity, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence whose numbers come from records and whose verdict comes from `stats` alone."""

    text: str
    verdict: Verdict
    evidence: "Evidence | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A table made from records, the drawing of that table, and the words for who cannot see it.

    `rows` become the CSV and the page's table; `draw` sees nothing but the rows, so a figure
    cannot show what its CSV does not hold. `alt` says in a sentence what the rows say.
    """

    caption: str
    rows: "Callable[[Records], Sequence[Row]]"
    draw: "Callable[[Axes, Sequence[Row]], None]"
    alt: Callable[[Sequence[Row]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One part of a drawing: SVG text that takes its colours from the page."""

    title: str
    svg: str
    folded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure that is no plot: panels of SVG inside the page, folded where they are details.

    As with `Figure`, `panels` sees nothing but the rows, and the rows are the CSV.
    """

    caption: str
    rows: "Callable[[Records], Sequence[Row]]"
    panels: Callable[[Sequence[Row]], Sequence[Panel]]
    alt: Callable[[Sequence[Row]], str]


class Plan(Protocol):
    """All that `params` may see."""

    @property
    def profile(self) -> Profile: ...
    @property
    def workload(self) -> Params: ...
    def records(self, name: str) -> "Records":
        """The upstream experiment's results: complete, or this experiment waits."""
        ...


class Context(Protocol):
    """All that `run` may see beside its parameters."""

    @property
    def device(self) -> str: ...
    def artifact(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder `build` filled once under that name; atomic, shared by all cases."""
        ...

    def folder(self, name: str) -> Path:
        """A folder under that name that outlives a killed case: a search's study, for example."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Everything one page needs. `claims` and `figures` are functions of the records.

    `outputs` are texts that a case captured, an error message for example, shown as they were.
    `unavailable` says why a case cannot run on this machine (no GPU, no such program), or None.
    """

    title: str
    params: Callable[[Plan], Iterable[Params]]
    run: Callable[[Params, Context], Mapping[str, Any]]
    claims: "Mapping[str, Callable[[Records], Claim]]" = field(default_factory=dict)
    figures: Mapping[str, Figure | Drawing] = field(default_factory=dict)
    tables: "Mapping[str, Callable[[Records], Sequence[Row]]]" = field(default_factory=dict)
    outputs: "Mapping[str, Callable[[Records], str]]" = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    timed: bool | Callable[[Params], bool] = False  # which cases measure time, and so run alone
    unavailable: Callable[[Params], str | None] = lambda params: None
    version: int = 1

    def runs_alone(self, params: Params) -> bool:
        return self.timed(params) if callable(self.timed) else self.timed

    def cases(self, name: str, plan: Plan) -> list[Case]:
        """The cases of this plan, without repeats, in the order they are to run."""
        cases = [
            Case(experiment=name, params=dict(params), version=self.version)
            for params in self.params(plan)
        ]
        return list({case.key: case for case in cases}.values())


@dataclass(frozen=True)
class Project:
    """The folders of one logbook; the product's own unless `root` says otherwise."""

    root: Path = Path(__file__).resolve().parents[2]

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def templates(self) -> Path:
        return self.root / "templates"

    @property
    def docs(self) -> Path:
        return self.root / "docs"

    @property
    def state(self) -> Path:
        return self.root / ".madl"

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The whole coursework, answered or not."""
        text = (self.experiments / "questions.toml").read_text("utf-8")
        return tuple(Question(id=id, **entry) for id, entry in tomllib.loads(text).items())

    @cached_property
    def loaded(self) -> dict[str, Experiment]:
        """Every experiment on disk, by name, each after what it needs."""
        stems = sorted(path.stem for path in self.experiments.glob("[!_]*.py"))
        found = {stem: self._load(stem) for stem in stems}
        order = graphlib.TopologicalSorter({name: e.needs for name, e in found.items()})
        return {name: found[name] for name in order.static_order()}

    def names(self) -> list[str]:
        return list(self.loaded)

    def load(self, name: str) -> Experiment:
        """One experiment by name.

        Raises:
            MadlError: there is no such experiment.
        """
        if name not in self.loaded:
            close = get_close_matches(name, self.loaded, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise MadlError(
                f"unknown experiment {name!r}; {hint}known: {', '.join(self.loaded) or 'none'}"
            )
        return self.loaded[name]

    def _load(self, stem: str) -> Experiment:
        path = self.experiments / f"{stem}.py"
        spec = importlib.util.spec_from_file_location(f"experiments.{stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module.experiment
