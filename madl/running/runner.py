"""Runs: a plan's cases that have no result are executed in the order of their needs, and stored."""

import contextlib
import functools
import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from madl.errors import NO_MEMORY, NO_ROOM, MadlError, kind_and_line
from madl.files import LIBRARY
from madl.logbook import shapes
from madl.logbook.experiment import Context
from madl.logbook.records import Case, Record, Run, Store, Values, published_by_machine, register
from madl.machine import device as machine
from madl.machine import lifeline, sources
from madl.machine.contention import ContentionMeter
from madl.machine.memory import keep_freed_pages
from madl.running import executors
from madl.running.evidence import Evidence, tolerant
from madl.running.plans import Options, RunPlan
from madl.running.processor import processor
from madl.running.project import Project
from madl.running.queues import ExecutionMode, Progress, Queues, unexecuted_record
from madl.running.status import check_records, explain_idle

log = logging.getLogger(__name__)

KERNELS = {  # name → the source that its users reach, its module, and the function for its path
    "round_to_grid": ("kernels/round_to_grid.py", "round_to_grid", "route"),
    "linear_bf16": ("kernels/linear_bf16.py", "linear_bf16", "route"),
    "linear_mxint8": ("madl/compression/pack.py", "mxint8", "linear_route"),
}


def run(plan: RunPlan, store: Store, names: Sequence[str], options: Options) -> Generator[Progress]:
    """Execute what is left of these experiments; every record is stored before it is yielded.

    Raises:
        MadlError: before anything is executed, if another run works on this store, or if stored
            records cannot be read; with `force`, they are made anew. Or the code of a case has
            changed since this was called.
    """
    names = plan.with_needs(names)
    if not options.force:
        check_records(Evidence(plan=plan, source=store.get), names)
    with _only_run(store.root), lifeline.guarded(store.root / "tmp"):
        store.sweep()
        store = store.from_now_on() if options.force else store
        queues = Queues(plan, store, options, names)
        queues.fill()
        if queues.next_mode():
            log.info(queues.outlook())
            _warn_of_missing(plan.project.root, {c.experiment for _, c in queues.left.values()})
        while mode := queues.next_mode():
            for name in names:
                plan.project.code(name)  # known from now on
            for record in _execute_queue(queues, mode):
                yield queues.finish(record)
            queues.fill()
        for name in queues.waiting:
            log.warning("%s waits: what it needs is not complete", name)
        idle = [name for name in names if not queues.done[name]]
        for line in explain_idle(queues.evidence, idle):
            log.info("%s", line)


def _only_run(state: Path) -> AbstractContextManager[object]:
    """The lock that allows one run in a folder; it ends with the process that holds it.

    Not handled: file systems without file locks, where two runs would do the same cases.

    Raises:
        MadlError: another run holds it.
    """
    state.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(state / "run.lock").acquire(timeout=0)
    except Timeout as error:
        raise MadlError(f"a run is at work on {state} already; wait for it, or stop it") from error


def _execute_queue(queues: Queues, mode: ExecutionMode) -> Iterator[Record]:
    """Execute a queue until it is empty, and yield the records, stored; cases may join meanwhile.

    Raises:
        MadlError: the code of a case has changed since the run began.
    """
    project = queues.plan.project
    with contextlib.closing(_executed(queues, mode)) as records:
        for record in records:
            name = record.case.experiment
            if record.status == "ok" and record.run.code != project.code(name):
                raise MadlError(
                    f"the code of {name} has changed since this run began, and part of it was "
                    "loaded before; finished cases are kept, run the same command again"
                )
            try:
                earlier = earlier_records(project, queues.store, record.case)
                record = register(record, earlier)
            finally:  # whatever is wrong with what is known already
                record = _stored(queues.store, record)
            yield record


def earlier_records(project: Project, store: Store, case: Case) -> list[Record]:
    """The records of a case that exist already, in this store and in published evidence."""
    machines, _ = published_by_machine(project.docs / "data")
    published = (records.get(case.key) for records in machines.values())
    return list(filter(None, (tolerant(store.get)(case), *published)))


