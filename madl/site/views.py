"""What a page is made from: one experiment's records on this machine, and on the others.

A view computes findings, facts and rows from records and nothing else; what is missing is said.
Views of committed evidence stand beside this machine's own, or in its place where it has none.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from madl.errors import MadlError
from madl.logbook.charts import Chart, NoRows
from madl.logbook.claims import Fact, Finding, Judged, judge_family
from madl.logbook.experiment import PROFILES, Experiment, Question
from madl.logbook.records import (
    Case,
    Pending,
    Published,
    Record,
    Records,
    Scalar,
    read_published,
    sealed,
)
from madl.running.plans import StoredPlan
from madl.running.project import Project

_OF_AN_EMPTY_SEQUENCE = (NoRows, LookupError, ValueError, ArithmeticError, StopIteration)
Status = Literal["answered", "partly", "open"]
NOT_RUN = "not run here"


@dataclass(frozen=True, kw_only=True)
class View:
    """One experiment as one machine has it under one plan."""

    name: str
    plan: StoredPlan
    published: bool
    elsewhere: Sequence[Published] = ()  # other machines' evidence, for what this one cannot run

    @property
    def experiment(self) -> Experiment:
        return self.plan.project.load(self.name)

    @functools.cached_property
    def cases(self) -> list[Case]:
        return self.plan.cases(self.name) if self.plan.is_ready(self.name) else []

    @functools.cached_property
    def own(self) -> list[Record]:
        """The good results of this experiment on this machine."""
        found = (self.plan.store.get(case) for case in self.cases)
        return [record for record in found if record and record.status == "ok"]

    @functools.cached_property
    def used(self) -> list[Record]:
        """What stands behind the page: this experiment's results, borrowed ones included."""
        found = (self._result(case) for case in self.cases)
        return [record for record in found if record is not None]

    @functools.cached_property
    def _planned(self) -> list[tuple[Case, Record | None]]:
        """Every case that the page reads with its result: those it needs, then its own."""
        plan = self.plan
        names = [n for n in (*self.experiment.needs, self.name) if plan.is_ready(n)]
        return [(case, self._result(case)) for name in names for case in plan.cases(name)]

    @property
    def stored(self) -> list[Record]:
        """The results that the page reads, as they are stored."""
        return [record for _, record in self._planned if record is not None]

    @functools.cached_property
    def records(self) -> Records:
        """What claims and charts see: those results, sealed, and what is missing."""
        missing = (case for case, record in self._planned if record is None)
        return Records(map(sealed, self.stored), missing)

    def _result(self, case: Case) -> Record | None:
        """A case's result; what this machine cannot run as another one has it."""
        record = self.plan.store.get(case)
        if record and record.status == "ok":
            return record
        if record is None or record.status != "skipped":
            return None
        others = (source.get(case) for source in self.elsewhere)
        return next((other for other in others if other and other.status == "ok"), None)

    @functools.cached_property
    def borrowed(self) -> list[Record]:
        """What other machines ran of this experiment because this one cannot."""
        keys = {record.case.key for record in self.skipped}
        return [record for record in self.used if record.case.key in keys]

    @functools.cached_property
    def skipped(self) -> list[Record]:
        """The cases that this machine cannot run, each with the reason."""
        finished = self.plan.finished(self.name) if self.cases else []
        return [record for record in finished if record.status == "skipped"]

    @property
    def is_complete(self) -> bool:
        return bool(self.own) and len(self.own) + len(self.skipped) == len(self.cases)

    @property
    def why_skipped(self) -> str:
        return "; ".join(dict.fromkeys(record.error or "" for record in self.skipped))

    @property
    def progress(self) -> str:
        if not self.cases:
            return "waiting for " + ", ".join(self.experiment.needs)
        skipped = f", {len(self.skipped)} not for this machine" if self.skipped else ""
        noun = "case" if len(self.cases) == 1 else "cases"
        return f"{len(self.own)} of {len(self.cases)} {noun}{skipped}"

    # ---- what the records say -------------------------------------------------------------------

    @functools.cached_property
    def findings(self) -> dict[str, Finding]:
        """Every claim of the page, judged as one family."""
        judged: dict[str, Judged] = {}
        missing: dict[str, str] = {}
        for name, claim in self.experiment.claims.items():
            try:
                judged[name] = claim.test(self.records)
            except self._missing:
                missing[name] = self.why_missing
            except (MadlError, TypeError) as error:
                raise MadlError(f"claim {name} of {self.name}: {error}") from error
        registered = {record.case.key: record.run.claims for record in self.used}
        return judge_family(self.experiment.claims, judged, missing, registered)

    @property
    def why_missing(self) -> str:
        """Why something could not be measured here, in a few words."""
        return self.why_skipped if self.is_complete else self.progress

    @functools.cached_property
    def facts(self) -> dict[str, Fact | None]:
        """Every fact; None where records are missing."""
        return {name: self._made(name, make) for name, make in self.experiment.facts.items()}

    @functools.cached_property
    def shown(self) -> dict[str, Any]:
        """Every chart, drawing's rows, table's rows and text; None where records are missing."""
        return {name: self._made(name, shown.make) for name, shown in self.experiment.shown.items()}

    def _made(self, name: str, make: Callable[[Records], Any]) -> Any:
        try:
            made = make(self.records)
        except self._missing:
            return None
        except (MadlError, TypeError) as error:
            raise MadlError(f"{name} of {self.name}: {error}") from error
        return made if isinstance(made, Chart) else made or None

    @property
    def _missing(self) -> tuple[type[Exception], ...]:
        """What records that are not there can raise; once all are there, that is a bug."""
        all_here = bool(self.cases) and len(self.own) == len(self.cases)
        return (Pending,) if all_here else (Pending, *_OF_AN_EMPTY_SEQUENCE)

    @property
    def machine(self) -> str:
        return self.own[0].run.host if self.own else NOT_RUN

    @property
    def latest(self) -> str:
        """When the last of its cases started."""
        return max((r.run.started for r in self.own), default="")

    @property
    def date(self) -> str:
        return self.latest[:10]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of what a question asks for has results: "9 of 9 sparsities × methods"."""

    what: str
    asked: int
    run: int

    def __str__(self) -> str:
        return f"{self.run} of {self.asked} {self.what}"

    @property
    def is_whole(self) -> bool:
        return self.run == self.asked


def coverage(question: Question, view: View) -> list[Coverage]:
    """What was asked against what was run.

    Raises:
        MadlError: the question names a parameter that no case of the experiment has.
    """
    planned = [case.params for case in view.cases]
    known = sorted({name for params in planned for name in params})
    have = {record.case.key for record in view.used}
    found: list[Coverage] = []
    for asked in question.asked:
        unknown = [name for name in asked.values if planned and name not in known]
        if unknown:
            raise MadlError(
                f"experiments/questions.toml, {question.id}: no case of {view.name} has the "
                f"parameter {unknown[0]!r}; known: {', '.join(known)}"
            )
        combinations = asked.combinations
        run = sum(_is_run(combination, view.cases, have) for combination in combinations)
        found.append(Coverage(what=asked.counts, asked=len(combinations), run=run))
    return found


def _is_run(combination: Mapping[str, Scalar], cases: Sequence[Case], have: set[str]) -> bool:
    """Whether there are cases of this combination, and all of them have results."""
    fitting = [
        case
        for case in cases
        if all(name in case.params and case.params[name] == v for name, v in combination.items())
    ]
    return bool(fitting) and all(case.key in have for case in fitting)


@dataclass(frozen=True, kw_only=True)
class Page:
    """What one experiment's page is rendered from: this machine first, the others beside it."""

    name: str
    view: View
    others: Sequence[View]
    questions: Sequence[Question]

    @property
    def path(self) -> str:
        """Below `docs/`."""
        return f"labs/{self.name}.md" if self.questions else f"{self.name}.md"

    @property
    def folder(self) -> str:
        """Below `docs/`, with its slash: where the page lies, and its files beside it."""
        return "labs/" if self.questions else ""

    @functools.cached_property
    def coverage(self) -> list[Coverage]:
        return [part for question in self.questions for part in coverage(question, self.view)]

    @functools.cached_property
    def status(self) -> Status:
        """Derived, never ticked: all that was asked has run, and all that is said comes of it."""
        view = self.view
        if not view.own or not self.questions:
            return "open"
        made = (*view.facts.values(), *view.shown.values())
        done = (
            view.is_complete
            and all(part.is_whole for part in self.coverage)
            and all(finding.verdict != "not measured" for finding in view.findings.values())
            and all(one is not None for one in made)
            and view.plan.profile.name != "smoke"
        )
        return "answered" if done else "partly"

    @property
    def headlines(self) -> list[Finding | Fact]:
        """What answers the question: the findings and facts so declared, or the first of them."""
        view = self.view
        findings = [f for f in view.findings.values() if f.headline]
        facts = [view.facts[name] for name in view.experiment.headline_facts]
        declared = [*findings, *(fact for fact in facts if fact)]
        every = [*view.findings.values(), *(fact for fact in view.facts.values() if fact)]
        return declared or every[:1]


