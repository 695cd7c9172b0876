"""What the page of 4.3a counts and compares: on small real runs, and on times that are planted."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from experiments.lab4_mxint8 import design, study
from experiments.lab4_mxint8 import page as lab4_mxint8
from madl.logbook.records import Pending, Record, Records
from madl.training import models
from tests.nulls import verdict
from tests.synthetic import a_measurement, kept_of

LAYER = {
    **{"what": "linear", "layer": "coursework", "in": 64, "out": 96, "rows": "1 8"},
    "rotated_mb": 0.2,
}
MODEL = {"what": "evaluation", "batches": "1 32", "length": 5}
PROCESSES = 3


def record(params: dict, values) -> Record:
    return kept_of("lab4_mxint8", values, **params)


def planted(fast: float, *, tuned: str = "BF16") -> Records:
    """A layer and a classifier: MXINT8 is so much faster than every other, by process or so.

    In the tuning sitting, this way of an arithmetic is the fastest.
    """

    def run(variant: str, process: int) -> dict:
        median_s = 1e-3 / fast if variant == "MXINT8" else 1e-3 * (1 + 0.002 * process)
        if process == design.TUNING:
            median_s = 1e-4 if variant == tuned else 1e-3
        return a_measurement([median_s] * 3)

    def sittings(*processes: int) -> list[Record]:
        works = (LAYER, ("1 cold", "8 cold", "1 warm", "8 warm")), (MODEL, ("1", "32"))
        return [
            record(
                {**of, "process": i},
                {"measurements": {f"{v} {n}": run(v, i) for v in design.VARIANTS for n in names}},
            )
            for i in processes
            for of, names in works
        ]

    confirming = range(design.TUNING + 1, design.TUNING + 1 + PROCESSES)
    return Records(sittings(*confirming), tuning=Records(sittings(design.TUNING)))


def test_a_layer_is_checked_and_timed_in_every_arithmetic():
    case = {**LAYER, "budget_s": 0.0, "process": 1}
    found = study.time_layer(case)
    left_out = set(found["failed_peers"])  # packed BF16, where the processor has no AVX-512
    every = {f"{v} {n}" for v in design.VARIANTS for n in (1, 8)}
    peers = ("packed", "oneDNN", "torchao")
    assert left_out <= {name for name in every if any(peer in name for peer in peers)}
    timed = {f"{name} {s}" for name in every - left_out for s in ("cold", "warm")}
    timed = {name for name in timed if (design.TORCHAO in name, "cold" in name) != (True, True)}
    assert set(found["measurements"]) == timed
    for rows in (1, 8):
        errors = {v: found["error_db"].get(f"{v} {rows}") for v in design.VARIANTS}
        assert 30 < errors["MXINT8"] < 45
        assert min(errors["FP32"], errors["FP32, prepacked"] or math.inf) > 100
        for packed in ("BF16, prepacked", design.PACKED):
            if errors[packed] is not None:
                assert errors["BF16"] == pytest.approx(errors[packed], abs=0.5)
        for state in ("cold", "warm"):
            of_one = [found["measurements"][f"{v} {rows} {state}"] for v in ("FP32", "MXINT8")]
            assert len({one["calls_per_sample"] for one in of_one}) == 1
    made = [record(case, found)]
    chart = lab4_mxint8.speedup(Records(made, tuning=Records(made)))
    assert [row["rows"] for row in chart.rows] == [1, 8, 1, 8]


def test_copies_leave_the_cache_and_take_turns_and_a_warm_call_comes_after_one():
    size = 384 * 1536
    one = size * sum(design.VALUE_BYTES[study.arithmetic_of(v)] for v in HERE)
    assert study.num_copies(size, 1000) * one >= 1000e6 > (study.num_copies(size, 1000) - 1) * one
    assert study.num_copies(size, 0.001) == 1
    turns = study.rotation([lambda i=i: i for i in range(3)])
    assert [turns() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    called: list[str] = []
    with study.warm_caches(lambda: called.append("before")):
        called.append("timed")
    assert called == ["before", "timed"]


class Tiny(nn.Module):
    config = SimpleNamespace(vocab_size=50)

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 64), nn.Linear(64, 32)

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=self.head(self.embed(input_ids).mean(1)))


@pytest.fixture
def cases(monkeypatch):
    """Runs a layer and a classifier, in this process; what is named computes the opposite, or fails
    like an operator that a processor does not have.
    """
    convert = study.convert
    monkeypatch.setattr(study, "variants", lambda: list(design.VARIANTS))

    def negated(module, inputs, y):
        return -y if isinstance(y, torch.Tensor) else SimpleNamespace(logits=-y.logits)

    def run(named: str, *, fails: bool = False) -> Records:
        def planted(model, variant):
            if variant == named and fails:
                raise RuntimeError("the bf16 path needs another processor\nat some place")
            found = convert(model, design.WAYS[study.arithmetic_of(variant)][0])  # which all have
            if variant == named:
                found.register_forward_hook(negated)
            return found

        monkeypatch.setattr(study, "convert", planted)
        timing = {"budget_s": 0.0, "process": 1}
        layer, model = {**LAYER, **timing}, {**MODEL, **timing, "checkpoint": ""}
        timed = (layer, study.time_layer(layer)), (model, study.time_model(model))
        made = [record(case, values) for case, values in timed]
        return Records(made, tuning=Records(made))

    monkeypatch.setattr(models, "load_checkpoint", lambda path: Tiny().eval())
    return run


BY_ONEDNN = design.ONEDNN
HERE = [v for v in design.VARIANTS if v != design.TORCHAO]  # installed where peers are timed
LAYERS = ("1 row, cold", "1 row, warm", "8 rows, warm")
MODELS = ("1 sentence", "32 sentences")


def why_not(records: Records) -> dict[tuple[str, str], str]:
    rows = lab4_mxint8.ways(records)
    assert [row[""] for row in rows] == list(design.VARIANTS)
    cells = {
        (str(row[""]), of): row[of]
        for row in rows
        for of in (*LAYERS, *MODELS)
        if row[""] != design.TORCHAO
    }
    return {at: cell for at, cell in cells.items() if isinstance(cell, str)}


def test_a_peer_that_fails_or_computes_something_else_costs_its_row_and_not_the_case(cases):
    """As on processors without AVX-512, or INT8 by oneDNN on some: its other form stands."""
    records = cases(BY_ONEDNN)
    found = why_not(records)
    assert set(found) == {(BY_ONEDNN, of) for of in (*LAYERS, *MODELS)}
    assert all("dB are needed" in text for text in found.values())
    rival = lab4_mxint8.speed(records, [design.INT8], lab4_mxint8.layer_work(1)).b.label
    assert rival in (design.DYNAMIC, design.TORCHAO)
    found = why_not(cases("BF16", fails=True))
    assert found["BF16", LAYERS[0]] == "the bf16 path needs another processor"
    assert "BF16 fails, so nothing can be held" in found["BF16, prepacked", MODELS[0]]
    assert "dB from FP32; at least 12 dB" in why_not(cases("BF16"))["BF16", MODELS[0]]
    assert ("BF16, prepacked", LAYERS[0]) not in found


@pytest.mark.parametrize("ours", [design.MXINT8, design.FP32])
def test_ours_that_computes_something_else_fails_the_case(cases, ours):
    with pytest.raises(study.WrongResult, match=f"{ours} is .* dB from the exact product"):
        cases(ours)


def test_the_rival_is_the_way_that_tuning_found_fastest():
    work = lab4_mxint8.model_work(32)
    assert lab4_mxint8.speed(planted(2.0), ["BF16"], work).comparison.effect == pytest.approx(
        math.log(2), rel=0.01
    )
    records = planted(2.0, tuned="BF16, prepacked")
    for i, one in enumerate(records):
        runs = one.values["measurements"]
        for name in {"BF16 1 cold", "BF16 32"} & runs.keys():  # faster now, which is not asked
            runs[name] = a_measurement([1e-4] * 3)
        if "BF16, prepacked 1 cold" in runs:
            runs["BF16, prepacked 1 cold"] = a_measurement([5e-4 * (1 + 0.001 * i)] * 3)
    found = lab4_mxint8.faster_from_memory(records)
    assert (verdict(found), found.b.label) == ("undecided", "BF16, prepacked")
    assert lab4_mxint8.speed(records, ["BF16"], work).b.label == "BF16, prepacked"
    with pytest.raises(Pending):
        lab4_mxint8.faster_from_memory(Records(records))
