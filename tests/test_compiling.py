"""ResNet-18 by its known size, its forms and ways held against it, parts of a call; made-up times.

What the page reads from its records is checked on made ones, whose times are known.
"""

import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.lab4_compile import page as lab4_compile
from experiments.lab4_compile import study
from experiments.lab4_compile.design import (
    BUILT,
    CPU,
    EAGER,
    FROZEN,
    LAB_BATCH,
    SITTINGS,
    TUNED,
)
from experiments.lab4_compile.page import calls_to_pay, pair, timed_params, ways_params
from experiments.lab4_compile.study import ResNet18
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Failed, Pending, Record, Records
from madl.training import models
from tests.nulls import verdict
from tests.synthetic import a_measurement, kept_of, samples


def test_resnet_has_the_published_shapes_and_arithmetic():
    model = ResNet18().eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        assert model(images).shape == (1, 1000)
    assert counter.get_total_flops() == pytest.approx(3.63e9, rel=0.01)  # 1.81 G multiply-adds


SMALL = {"device": "cpu", "network": "resnet18", "batch": 2, "size": 64}
SMALL |= {"threads": 1, "budget_s": 0.0, "process": 1, "built": "aot_eager/plain"}


@pytest.mark.parametrize("form", ["channels_last", "folded", "both"])
def test_each_form_computes_what_the_network_does(form):
    torch.manual_seed(0)
    model, inputs = study.network_of(SMALL)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # an untrained norm does next to nothing
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    with torch.no_grad():
        expected = model(*inputs)
        made, arranged = study.FORMS[form](model, list(inputs))
        assert torch.allclose(made(*arranged), expected, rtol=1e-4, atol=1e-4)
    norms = [m for m in made.modules() if isinstance(m, nn.BatchNorm2d)]
    assert bool(norms) == (form == "channels_last")
    last = arranged[0].is_contiguous(memory_format=torch.channels_last)
    assert last == (form != "folded")


def test_ways_take_turns_and_one_that_fails_says_why():
    ways = f"{EAGER} eager/folded aot_eager/plain no_such_backend/plain"
    found = study.measure({**SMALL, "ways": ways})
    assert found["missing"].keys() == {"no_such_backend/plain"}
    assert "no_such_backend" in found["missing"]["no_such_backend/plain"]
    runs = found["measurements"]
    assert runs.keys() == {EAGER, "eager/folded", "aot_eager/plain"}
    assert len({run["calls_per_sample"] for run in runs.values()}) == 1
    for run in runs.values():
        assert run["turns"] > 0
        assert run["compilations"] == 0
        assert run["subject"]["shape"] == "2×3×64×64"
        assert not run["subject"]["training"]
    compiled = runs["aot_eager/plain"]
    assert compiled["first_call_s"] > compiled["samples_s"][0]


def test_a_way_whose_output_is_off_or_that_runs_as_it_is_is_left_out(monkeypatch):
    monkeypatch.setitem(study.FORMS, "folded", lambda model, inputs: (model, [inputs[0] + 1]))
    monkeypatch.setattr(study, "compile_module", lambda module, *_: module)
    found = study.measure({**SMALL, "ways": f"{EAGER} eager/folded aot_eager/plain"})
    assert "off" in found["missing"]["eager/folded"]
    assert "made no graph" in found["missing"]["aot_eager/plain"]
    assert found["measurements"].keys() == {EAGER}


def test_ways_are_called_first_in_an_order_of_their_process(monkeypatch):
    monkeypatch.setattr(study, "network_of", lambda _: (nn.Identity(), []))
    ways = " ".join((EAGER, "eager/folded", "cudagraphs/plain", "aot_eager/plain"))
    orders = [list(study.execution_modes({**SMALL, "ways": ways, "process": k})) for k in range(8)]
    assert {order[0] for order in orders} > {EAGER}
    assert orders == [
        list(study.execution_modes({**SMALL, "ways": ways, "process": k})) for k in range(8)
    ]


@pytest.mark.slow
def test_all_ways_by_the_compiler_with_parts_and_a_first_call_from_filled_caches():
    ways = f"{EAGER} {BUILT} frozen/plain"
    params = {**SMALL, "kind": "parts", "size": 32, "built": BUILT, "ways": ways}
    found = study.run(params, None)  # type: ignore[arg-type]
    assert found["missing"] == {}
    assert 0 < found["cached_s"] < found["measurements"][BUILT]["first_call_s"]
    assert found["parts"][BUILT]["seconds"]["generated"] > 0


def test_without_a_compiler_a_case_says_why(monkeypatch):
    case = {"kind": "time", "device": "cpu", "built": BUILT}
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in lab4_compile.unavailable(case)
    assert lab4_compile.unavailable({**case, "built": "aot_eager/plain"}) is None


def a_case(ms: dict[str, float], process: int, where: dict, *, contention: float = 0.0) -> Record:
    """Ways that took these times; the first call of what is compiled takes ten seconds."""
    runs = {
        way: a_measurement(
            samples(one / 1e3, seed=process + 10 * i),
            first_call_s=0.0 if way.startswith("eager/") else 10.0,
            contention=contention,
        )
        for i, (way, one) in enumerate(ms.items())
    }
    values = {"measurements": runs, "missing": {}}
    return kept_of("lab4_compile", values, **where, process=process, ways=" ".join(ms))


FAST, LAB = FROZEN, LAB_BATCH
MS = {EAGER: 20.0, "eager/channels_last": 16.0, "eager/folded": 18.0, "eager/both": 15.0}
MS |= {BUILT: 12.0, FAST: 10.0}