def pages(plan: StoredPlan) -> list[Page]:
    """Every experiment's page under this plan, published evidence merged in."""
    return [_page(plan, name) for name in plan.project.names()]


def _page(plan: StoredPlan, name: str) -> Page:
    evidence = tuple(_published_machines(plan.project).values())
    here = View(name=name, plan=plan, published=False, elsewhere=evidence)
    elsewhere = _published_views(plan, name)
    if not here.own and elsewhere:
        here, *elsewhere = elsewhere
    others = [
        v for v in elsewhere if (v.machine, v.plan.profile) != (here.machine, here.plan.profile)
    ]
    asked = [question for question in plan.project.questions if question.stem == name]
    return Page(name=name, view=here, others=others, questions=asked)


def _published_views(plan: StoredPlan, name: str) -> list[View]:
    """A view for each machine and profile with evidence: whole ones, our profile, the newest."""
    sources = _published_machines(plan.project)
    preference = list(
        dict.fromkeys([plan.profile, *(PROFILES[p] for p in ("full", "quick", "smoke"))])
    )
    found = [
        View(
            name=name,
            plan=StoredPlan(plan.project, source, profile, plan.workload),
            published=True,
            elsewhere=tuple(sources.values()),
        )
        for source in sources.values()
        for profile in preference
    ]
    return sorted(
        (view for view in found if view.own),
        key=lambda v: (v.is_complete, v.plan.profile == plan.profile, v.latest),
        reverse=True,
    )


@functools.lru_cache(maxsize=4)
def _read_machines(stamp: tuple[tuple[Any, int, int], ...]) -> dict[str, Published]:
    by_host: dict[str, dict[str, Record]] = {}
    for path, _, _ in stamp:
        for record in read_published(path):
            by_host.setdefault(record.run.host, {})[record.case.key] = record
    return {host: Published(by_key) for host, by_key in by_host.items()}


def _published_machines(project: Project) -> dict[str, Published]:
    """Committed evidence by machine; read once for as long as the files are the same."""
    found = sorted((project.docs / "data").glob("*.jsonl"))
    stats = [(path, path.stat()) for path in found]
    return _read_machines(tuple((path, s.st_mtime_ns, s.st_size) for path, s in stats))
