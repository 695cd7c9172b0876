"""Claims: primary ones have verdicts, as one family; what was worded after the data is marked."""

import json
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import Arm
from madl.logbook.claims import Claim, Contrast, Result, compare, contrast, judge
from madl.logbook.power import critical
from madl.logbook.records import Store
from madl.logbook.values import Unit
from madl.running import runner
from madl.running.plans import Options, RunPlan
from madl.running.project import Project
from madl.running.views import View
from tests.conftest import a_record, a_run, own, python
from tests.nulls import power_of
from tests.synthetic import EXAMPLES, a_timed_arm, an_arm, samples, two_models


def a_claim(made: Contrast | None, name: str = "it", *, primary: bool = True) -> Claim:
    return Claim(name=name, hypothesis="It holds.", test=lambda records: made, primary=primary)


def family(registered=None, *, secondary=(), **contrasts: Contrast) -> dict[str, Result]:
    """What becomes of these claims on one page, all primary but the secondary ones."""
    claims = {n: a_claim(made, n, primary=n not in secondary) for n, made in contrasts.items()}
    return judge(claims, contrasts, registered or {})


def verdict(made: Contrast) -> str | None:
    return family(it=made)["it"].verdict


def ahead(points: float, of: int = 1600) -> tuple[Arm, Arm]:
    """A and B, where A is right on so many more points of the examples."""
    return an_arm("A", of + round(points / 100 * EXAMPLES)), an_arm("B", of)


# ---- questions ----------------------------------------------------------------------------------


# Where the true difference is certain: nested outcomes disagree as little as they can.
@pytest.mark.parametrize(
    ("points", "question", "expected"),
    [
        (+3, lambda one: one, "supported"),
        (-3, lambda one: one, "refuted"),
        (0.1, lambda one: one, "undecided"),
        (-1, lambda one: one.no_worse(0.03), "supported"),
        (+9, lambda one: one.no_worse(0.03), "supported"),
        (-9, lambda one: one.no_worse(0.03), "refuted"),
        (-3, lambda one: one.no_worse(0.03), "undecided"),
        (+9, lambda one: one.more_than(0.03), "supported"),
        (+1, lambda one: one.more_than(0.03), "refuted"),
        (-9, lambda one: one.more_than(0.03), "refuted"),
        (+3, lambda one: one.more_than(0.03), "undecided"),
    ],
)
def test_a_margin_is_asked_about_as_its_name_says(points, question, expected):
    assert verdict(question(compare(*ahead(points)))) == expected


def test_a_margin_of_times_is_a_share_positive_and_of_things_of_one_kind():
    fast, slow = a_timed_arm("fast", samples(1.0)), a_timed_arm("slow", samples(1.1, seed=1))
    assert verdict(compare(fast, slow)) == "supported"
    assert verdict(compare(slow, fast)) == "refuted"
    assert verdict(compare(fast, slow).more_than(0.05)) == "supported"
    assert verdict(compare(fast, slow).more_than(0.2)) == "refuted"
    assert verdict(compare(slow, fast).no_worse(0.2)) == "supported"
    assert verdict(compare(slow, fast).no_worse(0.05)) == "refuted"
    for question in ("no_worse", "more_than"):
        for margin in (0.0, -0.02):
            with pytest.raises(MadlError, match=f"a margin is positive, got {margin:g}"):
                getattr(compare(*ahead(1)), question)(margin)
    with pytest.raises(MadlError, match=r"^PTQ and eager are a model and a time$"):
        compare(an_arm("PTQ", 9), a_timed_arm("eager", samples(1.0)))


# ---- families and results -----------------------------------------------------------------------


def of_t(p: float) -> Contrast:
    """A contrast of five units whose two-sided p value for a better A is this."""
    each = np.array([-2.0, -1, 0, 1, 2])
    sd = each.std(ddof=1) / np.sqrt(5)
    values = each + critical(4, p) * sd
    return contrast(stats.mean(list(values), unit=Unit.NATS, unit_name="studies"), [])


