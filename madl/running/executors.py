"""Where cases are executed: in this process, in several, or on a cluster.

Each executor takes cases from a queue and yields the records as they finish, for the caller to
store; what the caller adds to the queue meanwhile is executed too.
"""

import contextlib
import gc
import logging
import multiprocessing
import signal
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from madl.errors import NO_ROOM, MadlError, first_line
from madl.logbook.records import Case, Record
from madl.machine import lifeline

log = logging.getLogger(__name__)

Execute = Callable[[Case], Record]
CONNECT_S = 15
POLL_S = 2.0  # how soon a worker that has just joined gets a case


def inline(cases: deque[Case], execute: Execute) -> Iterator[Record]:
    """Execute the cases in this process, one after the other."""
    while cases:
        yield execute(cases.popleft())


def processes(
    cases: deque[Case], execute: Execute, *, jobs: int, start: Callable[[], None]
) -> Iterator[Record]:
    """Execute the cases in `jobs` processes, each set up by `start`; both must pickle.

    Raises:
        MadlError: a worker died (killed, or out of memory); what it had finished is stored.
    """
    pool = ProcessPoolExecutor(
        max_workers=jobs,
        mp_context=multiprocessing.get_context("spawn"),  # torch's threads survive no fork
        initializer=_start_worker,
        initargs=(start,),
    )
    try:
        running: set[Future[Record]] = set()
        while cases or running:
            try:
                while cases and len(running) < 2 * jobs:  # the next ones are there already
                    running.add(pool.submit(execute, cases.popleft()))
            except BrokenProcessPool:
                if not running:  # some of what runs may be finished, and is told first
                    raise
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=lambda future: future.exception() is not None):
                yield future.result()  # what is there is kept before a failure is raised
    except BrokenProcessPool as error:
        raise MadlError(
            "a worker process died (killed, or out of memory); finished cases are kept, "
            "run the same command again, with fewer --jobs if memory was short"
        ) from error
    except BaseException:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()  # on Ctrl-C the case in hand is lost, and only that one
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(start: Callable[[], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    lifeline.end_with(parent.pid)  # it would wait for work, and hold its memory, for ever
    start()


def cluster(
    cases: deque[Case],
    execute: Callable[[int, Case], Record],
    *,
    scheduler: str,
    alone: bool,
    lost: Callable[[Case, str], Record],
) -> Iterator[Record]:
    """Execute the cases on workers of a Dask scheduler, given by address or scheduler file.

    A worker has one case at a time, so one that dies takes one case with it: the scheduler gives
    that case to another worker, and after some deaths (its `allowed-failures`) it becomes the
    record that `lost` makes. `execute` gets the number of cases side by side on a machine, and the
    case; it must pickle. `alone` runs one case at a time in the whole cluster.

    Raises:
        MadlError: Dask is not installed, no scheduler answers, or the workers cannot run this.
    """
    client = _connect(scheduler)
    running: dict[Any, Case] = {}
    try:
        while cases or running:
            machines = _workers_by_machine(client)
            while cases and len(running) < max(1 if alone else machines.total(), 1):
                case = cases.popleft()
                beside = 1 if alone else max(machines.values(), default=1)
                name = f"{case.experiment}-{case.key}-{uuid.uuid4().hex}"
                future = client.submit(_on_worker, execute, beside, case, key=name, pure=False)
                running[future] = case
            finished = _finished(running, has_workers=bool(machines))
            for future in sorted(finished, key=lambda future: future.status != "finished"):
                record = _record(future, running.pop(future), lost)
                future.release()  # a result still asked for would be made anew if its worker died
                yield record
    except (OSError, RuntimeError) as error:  # a connection that breaks, or a client that closed
        raise MadlError(
            f"the Dask scheduler at {scheduler!r} is no longer there; finished cases are kept, "
            "start it again and run the same command again"
        ) from error
    finally:
        if running:
            _abandon(client, running)
        with contextlib.suppress(OSError, RuntimeError):  # as of asyncio, while it connects again
            client.close()


def _connect(scheduler: str) -> Any:
    """A client of the scheduler. Raises: MadlError: no Dask here, or no scheduler there."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MadlError(
            "--scheduler needs Dask, which is not installed; run `pip install -e .[cluster]`"
        ) from error
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters of it is raised
    file = scheduler if Path(scheduler).is_file() else None
    try:
        return Client(None if file else scheduler, scheduler_file=file, timeout=CONNECT_S)
    except (OSError, ValueError, KeyError) as error:
        why = first_line(error)[:120]
    gc.collect()  # closes what there is of the client: while the next one starts it would block it
    raise MadlError(
        f"no Dask scheduler answers at {scheduler!r} ({why}); "
        "start one with `dask scheduler`, and give the address that it prints"
    )


def _workers_by_machine(client: Any) -> Counter[str]:
    """How many workers each machine has now: they come and go."""
    workers: Mapping[str, Mapping[str, str]] = client.scheduler_info(n_workers=-1)["workers"]
    return Counter(worker["host"] for worker in workers.values())


def _finished(running: Mapping[Any, Case], *, has_workers: bool) -> Sequence[Any]:
    """The futures that end within `POLL_S`. Raises: OSError: the scheduler is gone."""
    from distributed import CancelledError, wait

    try:
        waited: Any = wait(list(running), timeout=POLL_S, return_when="FIRST_COMPLETED")
        return list(waited.done)
    except CancelledError as error:  # what became of all cases when the scheduler has gone
        raise OSError("the scheduler has forgotten its cases") from error
    except TimeoutError:
        if not has_workers:
            log.info("the scheduler has no workers yet; waiting for one")
        return []


def _record(future: Any, case: Case, lost: Callable[[Case, str], Record]) -> Record:
    """The record of a future that has ended; if its workers died, the one that `lost` makes."""
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":  # cancelled, or lost with the scheduler
        raise OSError(f"the case is {future.status}")
    problem = future.exception()
    if isinstance(problem, KilledWorker):
        return lost(case, "every worker that ran it died (killed, or out of memory)")
    if isinstance(problem, MadlError):
        raise problem
    if isinstance(problem, OSError) and problem.errno in NO_ROOM:
        raise MadlError("the disk of a worker is full; free some space, and run it again") from None
    raise MadlError(
        f"the workers cannot run this project ({type(problem).__name__}: {problem}); start them "
        "with its Python, as docs/usage.md shows"
    ) from problem


def _abandon(client: Any, running: Mapping[Any, Case]) -> None:
    """Stop the running cases. Dask cannot interrupt one, but a nanny can restart its worker."""
    try:
        keys = {future.key for future in running}
        busy = [worker for worker, has in client.processing().items() if keys & {*has}]
        client.cancel(list(running), force=True)
        nannies = client.scheduler_info(n_workers=-1)["workers"]
        busy = [worker for worker in busy if nannies.get(worker, {}).get("nanny")]
        if busy:
            client.restart_workers(busy, timeout=CONNECT_S, raise_for_error=False)
    except (OSError, RuntimeError) as error:  # it is gone already
        log.debug("could not stop the workers: %s", error)


def _on_worker(execute: Callable[[int, Case], Record], beside: int, case: Case) -> Record:
    """Execute a case on a Dask worker. Raises: MadlError: the worker has several threads."""
    from distributed import get_worker

    worker = get_worker()
    threads = worker.state.nthreads
    if threads != 1:
        raise MadlError(
            f"a worker has {threads} threads, and cases in one process share their seed; "
            "start workers with --nthreads 1, and more of them with --nworkers"
        )
    with lifeline.guarded(Path(worker.local_directory) / "madl"):
        return execute(beside, case)
