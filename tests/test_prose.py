"""Sentences that the data choose: claim blocks, numbers, and what a template may not ask for."""

import re

import numpy as np
import pytest

from madl.errors import MadlError
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store
from madl.logbook.stats import Outcomes
from madl.running.plans import StoredPlan
from madl.site import report
from tests.conftest import QUESTIONS, a_record, write

PAGE = '''
"""Two methods on the same sentences."""

from madl.logbook.arms import arm
from madl.logbook.claims import compare
from madl.logbook.experiment import Experiment
from madl.logbook.numbers import counted

page = Experiment(title="Methods")


@page.cases
def cases(plan):
    return [{"method": m, "seed": s} for m in ("old", "new") for s in plan.seeds]


@page.run
def run(params, ctx):
    return {}


def of(method):
    return lambda r: arm(r, method, method=method)


@page.claim(primary=True)
def new_is_better(r):
    """The new method is more accurate than the old."""
    return compare(of("new")(r), of("old")(r))


@page.claim
def old_is_close(r):
    """The old method is at most ten points worse."""
    return compare(of("old")(r), of("new")(r)).no_worse(0.1)


page.numbers(new=of("new"), apart=lambda r: compare(of("new")(r), of("old")(r)), three=lambda r: 3)
'''

TEMPLATE = """{% extends "page.md.j2" %}
{% block answer %}
{% claim "new_is_better" %}
{% supported %}It wins {{ effect }}: {{ agree }}.
{% refuted %}It loses {{ effect }}.
{% undecided %}It changes less than {{ smallest }}.
{% endclaim %}
{% endblock %}
{% block lead %}The new one has {{ new }}, {{ apart }} apart, of {{ three }}.{% endblock %}
{% block figure %}{% endblock %}
{% block why %}Because.{% endblock %}
{% block mislead %}Much.{% endblock %}
{% block method %}As ever.{% endblock %}
"""


def judged(share: float, seed: int) -> dict:
    outcomes = Outcomes(np.random.default_rng(seed).random(400) < share, "test")
    return {"outcomes": outcomes.to_json(), "validation_accuracy": share}


@pytest.fixture
def project(toy):
    write(toy.experiments / "toy" / "page.py", PAGE)
    write(toy.experiments / "toy" / "page.md.j2", TEMPLATE)
    questions = QUESTIONS.replace("x = [0, 1, 2]", 'method = ["old", "new"]')
    write(toy.experiments / "questions.toml", questions)
    return toy


def plan_of(project, new: float, old: float) -> StoredPlan:
    store = Store(project.state)
    plan = StoredPlan(project, store, PROFILES["full"], {})
    for case in plan.cases("toy"):
        share = new if case.params["method"] == "new" else old
        seed = 2 * case.params["seed"] + (case.params["method"] == "new")
        store.put(a_record(case=case, values=judged(share, seed)))
    return plan


def page(plan: StoredPlan) -> str:
    return (plan.project.docs / "labs" / "toy.md").read_text()


@pytest.mark.parametrize(
    ("new", "old", "said", "verdict"),
    [
        (0.9, 0.6, "It wins ", "supported"),
        (0.6, 0.9, "It loses ", "refuted"),
        (0.75, 0.75, "It changes less than ", "undecided"),
    ],
)
def test_the_verdict_chooses_the_sentence(project, new, old, said, verdict):
    plan = plan_of(project, new, old)
    state = report.write(plan, plan.store)
    assert state.problems == []
    _, head, text = page(plan).split("---\n", 2)
    assert said in head
    assert said in text
    assert text.count("It wins") + text.count("It loses") + text.count("It changes") == 1
    assert f'class="mark {verdict}"' in text
    (claim,) = state.rows[0]["claims"]
    assert claim["verdict"] == verdict
    assert said.strip() in state.rows[0]["answer"]
    assert said.strip() in (project.docs / "index.md").read_text()


BLOCK = '{% claim "new_is_better" %}{% supported %}A{% refuted %}B{% undecided %}'


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (f"{BLOCK}Less than {{{{ smallest }}}}{{% endclaim %}}", ""),
        (f"{BLOCK}Nothing.{{% endclaim %}}", "says the smallest effect that could have been"),
        (
            '{% claim "new_is_better" %}{% supported %}A{% endclaim %}',
            "claim 'new_is_better' has no sentence for refuted, undecided",
        ),
        (
            f"{BLOCK.replace('new_is_better', 'old_is_close')}{{{{ smallest }}}}{{% endclaim %}}",
            "asks for a verdict of 'old_is_close', a secondary comparison",
        ),
        (
            f"{BLOCK.replace('new_is_better', 'nope')}{{{{ smallest }}}}{{% endclaim %}}",
            "names an unknown claim 'nope'; known: new_is_better",
        ),
        ("It wins 3 points.", "has the number '3' in its prose"),
    ],
)
def test_what_a_template_may_not_say_is_one_line(project, answer, message):
    head, _, rest = TEMPLATE.partition("{% block answer %}")
    body = rest.partition("{% endblock %}")[2]
    path = project.experiments / "toy" / "page.md.j2"
    path.write_text(f"{head}{{% block answer %}}{answer}{{% endblock %}}{body}")
    plan = plan_of(project, 0.9, 0.6)
    problems = report.write(plan, plan.store).problems
    assert bool(problems) == bool(message)
    assert not message or (message in problems[0] and "page.md.j2" in problems[0])


def test_a_page_that_imports_anothers_is_one_line(project):
    path = project.experiments / "toy" / "page.py"
    own = path.read_text()
    for code, named in (
        ("from experiments.other import page as stranger", "experiments.other.page"),
        ("from ..other import page", "experiments.other.page"),
        ("from experiments import other", "experiments.other"),
    ):
        path.write_text(f"{own}\n\ndef late():\n    {code}\n")
        said = f"experiments/toy/page.py imports {named}; of another page its `records` alone"
        with pytest.raises(MadlError, match=re.escape(said)):
            project.load("toy")
    path.write_text(f"{own}\n\ndef late():\n    from experiments.other.records import some\n")
    project.load("toy")
