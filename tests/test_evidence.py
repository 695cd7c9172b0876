"""The committed evidence, as its pages are made from it: nothing is left out."""

from madl.logbook.charts import Chart
from madl.running.project import Project
from madl.site.plotting import palette
from tests.synthetic import evidence


def test_every_finding_figure_and_table_of_it_can_be_made():
    """What fails raises, as what is told of one model and holds for several does."""
    made = evidence()
    assert len(made) == len(Project().names())
    for page in made:
        assert page.view.published, f"nothing is committed of {page.name}"
        view = page.view
        assert view.shown
        assert None not in [*view.shown.values(), *view.facts.values()]
        open_ = {one.text for one in view.findings.values() if one.verdict == "not measured"}
        assert open_ <= {"no CUDA device here"}
        assert all(other.findings or other.facts for other in page.others)


def test_every_look_that_is_kept_for_a_name_is_some_figure_s():
    shown = [made for page in evidence() for made in page.view.shown.values()]
    drawn = {name.casefold() for made in shown if isinstance(made, Chart) for name in made.series()}
    assert set(palette.KNOWN) <= drawn
