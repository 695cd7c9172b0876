"""Views: one experiment's records on a machine, with the claims, numbers and charts made of them.

A view computes everything from records; where they are missing, it says so.

If `Problems` collect, a record that cannot be used counts as missing, and a claim or chart that
fails as not made; if they raise, both are errors.
"""

import contextlib
import functools
import itertools
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from madl.errors import MadlError
from madl.logbook import equivalences
from madl.logbook.arms import SEED, SITTING
from madl.logbook.charts import Chart, NoRows
from madl.logbook.claims import Claim, Contrast, Result, judge
from madl.logbook.experiment import TUNING, Experiment
from madl.logbook.numbers import Number, number_of
from madl.logbook.records import (
    Case,
    Failed,
    NoSuchValue,
    Pending,
    Record,
    Records,
    Source,
    Unplanned,
    distinct,
    sealed,
)
from madl.logbook.values import pluralize
from madl.running.evidence import (
    Evidence,
    borrowed_result,
)
from madl.running.plans import ExplicitPlan, RunPlan
from madl.running.project import line_in, page_of

log = logging.getLogger(__name__)

NOT_RUN = "not run here"

_OF_AN_EMPTY_SEQUENCE = (NoRows, LookupError, ValueError, ArithmeticError, StopIteration)
T = TypeVar("T")


@dataclass
class Problems:
    """Faults of records, claims and charts that were met while pages were made, a line each."""

    raises: bool = False  # rather than going on without it
    lines: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)  # experiments of which something failed

    def note(self, problem: object) -> None:
        """Keep a problem's line, if it is new.

        Raises:
            MadlError: the problem, if `raises` is set.
        """
        line = " ".join(str(problem).split())
        if self.raises:
            raise problem if isinstance(problem, MadlError) else MadlError(line)
        if not any(known.endswith(line) for known in self.lines):  # it may say first where
            self.lines.append(line)


