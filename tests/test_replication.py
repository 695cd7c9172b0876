"""What replicates, in a table, and what changes when only what measures time runs again."""

import math
import shutil
from types import SimpleNamespace

import pytest

from experiments.machine import page as machine
from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.records import Records, Store
from madl.logbook.stats import Unit
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import replication


def executed(tmp_path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


def timed(plan, where: str) -> StoredPlan:
    """The toy's plan, where some of its cases measure time."""
    path = plan.project.root / "experiments" / "toy" / "page.py"
    path.write_text(path.read_text().replace('(title="Squares")', f'(title="Squares", {where})'))
    project = Project(plan.project.root)
    return StoredPlan(project, Store(project.state), plan.profile, {})


@pytest.mark.parametrize(
    ("verdicts", "agreement"),
    [
        (("supported", "supported"), "alike"),
        (("undecided", "supported"), "decided in some"),
        (("refuted", "undecided", "supported"), "reversed"),
    ],
)
def test_runs_agree_or_not(verdicts, agreement):
    assert replication.agreement(verdicts) == agreement


def test_only_what_measures_time_runs_again_and_the_logbook_keeps_its_records(plan, tmp_path):
    plan = timed(plan, 'timed=lambda params: params["x"] == 1')
    store = Store(plan.project.state)
    list(runner.run(plan, store, [], Options()))
    shutil.rmtree(store.root / "artifacts")  # as where records came from another machine
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*.json")}
    found = list(replication.repeat(plan, store, [], 2))
    assert executed(tmp_path) == [0, 2, 3, 1, 1, 1]
    assert [one["toy.grows"].decided for one in found] == ["supported", "supported"]
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*.json")} == before
    assert not list(store.root.glob(".repeat-*"))


def test_without_timings_there_is_nothing_to_repeat(plan):
    with pytest.raises(MadlError, match="none of these experiments measures time"):
        list(replication.repeat(plan, Store(plan.project.state), [], 2))


def results(verdict: str, size: float, *, blocked: str = "") -> dict[str, SimpleNamespace]:
    compared = SimpleNamespace(blocked=blocked, unit=Unit.TIMES, effect=math.log(size))
    return {"toy.grows": SimpleNamespace(decided=verdict, comparison=compared)}


A, B = results("supported", 1.649), results("undecided", 1.0)


def test_every_outcome_is_counted_with_the_effects_of_all_runs(plan):
    (row,) = replication.counts(plan, [A, A, B])
    assert row == {
        **{"claim": "toy.grows", "hypothesis": "One squared is more than a half."},
        **{"supported": 2, "undecided": 1, "effects": [1.649, 1.649, 1.0]},
    }
    assert replication.changed(row)
    assert not replication.changed(replication.counts(plan, [A, A])[0])


def test_what_a_busy_machine_did_not_decide_is_named(plan):
    (row,) = replication.counts(plan, [A, results("undecided", 0.5, blocked="contended")])
    assert row["beside other work"] == 1
    assert replication.changed(row)


def test_what_the_page_of_the_machine_calls_quick_runs_were_quick():
    assert benchmarks.kept("repeats", "profile") == "quick"


def test_what_came_out_is_kept_for_the_page_of_the_machine(plan, monkeypatch):
    monkeypatch.setattr(benchmarks, "FOLDER", plan.project.docs / "data" / "benchmarks")
    rows = replication.counts(plan, [A, results("refuted", 0.607)])
    path = replication.publish(plan, rows, 2)
    assert machine.verdicts(Records([])) == (1, 0, 1)  # all, alike, turned into their opposite
    (row,) = machine.again(Records([]))
    assert (row["supported"], row["refuted"], row["effects"]) == (1, 1, "0.607 to 1.65 ×")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(MadlError, match=r"repeats.json is not a published run; restore it"):
        benchmarks.rows("repeats")
