"""Where and beside whom it runs: clocks, locales, paths, several runs at once."""

import html
import os
import random
import sys
from types import SimpleNamespace

import pytest

from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store, decode
from madl.running import runner
from madl.running.plans import Options, RunPlan
from tests.conftest import TOY, own, wait_for
from tests.faults.conftest import Calls, in_one_line, is_one_line
from tests.test_report import snapshot


def everything(call: Calls, **environment: str) -> None:
    """Each command, none of which may stumble."""
    for command in (
        ("all", "--jobs", "1"),
        ("status", "--json"),
        ("publish",),
        ("report",),  # of what is published now, too
        ("checklist",),
    ):
        done = call(*command, **environment)
        assert done.returncode == 0, (command, done.stderr)
        assert "Traceback" not in done.stderr


BACK = '''
"""A clock that goes back by a day whenever it is read."""

import datetime
import time

_days = 0

class Back(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        global _days
        _days += 1
        return datetime.datetime.fromtimestamp(2e9, tz) - datetime.timedelta(days=_days)

_time = time.time
time.time = lambda: _time() - 86400 * _days
datetime.datetime = Back
'''


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.faults
def test_a_clock_that_goes_back_and_a_locale_of_ascii_only_are_no_matter(
    root, call, no_torch, tmp_path, monkeypatch
):
    """In a folder that the locale cannot name, called from another, with the pages as elsewhere.

    The clock goes back while it runs, between two runs, and in the times of files.
    """
    (no_torch / "sitecustomize.py").write_text(BACK)
    monkeypatch.chdir(tmp_path)
    everything(call, **ASCII)
    monkeypatch.undo()
    started = [decode(p.read_text(), "").run.started for p in root.glob(".madl/records/*/*.json")]
    assert len({day[:10] for day in started}) > 1
    before = snapshot(root / "docs")
    for place, path in enumerate(sorted(p for p in root.rglob("*") if "tmp" not in p.parts)):
        os.utime(path, (4e9, 4e9) if place % 2 else (0, 0))
    (no_torch / "sitecustomize.py").unlink()
    done = call("all", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "0 cases run" in done.stderr
    assert call("report").returncode == 0
    assert snapshot(root / "docs") == before
    assert is_one_line(call("run", "tüy", **ASCII).stderr)


REACHES = """
def run(params, ctx):
    if params is None:
        from kernels import linear_bf16, round_to_grid
        return f"{linear_bf16} {round_to_grid}"
"""


def test_what_computed_is_in_the_record_and_on_the_page(toy, monkeypatch):
    """Formats round alike on every path (`test_kernels.py`); products sum in another order."""
    from madl.site import report

    assert runner._kernels(toy.root, "toy") == {"kernels": "", "lacked": ""}  # which reaches none
    experiment = toy.root / "experiments" / "toy" / "page.py"
    experiment.write_text(experiment.read_text().replace("\ndef run(params, ctx):\n", REACHES))
    (toy.root / "kernels").mkdir()
    route = SimpleNamespace(route=lambda: SimpleNamespace(path="torch", lacks=""))
    for name in ("round_to_grid", "linear_bf16"):
        (toy.root / "kernels" / f"{name}.py").write_text("")
        monkeypatch.setitem(sys.modules, f"kernels.{name}", route)
    store = Store(toy.state)
    plan = RunPlan(toy, PROFILES["quick"], {})
    list(runner.run(plan, store, (), Options()))
    assert (
        store.get(own(plan).cases("toy")[0]).run.kernels == "round_to_grid torch, linear_bf16 torch"
    )
    report.write(plan, store)
    page = html.unescape((toy.docs / "labs" / "toy.md").read_text())
    assert "| Kernels | round_to_grid torch, linear_bf16 torch |" in page


@pytest.mark.faults
def test_two_runs_and_reports_at_once_in_one_store(root, call, tmp_path):
    """The second run is refused, reports are made meanwhile, and each case has run once."""
    log, go = tmp_path / "log", tmp_path / "go"
    log.touch()
    source = root / "experiments" / "toy" / "page.py"
    waits = f"    while not Path({str(go)!r}).exists():\n        time.sleep(0.02)\n    folder ="
    source.write_text(TOY.replace("    folder =", waits))
    started = [call.start("all", "--jobs", "2")]
    try:
        wait_for(lambda: log.read_text())
        refused = call("run", "--jobs", "1")
        assert refused.returncode == 1
        assert is_one_line(refused.stderr)
        assert "a run is at work on" in refused.stderr
        started += [call.start("report") for _ in range(2)]
        go.touch()
        for one in reversed(started):
            _, said = one.communicate(timeout=120)
            assert one.returncode == 0, said
    finally:
        for one in started:
            one.kill()
            one.communicate()
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3"]
    assert "4 of 4 cases" in (root / "docs" / "toy.md").read_text()
    before = snapshot(root / "docs")
    assert call("report").returncode == 0
    assert snapshot(root / "docs") == before


@pytest.mark.faults
def test_what_is_swept_is_ours_and_nothing_behind_a_link(root, call, tmp_path):
    away = tmp_path / "away"
    (away / "deep").mkdir(parents=True)
    (away / "deep" / "kept").write_text("kept")
    for name in (".madl/tmp/x", ".madl/records/toy/.x", ".madl/artifacts/.squares-x", "docs/labs"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(away)
    call.run_and_report()
    assert (away / "deep" / "kept").read_text() == "kept"


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, with bits turned over, overwritten by noise, doubled, or empty."""
    place = rng.randrange(len(data) + 1)
    flipped = bytearray(data)
    for _ in range(8):
        if data:
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return rng.choice(
        [data[:place], bytes(flipped), data[:place] + rng.randbytes(50), data * 2, b""]
    )


@pytest.mark.faults
def test_whatever_file_is_damaged_is_made_again_or_named(toy):
    """20 damages to what runs and reports have written; none is more than a line."""
    run = ("all", "--jobs", "1", "--device", "cpu")
    in_one_line(*run)
    in_one_line("publish")
    rng = random.Random(18)
    for _ in range(20):
        files = sorted(p for p in toy.root.rglob("*") if p.is_file() and p.suffix != ".lock")
        files = [p for p in files if {".madl", "data", "labs", "records"} & {*p.parts}]
        path = rng.choice(files)
        path.write_bytes(damaged(path.read_bytes(), rng))
        done = in_one_line(*run)
        if done.exit_code == 1:
            assert {".madl", "data"} & {*path.parts}, f"{path} is not made again: {done.output}"
            assert path.name in done.output
            path.unlink()  # as the line says
        assert in_one_line(*run).exit_code == 0
