"""ResNet-18 by its known size, kernels counted by hand, and one compiled cell from end to end.

What the page reads from its records is checked on made ones, whose times are known.
"""

import dataclasses
import re
import shutil

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments import lab4_attention, lab4_compile
from madl.execution import compiling
from madl.execution.compiled import DEFAULT, cell_rows, pair
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Pending, Record, Records, Store
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.training import models
from madl.training.resnet import NUM_PARAMETERS, ResNet18
from tests.conftest import a_record
from tests.synthetic import a_measurement


def test_resnet_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in ResNet18().parameters()) == NUM_PARAMETERS == 11_689_512


def test_resnet_has_the_published_shapes_and_arithmetic():
    model = ResNet18().eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        out = model(images)
        stem = model.stem(images)
        stages = [stem.shape]
        for stage in model.stages:
            stem = stage(stem)
            stages.append(stem.shape)
    assert out.shape == (1, 1000)
    assert [tuple(s[1:]) for s in stages] == [
        *((64, 56, 56), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7)),
    ]
    model_flops = counter.get_total_flops() / 2
    assert model_flops == pytest.approx(3.63e9, rel=0.01)  # twice 1.81 G multiply-adds


def test_resnet_ends_in_a_mean_over_pixels():
    model = ResNet18(num_classes=3).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        features = model.stages(model.stem(images))
        assert torch.allclose(model(images), model.head(features.flatten(2).mean(-1)), atol=1e-5)


def test_operators_that_compute_are_counted_once():
    layer, x = nn.Linear(8, 4), torch.randn(3, 8)
    with torch.no_grad():
        found = compiling.kernels(lambda: torch.relu(layer(x)).transpose(0, 1) + 1, "cpu")
    assert found == {"linear": 1, "clamp_min": 1, "add": 1}  # the transpose moves nothing


def test_resnet_counts_as_many_convolutions_as_it_has():
    model, images = ResNet18().eval(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        found = compiling.kernels(lambda: model(images), "cpu")
    layers = [type(m).__name__ for m in model.modules()]
    assert found["convolution"] == layers.count("Conv2d") == 20
    assert found["native_batch_norm"] == layers.count("BatchNorm2d") == 20
    assert found["linear"] == 1


def test_generated_kernels_are_counted_in_the_code_that_calls_them(tmp_path):
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "wrapper.py").write_text(
        "cpp_fused_add_relu_0 = async_compile.cpp_pybinding(['float*'])\n"
        "def call(args):\n"
        "        cpp_fused_add_relu_0(buf0, buf1)\n"
        "        extern_kernels.addmm(a, b)\n"
        "        cpp_fused_add_relu_1(buf1, buf2)\n"
        "        cpp_fused_mean_2(buf2)\n"
    )
    found = compiling.generated_kernels(tmp_path)
    assert found == {"cpp_fused_add_relu": 2, "cpp_fused_mean": 1}


def test_shapes_recompile_as_the_mode_says():
    found = compiling.study_shapes({"threads": 1, "sizes": list(range(3, 15))})
    assert found["graphs"]["static"] == [*range(1, 9), 8, 8, 8, 8]
    assert found["graphs"]["automatic"] == [1] + [2] * 11
    assert found["graphs"]["dynamic"] == [1] * 12
    torch._dynamo.reset()


def test_a_value_in_python_breaks_the_graph():
    found = compiling.study_shapes({"threads": 1, "sizes": [3]})["breaks"]
    whole, *broken = found.values()
    assert (whole["graphs"], whole["breaks"]) == (1, 0)
    assert all(example["breaks"] >= 1 and example["why"] for example in broken)
    torch._dynamo.reset()


CELL = {
    **{
        "kind": "cell",
        "device": "cpu",
        "network": "resnet18",
        "batches": "2 3",
        "size": 64,
        "beside": "",
    },
    **{"threads": 1, "mode": "default", "budget_s": 0.0, "processes": 2},
}


def test_a_cell_in_fresh_processes_has_all_that_its_page_needs():
    found = compiling.study({**CELL, "backend": "aot_eager"})
    assert found["graphs"] == 1
    assert found["error"] <= compiling.TOLERANCE
    for batch in (2, 3):
        runs = found["measurements"][f"compiled {batch}"]
        assert len(runs) == 2
        for compiled in runs:
            assert compiled["first_call_s"] > compiled["samples_s"][0]
            assert compiled["subject"]["shape"] == f"{batch}×3×64×64"
            assert not compiled["subject"]["training"]
            assert compiled["compilations"] == 0


def test_the_way_into_compiled_code_is_timed_alone():
    found = compiling.study({"kind": "guards", "threads": 1, "budget_s": 0.0, "processes": 2})
    assert {name: len(runs) for name, runs in found["measurements"].items()} == {
        "eager": 2,
        "compiled": 2,
    }


def test_a_backend_that_fails_is_a_cell_that_says_so():
    found = compiling.study({**CELL, "backend": "no_such_backend"})
    assert "no_such_backend" in found["failed"]


