"""What the page of 4.3a counts and compares: on small real runs, and on times that are planted."""

import dataclasses

import pytest

from experiments import lab4_mxint8
from madl.execution import arithmetic
from madl.logbook.charts import plain
from madl.logbook.claims import judge_family
from madl.logbook.records import Case, Record, Records
from tests.conftest import a_record
from tests.synthetic import a_measurement

LAYER = {"what": "linear", "layer": "coursework", "in": 64, "out": 96, "rows": "1 8"}


def record(params: dict, values) -> Record:
    return dataclasses.replace(
        a_record(), case=Case(experiment="lab4_mxint8", params=params), values=values
    )


def planted(times_as_fast: float, *, contention: float = 0.0) -> Records:
    """MXINT8 is as much faster than every other in three processes, give or take a little."""

    def runs(median_s: float, sign: int) -> list[dict]:
        return [
            a_measurement([median_s * (1 + 0.001 * sign * i)] * 3, contention=contention)
            for i in range(3)
        ]

    measured = {
        f"{v} {rows}": runs(1e-3 / times_as_fast, -1) if v == "MXINT8" else runs(1e-3, 1)
        for v in lab4_mxint8.VARIANTS
        for rows in (1, 8)
    }
    return Records([record(LAYER, {"measurements": measured})])


def verdict(name: str, records: Records) -> str:
    claim = lab4_mxint8.page.claims[name]
    return judge_family({name: claim}, {name: claim.test(records)}, {}, {})[name].verdict


def test_a_layer_is_checked_and_timed_in_every_arithmetic():
    case = {**LAYER, "budget_s": 0.0, "processes": 2}
    found = arithmetic.study(case)
    assert set(found["measurements"]) == {f"{v} {n}" for v in lab4_mxint8.VARIANTS for n in (1, 8)}
    assert {len(runs) for runs in found["measurements"].values()} == {2}
    for rows in (1, 8):
        errors = {v: found["error_db"][f"{v} {rows}"] for v in lab4_mxint8.VARIANTS}
        assert 30 < errors["MXINT8"] < 45
        assert min(errors["FP32"], errors["FP32, prepacked"]) > 100
        assert errors["BF16"] == pytest.approx(errors["BF16, prepacked"], abs=0.5)
    assert [row["rows"] for row in lab4_mxint8.speedup(Records([record(case, found)])).rows] == [
        1,
        8,
    ]


def test_a_speed_up_is_the_other_s_time_over_ours():
    row = lab4_mxint8.speedup(planted(4.0)).rows[0]
    assert plain(row["FP32"]) == pytest.approx(4.0, rel=0.05)
    assert plain(row["torch's INT8"]) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(
    ("times_as_fast", "found"), [(8.0, "supported"), (0.5, "refuted"), (1.0, "undecided")]
)
def test_what_is_planted_is_found(times_as_fast, found):
    records = planted(times_as_fast)
    assert verdict("one_row_is_faster", records) == found
    assert verdict("torch_int8_is_beaten_at_one_row", records) == found


def test_the_rival_is_the_faster_of_two():
    records = planted(2.0)
    runs = records[0].values["measurements"]
    runs["FP32, prepacked 1"] = runs["MXINT8 1"][::-1]
    assert lab4_mxint8.one_row_is_faster(records).supported.count("FP32, prepacked") == 1


def test_a_contended_speedup_decides_nothing():
    assert verdict("one_row_is_faster", planted(8.0, contention=0.5)) == "undecided"
