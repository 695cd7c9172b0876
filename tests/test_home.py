"""The home page's rule: what goes against expectation comes first, and no hand chooses it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from madl.logbook.claims import Evidence, Finding
from madl.logbook.stats import Interval, Unit
from madl.site import home


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


def a_page(question, *findings, has_run=True):
    view = SimpleNamespace(own=[1] if has_run else [], findings={f.name: f for f in findings})
    return SimpleNamespace(view=view, questions=[SimpleNamespace(id=question)])


def chosen(*pages):
    return [one.name for _, one in home.surprising(pages)]


def test_what_was_refuted_comes_before_what_is_farther_off():
    pages = [
        a_page("1.1", a_finding("large", far=30)),
        a_page("2.1", a_finding("refuted", "refuted", far=2, headline=False)),
        a_page("3.1", a_finding("small", far=3)),
    ]
    assert chosen(*pages) == ["refuted", "large", "small"]


def test_a_lab_opens_the_logbook_once_and_three_do_at_most():
    same = [a_page(f"1.{i}", a_finding(f"one {i}", far=9 - i)) for i in range(3)]
    others = [a_page(f"{lab}.1", a_finding(f"lab {lab}", far=lab)) for lab in (2, 3, 4)]
    assert chosen(*same, *others) == ["one 0", "lab 4", "lab 3"]


@pytest.mark.parametrize(
    "never",
    [
        a_finding("undecided", "undecided"),
        a_finding("not measured", "not measured", evidence=None),
        a_finding("of time", "refuted", unit=Unit.TIMES),
        a_finding("in ms", unit=Unit.MILLISECONDS),
        a_finding("worded after", "refuted", worded_after=True),
        a_finding("supported, and no headline", headline=False),
    ],
    ids=lambda finding: finding.name,
)
def test_what_never_opens_the_logbook(never):
    assert chosen(a_page("1.1", never)) == []


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
