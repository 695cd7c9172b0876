"""What is known of the time that cases take, and what is left of it."""

import logging

import pytest

from madl.logbook.records import Store, publish
from madl.running import runner
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
