"""Evidence: one machine's records as answers to a plan, and the choice of whose a page shows.

The table of evidence has a row for this machine and one for each published machine and workload.
`choose_evidence` is the policy that picks a row for a page; `with_published_dependencies` and
`borrowed_result` fill what a row lacks with another machine's records.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from madl.errors import MadlError
from madl.logbook.experiment import TUNING, Profile
from madl.logbook.records import (
    Case,
    Params,
    Record,
    Records,
    Scalar,
    Source,
    published_by_machine,
    select,
)
from madl.machine import device as machine
from madl.running.plans import RunPlan
from madl.training import workloads

TOGETHER = "several machines"  # the place of evidence that none of them has alone


def source_of(by_key: Mapping[str, Record]) -> Source:
    """A source that gives each case the record with its key, or None."""
    return lambda case: by_key.get(case.key)


def tolerant(source: Source, note: Callable[[MadlError], object] = lambda error: None) -> Source:
    """The source, but None for a record that cannot be read; `note` is called with the error."""

    def record_of(case: Case) -> Record | None:
        try:
            return source(case)
        except MadlError as error:
            note(error)
            return None

    return record_of


def first_good(*sources: Source) -> Source:
    """A source that gives the first good record of these sources; else what the last one gives."""

    def record_of(case: Case) -> Record | None:
        record = None
        for source in sources:
            if (record := source(case)) and record.status == "ok":
                break
        return record

    return record_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """One machine's records as they answer a plan: a row of the table of evidence.

    Cases and results are looked up once; what is stored afterwards is seen by new evidence.
    """

    plan: RunPlan
    source: Source
    host: str | None = None  # a published machine, or `TOGETHER`; None: this one, its own store
    _cases: dict[str, list[Case]] = field(default_factory=dict, init=False)
    _finished: dict[str, list[Record]] = field(default_factory=dict, init=False)

    @property
    def profile(self) -> Profile:
        return self.plan.profile

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.plan.seeds

    @property
    def workload(self) -> Params:
        return self.plan.workload

    @property
    def is_of_one_split(self) -> bool:
        return self.plan.is_of_one_split

    def records(self, name: str) -> Records:
        """An experiment's good results, sealed, for `cases` of the experiments that need it."""
        return select(self.source, self.cases(name))

    def cases(self, name: str) -> list[Case]:
        """The cases of an experiment.

        Raises:
            Pending: a result is missing that decides which they are.
        """
        if name not in self._cases:
            self._cases[name] = self.plan.cases(name, self)
        return self._cases[name]

    def record(self, case: Case) -> Record | None:
        """A case's record, whatever its status.

        A published machine has no record of a case that was planned later. If it lacked the case's
        device, and said so for another case, this case counts as skipped for that reason, too.
        """
        record = self.source(case)
        if record is None and self.host is not None and "device" in case.params:
            why = machine.missing_device(str(case.params["device"]))
            siblings = filter(None, map(self.source, self.cases(case.experiment)))
            skipped = next((sibling for sibling in siblings if sibling.error == why), None)
            return skipped and replace(skipped, case=case)
        return record

    def finished(self, name: str) -> list[Record]:
        """An experiment's results, unsealed, and the records of cases that cannot run there."""
        if name not in self._finished:
            records = map(self.record, self.cases(name))
            self._finished[name] = [r for r in records if r and self.is_finished(r)]
        return self._finished[name]

    def good(self, name: str) -> list[Record]:
        """An experiment's results (records that are ok), unsealed; none while it is not ready."""
        records = self.finished(name) if self.is_ready(name) else []
        return [record for record in records if record.status == "ok"]

    def is_finished(self, record: Record) -> bool:
        """Whether a record is a result, or says why there is none, which still holds.

        The reason of another machine is taken as still true: it cannot be checked here.
        """
        if record.status != "skipped" or not self._was_here(record):
            return record.status != "failed"
        return self.plan.why_unavailable(record.case) is not None

    def is_outdated(self, record: Record) -> bool:
        """Whether this machine made the record without a program that it has now."""
        lacked = record.run.lacked
        return bool(lacked) and self._was_here(record) and bool(machine.programs().get(lacked))

    def _was_here(self, record: Record) -> bool:
        """Whether this machine made the record, which stands in its own store."""
        return self.host is None and record.run.host == machine.host_label()

    def is_ready(self, name: str) -> bool:
        """Whether all that the experiment needs is complete, so that its cases are known."""
        return all(self.is_complete(needed) for needed in self.plan.needs(name))

    def is_complete(self, name: str) -> bool:
        """Whether every case has its result, or cannot have one on this machine."""
        return self.is_ready(name) and len(self.finished(name)) == len(self.cases(name))

    def is_whole(self, name: str) -> bool:
        """Whether an experiment is complete and has at least one result."""
        return self.is_complete(name) and bool(self.good(name))

    def coverage(self, name: str) -> tuple[int, bool]:
        """The number of seeds of which an experiment is whole, if it is, and whether each has a
        fold of its own."""
        return self.plan.num_seeds * self.is_whole(name), not self.plan.is_of_one_split

    @functools.cached_property
    def by_seeds(self) -> "list[Evidence]":
        """This evidence, then its parts with one seed less each, down to one; before a part that of
        as many seeds with one test split.
        """
        parts = range(self.plan.num_seeds, 0, -1)
        plans = [replace(self.plan, num_seeds=n) for n in parts]
        plans = [p for plan in plans for p in (plan, replace(plan, is_of_one_split=True))]
        return [self, *(replace(self, plan=plan) for plan in plans[1:])]


