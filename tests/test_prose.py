"""Sentences that the data choose: claim blocks, and what a template may not ask for."""

import math
import re
from types import SimpleNamespace
from typing import cast

import pytest

from madl.errors import MadlError
from madl.logbook.claims import Result
from madl.logbook.numbers import Number
from madl.logbook.values import Estimate, Interval, Unit
from madl.site import prose, report
from tests.conftest import TEMPLATE, a_record
from tests.test_report import fill, page

WINS = TEMPLATE.replace("One squared is {{ one }}.", "It wins {{ effect }}: {{ agree }}.")


@pytest.mark.parametrize(
    ("square", "said", "verdict"),
    [
        (1, "It wins ", "supported"),
        (0, "One squared is only ", "refuted"),
        (0.48, "One squared may be ", "undecided"),
    ],
)
def test_the_verdict_chooses_the_sentence(plan, square, said, verdict):
    (plan.project.experiments / "toy" / "page.md.j2").write_text(WINS)
    store = fill(plan)
    store.put(a_record(1, values={"square": square}))
    state = report.write(plan, store)
    assert state.problems == []
    _, head, text = page(plan).split("---\n", 2)
    assert said in head
    assert said in text
    assert sum(text.count(one) for one in ("It wins", "is only", "may be")) == 1
    assert f'class="mark {verdict}"' in text
    (claim,) = state.rows[0]["claims"]
    assert claim["verdict"] == verdict
    assert said.strip() in state.rows[0]["answer"]
    assert said.strip() in (plan.project.docs / "index.md").read_text()


NEARLY = '''

@page.claim
def nearly(r):
    """It does not shrink."""
    return grows(r).no_worse(0.1)
'''
BLOCK = '{% claim "grows" %}{% supported %}A{% refuted %}B{% undecided %}'
SEEN = "We could have detected {{ smallest }}."


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (f"{BLOCK}{SEEN}{{% unmeasured %}}Not here.{{% endclaim %}}", ""),
        (f"{BLOCK}{SEEN}{{% endclaim %}}", ""),
        (f"{BLOCK}Nothing.{{% endclaim %}}", "says the smallest effect that could have been"),
        (f"{BLOCK}Less than {{{{ smallest }}}}.{{% endclaim %}}", "it bounds nothing"),
        (
            '{% claim "grows" %}{% supported %}A{% endclaim %}',
            "claim 'grows' has no sentence for refuted, undecided",
        ),
        (
            f"{BLOCK.replace('%}', '%}Lost.', 1)}{SEEN}{{% endclaim %}}",
            "claim 'grows' has words before its first verdict; move them above it",
        ),
        (
            f"{BLOCK.replace('grows', 'nearly')}{SEEN}{{% endclaim %}}",
            "asks for a verdict of 'nearly', a secondary comparison",
        ),
        (
            f"{BLOCK.replace('grows', 'nope')}{SEEN}{{% endclaim %}}",
            "names an unknown claim 'nope'; known: grows",
        ),
        (
            f'{BLOCK}{SEEN}{{% endclaim %}}{{% call figure("squares") %}}`x`{{% endcall %}}',
            "the title of squares is no place for code",
        ),
    ],
)
def test_what_a_template_may_not_say_is_one_line(plan, answer, message):
    head, _, rest = TEMPLATE.partition("{% block answer %}")
    body = rest.partition("{% endblock %}")[2]
    folder = plan.project.experiments / "toy"
    text = f"{head}{{% block answer %}}{answer}{{% endblock %}}{body}"
    (folder / "page.md.j2").write_text(text)
    with (folder / "page.py").open("a") as source:
        source.write(NEARLY)
    problems = report.write(plan, fill(plan)).problems
    assert bool(problems) == bool(message)
    assert not message or (message in problems[0] and "page.md.j2" in problems[0])


