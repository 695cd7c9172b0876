"""Pages while the cases run: an experiment's page can be read as soon as its last case is done.

A process of its own renders, so nothing of it stays in the one that measures and a fault of a page
ends no run. It renders between cases, never before one that measures time, nor so often that the
cases have to wait for it noticeably; what is left out is made at the end of the run.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from madl.running.project import Project
from madl.running.queues import Progress

log = logging.getLogger(__name__)

FREE_S = 30.0  # what rendering may take of any run …
SHARE = 0.05  # … and of its time so far, on top


class Pages:
    """Sees every finished case; `command` renders the whole logbook, as `cli.py report` does."""

    def __init__(
        self,
        project: Project,
        command: Sequence[str],
        *,
        is_wanted: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.project, self.command, self.is_wanted = project, command, is_wanted
        self.clock = clock
        self.started_s, self.spent_s = clock(), 0.0
        self.unread: list[str] = []  # experiments that are done and not rendered yet
        self.said_how = False

    def see(self, progress: Progress) -> None:
        """Render, if there is something new to read and now is the time."""
        if progress.is_last:
            self.unread.append(progress.record.case.experiment)
        allowed_s = FREE_S + SHARE * (self.clock() - self.started_s)
        if (
            self.unread
            and self.is_wanted
            and not progress.before_timed
            and self.spent_s < allowed_s
        ):
            began_s = self.clock()
            self._render()
            self.spent_s += self.clock() - began_s
            self.unread = []

    def _render(self) -> None:
        done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if (
            done.returncode and "questions: " not in done.stdout
        ):  # else pages are there all the same
            said = done.stderr.strip().splitlines() or ["no reason given"]
            log.warning("pages not made yet: %s", said[-1].removeprefix("Error: "))
            return
        for line in self._made():
            log.info("%s", line)
        if not self.said_how:
            log.info("to read pages while the rest runs, in another terminal: %s serve", _mkdocs())
            self.said_how = True

    def _made(self) -> list[str]:
        """Status and path of the pages that are new, a line each."""
        rows = json.loads((self.project.docs / "ledger.json").read_text("utf-8"))["questions"]
        by_stem = {row["stem"]: row for row in rows}
        lines: list[str] = []
        for name in self.unread:
            row = by_stem.get(name)
            if row and row["page"] is None:
                continue  # its template is at fault, which is said at the end
            page = row["page"] if row else f"{name}.md"
            what = f"{row['status']}: {row['id']}" if row else "rendered:"
            lines.append(f"{what} docs/{page}")
        return lines


def _mkdocs() -> str:
    """How this environment's mkdocs is called from here."""
    beside = Path(sys.executable).with_name("mkdocs")
    if not beside.exists():
        return "mkdocs"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
