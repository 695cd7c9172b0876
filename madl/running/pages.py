"""Pages before they are rendered: the view that each shows, others beside it, and what is asked.

A page shows one view, the most complete, and compares it with those of other machines and
workloads.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from madl.errors import MadlError
from madl.logbook.arms import SEED
from madl.logbook.experiment import TUNING, Question
from madl.logbook.records import Case, Record, Scalar, Source, Store, published_by_machine
from madl.running.evidence import (
    Evidence,
    EvidenceTable,
    choose_evidence,
    tolerant,
    with_workload,
)
from madl.running.plans import RunPlan, explicit_plan
from madl.running.reruns import Again, run_again
from madl.running.views import Problems, View

Status = Literal["answered", "partly", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of the combinations of values that a question asks for have results.

    As text: "9 of 9 sparsities × methods".
    """

    counted: str
    required: int
    run: int

    def __str__(self) -> str:
        return f"{self.run} of {self.required} {self.counted}"

    @property
    def is_whole(self) -> bool:
        return self.run == self.required


def coverage(question: Question, view: View) -> list[Coverage]:
    """The coverage of each of a question's requirements.

    Its cases are the experiment's own, unless it names another `experiment` that this one needs.

    Raises:
        MadlError: the question names a parameter that no case has, or an experiment that this one
            does not need.
    """
    read = [case for case, _ in view.planned]
    have = {case.key for case, record in view.planned if record is not None}
    parts: list[Coverage] = []
    for requirement in question.requirements:
        combinations = [{"experiment": view.name, **c} for c in requirement.combinations]
        names = {str(combination["experiment"]) for combination in combinations}
        if others := names - {view.name, *view.experiment.needs}:
            raise MadlError(
                f"experiments/questions.toml, {question.id}: {view.name} does not need "
                f"{', '.join(sorted(others))}, so it cannot be asked of its page"
            )
        cases = [case for case in read if case.experiment in names]
        known = sorted({name for case in cases for name in case.params})
        unknown = [n for n in requirement.values if n not in ("experiment", *known)]
        if cases and unknown:
            raise MadlError(
                f"experiments/questions.toml, {question.id}: no case of {', '.join(names)} has the "
                f"parameter {unknown[0]!r}; known: {', '.join(known)}"
            )
        run = sum(_is_run(combination, cases, have) for combination in combinations)
        parts.append(Coverage(counted=requirement.counts, required=len(combinations), run=run))
    return parts


def _is_run(combination: Mapping[str, Scalar], cases: Sequence[Case], have: set[str]) -> bool:
    """Whether there are cases of this combination, and all of them have results."""
    wanted = combination.items()
    fitting = [c for c in cases if wanted <= {"experiment": c.experiment, **c.params}.items()]
    return bool(fitting) and all(case.key in have for case in fitting)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One experiment's page before it is rendered: its views and its questions.

    `view` is the most complete evidence of the plan's workload; `others` are other machines and
    workloads, whole or with the cases alone that claims read; `again` compares published cases that
    ran again on this machine.
    """

    name: str
    view: View
    others: Sequence[View]
    questions: Sequence[Question]
    again: Again | None = None

    @property
    def path(self) -> str:
        """The path of the page, below `docs/`."""
        return f"{self.folder}{self.name}.md"

    @property
    def folder(self) -> str:
        """The folder of the page and of the files beside it, below `docs/`: "labs/" or ""."""
        return "labs/" if self.questions else ""

    @functools.cached_property
    def coverage(self) -> list[Coverage]:
        return [part for question in self.questions for part in coverage(question, self.view)]

    @functools.cached_property
    def status(self) -> Status:
        """The status of the page's questions: open without results; answered when every case has
        run and every part of the page is made; else partly.
        """
        view = self.view
        if not view.own or not self.questions:
            return "open"
        shown = (*view.shown.values(), *view.numbers.values())
        done = (
            view.is_whole
            and all(part.is_whole for part in self.coverage)
            and all(result.contrast is not None for result in view.results.values())
            and all(value is not None for value in shown)
            and view.plan.profile.name != "smoke"
        )
        return "answered" if done else "partly"


def pages(plan: RunPlan, store: Store, problems: Problems | None = None) -> list[Page]:
    """Every experiment's page under this plan, with this machine's and the published evidence.

    Raises:
        MadlError: a record, claim or chart that cannot be used or made, unless `problems` take
            note of it.
    """
    problems = problems or Problems(raises=True)
    for error in published_by_machine(plan.project.docs / "data")[1]:
        problems.note(error)
    table = EvidenceTable(plan=plan.whole, own=tolerant(store.get, problems.note))
    return [_page(table, name, problems) for name in plan.project.pages()]


def _page(table: EvidenceTable, name: str, problems: Problems) -> Page:
    """An experiment's page: the evidence that it shows, the others', and what ran again here."""
    lenders = tuple(table.published.values())

    def view(row: Evidence) -> View:
        return View(name=name, evidence=row, lenders=lenders, problems=problems)

    shown = choose_evidence(table.rows(name), name)
    page = view(shown)
    rows = table.rows(name, every_workload=True)
    others = [r for r in rows if r.host is not None and r is not shown and r.is_whole(name)]
    of_ours = [r for r in (shown, *others) if r.host is not None and r.workload == shown.workload]
    again = None
    if of_ours and of_ours[0].is_ready(name):
        assert table.own is not None
        again = run_again(of_ours[0].cases(name), of_ours[0].source, table.own)
    if page.is_whole:
        claimed = [
            _with_claimed_cases(row, table.published[row.host], page)
            for row in rows
            if row.host is not None and row not in (shown, *others)
        ]
        others += [row for row in claimed if row.good(name)]
    return Page(
        name=name,
        view=page,
        others=list(map(view, others)),
        questions=[q for q in table.plan.project.questions if q.stem == name],
        again=again,
    )


def _with_claimed_cases(row: Evidence, there: Source, page: View) -> Evidence:
    """Another machine's evidence of only those cases that the page's primary claims read.

    Only seeds that ran there count. Tuning is read from the page's own evidence: both follow the
    same choices.
    """
    here = page.evidence

    def record_of(case: Case) -> Record | None:
        return (here.source if case.experiment.endswith(TUNING) else there)(case)

    cases = [with_workload(case, row.workload) for case in page.claimed]
    run = [case for case in cases if case.experiment == page.name and there(case)]
    seeds = {case.params[SEED] for case in cases if SEED in case.params}
    unrun_seeds = seeds.difference(case.params.get(SEED) for case in run)
    cases = [case for case in cases if case.params.get(SEED) not in unrun_seeds]
    tuning = [c for n in page.experiment.needs if n.endswith(TUNING) for c in here.cases(n)]
    plan = explicit_plan(row.plan, [*tuning, *cases])
    return Evidence(plan=plan, source=record_of, host=row.host)
