"""From a plan to records: cases in the order of their needs, each done once, resumed for free."""

import contextlib
import functools
import importlib
import logging
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madl.errors import NO_ROOM, MadlError
from madl.logbook import shapes
from madl.logbook.experiment import Context
from madl.logbook.records import (
    Case,
    Record,
    Run,
    Store,
    Values,
    published_by_machine,
    registered,
)
from madl.machine import device as machine
from madl.machine import lifeline, sources
from madl.machine.contention import ContentionMeter
from madl.machine.memory import keep_freed_pages
from madl.running import executors, shards
from madl.running.plans import (
    Options,
    Readable,
    StoredPlan,
    check_records,
    why_nothing,
    with_needs,
    without_values,
)
from madl.running.processor import processor
from madl.running.project import Project
from madl.running.queues import Progress, Queues, Way

log = logging.getLogger(__name__)

SHARD_POLL_S = 2.0
KERNELS = {  # name → who reaches this source uses it, and the function of its module for the path
    "round_to_grid": ("kernels/round_to_grid.py", "round_to_grid", "route"),
    "linear_bf16": ("kernels/linear_bf16.py", "linear_bf16", "route"),
    "linear_mxint8": ("madl/compression/pack.py", "mxint8", "linear_route"),
}


def run(
    plan: StoredPlan, store: Store, names: Sequence[str], options: Options
) -> Iterator[Progress]:
    """Execute what is left of these experiments; every record is stored before it is yielded.

    Raises:
        MadlError: before anything is executed, if stored records cannot be read; with `force`, they
            are made anew. Or the code of a case has changed since this was called.
    """
    names = with_needs(plan, names)
    if options.force:
        plan = replace(plan, store=Readable(plan.store))
    else:
        check_records(plan, names)
    folder = store.root / "shards"
    with shards.at_work(folder, options.shard), lifeline.guarded(store.root / "tmp"):
        if options.shard == shards.WHOLE:
            store.sweep()
            store = store.from_now_on() if options.force else store
        queues = Queues(plan, store, options, names)
        queues.fill()
        if queues.next_way():
            log.info(queues.outlook())
            _warn_of_missing(plan, [case.experiment for _, case in queues.left.values()])
        while True:
            queues.fill()
            if (way := queues.next_way()) is None:
                _wait_for_other_shards(plan, queues.waiting, folder, options.shard)
                if any(queues.is_ready(name) for name in queues.waiting):
                    continue
                for name in queues.waiting:
                    log.warning("%s waits: what it needs is not complete", name)
                for line in why_nothing(plan, [n for n in names if not queues.by_name[n]]):
                    log.info("%s", line)
                return
            for name in names:
                plan.project.code(name)  # known from now on
            for record in _execute_queue(plan, store, queues, way, options):
                yield queues.finished(record)


def _wait_for_other_shards(
    plan: StoredPlan, names: Sequence[str], folder: Path, shard: shards.Shard
) -> None:
    """Until one of the experiments is ready, or nobody is at work who could complete its needs."""
    hopeful = [name for name in names if plan.can_become_ready(name)]
    if shard == shards.WHOLE or not hopeful or not _others_go_on(plan, folder, shard):
        return
    log.info("%s: needs results of other shards; waiting for them", ", ".join(hopeful))
    with shards.waiting(folder, shard, names):
        while (
            not any(plan.is_ready(name) for name in names)
            and any(plan.can_become_ready(name) for name in names)
            and _others_go_on(plan, folder, shard)
        ):
            time.sleep(SHARD_POLL_S)


def _others_go_on(plan: StoredPlan, folder: Path, shard: shards.Shard) -> bool:
    """Whether another share has something to do, now or as soon as it looks."""
    for other in shards.others(folder, shard):
        names = shards.waits_for(folder, other)
        if not names or any(plan.is_ready(name) for name in names):
            return True
    return False


def _execute_queue(
    plan: StoredPlan, store: Store, queues: Queues, way: Way, options: Options
) -> Iterator[Record]:
    """Until this queue is empty; cases that become ready meanwhile join it."""
    executed = _executed(plan, store, queues.cases[way], options, jobs=way.jobs, alone=way.is_timed)
    with contextlib.closing(executed) as records:
        for record in records:
            name = record.case.experiment
            if record.status == "ok" and record.run.code != plan.project.code(name):
                raise MadlError(
                    f"the code of {name} has changed since this run began, and part of it was "
                    "loaded before; finished cases are kept, run the same command again"
                )
            try:
                record = registered(record, earlier(plan, store, record.case))
            finally:  # whatever is wrong with what is known already
                record = _kept(store, record)
            yield record


def earlier(plan: StoredPlan, store: Store, case: Case) -> list[Record]:
    """What is known of a case already, here or as published evidence."""
    found: list[Record | None] = []
    with contextlib.suppress(MadlError):  # said where it is read
        found.append(store.get(case))
    machines, _ = published_by_machine(plan.project.docs / "data")
    return [*filter(None, found), *filter(None, (one.get(case) for one in machines.values()))]


