"""Claims: each verdict prints its own finding, and what was changed after the data is marked."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm
from madl.logbook.claims import (
    Claim,
    Finding,
    Judged,
    above,
    all_of,
    compare,
    judge_family,
    shown_margin,
    with_unit,
)
from madl.logbook.records import Store
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.running.project import Project
from madl.site import evidence
from madl.site.views import View
from tests.conftest import a_record, a_run
from tests.synthetic import EXAMPLES, a_timed_arm, an_arm, samples, two_models

ROOT = Path(__file__).parents[1]
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
    ("share", "said"), [(0.01, "1 point"), (0.02, "2 points"), (0.005, "0.5 points")]
)
def test_a_margin_of_one_point_is_no_plural(share, said):
    assert shown_margin(share, stats.Unit.POINTS) == said
    assert said in compare(*ahead(3)).no_worse(share).judge(**SAYS).evidence.test


@pytest.mark.parametrize("unit", ["ms", "s", "×", "%", "ρ"])
def test_a_unit_that_is_no_plural_stays_as_it_is(unit):
    assert with_unit("1", stats.Unit(unit)) == f"1 {unit}"


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


# Where the true difference is certain: nested outcomes disagree as little as they can.
@pytest.mark.parametrize(
    ("points", "question", "expected"),
    [
        (-1, lambda one: one.no_worse(0.03), "supported"),
        (+9, lambda one: one.no_worse(0.03), "supported"),
        (-9, lambda one: one.no_worse(0.03), "refuted"),
        (-3, lambda one: one.no_worse(0.03), "undecided"),
        (-1, lambda one: one.within(0.03), "supported"),
        (+1, lambda one: one.within(0.03), "supported"),
        (-9, lambda one: one.within(0.03), "refuted"),
        (+9, lambda one: one.within(0.03), "refuted"),
        (+3, lambda one: one.within(0.03), "undecided"),
        (+9, lambda one: one.more_than(0.03), "supported"),
        (+1, lambda one: one.more_than(0.03), "refuted"),
        (-9, lambda one: one.more_than(0.03), "refuted"),
        (+3, lambda one: one.more_than(0.03), "undecided"),
    ],
)
def test_a_margin_is_asked_about_as_its_name_says(points, question, expected):
    assert verdict(question(compare(*ahead(points)))) == expected


def test_a_margin_of_times_is_a_share_of_the_time():
    fast, slow = a_timed_arm("fast", samples(1.0)), a_timed_arm("slow", samples(1.1, seed=1))
    assert verdict(compare(fast, slow)) == "supported"
    assert verdict(compare(slow, fast)) == "refuted"
    assert verdict(compare(fast, slow).more_than(0.05)) == "supported"
    assert verdict(compare(fast, slow).more_than(0.2)) == "refuted"
    assert verdict(compare(slow, fast).no_worse(0.2)) == "supported"
    assert verdict(compare(slow, fast).within(0.05)) == "refuted"
    judged = compare(slow, fast).no_worse(0.05).judge(**SAYS)
    assert judged.evidence.test.startswith("no worse than by 5 %")


@pytest.mark.parametrize("question", ["no_worse", "within", "more_than"])
@pytest.mark.parametrize("margin", [0.0, -0.02])
def test_a_margin_is_positive(question, margin):
    with pytest.raises(MadlError, match=f"a margin is positive, got {margin:g}"):
        getattr(compare(*ahead(1)), question)(margin)


@pytest.mark.parametrize(
    ("correct", "expected"), [(1100, "supported"), (900, "refuted"), (1010, "undecided")]
)
def test_an_arm_is_held_against_a_known_level(correct, expected):
    one = above(an_arm("A", correct), 0.5)
    assert verdict(one) == expected
    judged = one.judge(**SAYS)
    assert judged.evidence.effect == pytest.approx(correct / EXAMPLES - 0.5)
    assert judged.evidence.test == "exact binomial"


def test_an_arm_of_several_seeds_is_held_against_a_known_level():
    assert verdict(above(an_arm("A", 1100, 1110, 1105), 0.5)) == "supported"
    assert verdict(above(an_arm("A", 1900, 1000, 300), 0.5)) == "undecided"


def test_a_model_against_a_time_is_refused_in_one_line():
    with pytest.raises(MadlError, match=r"^PTQ and eager are a model and a time$"):
        compare(an_arm("PTQ", 9), a_timed_arm("eager", samples(1.0)))


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


# ---- families -----------------------------------------------------------------------------------


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


# ---- what would decide --------------------------------------------------------------------------


def test_undecided_says_what_would_decide_and_with_which_power():
    unclear = found(compare(*ahead(0.1)).judge(**SAYS))
    needed = re.fullmatch(
        r"about ([\d,]+) test examples would decide an effect of this size "
        "beside the page's other claims, with 80 % power",
        unclear.evidence.needed,
    )
    assert int(needed[1].replace(",", "")) > EXAMPLES
    assert found(compare(*ahead(3)).judge(**SAYS)).evidence.needed == ""


def test_what_would_decide_counts_the_page_s_other_claims():
    one = compare(*ahead(0.1)).judge(**SAYS)
    claims, judged = ({str(i): make for i in range(9)} for make in (a_claim(one), one))
    family = judge_family(claims, judged, {}, {})
    alone, beside = (
        int(made.evidence.needed.split()[1].replace(",", "")) for made in (found(one), family["0"])
    )
    assert beside > 1.5 * alone


def test_what_would_decide_is_counted_from_the_nearest_edge_of_the_margin():
    def examples(contrast) -> float:
        return float(contrast.judge(**SAYS).needs(stats.ALPHA).split()[1].replace(",", ""))

    one = compare(*ahead(1))
    assert examples(one.within(0.03)) == examples(one.more_than(0.03))
    assert examples(one.within(0.03)) < examples(one.no_worse(0.005).within(0.015))


@pytest.mark.parametrize(("question", "margin"), [("no_worse", 0.015), ("within", 0.018)])
def test_the_power_of_a_margin_is_how_often_two_equal_sides_pass(question, margin):
    rng, passed, said = np.random.default_rng(0), 0, []
    for _ in range(300):
        a, b = (an_arm(label, one) for label, one in zip("AB", two_models(rng)))
        judged = getattr(compare(a, b), question)(margin).judge(**SAYS)
        passed += judged.agrees and judged.p <= stats.ALPHA
        said.append(judged.evidence.power)
    assert 0.6 < np.mean(said) < 0.95
    assert passed / 300 == pytest.approx(np.mean(said), abs=0.07)


def test_only_a_margin_that_equal_sides_would_pass_has_a_power():
    one = compare(*ahead(1))
    assert one.power() is None
    assert one.more_than(0.03).power() is None
    assert one.no_worse(0.03).power() > 0.99
    assert one.within(0.03).power() > 0.99
    assert one.within(1e-6).power() == 0.0


@pytest.mark.parametrize(
    ("contention", "says", "told"),
    [
        (0.5, "50 %", "not tested, for it needs a quiet machine"),
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


# ---- declared -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_is_compiled_ahead(monkeypatch):
    """A file edited twice in a second would be taken from its bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def toy_with(plan, more: str, **replaced: str) -> StoredPlan:
    """The toy with another source, as a program that starts now finds it."""
    source = plan.project.experiments / "toy" / "page.py"
    text = source.read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    source.write_text(text + more)
    return StoredPlan(Project(plan.project.root), plan.store, plan.profile, plan.workload)


