"""A real browser for the tests of the built site."""

import shutil

import pytest


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
