"""Notebooks of the labs: from `templates/notebooks/*.py` to executed notebooks below `docs/`.

A source is Python in percent format: `# %%` begins a cell, `# %% [markdown]` one of prose. It reads
the data of the pages' figures and nothing else, is executed when they are made, and keeps what it
prints and each figure that it shows. One that a reader has changed stays as it is. What all of them
begin with is written once, in `_read.py`; a notebook has it in full, to be run anywhere.

Not handled: any other output; no kernel is started.
"""

import contextlib
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

from madl.errors import MadlError
from madl.files import read_text, write_atomically, write_if_changed
from madl.running.project import RESTORE, Project
from madl.site import svg
from madl.site.keeping import digest_of_drawing, kept

FOLDER = "notebooks"  # below templates/ and below docs/
Notebook = dict[str, Any]
COLORS = {  # of figures: the page's own, and in Jupyter what the cell says
    "#000000": "currentColor",
    "#0072b2": "var(--c-blue, #0072b2)",
    "#d55e00": "var(--c-orange, #d55e00)",
    "#00795a": "var(--c-green, #00795a)",
    "#aa4a8d": "var(--c-purple, #aa4a8d)",
    "#946a00": "var(--c-gold, #946a00)",
    "#6155c9": "var(--c-indigo, #6155c9)",
    "#6b3410": "var(--c-brown, #6b3410)",
    "#5d6b85": "var(--c-slate, #5d6b85)",
}
HOUSE: Any = {"svg.fonttype": "none", "figure.constrained_layout.use": True, "font.size": 13}
SHARED = re.compile(r"from templates\.notebooks\.(_read) import .*")
_READS = re.compile(r'\bread\("([^"]+)"\)')


def names(project: Project) -> list[str]:
    """The notebooks there are."""
    return sorted(path.stem for path in (project.templates / FOLDER).glob("[!_]*.py"))


def title(project: Project, name: str) -> str:
    """What a notebook is about: its first heading."""
    text = read_text(project.templates / FOLDER / f"{name}.py", RESTORE)
    found = re.search(r"^# # (.+)$", text, re.MULTILINE)
    return found[1] if found else name


def write(project: Project, cache: Path) -> list[str]:
    """Make every notebook anew whose source or data have changed; returns what went wrong."""
    problems: list[str] = []
    for name in names(project):
        try:
            _write(project, name, cache)
        except MadlError as error:
            problems.append(str(error))
    return problems


def _write(project: Project, name: str, cache: Path) -> None:
    path = project.docs / FOLDER / f"{name}.ipynb"
    if _is_changed_by_hand(path):
        return
    source = project.templates / FOLDER / f"{name}.py"
    text = _source(source)
    data = [project.docs / read for read in _READS.findall(text)]
    if not all(one.is_file() for one in data):
        write_atomically(path, _not_run(text, "the figure's data are not there yet"))
        return
    code = digest_of_drawing(__file__, str(svg.__file__))
    known = [code.encode(), text.encode(), *(one.read_bytes() for one in data)]
    key = hashlib.sha256(bytes(1).join(known)).hexdigest()
    try:
        written = kept(cache, f"{name}-{key[:24]}.txt", lambda: _run(project, source))
    except MadlError:
        write_atomically(path, _not_run(text, "it failed"))
        raise
    write_if_changed(path, written)


def _source(path: Path) -> str:
    """A source's text, with what it shares with the others in the place of the import."""
    text = read_text(path, RESTORE)
    if (found := SHARED.search(text)) is None:
        return text
    _, _, shared = read_text(path.with_name(f"{found[1]}.py"), RESTORE).partition("\n\n")
    return text.replace(found[0], shared)


def _run(project: Project, source: Path) -> str:
    """Execute in the folder in which the notebook will lie."""
    folder, source = project.docs / FOLDER, source.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(folder):
            return executed(source)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise MadlError(f"templates/{FOLDER}/{source.name} cannot be executed: {said}") from error


def _not_run(text: str, why: str) -> str:
    """The notebook without outputs: pages link to it."""
    from nbformat.v4 import new_markdown_cell

    made = _notebook(text)
    made["cells"].insert(1, new_markdown_cell(f"Not run: {why}.", id="cell-0"))
    return _written(made)


def _is_changed_by_hand(path: Path) -> bool:
    """Whether a reader has changed the cells of a notebook, or put one of their own there."""
    try:
        there: Any = json.loads(path.read_text("utf-8"))
        return there["metadata"].get("logbook") != _digest(there)
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # no notebook


def _digest(made: Notebook) -> str:
    """Of all that is written in a notebook; what its cells gave is not."""
    sources = ["".join(cell["source"]) for cell in made["cells"]]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:12]


def _notebook(text: str) -> Notebook:
    """Of a source: the same bytes for the same text, whatever made it."""
    import jupytext

    made = jupytext.reads(text, "py:percent")
    for index, cell in enumerate(made["cells"], 1):
        cell["id"] = f"cell-{index}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return made


def _written(made: Notebook) -> str:
    import nbformat

    made["metadata"]["logbook"] = _digest(made)
    return nbformat.writes(made, version=4) + "\n"  # pyright: ignore


# ---- executing ----------------------------------------------------------------------------------


def executed(source: Path) -> str:
    """The notebook with what its cells print and show."""
    import matplotlib
    import matplotlib.pyplot as plt
    from nbformat.v4 import new_output

    matplotlib.use("agg")
    plt.close("all")  # what another one left, which would be shown here
    made = _notebook(_source(source))
    seen: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((c for c in made["cells"] if c["cell_type"] == "code"), 1):
        printed, shown = io.StringIO(), list[str]()

        def show(*_: Any, shown: list[str] = shown, cell: int = count, **__: Any) -> None:
            for number in plt.get_fignums():
                salt = f"{source.stem}-{cell}-{len(shown)}"  # ids are of one figure alone
                with plt.rc_context({"svg.hashsalt": salt}):
                    shown.append(_svg(plt.figure(number)))
            plt.close("all")

        with (
            plt.rc_context(HOUSE),
            mock.patch.object(plt, "show", show),
            contextlib.redirect_stdout(printed),
        ):
            exec(compile(cell["source"], source.name, "exec"), seen)
        cell["execution_count"] = count
        if printed.getvalue():
            cell["outputs"].append(new_output("stream", text=printed.getvalue()))
        cell["outputs"] += [new_output("display_data", {"image/svg+xml": drawn}) for drawn in shown]
    return _written(made)


def _svg(figure: Any) -> str:
    """One figure, small, drawn in the colour of the text around it, and named for the blind."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = svg.bared(file.getvalue())
    titles = [axes.get_title() for axes in figure.axes]
    label = re.sub(r'[<>&"]', "", "; ".join(title for title in titles if title) or "a figure")
    head = f'<svg role="img" aria-label="{label}" fill="currentColor" font-family="sans-serif" '
    for color, variable in COLORS.items():
        drawn = drawn.replace(color, variable)
    return drawn.replace("<svg ", head, 1)
