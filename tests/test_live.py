"""Pages while the cases run: when they are rendered, what is said, what comes first."""

import json
import logging
import sys
from dataclasses import replace

import pytest

from madl.logbook.records import Store, publish
from madl.running import runner
from madl.running.pace import Pace
from madl.running.plans import Options
from madl.running.queues import Progress, in_words
from madl.site.live import FREE_S, Pages
from tests.conftest import a_record, write
from tests.test_runner import STEP

RENDER = """
import json, pathlib, sys
log = pathlib.Path({log!r})
log.write_text(log.read_text() + "x" if log.exists() else "x")
docs = pathlib.Path({docs!r})
rows = [{{"id": "9.1", "stem": "toy", "status": "answered", "page": "labs/toy.md"}}]
(docs / "ledger.json").write_text(json.dumps({{"questions": rows}}))
print("2 questions: 1 answered")
sys.exit({status})
"""


def an_event(**changes) -> Progress:
    fields = {"label": "", "done": 1, "total": 2, "record": a_record(), "left_s": 1.0}
    return Progress(**{**fields, "is_last": True, "before_timed": False, **changes})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def live(toy, tmp_path):
    """A maker of pages that counts how often they are made, and its clock."""

    def make(status=0, script=RENDER, **more):
        text = script.format(log=str(tmp_path / "made"), docs=str(toy.docs), status=status)
        return Pages(toy, [sys.executable, "-c", text], **more)

    return make


def times_made(tmp_path) -> int:
    path = tmp_path / "made"
    return len(path.read_text()) if path.exists() else 0


