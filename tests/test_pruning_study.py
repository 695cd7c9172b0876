"""Question 1.2: where it starts, what its study counts, and that its constants were chosen."""

from pathlib import Path

import pytest

from experiments.lab1_pruning import page
from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES, TUNING_SEED
from madl.logbook.records import Case, Record, Store, published_by_machine, read_published
from madl.running.plans import StoredPlan, published_plans
from madl.running.project import Project
from madl.training import workloads
from tests.conftest import a_record
from tests.synthetic import read

DATA = Path(__file__).parents[1] / "docs" / "data"
TUNED = DATA / f"{page.STEM}_tuning.jsonl"
FORMAT = {"operands": "both", "frac_width": 5, "input_frac_width": 2}


class Tuned:
    """A plan whose upstream tuning chose these."""

    def __init__(self, *records: Record) -> None:
        self.found = read(*records)

    def records(self, name):
        assert name == "lab1_quantization_tuning"
        return self.found


def sweep(width: int, loss: float) -> Record:
    params = {"method": "sweep", "operands": "both", "width": width}
    case = Case(experiment="lab1_quantization_tuning", params=params)
    return a_record(case=case, values={"weights": 5, "inputs": 2, "loss": loss})


def qat(width: int, loss: float, rate: float = 3e-5) -> Record:
    tuned = {"tune_examples": None, "tune_learning_rate": rate, "tune_batch_size": 16}
    params = {"method": "qat", "width": width, **FORMAT, **tuned}
    case = Case(experiment="lab1_quantization_tuning", params=params)
    return a_record(case=case, values={"validation_loss": loss})


def test_it_starts_from_the_narrowest_of_the_formats_that_validation_loss_ties():
    wide, tied, lossy = sweep(12, 0.3), sweep(8, 0.3 + page.TIE), sweep(6, 0.301 + page.TIE)
    found = page.start(Tuned(lossy, wide, tied, qat(6, 0.4)))
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
        rate = page.RATES[str(where.get("pruning", "nothing"))]
        assert {one["recovery_learning_rate"] for one in found} == {rate}
    assert TUNING_SEED not in {one["seed"] for one in cases}


# ---- what a case gives --------------------------------------------------------------------------


# ---- what the page makes of it ------------------------------------------------------------------


@pytest.mark.skipif(not TUNED.exists(), reason="the tuning seed's records are not published yet")
class TestChosenOnTheTuningSeed:
    @pytest.mark.parametrize("what", page.RATES)
    def test_rates(self, what):
        tuned = read_published(TUNED)
        found = [r for r in tuned if r.case.params.get("pruning", "nothing") == what]
        by_rate = sorted(
            (r.case.params["recovery_learning_rate"], r.values["validation_loss"]) for r in found
        )
        rates, losses = zip(*by_rate)
        best = losses.index(min(losses))
        if what == "random":  # trains as L1 does, which its own best has to tie
            assert page.RATES[what] == page.RATES["l1"]
            assert losses[rates.index(page.RATES[what])] <= losses[best] + page.TIE
        else:
            assert rates[best] == page.RATES[what]
        assert best < len(rates) - 1  # a worse neighbour above, and one below but at the lowest
        assert best > 0 or rates[0] == min(min(tried) for tried in page.TRIED.values())
