"""The order of cases: what is known to be short, then what others need; what is timed is last."""

import contextlib
import functools
import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from madl.errors import MadlError
from madl.logbook.records import Case, Record, Store, read_published
from madl.running.plans import Options, StoredPlan, skip, todo

log = logging.getLogger(__name__)

SOON_S = 60.0  # who is done within this goes first: a page to read while the others run


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One finished case and how much is left; `label` names the case among its siblings.

    `is_last` says that its experiment has no other case in this run, `before_timed` that what comes
    next measures time, or nothing does.
    """

    label: str
    done: int
    total: int
    record: Record
    left_s: float
    is_last: bool
    before_timed: bool


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
    total: int = 0  # cases that were ever put into a queue
    by_name: Counter[str] = field(default_factory=Counter)  # … of each experiment
    known_s: dict[str, float] = field(default_factory=dict)  # key → seconds, where evidence has it
    took_s: dict[str, list[float]] = field(default_factory=dict)  # experiment → its finished cases

    def next_way(self) -> Way | None:
        return min((way for way, cases in self.cases.items() if cases), default=None)

    def is_needed(self, name: str) -> bool:
        return any(name in self.plan.project.load(other).needs for other in self.waiting)

    def finished(self, record: Record) -> Progress:
        self.took_s.setdefault(record.case.experiment, []).append(record.seconds)
        params = record.case.params
        name = record.case.experiment
        keys = [key for key in self.varying[name] if key in params]
        way = self.next_way()
        return Progress(
            label=" ".join(f"{key}={params[key]}" for key in keys),
            done=sum(map(len, self.took_s.values())),
            total=self.total,
            record=record,
            left_s=self._left_s(),
            is_last=len(self.took_s[name]) == self.by_name[name],
            before_timed=way is None or way.is_timed,
        )

    def _left_s(self) -> float:
        """A case takes as long as those of its experiment did, as published, or as the median."""
        usual_s = median(itertools.chain.from_iterable(self.took_s.values()))
        mean_s = {name: fmean(seconds) for name, seconds in self.took_s.items()}

        def expected_s(case: Case) -> float:
            return mean_s.get(case.experiment) or self.known_s.get(case.key, usual_s)

        return sum(sum(map(expected_s, cases)) / way.jobs for way, cases in self.cases.items())

    def fill(self) -> None:
        while ready := [name for name in self.waiting if self.plan.is_ready(name)]:
            self.waiting = [name for name in self.waiting if name not in ready]
            for name in ready:
                self._add(name)

    def _add(self, name: str) -> None:
        if self.options.scheduler is None:
            skip(self.plan, self.store, name, self.options.device)
        alone = self.plan.project.load(name).runs_alone
        planned, left = self.plan.cases(name), todo(self.plan, name, self.options)
        # Jobs and threads follow from the plan, not from what is left: a resumed run sums alike.
        beside = max(min(self.options.jobs, sum(not alone(case.params) for case in planned)), 1)
        by_way: dict[Way, list[Case]] = {}
        for case in left:
            is_timed = alone(case.params)
            by_way.setdefault(Way(is_timed, 1 if is_timed else beside), []).append(case)
        for case in left:
            if found := earlier(self.plan, self.store, case):
                self.known_s[case.key] = found[0].seconds
        for way, cases in by_way.items():
            self.cases.setdefault(way, deque()).extend(cases)
        self._sort()
        if left:
            log.info("%s: %d of %d cases to do", name, len(left), len(planned))
        self.total += len(left)
        self.by_name[name] = len(left)
        self.varying[name] = _varying(planned)

    def _sort(self) -> None:
        """What is known to be short first, then what others need, then what is known to be shorter.

        The queues stay the same objects, as they are being worked on.
        """
        for queue in self.cases.values():
            lasts_s: dict[str, float] = {}
            for case in queue:
                known_s = self.known_s.get(case.key, math.inf)
                lasts_s[case.experiment] = lasts_s.get(case.experiment, 0.0) + known_s
            ranks = {
                name: (lasts > SOON_S, not self.is_needed(name), lasts)
                for name, lasts in lasts_s.items()
            }
            ordered = sorted(queue, key=lambda case, ranks=ranks: ranks[case.experiment])
            queue.clear()
            queue.extend(ordered)


def earlier(plan: StoredPlan, store: Store, case: Case) -> list[Record]:
    """What is known of a case already, here or as published evidence."""
    found: list[Record | None] = []
    with contextlib.suppress(MadlError):  # said where it is read
        found.append(store.get(case))
    path = plan.project.docs / "data" / f"{case.experiment}.jsonl"
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return [*filter(None, found), *_published(path, stamp).get(case.key, ())]


@functools.lru_cache(maxsize=64)
def _published(path: Path, stamp: int) -> Mapping[str, list[Record]]:
    del stamp  # when it was written
    by_key: dict[str, list[Record]] = {}
    for record in read_published(path, lambda _: None):
        by_key.setdefault(record.case.key, []).append(record)
    return by_key


def _varying(cases: Sequence[Case]) -> list[str]:
    """The parameters that tell these cases apart; all else is the same wherever it appears."""
    keys = {key: None for case in cases for key in case.params}
    return [key for key in keys if len({c.params[key] for c in cases if key in c.params}) > 1]
