"""The linter on every mistake, the naive timing as a real measurement, and the signs of contention.

Nothing here asserts how fast anything is.
"""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from madl.logbook.records import read_published
from madl.machine import fresh, lint, timing
from madl.running.project import Project
from tests.synthetic import DATA, a_measurement

GOOD = a_measurement([1.00, 1.01, 0.99, 1.00, 1.02, 1.00], first_call_s=9.0, contention=0.02)
SLOWER = {**GOOD, "samples_s": [2 * s for s in GOOD["samples_s"]]}


def changed(**changes):
    return {**GOOD, **changes}


def subject(**changes):
    return changed(subject={**GOOD["subject"], **changes})


def test_a_good_measurement_passes_and_an_effect_inside_the_spread_is_no_effect():
    assert lint.mistakes(GOOD, against=SLOWER) == []
    assert lint.mistakes(changed(calls_per_sample=7), against=SLOWER) == [lint.ALIKE]
    noisy = changed(samples_s=[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.1, 1.9])
    near = changed(samples_s=[1.2 * s for s in noisy["samples_s"]])
    assert lint.EFFECT in lint.mistakes(noisy, against=near)
    assert lint.EFFECT not in lint.mistakes(GOOD, against=SLOWER)
    assert lint.EFFECT not in lint.mistakes(GOOD, against=GOOD)  # the same, and clearly so
    assert lint.mistakes(GOOD) == [lint.EFFECT]  # nothing to compare with


@pytest.mark.parametrize(
    ("check", "record"),
    [
        ("synchronized", changed(device="cuda", unfinished=2)),
        ("synchronized", changed(device="cpu", result_on="cuda")),
        ("steady clock", changed(clock="time")),
        ("warm-up excluded", changed(warmup_s=[])),
        ("warm-up excluded", changed(samples_s=[9.0, *GOOD["samples_s"]])),
        ("compile time apart", changed(compilations=1)),
        ("compile time apart", changed(first_call_s=None)),
        ("evaluation mode", subject(training=True)),
        ("no gradient recorded", subject(records_gradient=True)),
        ("dtype and shape stated", subject(dtype="")),
        ("dtype and shape stated", subject(shape="")),
        ("interleaved", changed(turns=0)),
        ("enough samples", changed(samples_s=[1.0, 1.0, 1.0])),
        ("quiet machine", changed(contention=0.21)),
        ("quiet machine", changed(contention=None)),
    ],
)
def test_each_mistake_is_found_and_nothing_else(check, record):
    assert lint.mistakes(record, against=SLOWER) == [check]


class Norm(nn.Module):
    """Has a training mode and something to learn."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(64), nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(self.norm(x))


def test_the_naive_timing_is_flagged_the_right_one_is_not_and_compilations_are_counted():
    torch._dynamo.reset()
    x, model = torch.randn(256, 64), Norm().train()
    compiled = torch.compile(model, backend="aot_eager")
    wrong = timing.naive(lambda: compiled(x), device="cpu", calls=5)
    wrong = replace(wrong, subject=timing.observe(lambda: compiled(x), [x], module=model))
    found = lint.mistakes(json.loads(json.dumps(wrong.to_json())))
    assert {
        *("steady clock", "warm-up excluded", "compile time apart", "evaluation mode"),
        *("no gradient recorded", "interleaved"),
    } <= set(found)
    assert max(wrong.samples_s) == wrong.samples_s[0]  # the compilation is in the mean

    torch._dynamo.reset()
    model.eval()
    with torch.no_grad():
        fns = {"eager": lambda: model(x), "compiled": lambda: compiled(x)}
        subjects = {name: timing.observe(fns["eager"], [x], module=model) for name in fns}
        right = timing.compare(fns, budget_s=0.05, subjects=subjects)
    assert right["compiled"].first_call_s > right["compiled"].median_s
    found = set(lint.mistakes(right["compiled"].to_json()))
    about_the_machine = {"quiet machine", lint.EFFECT}
    if "quiet machine" in found:  # a straggler may come first
        about_the_machine.add("warm-up excluded")
    assert found <= about_the_machine
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="eager", dynamic=False)
    sizes = iter(range(2, 1000))
    with torch._dynamo.config.patch(recompile_limit=1000):
        measured = timing.compare(
            {"": lambda: compiled(torch.ones(next(sizes)))},
            budget_s=0.0,
            min_samples=5,
            min_sample_s=0.0,
        )[""]
    assert measured.compilations == 5
    assert "compile time apart" in lint.mistakes(measured.to_json())


@pytest.mark.parametrize("others", [0.0, 0.7])
def test_contention_is_of_the_process_and_the_same_for_all_that_took_turns(monkeypatch, others):
    meter = SimpleNamespace(share=lambda: others)
    monkeypatch.setattr(timing, "contention_meter", lambda device: meter)
    fns = {"steady": lambda: None, "late": lambda: time.sleep(next(pauses))}
    pauses = iter([0.001] * 3 + [0.001, 0.02] * 50)  # from the first sample on, every other is late
    measured = timing.compare(fns, budget_s=0.0, min_samples=20)
    assert measured["steady"].contention == measured["late"].contention > max(others - 0.1, 0.1)


def test_a_fresh_process_has_empty_caches_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "left").write_text("by an earlier run")
    found = [fresh.call("tests.in_fresh:look_around", {"x": 2}) for _ in range(2)]
    assert [answer["x"] for answer in found] == [2, 2]
    assert [answer["inside"] for answer in found] == [[], []]
    assert len({answer["cache"] for answer in found} | {str(tmp_path)}) == 3


@pytest.mark.parametrize("stem", ["lab4_compile", "lab4_attention", "lab4_mxint8"])
def test_what_tuning_chose_was_timed_on_the_processor_of_the_sittings(stem):
    used: dict[str, set[str | None]] = {}  # host → its processors
    for path in (DATA / f"{stem}_tuning.jsonl", DATA / f"{stem}.jsonl"):
        for record in read_published(path):
            is_timed = Project().load(stem).runs_alone(record.case.params)
            is_now = record.case.version == Project().load(stem).version
            if is_timed and is_now and (record.status, record.run.device) == ("ok", "cpu"):
                used.setdefault(record.run.host, set()).add(record.run.cpu)
    assert used
    assert all(len(processors) == 1 for processors in used.values()), used
