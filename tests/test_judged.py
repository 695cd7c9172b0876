"""Sentences made in Python, as the first pages make them: each verdict prints its own finding."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from madl.errors import MadlError
from madl.logbook.arms import Arm
from madl.logbook.claims import Claim, compare, faster
from madl.logbook.judged import Finding, Judged, all_of, compare_leads, judge_family
from madl.logbook.stats import Outcomes
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.site import evidence
from madl.site.views import View
from tests.conftest import a_record, a_run
from tests.synthetic import EXAMPLES, a_timed_arm, an_arm, samples

SAYS = {"supported": "It holds", "refuted": "It does not", "undecided": "It may"}


def a_claim(judged: Judged, name: str = "it") -> Claim:
    return Claim(name=name, hypothesis="It holds.", test=lambda records: judged)


def found(judged: Judged, registered=None) -> Finding:
    """What a page prints that makes this claim alone."""
    return judge_family({"it": a_claim(judged)}, {"it": judged}, {}, registered or {})["it"]


def judged_all(*contrasts, **said):
    named = {f"part {i}": one for i, one in enumerate(contrasts)}
    return all_of(named, **{**SAYS, **said})


def verdict(contrast, *more) -> str:
    judged = judged_all(contrast, *more) if more else contrast.judge(**SAYS)
    return found(judged).verdict


def ahead(points: float, of: int = 1600) -> tuple[Arm, Arm]:
    """A and B, where A is right on so many more points of the examples."""
    return an_arm("A", of + round(points / 100 * EXAMPLES)), an_arm("B", of)


# ---- verdicts and their findings ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "expected"), [(3, "supported"), (-3, "refuted"), (0.1, "undecided")]
)
def test_each_verdict_prints_its_own_finding(points, expected):
    made = found(compare(*ahead(points)).judge(**SAYS))
    assert made.verdict == expected
    assert made.text == SAYS[expected]


@pytest.mark.parametrize(
    ("p", "adjusted", "said"),
    [
        (0.0001, 0.0004, "p &lt; 0.001 alone and with the page's other claims (Holm)"),
        (0.004, 0.012, "p = 0.004 alone, p = 0.012 with the page's other claims (Holm)"),
    ],
)
def test_what_the_correction_leaves_is_said_once(p, adjusted, said):
    made = compare(*ahead(3)).judge(**SAYS).evidence
    assert evidence.p_values(replace(made, p=p, p_adjusted=adjusted)) == said


@pytest.mark.parametrize("lacking", SAYS)
@pytest.mark.parametrize("text", ["", " \n"])
def test_a_verdict_without_a_finding_is_one_line_that_names_it(lacking, text):
    one = compare(*ahead(3))
    for judge in (one.judge, lambda **said: judged_all(one, one, **said)):
        with pytest.raises(MadlError) as caught:
            judge(**{**SAYS, lacking: text})
        assert str(caught.value) == f"has no finding for the verdict {lacking!r}; write one"


# ---- several comparisons in one claim -----------------------------------------------------------


def test_all_of_is_supported_only_if_all_hold_as_sure_as_the_least_sure():
    strong, weak = compare(*ahead(3)), compare(*ahead(0.4))
    assert verdict(strong, weak) == "supported"
    assert verdict(strong, compare(*ahead(0.1))) == "undecided"
    made = judged_all(strong, weak)
    assert made.p == max(one.judge(**SAYS).p for one in (strong, weak)) > 1e-4
    assert made.evidence.effect == weak.judge(**SAYS).evidence.effect
    assert "the least sure of 2 comparisons, part 1" in made.evidence.test


def test_all_of_is_refuted_as_soon_as_one_is():
    good, bad = compare(*ahead(3)), compare(*ahead(-0.5))
    assert verdict(good, good, bad) == "refuted"
    made = judged_all(good, good, bad)
    assert made.p == pytest.approx(3 * bad.judge(**SAYS).p)
    assert made.evidence.effect < 0


def test_all_of_is_undecided_where_one_may_fail():
    slightly_bad = compare(*ahead(-0.1))
    assert verdict(compare(*ahead(3)), slightly_bad) == "undecided"
    assert judged_all(*[slightly_bad] * 9).p == 1.0


def test_all_of_speaks_of_every_record_once():
    a, b = ahead(3)
    made = judged_all(compare(a, b), compare(b, a))
    assert sorted(case.params["method"] for case in made.cases) == ["A", "B"]


def family(**p_values: float) -> dict[str, Finding]:
    judged = {name: replace(compare(*ahead(3)).judge(**SAYS), p=p) for name, p in p_values.items()}
    claims = {name: a_claim(one, name) for name, one in judged.items()}
    return judge_family(claims, judged, {}, {})


def test_a_p_value_that_decides_alone_may_not_decide_among_the_page_s_other_claims():
    assert family(a=0.03)["a"].verdict == "supported"
    among = family(a=0.03, b=0.5, c=0.6)
    assert {made.verdict for made in among.values()} == {"undecided"}
    alone = "alone it would be supported; corrected for the page's other claims it is open"
    assert among["a"].text == f"{SAYS['undecided']} ({alone})"
    assert among["b"].text == SAYS["undecided"]
    assert among["a"].evidence.p_adjusted == pytest.approx(0.09)
    assert family(a=0.01, b=0.5, c=0.6)["a"].verdict == "supported"


def test_what_is_not_measured_says_why_and_costs_the_others_nothing():
    judged = replace(compare(*ahead(3)).judge(**SAYS), p=0.03)
    claims = {"it": a_claim(judged), "other": a_claim(judged, "other")}
    made = judge_family(claims, {"it": judged}, {"other": "1 of 4 cases"}, {})
    assert made["it"].verdict == "supported"
    assert made["other"].verdict == "not measured"
    assert made["other"].text == "1 of 4 cases"
    assert made["other"].hypothesis == "It holds."
    assert made["other"].evidence is None


def test_undecided_says_which_effect_these_data_can_decide_beside_the_page_s_other_claims():
    one = compare(*ahead(0.1)).judge(**SAYS)
    claims, judged = ({str(i): make for i in range(9)} for make in (a_claim(one), one))
    family = judge_family(claims, judged, {}, {})
    alone, beside = (float(m.evidence.needed.split()[-4]) for m in (found(one), family["0"]))
    assert 0.1 < alone < beside < 1
    assert found(compare(*ahead(3)).judge(**SAYS)).evidence.needed == ""


@pytest.mark.parametrize(
    ("contention", "says", "told"),
    [
        (0.5, "others used", "not tested, for it needs a quiet machine"),
        (None, "unknown", "not tested, for it needs a machine whose load can be read"),
    ],
)
def test_times_taken_on_a_busy_machine_decide_nothing(contention, says, told):
    fast = a_timed_arm("fast", samples(1.0), contention=contention)
    slow = a_timed_arm("slow", samples(2.0, seed=1), contention=0.0)
    for contrast in (compare(fast, slow), compare(slow, fast), compare(fast, slow).within(0.05)):
        made = found(contrast.judge(**SAYS))
        assert made.verdict == "undecided"
        assert says in made.evidence.needed
        assert made.text.endswith(f" ({told})")
    assert verdict(compare(fast, slow), compare(slow, fast)) == "undecided"


def test_what_is_faster_is_said_in_the_words_of_the_labels():
    fast, slow = a_timed_arm("fast", samples(1.0)), a_timed_arm("slow", samples(2.0, seed=1))
    made = faster(fast, slow, "here")
    assert made.supported.startswith("Fast is 2.01 × as fast as slow here: ")
    busy = a_timed_arm("fast", samples(1.0), contention=0.9)
    assert "which takes a quiet machine" in faster(busy, slow, "here").undecided


@pytest.fixture(autouse=True)
def nothing_is_compiled_ahead(monkeypatch):
    """A file edited twice in a second would be taken from its bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_a_missing_finding_names_the_claim_and_its_experiment(plan):
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("refuted=f", "refuted='' and f"))
    plan = StoredPlan(Project(plan.project.root), plan.store, plan.profile, plan.workload)
    for case in plan.cases("toy"):
        values = {"square": case.params["x"] ** 2}
        plan.store.put(a_record(case=case, values=values, run=a_run(claims={})))
    with pytest.raises(MadlError) as caught:
        _ = View(name="toy", plan=plan, published=False).findings
    says = "claim grows of toy: has no finding for the verdict 'refuted'; write one"
    assert str(caught.value) == says


