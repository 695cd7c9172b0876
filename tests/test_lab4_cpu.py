"""What the page of 4.3a counts and compares: on small real runs, and on times that are planted."""

import dataclasses
import re

import pytest
import torch
from torch import nn

from experiments.lab4_mxint8 import gpu_peers, linear_facts, linear_peers
from experiments.lab4_mxint8 import page as lab4_mxint8
from madl.execution import arithmetic, linear_times
from madl.logbook import benchmarks
from madl.logbook.charts import plain
from madl.logbook.claims import judge_family
from madl.logbook.records import Case, Record, Records
from tests.conftest import a_record
from tests.synthetic import a_measurement, model, published, read

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
        for v in linear_times.VARIANTS
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
    return judge_family({name: claim}, {name: claim.test(records)}, {}, {})[name].verdict


def test_a_layer_is_checked_and_timed_in_every_arithmetic():
    case = {**LAYER, "budget_s": 0.0, "processes": 2}
    found = arithmetic.study(case)
    assert set(found["measurements"]) == {f"{v} {n}" for v in linear_times.VARIANTS for n in (1, 8)}
    assert {len(runs) for runs in found["measurements"].values()} == {2}
    for rows in (1, 8):
        errors = {v: found["error_db"][f"{v} {rows}"] for v in linear_times.VARIANTS}
        assert 30 < errors["MXINT8"] < 45
        assert min(errors["FP32"], errors["FP32, prepacked"]) > 100
        assert errors["BF16"] == pytest.approx(errors["BF16, prepacked"], abs=0.5)
    assert [row["rows"] for row in lab4_mxint8.speedup(Records([record(case, found)])).rows] == [
        1,
        8,
    ]


def test_a_peer_that_computes_something_else_costs_its_row_and_not_the_case(monkeypatch):
    """As torch's INT8 by oneDNN does on some machines."""
    wrong = linear_times.DYNAMIC + linear_times.ONEDNN
    prepared = arithmetic.prepared

    def made(layer, variant):
        found = prepared(layer, variant)
        return nn.Sequential(found, nn.ReLU()) if variant == wrong else found

    monkeypatch.setattr(arithmetic, "prepared", made)
    argument = {"in": 64, "out": 32, "rows": [4], "budget_s": 0.0}
    found = arithmetic.time_layer(argument)
    assert f"{wrong} 4" not in found["measurements"]
    assert f"{linear_times.MXINT8} 4" in found["measurements"]
    (said,) = found["failed_peers"].values()
    assert "dB from the exact product, at least 20 dB are needed" in said
    with pytest.raises(AssertionError):
        arithmetic._right({linear_times.MXINT8: 3.0}, "with 4 rows", "the exact product", {})


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
    assert lab4_mxint8.one_row_is_faster(records).supported.count("prepacked FP32") == 1


def test_the_rival_in_the_whole_classifier_is_the_faster_of_two_as_well():
    records = planted(2.0)
    assert verdict("bf16_is_beaten_in_the_model", records) == "supported"
    runs = records[1].values["measurements"]
    runs["BF16, prepacked 32"] = [a_measurement([1e-4 * (1 + 0.001 * i)] * 3) for i in range(3)]
    judged = lab4_mxint8.bf16_is_beaten_in_the_model(records)
    assert verdict("bf16_is_beaten_in_the_model", records) == "refuted"
    assert "the time of prepacked BF16 in the whole default classifier" in judged.refuted


def test_torch_s_int8_is_the_faster_of_its_engines_and_older_records_have_one():
    records = planted(2.0)
    runs = records[0].values["measurements"]
    runs["INT8, torch dynamic, oneDNN 1"] = runs["MXINT8 1"][::-1]
    claim = lab4_mxint8.torch_int8_is_beaten_at_one_row
    assert "torch's INT8 by oneDNN in a Linear" in claim(records).supported
    for name in [name for name in runs if "oneDNN" in name]:
        del runs[name]
    assert "as fast as torch's INT8 in a Linear" in claim(records).supported
    assert "torch's INT8 by oneDNN" not in lab4_mxint8.layer_rows(records)[0]


def test_an_engine_is_chosen_for_one_model_and_computes_the_same():
    torch.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(64, 32)), torch.randn(3, 64)
    before = torch.backends.quantized.engine
    by_default, by_onednn = (arithmetic.dynamic_int8(layer, one) for one in (None, "onednn"))
    assert torch.backends.quantized.engine == before
    torch.testing.assert_close(by_default(x), by_onednn(x))
    with pytest.raises(RuntimeError):
        arithmetic.dynamic_int8(layer, "nothing")
    assert torch.backends.quantized.engine == before


