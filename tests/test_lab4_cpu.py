"""What the page of 4.3a counts and compares: on small real runs, and on times that are planted."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from experiments.lab4_mxint8 import page as lab4_mxint8
from experiments.lab4_mxint8 import study
from madl.logbook.charts import plain
from madl.logbook.claims import judge
from madl.logbook.records import Case, Record, Records
from tests.conftest import a_record
from tests.synthetic import a_measurement

LAYER = {
    **{"what": "linear", "layer": "coursework", "in": 64, "out": 96, "rows": "1 8"},
    "processes": 3,
}


def record(params: dict, values) -> Record:
    return dataclasses.replace(
        a_record(), case=Case(experiment="lab4_mxint8", params=params), values=values
    )


def measured(times_as_fast: float, numbers: tuple[int, ...], *, contention: float = 0.0) -> dict:
    """MXINT8 is as much faster than every other in three processes, give or take a little."""

    def runs(median_s: float, sign: int) -> list[dict]:
        return [
            a_measurement([median_s * (1 + 0.001 * sign * i)] * 3, contention=contention)
            for i in range(3)
        ]

    found = {
        f"{v} {n}": runs(1e-3 / times_as_fast, -1) if v == "MXINT8" else runs(1e-3, 1)
        for v in lab4_mxint8.VARIANTS
        for n in numbers
    }
    return {"measurements": found}


def planted(times_as_fast: float, *, contention: float = 0.0) -> Records:
    """One layer, and the whole classifier."""
    layer = measured(times_as_fast, (1, 8), contention=contention)
    model = measured(times_as_fast, (1, 32), contention=contention)
    return Records([record(LAYER, layer), record({"what": "evaluation"}, model)])


def verdict(name: str, records: Records) -> str:
    claim = lab4_mxint8.page.claims[name]
    return judge({name: claim}, {name: claim.test(records)}, {}, {})[name].verdict


def test_a_layer_is_checked_and_timed_in_every_arithmetic():
    case = {**LAYER, "budget_s": 0.0, "processes": 2}
    found = study.study(case)
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


def test_a_peer_that_computes_something_else_costs_its_row_and_not_the_case(monkeypatch):
    """As torch's INT8 by oneDNN does on some machines."""
    wrong = lab4_mxint8.DYNAMIC + lab4_mxint8.ONEDNN
    prepared = study.prepared

    def made(layer, variant):
        found = prepared(layer, variant)
        return nn.Sequential(found, nn.ReLU()) if variant == wrong else found

    monkeypatch.setattr(study, "prepared", made)
    argument = {"in": 64, "out": 32, "rows": [4], "budget_s": 0.0}
    found = study.time_layer(argument)
    assert f"{wrong} 4" not in found["measurements"]
    assert f"{lab4_mxint8.MXINT8} 4" in found["measurements"]
    (said,) = found["failed_peers"].values()
    assert "dB from the exact product, at least 20 dB are needed" in said
    with pytest.raises(AssertionError):
        study._right({lab4_mxint8.MXINT8: 3.0}, "with 4 rows", "the exact product", {})


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


def test_an_engine_is_chosen_for_one_model_and_computes_the_same():
    torch.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(64, 32)), torch.randn(3, 64)
    before = torch.backends.quantized.engine
    by_default, by_onednn = (study.dynamic_int8(layer, one) for one in (None, "onednn"))
    assert torch.backends.quantized.engine == before
    torch.testing.assert_close(by_default(x), by_onednn(x))
    with pytest.raises(RuntimeError):
        study.dynamic_int8(layer, "nothing")
    assert torch.backends.quantized.engine == before


@pytest.mark.parametrize("kind", ["FP32", "BF16"])
def test_every_linear_inside_a_model_is_prepacked_and_gives_the_same(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Sequential(nn.Tanh(), nn.Linear(64, 16)))
    x = torch.randn(2, 5, 32).to(torch.bfloat16 if kind == "BF16" else torch.float32)
    with torch.inference_mode():
        packed = study.prepared(model, f"{kind}, prepacked")
        as_it_comes = study.prepared(model, kind)(x)
        for _ in range(2):
            assert study.error_db(packed(x), as_it_comes.double()) > 40
    assert not [m for m in packed.modules() if isinstance(m, nn.Linear)]
    inside = [m for m in packed.modules() if isinstance(m, study.Prepacked)]
    assert len(inside) == 2
    assert all(m.packed is not None and m.packed.is_mkldnn for m in inside)


def test_a_contended_speedup_decides_nothing():
    assert verdict("one_row_is_faster", planted(8.0, contention=0.5)) == "undecided"


def test_the_rival_is_the_faster_of_its_ways():
    records = planted(2.0)
    runs, whole = (one.values["measurements"] for one in records)
    assert lab4_mxint8.in_model(records, "BF16").comparison.effect == pytest.approx(
        math.log(2), rel=0.01
    )
    runs["BF16, prepacked 1"] = runs["MXINT8 1"][::-1]
    assert verdict("one_row_is_faster", records) == "undecided"
    assert lab4_mxint8.one_row_is_faster(records).b.label == "BF16, prepacked"
    whole["BF16, prepacked 32"] = [a_measurement([1e-4 * (1 + 0.001 * i)] * 3) for i in range(3)]
    assert lab4_mxint8.in_model(records, "BF16").comparison.effect < 0


def test_torch_s_int8_is_the_faster_of_its_engines_and_older_records_have_one():
    records = planted(2.0)
    runs = records[0].values["measurements"]
    runs["INT8, torch dynamic, oneDNN 1"] = runs["MXINT8 1"][::-1]
    assert lab4_mxint8.in_layer(records, "INT8, torch dynamic", 1).b.label.endswith("oneDNN")
    for name in [name for name in runs if "oneDNN" in name]:
        del runs[name]
    assert lab4_mxint8.in_layer(records, "INT8, torch dynamic", 1).b.label == "INT8, torch dynamic"
