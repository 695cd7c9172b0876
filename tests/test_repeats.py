"""Timings run again: only what measures time, in a store of its own, and what flipped."""

from dataclasses import replace

import pytest

from experiments import machine
from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.claims import Evidence, Finding
from madl.logbook.records import Records, Store
from madl.logbook.stats import Interval, Unit
from madl.machine import device
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import elsewhere, evidence, repeats


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
    assert [findings["toy.grows"].verdict for findings in found] == ["supported", "supported"]
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*.json")} == before
    assert not list(store.root.glob(".repeat-*"))


def a_finding(name: str, verdict: str, effect: float, *, is_blocked: bool = False) -> Finding:
    evidence = Evidence(
        effect=effect,
        interval=Interval(effect - 0.1, effect + 0.1),
        unit=Unit.TIMES,
        boundaries=(0.0,),
        test="t",
        drawn="5 processes",
        p=0.01,
        is_blocked=is_blocked,
    )
    return Finding(name=name, hypothesis="It is.", verdict=verdict, text="t", evidence=evidence)


A = {"p.x": a_finding("x", "supported", 0.5), "p.y": a_finding("y", "refuted", -0.1)}
HERE = device.host_label()
B = {"p.x": a_finding("x", "undecided", 0.0), "p.y": a_finding("y", "refuted", 0.0)}


def test_every_outcome_is_counted_with_the_effects_of_all_runs():
    x, y = repeats.counts([A, A, B])
    assert x == {
        **{"claim": "p.x", "hypothesis": "It is.", "supported": 2, "undecided": 1},
        "effects": [1.649, 1.649, 1.0],
    }
    assert (repeats.changed(x), repeats.changed(y)) == (True, False)


def test_what_a_busy_machine_did_not_decide_is_named():
    busy = a_finding("x", "undecided", 0.5, is_blocked=True)
    assert repeats.outcome(busy) == "beside other work"
    assert repeats.changed(repeats.counts([A, {**A, "p.x": busy}])[0])


def test_what_came_out_is_kept_for_the_page_of_the_machine(tmp_path, monkeypatch):
    repeats.publish([A, A, B], tmp_path)
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    assert benchmarks.rows("repeats", claim="p.y")[0]["refuted"] == 3
    assert benchmarks.counted("repeats", "runs") == 3


def test_without_timings_there_is_nothing_to_repeat(plan):
    with pytest.raises(MadlError, match="none of these experiments measures time"):
        repeats.timed_stems(plan, [])


def test_the_page_of_the_machine_tells_what_changed(tmp_path, monkeypatch):
    opposite = {**A, "p.x": a_finding("x", "refuted", -0.5)}
    repeats.publish([A, opposite], tmp_path)
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    said = machine.repeated(Records([])).text
    assert said.startswith("Of 2 verdicts on times, 1 were decided alike in each of 2 runs, 0 in")
    assert said.endswith("0 in none, and 1 turned into their opposite")
    x, _ = machine.again(Records([]))
    assert (x["supported"], x["refuted"], x["effects"]) == (1, 1, "0.607 to 1.65 ×")


def test_a_finding_says_what_came_out_again_as_long_as_it_is_the_same_hypothesis(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    assert elsewhere.again("p", A["p.x"], HERE) == ""
    repeats.publish([A, A, B], tmp_path)
    said = (
        "3 runs one after the other: 2 × supported, 1 × undecided; effects 1 to 1.65 ×, 1 outside "
    )
    said += "the interval above: it is of one run, and what differs from run to run is not in it"
    assert elsewhere.again("p", A["p.x"], HERE) == said
    there = "3 runs one after the other, on another machine (" + HERE + "): 2 × supported, 1 × "
    assert elsewhere.again("p", A["p.x"], "one") == there + "undecided; effects 1 to 1.65 ×"
    assert "<dt>Run again</dt>" in evidence.finding(A["p.x"], again=said)
    assert elsewhere.again("p", replace(A["p.x"], hypothesis="It is not."), HERE) == ""
    assert elsewhere.again("q", A["p.x"], HERE) == ""