@pytest.mark.parametrize("kind", ["FP32", "BF16"])
def test_every_linear_inside_a_model_is_prepacked_and_gives_the_same(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Sequential(nn.Tanh(), nn.Linear(64, 16)))
    x = torch.randn(2, 5, 32).to(torch.bfloat16 if kind == "BF16" else torch.float32)
    with torch.inference_mode():
        packed = arithmetic.prepared(model, f"{kind}, prepacked")
        as_it_comes = arithmetic.prepared(model, kind)(x)
        for _ in range(2):
            assert arithmetic.error_db(packed(x), as_it_comes.double()) > 40
    assert not [m for m in packed.modules() if isinstance(m, nn.Linear)]
    inside = [m for m in packed.modules() if isinstance(m, arithmetic.Prepacked)]
    assert len(inside) == 2
    assert all(m.packed is not None and m.packed.is_mkldnn for m in inside)


def test_a_benchmark_that_came_out_the_other_way_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    names = ("MXINT8", "torch FP32", "torch BF16", "torch dynamic INT8")

    def timed(work: str, part: str, rows: int, *us: float) -> list[dict]:
        samples = {name: [[1e-6 * one]] for name, one in zip(names, us)}
        return [{"part": part, **row} for row in benchmarks.timed(work, samples, rows=rows)]

    rows = timed("64 → 96", "linear", 1, 10.0, 20.0, 20.0, 9.0)
    rows += timed("64 → 96", "linear", 8, 10.0, 20.0, 20.0, 20.0)
    rows += timed("evaluation", "model", 32, 10.0, 20.0, 9.5, 20.0)
    code = {"part": "code", "commit": "abc123", "kernel": "amx"}
    run = {"machine": "one", "peers": (), "contention": 0.0}
    benchmarks.publish("mxint8", [*rows, code], **run)

    (layer, classifier) = planted(2.0)
    small = record({**LAYER, "layer": "default", "in": 8}, layer.values)
    records = Records([layer, small, classifier])
    said = linear_peers.disagreements(records).text
    assert "decide 9 of the 9 comparisons" in said
    assert said.startswith("Both the benchmark of another machine (one) and the page's own records")
    as_bytes = "torch's INT8, 64 → 96 with 1 row (2 × in the page's records, 0.9 × in the "
    as_floats = "BF16, whole classifier, batch of 32 (2 × in the page's records, 0.95 ×"
    assert f"side of 1 × in 2 of them: {as_bytes}benchmark); {as_floats}" in said
    assert "with 1 row torch dynamic INT8 (MXINT8 is 0.9 × as fast as it)" in (
        linear_peers.nearest_peers(Records([layer])).text
    )
    assert [row[" "] for row in linear_peers.code_rows()] == ["abc123", "amx"]

    for disturbed in layer.values["measurements"]["INT8, torch dynamic 1"]:
        disturbed["contention"] = 0.5
    said = linear_peers.disagreements(records).text
    assert "decide 8 of the 9 comparisons" in said
    assert f"side of 1 × in 1 of them: {as_floats}" in said

    benchmarks.publish(
        "mxint8",
        [*rows[4:8], *timed("evaluation", "model", 32, 10.0, 20.0, 20.0, 20.0)],
        **{**run, "machine": layer.run.host},
    )
    said = linear_peers.disagreements(records).text
    assert said.startswith("Both the benchmark and the page's own records")
    assert said.endswith("in none of them")
    assert [row[" "] for row in linear_peers.code_rows()] == ["not kept", "not kept"]


def units() -> list[Record]:
    """Every unit's gates, and its simulation in the quick profile."""
    kept = published("lab4_hardware")
    return [one for one in kept if one.case.params.get("rows", 256) == 256]


