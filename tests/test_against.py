"""What was reported beside what was measured: numbers by name, words of our own."""

import pytest

from madl.running.project import Project
from madl.site import against, report, reported
from madl.site.page import PageCalls
from tests.synthetic import evidence
from tests.test_report import fill, words, write

PROJECT = Project()
CALLS = {page.name: PageCalls(PROJECT, page) for page in evidence()}
ROW = (
    '[[against]]\nstem = "toy"\nby = "report 1"\nreported = "It is 7."\noutcome = "does not hold"\n'
    'theirs = 7\nours = "one"\nmeasured = "{}"\n'
)


@pytest.mark.parametrize(
    "row", reported.claims(PROJECT), ids=lambda row: f"{row.stem}: {row.reported[:20]}"
)
def test_each_row_names_numbers_and_a_chart_that_its_page_has(row):
    calls = CALLS[row.stem]
    said = against.measured(row, calls)
    if not calls.page.view.is_whole:
        return
    assert "not run here" not in said
    shown = calls.page.view
    assert {row.figure, row.ours, row.toy} <= {"", *calls.charts, *shown.numbers, *shown.shown}


def told(plan, measured: str, row: str = ROW) -> list[str]:
    templates = plan.project.templates
    write(templates / "reported.md.j2", (PROJECT.templates / "reported.md.j2").read_text())
    write(plan.project.experiments / "reported.toml", row.format(measured))
    return report.write(plan, fill(plan)).problems


def test_a_row_has_what_was_reported_and_the_number_with_its_records(plan):
    assert told(plan, "One squared is {{ one }}.") == []
    text = words(plan, "reported.md")
    assert "It is 7." in text
    assert "One squared is 1." in text
    made = (plan.project.docs / "reported.md").read_text()
    assert 'href="labs/records/toy/one.html"' in made
    assert 'aria-label="reported 7, measured 1"' in made
    home = (plan.project.docs / "index.md").read_text()
    assert "(reported.md)" in home
    assert "It is 7." in home


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (f'{ROW}toy = "top"\n', "no drawing 'top' on its page"),
        (f'{ROW}figure = "top"\n', "no chart 'top' on its page; known: squares"),
        (ROW.replace("= 7", '= "7 %"'), "theirs is '7 %', not a number"),
    ],
)
def test_a_row_that_names_what_is_not_there_costs_the_row_and_is_named(plan, row, said):
    (problem,) = told(plan, "It is {{ one }}.", row)
    assert said in problem
    assert "reported.toml" in problem


@pytest.mark.parametrize(
    ("measured", "said"),
    [("It is 8.", "'8.' is typed"), ("It is {{ two }}.", "'two' is undefined")],
)
def test_a_digit_that_is_typed_and_a_number_that_is_not_there_cost_the_row(plan, measured, said):
    (problem,) = told(plan, measured)
    assert said in problem
    assert not (plan.project.docs / "reported.md").exists()