SILENT = """

@page.claim
def silent(r):
    return None
"""


def test_a_claim_without_a_hypothesis_is_refused_where_it_is_declared(plan):
    plan = toy_with(plan, SILENT)
    with pytest.raises(MadlError, match=r"experiments/toy\.py: claim 'silent' has no hypothesis"):
        plan.project.load("toy")


@pytest.mark.parametrize("decorator", ["claim", "fact", "table", "output", 'chart(caption="c")'])
def test_no_two_things_of_a_page_have_one_name(plan, decorator):
    plan = toy_with(plan, f'\n\n@page.{decorator}\ndef grows(r):\n    """It grows."""\n')
    with pytest.raises(MadlError, match=r"experiments/toy\.py: 'grows' is declared twice"):
        plan.project.load("toy")


def test_a_missing_finding_names_the_claim_and_its_experiment(plan):
    plan = toy_with(plan, "", **{"refuted=f": "refuted='' and f"})
    with pytest.raises(MadlError) as caught:
        _ = view(plan, filled=4).findings
    says = "claim grows of toy: has no finding for the verdict 'refuted'; write one"
    assert str(caught.value) == says


def view(plan, *, filled: int = 0, claims=None) -> View:
    """The toy's page, with this many of its cases done by code that held these digests."""
    for case in plan.cases("toy")[:filled]:
        values = {"square": case.params["x"] ** 2}
        plan.store.put(a_record(case=case, values=values, run=a_run(claims=claims or {})))
    return View(name="toy", plan=plan, published=False)


def test_a_claim_whose_records_are_missing_is_not_measured_and_says_what_is_there(plan):
    made = view(plan, filled=1).findings["grows"]
    assert (made.verdict, made.text) == ("not measured", "1 of 4 cases")
    assert view(plan, filled=4).findings["grows"].verdict == "supported"


FAILS = '''

from madl.logbook.records import Failed


@page.claim
def fails(r):
    """It works."""
    raise Failed("it failed on the GPU: no kernel")
'''


def test_a_claim_whose_measurement_failed_says_why(plan):
    made = view(toy_with(plan, FAILS), filled=1).findings["fails"]
    assert (made.verdict, made.text) == ("not measured", "it failed on the GPU: no kernel")


# ---- registered ---------------------------------------------------------------------------------

