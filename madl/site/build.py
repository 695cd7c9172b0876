"""The site of the rendered pages, built by mkdocs; neither is made while no file has changed."""

import functools
import hashlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.files import write_atomically
from madl.machine import device
from madl.running.project import Project

log = logging.getLogger(__name__)

LAST_WORDS = 300  # characters of what mkdocs says
SHOWN = 3  # of its warnings
OURS = Path(__file__).resolve().parents[2]  # which need not be the project's root
HOOKS = OURS / "madl" / "site" / "hooks.py"


def build(project: Project) -> None:
    """Make the site; nothing, where there is no `mkdocs.yml`.

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
        _say_once(missing)
    for told in re.findall(r"^INFO +- +(\S+\.md: .*; at most .*)$", done.stderr, re.MULTILINE):
        log.warning("%s, once it is published", told)


@functools.cache
def _say_once(line: str) -> None:
    """One command may build the site before and after it runs."""
    log.info(line)


def _why(said: str) -> str:
    """What mkdocs warns of, in the words of whoever warned; else its last words."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    found = re.findall(r"^(?:WARNING|ERROR) +- +(.+)$", "\n".join(lines), re.MULTILINE)
    more = f" (and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more or " ".join(lines)[-LAST_WORDS:] or "it says nothing"


def state(project: Project, asked: Mapping[str, Any]) -> dict[str, str]:
    """Digests of what is asked for and of what pages are made, and of what the site consists."""
    folders = [OURS / name for name in ("kernels", "madl")]
    folders += [project.root / name for name in ("docs/data", "experiments", "templates")]
    folders += [project.state / "records"]
    folders += [Path(asked[name]) for name in ("model", "dataset") if asked.get(name)]
    told = [*sorted(asked.items()), os.environ.get("SITE_URL"), *device.programs().items()]
    read = [OURS / "cli.py", project.root / "mkdocs.yml", *folders]
    return {"read": _digest(told, read), "docs": pages_state(project)}


def pages_state(project: Project) -> str:
    """A digest of what the site consists of."""
    return _digest([], [project.docs])


def _digest(told: Sequence[object], paths: Sequence[Path]) -> str:
    """Of these, and of names, times and sizes of files, those in folders too."""
    every = [file for path in paths for file in (path, *sorted(path.rglob("*.*")))]
    files = [
        (str(path), stat.st_mtime_ns, stat.st_size)
        for path in every
        if path.is_file() and path.suffix != ".pyc" and (stat := path.stat())
    ]
    return hashlib.sha256(repr((told, files)).encode()).hexdigest()


def kept(project: Project, state: Mapping[str, str]) -> str | None:
    """The summary of the site that there is, if it was made of this state."""
    try:
        found = json.loads((project.state / "made.json").read_text("utf-8"))
        is_there = (project.root / "site" / "index.html").is_file()
        return found["summary"] if is_there and found["state"] == state else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def keep(project: Project, state: Mapping[str, str], summary: str) -> None:
    what = {"state": state, "summary": summary}
    write_atomically(project.state / "made.json", json.dumps(what))
