"""A toy logbook in a real browser: a sample, in `make test`, of what `test_site.py` does."""

import shutil

import pytest

from madl.site import report
from madl.site.build import HOOKS
from tests.browser.looking import complaints, opened
from tests.conftest import ROOT, python
from tests.test_report import fill


@pytest.fixture
def built(plan):
    report.write(plan, fill(plan))
    root = plan.project.root
    shutil.copytree(ROOT / "docs" / "assets", plan.project.docs / "assets")
    shutil.copy(ROOT / "docs" / ".nav.yml", plan.project.docs)
    shutil.copy(ROOT / "mkdocs.yml", root)
    build = ("-m", "mkdocs", "build", "--quiet", "--no-strict")
    done = python(*build, cwd=root, MADL_HOOKS=str(HOOKS))
    assert done.returncode == 0, done.stderr[-2000:]
    return root / "site"


def test_a_toy_logbook_opens_from_a_folder_and_its_verdict_opens(browser, built):
    for name, width, scheme in (("index.html", 390, "dark"), ("labs/toy.html", 1280, "light")):
        assert complaints(browser, built / name, width=width, scheme=scheme) == {}, name
    page = opened(browser, (built / "labs" / "toy.html").as_uri())
    row = page.locator("#claim-grows")
    assert "One squared is more than a half." in row.text_content()
    page.locator(".answer a.mark").click()
    assert page.url.endswith("#claim-grows")
    assert row.locator("svg.effect").is_visible()
    page.close()