def read(ms: dict[str, float], *, tuned: dict[str, float] | None = None, **more) -> Records:
    tuning = Records([a_case(tuned or MS, 0, ways_params("resnet18", LAB))])
    own = [a_case(ms, i, timed_params("resnet18", LAB), **more) for i in (1, 2, 3, 4, 5, 6)]
    return Records(own, tuning=tuning)


def test_the_rival_is_the_eager_form_that_tuning_found_fastest_or_pending():
    found = lab4_compile.resnet_faster(read(MS))
    assert found.b.label == lab4_compile.way_title("eager/both")
    assert len(found.comparison.by_unit) == 6
    assert verdict(found) == "supported"
    assert verdict(lab4_compile.resnet_faster(read({**MS, "eager/both": 5.0}))) == "refuted"
    other = lab4_compile.resnet_faster(read(MS, tuned={**MS, "eager/channels_last": 9.0}))
    assert other.b.label == lab4_compile.way_title("eager/channels_last")
    other = lab4_compile.resnet_faster(read(MS, tuned={**MS, BUILT: 5.0}))
    assert other.a.label == lab4_compile.way_title(BUILT)
    r = read(MS)
    for record in r:
        record.values["missing"][FAST] = "no such backend"
    with pytest.raises(Failed, match="failed on CPU: no such backend"):
        lab4_compile.resnet_faster(r)
    with pytest.raises(Pending):
        lab4_compile.resnet_faster(Records(r))  # without tuning


def test_the_first_call_is_paid_for_by_what_later_calls_save():
    where = timed_params("resnet18", LAB)
    calls, least, most = calls_to_pay(*pair(read(MS), FAST, **where), 10.0) or ()
    assert calls == pytest.approx(1000, rel=0.02)  # ten seconds at ten milliseconds a call
    assert least < calls < most
    for slow_or_crowded in (read({**MS, FAST: 20.0}), read(MS, contention=0.5)):
        assert calls_to_pay(*pair(slow_or_crowded, FAST, **where), 10.0) is None
    assert lab4_compile.resnet_faster(read(MS, contention=0.5)).p_values() == (1.0, 1.0)


def a_loop(sitting: int, slow: float = 0.009) -> Record:
    """A sitting of the course's loop, in which compiling takes ten seconds."""
    seconds = {"compiled, training": [10.0, *[slow + 1e-5 * sitting] * 4]}
    seconds |= {"eager, training": [0.02, *[0.01] * 4]}
    runs = {name: a_measurement(samples_s) for name, samples_s in seconds.items()}
    where = {"kind": "naive", "device": "cpu", "network": "resnet18", "batch": LAB}
    return kept_of("lab4_compile", {"measurements": runs}, **where, process=sitting)


def test_the_first_call_is_in_a_naive_mean_and_past_it_sittings_decide():
    r = Records(map(a_loop, (1, 2, 3, 4, 5, 6)))
    assert lab4_compile.naive(r, "compiled").value == pytest.approx(2.01)  # (10 s + 4 × 9 ms) / 5
    found = lab4_compile.pays_past_the_first_call(r)
    assert len(found.comparison.by_unit) == 6
    assert verdict(found) == "supported"
    assert math.exp(found.comparison.effect) == pytest.approx(10 / 9, rel=0.01)
    assert verdict(lab4_compile.loop_ratio(r)) == "refuted"  # with it
    slower = Records(a_loop(sitting, 0.012) for sitting in (1, 2, 3, 4, 5, 6))
    assert verdict(lab4_compile.pays_past_the_first_call(slower)) == "refuted"


def test_a_setting_has_its_data_type_and_cores():
    tuned = Records([a_case(MS, 0, ways_params(*of)) for of in TUNED])
    plan = SimpleNamespace(
        profile=PROFILES["full"], workload={"model": "m"}, records=lambda name: tuned
    )
    by_setting: dict = {}
    for case in lab4_compile.cases(plan):
        if case["device"] == "cpu" and case["kind"] == "time":
            where = {name: case[name] for name in timed_params("")}
            assert case["ways"].split()[:3] == [EAGER, BUILT, FROZEN]
            is_tuned = (case["dtype"], case["cores"]) == ("float32", "all")
            assert ("eager/both" in case["ways"]) == is_tuned
            by_setting.setdefault(tuple(where.items()), []).append(case["process"])
    assert set(map(tuple, by_setting.values())) == {SITTINGS}
    assert len(by_setting) == len(CPU)
    small = {**SMALL, "dtype": "bfloat16", "cores": "one"}
    model, inputs = study.network_of(small)
    assert {p.dtype for p in model.parameters()} == {inputs[0].dtype} == {torch.bfloat16}
    found = study.run({"kind": "time", **small, "ways": f"{EAGER} aot_eager/plain"}, None)  # type: ignore[arg-type]
    assert found["missing"] == {}
    assert {run["threads"] for run in found["measurements"].values()} == {1}


def test_the_preset_with_random_weights_is_the_pretrained_one_in_shape():
    drawn = models.with_random_weights("all-MiniLM-L6-v2", seed=0)
    loaded = models.load_pretrained("all-MiniLM-L6-v2", seed=0)
    shapes = [{name: p.shape for name, p in one.named_parameters()} for one in (drawn, loaded)]
    assert shapes[0] == shapes[1]
    assert drawn.config.num_labels == loaded.config.num_labels == models.NUM_LABELS