@dataclass(frozen=True, kw_only=True)
class View:
    """One experiment's records on one machine under one plan, and what is made of them."""

    name: str
    evidence: Evidence
    lenders: Sequence[Source] = ()  # the published machines, for what this one cannot run
    problems: Problems = field(default_factory=lambda: Problems(raises=True))

    @property
    def plan(self) -> RunPlan:
        return self.evidence.plan

    @property
    def experiment(self) -> Experiment:
        return self.plan.project.load(self.name)

    @functools.cached_property
    def cases(self) -> list[Case]:
        """The experiment's cases; none until what it needs is there to say which they are."""
        return self.evidence.cases(self.name) if self.evidence.is_ready(self.name) else []

    @functools.cached_property
    def own(self) -> list[Record]:
        """The experiment's results that this view's machine made itself."""
        return self.evidence.good(self.name)

    @functools.cached_property
    def used(self) -> list[Record]:
        """The experiment's results that the page shows, borrowed ones included."""
        return [record for record in self.stored if record.case.experiment == self.name]

    @functools.cached_property
    def planned(self) -> list[tuple[Case, Record | None]]:
        """Every case that the page reads, with its result or None: of the experiments that it needs
        first, then its own.
        """
        return self._results((*self.experiment.needs, self.name))

    @property
    def stored(self) -> list[Record]:
        """The results that the page reads as they are stored, so with test values."""
        return [record for _, record in self.planned if record is not None] + self.further

    @functools.cached_property
    def further(self) -> list[Record]:
        """Results beyond the plan of what primary claims read, on further seeds and in further
        sittings. A seed or a sitting counts if all of it is there.
        """
        next_ = itertools.count(self.last_sitting + 1)
        sittings = itertools.takewhile(bool, (self._if_whole(self.in_sitting(n)) for n in next_))
        seeds = map(self._if_whole, self._on_further_seeds)
        return list(itertools.chain(*seeds, *sittings))

    def _if_whole(self, cases: Sequence[Case]) -> list[Record]:
        """The results of these cases; none if one is missing."""
        records = [record for case in cases if (record := self.evidence.record(case))]
        good = [record for record in records if record.status == "ok"]
        return good if len(good) == len(cases) else []

    @functools.cached_property
    def twins(self) -> Mapping[str, Case]:
        """Key of a case with a seed → the further seed's case that stands at its place in the plan.

        Those are the cases of what the experiment needs, too; without, where a plan lists cases.
        """
        if isinstance(self.plan, ExplicitPlan) or self.plan.profile.name == "smoke":
            return {}
        here = self.evidence
        there = replace(here, plan=replace(self.plan, is_further=True))
        twins: dict[str, Case] = {}
        for name in (*self.experiment.needs, self.name):
            if here.is_ready(name) and not name.endswith(TUNING):
                with contextlib.suppress(Pending):
                    own, further = here.cases(name), there.cases(name)
                    if len(own) != len(further):
                        told = f"{len(own)} cases for its seeds and {len(further)} for further ones"
                        self.problems.note(f"{page_of(name)} has {told}: these are left out")
                        return {}
                    twins |= {a.key: b for a, b in zip(own, further) if a.key != b.key}
        return twins

    @property
    def _on_further_seeds(self) -> Iterable[list[Case]]:
        """For each further seed, its cases like those that primary claims read."""
        by_seed: dict[object, list[Case]] = {}
        for case in self._read:
            if twin := self.twins.get(case.key):
                by_seed.setdefault(twin.params.get(SEED), []).append(twin)
        return by_seed.values()

    @property
    def timed(self) -> list[Case]:
        """The page's own cases that primary claims read, that measure time, and that can run on the
        view's machine.
        """
        skipped, runs_alone = {r.case.key for r in self.skipped}, self.experiment.runs_alone
        own = [c for c in self._read if c.experiment == self.name and c.key not in skipped]
        return [case for case in own if SITTING in case.params and runs_alone(case.params)]

    @property
    def last_sitting(self) -> int:
        """The number of the last sitting of the plan; 0 if nothing is timed."""
        return max((int(case.params[SITTING] or 0) for case in self.timed), default=0)

    def in_sitting(self, number: int) -> list[Case]:
        """The cases of `timed` in the sitting of this number."""
        cases = (replace(case, params={**case.params, SITTING: number}) for case in self.timed)
        return distinct(cases)

    @functools.cached_property
    def _read(self) -> list[Case]:
        """The cases of the plan that primary claims read."""
        claims = self.experiment.claims
        contrasts = [c for name, c in self._contrasts.items() if claims[name].primary]
        cases = (case for c in contrasts if isinstance(c, Contrast) for case in c.cases)
        return distinct(cases)

    @functools.cached_property
    def records(self) -> Records:
        """The page's sealed results and its cases without one; those of tuning are in `tuning`."""
        tuning = f"{self.name}{TUNING}"

        def part(is_tuning: bool) -> tuple[list[Record], list[Case]]:
            planned = [(c, r) for c, r in self.planned if (c.experiment == tuning) is is_tuning]
            results = [sealed(record) for _, record in planned if record is not None]
            return results, [case for case, record in planned if record is None]

        return Records(*part(False), tuning=Records(*part(True)))

    def records_of(self, name: str) -> list[Record]:
        """The sealed results of an experiment on this view's machine, which the page need not need;
        none if it is not ready, or there is no such experiment.
        """
        known = name in self.plan.project.names()
        return [sealed(record) for _, record in self._results([name]) if record] if known else []

    def _results(self, names: Iterable[str]) -> list[tuple[Case, Record | None]]:
        """Every known case of these experiments, with its result (perhaps borrowed) or None."""
        row = self.evidence
        cases = [case for name in names if row.is_ready(name) for case in row.cases(name)]
        return [(case, borrowed_result(row, case, self.lenders)) for case in cases]

    @functools.cached_property
    def borrowed(self) -> list[Record]:
        """Results of other machines for cases that this one cannot run."""
        keys = {record.case.key for record in self.skipped}
        return [record for record in self.used if record.case.key in keys]

    @property
    def lent(self) -> dict[str, list[Record]]:
        """The borrowed results by the machine that they are of."""
        hosts = dict.fromkeys(record.run.host for record in self.borrowed)
        return {host: [r for r in self.borrowed if r.run.host == host] for host in hosts}

    @functools.cached_property
    def skipped(self) -> list[Record]:
        """The records of cases that this machine cannot run; their `error` is the reason."""
        finished = self.evidence.finished(self.name) if self.cases else []
        return [record for record in finished if record.status == "skipped"]

    @property
    def is_published(self) -> bool:
        return self.evidence.host is not None

    @property
    def is_whole(self) -> bool:
        return self.evidence.is_whole(self.name)

    @functools.cached_property
    def age(self) -> str:
        """How the code that measured stands to today's ("by earlier code"); "" where equal."""
        project, own = self.plan.project, (*self.own, *self.further)
        codes = {record.run.code for record in own if record.case.experiment == self.name}
        data, today = project.docs / "data", project.code(self.name)
        try:
            return equivalences.age(data, self.name, codes, today)
        except MadlError as error:  # a page goes without this remark
            self.problems.note(error)
            return "by earlier code"

    @property
    def why_skipped(self) -> str:
        return "; ".join(dict.fromkeys(record.error or "" for record in self.skipped))

    @property
    def progress(self) -> str:
        """How many cases have results, "3 of 5 cases", or why there are none."""
        if why := self.plan.why_unsuitable(self.name):
            return why
        if not self.cases:
            return "waiting for " + ", ".join(self.experiment.needs)
        skipped = f", {len(self.skipped)} not for this machine" if self.skipped else ""
        return f"{len(self.own)} of {pluralize(len(self.cases), 'case')}{skipped}"

    # ---- what the records say -------------------------------------------------------------------

    @functools.cached_property
    def measured(self) -> dict[str, Result]:
        """The results of primary claims that read no borrowed case, by name."""
        borrowed = {record.case.key for record in self.borrowed}
        return {
            name: result
            for name, result in self.results.items()
            if result.primary and result.contrast is not None
            if not any(case.key in borrowed for case in result.cases)
        }

    @property
    def claimed(self) -> list[Case]:
        """The cases that the claims of `measured` read."""
        cases = (case for result in self.measured.values() for case in result.cases)
        return distinct(cases)

    @functools.cached_property
    def results(self) -> dict[str, Result]:
        """The result of every claim by name, the primary ones judged as one family."""
        claims, contrasts = self.experiment.claims, self._contrasts
        if self.further:
            on_all = self._with(self.further)
            widened = (claim for claim in claims.values() if self._is_on_further(claim))
            contrasts = contrasts | {c.name: self._contrast(c, on_all) for c in widened}
        return judge(claims, contrasts, {record.case.key: record.run for record in self.used})

    def _is_on_further(self, claim: Claim) -> bool:
        """Whether a claim is judged on further seeds and sittings, too: all primary ones are, and
        each other of which further seeds have all that it reads.
        """
        contrast = self._contrasts[claim.name]
        if claim.primary or isinstance(contrast, str):
            return claim.primary
        there = {record.case.key for record in self.further}
        whole = {record.case.params.get(SEED) for record in self.further}
        twins = [self.twins.get(case.key) for case in contrast.cases]
        wanted = {twin.key for twin in twins if twin and twin.params[SEED] in whole}
        return None not in twins and bool(wanted) and wanted <= there

    @functools.cached_property
    def _contrasts(self) -> dict[str, Contrast | str]:
        """Each claim's contrast on the plan's seeds, or the reason why there is none."""
        claims = self.experiment.claims
        return {name: self._contrast(claim, self.records) for name, claim in claims.items()}

    def _contrast(self, claim: Claim, records: Records) -> Contrast | str:
        """A claim's contrast, or the reason why there is none."""
        try:
            contrast = self._try(f"claim {claim.name}", lambda _: claim.contrast(records))
        except self._missing as error:
            return str(error) if isinstance(error, Failed) else self.why_missing
        return contrast or "it could not be computed"

    @functools.cached_property
    def numbers(self) -> dict[str, Number | None]:
        """The numbers that the template prints, by name; None where records are missing.

        One that a claim's test makes is what the claim found, on further seeds, too.
        """
        of_claims = {claim.test: name for name, claim in self.experiment.claims.items()}

        def named(name: str, make: Callable[[Records], Any]) -> Callable[[Records], Number]:
            judged = self.results[of_claims[make]].contrast if make in of_claims else None
            return lambda r: number_of(name, judged or make(r), r)

        makers = self.experiment.made_numbers.items()
        return {name: self._make(name, named(name, make), ()) for name, make in makers}

    @property
    def why_missing(self) -> str:
        """Why something could not be measured here, in a few words."""
        return self.why_skipped if self.is_whole else self.progress

    @functools.cached_property
    def shown(self) -> dict[str, Any]:
        """Every chart, drawing's rows, table's rows and text by name; None if it cannot be made."""
        return {
            name: self._make(name, shown.make, shown.reads)
            for name, shown in self.experiment.shown.items()
        }

    def _records_and(self, names: Sequence[str]) -> Records:
        """The page's records, and all results that these other experiments have."""
        others = (record for _, record in self._results(names) if record)
        return self._with(others, further=map(sealed, self.further))

    def _with(self, more: Iterable[Record], further: Iterable[Record] = ()) -> Records:
        """The page's records, and these as well."""
        records, tuning = (*self.records, *map(sealed, more)), self.records.tuning
        return Records(records, self.records.missing, tuning=tuning, further=further)

    def _make(
        self, name: str, make: Callable[[Records], Any], reads: Sequence[str] | None = None
    ) -> Any:
        """The number, chart or table that `make` returns; None if empty, failed or unmeasured."""
        try:
            value = self._try(name, make, reads)
        except self._missing:
            return None
        return value if isinstance(value, Chart) else value or None

    def _try(
        self, subject: str, make: Callable[[Records], T], reads: Sequence[str] | None = None
    ) -> T | None:
        """The value that `make` returns; None if it fails, which is noted.

        An error of missing records is raised. Once all are here, reading a case that is not planned
        is a failure, too, unless `make` reads further experiments.
        """
        mistakes = (NoSuchValue, Unplanned) if self._has_all and not reads else (NoSuchValue,)
        try:
            value = make(self.records if reads is None else self._records_and(reads))
            if value is None:
                raise TypeError("it returns nothing")
            return value
        except (Exception, SystemExit) as error:
            if isinstance(error, self._missing) and not isinstance(error, mistakes):
                raise
            self.note_failure(subject, error)
            return None

    def note_failure(self, subject: str, error: BaseException) -> None:
        """Note that a claim, number or chart failed, and where."""
        log.debug("%s", "".join(traceback.format_exception(error)))
        self.problems.broken.add(self.name)
        self.problems.note(self.failure_line(subject, error))

    def failure_line(self, subject: str, error: BaseException) -> str:
        """A failure in one line: its subject, its experiment, where it happened."""
        if isinstance(error, NoSuchValue):
            return (
                f"{subject} of {self.name}: there is no value {error.name} in {error.where}; "
                f"correct experiments/{self.name}/page.py, or, if it should be there, {error.mend}"
            )
        if isinstance(error, MadlError | TypeError | Unplanned):
            return f"{subject} of {self.name}: {error}"
        line = line_in(self.plan.project.experiments / self.name / "page.py", error)
        where = f" (experiments/{self.name}/page.py, line {line})" if line else ""
        return f"{subject} of {self.name}: {type(error).__name__}: {error}{where}"

    @property
    def is_broken(self) -> bool:
        """Whether a claim, number or chart of the page failed, which `problems` tell."""
        return self.name in self.problems.broken

    @property
    def _missing(self) -> tuple[type[Exception], ...]:
        """The errors that say that records are missing; once all are here, most are bugs."""
        return (Pending,) if self._is_all_here else (Pending, *_OF_AN_EMPTY_SEQUENCE)

    @property
    def _is_all_here(self) -> bool:
        return bool(self.cases) and len(self.own) == len(self.cases)

    @property
    def _has_all(self) -> bool:
        """Whether the full profile's cases all have results, so that no other can be asked for."""
        is_full = self.plan.profile.name == "full" and not isinstance(self.plan, ExplicitPlan)
        return is_full and self._is_all_here

    @property
    def machine(self) -> str:
        return "; ".join(dict.fromkeys(r.run.host for r in self.own)) or NOT_RUN

    @property
    def date(self) -> str:
        """The day on which the last of its cases ran."""
        return max((r.run.started for r in self.own), default="")[:10]
