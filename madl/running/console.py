"""The progress bar of a run on a terminal: cases done, time left, and what is going on now."""

import logging
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from madl.running.queues import Progress as Finished


def progress_bar(events: Iterator[Finished], line: Callable[[Finished], str]) -> Iterator[Finished]:
    """Pass the events on; the log scrolls above the bar meanwhile."""
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
                root.info(line(event))
                bar.update(
                    task,
                    description=event.record.case.experiment,
                    completed=event.done,
                    total=event.total,
                    left=event.left,
                )
                yield event
    finally:
        root.handlers[:] = before