def test_a_claim_on_another_page_s_data_alone_is_registered_by_its_own_page():
    judged = compare(*ahead(3)).judge(**SAYS)
    digest = a_claim(judged).digest
    assert not found(judged, {"of the page": {"it": digest}}).worded_after
    assert found(judged, {"of the page": {"other": digest}}).worded_after
    here = judged.cases[0].key
    assert not found(judged, {here: {"it": digest}, "of the page": {}}).worded_after


def test_what_a_model_has_on_both_splits_does_not_blur_what_validation_promises():
    rng = np.random.default_rng(0)

    def judged(shares, hard):
        """Of each unit one model, right where a draw is below its share and the example lets it."""
        right = rng.random((len(shares), len(hard))) < np.asarray(shares)[:, None] - hard
        return [[Outcomes(one, f"{len(hard)}")] for one in right]

    made = []
    for _ in range(300):
        shared = rng.normal(0.75, 0.1, 4)  # what a unit is worth on either split
        own = [shared + rng.normal(0, 0.05, 4) for _ in range(2)]
        hard = [rng.normal(0, 0.05, n) for n in (150, 300)]
        sides = [(judged(x, one), judged([0.7] * 4, one)) for x, one in zip(own, hard, strict=True)]
        made.append(compare_leads(*sides, of="models"))
    assert np.mean([one.effect for one in made]) == pytest.approx(0, abs=0.01)
    assert np.mean([one.interval.holds(0) for one in made]) > 0.93
    assert np.median([one.error for one in made]) < 0.055  # 0.08 where the splits count as apart
    with pytest.raises(ValueError, match="two or more models"):
        compare_leads(*[(a[:1], b[:1]) for a, b in sides], of="models")
