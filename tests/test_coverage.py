"""Coverage: a question is answered by all that it asked for, and how much of it has run is said."""

import json

from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.site import report
from tests.conftest import QUESTIONS, a_record

ASKED = 'asked = [{ counts = "numbers", x = [0, 1, 2] }]'


def asking(plan, asked: str) -> StoredPlan:
    """The toy's plan, with another `asked` in its first question."""
    assert ASKED in QUESTIONS
    path = plan.project.experiments / "questions.toml"
    path.write_text(QUESTIONS.replace(ASKED, asked))
    return StoredPlan(Project(plan.project.root), plan.store, plan.profile, plan.workload)


def part(counts: str, **values: list[int]) -> str:
    fields = ", ".join(f"{name} = {found}" for name, found in values.items())
    return f'{{ counts = "{counts}", {fields} }}'


def write(plan, *, failed: int | None = None, done: int = 4):
    """The pages after so many cases of four, one of which may have failed: the first row."""
    for case in plan.cases("toy")[:done]:
        x = case.params["x"]
        bad = {"status": "failed", "values": {}, "error": "no"} if x == failed else {}
        plan.store.put(a_record(x, **{"case": case, **bad}))
    return report.write(plan, plan.store).rows[0]


def written(plan, name: str) -> str:
    return (plan.project.docs / name).read_text()


def test_part_of_what_was_asked_makes_the_page_partly_and_is_counted_everywhere(plan):
    plan = asking(plan, f"asked = [{part('numbers', x=[0, 1, 9])}]")
    row = write(plan)
    assert plan.is_complete("toy")
    assert row["status"] == "partly"
    facts = next(line for line in written(plan, "labs/toy.md").splitlines() if "facts" in line)
    assert "2 of 3 numbers" in facts
    assert '<span class="chip partly">partly</span>' in facts
    asked = next(line for line in written(plan, "ledger.md").splitlines() if "9.1 Squares" in line)
    assert "2 of 3 numbers" in asked
    assert '<span class="chip partly">partly</span>' in asked
    kept = json.loads(written(plan, "ledger.json"))["questions"][0]
    assert kept["status"] == "partly"
    assert kept["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_combination_whose_case_failed_is_not_covered(plan):
    assert write(plan, failed=2)["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_combination_is_covered_by_all_of_its_cases(plan):
    plan = asking(plan, f"asked = [{part('seeds', seed=[0])}]")
    assert write(plan, done=3)["coverage"][0]["run"] == 0
    assert write(plan)["coverage"][0]["run"] == 1
