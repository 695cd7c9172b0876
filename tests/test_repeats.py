"""Timings run again: only what measures time, in a store of its own, and what flipped."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments.machine import page as machine
from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.claims import Evidence, Finding
from madl.logbook.records import Records, Store
from madl.logbook.stats import Interval, Unit
from madl.machine import device, sources
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import elsewhere, evidence, repeats


def executed(tmp_path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


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
        part="it",
    )
    return Finding(name=name, hypothesis="It is.", verdict=verdict, text="t", evidence=evidence)


A = {"p.x": a_finding("x", "supported", 0.5), "p.y": a_finding("y", "refuted", -0.1)}
HERE = device.host_label()
B = {"p.x": a_finding("x", "undecided", 0.0), "p.y": a_finding("y", "refuted", 0.0)}


def test_every_outcome_is_counted_with_the_effects_of_all_runs():
    x, y = repeats.counts([A, A, B])
    assert x == {
        **{"claim": "p.x", "hypothesis": "It is.", "supported": 2, "undecided": 1},
        "of": ["it"],
        "effects": [1.649, 1.649, 1.0],
    }
    assert (repeats.changed(x), repeats.changed(y)) == (True, False)


def test_what_a_busy_machine_did_not_decide_is_named():
    busy = a_finding("x", "undecided", 0.5, is_blocked=True)
    assert repeats.outcome(busy) == "beside other work"
    assert repeats.changed(repeats.counts([A, {**A, "p.x": busy}])[0])


@pytest.fixture
def published(plan, monkeypatch):
    """Publishes repeated runs of the toy's page, where pages look for them."""
    monkeypatch.setattr(benchmarks, "FOLDER", plan.project.docs / "data" / "benchmarks")

    def publish(*found):
        of_toy = [{name.replace("p.", "toy."): made for name, made in one.items()} for one in found]
        return repeats.publish(of_toy, plan)

    return publish


def test_what_came_out_is_kept_for_the_page_of_the_machine(published):
    published(A, A, B)
    assert benchmarks.rows("repeats", claim="toy.y")[0]["refuted"] == 3
    assert benchmarks.kept("repeats", "runs") == 3
    assert benchmarks.kept("repeats", "profile") == "quick"


def test_a_damaged_file_is_named_and_costs_no_finding(published, a_view):
    path = published(A, A)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(MadlError, match=r"repeats.json is not a published run; restore it"):
        benchmarks.rows("repeats")
    assert elsewhere.again(a_view(), A["p.x"]) == ""


def test_without_timings_there_is_nothing_to_repeat(plan):
    with pytest.raises(MadlError, match="none of these experiments measures time"):
        repeats.timed_stems(plan, [])


def test_the_page_of_the_machine_tells_what_changed(published):
    opposite = {**A, "p.x": a_finding("x", "refuted", -0.5)}
    published(A, opposite)
    said = machine.repeated(Records([])).text
    assert said.startswith("Of 2 verdicts on times, 1 were decided alike in each of 2 runs, 0 in")
    assert said.endswith("0 in none, and 1 turned into their opposite")
    x, _ = machine.again(Records([]))
    assert (x["supported"], x["refuted"], x["effects"]) == (1, 1, "0.607 to 1.65 ×")


@pytest.fixture
def a_view(plan):
    """A page of the toy, as if it were of this machine, that profile and that code."""

    def make(machine=HERE, profile="quick", code=None):
        code = code or sources.digest(plan.project.root, "toy")
        view = SimpleNamespace(
            name="toy",
            machine=machine,
            plan=SimpleNamespace(profile=SimpleNamespace(name=profile)),
            own=[SimpleNamespace(run=SimpleNamespace(code=code))],
            findings={"x": A["p.x"]},
        )
        asked = [SimpleNamespace(id="9.1")]
        return SimpleNamespace(name="toy", view=view, questions=asked, others=[])

    return make


def test_a_finding_says_what_came_out_again_as_long_as_it_is_the_same_hypothesis(published, a_view):
    assert elsewhere.again(a_view(), A["p.x"]) == ""
    published(A, A, B)
    said = (
        "3 runs one after the other: 2 × supported, 1 × undecided; effects 1 to 1.65 ×, 1 outside "
    )
    said += "the interval above: it is of one run, and what differs from run to run is not in it"
    assert elsewhere.again(a_view(), A["p.x"]) == said
    assert "<dt>Run again</dt>" in evidence.finding(A["p.x"], again=said)
    assert elsewhere.again(a_view(), replace(A["p.x"], hypothesis="It is not.")) == ""
    assert elsewhere.again(a_view(), replace(A["p.x"], name="z")) == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"machine": "one"}, f", on another machine ({HERE})"),
        ({"profile": "full"}, ", with quick's sizes and budgets"),
        ({"code": "0"}, ", of other code"),
    ],
)
def test_what_was_run_again_is_said_where_it_is_not_what_the_page_shows(
    published, a_view, other, said
):
    published(A, A, B)
    there = f"3 runs one after the other{said}: 2 × supported, 1 × undecided; effects 1 to 1.65 ×"
    assert elsewhere.again(a_view(**other), A["p.x"]) == there
    assert elsewhere.runs_again([a_view(**other)]) == []


def test_runs_of_another_problem_are_said_to_be_of_it_and_held_against_nothing(published, a_view):
    published(A, A, B)
    made = replace(A["p.x"], evidence=replace(A["p.x"].evidence, part="another"))
    assert elsewhere.again(a_view(), made).startswith("3 runs one after the other, it: 2 ×")
    assert "outside the interval" not in elsewhere.again(a_view(), made)


def test_a_size_that_no_other_run_gave_is_a_chip_beside_the_finding(published, a_view):
    published(A, A, B)
    assert elsewhere.otherwise(a_view(), "x") is None  # two of three lie in the interval
    published(B, B)
    label, why = elsewhere.otherwise(a_view(profile="full"), "x")
    assert label == "2 runs in a row: 1 to 1 ×"
    assert why.startswith(
        "1 to 1 × in 2 runs, with quick's sizes and budgets; here 1.65 × [1.49, 1.82]"
    )
    assert elsewhere.otherwise(a_view(machine="one"), "x") is None
    assert elsewhere.otherwise(a_view(code="0"), "x") is None


def test_the_ledger_counts_the_effects_outside_their_intervals(published, a_view):
    assert elsewhere.runs_again([a_view()]) == []
    published(A, A, B)
    (said,) = elsewhere.runs_again([a_view()])
    assert "(in 9.1): 1 of 3 effects lie outside the page's 95 % interval" in said
