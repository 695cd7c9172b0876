"""Where cases are executed: in this process, or in several; both yield records as they finish."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from madl.errors import MadlError
from madl.logbook.experiment import Case
from madl.logbook.results import Record

Execute = Callable[[Case], Record]


def inline(cases: Sequence[Case], execute: Execute) -> Iterator[Record]:
    """One after the other, here."""
    return (execute(case) for case in cases)


def processes(
    cases: Sequence[Case], execute: Execute, *, jobs: int, start: Callable[[], None]
) -> Iterator[Record]:
    """On `jobs` fresh processes, each set up by `start`; `execute` and `start` must pickle.

    Raises:
        MadlError: a worker died (killed, or out of memory); what it had finished is stored.
    """
    pool = ProcessPoolExecutor(
        max_workers=jobs,
        mp_context=multiprocessing.get_context("spawn"),  # torch's threads do not survive a fork
        initializer=_start_worker,
        initargs=(start,),
    )
    try:
        for done in as_completed([pool.submit(execute, case) for case in cases]):
            yield done.result()
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work, and hold its memory, for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