def _stored(store: Store, record: Record) -> Record:
    """Store a record, and return it; but if the case failed after an earlier result, keep that.

    The record that is returned then says so in its error.
    """
    known = tolerant(store.get)(record.case)  # one that cannot be read is replaced
    if record.status != "ok" and known is not None and known.status == "ok":
        return replace(record, error=f"{record.error}; the earlier result is kept")
    store.put(record)
    return record


def _executed(queues: Queues, mode: ExecutionMode) -> Generator[Record]:
    """The records of a queue's cases, executed here, in processes, or on a cluster."""
    root, store, options = queues.plan.project.root, queues.store, queues.options
    cases, device, jobs = queues.cases[mode], options.device, mode.jobs
    if options.scheduler is not None:
        where = root, store, device, mode.is_timed, _code_at_start(root)
        yield from executors.cluster(
            cases,
            functools.partial(execute_on_worker, *where),
            scheduler=options.scheduler,
            alone=mode.is_timed,
            lost=lambda case, why: unexecuted_record(root, case, "failed", why),
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
    machine.needs_torch()
    start = functools.partial(start_process, threads, log_level=level)
    yield from executors.processes(cases, job, jobs=jobs, start=start)


def start_process(threads: int, log_level: int | None = None) -> None:
    """Prepare a process that executes cases; with `log_level`, a fresh one, whose log is set up."""
    if log_level is not None:
        logging.basicConfig(level=log_level, stream=sys.stderr, format="%(message)s")
        logging.getLogger("kernels.compilers").setLevel(logging.ERROR)  # the parent has said it
    keep_freed_pages()
    machine.needs_torch()
    import torch

    torch.set_num_threads(threads)


@functools.lru_cache(maxsize=1)
def _project(root: Path, state: str) -> Project:
    """The project, whose pages this process loads once for as long as no source file changes."""
    return Project(root)


def execute(root: Path, store: Store, device: str, jobs: int, case: Case) -> Record:
    """Run one case. All its errors are caught here: a failure is a record like any other.

    Raises:
        OSError: the disk is full, so that no record could be stored.
    """
    experiment = _project(root, sources.state(root)).load(case.experiment)
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
        known |= _kernels(root, case.experiment)
        values = experiment.execute(case.params, Context(device, store, known["code"], root))
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
        values, error = {}, _error_line(problem)
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
        ),
        error=error,
    )


def _kernels(root: Path, experiment: str) -> dict[str, Any]:
    """Fields of `Run`: which path each C++ kernel that the experiment reaches took, of MXINT8 its
    product's, and the missing program for which torch took its place.

    Paths round alike, to the last bit, and all but MXINT8's sum in another order.
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
    """The names in `KERNELS` whose source the experiment's study reaches."""
    reached = sources.reached(root, experiment)
    homes = (root, LIBRARY)
    return [n for n, (source, _, _) in KERNELS.items() if any(h / source in reached for h in homes)]


def _warn_of_missing(root: Path, names: Iterable[str]) -> None:
    """Warn once, before the first case, if kernels cannot be compiled: workers then do not."""
    from kernels import compilers

    if os.environ.get("MADL_KERNELS") == "torch" or any(compilers.cpp()):
        return
    if any(_reached_kernels(root, name) for name in names):
        compilers.warn_missing()


def _error_line(problem: BaseException) -> str:
    """Why a case failed, and what to do where that is known."""
    text = " ".join(str(problem).split())
    if isinstance(problem, MadlError):
        return text
    if isinstance(problem, MemoryError) or "can't allocate memory" in text:
        return NO_MEMORY
    return kind_and_line(problem)


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
    if _code_at_start(root) != code:
        raise MadlError(
            f"the worker on {machine.host_label()} runs other code than this project's; "
            "start the workers again, in the project's folder"
        )
    why = _project(root, sources.state(root)).why_unavailable(case)
    if why is not None:
        return unexecuted_record(root, case, "skipped", why)
    threads = machine.num_cores() if alone else int(os.environ.get("OMP_NUM_THREADS") or 1)
    start_process(threads)
    return execute(root, store, machine.resolve(device)[0], jobs, case)


@functools.cache
def _code_at_start(root: Path) -> str:
    """Digest of the library and the studies as this process found them; a long-lived one keeps what
    it imported.
    """
    return sources.digest_of_all(LIBRARY) + sources.digest_of_all(root, ["experiments"])
