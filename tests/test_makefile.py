"""`make logbook` and `make test`, where they cannot work."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

OTHER = """#!/bin/sh
exec "{python}" -c 'import sys; code = sys.argv[2]; sys.version_info = (3, 15, 0); exec(code)' "$@"
"""


@pytest.mark.parametrize("goal", ["logbook", "test"])
def test_a_python_that_was_never_tried_is_refused_in_a_line(tmp_path, goal):
    other = tmp_path / "python3.15"
    other.write_text(OTHER.format(python=sys.executable))
    other.chmod(0o755)
    how = [f"VENV={tmp_path / 'venv'}", f"PYTHON={other}"]
    done = subprocess.run(["make", goal, *how], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode
    assert done.stderr.startswith("Error: Python 3.11 to 3.14 is needed")
    assert not (tmp_path / "venv").exists()
