"""What replicates, in a table, and what changes when only what measures time runs again."""

import math
import shutil
from types import SimpleNamespace

from madl.logbook.records import Store
from madl.logbook.stats import Unit
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import replication
from tests.test_runner import executed


def timed(plan, where: str) -> StoredPlan:
    """The toy's plan, where some of its cases measure time."""
    path = plan.project.root / "experiments" / "toy" / "page.py"
    path.write_text(path.read_text().replace('(title="Squares")', f'(title="Squares", {where})'))
    project = Project(plan.project.root)
    return StoredPlan(project, Store(project.state), plan.profile, {})


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
