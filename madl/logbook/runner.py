"""From a plan to records: what there is to do, in which order, done once, resumed for free."""

import functools
import itertools
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from madl.errors import MadlError
from madl.logbook import executors, shards
from madl.logbook.experiment import Case, Params, Project
from madl.logbook.profiles import PROFILES, Profile
from madl.logbook.results import Record, Records, Run, Source, Store, encode, select
from madl.machine import device as machine
from madl.machine.memory import keep_freed_pages

log = logging.getLogger(__name__)

SHARD_POLL_S = 2.0


@dataclass(frozen=True)
class StoredPlan:
    """The plan of a run: what `Experiment.params` sees (see `experiment.Plan`)."""

    project: Project
    store: Source
    profile: Profile
    workload: Params

    def cases(self, name: str) -> list[Case]:
        return self.project.load(name).cases(name, self)

    def records(self, name: str) -> Records:
        return select(self.store, self.cases(name))

    def finished(self, name: str) -> Records:
        """Results, and the cases that this machine cannot run."""
        found = (self.store.get(case) for case in self.cases(name))
        return Records(record for record in found if record and record.status != "failed")

    def is_complete(self, name: str) -> bool:
        """Whether every case has its result, or cannot have one on this machine."""
        return self.is_ready(name) and len(self.finished(name)) == len(self.cases(name))

    def is_ready(self, name: str) -> bool:
        """Whether all that the experiment needs is complete, so that its cases are known."""
        return all(self.is_complete(needed) for needed in self.project.load(name).needs)

    def can_become_ready(self, name: str) -> bool:
        """Whether nothing that it needs, at any distance, has failed."""
        for needed in self.project.load(name).needs:
            if not self.can_become_ready(needed):
                return False
            found = [self.store.get(c) for c in self.cases(needed)] if self.is_ready(needed) else []
            if any(record and record.status == "failed" for record in found):
                return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, never what: nothing here can change a result's key."""

    device: str = "cpu"
    jobs: int = 1
    force: bool = False
    shard: tuple[int, int] = (1, 1)
    scheduler: str | None = None  # of a Dask cluster, which then executes all cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One finished case and how much is left; `label` names the case among its siblings."""

    label: str
    done: int
    total: int
    record: Record
    left_s: float


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n`: the i-th of n shares of the cases, 1-based.

    Raises:
        MadlError: not of that form, or i outside 1 … n.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise MadlError(f"--shard is i/n with 1 <= i <= n, for example 2/3; got {text!r}")
    return int(match[1]), int(match[2])


def profile_named(name: str) -> Profile:
    """Raises: MadlError: there is no such profile."""
    if name not in PROFILES:
        raise MadlError(f"unknown profile {name!r}; known: {', '.join(PROFILES)}")
    return PROFILES[name]


def with_needs(project: Project, names: Sequence[str]) -> list[str]:
    """The experiments and all they need, in order; all of them when none is named."""
    wanted = {name for name in names if project.load(name)}
    for name in reversed(project.names()):
        if name in wanted:
            wanted.update(project.load(name).needs)
    return [name for name in project.names() if not names or name in wanted]


def todo(plan: StoredPlan, name: str, options: Options) -> list[Case]:
    """Cases of this shard that can run here and have no good record: failed ones are retried."""
    index, count = options.shard
    mine = [case for case in plan.cases(name) if int(case.key, 16) % count == index - 1]
    if not options.force:
        mine = [c for c in mine if (r := plan.store.get(c)) is None or r.status != "ok"]
    if options.scheduler is not None:
        return mine  # what can run is for the workers to say
    unavailable = plan.project.load(name).unavailable
    return [case for case in mine if unavailable(case.params) is None]


def skip(plan: StoredPlan, store: Store, name: str, device: str) -> None:
    """Store why cases cannot run on this machine, where the store does not say so yet."""
    for case in plan.cases(name):
        reason = plan.project.load(name).unavailable(case.params)
        known = store.get(case)
        if reason is None or (known and (known.status == "ok" or known.error == reason)):
            continue
        store.put(_without_values(plan.project.root, device, case, "skipped", reason))


def _without_values(
    root: Path, device: str, case: Case, status: Literal["failed", "skipped"], why: str
) -> Record:
    """The record of a case that was not executed, or whose end nobody saw."""
    run = Run(**machine.provenance(root, case.experiment, device), contention=None)
    return Record(case=case, status=status, values={}, seconds=0.0, run=run, error=why)


def state_of(plan: StoredPlan, store: Store, name: str) -> dict[str, Any]:
    """Counts of an experiment's cases, for `status`."""
    ready = plan.is_ready(name)
    records = [store.get(case) for case in plan.cases(name)] if ready else []
    ok = [r for r in records if r and r.status == "ok"]
    failed = [r for r in records if r and r.status == "failed"]
    skipped = [r for r in records if r and r.status == "skipped"]
    code = machine.code_digest(plan.project.root, name)
    return {
        "name": name,
        "ready": ready,
        "cases": len(records),
        "ok": len(ok),
        "failed": len(failed),
        "skipped": len(skipped),
        "left": len(records) - len(ok) - len(skipped),
        "changed": sum(record.run.code != code for record in ok),
        "errors": sorted({record.error or "" for record in [*failed, *skipped]}),
    }


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
    with shards.at_work(folder, options.shard), executors.Processes() as processes:
        while names:
            _wait_for_other_shards(plan, names, folder, options.shard)
            ready = [name for name in names if plan.is_ready(name)]
            if not ready:
                for name in names:
                    log.warning("%s waits: what it needs is not complete", name)
                return
            yield from _run_together(plan, store, ready, options, processes)
            names = [name for name in names if name not in ready]


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


def _run_together(
    plan: StoredPlan,
    store: Store,
    names: Sequence[str],
    options: Options,
    processes: executors.Processes,
) -> Iterator[Progress]:
    """Experiments that need nothing of each other: no worker idles until the last of all cases."""
    for name in names if options.scheduler is None else ():
        skip(plan, store, name, options.device)
    batches = _batches(plan, names, options)
    total = sum(map(len, batches.values()))
    varying = {name: _varying(plan.cases(name)) for name in names}
    records = itertools.chain.from_iterable(
        _executed(plan, store, cases, options, processes, jobs=jobs, alone=alone)
        for (alone, jobs), cases in sorted(batches.items())
    )
    started = time.perf_counter()
    for done, record in enumerate(records, 1):
        store.put(record)
        left_s = (time.perf_counter() - started) / done * (total - done)
        params = record.case.params
        keys = [key for key in varying[record.case.experiment] if key in params]
        label = " ".join(f"{key}={params[key]}" for key in keys)
        yield Progress(label=label, done=done, total=total, record=record, left_s=left_s)


def _batches(
    plan: StoredPlan, names: Sequence[str], options: Options
) -> dict[tuple[bool, int], list[Case]]:
    """What is left of these experiments, by (alone, jobs): the ways in which it is executed."""
    batches: dict[tuple[bool, int], list[Case]] = {}
    for name in names:
        alone = plan.project.load(name).runs_alone
        planned, left = plan.cases(name), todo(plan, name, options)
        # Jobs and threads follow from the plan, not from what is left: a resumed run sums alike.
        beside = max(min(options.jobs, sum(not alone(case.params) for case in planned)), 1)
        for case in left:
            timed = alone(case.params)
            batches.setdefault((timed, 1 if timed else beside), []).append(case)
        if left:
            log.info("%s: %d of %d cases to do", name, len(left), len(planned))
    return batches


def _executed(
    plan: StoredPlan,
    store: Store,
    cases: Sequence[Case],
    options: Options,
    processes: executors.Processes,
    *,
    jobs: int,
    alone: bool = False,
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
            lost=lambda case, why: _without_values(root, device, case, "failed", why),
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
    meter = machine.ContentionMeter.start()
    started = time.perf_counter()
    seed = case.params.get("seed")
    machine.seed_everything(seed if isinstance(seed, int) else 0)
    values: Mapping[str, object] = {}
    error: str | None = None
    try:
        values = experiment.run(case.params, _Context(device, Store(store_root)))
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
        if isinstance(problem, MadlError):
            error = str(problem)
        else:
            log.debug("%s", traceback.format_exc())
    record = Record(
        case=case,
        status="failed" if error else "ok",
        values=values,
        seconds=round(time.perf_counter() - started, 3),
        run=Run(**known, contention=meter.share(jobs=jobs)),
        error=error,
    )
    try:
        encode(record)
    except (TypeError, ValueError) as problem:
        why = f"its values cannot be stored ({problem})"
        return replace(record, status="failed", values={}, error=why)
    return record


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
    why = Project(root).load(case.experiment).unavailable(case.params)
    if why is not None:
        return _without_values(root, device, case, "skipped", why)
    threads = machine.num_cores() if alone else int(os.environ.get("OMP_NUM_THREADS") or 1)
    start_process(threads)
    return execute(root, store_root, machine.resolve(device)[0], jobs, case)


@functools.cache
def _code_at_start() -> str:
    """Digest of the library as this process found it; a long-lived one keeps what it imported."""
    return machine.code_digest(Path(__file__).parents[2], "")
