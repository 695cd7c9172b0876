"""The committed evidence, as its pages are made from it: in either profile nothing is left out."""

import pytest

from madl.running.project import Project
from tests.synthetic import evidence


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_finding_figure_and_table_of_it_can_be_made(profile):
    """What fails raises, as what is told of one model and holds for several does."""
    made = evidence(profile)
    assert len(made) == len(Project().names())
    for page in made:
        assert page.view.published, f"nothing is committed of {page.name}"
        view = page.view
        assert view.shown
        assert None not in [*view.shown.values(), *view.facts.values()]
        open_ = {one.text for one in view.findings.values() if one.verdict == "not measured"}
        assert open_ <= {"no CUDA device here"}
        assert all(other.findings or other.facts for other in page.others)
