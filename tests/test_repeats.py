"""Timings run again: only what measures time, in a store of its own, and what flipped."""

import pytest

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.records import Store
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import repeats


def executed(tmp_path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


def timed(plan, where: str) -> StoredPlan:
    """The toy's plan, where some of its cases measure time."""
    path = plan.project.root / "experiments" / "toy.py"
    path.write_text(path.read_text().replace('(title="Squares")', f'(title="Squares", {where})'))
    project = Project(plan.project.root)
    return StoredPlan(project, Store(project.state), plan.profile, {})


def test_only_what_measures_time_runs_again_and_the_logbook_keeps_its_records(plan, tmp_path):
    plan = timed(plan, 'timed=lambda params: params["x"] == 1')
    store = Store(plan.project.state)
    list(runner.run(plan, store, [], Options()))
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*.json")}
    found = list(repeats.repeat(plan, store, repeats.timed_stems(plan, []), 2))
    assert executed(tmp_path) == [0, 2, 3, 1, 1, 1]
    assert [verdicts["toy.grows"] for verdicts in found] == ["supported", "supported"]
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*.json")} == before
    assert not list(store.root.glob(".repeat-*"))


def test_a_flip_is_counted():
    a, b = {"p.x": "supported", "p.y": "refuted"}, {"p.x": "undecided", "p.y": "refuted"}
    assert repeats.flips([a, a, b]) == {"p.x": {"supported": 2, "undecided": 1}}
    assert repeats.flips([a, a]) == {}


def test_what_came_out_is_kept_for_the_page_of_the_machine(tmp_path, monkeypatch):
    a, b = {"p.x": "supported", "p.y": "refuted"}, {"p.x": "undecided", "p.y": "refuted"}
    repeats.publish([a, a, b], tmp_path)
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    assert benchmarks.rows("repeats") == [{"claim": "p.x", "supported": 2, "undecided": 1}]
    assert (benchmarks.counted("repeats", "runs"), benchmarks.counted("repeats", "verdicts")) == (
        3,
        2,
    )


def test_without_timings_there_is_nothing_to_repeat(plan):
    with pytest.raises(MadlError, match="none of these experiments measures time"):
        repeats.timed_stems(plan, [])
