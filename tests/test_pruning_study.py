"""Question 1.2: where it starts, what its study counts, and that its constants were chosen."""

from types import SimpleNamespace

import pytest

from experiments.lab1_pruning import design, page
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED
from madl.logbook.records import Record, Records, read_published
from madl.running.evidence import Evidence
from tests.synthetic import DATA, evidence, kept_of, read, tuned_rate

TUNED = DATA / f"{page.STEM}_tuning.jsonl"
UPSTREAM = "lab1_quantization_tuning"
FORMAT = {"operands": "both", "frac_width": 5, "input_frac_width": 2}


def sweep(width: int, loss: float) -> Record:
    values = {"weights": 5, "inputs": 2, "loss": loss}
    return kept_of(UPSTREAM, values, method="sweep", operands="both", width=width)


def test_it_starts_from_the_narrowest_of_the_formats_that_validation_loss_ties():
    wide, tied, lossy = (
        sweep(12, 0.3),
        sweep(8, 0.3 + design.TIE_NATS),
        sweep(6, 0.301 + design.TIE_NATS),
    )
    upstream = {UPSTREAM: read(lossy, wide, tied)}
    found = page.start(SimpleNamespace(records=upstream.__getitem__))
    assert found == {"width": 8, **FORMAT}


def full() -> Evidence:
    """The committed evidence of the page, which knows where it starts."""
    return next(one.view.evidence for one in evidence() if one.name == page.STEM)


def test_what_primary_claims_compare_is_trained_on_every_seed_at_the_rate_of_its_point():
    cases = [case.params for case in full().cases(page.STEM)]
    trained = [one for one in cases if one.get("recovery") == "a pass"]
    for name, point in design.POINTS.items():
        found = [one for one in trained if point.items() <= one.items()]
        assert [one["seed"] for one in found] == list(CONFIRMING_SEEDS)
        assert {one["recovery_learning_rate"] for one in found} == {design.RATES[name]}
    assert TUNING_SEED not in {one["seed"] for one in cases}


def test_both_methods_are_trained_on_at_all_sparsities():
    cases = [case.params for case in full().cases(page.STEM)]
    for method in page.METHODS:
        asked = {"part": "both", "pruning": method, "recovery": "a pass"}
        found = {one["sparsity"] for one in cases if asked.items() <= one.items()}
        assert found == set(design.SPARSITIES)


@pytest.mark.parametrize("name", design.POINTS)
def test_the_rate_is_chosen_on_the_tuning_seed(name):
    tuned = Records(read_published(TUNED)).all(**design.POINTS[name], recovery="a pass")
    assert tuned_rate(tuned, "recovery_learning_rate") == design.RATES[name]