def test_a_gpu_s_kernels_stand_beside_their_peers_and_not_run_where_there_was_none(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    assert gpu_peers.gpu_kernels(Records([])) == [gpu_peers.NOT_RUN]
    assert gpu_peers.gpu_run(Records([])).text.startswith("No GPU has run these kernels here")

    def a_row(work, variant, speed, baseline="cuBLAS"):
        return {"work": work, "variant": variant, "baseline": baseline, "speed": speed}

    linear = [f"linear bfloat16, {rows} × 64 by 64 × 32" for rows in (1, 4)]
    rows = [
        {"work": "check", "path": "nvcc", "wrong_codes": 0},
        *(a_row(work, "cuBLAS", 1.0) for work in linear),
        *(a_row(work, "ours, nvcc", 1.8) for work in linear),
        a_row(linear[1], "ours, torch", 0.3),
        a_row("dequantize 16 Mi elements, groups of 32", "ours, CuTe tile", 0.9, "copy"),
    ]
    known = {
        "machine": "a GPU",
        "peers": ("torch",),
        "contention": None,
        "not_run": {"GemLite": "why"},
    }
    benchmarks.publish("mxint8_cuda", rows, **known, folder=tmp_path)
    one, four, decoded = gpu_peers.gpu_kernels(Records([]))
    assert one.keys() == four.keys() == decoded.keys()
    assert one["on a GPU"] == "linear bfloat16, 1 × 64 by 64 × 32"
    assert [one["MXINT8, nvcc"], one["MXINT8, torch"], one["MXINT8, CuTe tile"]] == [
        "1.8 ×",
        "–",
        "–",
    ]
    assert four["MXINT8, torch"] == "0.3 ×"
    assert (decoded["MXINT8, CuTe tile"], decoded["beside"]) == ("0.9 ×", "a copy of as many bytes")
    said = gpu_peers.gpu_run(Records([]))
    assert said.text == f"Run on a GPU with torch {torch.__version__}; not run there: GemLite (why)"


def test_the_gates_are_given_as_a_range_over_pipelines():
    fact = lab4_mxint8.page.facts["fewer_gates"](Records(units()))
    assert "1.11 to 1.22 times" in fact.text
    assert "0 unlike those computed in Python" in fact.of
    floats = lab4_mxint8.page.facts["floats_as_exact"](Records(units())).text
    times = r"[\d.]+ to [\d.]+ times"
    assert re.search(r"FP13-e8m4 \([\d.]+ dB\) and FP14-e8m5 \([\d.]+ dB\) come nearest", floats)
    assert re.search(rf"they take {times} and {times} as many .*, {times} and {times} wh", floats)


def test_a_contended_speedup_decides_nothing():
    assert verdict("one_row_is_faster", planted(8.0, contention=0.5)) == "undecided"


def test_a_unit_that_was_not_simulated_has_no_exactness():
    def is_simulated_fp32(one: Record) -> bool:
        return one.case.params["kind"] == "simulation" and one.case.params.get("mantissa") == 23

    rows = linear_facts.gate_rows(Records(one for one in units() if not is_simulated_fp32(one)))
    exact = {row["unit"]: row["signal to error (dB)"] for row in rows}
    assert exact["FP32 × FP32, FP32 adders"] == "not simulated"
    assert exact["bf16 × bf16"] > exact["MXINT8 × MXINT8"] > 30


def with_fast_prepacked_bf16() -> Records:
    """Both layers, with many rows: ten times as fast as BF16 as it comes, five times as MXINT8."""
    layer = planted(2.0)[0]
    fast = [a_measurement([1e-4 * (1 + 0.001 * i)] * 3) for i in range(3)]
    layer.values["measurements"]["BF16, prepacked 8"] = fast
    return Records([layer, record({**LAYER, "layer": "default", "in": 8}, layer.values)])


def test_few_and_many_rows_are_set_beside_the_faster_of_two():
    records = with_fast_prepacked_bf16()
    few, many = linear_facts.few_and_many_rows(records).text.split(";")[:2]
    assert few.endswith("as fast as BF16")
    beside = r"with 8 rows 2\S* × .* FP32 and 0\.2\S* × \[.*\] as fast as prepacked BF16"
    assert re.search(beside, many)
    assert linear_facts.most_rows_beside_bf16(records).text.count("as fast as prepacked BF16") == 2
    assert "BF16 is 1 to 10.0 × as fast" in linear_peers.prepacked_bf16(records).text


def test_times_beside_other_work_are_said_to_decide_nothing():
    busy, quiet = (linear_facts.few_and_many_rows(planted(2.0, contention=c)) for c in (0.5, 0.0))
    assert busy.text.count("(undecided for want of a quiet machine)") == 4
    assert "undecided" not in quiet.text


def test_an_accuracy_is_given_to_a_hundredth_of_a_point_and_an_error_of_one_layer():
    errors = {f"{v} {n}": 36.0 for v in linear_times.VARIANTS for n in (1, 8)}
    judged = read(
        model(1704, params={"what": "accuracy", "variant": "MXINT8"}),
        model(1700, params={"method": "fp32"}),
    )
    records = Records([record(LAYER, {"error_db": errors}), *judged])
    rows = {row["arithmetic"]: row for row in lab4_mxint8.accuracy(records)}
    assert rows["MXINT8"]["test accuracy"] == "85.20 %"
    assert rows["MXINT8"]["against FP32"].startswith("+0.20 points [")
    assert rows["MXINT8"]["one layer, 8 rows: signal to error (dB)"] == 36.0
    assert rows["FP32"]["against FP32"] == "the reference"
    assert rows["BF16"]["test accuracy"] is None
    assert "(+0.20 points [" in lab4_mxint8.accuracy_stays(records).supported
