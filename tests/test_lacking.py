"""Programs that were missing, and are there by now: what lacked them runs."""

from dataclasses import replace

import pytest

from kernels import compilers
from madl.logbook.records import Store, encode
from madl.machine import device
from madl.running import status
from madl.site import report
from tests.conftest import a_record, own
from tests.test_report import words
from tests.test_runner import executed, run_all, with_later

pytestmark = pytest.mark.outside


def with_programs(monkeypatch, **there: bool) -> None:
    found = {compilers.NAME: "/a/compiler" if there["compiler"] else None}
    monkeypatch.setattr(device, "programs", lambda: found)


def test_what_was_made_without_a_program_runs_again_once_it_is_there(plan, tmp_path, monkeypatch):
    store = Store(plan.project.state)
    with_programs(monkeypatch, compiler=False)
    run_all(plan)
    first = own(plan).cases("toy")[2]
    record = store.get(first)
    store.put(replace(record, run=replace(record.run, lacked=compilers.NAME)))
    assert run_all(plan) == []
    assert status.counts(own(plan), "toy")["left"] == 0
    with_programs(monkeypatch, compiler=True)
    assert (status.counts(own(plan), "toy")["ok"], status.counts(own(plan), "toy")["left"]) == (
        3,
        1,
    )
    assert [event.record.case for event in run_all(plan)] == [first]
    assert run_all(plan) == []


def test_what_needs_it_follows_from_what_was_made_again(plan, tmp_path, monkeypatch):
    with_later(plan, is_chosen=True)
    store = Store(plan.project.state)
    for case in own(plan).cases("toy"):
        square = 5 if case.params["x"] == 2 else 0  # as it came out without the program
        run = replace(a_record().run, host=device.host_label(), lacked=compilers.NAME)
        store.put(a_record(case=case, values={"square": square}, run=run))
    with_programs(monkeypatch, compiler=True)
    run_all(plan)
    assert executed(tmp_path) == [0, 1, 2, 3, 4]


def test_a_page_that_cannot_run_here_says_why_and_no_command(plan):
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace(' if params["x"] == 1 else None', ' or "no tool"'))
    run_all(plan)
    report.write(plan, Store(plan.project.state))
    assert "Not run here: no tool." in words(plan)
    assert "To complete it" not in words(plan)


def test_another_machine_s_record_says_nothing_of_this_one(plan, monkeypatch):
    with_programs(monkeypatch, compiler=True)
    case, elsewhere = own(plan).cases("toy")[1], a_record().run
    skipped = a_record(case=case, status="skipped", values={}, error="no tool")
    lacking = a_record(case=case, run=replace(elsewhere, lacked=compilers.NAME))
    assert own(plan).is_finished(skipped)
    assert not own(plan).is_outdated(lacking)


def test_a_record_that_lacked_nothing_is_written_as_before():
    assert "lacked" not in encode(a_record())
