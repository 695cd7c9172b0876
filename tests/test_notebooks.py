"""Notebooks: executed on committed evidence, needing little; a reader's own stay as they are."""

import json
import shutil
import subprocess
import sys

import pytest

from madl.running.project import Project
from madl.site import notebooks
from madl.site.page import PageCalls
from tests.conftest import ROOT
from tests.synthetic import evidence

SOURCES = sorted((ROOT / "templates" / "notebooks").glob("[!_]*.py"))
NAMES = [path.stem for path in SOURCES]
CHANGED = {  # the one parameter of each: as it is, and as a student might set it
    "lab0": ("MARGIN = 1.0", "MARGIN = 3.0"),
    "lab1": ("GIVE_AWAY = 2.0", "GIVE_AWAY = 0.1"),
    "lab2": ("BUDGET = 10", "BUDGET = 3"),
    "lab3": ("BITS = 5", "BITS = 8"),
    "lab4": ("CALLS = 2000", "CALLS = 100_000"),
}
AGG = """
import json, sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
def show():
    print([[bar.get_width() for bar in axes.patches] for axes in plt.gcf().axes])
    print([line.get_xydata().tolist() for axes in plt.gcf().axes for line in axes.lines])
plt.show = show  # what is drawn is compared, too
for code in json.load(sys.stdin):
    exec(code, {"__name__": "__main__"})
    plt.close("all")
    print("the end")
"""


@pytest.fixture(scope="module")
def logbook(tmp_path_factory) -> Project:
    """The data of all figures as committed evidence has them, and the notebooks made of them."""
    root = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(ROOT / "templates" / "notebooks", root / "templates" / "notebooks")
    for page in evidence():
        for name, text in PageCalls(Project(), page).csv_files().items():
            path = root / "docs" / f"{page.folder}figures" / page.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    made = Project(root)
    assert notebooks.write(made, root / "cache") == []
    return made


def read(project: Project, name: str):
    text = (project.docs / "notebooks" / f"{name}.ipynb").read_text()
    assert "Not run: the figure's data are not there yet" not in text
    return json.loads(text)


def test_a_downloaded_one_runs_as_plain_python_with_its_parameter_changed(logbook):
    codes: list[str] = []
    for name in NAMES:
        cells, (old, new) = read(logbook, name)["cells"], CHANGED[name]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        figures = ["".join(o["data"]["image/svg+xml"]) for o in outputs if "data" in o]
        assert len(figures) == 2
        assert all('role="img" aria-label="' in svg and "<script" not in svg for svg in figures)
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        assert code.count(old) == 1
        codes += [code, code.replace(old, new)]
    done = subprocess.run(
        [sys.executable, "-I", "-c", AGG],
        input=json.dumps(codes),
        cwd=logbook.docs / "notebooks",
        capture_output=True,
        text=True,
        check=True,
    )
    *shown, _ = done.stdout.split("the end\n")
    for name, as_it_is, changed in zip(NAMES, shown[::2], shown[1::2], strict=True):
        assert as_it_is, name
        assert as_it_is != changed, name


def test_one_that_a_reader_has_changed_stays(logbook):
    path = logbook.docs / "notebooks" / "lab1.ipynb"
    before = path.read_text()
    path.write_text(before.replace("GIVE_AWAY = 2.0", "GIVE_AWAY = 4.0"))
    assert notebooks.write(logbook, logbook.root / "cache") == []
    assert "GIVE_AWAY = 4.0" in path.read_text()
    path.unlink()
    assert notebooks.write(logbook, logbook.root / "cache") == []
    assert path.read_text() == before
