"""Every claim can lose: fed data without an effect it is not supported, and it sees a planted one.

Claims are found by themselves, on the committed evidence of every experiment.
"""

import pytest
from scipy.stats import binom

from madl.logbook import nulls
from madl.logbook.claims import Judged
from madl.logbook.stats import ALPHA
from madl.running.project import Project
from madl.site.views import View
from tests.synthetic import evidence

PROJECT = Project()
CLAIMS = [(name, claim) for name in PROJECT.names() for claim in PROJECT.load(name).claims]
TIMES = 200
MOST = int(binom.ppf(0.999, TIMES, ALPHA))  # wins by chance of a claim that errs exactly 5 %


@pytest.fixture(scope="module")
def views() -> dict[str, View]:
    """Every page's view of the committed evidence."""
    return {page.name: page.view for page in evidence("quick")}


def judged(view: View, claim: str) -> Judged:
    """What the claim's test says of the committed evidence; skips what nobody has measured."""
    if view.findings[claim].verdict == "not measured":
        pytest.skip(f"not measured in the committed evidence: {view.why_missing}")
    return view.experiment.claims[claim].test(view.records)


def failed_rules(view: View, name: str) -> list[str]:
    """Which of the rules this claim breaks on this evidence."""
    judged(view, name)
    claim = view.experiment.claims[name]
    broken: list[str] = []
    wins = nulls.null_wins(claim, view.records, times=TIMES)
    if wins > MOST:
        broken.append(f"supported by {wins} of {TIMES} data sets without an effect")
    for favourable, verdict in ((True, "supported"), (False, "refuted")):
        decided, agrees = nulls.planted(claim, view.records, favourable=favourable)
        if not decided or agrees != favourable:
            broken.append(f"a planted effect that should be {verdict} is not")
    return broken


@pytest.mark.parametrize(("page", "name"), CLAIMS, ids=lambda value: value)
def test_each_claim_can_lose_and_can_win(views, page, name):
    assert failed_rules(views[page], name) == []


@pytest.mark.parametrize(("page", "name"), CLAIMS, ids=lambda value: value)
def test_each_margin_can_be_decided_with_the_examples_there_are(views, page, name):
    """Two sides that are the same are shown to be, by more than half of all such data."""
    for one in judged(views[page], name).contrasts:
        power = one.power()
        assert power is None or power >= 0.5, f"power {power:.0%}"
