"""Every claim can lose: fed data without an effect it is not supported, and it sees a planted one.

Claims are found by themselves, on the committed evidence of every experiment.
"""

import pytest
from scipy.stats import binom

from madl.logbook.claims import Contrast
from madl.logbook.records import Pending
from madl.logbook.values import ALPHA
from madl.running.project import Project
from madl.running.views import View
from tests import nulls
from tests.synthetic import evidence

PROJECT = Project()
CLAIMS = [
    (name, claim.name)
    for name in PROJECT.pages()
    for claim in PROJECT.load(name).claims.values()
    if claim.primary  # a secondary comparison has no verdict
]


@pytest.fixture(scope="module")
def views() -> dict[str, View]:
    return {page.name: page.view for page in evidence()}


def measured(view: View, name: str) -> Contrast:
    """What the claim compares in the committed evidence; skips what was not measured."""
    try:
        return view.experiment.claims[name].test(view.records)
    except Pending:
        pytest.skip(f"not measured in the committed evidence: {view.why_missing}")


@pytest.mark.parametrize("times", [40, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("page", "name"), CLAIMS, ids=lambda value: value)
def test_each_claim_can_lose(views, page, name, times):
    measured(views[page], name)
    wins = nulls.null_wins(views[page].experiment.claims[name], views[page].records, times=times)
    assert wins <= binom.ppf(0.999, times, ALPHA)  # of a claim that errs in exactly 5 %


@pytest.mark.parametrize("verdict", ["supported", "refuted"])
@pytest.mark.parametrize(("page", "name"), CLAIMS, ids=lambda value: value)
def test_each_claim_sees_a_planted_effect(views, page, name, verdict):
    measured(views[page], name)
    claim, records = views[page].experiment.claims[name], views[page].records
    assert nulls.planted(claim, records, favourable=verdict == "supported") == verdict


def test_each_margin_can_be_decided_with_the_examples_there_are(views):
    """Two sides that are the same are shown to be, by more than half of all such data.

    Where they are shown not to be, the scatter is of what sets them apart, and tells nothing.
    """
    results = {(page, name): views[page].results[name] for page, name in CLAIMS}
    margins = {
        place: nulls.power_of(result.contrast, 0.0)  # on further seeds, too, if there are any
        for place, result in results.items()
        if result.contrast and result.contrast.boundary < 0 and result.verdict != "refuted"
    }
    assert len(margins) > 3
    assert {place: power for place, power in margins.items() if power < 0.5} == {}
