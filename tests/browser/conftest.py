"""The site of the committed evidence, built once, and a real browser to open it in."""

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT, product, python

ASKED = tomllib.loads((ROOT / "experiments" / "questions.toml").read_text("utf-8")).values()
STEMS = sorted(p.parent.name for p in (ROOT / "experiments").glob("*/page.py"))
NAMES = ("404", "index", "ledger", "reported", "usage", "own", "architecture", "log")
PAGES = sorted(
    [
        *(f"{name}.html" for name in NAMES),
        *(f"labs/{s}.html" if s in {q["stem"] for q in ASKED} else f"{s}.html" for s in STEMS),
        *(f"notebooks/{p.stem}.html" for p in (ROOT / "templates" / "notebooks").glob("[!_]*.py")),
    ]
)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Reported and built from what is committed, as a reader gets it."""
    root = product(tmp_path_factory.mktemp("evidence"))
    if (charts := ROOT / ".madl" / "build" / "charts").is_dir():  # drawn charts, checked by digest
        shutil.copytree(charts, root / ".madl" / "build" / "charts")
    # not --quiet: that keeps mkdocs from counting warnings, and so from being strict
    for command in (["cli.py", "report"], ["-m", "mkdocs", "build"]):
        done = python(*command, cwd=root, PYTHONPATH="")
        assert done.returncode == 0, done.stderr[-2000:]
    return root / "site"


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as session:
        started = session.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
