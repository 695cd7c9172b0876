"""The order in which a run executes cases: those that others need, long ones, timed ones last."""

import functools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from madl.logbook.arms import SITTING
from madl.logbook.records import Case, Record, Run, Store
from madl.logbook.values import pluralize
from madl.machine import device as machine
from madl.running.evidence import Evidence, tolerant
from madl.running.pace import Pace, in_words, varying
from madl.running.plans import Options, RunPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One finished case and how much is left; `label` says in which parameters the case differs.

    `left_s`, in seconds, is None on a cluster, whose number of workers changes.
    """

    label: str
    done: int
    total: int
    record: Record
    left_s: float | None

    @property
    def left(self) -> str:
        """How much is left, in words: "3 min left", or "23 cases left"."""
        if self.left_s is None:
            return f"{self.total - self.done} cases left"
        return f"{in_words(self.left_s)} left"

    @property
    def line(self) -> str:
        """The case and its result: "[7/30] lab1_pruning x=2  accuracy 0.874  41 s, 3 min left"."""
        record = self.record
        accuracy = record.values.get("accuracy")
        outcome = record.status if accuracy is None else f"accuracy {accuracy:.3f}"
        place = f"[{self.done}/{self.total}] {record.case.experiment} {self.label}".rstrip()
        return f"{place}  {record.error or outcome}  {record.seconds:.0f} s, {self.left}"


class ExecutionMode(NamedTuple):
    """Whether cases are timed, and how many run side by side; the least mode is taken first.

    Cases that have the machine to themselves because they use all of it come first, as others need
    them; then those that run side by side; and those that measure time when nothing else is left.
    """

    is_timed: bool
    jobs: int


@dataclass
class Queues:
    """Cases that can be executed now, by their mode; `fill` adds those that have become ready."""

    plan: RunPlan
    store: Store
    options: Options
    waiting: list[str]  # experiments whose needs are not complete
    cases: dict[ExecutionMode, deque[Case]] = field(default_factory=dict)
    varying: dict[str, list[str]] = field(default_factory=dict)  # experiment → `pace.varying`
    done: Counter[str] = field(default_factory=Counter)  # experiment → cases that ended
    # case key → mode and case, of those that were put into a queue and have not ended
    left: dict[str, tuple[ExecutionMode, Case]] = field(default_factory=dict)

    @functools.cached_property
    def pace(self) -> Pace:
        return Pace(self.plan)

    @property
    def evidence(self) -> Evidence:
        """This machine's evidence as it is now; with `force`, records may be unreadable."""
        source = tolerant(self.store.get) if self.options.force else self.store.get
        return Evidence(plan=self.plan, source=source)

    def next_mode(self) -> ExecutionMode | None:
        """The mode whose cases are to be executed next; None if no case is queued."""
        return min((mode for mode, cases in self.cases.items() if cases), default=None)

    def finish(self, record: Record) -> Progress:
        """Count a case that has ended, add the cases that waited for it, return the progress."""
        params, name = record.case.params, record.case.experiment
        self.done[name] += 1
        del self.left[record.case.key]
        self.pace.finished(record)
        if self._is_needed(name):
            self.fill()
        keys = [key for key in self.varying[name] if key in params]
        coming = self._coming()
        return Progress(
            label=" ".join(f"{key}={params[key]}" for key in keys),
            done=self.done.total(),
            total=self.done.total() + len(coming),
            record=record,
            left_s=self._left_s(coming),
        )

    def outlook(self) -> str:
        """The work that is left, in words: "30 cases, about 12 min"."""
        coming = self._coming()
        left_s = self._left_s(coming)
        return pluralize(len(coming), "case") + (f", about {in_words(left_s)}" if left_s else "")

    def _left_s(self, coming: Sequence[tuple[ExecutionMode, float]]) -> float | None:
        """Seconds until these cases are done; None on a cluster, whose workers come and go."""
        if self.options.scheduler is not None:
            return None
        return sum(seconds / mode.jobs for mode, seconds in coming)

    def _coming(self) -> list[tuple[ExecutionMode, float]]:
        """The mode and the expected seconds of each case that is left or will become ready."""
        coming = [(mode, self.pace.expected_s(case)) for mode, case in self.left.values()]
        for name in self.waiting:
            expected = self.pace.expected(name)
            mode_of = self._modes(name, [case for case, _ in expected])
            coming += [(mode_of(case), seconds) for case, seconds in expected]
        return coming

    def _is_needed(self, name: str) -> bool:
        """Whether an experiment that waits needs this one."""
        return any(name in self.plan.project.load(other).needs for other in self.waiting)

    def _ready(self) -> list[str]:
        """The waiting experiments whose needs are complete and, if this run makes them, done."""
        plan, evidence = self.plan, self.evidence
        unfinished = {*self.waiting, *(case.experiment for _, case in self.left.values())}

        def is_ready(name: str) -> bool:
            needs = plan.project.load(name).needs if self.options.force else plan.needs(name)
            return unfinished.isdisjoint(needs) and evidence.is_ready(name)

        return list(filter(is_ready, self.waiting))

    def fill(self) -> None:
        """Queue the cases of all experiments that have become ready."""
        while ready := self._ready():
            self.waiting = [name for name in self.waiting if name not in ready]
            for name in ready:
                self._add(name)
            for mode, queue in self.cases.items():
                self._sort(queue, in_rounds=mode.is_timed)

    def _add(self, name: str) -> None:
        """Queue the cases of an experiment that are left, and record which cannot run here."""
        evidence = self.evidence
        record_skipped(evidence, self.store, name, self.options)
        planned, left = evidence.cases(name), cases_left(evidence, name, self.options)
        self.varying[name] = varying(planned)
        self.pace.learn(name, planned)
        mode_of = self._modes(name, planned)
        for case in left:
            mode = mode_of(case)
            self.cases.setdefault(mode, deque()).append(case)
            self.left[case.key] = mode, case
        if left:
            log.info("%s: %d of %d cases to do", name, len(left), len(planned))

    def _modes(self, name: str, planned: Sequence[Case]) -> Callable[[Case], ExecutionMode]:
        """A function from a case of this experiment to the mode in which it is executed.

        Jobs and threads follow from the plan, not from what is left: a resumed run sums alike.
        In smoke, whose times mean nothing, nothing runs alone.
        """
        is_smoke = self.plan.profile.name == "smoke"
        runs_alone = self.plan.project.runs_alone
        timed = {case.key for case in planned if not is_smoke and runs_alone(case)}
        beside = max(min(self.options.jobs, len(planned) - len(timed)), 1)
        alone, together = ExecutionMode(True, 1), ExecutionMode(False, beside)
        return lambda case: alone if case.key in timed else together

    def _sort(self, queue: deque[Case], *, in_rounds: bool) -> None:
        """Sort what others need first, then the longest, so that all workers end at about one time.

        Timed cases go `in_rounds`: all that have one `SITTING`, then all of the next, so that the
        sittings of a comparison lie as far apart as the run is long.

        Cases that need nothing come before those that may wait for a model that is being trained.
        Cases of one experiment, which share what they load, stay together. A case of unknown time
        counts as the longest. The queue stays the same object, as an executor is taking cases from
        it.
        """
        usual_s = {case.key: self.pace.usual_s.get(case.key, math.inf) for case in queue}
        longest_s: dict[str, float] = {}
        for case in queue:
            longest_s[case.experiment] = max(longest_s.get(case.experiment, 0.0), usual_s[case.key])

        def rank(case: Case) -> tuple[object, ...]:
            name = case.experiment
            has_needs = bool(self.plan.project.load(name).needs)
            longest = -longest_s[name], name, -usual_s[case.key]
            sitting = case.params.get(SITTING, 0) if in_rounds else 0
            return not self._is_needed(name), sitting, has_needs, *longest

        ordered = sorted(queue, key=rank)
        queue.clear()
        queue.extend(ordered)


