"""The order of cases: what others need, then what is known to be long; what is timed is last."""

import functools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from madl.logbook.records import Case, Params, Record, Store
from madl.running.pace import Pace, in_words, varying
from madl.running.plans import Listed, Options, Sample, StoredPlan, is_mine, skip, todo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One finished case and how much is left; `label` names the case among its siblings.

    `left_s` is None where nobody knows how many work.
    """

    label: str
    done: int
    total: int
    record: Record
    left_s: float | None

    @property
    def left(self) -> str:
        if self.left_s is None:
            return f"{self.total - self.done} cases left"
        return f"{in_words(self.left_s)} left"


class Way(NamedTuple):
    """How cases are executed; sorted in the order in which the ways are taken.

    Cases that have the machine to themselves because they use all of it come first, as others need
    them; then those that run side by side; and those that measure time when nothing else is left.
    """

    is_timed: bool
    jobs: int


@dataclass
class Queues:
    """Cases that can be executed now, by their way; `fill` adds those that have become ready."""

    plan: StoredPlan
    store: Store
    options: Options
    waiting: list[str]  # experiments whose needs are not complete
    cases: dict[Way, deque[Case]] = field(default_factory=dict)
    varying: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, tuple[Way, Case]] = field(default_factory=dict)  # by key: queued, not ended
    by_name: Counter[str] = field(default_factory=Counter)  # cases that were ever in a queue
    done: Counter[str] = field(default_factory=Counter)  # … of which ended

    @functools.cached_property
    def pace(self) -> Pace:
        return Pace(self.plan)

    def next_way(self) -> Way | None:
        return min((way for way, cases in self.cases.items() if cases), default=None)

    def is_needed(self, name: str) -> bool:
        return any(name in self.plan.project.load(other).needs for other in self.waiting)

    def finished(self, record: Record) -> Progress:
        params = record.case.params
        name = record.case.experiment
        self.done[name] += 1
        del self.left[record.case.key]
        self.pace.finished(record)
        if self.is_needed(name):
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
        """How much there is to do before any of it is done."""
        coming = self._coming()
        left_s = self._left_s(coming)
        return f"{len(coming)} cases" + (f", about {in_words(left_s)}" if left_s else "")

    def _left_s(self, coming: Sequence[tuple[Way, float]]) -> float | None:
        """Workers of a cluster come and go, so nobody knows."""
        if self.options.scheduler is not None:
            return None
        return sum(seconds / way.jobs for way, seconds in coming)

    def _coming(self) -> list[tuple[Way, float]]:
        """How each case that is left is executed, and how long it takes as far as one can know."""
        queued = [(way, self.pace.expected_s(case)) for way, case in self.left.values()]
        for name in self.waiting:
            expected = self.pace.expected(name)
            ways = self._ways(name, [case for case, _ in expected])
            queued += [
                (ways(case), seconds) for case, seconds in expected if is_mine(case, self.options)
            ]
        return queued

    def is_ready(self, name: str) -> bool:
        """Whether its needs have results; where those are made anew, the ones of this run."""
        needs = self.plan.project.load(name).needs
        follows = self.options.force or not isinstance(self.plan, Sample | Listed)
        if follows and any(
            need in self.waiting or self.done[need] < self.by_name[need] for need in needs
        ):
            return False
        return self.plan.is_ready(name)

    def fill(self) -> None:
        while ready := [name for name in self.waiting if self.is_ready(name)]:
            self.waiting = [name for name in self.waiting if name not in ready]
            for name in ready:
                self._add(name)

    def _add(self, name: str) -> None:
        if self.options.scheduler is None:
            skip(self.plan, self.store, name, self.options.device)
        planned, left = self.plan.cases(name), todo(self.plan, name, self.options)
        self.pace.learn(name, planned)
        way = self._ways(name, planned)
        for case in left:
            self.cases.setdefault(way(case), deque()).append(case)
            self.left[case.key] = way(case), case
        self._sort()
        if left:
            log.info("%s: %d of %d cases to do", name, len(left), len(planned))
        self.by_name[name] = len(left)
        self.varying[name] = varying(planned)

    def _ways(self, name: str, planned: Sequence[Case]) -> Callable[[Case], Way]:
        """How each of an experiment's cases is executed.

        Jobs and threads follow from the plan, not from what is left: a resumed run sums alike.
        In smoke, whose times mean nothing, nothing runs alone.
        """
        is_smoke = self.plan.profile.name == "smoke"
        runs_alone = self.plan.project.load(name).runs_alone

        def alone(params: Params) -> bool:
            return not is_smoke and runs_alone(params)

        beside = max(min(self.options.jobs, sum(not alone(case.params) for case in planned)), 1)
        return lambda case: Way(True, 1) if alone(case.params) else Way(False, beside)

    def _sort(self) -> None:
        """What others need first, then the longest, so that all workers end at about the same time.

        What needs nothing comes before what may have to wait for a model that is being trained.
        Cases of one experiment, which share what they load, stay together. What nobody knows may
        be long. The queues stay the same objects, as they are being worked on.
        """
        for queue in self.cases.values():
            usual_s = {case.key: self.pace.usual_s.get(case.key, math.inf) for case in queue}
            longest_s = dict.fromkeys((case.experiment for case in queue), 0.0)
            for case in queue:
                longest_s[case.experiment] = max(longest_s[case.experiment], usual_s[case.key])
            ordered = sorted(
                queue,
                key=lambda case, usual_s=usual_s, longest_s=longest_s: (
                    not self.is_needed(case.experiment),
                    bool(self.plan.project.load(case.experiment).needs),
                    -longest_s[case.experiment],
                    case.experiment,
                    -usual_s[case.key],
                ),
            )
            queue.clear()
            queue.extend(ordered)