def test_the_page_of_a_finished_experiment_is_made_and_named(live, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    pages = live()
    pages.see(an_event(is_last=False))
    assert times_made(tmp_path) == 0
    pages.see(an_event())
    pages.see(an_event(is_last=False))
    assert times_made(tmp_path) == 1
    assert "answered: 9.1 docs/labs/toy.md" in caplog.text
    assert "serve" in caplog.text


def test_nothing_is_rendered_before_a_case_that_measures_time(live, tmp_path):
    pages = live()
    pages.see(an_event(before_timed=True))
    assert times_made(tmp_path) == 0
    pages.see(an_event(is_last=False))  # but as soon as that is over
    assert times_made(tmp_path) == 1


def test_nothing_is_rendered_where_the_numbers_mean_nothing(live, tmp_path):
    live(is_wanted=False).see(an_event())
    assert times_made(tmp_path) == 0


def test_rendering_takes_a_small_share_of_the_run(live, tmp_path):
    clock = Clock()
    pages = live(clock=clock)
    pages.spent_s = FREE_S + 1
    pages.see(an_event())
    assert times_made(tmp_path) == 0
    clock.now = 3600.0
    pages.see(an_event(is_last=False))
    assert times_made(tmp_path) == 1


def test_a_page_that_cannot_be_made_ends_nothing(live, caplog):
    pages = live(script="import sys; sys.exit('Error: template toy.md.j2: no')")
    pages.see(an_event())
    assert "pages not made yet: template toy.md.j2: no" in caplog.text
    pages.see(an_event())


def test_problems_of_other_pages_do_not_hide_a_page_that_is_made(live, caplog):
    caplog.set_level(logging.INFO)
    live(status=1).see(an_event())
    assert "answered: 9.1" in caplog.text


def test_events_say_when_an_experiment_ends_and_when_time_is_measured_next(plan):
    text = STEP.format(needs=(), timed=True)
    (plan.project.experiments / "clock" / "page.py").write_text(text)
    events = list(runner.run(plan, Store(plan.project.state), [], Options()))
    ends = [(e.record.case.experiment, e.is_last, e.before_timed) for e in events]
    assert ends == [
        *[("toy", False, False)] * 3,
        ("toy", True, True),
        ("clock", False, True),
        ("clock", True, True),
    ]


@pytest.mark.parametrize(("seconds", "first"), [(1.0, "short"), (300.0, "toy")])
def test_what_is_known_to_be_short_comes_before_what_others_need(plan, seconds, first):
    """As committed evidence knows: its page can be read while the long ones run."""
    (plan.project.experiments / "short" / "page.py").write_text(STEP.format(needs=(), timed=False))
    later = STEP.format(needs=("toy",), timed=False)
    write(plan.project.experiments / "later" / "page.py", later)
    known = [a_record(case=case, seconds=seconds) for case in plan.cases("short")]
    publish(known, plan.project.docs / "data" / "short.jsonl")
    events = list(runner.run(plan, Store(plan.project.state), [], Options()))
    assert events[0].record.case.experiment == first
    assert len(events) == 8


def test_the_time_left_is_that_of_the_evidence_where_there_is_some(plan):
    (plan.project.experiments / "long" / "page.py").write_text(STEP.format(needs=(), timed=False))
    later = STEP.format(needs=("toy",), timed=False)
    write(plan.project.experiments / "later" / "page.py", later)
    known = [a_record(case=case, seconds=300.0) for case in plan.cases("long")]
    publish(known, plan.project.docs / "data" / "long.jsonl")
    first = next(runner.run(plan, Store(plan.project.state), [], Options()))
    assert first.record.case.experiment == "toy"
    assert first.left_s == pytest.approx(600.0, abs=10)


@pytest.mark.parametrize(("jobs", "said"), [(1, "4 min"), (2, "2 min")])
def test_the_time_left_counts_what_waits_and_goes_at_the_pace_of_this_machine(
    plan, caplog, jobs, said
):
    """In evidence ten seconds a case, of which this machine needs none, then a hundred a case."""
    caplog.set_level(logging.INFO)
    write(plan.project.experiments / "later" / "page.py", STEP.format(needs=("toy",), timed=False))
    store = Store(plan.project.state)
    for name, seconds in (("toy", 10.0), ("later", 100.0)):
        known = [a_record(case=case, seconds=seconds) for case in plan.cases(name)]
        publish(known, plan.project.docs / "data" / f"{name}.jsonl")
    first, *others = runner.run(plan, store, [], Options(jobs=jobs))
    assert f"6 cases, about {said}" in caplog.text
    assert (first.done, first.total) == (1, 6)
    assert 0 < first.left_s < 60
    assert [event.total for event in others] == [6] * 5
    assert others[-1].left_s == 0


def test_evidence_in_which_other_parameters_were_chosen_tells_the_time_of_a_case(plan):
    """As 1.2 starts from the model that validation prefers on each machine."""
    known = [
        a_record(case=replace(case, params={**case.params, "width": 12}), seconds=100.0 * place)
        for place, case in enumerate(plan.cases("toy"), 1)
    ]
    pace = Pace(plan, evidence={"toy": known})
    pace.learn("toy", plan.cases("toy"))
    assert [pace.expected_s(case) for case in plan.cases("toy")] == [100, 200, 300, 400]
    pace.finished(a_record(case=plan.cases("toy")[0], seconds=50.0))
    assert [pace.expected_s(case) for case in plan.cases("toy")[1:]] == [100, 150, 200]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (750, "12 min"), (3900, "1 h 05 min")]
)
def test_a_time_to_wait_in_words(seconds, words):
    assert in_words(seconds) == words


def test_all_renders_while_it_runs(toy, monkeypatch, capsys):
    """The page of the first experiment is there before the second one has ended."""
    (toy.experiments / "slow" / "page.py").write_text(
        STEP.format(needs=("toy",), timed=False).replace(
            'return {"step"',
            "import pathlib, json\n"
            f"    page = pathlib.Path({str(toy.docs)!r}, 'labs', 'toy.md')\n"
            "    assert page.is_file(), 'no page yet'\n"
            '    return {"step"',
        )
    )
    text = "# {{ title() }}\n\n{{ claims() }}\n"
    (toy.experiments / "slow" / "page.md.j2").write_text(text)
    from tests.test_cli import call

    result = call("all", "--executor", "inline")
    assert result.exit_code == 0, result.output
    rows = json.loads((toy.docs / "ledger.json").read_text())["questions"]
    assert rows[0]["status"] == "answered"
