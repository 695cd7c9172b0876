"""From a plan to records: cases in the order of their needs, each done once, resumed for free."""

import contextlib
import errno
import functools
import importlib
import itertools
import logging
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from madl.errors import MadlError
from madl.logbook import shapes
from madl.logbook.experiment import Experiment
from madl.logbook.records import (
    Case,
    Record,
    Run,
    Store,
    Values,
    read_published,
    registered,
)
from madl.machine import device as machine
from madl.machine import lifeline, sources
from madl.machine.contention import ContentionMeter
from madl.machine.memory import keep_freed_pages
from madl.running import executors, shards
from madl.running.plans import Options, StoredPlan, skip, todo, with_needs, without_values
from madl.running.project import Project

log = logging.getLogger(__name__)

SHARD_POLL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One finished case and how much is left; `label` names the case among its siblings."""

    label: str
    done: int
    total: int
    record: Record
    left_s: float


def run(
    plan: StoredPlan, store: Store, names: Sequence[str], options: Options
) -> Iterator[Progress]:
    """Execute what is left of these experiments; every record is stored before it is yielded.

    Raises:
        MadlError: before anything is executed, if a stored record cannot be read.
    """
    names = with_needs(plan.project, names)
    for name in names:
        if plan.is_ready(name):
            todo(plan, name, options)  # reads every record: a bad one stops us here
    folder = store.root / "shards"
    with (
        shards.at_work(folder, options.shard),
        lifeline.guarded(store.root / "tmp"),
        executors.Processes() as processes,
    ):
        if options.shard == shards.WHOLE:
            store.sweep()
        queues = _Queues(plan, store, options, names)
        while True:
            queues.fill()
            if (way := queues.next_way()) is None:
                _wait_for_other_shards(plan, queues.waiting, folder, options.shard)
                if any(plan.is_ready(name) for name in queues.waiting):
                    continue
                for name in queues.waiting:
                    log.warning("%s waits: what it needs is not complete", name)
                return
            yield from _execute_queue(plan, store, queues, way, options, processes)


def _wait_for_other_shards(
    plan: StoredPlan, names: Sequence[str], folder: Path, shard: shards.Shard
) -> None:
    """Until one of the experiments is ready, or nobody is at work who could complete its needs."""
    said = False
    while not any(plan.is_ready(name) for name in names):
        hopeful = [name for name in names if plan.can_become_ready(name)]
        if shard == shards.WHOLE or not hopeful or not shards.others(folder, shard):
            return
        if not said:
            log.info("%s: needs results of other shards; waiting for them", ", ".join(hopeful))
            said = True
        time.sleep(SHARD_POLL_S)


class _Way(NamedTuple):
    """How cases are executed; sorted in the order in which the ways are taken.

    Cases that have the machine to themselves because they use all of it come first, as others need
    them; then those that run side by side; and those that measure time when nothing else is left.
    """

    is_timed: bool
    jobs: int


@dataclass
class _Queues:
    """Cases that can be executed now, by their way; `fill` adds those that have become ready."""

    plan: StoredPlan
    store: Store
    options: Options
    waiting: list[str]  # experiments whose needs are not complete
    cases: dict[_Way, deque[Case]] = field(default_factory=dict)
    varying: dict[str, list[str]] = field(default_factory=dict)
    total: int = 0  # cases that were ever put into a queue
    took_s: dict[str, list[float]] = field(default_factory=dict)  # experiment → its finished cases

    def next_way(self) -> _Way | None:
        return min((way for way, cases in self.cases.items() if cases), default=None)

    def is_needed(self, name: str) -> bool:
        return any(name in self.plan.project.load(other).needs for other in self.waiting)

    def finished(self, record: Record) -> Progress:
        self.took_s.setdefault(record.case.experiment, []).append(record.seconds)
        params = record.case.params
        keys = [key for key in self.varying[record.case.experiment] if key in params]
        label = " ".join(f"{key}={params[key]}" for key in keys)
        done = sum(map(len, self.took_s.values()))
        return Progress(
            label=label, done=done, total=self.total, record=record, left_s=self._left_s()
        )

    def _left_s(self) -> float:
        """A case takes as long as those of its experiment did, or else as the median of all."""
        usual_s = median(itertools.chain.from_iterable(self.took_s.values()))
        mean_s = {name: fmean(seconds) for name, seconds in self.took_s.items()}
        return sum(
            sum(mean_s.get(case.experiment, usual_s) for case in cases) / way.jobs
            for way, cases in self.cases.items()
        )

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
        by_way: dict[_Way, list[Case]] = {}
        for case in left:
            is_timed = alone(case.params)
            by_way.setdefault(_Way(is_timed, 1 if is_timed else beside), []).append(case)
        for way, cases in by_way.items():
            queue = self.cases.setdefault(way, deque())
            if self.is_needed(name):
                queue.extendleft(reversed(cases))
            else:
                queue.extend(cases)
        if left:
            log.info("%s: %d of %d cases to do", name, len(left), len(planned))
        self.total += len(left)
        self.varying[name] = _varying(planned)


def _execute_queue(
    plan: StoredPlan,
    store: Store,
    queues: _Queues,
    way: _Way,
    options: Options,
    processes: executors.Processes,
) -> Iterator[Progress]:
    """Until this queue is empty; cases that become ready meanwhile join it."""
    records = _executed(
        plan, store, queues.cases[way], options, processes, jobs=way.jobs, alone=way.is_timed
    )
    for record in records:
        record = registered(record, _earlier(plan, store, record.case))
        store.put(record)
        if queues.is_needed(record.case.experiment):
            queues.fill()
        yield queues.finished(record)


def _earlier(plan: StoredPlan, store: Store, case: Case) -> list[Record]:
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


def _executed(
    plan: StoredPlan,
    store: Store,
    cases: deque[Case],
    options: Options,
    processes: executors.Processes,
    *,
    jobs: int,
    alone: bool,
) -> Iterator[Record]:
    """Execute cases here, in processes of their own, or on a cluster."""
    root, device = plan.project.root, options.device
    if options.scheduler is not None:
        remote = functools.partial(
            execute_on_worker, root, store.root, device, alone, _code_at_start()
        )
        yield from executors.cluster(
            cases,
            remote,
            scheduler=options.scheduler,
            alone=alone,
            lost=lambda case, why: without_values(root, device, case, "failed", why),
        )
        return
    threads = max(machine.num_cores() // jobs, 1)
    job = functools.partial(execute, root, store.root, device, jobs)
    if jobs == 1:
        start_process(threads)
        yield from executors.inline(cases, job)
        return
    start = functools.partial(start_process, log_level=_worker_log_level())
    yield from processes.run(cases, job, jobs=jobs, threads=threads, start=start)


def _varying(cases: Sequence[Case]) -> list[str]:
    """The parameters that tell these cases apart; all else is the same wherever it appears."""
    keys = {key: None for case in cases for key in case.params}
    return [key for key in keys if len({c.params[key] for c in cases if key in c.params}) > 1]


def _worker_log_level() -> int:
    """Several workers at once would drown the line that each finished case gets."""
    return logging.DEBUG if log.isEnabledFor(logging.DEBUG) else logging.WARNING


def start_process(threads: int, log_level: int | None = None) -> None:
    """Prepare a process that executes cases; a fresh one gets a log of its own."""
    if log_level is not None:
        logging.basicConfig(level=log_level, stream=sys.stderr, format="%(message)s")
    keep_freed_pages()
    machine.needs_torch()
    import torch

    torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class _Context:
    device: str
    store: Store

    def artifact(self, name: str, build: Callable[[Path], None]) -> Path:
        return self.store.artifact(name, build)

    def folder(self, name: str) -> Path:
        return self.store.folder(name)


def execute(root: Path, store_root: Path, device: str, jobs: int, case: Case) -> Record:
    """Run one case. The one place that catches everything: a failure is a result like any other."""
    experiment = Project(root).load(case.experiment)
    device = str(case.params.get("device", device))  # asked for by the case, or where it happens
    known = machine.provenance(root, case.experiment, device)
    meter = ContentionMeter.start()
    started = time.perf_counter()
    seed = case.params.get("seed")
    machine.seed_everything(seed if isinstance(seed, int) else 0)
    values: Values = {}
    error: str | None = None
    try:
        values = experiment.execute(case.params, _Context(device, Store(store_root)))
        _check(experiment, case, values)
    except (Exception, SystemExit) as problem:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # nothing can be stored, this failure neither
        values, error = {}, _in_a_line(problem)
        log.debug("%s", traceback.format_exc())
    return Record(
        case=case,
        status="failed" if error else "ok",
        values=values,
        seconds=round(time.perf_counter() - started, 3),
        run=Run(
            **known,
            contention=meter.share(jobs=jobs),
            claims=experiment.digests,
            kernels=_kernels(root, case.experiment),
        ),
        error=error,
    )


def _kernels(root: Path, experiment: str) -> str:
    """The path of each C++ kernel of quantization that the experiment reaches.

    They round alike, to the last bit, and sum in another order.
    """
    reached = sources.reached(root, experiment)
    names = [n for n in ("round_to_grid", "linear_bf16") if root / "kernels" / f"{n}.py" in reached]
    routes = {name: importlib.import_module(f"kernels.{name}").route() for name in names}
    return ", ".join(f"{name} {route.path}" for name, route in routes.items())


def _check(experiment: Experiment, case: Case, values: Values) -> None:
    """Raises: MadlError: values that could not be read again."""
    try:
        shapes.check(values)
        experiment.check_values(case.params, values)
    except (ValueError, RecursionError) as error:
        raise MadlError(f"its values cannot be stored: {error}") from error


def _in_a_line(problem: BaseException) -> str:
    """Why a case failed, and what to do where that is known."""
    text = " ".join(str(problem).split())
    if isinstance(problem, MadlError):
        return text
    if isinstance(problem, MemoryError) or "can't allocate memory" in text:
        return "not enough memory; end other programs, or use fewer --jobs, and run it again"
    first = (str(problem).strip() or "no message").splitlines()[0]
    return f"{type(problem).__name__}: {first}"


def execute_on_worker(
    root: Path, store_root: Path, device: str, alone: bool, code: str, jobs: int, case: Case
) -> Record:
    """Run one case on a worker of a cluster, a process that was there before this run.

    It computes with as many threads as `OMP_NUM_THREADS` allows, which Dask sets to one; a timed
    case, beside which nothing runs, with all its cores.

    Raises:
        MadlError: the project is not there, or its code is not what this process has imported.
    """
    if not root.is_dir():
        raise MadlError(
            f"the worker on {machine.host_label()} has no folder {root}; "
            "the workers need the project at the same path, on a shared file system"
        )
    if _code_at_start() != code:
        raise MadlError(
            f"the worker on {machine.host_label()} runs other code than this project's; "
            "start the workers again, in the project's folder"
        )
    why = Project(root).why_unavailable(case)
    if why is not None:
        return without_values(root, device, case, "skipped", why)
    threads = machine.num_cores() if alone else int(os.environ.get("OMP_NUM_THREADS") or 1)
    start_process(threads)
    return execute(root, store_root, machine.resolve(device)[0], jobs, case)


@functools.cache
def _code_at_start() -> str:
    """Digest of the library as this process found it; a long-lived one keeps what it imported."""
    return sources.digest_of_all(Path(__file__).parents[2])
