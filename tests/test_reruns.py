"""What this machine has run again of published evidence, and how it came out."""

import pytest

from madl.logbook.records import Case, Source
from madl.running.evidence import source_of
from madl.running.reruns import run_again
from tests.conftest import a_record, a_run

CASES = [Case(experiment="toy", params={"x": x, "seed": 0}) for x in range(3)]


def a_source(*values, started="2026-01-02") -> Source:
    run = a_run(started=f"{started}T00:00:00+00:00")
    every = zip(CASES, values, strict=False)
    records = (a_record(case=case, values=made, run=run) for case, made in every)
    return source_of({record.case.key: record for record in records})


def made_again(theirs, ours):
    return run_again(CASES, a_source(*theirs), a_source(*ours, started="2026-02-02"))


def judged(accuracy: float) -> dict:
    return {"outcomes": {}, "accuracy": accuracy}


def times(**medians: float) -> dict:
    return {"measurements": {name: [{"samples_s": [s, s, s]}] for name, s in medians.items()}}


def test_accuracies_are_the_same_or_the_largest_difference_is_named():
    theirs = [judged(0.8), judged(0.7), judged(0.6)]
    same = made_again(theirs, theirs[:2])
    assert same.line() == "Run again here: 2 of 3 cases, test accuracies the same."
    several = [{"a": judged(0.8), "b": judged(0.7)}], [{"a": judged(0.801), "b": judged(0.69)}]
    assert made_again(*several).gaps == pytest.approx({"0": -1.0})
    other = made_again(theirs, [judged(0.801), judged(0.69)])
    assert other.gaps == pytest.approx({"0": 0.1, "1": -1.0})
    assert other.line() == (
        "Run again here: 2 of 3 cases, test accuracies within 1 point (most in 1)."
    )


def test_cases_that_differ_in_having_a_parameter_are_two(monkeypatch):
    pruned = Case(experiment="toy", params={"x": 0, "seed": 0})
    trained_on = Case(experiment="toy", params={**pruned.params, "recovery": "a pass"})
    monkeypatch.setattr(f"{__name__}.CASES", [pruned, trained_on])
    again = made_again([judged(0.8), judged(0.7)], [judged(0.7), judged(0.701)])
    assert sorted(again.gaps.values()) == pytest.approx([-10.0, 0.1])


def test_accuracies_of_other_models_are_no_equal_ones():
    assert made_again([judged(0.8)], [{"other": judged(0.8)}]).otherwise == ["0"]


def test_outcomes_that_have_no_accuracy_are_compared_as_they_are():
    theirs = [{"outcomes": {"n": 2}}, {"outcomes": {"n": 3}}]
    found = made_again(theirs, [{"outcomes": {"n": 2}}, {"outcomes": {"n": 2}}])
    assert (found.gaps, found.otherwise) == ({}, ["1"])


def test_times_are_a_ratio_and_exact_values_as_published_but_for_sums_in_another_order():
    theirs = [times(a=1.0, b=2.0), times(a=1.0, b=2.0)]
    found = made_again(theirs, [times(a=2.0, b=4.0), times(a=3.0, b=2.0)])
    assert found.ratios == {"0": 2.0, "1": 2.0}
    assert found.otherwise == ["1"]
    assert "times 2 × the published, otherwise than published: 1." in found.line()
    near = made_again(theirs[:1], [times(a=1.05, b=1.0)])
    assert near.otherwise == []
    theirs = [{"gates": 5, "error": 0.1, "took_s": 3.0}] * 2
    ours = [
        {"gates": 5, "error": 0.10001, "took_s": 9.0},
        {"gates": 6, "error": 0.1, "took_s": 3.0},
    ]
    found = made_again(theirs, ours)
    assert found.otherwise == ["1"]
    assert made_again(theirs, ours[:1]).line() == "Run again here: 1 of 3 cases, all as published."


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (times(a=1.0), times(b=1.0)),
        ({"area": 1, "gates": 5}, {"area": 1}),
        ({"area": 1}, {"area": 1, "gates": 5}),
    ],
)
def test_what_one_side_lacks_is_not_as_published(theirs, ours):
    assert made_again([theirs], [ours]).otherwise == ["0"]
