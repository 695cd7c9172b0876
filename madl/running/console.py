"""Progress of a run on a terminal or in a log: finished cases, their number and the time left."""

import logging
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from madl.running.queues import Progress as Finished

log = logging.getLogger(__name__)


def show(events: Iterator[Finished]) -> Iterator[Finished]:
    """Log a line for each event and pass it on; a terminal has a bar with the time left below."""
    if not sys.stderr.isatty():
        for event in events:
            log.info(event.line)
            yield event
        return
    console = Console(stderr=True)
    root = logging.getLogger()
    before = root.handlers[:]
    handler = RichHandler(
        console=console, show_time=False, show_path=False, show_level=False, markup=False
    )
    root.handlers[:] = [handler]
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TextColumn("{task.fields[left]}")),
    )
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("starting", total=None, left="")
            for event in events:
                log.info(event.line)
                name, left = event.record.case.experiment, event.left
                bar.update(
                    task, description=name, completed=event.done, total=event.total, left=left
                )
                yield event
    finally:
        root.handlers[:] = before
