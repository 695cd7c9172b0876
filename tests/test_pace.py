"""What is known of the time that cases take, and what is left of it."""

import logging
from dataclasses import replace

import pytest

from madl.logbook.records import Store, publish
from madl.running import runner
from madl.running.pace import Pace
from madl.running.plans import Options
from tests.conftest import a_record, write
from tests.test_runner import STEP


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
