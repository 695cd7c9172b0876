"""Question 1.2: where it starts, what its study counts, and that its constants were chosen."""

from types import SimpleNamespace

import pytest

from experiments.lab1_pruning import page
from experiments.lab1_quantization.page import COLLAPSED
from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES, TUNING_SEED
from madl.logbook.records import Record, Store, published_by_machine, read_published
from madl.running.plans import StoredPlan, published_plans
from madl.running.project import Project
from madl.training import workloads
from tests.synthetic import DATA, kept_of, preferred_rate, read

TUNED = DATA / f"{page.STEM}_tuning.jsonl"
UPSTREAM = "lab1_quantization_tuning"
FORMAT = {"operands": "both", "frac_width": 5, "input_frac_width": 2}


def sweep(width: int, loss: float) -> Record:
    values = {"weights": 5, "inputs": 2, "loss": loss}
    return kept_of(UPSTREAM, values, method="sweep", operands="both", width=width)


def test_it_starts_from_the_narrowest_of_the_formats_that_validation_loss_ties():
    wide, tied, lossy = sweep(12, 0.3), sweep(8, 0.3 + page.TIE), sweep(6, 0.301 + page.TIE)
    tuned = {"tune_examples": None, "tune_learning_rate": 3e-5, "tune_batch_size": 16}
    trained = kept_of(UPSTREAM, {"validation_loss": 0.4}, method="qat", width=6, **FORMAT, **tuned)
    upstream = {UPSTREAM: read(lossy, wide, tied, trained)}
    found = page.start(SimpleNamespace(records=upstream.__getitem__))
    assert found == {"width": 8, **FORMAT}


def full() -> StoredPlan:
    """Full's plan on the committed evidence that knows where it starts."""
    workload = workloads.resolve("snippets", model=None, dataset=None).params()
    plan = StoredPlan(Project(), Store(DATA / "none"), PROFILES["full"], workload)
    plans = published_plans(plan, published_by_machine(DATA)[0])
    return next(one for one in plans if one.is_complete("lab1_quantization_tuning"))


def test_what_primary_claims_compare_is_trained_on_every_seed_at_the_rate_of_its_method():
    cases = [case.params for case in full().cases(page.STEM)]
    trained = [one for one in cases if one.get("recovery") == "a pass"]
    for where in (
        *({"pruning": method, "sparsity": page.THIRD} for method in page.METHODS),
        {"pruning": "l1", "sparsity": page.HALF},
        {"part": "nothing"},
    ):
        found = [one for one in trained if {"part": "weights", **where}.items() <= one.items()]
        assert [one["seed"] for one in found] == list(CONFIRMING_SEEDS)
        assert {one["recovery_learning_rate"] for one in found} == {page.RATE}
    assert TUNING_SEED not in {one["seed"] for one in cases}


@pytest.mark.parametrize("what", page.TRIED)
def test_the_rate_is_chosen_on_the_tuning_seed(what):
    tuned, name = read_published(TUNED), "recovery_learning_rate"
    found = [r for r in tuned if r.case.params.get("pruning", "nothing") == what]
    assert preferred_rate(found, name, COLLAPSED) == page.RATE
