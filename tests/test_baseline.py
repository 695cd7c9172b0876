"""The starting point: how its passes are chosen, and on which seeds it is judged."""

from types import SimpleNamespace

from experiments.baseline import page
from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES, TUNING_SEED
from madl.logbook.records import read_published
from madl.training import baseline, workloads
from tests.synthetic import DATA

TUNED = DATA / "baseline_tuning.jsonl"


def planned(profile, **workload):
    workload = workloads.resolve("snippets", **{"model": None, "dataset": None, **workload})
    plan = SimpleNamespace(
        profile=PROFILES[profile], seeds=CONFIRMING_SEEDS, workload=workload.params()
    )
    return list(page.tuning(plan)), list(page.cases(plan))


def test_one_recipe_is_judged_on_the_confirming_seeds_and_chosen_on_another():
    tuning, cases = planned("full")
    assert {case["seed"] for case in tuning} == {TUNING_SEED}
    assert sorted(case["epochs"] for case in tuning) == [1, 2, 3]
    assert [case["seed"] for case in cases] == list(CONFIRMING_SEEDS)
    assert {case["epochs"] for case in cases} == {baseline.PASSES}
    least = min(read_published(TUNED), key=lambda record: record.values["validation_loss"])
    assert least.case.params["epochs"] == baseline.PASSES


def test_what_chooses_sees_no_test_sentence(tiny_model, tiny_dataset, ctx):
    tuning, cases = planned("smoke", model=str(tiny_model), dataset=str(tiny_dataset))
    chooses, judged = page.run(tuning[0], ctx), page.run(cases[0], ctx)
    assert "validation_loss" in chooses
    assert "outcomes" in judged
    assert chooses.keys() < judged.keys()
    assert not {"outcomes", "accuracy", "loss"} & chooses.keys()
