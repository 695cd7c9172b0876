"""What a page is made from: one experiment's records on this machine, and on the others.

A view computes claims and rows from records and nothing else; what is missing is pending. Views of
committed evidence stand beside this machine's own, or in its place where it has none.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from madl.logbook.experiment import Case, Claim, Experiment, Project, Question, Row
from madl.logbook.plans import StoredPlan
from madl.logbook.profiles import PROFILES
from madl.logbook.results import Pending, Published, Record, Records, read_published

_OF_AN_EMPTY_SEQUENCE = (LookupError, ValueError, ArithmeticError, StopIteration)
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
    def own(self) -> Records:
        return self.plan.records(self.name) if self.cases else Records()

    @functools.cached_property
    def records(self) -> Records:
        """What claims and figures see: the experiment's records after those it needs."""
        found = [r for needed in self.experiment.needs for r in self._with_borrowed(needed)]
        return Records([*found, *self._with_borrowed(self.name)]) if self.own else Records(found)

    def _with_borrowed(self, name: str) -> list[Record]:
        """An experiment's results; what this machine cannot run as another one has it."""
        found: list[Record] = []
        for record in self.plan.finished(name):
            others = (source.get(record.case) for source in self.elsewhere)
            borrowed = (other for other in others if other and other.status == "ok")
            chosen = record if record.status == "ok" else next(borrowed, None)
            found += [chosen] if chosen else []
        return found

    @functools.cached_property
    def borrowed(self) -> list[Record]:
        """What other machines ran of this experiment because this one cannot."""
        keys = {record.case.key for record in self.skipped}
        return [record for record in self.records if record.case.key in keys]

    @functools.cached_property
    def skipped(self) -> list[Record]:
        """The cases that this machine cannot run, each with the reason."""
        finished = self.plan.finished(self.name) if self.cases else Records()
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
        return f"{len(self.own)} of {len(self.cases)} cases{skipped}"

    @functools.cached_property
    def claims(self) -> dict[str, Claim]:
        return {name: self._claim(name) for name in self.experiment.claims}

    def _claim(self, name: str) -> Claim:
        try:
            return self.experiment.claims[name](self.records)
        except self._missing:
            what = name.replace("_", " ").replace("cuda", "CUDA")
            if self.is_complete:
                text = f"{NOT_RUN.capitalize()} ({self.why_skipped}): {what}"
                return Claim(text=text, verdict="pending")
            return Claim(text=f"Pending ({self.progress}): {what}", verdict="pending")

    @functools.cached_property
    def rows(self) -> dict[str, Sequence[Row] | None]:
        """The rows of every figure and table; None where records are missing."""
        makers = {name: figure.rows for name, figure in self.experiment.figures.items()}
        return {
            name: self._made(make) for name, make in (makers | dict(self.experiment.tables)).items()
        }

    @functools.cached_property
    def outputs(self) -> dict[str, str | None]:
        """Every captured text; None where its record is missing."""
        return {name: self._made(make) for name, make in self.experiment.outputs.items()}

    def _made(self, make: Any) -> Any:
        try:
            return make(self.records) or None
        except self._missing:
            return None

    @property
    def _missing(self) -> tuple[type[Exception], ...]:
        """What records that are not there can raise; once all are there, that is a bug."""
        all_here = bool(self.cases) and len(self.own) == len(self.cases)
        return (Pending,) if all_here else (Pending, *_OF_AN_EMPTY_SEQUENCE)

    @property
    def machine(self) -> str:
        return self.own[0].run.host if self.own else NOT_RUN

    @property
    def date(self) -> str:
        return max((r.run.started for r in self.own), default="")[:10]


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
    def status(self) -> Status:
        """Derived, never ticked: cases, claims and figures are all there, or some, or none."""
        view = self.view
        if not view.own or not self.questions:
            return "open"
        done = (
            view.is_complete
            and all(claim.verdict != "pending" for claim in view.claims.values())
            and None not in (*view.rows.values(), *view.outputs.values())
            and view.plan.profile.name != "smoke"
        )
        return "answered" if done else "partly"


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
    """One view a machine: under the profile that its evidence covers best, ours preferred."""
    sources = _published_machines(plan.project)
    preference = [plan.profile, *(PROFILES[p] for p in ("full", "quick", "smoke"))]
    views: list[View] = []
    for source in sources.values():
        candidates = [
            View(
                name=name,
                plan=StoredPlan(plan.project, source, profile, plan.workload),
                published=True,
                elsewhere=tuple(sources.values()),
            )
            for profile in preference
        ]
        best = max(candidates, key=lambda view: (view.is_complete, len(view.own) > 0))
        if best.own:
            views.append(best)
    return views


def _published_machines(project: Project) -> dict[str, Published]:
    by_host: dict[str, dict[str, Record]] = {}
    for path in sorted((project.docs / "data").glob("*.jsonl")):
        for record in read_published(path):
            by_host.setdefault(record.run.host, {})[record.case.key] = record
    return {host: Published(by_key) for host, by_key in by_host.items()}
