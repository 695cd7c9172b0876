"""What a page is made from: one experiment's records on this machine, and on the others.

A view computes results, numbers and rows from records and nothing else; what is missing is said.
Views of committed evidence stand beside this machine's own, or in its place where it has none.

A record that cannot be used counts as missing, and a claim or chart that fails as not made, where
`Problems` only take note of it; where they raise, it is an error.
"""

import functools
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.charts import Chart, NoRows
from madl.logbook.claims import Contrast, Result, judge
from madl.logbook.experiment import TUNING, Experiment, Question
from madl.logbook.numbers import Number, number_of
from madl.logbook.records import (
    Case,
    Failed,
    NoSuchValue,
    Params,
    Pending,
    Published,
    Record,
    Records,
    Scalar,
    Source,
    Unplanned,
    published_by_machine,
    sealed,
)
from madl.logbook.stats import counted
from madl.running.plans import (
    Listed,
    Readable,
    StoredPlan,
    most_complete,
    published_plans,
    readied,
    transferred,
)
from madl.site.again import Again, run_again
from madl.site.markup import NOT_RUN
from madl.training import workloads

log = logging.getLogger(__name__)

BLOCKED = {  # why a comparison of times is none
    "contended": "other programs kept the machine busy; run it again with --force",
    "unknown load": "how busy the machine was meanwhile is not known",
}
_OF_AN_EMPTY_SEQUENCE = (NoRows, LookupError, ValueError, ArithmeticError, StopIteration)
T = TypeVar("T")
Status = Literal["answered", "partly", "open"]


@dataclass
class Problems:
    """What was wrong with records, claims and charts, one line each, while pages were made."""

    raises: bool = False  # rather than going on without it
    said: list[str] = field(default_factory=list)

    def note(self, problem: object) -> None:
        """Take note of it. Raises: MadlError: it, if that is asked for."""
        line = " ".join(str(problem).split())
        if self.raises:
            raise problem if isinstance(problem, MadlError) else MadlError(line)
        if not any(said.endswith(line) for said in self.said):  # alone, or behind where it was met
            self.said.append(line)


