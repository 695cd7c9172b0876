"""What is not there: a compiler, the network, a home, another Python. It works, or is one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import product, python
from tests.faults.conftest import ROOT, Done, python_of

Run = Callable[..., Done]
SMOKE = ("--profile", "smoke", "--device", "cpu", "--jobs", "1")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Call the command line of a copy of the product, with a cache that is empty at first."""
    root = product(tmp_path / "a product ü", "data")

    def call(*arguments: str, **environment: str) -> Done:
        kept = {"MADL_CACHE": str(tmp_path / "a cache ü"), "MADL_KERNELS": "", "CXX": ""}
        return python("cli.py", *arguments, cwd=root, **{"PYTHONPATH": "", **kept, **environment})

    call.root = root
    return call


def records(root: Path) -> dict[str, bytes]:
    found = sorted(root.glob(".madl/records/*/*.json"))
    return {f"{path.parent.name}/{path.stem}": path.read_bytes() for path in found}


NO_NETWORK = {  # nobody listens there
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **{"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"},
    **dict.fromkeys(("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "no_proxy", "NO_PROXY"), ""),
    "PIP_CONFIG_FILE": os.devnull,
}


@pytest.mark.faults
def test_without_network_and_assets_what_needs_them_is_one_line_and_the_rest_runs(run, tmp_path):
    """Exit status 1, nothing of what was there lost, and no half asset stays."""
    alone = {**NO_NETWORK, "MADL_KERNELS": "torch"}
    done = run("run", "machine", *SMOKE, **alone)
    assert done.returncode == 0, done.stderr
    before = records(run.root)
    assert "ok" in {json.loads(text)["status"] for text in before.values()}
    done = run("run", "machine", "baseline", *SMOKE, **alone)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if "cannot fetch" in line]
    assert len(said) == 1, done.stderr
    assert "is the network up? pip says: " in said[0]
    assert "baseline waits: what it needs is not complete" in done.stderr
    assert "1 cases run, 1 failed" in done.stderr
    after = records(run.root)
    assert {name: after[name] for name in before} == before
    (failed,) = (name for name in after if name not in before)
    assert json.loads(after[failed])["status"] == "failed"
    assert run("report", *SMOKE[:2], **alone).returncode == 0
    assert "Waiting for" in (run.root / "docs" / "baseline.md").read_text()
    left = [path.name for path in (tmp_path / "a cache ü" / "assets").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_each_python_renders_the_committed_evidence_into_the_same_pages(tmp_path, minor):
    """With the packages of `requirements-report.txt` and no others, and without a warning."""
    python = python_of(minor)
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", venv], check=True)
    small = [venv / "bin" / "python", "-W", "error"]
    wanted = ("--quiet", "--requirement", ROOT / "requirements-report.txt")
    install = [venv / "bin" / "python", "-m", "pip", "install", *wanted]
    if (done := subprocess.run(install, capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"the packages are not to be had: {done.stderr.splitlines()[-1]}")
    pages = []
    for place, command in enumerate(([sys.executable], small)):
        root = product(tmp_path / f"product {place}")
        for arguments in (("--help",), ("status",), ("report",)):
            done = subprocess.run(
                [*command, "cli.py", *arguments], cwd=root, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
        made = sorted(path for path in (root / "docs").rglob("*.md"))
        pages.append({path.relative_to(root): path.read_bytes() for path in made})
    assert len(pages[0]) > 16
    assert pages[0] == pages[1]
    refused = subprocess.run([*small, "cli.py", "run"], cwd=root, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: this Python has no torch")
