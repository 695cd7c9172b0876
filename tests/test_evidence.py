"""The committed evidence, as its pages are made from it: nothing is left out."""

from scipy.stats import binom

from madl.logbook.charts import Chart
from madl.running.project import Project
from madl.site.disagreements import other_runs
from madl.site.plotting import palette
from madl.site.replication import predicted
from tests.synthetic import evidence

CANNOT_RUN = {"no CUDA device here"}


def test_every_number_result_figure_table_and_look_of_it_can_be_made():
    """What fails raises, as what is told of one model and holds for several does."""
    made = evidence()
    assert {page.name for page in made} == set(Project().pages())
    for page in made:
        view = page.view
        assert view.is_published, f"nothing is committed of {page.name}"
        assert view.shown
        open_ = {n: one.why for n, one in view.results.items() if one.contrast is None}
        assert set(open_.values()) <= CANNOT_RUN, f"{page.name}: {open_}"
        untested = [view.experiment.claims[name].test for name in open_]
        every = view.experiment.made_numbers.items()
        expected = {name: None for name, make in every if make in untested}  # a claim as a number
        missing = {n for n, one in (view.shown | view.numbers).items() if one is None}
        assert missing <= expected.keys(), f"{page.name}: {missing}"
        assert all(other.shown and other.numbers for other in page.others)
    shown = [made for page in evidence() for made in page.view.shown.values()]
    drawn = {name.casefold() for made in shown if isinstance(made, Chart) for name in made.owners()}
    assert set(palette.KNOWN) <= drawn


def test_a_claim_that_ran_elsewhere_has_a_sentence_for_runs_that_disagree():
    for page in evidence():
        template = (Project().experiments / page.name / "page.md.j2").read_text()
        for claim in page.view.measured:
            _, *blocks = template.split(f'{{% claim "{claim}" %}}')
            sentences = [block.partition("{% endclaim %}")[0] for block in blocks]
            has_fourth = any("{% disagree %}" in text for text in sentences)
            assert has_fourth or not list(other_runs(page, claim)), f"{page.name}: {claim}"


def test_a_sitting_left_out_lies_in_the_interval_that_the_others_predict():
    """Of all claims on times, on every machine: 95 in 100 of them, less what chance allows."""
    held, count = predicted(evidence())
    assert count >= 30
    assert held >= binom.ppf(0.001, count, 0.95)
