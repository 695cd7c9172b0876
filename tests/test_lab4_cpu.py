"""What the page of 4.3a counts and compares: on small real runs, and on times that are planted."""

import dataclasses

import pytest

from experiments import lab4_mxint8
from madl.logbook.charts import plain
from madl.logbook.claims import judge_family
from madl.logbook.records import Case, Record, Records
from tests.conftest import a_record

LAYER = {"what": "linear", "layer": "coursework", "in": 64, "out": 96, "budget_s": 0.0}


def record(params: dict, values) -> Record:
    return dataclasses.replace(
        a_record(), case=Case(experiment="lab4_mxint8", params=params), values=values
    )


def planted(times_as_fast: float, *, contention: float = 0.0) -> Records:
    """One row of inputs; MXINT8 is as much faster than every other, give or take a little."""
    noise = [1 + 0.01 * (i % 3) for i in range(40)]
    samples = {v: [1e-3 * n for n in noise] for v in lab4_mxint8.VARIANTS}
    samples["MXINT8"] = [1e-3 / times_as_fast * n for n in reversed(noise)]
    made = record({**LAYER, "rows": 1}, {"samples_s": samples})
    run = dataclasses.replace(made.run, contention=contention)
    return Records([dataclasses.replace(made, run=run)])


def verdict(name: str, records: Records) -> str:
    claim = lab4_mxint8.page.claims[name]
    return judge_family({name: claim}, {name: claim.test(records)}, {}, {})[name].verdict


@pytest.fixture(scope="module")
def layer() -> Records:
    cases = [{**LAYER, "rows": rows} for rows in (1, 8)]
    return Records([record(case, lab4_mxint8.run(case, None)) for case in cases])  # type: ignore[arg-type]


def test_a_layer_is_checked_and_timed_in_every_arithmetic(layer):
    for one in layer:
        assert set(one.values["samples_s"]) == set(one.values["error_db"])
        assert 30 < one.values["error_db"]["MXINT8"] < 45
        assert one.values["error_db"]["FP32"] > 100
    assert [row["rows"] for row in lab4_mxint8.speedup(layer).rows] == [1, 8]
    assert all(row["weight (MB)"] > 0 for row in lab4_mxint8.reading(layer))


def test_a_speed_up_is_the_other_s_time_over_ours():
    row = lab4_mxint8.speedup(planted(4.0)).rows[0]
    assert plain(row["FP32"]) == pytest.approx(4.0, rel=0.05)
    assert plain(row["torch's INT8"]) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(
    ("times_as_fast", "faster", "more_than_its_bytes"),
    [
        (8.0, "supported", "supported"),
        (2.0, "supported", "refuted"),
        (0.5, "refuted", "refuted"),
        (1.0, "undecided", "refuted"),
    ],
)
def test_what_is_planted_is_found(times_as_fast, faster, more_than_its_bytes):
    records = planted(times_as_fast)
    assert verdict("one_row_is_faster", records) == faster
    assert verdict("torch_int8_is_beaten_at_one_row", records) == faster
    assert verdict("bytes_are_not_all", records) == more_than_its_bytes


def test_a_contended_speedup_decides_nothing():
    assert verdict("one_row_is_faster", planted(8.0, contention=0.5)) == "undecided"