@dataclass(frozen=True, kw_only=True)
class View:
    """One experiment as one machine has it under one plan."""

    name: str
    plan: StoredPlan
    elsewhere: Sequence[Source] = ()  # other machines' evidence, for what this one cannot run
    problems: Problems = field(default_factory=lambda: Problems(raises=True))

    @property
    def experiment(self) -> Experiment:
        return self.plan.project.load(self.name)

    @functools.cached_property
    def cases(self) -> list[Case]:
        return self.plan.cases(self.name) if self.plan.is_ready(self.name) else []

    @functools.cached_property
    def own(self) -> list[Record]:
        """The good results of this experiment on this machine."""
        return self.plan.good(self.name)

    @functools.cached_property
    def used(self) -> list[Record]:
        """What stands behind the page: this experiment's results, borrowed ones included."""
        return [record for record in self.stored if record.case.experiment == self.name]

    @functools.cached_property
    def planned(self) -> list[tuple[Case, Record | None]]:
        """Every case that the page reads with its result: those it needs, then its own."""
        plan = self.plan
        names = [n for n in (*self.experiment.needs, self.name) if plan.is_ready(n)]
        return [(case, self._result(case)) for name in names for case in plan.cases(name)]

    @property
    def stored(self) -> list[Record]:
        """The results that the page reads, as they are stored."""
        return [record for _, record in self.planned if record is not None]

    @functools.cached_property
    def records(self) -> Records:
        """What claims and charts see: those results, sealed, and what is missing."""
        tuning = f"{self.name}{TUNING}"

        def of(is_tuning: bool) -> tuple[list[Record], list[Case]]:
            some = [one for one in self.planned if (one[0].experiment == tuning) is is_tuning]
            there = [sealed(record) for _, record in some if record is not None]
            return there, [case for case, record in some if record is None]

        return Records(*of(False), tuning=Records(*of(True)))

    def _result(self, case: Case) -> Record | None:
        """A case's result; what this machine cannot run as another one has it."""
        record = self.plan.store.get(case)
        if record and record.status == "ok":
            return record
        if record is None or record.status != "skipped" or not self.plan.stands(record):
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
    def published(self) -> bool:
        return self.plan.host is not None

    @property
    def is_complete(self) -> bool:
        return self.plan.has_all(self.name)

    @functools.cached_property
    def is_older(self) -> bool:
        """Whether some of it was measured by code that has changed since."""
        code = self.plan.project.code(self.name)
        return any(record.run.code != code for record in self.own)

    @property
    def why_skipped(self) -> str:
        return "; ".join(dict.fromkeys(record.error or "" for record in self.skipped))

    @property
    def progress(self) -> str:
        if why := self.plan.why_unsuitable(self.name):
            return why
        if not self.cases:
            return "waiting for " + ", ".join(self.experiment.needs)
        skipped = f", {len(self.skipped)} not for this machine" if self.skipped else ""
        return f"{len(self.own)} of {counted(len(self.cases), 'case')}{skipped}"

    # ---- what the records say -------------------------------------------------------------------

    @property
    def measured(self) -> dict[str, Result]:
        """The primary claims that this run has measured; what is borrowed is another's."""
        borrowed = {record.case.key for record in self.borrowed}
        return {
            name: made
            for name, made in self.results.items()
            if made.primary and made.contrast is not None
            if not any(case.key in borrowed for case in made.cases)
        }

    @property
    def claimed(self) -> list[Case]:
        """The cases that they read."""
        read = (case for made in self.measured.values() for case in made.cases)
        return list({case.key: case for case in read}.values())

    @functools.cached_property
    def results(self) -> dict[str, Result]:
        """Every claim of the page, its primary ones judged as one family."""
        contrasts, missing = self._tested
        registered = {record.case.key: record.run for record in self.used}
        return judge(self.experiment.claims, contrasts, missing, registered)

    @functools.cached_property
    def again(self) -> Mapping[str, Mapping[str, Any]]:
        """Published claims on times that were run again, by claim (see `benchmarks.repeated`)."""
        if not (self.published and self.own):
            return {}
        run = self.own[0].run
        return benchmarks.repeated(self.name, machine=run.host, code=run.code)

    @functools.cached_property
    def numbers(self) -> dict[str, Number | None]:
        """What the template prints by name; None where records are missing."""

        def named(name: str, make: Callable[[Records], Any]) -> Callable[[Records], Number]:
            return lambda r: number_of(name, make(r), r)

        every = self.experiment.made_numbers.items()
        return {name: self._made(name, named(name, make)) for name, make in every}

    @functools.cached_property
    def _tested(self) -> tuple[dict[str, Contrast], dict[str, str]]:
        """What each claim's test gives, and why the others were not measured."""
        contrasts: dict[str, Contrast] = {}
        missing: dict[str, str] = {}
        for name, claim in self.experiment.claims.items():
            try:
                made = self._tried(f"claim {name}", functools.partial(_compared, claim.test))
            except self._missing as error:
                missing[name] = str(error) if isinstance(error, Failed) else self.why_missing
                continue
            if made is None:
                missing[name] = "it could not be computed"
            elif made.comparison.blocked:
                missing[name] = BLOCKED[made.comparison.blocked]
            else:
                contrasts[name] = made
        return contrasts, missing

    @property
    def why_missing(self) -> str:
        """Why something could not be measured here, in a few words."""
        return self.why_skipped if self.is_complete else self.progress

    @functools.cached_property
    def shown(self) -> dict[str, Any]:
        """Every chart, drawing's rows, table's rows and text; None where records are missing."""
        return {
            name: self._made(name, shown.make, shown.reads)
            for name, shown in self.experiment.shown.items()
        }

    def _beside(self, names: Sequence[str]) -> Records:
        """The page's records, and those that there are of experiments it does not wait for."""
        cases = [c for name in names if self.plan.is_ready(name) for c in self.plan.cases(name)]
        found = [record for case in cases if (record := self._result(case))]
        return Records((*self.records, *map(sealed, found)), self.records.missing)

    def _made(self, name: str, make: Callable[[Records], Any], reads: Sequence[str] = ()) -> Any:
        try:
            made = self._tried(name, make, reads)
        except self._missing:
            return None
        return made if isinstance(made, Chart) else made or None

    def _tried(
        self, what: str, make: Callable[[Records], T], reads: Sequence[str] = ()
    ) -> T | None:
        """What it makes; None where it fails and that is noted.

        To ask for what no case is to give is a mistake, unless others' cases are read, too.
        """
        mistakes = (NoSuchValue, Unplanned) if self._is_whole and not reads else (NoSuchValue,)
        try:
            if (made := make(self._beside(reads) if reads else self.records)) is None:
                raise TypeError("it returns nothing")
            return made
        except (Exception, SystemExit) as error:
            if isinstance(error, self._missing) and not isinstance(error, mistakes):
                raise
            self.failed(what, error)
            return None

    def failed(self, what: str, error: BaseException) -> None:
        """Take note of what failed, and where."""
        log.debug("%s", "".join(traceback.format_exception(error)))
        self.problems.note(self.said_of(what, error))

    def said_of(self, what: str, error: BaseException) -> str:
        """A failure in one line: of what, of which experiment, where."""
        if isinstance(error, NoSuchValue):
            return (
                f"{what} of {self.name}: there is no value {error.name} in {error.where}; correct "
                f"experiments/{self.name}/page.py, or, if it should be there, {error.mend}"
            )
        if isinstance(error, MadlError | TypeError | Unplanned):
            return f"{what} of {self.name}: {error}"
        here = str(self.plan.project.experiments / self.name / "page.py")
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == here]
        where = f" (experiments/{self.name}/page.py, line {lines[-1]})" if lines else ""
        return f"{what} of {self.name}: {type(error).__name__}: {error}{where}"

    @property
    def is_broken(self) -> bool:
        """Whether something of it failed, which `problems` have as `said_of` has it."""
        return any(f" of {self.name}: " in problem for problem in self.problems.said)

    @property
    def _missing(self) -> tuple[type[Exception], ...]:
        """What records that are not there can raise; once all are there, that is a bug."""
        return (Pending,) if self._is_all_here else (Pending, *_OF_AN_EMPTY_SEQUENCE)

    @property
    def _is_all_here(self) -> bool:
        return bool(self.cases) and len(self.own) == len(self.cases)

    @property
    def _is_whole(self) -> bool:
        """Whether every case that the page can ask for is here."""
        is_full = self.plan.profile.name == "full" and not isinstance(self.plan, Listed)
        return is_full and self._is_all_here

    @property
    def machine(self) -> str:
        return "; ".join(dict.fromkeys(r.run.host for r in self.own)) or NOT_RUN

    @property
    def date(self) -> str:
        """Of the last of its cases."""
        return max((r.run.started for r in self.own), default="")[:10]


