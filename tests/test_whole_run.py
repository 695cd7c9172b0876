"""The product end to end: every experiment in the smoke profile on a tiny real model, to a site."""

import html
import json
import re
import sys
import zipfile
from pathlib import Path

from experiments.lab4_hardware import tools
from kernels import compilers
from madl.machine.device import no_device
from tests.conftest import product, python
from tests.links import broken


def site_sources(root: Path) -> dict[str, bytes]:
    docs = root / "docs"
    return {str(p.relative_to(docs)): opened(p) for p in docs.rglob("*") if p.is_file()}


def opened(path: Path) -> bytes:
    if path.suffix != ".zip":
        return path.read_bytes()
    with zipfile.ZipFile(path) as file:
        return b"".join(map(file.read, file.namelist()))


def test_every_case_of_every_experiment_runs_and_nothing_is_left_undone(logbook):
    assert logbook.first.returncode == 0, logbook.first.stderr
    assert " 0 failed" in logbook.first.stderr
    listed = json.loads((logbook.root / "docs" / "ledger.json").read_text())["questions"]
    started = [q for q in listed if q["page"]]
    assert started
    # smoke answers nothing; without a compiler 4.3c has no case that runs
    unrun = set() if any(compilers.cpp()) else {"4.3c"}
    assert {q["id"] for q in started if q["status"] == "open"} == unrun
    assert {q["status"] for q in started} - {"open"} == {"partly"}
    for page in (logbook.root / "docs" / "labs").glob("*.md"):
        for why in re.findall(r'<p class="pending">(.*)</p>', page.read_text()):
            if not why.startswith("The cases of the smoke profile"):
                assert {*reasons(why)} <= lacking(), page


def reasons(pending: str) -> list[str]:
    """Why a part of a page is pending: what this machine has not."""
    assert pending.startswith("Not run here: ")
    return html.unescape(pending).removeprefix("Not run here: ").removesuffix(".").split("; ")


def lacking() -> set[str]:
    """What the product may say that this machine has not."""
    said = {
        no_device({"device": "cuda"}): True,
        compilers.NO_COMPILER: not any(compilers.cpp()),
        tools.NO_YOSYS: tools.yosys() is None,
    }
    return {why for why, is_missing in said.items() if why and is_missing}


def test_again_with_nothing_changed_runs_nothing_and_changes_no_byte(logbook):
    before = site_sources(logbook.root)
    again = logbook("all", "--jobs", "2")
    assert again.returncode == 0
    assert "0 cases run" in again.stderr
    assert site_sources(logbook.root) == before


def test_the_site_builds_strictly_and_asks_nothing_of_the_outside(logbook, tmp_path):
    """As `all` has built it. `mkdocs` alone, as a reader calls it, finds this project too."""
    mkdocs = Path(sys.executable).with_name("mkdocs")
    unmade = product(tmp_path / "unmade", "data", "index.md")
    done = python(mkdocs, "build", "--strict", cwd=unmade, PYTHONPATH="")
    assert done.returncode == 1
    assert "run `python cli.py report` first" in done.stderr
    pages = [p for p in (logbook.root / "site").rglob("*.html") if p.name != "404.html"]
    assert len(pages) >= 6
    assert broken(logbook.root / "site") == []


NOT_FOR_RENDERING = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "datasets", "optuna", "safetensors"}:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocked())
"""


def test_rendering_needs_only_the_small_requirements(logbook, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOT_FOR_RENDERING)
    before = site_sources(logbook.root)
    for page in (logbook.root / "docs" / "labs").rglob("*.md"):
        page.unlink()
    done = logbook("report", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert site_sources(logbook.root) == before
    refused = logbook("run", "machine", "--force", PYTHONPATH=str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: this Python has no torch")


def test_a_kill_leaves_the_same_site_as_an_undisturbed_run(logbook):
    """Take the results of a run away in the middle: what is done again gives the same pages."""
    before = site_sources(logbook.root)
    records = sorted((logbook.root / ".madl" / "records" / "lab1_quantization").glob("*.json"))
    for path in records[::2]:
        path.unlink()
    assert logbook("run", "lab1_quantization", "--jobs", "2").returncode == 0
    assert logbook("report").returncode == 0
    after = site_sources(logbook.root)
    assert before.keys() == after.keys()
    for name in before:
        assert undated(before[name]) == undated(after[name]), name


def undated(content: bytes) -> bytes:
    """Durations, dates and the command differ between two runs; nothing else may."""
    content = re.sub(rb'"command":"[^"]*"', b"", content)
    took = rb"\d+\.\d min in these cases|\d+ of these cases beside[^|]*"
    content = re.sub(took, b"", content)
    content = re.sub(rb'"(seconds|contention)":[-0-9.e]+', b"", content)
    return re.sub(rb"20\d\d-\d\d-\d\d(T[0-9:+]+)?", b"", content)


def test_pages_render_at_any_moment(logbook):
    """Whatever subset of the records is there; the last test, for it takes them away."""
    for kept in (slice(None, None, 2), slice(1)):  # every second, and of those the first
        for folder in (logbook.root / ".madl" / "records").iterdir():
            whole = sorted(folder.glob("*.json"))
            for path in set(whole) - set(whole[kept]):
                path.unlink()
        done = logbook("report")
        assert done.returncode == 0, done.stderr[-2000:]