def choose_evidence(rows: Iterable[Evidence], name: str) -> Evidence:
    """The row of evidence that an experiment's page shows; all rows are of one workload.

    1. Whole evidence, in which every case has its result or cannot have one on that machine, is
       shown before any part: never a few own cases in the place of a whole.
    2. Of whole rows, that of most seeds; of as many, one whose seeds have folds of their own.
    3. Of as many seeds, this machine's own; else the row with most results.
    4. Of parts, the row with most results; without any, one whose cases are known.
    5. Of rows that are equal in all this, the first.
    """

    def rank(row: Evidence) -> tuple[object, ...]:
        is_own = row.is_whole(name) and row.host is None
        return *row.coverage(name), is_own, len(row.good(name)), row.is_ready(name)

    return max(rows, key=rank)


def with_published_dependencies(row: Evidence, name: str, published: Iterable[Source]) -> Evidence:
    """The row; if what the experiment needs is not complete there, published results fill it up.

    So a machine follows what others chose, and need not choose anew.
    """
    if row.is_ready(name):
        return row
    source, fallback = row.source, first_good(row.source, *published, row.source)

    def record_of(case: Case) -> Record | None:
        return (source if case.experiment.removesuffix(TUNING) == name else fallback)(case)

    return replace(row, source=record_of)


def borrowed_result(row: Evidence, case: Case, published: Iterable[Source]) -> Record | None:
    """The row's good result of a case, or another machine's if this one cannot run it, or None."""
    record = row.record(case)
    if record and record.status == "skipped" and row.is_finished(record):
        record = first_good(*published)(case)
    return record if record and record.status == "ok" else None


Place = tuple[str | None, frozenset[tuple[str, Scalar]]]  # a machine, and a workload


@dataclass(frozen=True, kw_only=True)
class EvidenceTable:
    """All rows of evidence for a plan: this machine's `own`, if given, and the published ones."""

    plan: RunPlan
    own: Source | None = None
    _rows: dict[Place, Evidence] = field(default_factory=dict, init=False, compare=False)
    _rows_of: dict[tuple[Place, str], Evidence] = field(
        default_factory=dict, init=False, compare=False
    )

    @functools.cached_property
    def published(self) -> Mapping[str, Source]:
        """Machine → the source of its published records; the machine with most records is first."""
        return {host: source_of(records) for host, records in self._by_machine.items()}

    @property
    def _by_machine(self) -> Mapping[str, Mapping[str, Record]]:
        return published_by_machine(self.plan.project.docs / "data")[0]

    @functools.cached_property
    def workloads(self) -> Mapping[str, list[Params]]:
        """Experiment → the workloads of which it has published results."""
        by_name: dict[str, list[Params]] = {}
        for records in self._by_machine.values():
            for record in records.values():
                known = by_name.setdefault(record.case.experiment, [])
                workload = workloads.workload_of(record.case.params)
                if workload and workload not in known:
                    known.append(workload)
        return by_name

    def rows(self, name: str, *, every_workload: bool = False) -> list[Evidence]:
        """An experiment's rows of the plan's workload, or of every one, this machine's first.

        Published machines that have run all of it together, but none alone, are one row, if all
        that is timed ran on one of them. In the smoke profile, of which nothing is published, there
        are no others.
        """
        others = self.workloads.get(name, ()) if every_workload else ()
        distinct = [self.plan.workload, *(w for w in others if w != self.plan.workload)]
        rows = [self._row(None, self.plan.workload, name)] if self.own else []
        if self.plan.profile.name != "smoke":
            for workload in distinct:
                rows += self._published_rows(workload, name)
        return rows

    def _published_rows(self, workload: Params, name: str) -> list[Evidence]:
        rows = [self._row(host, workload, name) for host in self.published]
        if len(rows) > 1:
            together = self._row(TOGETHER, workload, name)
            is_timed = self.plan.project.runs_alone
            clocks = {r.run.host for r in together.good(name) if is_timed(r.case)}
            has_more = together.coverage(name) > max(row.coverage(name) for row in rows)
            if has_more and len(clocks) <= 1:
                return [together]
        return rows

    @functools.cached_property
    def _sources(self) -> Mapping[str | None, Source | None]:
        every = first_good(*self.published.values()) if self.published else None
        return {None: self.own, TOGETHER: every, **self.published}

    def _row(self, host: str | None, workload: Params, name: str) -> Evidence:
        """A machine's evidence of an experiment, with the most seeds for which it is whole."""
        place = host, frozenset(workload.items())
        if (place, name) not in self._rows_of:
            source = self._sources[host]
            assert source is not None
            row = Evidence(plan=replace(self.plan, workload=workload), source=source, host=host)
            row = self._rows.setdefault(place, row)  # all experiments share what it has looked up
            row = with_published_dependencies(row, name, self.published.values())
            whole = (part for part in row.by_seeds if part.is_whole(name))
            self._rows_of[place, name] = next(whole, row)
        return self._rows_of[place, name]


def with_workload(case: Case, workload: Params) -> Case:
    """The case with another workload; unchanged if it has none, or chooses what others run."""
    if workloads.workload_of(case.params) is None or case.experiment.endswith(TUNING):
        return case
    return replace(case, params={**case.params, **workload})