WITH_A_MARGIN = '''

from madl.logbook.claims import compare

MARGIN = 0.02


def side(r, name):
    return r.where(method=name)


def asked(r, margin):
    return compare(side(r, "a"), side(r, "b")).no_worse(margin)


@page.claim
def close(r):
    """A is at most a little worse than B."""
    return asked(r, MARGIN).judge(
        supported=f"A is as good as B: {side(r, 'a')}",
        refuted="A is worse",
        undecided="A may be worse",
    )


for bits in (4, 8):

    @page.claim(name=f"at_{bits}", hypothesis="At this width A is right.")
    def at(r, bits=bits):
        return asked(r, bits)


def declare(bits):
    @page.claim(name=f"bound_{bits}", hypothesis="At this width A is right.")
    def bound(r):
        return asked(r, bits)


declare(4)
declare(8)
'''


def digests(plan, old: str = "", new: str = "") -> dict[str, str]:
    assert old in WITH_A_MARGIN
    source = plan.project.experiments / "toy" / "page.py"
    before = source.read_text()
    source.write_text(before + WITH_A_MARGIN.replace(old, new, 1 if old else 0))
    try:
        return Project(plan.project.root).load("toy").digests
    finally:
        source.write_text(before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('refuted="A is worse"', 'refuted="A loses"'),
        ("A is as good as B: {side(r, 'a')}", "They are alike"),
        ("A is at most a little", "A is at most\n    a little"),
        (
            "    return asked(r, MARGIN).judge(",
            "    # why\n    return asked(r, MARGIN).judge(  # so",
        ),
        ("asked(r, MARGIN)", "asked(\n        r,\n        MARGIN,\n    )"),
        ("@page.claim\n", "@page.claim(headline=True)\n"),
        ("MARGIN = 0.02", "MARGIN = 0.02  # two points\nOTHER = 9"),
        ("def asked(r, margin):\n", 'def asked(r, margin):\n    """How it is asked."""\n'),
    ],
)
def test_a_digest_does_not_change_with_wording_comments_and_layout(plan, old, new):
    assert digests(plan, old, new)["close"] == digests(plan)["close"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A is at most a little worse", "A is never worse"),
        ("MARGIN = 0.02", "MARGIN = 0.03"),
        ("asked(r, MARGIN)", "asked(r, 0.02)"),
        (".no_worse(margin)", ".within(margin)"),
        ('side(r, "b"))', 'side(r, "c"))'),
        ("r.where(method=name)", "r.where(method=name, seed=0)"),
    ],
)
def test_a_digest_changes_with_the_hypothesis_the_margin_and_the_test(plan, old, new):
    before, after = digests(plan), digests(plan, old, new)
    assert after["close"] != before["close"]
    assert after["grows"] == before["grows"]


def test_claims_made_of_one_function_have_digests_of_their_own(plan):
    made = digests(plan)
    assert made["bound_4"] != made["bound_8"]


def test_a_digest_is_the_same_in_every_process(plan):
    made = digests(plan)
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text() + WITH_A_MARGIN)
    code = (
        "import json; from pathlib import Path; from madl.running.project import Project\n"
        f"print(json.dumps(Project(Path({str(plan.project.root)!r})).load('toy').digests))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == made
    assert all(re.fullmatch(r"[0-9a-f]{12}", digest) for digest in made.values())


def run_inline(plan) -> None:
    for event in runner.run(plan, Store(plan.project.state), [], Options()):
        assert event.record.status == "ok"


def late(plan) -> bool:
    return View(name="toy", plan=plan, published=False).findings["grows"].worded_after


def test_a_run_registers_its_claims_and_a_claim_worded_later_is_marked(plan):
    run_inline(plan)
    kept = [plan.store.get(case).run.claims for case in plan.cases("toy")]
    assert kept == [plan.project.load("toy").digests] * 4
    assert not late(plan)
    plan = toy_with(plan, "", **{"is only": "is no more than"})
    assert not late(plan)
    plan = toy_with(plan, "", **{"grow more often": "grow less often"})
    assert late(plan)


def test_a_claim_that_its_records_do_not_know_was_worded_after_them(plan):
    current = plan.project.load("toy").digests
    assert not view(plan, filled=4, claims=current).findings["grows"].worded_after
    assert view(plan, filled=4, claims={"grows": "0" * 12}).findings["grows"].worded_after
    assert view(plan, filled=4, claims={}).findings["grows"].worded_after


def test_a_claim_on_another_page_s_data_alone_is_registered_by_its_own_page():
    judged = compare(*ahead(3)).judge(**SAYS)
    digest = a_claim(judged).digest
    assert not found(judged, {"of the page": {"it": digest}}).worded_after
    assert found(judged, {"of the page": {"other": digest}}).worded_after
    here = judged.cases[0].key
    assert not found(judged, {here: {"it": digest}, "of the page": {}}).worded_after


def test_a_file_edited_while_its_cases_run_registers_what_ran(plan):
    edits = '    Path(__file__).write_text("# new\\n" * 9 + Path(__file__).read_text())\n'
    start = "def run(params, ctx):\n"
    plan = toy_with(plan, "", **{start: start + edits})
    before = plan.project.load("toy").digests
    run_inline(plan)
    assert [plan.store.get(case).run.claims for case in plan.cases("toy")] == [before] * 4