def test_what_decides_alone_may_not_among_the_page_s_claims_whose_smallest_effect_is_holm_s():
    assert family(a=of_t(0.03))["a"].verdict == "supported"
    among = family(a=of_t(0.03), b=of_t(0.5), c=of_t(0.6))
    assert {made.verdict for made in among.values()} == {"undecided"}
    assert among["a"].p == pytest.approx(0.03)
    assert among["a"].p_adjusted == pytest.approx(0.09)
    assert family(a=of_t(0.01), b=of_t(0.5), c=of_t(0.6))["a"].verdict == "supported"
    alone, among = family(a=of_t(0.5))["a"], family(a=of_t(0.5), b=of_t(0.6), c=of_t(0.7))["a"]
    assert alone.smallest == alone.comparison.smallest(stats.ALPHA)
    assert among.smallest == among.comparison.smallest(stats.ALPHA / 3) > alone.smallest
    assert family(a=of_t(0.5), secondary=("a",))["a"].smallest == alone.smallest


def test_what_is_secondary_or_not_measured_has_no_verdict_and_costs_the_others_nothing():
    made = family(a=of_t(0.03), b=of_t(0.5), c=of_t(1e-6), secondary=("b", "c"))
    assert made["a"].verdict == "supported"
    second = made["c"]
    assert (second.verdict, second.p, second.p_adjusted, second.level) == (None,) * 4
    assert second.comparison.interval is not None
    with pytest.raises(MadlError, match="claim 'c' is a secondary comparison and has no verdict"):
        _ = second.decided
    claims = {"it": a_claim(None), "other": a_claim(None, "other")}
    made = judge(claims, {"it": of_t(0.03), "other": "1 of 4 cases"}, {})
    assert made["it"].verdict == made["it"].decided == "supported"
    other = made["other"]
    assert (other.verdict, other.why) == ("not measured", "1 of 4 cases")
    assert (other.cases, other.agree) == ((), 0)
    with pytest.raises(MadlError, match=r"claim 'other' is not measured \(1 of 4 cases\)"):
        _ = other.comparison


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=5))
def test_verdicts_are_holm_s(p_values):
    made = family(**{f"c{i}": of_t(p) for i, p in enumerate(p_values)})
    expected = stats.holm({name: one.p for name, one in made.items()})
    for name, one in made.items():
        assert one.p_adjusted == expected[name]
        assert (one.verdict == "undecided") == (expected[name] > stats.ALPHA)
        assert stats.ALPHA / len(p_values) <= one.level <= stats.ALPHA
        low, high = one.interval
        assert (one.verdict == "undecided") == (low <= 0 <= high)


def test_a_result_holds_what_a_sentence_is_made_of():
    arms = an_arm("A", 1700, 1720, 1650), an_arm("B", 1600, 1650, 1690)
    made = family(it=compare(*arms).no_worse(0.02))["it"]
    assert f"{made.comparison.estimate():+}" == "+2.2 points"
    assert made.comparison.by_unit == pytest.approx((0.05, 0.035, -0.02))
    assert made.agree == 3  # the third is 2 points worse, which is at most 2
    assert made.boundary == -0.02
    assert len(made.cases) == 6
    assert (made.comparison.population, made.comparison.units) == ("models", 3)
    assert family(it=compare(*arms))["it"].agree == 2
    gains = an_arm("A", 1650, 1700, 1720), an_arm("B", 1610, 1600, 1650)
    made = family(it=compare(*gains).more_than(0.02))["it"]
    assert made.comparison.by_unit == pytest.approx((0.02, 0.05, 0.035))
    assert made.agree == 2  # a gain of just the margin is not more than it


# ---- power ---------------------------------------------------------------------------------------


def test_the_power_of_a_margin_is_how_often_two_equal_sides_pass():
    rng, passed, said = np.random.default_rng(0), 0, []
    for _ in range(300):
        a, b = (an_arm(label, one) for label, one in zip("AB", two_models(rng)))
        one = compare(a, b).no_worse(0.015)
        passed += verdict(one) == "supported"
        said.append(power_of(one, 0.0))
    assert 0.6 < np.mean(said) < 0.95
    assert passed / 300 == pytest.approx(np.mean(said), abs=0.07)


def test_power_is_of_the_hypothesis_side_at_the_level_asked():
    one = of_t(0.5)
    smallest = one.comparison.smallest(0.01)
    assert power_of(one, smallest, 0.01) == pytest.approx(0.8)
    assert power_of(one, -smallest, 0.01) < 0.01
    assert power_of(one.no_worse(smallest), 0.0, 0.01) == pytest.approx(0.8)


