"""Builds the site from the rendered pages by mkdocs, and knows if a built site is up to date."""

import functools
import importlib.util
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.files import LIBRARY
from madl.machine import device
from madl.running.project import Project
from madl.site import cache

log = logging.getLogger(__name__)

LAST_WORDS = 300  # characters of mkdocs' output
SHOWN = 3  # of its warnings
HOOKS = LIBRARY / "madl" / "site" / "hooks.py"
SUMMARY = "site.txt"  # the summary of the site that there is, in `.madl`


def build(project: Project) -> None:
    """Build the site by mkdocs; without a `mkdocs.yml`, do nothing.

    Raises:
        MadlError: mkdocs is not installed, or fails.
    """
    if not (project.root / "mkdocs.yml").is_file():
        return
    if importlib.util.find_spec("mkdocs") is None:
        raise MadlError(
            "this Python has no mkdocs, which builds the site; use the environment of "
            "`make logbook`, or `pip install -r requirements-report.txt`"
        )
    done = subprocess.run(  # not --quiet: that keeps mkdocs from counting what strict refuses
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=project.root,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "MADL_HOOKS": str(HOOKS)},
        check=False,
    )
    if done.returncode:
        raise MadlError(f"mkdocs could not build the site: {_why(done.stderr or done.stdout)}")
    for missing in re.findall(r"^INFO +- +(no SITE_URL: .*)$", done.stderr, re.MULTILINE):
        log_once(missing)
    for excess in re.findall(r"^INFO +- +(\S+\.md: .*; at most .*)$", done.stderr, re.MULTILINE):
        log.warning("%s, once it is published", excess)


@functools.cache
def log_once(line: str) -> None:
    """Log a line once in a process: a command may build the site twice."""
    log.info(line)


def _why(output: str) -> str:
    """mkdocs' first warnings and errors; if there are none, the last words of its output."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    warnings = re.findall(r"^(?:WARNING|ERROR) +- +(.+)$", "\n".join(lines), re.MULTILINE)
    more = f" (and {len(warnings) - SHOWN} more)" if len(warnings) > SHOWN else ""
    return "; ".join(warnings[:SHOWN]) + more or " ".join(lines)[-LAST_WORDS:] or "it says nothing"


def inputs_digest(project: Project, options: Mapping[str, Any]) -> str:
    """The digest of all that pages are made of: options, programs, code, templates, records."""
    values = [*sorted(options.items()), os.environ.get("SITE_URL"), *device.programs().items()]
    paths = [LIBRARY / name for name in ("cli.py", "kernels", "madl")]
    paths += [project.root / name for name in ("mkdocs.yml", "docs/data", "experiments")]
    paths += [project.templates, project.state / "records", project.state / "examined"]
    paths += [Path(options[name]) for name in ("model", "dataset") if options.get(name)]
    return _digest(*paths, values=values)


def pages_digest(project: Project) -> str:
    """The digest of `docs/`, of which the site is built."""
    return _digest(project.docs)


def _digest(*paths: Path, values: object = None) -> str:
    """A digest of values, and of the names, times and sizes of files, in folders at any depth."""
    files = [
        (str(file), stat.st_mtime_ns, stat.st_size)
        for path in paths
        for file in (path, *sorted(path.rglob("*.*")))
        if file.is_file() and file.suffix != ".pyc" and (stat := file.stat())
    ]
    return cache.digest(repr((values, files)))


def known_summary(project: Project, inputs: str) -> str | None:
    """The built site's summary; None if it was not made of these inputs and today's pages."""
    if not (project.root / "site" / "index.html").is_file():
        return None
    return cache.read(project.state / SUMMARY, inputs + pages_digest(project))


def keep_summary(project: Project, inputs: str, pages: str, summary: str) -> None:
    """Keep the summary that `known_summary` returns for these inputs and pages."""
    cache.write(project.state / SUMMARY, inputs + pages, summary)
