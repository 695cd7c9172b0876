"""The site of the rendered pages, built by mkdocs as soon as one of them has changed."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from madl.errors import MadlError
from madl.running.project import Project

LAST_WORDS = 300  # characters of what mkdocs says


def build(project: Project) -> Path | None:
    """The first page of the site; None where the logbook has no `mkdocs.yml`.

    Raises:
        MadlError: mkdocs is not installed, or fails.
    """
    if not (project.root / "mkdocs.yml").is_file():
        return None
    first, built = project.root / "site" / "index.html", project.state / "built"
    if first.is_file() and built.is_file() and built.stat().st_mtime_ns > max(_changed(project)):
        return first
    if importlib.util.find_spec("mkdocs") is None:
        raise MadlError(
            "this Python has no mkdocs, which builds the site; use the environment of "
            "`make logbook`, or `pip install -r requirements-report.txt`"
        )
    project.state.mkdir(exist_ok=True)
    began = built.with_suffix(".began")  # what is written meanwhile is not in this site
    began.touch()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"],
        cwd=project.root,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(project.root)},
        check=False,
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-LAST_WORDS:]
        raise MadlError(f"mkdocs could not build the site: {said or 'it says nothing'}")
    os.replace(began, built)
    return first


def _changed(project: Project) -> Iterator[int]:
    """When each file and folder that the site is made of was last changed, in nanoseconds."""
    yield (project.root / "mkdocs.yml").stat().st_mtime_ns
    for folder in (project.docs, project.root / "madl" / "site"):
        yield from (path.stat().st_mtime_ns for path in (folder, *folder.rglob("*.*")))
