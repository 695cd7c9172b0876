"""A toy logbook in a real browser: a sample, in `make test`, of what `test_site.py` does."""

import shutil
from itertools import product
from pathlib import Path

import pytest

from madl.site import report
from madl.site.build import HOOKS
from tests.browser.looking import complaints, opened, search, served
from tests.conftest import ROOT, python
from tests.links import broken
from tests.test_report import fill


@pytest.fixture
def build(plan):
    """Builds the toy's site for an address."""
    report.write(plan, fill(plan))
    root = plan.project.root
    shutil.copytree(ROOT / "docs" / "assets", plan.project.docs / "assets")
    shutil.copy(ROOT / "mkdocs.yml", root)

    def build(site_url: str) -> Path:
        command = ("-m", "mkdocs", "build", "--quiet", "--no-strict")
        done = python(*command, cwd=root, MADL_HOOKS=str(HOOKS), SITE_URL=site_url)
        assert done.returncode == 0, done.stderr[-2000:]
        return root / "site"

    return build


def test_a_toy_logbook_opens_from_a_folder_no_address_leads_nowhere_and_its_verdict_opens(
    request, build
):
    built = build("")
    assert broken(built) == []
    browser = request.getfixturevalue("browser")  # or skip the rest
    evidence = "labs/records/toy/grows.html"
    for name, width in product(("index.html", "labs/toy.html", evidence), (320, 1280)):
        found = complaints(browser, (built / name).as_uri(), width=width, scheme="light")
        assert found == {}, (name, width)
    page = opened(browser, (built / "labs" / "toy.html").as_uri())
    row = page.locator("#claim-grows")
    assert "One squared is more than a half." in row.text_content()
    page.locator(".answer a.mark").click()
    assert page.url.endswith("#claim-grows")
    assert row.locator(".interval").is_visible()
    assert search(page, "squared")[0] == "toy.html"
    page.close()


@pytest.mark.parametrize("prefix", ["/", "/logbook/"])
def test_a_toy_logbook_opens_on_a_server_is_searched_and_a_lost_reader_finds_home(
    browser, build, prefix
):
    with served(build(f"https://example.org{prefix}"), prefix) as address:
        for name in ("index.html", "labs/toy.html"):
            assert complaints(browser, address + name, width=1400, scheme="dark") == {}, name
        failures: list[str] = []
        page = opened(browser, f"{address}labs/toy.html", failures=failures)
        assert search(page, "squared")[0] == "toy.html"
        assert failures == []
        page.close()
        for lost in ("nothing.html", "labs/deep/nothing.html"):
            failures.clear()
            page = opened(browser, address + lost, failures=failures)
            page.wait_for_load_state("networkidle")
            assert {*failures} <= {address + lost, MISSING}
            page.locator("article a", has_text="home").click()
            page.wait_for_load_state("load")
            assert page.url == f"{address}index.html"
            page.close()


MISSING = "Failed to load resource: the server responded with a status of 404 (Not Found)"