def _compared(test: Callable[[Records], Any], records: Records) -> Contrast:
    if not isinstance(made := test(records), Contrast):
        raise TypeError(f"it returns {type(made).__name__}; return a comparison, compare(a, b)")
    return made


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

    Cases are the experiment's own, unless what is asked names another `experiment` that it needs.

    Raises:
        MadlError: the question names a parameter that no case of the experiment has.
    """
    read = [case for case, _ in view.planned]
    have = {case.key for case, record in view.planned if record is not None}
    found: list[Coverage] = []
    for asked in question.asked:
        combinations = [{"experiment": view.name, **one} for one in asked.combinations]
        names = {str(one["experiment"]) for one in combinations}
        if others := names - {view.name, *view.experiment.needs}:
            raise MadlError(
                f"experiments/questions.toml, {question.id}: {view.name} does not need "
                f"{', '.join(sorted(others))}, so it cannot be asked of its page"
            )
        cases = [case for case in read if case.experiment in names]
        known = sorted({name for case in cases for name in case.params})
        unknown = [name for name in asked.values if cases and name not in ("experiment", *known)]
        if unknown:
            raise MadlError(
                f"experiments/questions.toml, {question.id}: no case of {', '.join(names)} has the "
                f"parameter {unknown[0]!r}; known: {', '.join(known)}"
            )
        run = sum(_is_run(combination, cases, have) for combination in combinations)
        found.append(Coverage(what=asked.counts, asked=len(combinations), run=run))
    return found


def _is_run(combination: Mapping[str, Scalar], cases: Sequence[Case], have: set[str]) -> bool:
    """Whether there are cases of this combination, and all of them have results."""

    def fits(case: Case) -> bool:
        params = {"experiment": case.experiment, **case.params}
        return all(name in params and params[name] == v for name, v in combination.items())

    fitting = [case for case in cases if fits(case)]
    return bool(fitting) and all(case.key in have for case in fitting)


@dataclass(frozen=True, kw_only=True)
class Page:
    """What one experiment's page is rendered from.

    `view` is the most complete evidence of the asked workload, `others` the whole evidence of other
    machines and workloads, `again` what of the published evidence was run again here.
    """

    name: str
    view: View
    others: Sequence[View]
    questions: Sequence[Question]
    again: Again | None = None

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
        made = (*view.shown.values(), *view.numbers.values())
        done = (
            view.is_complete
            and all(part.is_whole for part in self.coverage)
            and all(one.contrast is not None for one in view.results.values())
            and all(one is not None for one in made)
            and view.plan.profile.name != "smoke"
        )
        return "answered" if done else "partly"


def pages(plan: StoredPlan, problems: Problems | None = None) -> list[Page]:
    """Every experiment's page under this plan, published evidence merged in.

    Raises:
        MadlError: a record, claim or chart that cannot be used or made, unless `problems` take
            note of it.
    """
    problems = problems or Problems(raises=True)
    evidence, unusable = published_by_machine(plan.project.docs / "data")
    for error in unusable:
        problems.note(error)
    plan = replace(plan, store=Readable(plan.store, problems.note))
    sources = _Sources(plan=plan, evidence=evidence, problems=problems)
    return [_page(sources, name) for name in plan.project.pages()]


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """What pages are made from: this machine's store, and each machine's committed evidence."""

    plan: StoredPlan
    evidence: Mapping[str, Published]
    problems: Problems
    made: dict[object, StoredPlan] = field(default_factory=dict)

    @functools.cached_property
    def machines(self) -> Mapping[str, Source]:
        """What of each machine's evidence can be used."""
        return {host: Readable(one, self.problems.note) for host, one in self.evidence.items()}

    def workloads(self, host: str, experiment: str) -> list[Params]:
        """Ours, and every other that a machine has results of."""
        records = self.evidence[host].by_key.values()
        named = (
            workloads.of_case(r.case.params) for r in records if r.case.experiment == experiment
        )
        distinct = [self.plan.workload, *(one for one in named if one is not None)]
        return list({frozenset(one.items()): one for one in distinct}.values())

    @functools.cached_property
    def own(self) -> StoredPlan:
        return replace(self.plan.whole, is_fixed=True)

    def published(self, workload: Params) -> list[StoredPlan]:
        made = published_plans(replace(self.plan, workload=workload), self.machines)
        of = frozenset(workload.items())
        return [self.made.setdefault((plan.host, of), plan) for plan in made]


