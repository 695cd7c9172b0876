"""What is known of the time that cases take, and what is left of it."""

import logging
from dataclasses import replace

import pytest

from madl.logbook.records import Store, publish
from madl.running import pace as paces
from madl.running import runner
from madl.running.pace import Pace, in_words
from madl.running.plans import Options
from tests.conftest import a_record, write
from tests.test_runner import STEP


def test_the_time_left_is_that_of_the_evidence_where_there_is_some(plan):
    write(plan.project.experiments / "long" / "page.py", STEP.format(needs=(), timed=False))
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


def test_what_makes_a_whole_logbook_of_other_data_is_said_with_its_time(plan, monkeypatch):
    known = [a_record(case=case, seconds=1800.0) for case in plan.cases("toy")]
    monkeypatch.setattr(paces, "published_results", lambda plan, name: known)
    said = paces.how_to_make_whole(plan, 2)
    assert "python cli.py all --profile full --seeds 1" in said
    assert said.endswith("(about 1 h 00 min)")
