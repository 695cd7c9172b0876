"""Coverage: a question is answered by all that it asked for, and how much of it has run is said."""

import json

import pytest

from madl.errors import MadlError
from madl.logbook.experiment import PROFILES
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.site import report
from tests.conftest import QUESTIONS, a_record

ASKED = 'asked = [{ counts = "numbers", x = [0, 1, 2] }]'
NUMBERS, SEEDED = {"x": [0, 1, 2, 3]}, {"x": [0, 1], "seed": [0, 1]}


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


def test_all_that_was_asked_is_answered(plan):
    row = write(plan)
    assert row["status"] == "answered"
    assert row["coverage"] == [{"what": "numbers", "asked": 3, "run": 3}]
    assert "3 of 3 numbers" in written(plan, "ledger.md")


def test_what_was_asked_and_is_not_there_yet_is_counted_as_the_cases_run(plan):
    assert [write(plan, done=done)["coverage"][0]["run"] for done in (0, 1, 2, 3, 4)] == [
        *(0, 1, 2, 3, 3)
    ]


def test_several_parts_are_counted_each_and_all_have_to_be_whole(plan):
    plan = asking(plan, f"asked = [{part('numbers', **NUMBERS)}, {part('pairs', **SEEDED)}]")
    row = write(plan)
    assert row["coverage"] == [
        {"what": "numbers", "asked": 4, "run": 4},
        {"what": "pairs", "asked": 4, "run": 2},
    ]
    assert row["status"] == "partly"
    assert "4 of 4 numbers; 2 of 4 pairs" in written(plan, "ledger.md")


def test_a_combination_whose_case_failed_is_not_covered(plan):
    assert write(plan, failed=2)["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_combination_is_covered_by_all_of_its_cases(plan):
    plan = asking(plan, f"asked = [{part('seeds', seed=[0])}]")
    assert write(plan, done=3)["coverage"][0]["run"] == 0
    assert write(plan)["coverage"][0]["run"] == 1


def test_what_this_profile_does_not_plan_is_not_covered(plan):
    smoke = StoredPlan(plan.project, plan.store, PROFILES["smoke"], {})
    assert write(smoke)["coverage"] == [{"what": "numbers", "asked": 3, "run": 2}]


def test_a_question_that_lists_nothing_is_answered_by_its_cases(plan):
    plan = asking(plan, "")
    assert write(plan, done=3)["status"] == "partly"
    assert write(plan)["status"] == "answered"


def test_a_parameter_that_no_case_has_is_one_line_with_the_known_ones(plan):
    plan = asking(plan, f"asked = [{part('numbers', width=[4])}]")
    with pytest.raises(MadlError) as caught:
        write(plan)
    assert str(caught.value) == (
        "experiments/questions.toml, 9.1: no case of toy has the parameter 'width'; known: seed, x"
    )


def test_what_is_asked_of_another_experiment_is_looked_for_there_if_it_is_needed(plan):
    named = part("numbers", x=[0, 1, 2]).replace("{ ", '{ experiment = ["toy"], ')
    assert write(asking(plan, f"asked = [{named}]"))["coverage"][0] == {
        **{"what": "numbers", "asked": 3, "run": 3}
    }
    plan = asking(plan, f"asked = [{named.replace('toy', 'nowhere')}]")
    with pytest.raises(MadlError, match="9.1: toy does not need nowhere"):
        write(plan)


@pytest.mark.parametrize(
    "asked",
    [
        "asked = 3",
        'asked = "numbers"',
        "asked = [3]",
        "asked = [{ x = 3 }]",
        'asked = [{ x = "012" }]',
        "asked = [{ x = [] }]",
        'asked = [{ counts = "numbers" }]',
    ],
)
def test_what_is_asked_in_another_form_is_one_line_with_the_right_one(plan, asked):
    with pytest.raises(MadlError) as caught:
        _ = asking(plan, asked).project.questions
    message = str(caught.value)
    assert message.startswith("experiments/questions.toml, 9.1: asked is a list of tables")
    assert "width = [4, 8]" in message
    assert "\n" not in message


@pytest.mark.parametrize("entry", ['askd = "x"', "text = 1", "[["])
def test_an_entry_that_is_no_question_is_one_clear_line(plan, entry):
    with pytest.raises(MadlError, match=r"^experiments/questions\.toml"):
        _ = asking(plan, entry).project.questions


def test_a_question_that_lacks_its_title_or_is_no_table_is_one_clear_line(plan):
    path = plan.project.experiments / "questions.toml"
    for text in ('["9.1"]\nstem = "toy"\ntext = "?"', '"9.1" = 3'):
        path.write_text(text)
        with pytest.raises(MadlError, match=r"9\.1: a question has stem, title, text, asked"):
            _ = Project(plan.project.root).questions