@dataclass(frozen=True)
class _Elsewhere:
    """What was run elsewhere, with what was chosen here."""

    there: Source
    here: Source

    def get(self, case: Case) -> Record | None:
        return (self.here if case.experiment.endswith(TUNING) else self.there).get(case)


def _claims_elsewhere(
    sources: _Sources, view: View, whole: Sequence[StoredPlan]
) -> Iterator[StoredPlan]:
    """What other machines and workloads have of the cases that this one's primary claims read."""
    name, here = view.name, view.plan
    if not here.has_all(name):
        return
    known = [(plan.host, plan.workload) for plan in (here, *whole)]
    claimed = view.claimed
    for host, evidence in sources.machines.items():
        for workload in sources.workloads(host, name):
            if (host, workload) in known:
                continue
            there = _Elsewhere(evidence, here.store)
            read = [transferred(case, workload) for case in claimed]
            found = [c.params.get("seed") for c in read if c.experiment == name and there.get(c)]
            never = {*here.seeds}.difference(found)  # as with `--seeds 3`
            listed = {
                one: [*here.cases(one)] for one in view.experiment.needs if one.endswith(TUNING)
            }
            for case in read:
                if case.params.get("seed") not in never:
                    listed.setdefault(case.experiment, []).append(case)
            of = (here.project, there, here.profile, workload)
            plan = Listed(*of, host=host, is_fixed=True, listed=listed)
            if plan.good(name):
                yield plan


def _page(sources: _Sources, name: str) -> Page:
    def view(plan: StoredPlan) -> View:
        return View(
            name=name,
            plan=plan,
            elsewhere=tuple(sources.machines.values()),
            problems=sources.problems,
        )

    plan = sources.plan
    published = sources.published(plan.workload)
    here = most_complete(readied([sources.own, *published], name), name)
    others = [
        whole
        for host in sources.machines
        for workload in sources.workloads(host, name)
        for other in readied(sources.published(workload), name)
        if other.host == host and (host, workload) != (here.host, here.workload)
        if (whole := most_complete([other], name)).has_all(name)
    ]
    asked = [question for question in plan.project.questions if question.stem == name]
    of_ours = [here] * (here.host is not None) + [o for o in others if o.workload == plan.workload]
    again = None
    if of_ours and of_ours[0].is_ready(name):
        again = run_again(of_ours[0].cases(name), of_ours[0].store, plan.store)
    shown = view(here)
    others += _claims_elsewhere(sources, shown, others)
    return Page(name=name, view=shown, others=list(map(view, others)), questions=asked, again=again)