# ---- declared -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_is_compiled_ahead(monkeypatch):
    """A file edited twice in a second would be taken from its bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def toy_with(plan, more: str, **replaced: str) -> RunPlan:
    source = plan.project.experiments / "toy" / "page.py"
    text = source.read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    source.write_text(text + more)
    return RunPlan(Project(plan.project.root), plan.profile, plan.workload)


SILENT = """

@page.claim
def silent(r):
    return None
"""
TWICE = '\n\n@page.table\ndef grows(r):\n    """It grows."""\n'


@pytest.mark.parametrize(
    ("more", "said"),
    [(SILENT, "claim 'silent' has no hypothesis"), (TWICE, "'grows' is declared twice")],
)
def test_what_cannot_be_declared_is_refused_where_it_is(plan, more, said):
    with pytest.raises(MadlError, match=rf"experiments/toy/page\.py: {said}"):
        toy_with(plan, more).project.load("toy")


def view(plan, *, filled: int = 0, claims=None) -> View:
    """The toy's page, with this many of its cases done by code that held these digests."""
    for case in own(plan).cases("toy")[:filled]:
        values = {"square": case.params["x"] ** 2}
        plan.project.store.put(a_record(case=case, values=values, run=a_run(claims=claims or {})))
    return View(name="toy", evidence=own(plan))


COMPARES = '''

from madl.logbook.records import Failed

@page.claim(primary=True)
def fair(r):
    """It grows."""
    return grows(r)

@page.claim
def nearly(r):
    """It does not shrink."""
    return grows(r).no_worse(0.1)

@page.claim(primary=True)
def fails(r):
    """It works."""
    raise Failed("it failed on the GPU: no kernel")
'''


def test_of_a_page_s_comparisons_the_primary_ones_are_judged_as_one_family(plan):
    plan = toy_with(plan, COMPARES)
    made = view(plan, filled=1).results
    assert (made["grows"].verdict, made["grows"].why) == ("not measured", "1 of 4 cases")
    assert (made["fails"].verdict, made["fails"].why) == (
        *("not measured", "it failed on the GPU: no kernel"),
    )
    made = view(plan, filled=4).results
    verdicts = {name: one.verdict for name, one in made.items() if name != "fails"}
    assert verdicts == {"grows": "supported", "fair": "supported", "nearly": None}
    assert made["grows"].p_adjusted == 2 * made["grows"].p


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
    return asked(r, MARGIN)

def declare(bits):
    def bound(r):
        """At this width A is right."""
        return asked(r, bits)

    bound.__name__ = f"bound_{bits}"
    page.claim(bound)

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


SAME = [  # wording, comments and layout
    ("A is at most a little", "A is at most\n    a little"),
    ("    return asked(r, MARGIN)", "    # why\n    return asked(r, MARGIN)  # so"),
    ("asked(r, MARGIN)", "asked(r, 0.02)"),
    ("asked(r, MARGIN)", "asked(\n        r,\n        MARGIN,\n    )"),
    ("MARGIN = 0.02", "MARGIN = 0.02  # two points\nOTHER = 9"),
    ("def asked(r, margin):\n", 'def asked(r, margin):\n    """How it is asked."""\n'),
    ("def asked(r, margin):\n", "def asked(r: object, margin: float) -> object:\n"),
]
RENAMED = [  # a name, everywhere: helper, constant, parameter, argument of the claim, variable
    *(("asked", "no_worse_by"), ("side", "arm_of"), ("MARGIN", "LOSS"), ("margin", "most")),
    *(("r", "records"), ("name", "label")),
]
OTHER = [  # hypothesis, margin, test and rank
    ("@page.claim\n", "@page.claim(primary=True)\n"),
    ("A is at most a little worse", "A is never worse"),
    ("MARGIN = 0.02", "MARGIN = 0.03"),
    (".no_worse(margin)", ".more_than(margin)"),
    ('side(r, "b"))', 'side(r, "c"))'),
    ("r.where(method=name)", "r.where(method=name, seed=0)"),
    ("r.where(method=name)", "r.where(seed=name)"),
    ('return compare(side(r, "a"), side(r, "b"))', 'return compare(side(r, "b"), side(r, "a"))'),
]


