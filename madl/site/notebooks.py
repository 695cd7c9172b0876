"""Notebooks of the labs: from `templates/notebooks/*.py` to executed notebooks below `docs/`.

A source is Python in percent format: `# %%` begins a cell, `# %% [markdown]` one of prose. It reads
the CSV of the pages' figures and nothing else. When pages are made it is executed, and its notebook
keeps what it prints and each figure that it shows. A notebook that a reader has changed stays as it
is. The code that all share is written once, in `_read.py`; a notebook has it in full, to be run
anywhere.

Not handled: any other output; no kernel is started.
"""

import contextlib
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
from madl.site.cache import digest, drawing_code_digest, memoized
from madl.site.plotting import palette

FOLDER = "notebooks"  # below templates/ and below docs/
Notebook = dict[str, Any]
_HEX = ("#0072b2", "#d55e00", "#00795a", "#aa4a8d", "#946a00", "#6155c9", "#6b3410", "#5d6b85")
COLORS = {  # in figures: replaced by the page's variables, with Jupyter's colours to fall back on
    "#000000": "currentColor",
    **{
        color: f"var(--c-{name}, {color})"
        for name, color in zip(palette.MARKERS, _HEX, strict=True)
    },
}
HOUSE: Any = {"svg.fonttype": "none", "figure.constrained_layout.use": True, "font.size": 13}
ABOUT = """#
# The data are those of the page's figure. [Download this notebook]({}.ipynb) into the folder
# `notebooks` of the site or of `docs`, or set `LOGBOOK` to the address of a published logbook; it
# needs Python and matplotlib. What is chosen here by looking at test values is no finding.
"""  # at the end of each one's first cell
SHARED = re.compile(r"from templates\.notebooks\.(_read) import .*")
_READS = re.compile(r'\bread\("([^"]+)"\)')


def names(project: Project) -> list[str]:
    """The names of the notebooks' sources, but for files that begin with an underscore."""
    return sorted(path.stem for path in (project.templates / FOLDER).glob("[!_]*.py"))


def title(project: Project, name: str) -> str:
    """A notebook's first heading; its name if it has none."""
    text = read_text(project.templates / FOLDER / f"{name}.py", RESTORE)
    heading = re.search(r"^# # (.+)$", text, re.MULTILINE)
    return heading[1] if heading else name


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
    """Write one notebook, unless a reader has changed it; without its data, or if it fails, it is
    written unexecuted.

    Raises:
        MadlError: it fails.
    """
    path = project.docs / FOLDER / f"{name}.ipynb"
    if _is_changed_by_hand(path):
        return
    source = project.templates / FOLDER / f"{name}.py"
    text = _source(source)
    data = [project.docs / read for read in _READS.findall(text)]
    if not all(file.is_file() for file in data):
        write_atomically(path, _unexecuted(text, "the figure's data are not there yet"))
        return
    code = drawing_code_digest(__file__, str(svg.__file__), str(palette.__file__))
    key = digest(code, text, *(file.read_bytes().hex() for file in data))
    try:
        written = memoized(cache, name, key, lambda: _run(project, source))
    except MadlError:
        write_atomically(path, _unexecuted(text, "it failed"))
        raise
    write_if_changed(path, written)


def _source(path: Path) -> str:
    """A source's text, with `ABOUT` in its first cell, and `_read.py` in place of its import."""
    first, begin, rest = read_text(path, RESTORE).partition("\n# %%\n")
    text = f"{first}{ABOUT.format(path.stem)}{begin}{rest}" if begin else first
    if (line := SHARED.search(text)) is None:
        return text
    _, _, shared = read_text(path.with_name(f"{line[1]}.py"), RESTORE).partition("\n\n")
    return text.replace(line[0], shared)


def _run(project: Project, source: Path) -> str:
    """Execute a source in the folder in which the notebook will lie; returns the notebook as JSON.

    Raises:
        MadlError: it fails.
    """
    folder, source = project.docs / FOLDER, source.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(folder):
            return execute(source)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise MadlError(f"templates/{FOLDER}/{source.name} cannot be executed: {why}") from error


def _unexecuted(text: str, why: str) -> str:
    """The notebook as JSON without outputs, saying why; it is there as pages link to it."""
    from nbformat.v4 import new_markdown_cell

    notebook = _notebook(text)
    notebook["cells"].insert(1, new_markdown_cell(f"Not run: {why}.", id="cell-0"))
    return _dumps(notebook)


def _is_changed_by_hand(path: Path) -> bool:
    """Whether a reader has changed the cells of a notebook, or put one of their own there."""
    try:
        notebook: Any = json.loads(path.read_text("utf-8"))
        return notebook["metadata"].get("logbook") != _sources_digest(notebook)
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # no notebook


def _sources_digest(notebook: Notebook) -> str:
    """A digest of the sources of a notebook's cells, without their outputs."""
    return digest(*("".join(cell["source"]) for cell in notebook["cells"]))[:12]


def _notebook(text: str) -> Notebook:
    """The notebook of a source's text, not executed; equal bytes on every machine."""
    import jupytext

    notebook = jupytext.reads(text, "py:percent")
    for index, cell in enumerate(notebook["cells"], 1):
        cell["id"] = f"cell-{index}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return notebook


def _dumps(notebook: Notebook) -> str:
    """The notebook as JSON, with the digest by which a reader's changes are seen."""
    import nbformat

    notebook["metadata"]["logbook"] = _sources_digest(notebook)
    return nbformat.writes(notebook, version=4) + "\n"  # pyright: ignore


# ---- executing ----------------------------------------------------------------------------------


def execute(source: Path) -> str:
    """Execute a source; returns its notebook as JSON, with what its cells print and show."""
    import matplotlib
    import matplotlib.pyplot as plt
    from nbformat.v4 import new_output

    matplotlib.use("agg")
    plt.close("all")  # what another one left, which would be shown here
    notebook = _notebook(_source(source))
    variables: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), 1):
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
            exec(compile(cell["source"], source.name, "exec"), variables)
        cell["execution_count"] = count
        if printed.getvalue():
            cell["outputs"].append(new_output("stream", text=printed.getvalue()))
        cell["outputs"] += [new_output("display_data", {"image/svg+xml": drawn}) for drawn in shown]
    return _dumps(notebook)


def _svg(figure: Any) -> str:
    """A figure as a small SVG, coloured like the text around it, labelled for screen readers."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = svg.minified(file.getvalue())
    titles = [axes.get_title() for axes in figure.axes]
    label = re.sub(r'[<>&"]', "", "; ".join(title for title in titles if title) or "a figure")
    head = f'<svg role="img" aria-label="{label}" fill="currentColor" font-family="sans-serif" '
    for color, variable in COLORS.items():
        drawn = drawn.replace(color, variable)
    return drawn.replace("<svg ", head, 1)