def test_a_page_that_imports_anothers_is_one_line(toy):
    path = toy.experiments / "toy" / "page.py"
    own = path.read_text()
    for code, named in (
        ("from experiments.other import page as stranger", "experiments.other.page"),
        ("from ..other import page", "experiments.other.page"),
        ("from experiments import other", "experiments.other"),
    ):
        path.write_text(f"{own}\n\ndef late():\n    {code}\n")
        said = f"experiments/toy/page.py imports {named}; of another page its `records` alone"
        with pytest.raises(MadlError, match=re.escape(said)):
            toy.load("toy")
    path.write_text(f"{own}\n\ndef late():\n    from experiments.other.records import some\n")
    toy.load("toy")


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.88, "1.88 ×"), (1 / 1.88, "1.88 ×"), (1.07, "1.07 ×"), (2.63, "2.6 ×")]
)
def test_an_effect_is_how_many_times_as_fast_the_faster_is(ratio, said):
    made = SimpleNamespace(effect=math.log(ratio), unit=Unit.TIMES)
    result = cast("Result", SimpleNamespace(contrast=made, comparison=made))
    assert prose.effect_size(result).replace("\u00a0", " ") == said


@pytest.mark.parametrize(("boundary", "said"), [(0.0, "1.2 points"), (-0.01, "2.2 points")])
def test_the_smallest_effect_is_told_from_none_not_from_the_margin(boundary, said):
    contrast = SimpleNamespace(boundary=boundary)
    made = SimpleNamespace(
        contrast=contrast, smallest=0.012, comparison=SimpleNamespace(unit=Unit.POINTS)
    )
    assert prose.smallest_effect(cast("Result", made)).replace("\u00a0", " ") == said


BUSY = """

@page.claim(primary=True)
def grows(r):
    \"\"\"One squared is more than a half.\"\"\"
    made = _grows(r)
    return replace(made, comparison=replace(made.comparison, blocked="contended"))
"""


def test_what_was_timed_beside_other_work_has_no_verdict_and_says_why(plan):
    path = plan.project.experiments / "toy" / "page.py"
    text = path.read_text().replace("@page.claim(primary=True)\ndef grows", "def _grows")
    path.write_text(f"from dataclasses import replace\n{text}{BUSY}")
    state = report.write(plan, fill(plan))
    assert state.problems == []
    (claim,) = state.rows[0]["claims"]
    assert claim["verdict"] == "not measured"
    assert "Not measured here yet" in state.rows[0]["answer"]
    assert "other programs kept the machine busy" in page(plan)


@pytest.mark.parametrize(
    ("value", "text", "said"),
    [(0.3, "0.3\xa0points", "+0.3"), (-0.3, "−0.3\xa0points", "−0.3"), (0.01, "0.0", "0.0")],
)
def test_a_change_is_printed_with_its_sign(value, text, said):
    number = Number(name="gain", value=value, text=text, precise=text, interval="", n="", cases=())
    assert f">{said}" in prose.NumberLink(number, "records").signed


@pytest.mark.parametrize(
    ("low", "said"), [(-0.001, "+0.3 points &#91;−0.1, 0.7&#93;<"), (0.001, "+0.3 points<")]
)
def test_a_change_that_may_be_none_is_printed_with_its_interval(low, said):
    estimate = Estimate(0.003, Interval(low, 0.007), Unit.POINTS, 1800, 5)
    known = {"text": "0.3 points", "precise": "0.30 points", "interval": "[−0.1, 0.7]", "n": ""}
    number = Number(name="gain", value=0.3, cases=(), estimate=estimate, **known)
    assert said in prose.NumberLink(number, "records").signed


@pytest.mark.parametrize(("low", "said"), [(0.9, "1.1 × &#91;0.9, 1.3&#93;<"), (1.01, "1.1 ×<")])
def test_a_ratio_has_no_sign_and_its_interval_where_it_may_be_none(low, said):
    estimate = Estimate(math.log(1.1), Interval(math.log(low), math.log(1.3)), Unit.TIMES, 0, 6)
    known = {"text": "1.1 ×", "precise": "1.10 ×", "interval": "[0.9, 1.3]", "n": ""}
    number = Number(name="speed", value=1.1, cases=(), estimate=estimate, **known)
    assert said in prose.NumberLink(number, "records").signed