def cases_left(evidence: Evidence, name: str, options: Options) -> list[Case]:
    """Cases that can run here and have no good record, or one made without a program now there.

    Failed ones are retried; with `force`, all run.
    """
    left = evidence.cases(name)
    if not options.force:
        known = ((case, evidence.source(case)) for case in left)
        left = [c for c, r in known if r is None or r.status != "ok" or evidence.is_outdated(r)]
    return [case for case in left if why_not(evidence.plan, case, options) is None]


def why_not(plan: RunPlan, case: Case, options: Options) -> str | None:
    """Why a case cannot run; None if it can. What a cluster's machines lack its workers say."""
    return plan.why_unavailable(case) if options.scheduler is None else plan.why_unfit(case)


def record_skipped(evidence: Evidence, store: Store, name: str, options: Options) -> None:
    """Store a skipped record with the reason for each case that cannot run."""
    record = None
    for case in evidence.cases(name):
        if (reason := why_not(evidence.plan, case, options)) is None:
            continue
        known = evidence.source(case)
        if known and (known.status == "ok" or known.error == reason):
            continue
        root = evidence.plan.project.root
        record = record or unexecuted_record(root, case, "skipped", reason)
        store.put(replace(record, case=case, error=reason))


def unexecuted_record(
    root: Path, case: Case, status: Literal["failed", "skipped"], why: str
) -> Record:
    """The record, without values, of a case that was not executed, or whose end nobody saw."""
    device, _ = machine.resolve("auto")
    run = Run(**machine.provenance(root, case.experiment, device), contention=None)
    return Record(case=case, status=status, values={}, seconds=0.0, run=run, error=why)