def test_without_a_compiler_or_a_device_a_case_says_why(monkeypatch):
    cell = {"kind": "cell", "device": "cpu", "backend": "inductor"}
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in lab4_compile.unavailable(cell)
    assert lab4_compile.unavailable({**cell, "backend": "aot_eager"}) is None
    if not torch.cuda.is_available():
        assert "CUDA" in lab4_compile.unavailable({**cell, "device": "cuda"})
        assert "CUDA" in lab4_attention.page.why_unavailable({"device": "cuda"})


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_asks_for_both_devices(tmp_path, profile):
    plan = StoredPlan(Project(), Store(tmp_path), PROFILES[profile], {"model": "m", "dataset": "d"})
    for module in (lab4_compile, lab4_attention):
        cases = list(module.cases(plan))
        assert {case["device"] for case in cases if "device" in case} == {"cpu", "cuda"}
    if profile != "smoke":
        cells = [p for p in lab4_compile.cases(plan) if p["kind"] == "cell"]
        assert {p["network"] for p in cells} == {"resnet18", "bert"}
        assert "torch_tensorrt" in {p["backend"] for p in cells if p["device"] == "cuda"}


def a_cell(eager_ms: float, compiled_ms: float, *, contention: float = 0.0, **params) -> Record:
    """A compiled ResNet-18 with these medians in each of three processes.

    The first compiled call of the first process takes ten seconds.
    """

    def timed(median_ms: float, first_s: float) -> list[dict]:
        return [
            a_measurement(
                [median_ms / 1e3 * one * (1 + 1e-4 * process) for one in (1.0, 1.001, 0.999)],
                first_call_s=first_s,
                contention=contention,
            )
            for process in range(3)
        ]

    values = {"eager 1": timed(eager_ms, 0.0), "compiled 1": timed(compiled_ms, 10.0)}
    usual = {"kind": "cell", "network": "resnet18", "device": "cpu", "batches": "1"}
    case = Case(experiment="lab4_compile", params={**usual, **DEFAULT, **params})
    return dataclasses.replace(a_record(), case=case, values={"measurements": values})


def test_the_first_call_is_paid_for_by_what_later_calls_save():
    calls, (low, high) = pair(a_cell(20.0, 10.0)).calls_to_pay
    assert calls == pytest.approx(1000, rel=0.01)  # ten seconds at ten milliseconds a call
    assert low <= calls <= high


@pytest.mark.parametrize("cell", [a_cell(10.0, 10.0), a_cell(10.0, 20.0)])
def test_no_number_of_calls_pays_where_no_speed_up_is_shown(cell):
    assert pair(cell).calls_to_pay is None


def test_times_taken_on_a_crowded_machine_say_nothing():
    crowded = a_cell(20.0, 10.0, contention=0.5)
    assert pair(crowded).calls_to_pay is None
    assert lab4_compile.resnet_faster(Records([crowded])).p == 1.0


@pytest.mark.parametrize(("compiled", "agrees"), [(10.0, True), (40.0, False)])
def test_a_claim_of_speed_reads_both_outcomes(compiled, agrees):
    found = lab4_compile.resnet_faster(Records([a_cell(20.0, compiled)]))
    assert (found.agrees, found.p < 0.01) == (agrees, True)
    assert "(batch 1, CPU)" in found.supported
    assert "2 ×" in (found.supported if agrees else found.refuted)


def test_a_cell_whose_backend_failed_is_pending_and_a_row_that_says_why():
    failed = dataclasses.replace(a_cell(1.0, 1.0), values={"failed": "no such backend"})
    with pytest.raises(Pending):
        lab4_compile.resnet_faster(Records([failed]))
    rows = cell_rows(failed)[0]
    assert rows["first call"] == "no such backend"
    assert rows["speed-up"] == "–"


def test_a_naive_first_call_is_in_the_mean_and_shown_apart():
    naive = a_cell(20.0, 10.0, kind="naive")
    runs = naive.values["measurements"]
    for name, first in (("eager", 0.1), ("compiled", 10.0)):
        one = runs.pop(f"{name} 1")[0]
        runs[name] = {**one, "samples_s": [first, *[one["samples_s"][0]] * 4]}
    text = lab4_compile.naive_compiles(Records([naive, a_cell(20.0, 10.0)])).text
    assert re.search(r"takes 2,010 ms a call compiled", text)  # (10 s + 4 × 10 ms) / 5
    assert "the first call is the compilation, 99.6 % of the compiled time" in text  # 10 of 10.04 s
    assert "a call takes 10.0 ms compiled and 20.0 ms in eager mode" in text


def test_the_preset_with_random_weights_is_the_pretrained_one_in_shape():
    drawn = models.with_random_weights("all-MiniLM-L6-v2", seed=0)
    loaded = models.load_pretrained("all-MiniLM-L6-v2", seed=0)
    shapes = [{name: p.shape for name, p in one.named_parameters()} for one in (drawn, loaded)]
    assert shapes[0] == shapes[1]
    assert drawn.config.num_labels == loaded.config.num_labels == models.NUM_LABELS
