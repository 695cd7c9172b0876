"""The home page: what the data refuted comes first, and no hand chooses it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, line, linear
from madl.logbook.claims import Evidence, Fact, Finding
from madl.logbook.records import Case
from madl.logbook.stats import Interval, Unit
from madl.site import evidence, home
from madl.site.views import Page
from tests.conftest import a_record


def a_finding(name, verdict="supported", *, far=2.0, unit=Unit.POINTS, edges=(0.0,), **more):
    """A headline whose effect lies `far` half widths of its interval beyond the line."""
    effect = edges[-1] + far * 0.01
    made = Evidence(
        effect=effect,
        interval=Interval(effect - 0.01, effect + 0.01),
        unit=unit,
        boundaries=edges,
        test="a test",
        drawn="examples",
        p=0.001,
    )
    given = {"headline": True, "evidence": made, **more}
    return Finding(name=name, hypothesis="It is so.", verdict=verdict, text="It is.", **given)


def arms(*labels, **params):
    """The sides of a claim, of one model each."""
    case = Case(experiment="toy", params={"seed": 0, **params})
    return tuple(Arm(label=label, records=(a_record(case=case),)) for label in labels)


def a_page(question, *findings, has_run=True, elsewhere=(), machine="a machine"):
    view = SimpleNamespace(
        machine=machine,
        in_common={},
        own=[1] if has_run else [],
        findings={f.name: f for f in findings},
        facts={},
        sides=lambda _: arms("one & all", "two"),
        cases=[],
    )
    asked = [SimpleNamespace(id=question)]
    other = SimpleNamespace(
        findings={f.name: f for f in elsewhere},
        plan=SimpleNamespace(workload={}, profile=SimpleNamespace(name="quick")),
        machine="a machine",
        in_common={},
        cases=[],
        sides=lambda _: arms("one & all", "two"),
    )
    view.plan = other.plan
    others = [other] if elsewhere else []
    shared = {"questions": asked, "name": f"q{question}", "path": "labs/x.md", "others": others}
    return SimpleNamespace(view=view, **shared)


def chosen(*pages):
    return [one.name for _, one in home.surprising(pages)]


def test_what_was_refuted_comes_first_of_time_too_and_of_it_what_was_registered():
    pages = [
        a_page("0.1", a_finding("large", far=30)),
        a_page("2.1", a_finding("late", "refuted", far=9, headline=False, worded_after=True)),
        a_page("3.1", a_finding("of time", "refuted", far=3, unit=Unit.TIMES)),
        a_page("4.1", a_finding("far", "refuted", far=4)),
    ]
    assert chosen(*pages) == ["far", "of time", "late"]
    assert chosen(*pages[:2]) == ["late", "large"]


def with_answer(page, made):
    page.answer = made
    return page


def test_a_lab_opens_the_logbook_once_and_three_do_at_most():
    same = [a_page(f"1.{i}", a_finding(f"one {i}", far=9 - i)) for i in range(3)]
    others = [a_page(f"{lab}.1", a_finding(f"lab {lab}", far=lab)) for lab in (2, 3, 4)]
    assert chosen(*same, *others) == ["one 0", "lab 4", "lab 3"]


@pytest.mark.parametrize(
    "never",
    [
        a_finding("undecided", "undecided"),
        a_finding("not measured", "not measured", evidence=None),
        a_finding("in ms", unit=Unit.MILLISECONDS),
        a_finding("supported, and no headline", headline=False),
    ],
    ids=lambda finding: finding.name,
)
def test_what_never_opens_the_logbook(never):
    assert chosen(a_page("1.1", never)) == []


def test_a_machine_is_named_where_most_pages_are_of_another():
    pages = [a_page("1.1"), a_page("2.1"), a_page("3.1", machine="another")]
    assert [home.of_other_machine(page, pages) for page in pages] == [[], [], ["another"]]
    nothing_run = a_page("4.1", has_run=False, machine="another")
    assert home.of_other_machine(nothing_run, [nothing_run]) == []


def opened(*findings):
    pages = [a_page(f"{i}.1", one) for i, one in enumerate(findings)]
    calls = {page.name: SimpleNamespace(title=lambda: "a title") for page in pages}
    return home.openings(pages, calls)  # type: ignore[arg-type]


def test_the_title_says_whether_anything_was_refuted():
    refuted = a_finding("x", "refuted")
    assert "## What goes against expectation\n" in opened(refuted)
    assert "## What goes against expectation, and what is clearest\n" in opened(
        refuted, a_finding("y")
    )
    assert "## What is clearest\n" in opened(a_finding("y"))
    assert opened(a_finding("z", "undecided")) == ""


def test_an_opening_shows_its_own_effect_between_its_own_arms_and_when_it_was_worded():
    text = opened(a_finding("x", "refuted", far=-3, unit=Unit.TIMES, worded_after=True))
    assert "<span>← faster: two</span> <span>faster: one &amp; all →</span>" in text
    assert text.count('<svg class="effect"') == 1
    assert "0.970 × &#91;0.961, 0.980&#93;; upright line: no difference</figcaption>" in text
    assert "worded after these data</span>" in text


@pytest.mark.parametrize("status", ["partly", "answered"])
def test_a_question_answered_in_part_says_how_many_cases_there_are(status):
    part = {"what": "widths", "asked": 2, "run": 2}
    row = {"coverage": [part], "progress": "65 of 71 cases", "status": status}
    more = ["65 of 71 cases"] if status == "partly" else []
    assert home.run_of_asked(row) == ["2 of 2 widths", *more]


def test_what_all_labs_start_from_is_said_by_the_records_of_the_baseline():
    page = a_page("1.1")
    page.view.facts = {"workload": Fact(text="Every lab starts from `it`", of="1")}
    assert home.workload([page]) == ""
    page.name = "baseline"
    assert home.workload([page]) == "Every lab starts from <code>it</code>."


def test_a_page_without_results_or_question_is_not_there():
    no_question = a_page("1.1", a_finding("one"))
    no_question.questions = []
    assert chosen(no_question, a_page("1.2", a_finding("two"), has_run=False)) == []


def test_the_distance_is_from_the_nearest_line_and_an_exact_value_is_farthest():
    between = a_finding("between", far=0, edges=(-0.03, 0.0))  # on the line
    exact = a_finding("exact", far=0.5)
    exact = replace(exact, evidence=replace(exact.evidence, interval=Interval(0.005, 0.005)))
    far = a_finding("far", far=50)
    pages = [a_page("1.1", between), a_page("2.1", exact), a_page("3.1", far)]
    assert chosen(*pages) == ["exact", "far", "between"]


@pytest.mark.parametrize(
    ("others", "facts", "said"),
    [
        ([a_finding("open", "undecided"), a_finding("decided", "refuted")], {"x": 1}, "decided"),
        ([a_finding("open", "undecided")], {"x": Fact(text="Two", of="2")}, "Two"),
        ([a_finding("open", "undecided")], {"x": None}, "open"),
        ([], {}, "asked"),
    ],
)
def test_where_the_headline_is_not_measured_what_is_measured_answers(others, facts, said):
    asked = a_finding("asked", "not measured", evidence=None)
    others = [replace(one, headline=False) for one in others]
    view = SimpleNamespace(
        own=[1],
        findings={one.name: one for one in (asked, *others)},
        facts=facts,
        experiment=SimpleNamespace(headline_facts=[]),
    )
    page = Page(name="x", view=view, others=[], questions=[])  # type: ignore[arg-type]
    assert getattr(page.answer, "name", None) == said or getattr(page.answer, "text", "") == said


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("What is found wins: one against two", "What is found wins: one against two"),
        ("After all is said and done it wins: one", "After all is said and done it wins"),
        ("Of two (6 bits; or 8), it is the best; by far", "Of two (6 bits; or 8), it is the best"),
        ("It takes 1.5 times as long as before. Or more", "It takes 1.5 times as long as before"),
    ],
)
def test_a_tile_says_what_comes_before_the_details(text, short):
    assert home.first_clause(text) == short


def test_what_is_not_decided_is_a_whole_sentence():
    text = "Of these two models one has more: it has 80 %; whether that holds is open. More."
    assert home.first_clause(text, ends=".") == text.removesuffix(". More.")


def test_a_thumbnail_has_room_for_some_rows_and_they_are_always_the_same():
    rows = [{"x": i, "y": i} for i in range(1000)]
    chart = Chart(rows, x=linear("x"), y=linear(label="y"), marks=[line("y")])
    some = home.thinned(chart)
    assert len(some.rows) == home.ROWS
    assert some.rows == home.thinned(chart).rows
    assert home.thinned(some).rows == some.rows


def test_the_table_of_claims_names_the_one_of_several_comparisons_that_it_shows():
    made = a_finding("x")
    named = replace(made, evidence=replace(made.evidence, part="the rise"))
    assert "<small>the rise</small>" in evidence.register([named])
    assert "<small>" not in evidence.register([made])