@pytest.mark.parametrize(("old", "new"), [*SAME, *OTHER])
def test_a_digest_changes_with_what_is_claimed_and_with_nothing_else(plan, old, new):
    before, after = digests(plan), digests(plan, old, new)
    assert (after["close"] == before["close"]) == ((old, new) in SAME)
    assert after["grows"] == before["grows"]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_digest_does_not_see_names(plan, old, new):
    text = re.sub(rf"\b{old}\b", new, WITH_A_MARGIN)
    assert text != WITH_A_MARGIN
    assert digests(plan, WITH_A_MARGIN, text)["close"] == digests(plan)["close"]


PRINT = """
import json; from pathlib import Path; from madl.running.project import Project
print(json.dumps(Project(Path({!r})).load('toy').digests))
"""


def test_a_digest_is_the_same_in_every_process(plan):
    made = digests(plan)
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text() + WITH_A_MARGIN)
    code = PRINT.format(str(plan.project.root))
    assert json.loads(python("-c", code, check=True, PYTHONHASHSEED="1").stdout) == made
    assert made["bound_4"] != made["bound_8"]
    assert all(re.fullmatch(r"[0-9a-f]{12}", digest) for digest in made.values())


def test_a_digest_changes_with_the_design_and_not_with_the_names_in_it(plan):
    page = plan.project.experiments / "toy" / "page.py"
    page.write_text(page.read_text() + "\nfrom experiments.toy import design\n")
    found: list[str] = []
    for text in ("RATE = 1\n", "SPEED = 1  # of training\n", "RATE = 12\n"):
        (page.parent / "design.py").write_text(text)
        found.append(python("-B", "-c", PRINT.format(str(plan.project.root)), check=True).stdout)
    assert found[0] == found[1] != found[2]


def late(plan) -> bool:
    return View(name="toy", evidence=own(plan)).results["grows"].state == "worded after"


def test_a_run_registers_its_claims_and_a_claim_worded_later_is_marked(plan):
    list(runner.run(plan, Store(plan.project.state), [], Options()))
    kept = [plan.project.store.get(case).run.claims for case in own(plan).cases("toy")]
    assert kept == [plan.project.load("toy").digests] * 4
    assert not late(plan)
    plan = toy_with(plan, "", **{"one = r.single(x=1)": "one = r.single(x=1)  # of all"})
    assert not late(plan)
    plan = toy_with(plan, "", **{"is more than a half": "is less than a half"})
    assert late(plan)


@pytest.mark.parametrize(
    ("at_first", "then", "expected"),
    [
        (None, "now", "registered"),
        ("now", "now", "registered"),
        ("other", "now", "known"),
        ("", "now", "known"),
        ("other", "other", "worded after"),
        (None, "other", "worded after"),
        (None, "", "worded after"),
        (None, "renamed", "registered"),
    ],
)
def test_a_claim_is_registered_known_or_worded_after(at_first, then, expected):
    made = compare(*ahead(3))
    digest = a_claim(made).digest

    def kept(worded):
        if worded in ("now", "renamed"):
            return {"it" if worded == "now" else "its name before": digest}
        return {"it": worded} if worded else {}

    run = a_run(claims=kept(then), first_claims=None if at_first is None else kept(at_first))
    assert family({made.cases[0].key: run}, it=made)["it"].state == expected
    before = a_run(claims=kept("now"))
    both = dict(zip((case.key for case in made.cases), (before, run)))
    assert family(both, it=made)["it"].state == expected
    assert family({"another case of the page": run}, it=made)["it"].state == expected


def test_a_file_edited_while_its_cases_run_registers_what_ran(plan):
    edits = '    Path(__file__).write_text("# new\\n" * 9 + Path(__file__).read_text())\n'
    start = "def run(params, ctx):\n"
    plan = toy_with(plan, "", **{start: start + edits})
    before = plan.project.load("toy").digests
    list(runner.run(plan, Store(plan.project.state), [], Options()))
    assert [plan.project.store.get(case).run.claims for case in own(plan).cases("toy")] == [
        before
    ] * 4
