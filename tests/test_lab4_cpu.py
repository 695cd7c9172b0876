"""What the pages of 4.3a and 4.3d count: checked on real runs, small ones."""

import dataclasses

import pytest

from madl.logbook.experiment import Case, Project
from madl.logbook.plans import StoredPlan
from madl.logbook.profiles import PROFILES
from madl.logbook.results import Records, Store
from tests.conftest import a_record

PROJECT = Project()
MEMORY, MXINT8 = PROJECT.load("lab4_memory"), PROJECT.load("lab4_mxint8")


def record(experiment: str, params: dict, values) -> object:
    return dataclasses.replace(
        a_record(), case=Case(experiment=experiment, params=params), values=values
    )


@pytest.fixture(scope="module")
def xlarge() -> Records:
    cases = [{"what": "ledger", "of": "DeBERTa-xlarge"}, {"what": "replay", "tokens": 10}]
    return Records([record("lab4_memory", case, MEMORY.run(case, None)) for case in cases])


def test_the_xlarge_model_is_counted_from_its_configuration(xlarge):
    values = xlarge[0].values
    assert values["ledger"]["num_packed"] == 48 * 14 * 2**20 + 2**20 + 6 * 1024
    assert values["ledger"]["num_parameters"] == 758_859_782
    assert values["largest_weight"] == 4 * 2**20
    claim = MEMORY.claims["fp32_is_the_parameters"](xlarge)
    assert claim.verdict == "supported"
    assert "2,894.8 MB" in claim.text
    assert MEMORY.claims["formula_has_four_bits"](xlarge).evidence.effect == pytest.approx(-0.125)


def test_each_reason_explains_a_part_of_what_the_formula_promises(xlarge):
    rows = MEMORY.tables["savings"](xlarge)
    saved = [float(row["saved"].rstrip("%")) for row in rows]
    *explained, reported = saved
    assert explained == sorted(explained, reverse=True)
    assert (saved[0], reported) == (86.7, 66.4)
    assert explained[-1] == pytest.approx(reported, abs=0.5)


def test_both_reported_peaks_are_predicted_to_a_hundredth(xlarge):
    reported = MEMORY.run.__globals__["REPORTED"]
    for kind, bytes_ in ((kind, xlarge[1].values[kind]["allocated_bytes"]) for kind in reported):
        assert bytes_ / 2**20 == pytest.approx(reported[kind], rel=0.005)
    assert MEMORY.claims["mxint8_is_accounted_for"](xlarge).verdict == "supported"


def test_the_formula_is_the_coursework_s():
    module = MEMORY.run.__globals__
    assert module["FORMULA"] == pytest.approx(0.8671875)
    assert module["MXINT8"] == pytest.approx(0.7421875)


@pytest.fixture(scope="module")
def layer() -> Records:
    base = {"what": "linear", "layer": "coursework", "in": 64, "out": 96, "budget_s": 0.0}
    cases = [{**base, "rows": rows} for rows in (1, 8)]
    return Records([record("lab4_mxint8", case, MXINT8.run(case, None)) for case in cases])


def test_a_layer_is_checked_and_timed_in_every_arithmetic(layer):
    for one in layer:
        assert set(one.values["samples_s"]) == set(one.values["error_db"])
        assert 30 < one.values["error_db"]["MXINT8"] < 45
        assert one.values["error_db"]["FP32"] > 100
    row = MXINT8.figures["speedup"].rows(layer)[0]
    assert row["over FP32 low"] <= row["over FP32"] <= row["over FP32 high"]


def test_a_contended_speedup_decides_nothing(layer):
    run = dataclasses.replace(layer[0].run, contention=0.5)
    busy = Records(dataclasses.replace(one, run=run) for one in layer)
    assert MXINT8.claims["one_row_is_faster"](busy).verdict == "undecided"


def test_cases_that_need_a_gpu_say_so():
    plan = StoredPlan(
        PROJECT, Store(PROJECT.state), PROFILES["quick"], {"model": "", "dataset": ""}
    )
    needing = [p for p in MEMORY.params(plan) if p["what"] == "cuda"]
    assert len(needing) == 1
    import torch

    if not torch.cuda.is_available():
        assert {MEMORY.unavailable(p) for p in needing} == {"no CUDA device"}
