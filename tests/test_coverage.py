"""Coverage: a question is answered by all that it asked for, and how much of it has run is said."""

import json
import re

from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.site import report
from madl.training import workloads
from tests.conftest import QUESTIONS, a_record, own


def asking(plan, counts: str) -> RunPlan:
    path = plan.project.experiments / "questions.toml"
    path.write_text(re.sub(r"asked = \[.*\]", f"asked = [{{ counts = {counts} }}]", QUESTIONS))
    return RunPlan(Project(plan.project.root), plan.profile, plan.workload)


def write(plan, *, failed: int | None = None, done: int = 4):
    """The pages after so many cases of four, one of which may have failed: the first row."""
    for case in own(plan).cases("toy")[:done]:
        x = case.params["x"]
        bad = {"status": "failed", "values": {}, "error": "no"} if x == failed else {}
        plan.project.store.put(a_record(x, **{"case": case, **bad}))
    return report.write(plan, plan.project.store).rows[0]


def test_part_of_what_was_asked_makes_the_page_partly_and_is_counted_everywhere(plan):
    plan = asking(plan, '"numbers", x = [0, 1, 9]')
    row = write(plan)
    assert own(plan).is_complete("toy")
    assert row["status"] == "partly"
    page, ledger = (
        ("labs/toy.md", "facts", "question partly answered"),
        ("ledger.md", "9.1 Squares", "partly"),
    )
    for name, place, label in (page, ledger):
        text = (plan.project.docs / name).read_text()
        line = next(line for line in text.splitlines() if place in line)
        assert "2 of 3 numbers" in line
        assert f'<span class="chip partly">{label}</span>' in line
    kept = json.loads((plan.project.docs / "ledger.json").read_text())["questions"][0]
    assert kept["status"] == "partly"
    assert kept["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_combination_is_covered_by_all_of_its_cases_and_by_none_that_failed(plan):
    by_seed = asking(plan, '"seeds", seed = [0]')
    assert write(by_seed, done=3)["coverage"][0]["run"] == 0
    assert write(by_seed)["coverage"][0]["run"] == 1
    by_number = asking(plan, '"numbers", x = [0, 1, 2]')
    assert write(by_number, failed=2)["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_page_says_of_what_its_lab_sheet_asks_where_it_was_measured_on_something_else(plan):
    path = plan.project.experiments / "questions.toml"
    path.write_text(QUESTIONS.replace('title = "Squares"', 'title = "Squares"\nsheet = "imdb"'))
    there = RunPlan(Project(plan.project.root), plan.profile, plan.workload)
    write(there)
    said = "the lab sheet has prajjwal1/bert-tiny on stanfordnlp/imdb"
    assert said in (plan.project.docs / "labs" / "toy.md").read_text()
    of_sheet = workloads.resolve("imdb").params()
    write(RunPlan(Project(plan.project.root), plan.profile, of_sheet))
    assert "lab sheet" not in (plan.project.docs / "labs" / "toy.md").read_text()