def _kept(store: Store, record: Record) -> Record:
    """Store it; a repeat that gave no result leaves the good record in its place, and says so."""
    known = None
    with contextlib.suppress(MadlError):  # one that cannot be read is replaced
        known = store.get(record.case)
    if record.status != "ok" and known is not None and known.status == "ok":
        return replace(record, error=f"{record.error}; the earlier result is kept")
    store.put(record)
    return record


def _executed(
    plan: StoredPlan,
    store: Store,
    cases: deque[Case],
    options: Options,
    *,
    jobs: int,
    alone: bool,
) -> Generator[Record]:
    """Execute cases here, in processes of their own, or on a cluster."""
    root, device = plan.project.root, options.device
    if options.scheduler is not None:
        remote = functools.partial(execute_on_worker, root, store, device, alone, _code_at_start())
        yield from executors.cluster(
            cases,
            remote,
            scheduler=options.scheduler,
            alone=alone,
            lost=lambda case, why: without_values(root, device, case, "failed", why),
        )
        return
    threads = max(machine.num_cores() // jobs, 1)
    job = functools.partial(execute, root, store, device, jobs)
    if jobs == 1:
        start_process(threads)
        yield from executors.inline(cases, job)
        return
    # Several workers at once would drown the line that each finished case gets.
    level = logging.DEBUG if log.isEnabledFor(logging.DEBUG) else logging.WARNING
    start = functools.partial(start_process, log_level=level)
    yield from executors.processes(cases, job, jobs=jobs, threads=threads, start=start)


def start_process(threads: int, log_level: int | None = None) -> None:
    """Prepare a process that executes cases; a fresh one gets a log of its own."""
    if log_level is not None:
        logging.basicConfig(level=log_level, stream=sys.stderr, format="%(message)s")
        logging.getLogger("kernels.compilers").setLevel(logging.ERROR)  # the parent has said it
    keep_freed_pages()
    machine.needs_torch()
    import torch

    torch.set_num_threads(threads)


def execute(root: Path, store: Store, device: str, jobs: int, case: Case) -> Record:
    """Run one case. The one place that catches everything: a failure is a result like any other."""
    experiment = Project(root).load(case.experiment)
    device = str(case.params.get("device", device))  # asked for by the case, or where it happens
    known = machine.provenance(root, case.experiment, device)
    known["cpu"] = processor()
    meter = ContentionMeter.start()
    started = time.perf_counter()
    seed = case.params.get("seed")
    machine.seed_everything(seed if isinstance(seed, int) else 0)
    values: Values = {}
    error: str | None = None
    try:
        values = experiment.execute(case.params, Context(device, store))
        try:
            shapes.check(values)
        except (ValueError, RecursionError) as problem:  # it could not be read again
            raise MadlError(f"its values cannot be stored: {problem}") from problem
        if not values:
            raise MadlError("it gave no values")
    except (Exception, SystemExit) as problem:
        if isinstance(problem, OSError) and problem.errno in NO_ROOM:
            raise  # nothing can be stored, this failure neither
        for number in NO_ROOM:
            if f"(os error {number})" in str(problem):  # as safetensors says it
                raise OSError(number, os.strerror(number)) from problem
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
            **_kernels(root, case.experiment),
        ),
        error=error,
    )


def _kernels(root: Path, experiment: str) -> dict[str, Any]:
    """The path of each C++ kernel that the experiment reaches, of MXINT8's that of its product, and
    the program for want of which torch took its place: fields of `Run`.

    They round alike, to the last bit, and all but MXINT8's sum in another order.
    """
    routes: dict[str, Any] = {
        name: getattr(importlib.import_module(f"kernels.{KERNELS[name][1]}"), KERNELS[name][2])()
        for name in _reached_kernels(root, experiment)
    }
    return {
        "kernels": ", ".join(f"{name} {route.path}" for name, route in routes.items()),
        "lacked": next((route.lacks for route in routes.values() if route.lacks), ""),
    }


def _reached_kernels(root: Path, experiment: str) -> list[str]:
    reached = sources.reached(root, experiment)
    return [name for name, (source, _, _) in KERNELS.items() if root / source in reached]


def _warn_of_missing(plan: StoredPlan, names: Sequence[str]) -> None:
    """Say before the first case that kernels cannot be compiled: its workers then do not."""
    from kernels import compilers

    if os.environ.get("MADL_KERNELS") == "torch" or any(compilers.cpp()):
        return
    if any(_reached_kernels(plan.project.root, name) for name in set(names)):
        compilers.warn_missing()


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
    root: Path, store: Store, device: str, alone: bool, code: str, jobs: int, case: Case
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
    return execute(root, store, machine.resolve(device)[0], jobs, case)


@functools.cache
def _code_at_start() -> str:
    """Digest of the library as this process found it; a long-lived one keeps what it imported."""
    return sources.digest_of_all(Path(__file__).parents[2])
