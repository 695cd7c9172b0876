"""What `docs/architecture.md` promises is held by tests that exist, on each supported Python."""

import ast
import re

from tests.faults.conftest import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_test_and_path_that_is_named_exists():
    file = ""
    named = re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", TEXT)
    for path, test in (one for one in named if any(one)):
        file = path or file
        assert (ROOT / file).is_file(), file
        names = {n.name for n in ast.parse((ROOT / file).read_text()).body if hasattr(n, "name")}
        assert not test or test in names, f"{file} has no {test}"
    for path in re.findall(r"`((?:madl|experiments|docs|kernels|templates)/[\w/.]*)`", TEXT):
        assert (ROOT / path).exists(), path
    rows = TEXT.partition("which test holds it")[2].splitlines()
    promises = [row for row in rows if row.startswith("| ")][2:]
    assert promises
    assert all("tests/" in promise for promise in promises)
