"""ResNet-18 by its known size, kernels counted by hand, and one compiled cell from end to end.

What the page reads from its records is checked on made ones, whose times are known.
"""

import dataclasses
import os
import shutil

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.lab4_attention import page as lab4_attention
from experiments.lab4_compile import page as lab4_compile
from experiments.lab4_compile import study
from experiments.lab4_compile.page import DEFAULT, naive, paid, pair
from experiments.lab4_compile.study import ResNet18
from madl.logbook.charts import interval_of, plain
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Failed, Pending, Record, Records, Store
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.training import models
from tests.conftest import a_record
from tests.synthetic import a_measurement


def test_resnet_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in ResNet18().parameters()) == 11_689_512  # with 1,000 classes


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
        found = study.kernels(lambda: torch.relu(layer(x)).transpose(0, 1) + 1, "cpu")
    assert found == {"linear": 1, "clamp_min": 1, "add": 1}  # the transpose moves nothing


def test_resnet_counts_as_many_convolutions_as_it_has():
    model, images = ResNet18().eval(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        found = study.kernels(lambda: model(images), "cpu")
    layers = [type(m).__name__ for m in model.modules()]
    assert found["convolution"] == layers.count("Conv2d") == 20
    assert found["native_batch_norm"] == layers.count("BatchNorm2d") == 20
    assert found["linear"] == 1


WRAPPER = (
    "# AOT ID: ['0_inference']\n"
    "cpp_fused_add_relu_0 = async_compile.cpp_pybinding(['float*'], '''\n"
    "    #pragma GCC ivdep\n"
    "''')\n"
    "def call(args):\n"
    "        # Source Nodes: [relu]\n"
    "        cpp_fused_add_relu_0(buf0, buf1)\n"
    "        extern_kernels.addmm(a, b)\n"
    "        cpp_fused_add_relu_1(buf1, buf2)\n"
    "        cpp_fused_mean_2(buf2)\n"
)


def written(folder, text):
    """What is told of the code that appears in the caches when this does."""
    known = study.wrappers(folder)
    (folder / f"{len(known)}.py").write_text(text)
    return study.generated(study.wrappers(folder) - known)


def test_generated_kernels_are_counted_in_the_code_that_calls_them(tmp_path):
    assert written(tmp_path, WRAPPER)["kernels"] == {"cpp_fused_add_relu": 2, "cpp_fused_mean": 1}
    assert study.generated([]) == {"kernels": {}, "code": None}


def test_code_is_equal_where_only_its_notes_differ(tmp_path):
    default = written(tmp_path, WRAPPER)["code"]
    noted = WRAPPER.replace("0_inference", "1_inference").replace("[relu]", "[inner]")
    assert written(tmp_path, noted)["code"] == default
    for other in ("#pragma omp simd", "#pragma GCC unroll"):
        assert written(tmp_path, WRAPPER.replace("#pragma GCC ivdep", other))["code"] != default
    assert written(tmp_path, WRAPPER.replace("(buf2)", "(buf0)"))["code"] != default


WAYS = ["compiled", "aot_eager", "reduce-overhead"]


def test_the_first_process_compiles_the_default_first():
    assert study.in_order(WAYS, 0) == ["eager", *WAYS]


def test_each_later_process_compiles_another_way_first_and_draws_the_rest(monkeypatch):
    ahead: dict[int, set[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for pid in range(100):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        for process in (1, 2, 3, 4):
            order = study.in_order(WAYS, process)
            assert sorted(order) == sorted(["eager", *WAYS])
            ahead.setdefault(process, set()).add(next(way for way in order if way != "eager"))
            seen.add(tuple(order))
    assert ahead == {1: {WAYS[0]}, 2: {WAYS[1]}, 3: {WAYS[2]}, 4: {WAYS[0]}}
    assert len(seen) == 24  # every order there is
    assert {order.index("eager") for order in seen} == {0, 1, 2, 3}


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
    found = study.study({**CELL, "backend": "aot_eager"})
    assert found["breaks"] == 0
    assert found["error"] <= study.TOLERANCE
    for batch in (2, 3):
        runs = found["measurements"][f"compiled {batch}"]
        assert len(runs) == 2
        for compiled in runs:
            assert compiled["first_call_s"] > compiled["samples_s"][0]
            assert compiled["subject"]["shape"] == f"{batch}×3×64×64"
            assert not compiled["subject"]["training"]
            assert compiled["compilations"] == 0
            assert compiled["compiled_before"] == 0


@pytest.mark.slow
def test_ways_beside_the_default_are_compiled_in_another_order_in_another_process():
    cell = {**CELL, "batches": "2", "size": 32, "backend": "aot_eager", "beside": "aot_eager"}
    found = study.study({**cell, "processes": 3})["measurements"]
    before = {name: [run["compiled_before"] for run in runs] for name, runs in found.items()}
    assert before["compiled 2"] == [0, 0, 1]
    assert before["aot_eager 2"] == [1, 1, 0]


def test_the_way_into_compiled_code_is_timed_alone():
    found = study.study({"kind": "guards", "threads": 1, "budget_s": 0.0})
    assert set(found["measurements"]) == {"eager", "compiled"}
    assert all(len(run["samples_s"]) >= 5 for run in found["measurements"].values())


def test_a_backend_that_fails_is_a_cell_that_says_so():
    found = study.study({**CELL, "backend": "no_such_backend", "processes": 1})
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

    The first compiled call of the first process takes ten seconds, of the second two; in the third,
    where two other ways are compiled before, one.
    """

    def timed(median_ms: float, first_s: tuple[float, ...]) -> list[dict]:
        return [
            a_measurement(
                [median_ms / 1e3 * one * (1 + 1e-4 * process) for one in (1.0, 1.001, 0.999)],
                first_call_s=first_s[process],
                contention=contention,
                compiled_before=2 if process == 2 else 0,
            )
            for process in range(3)
        ]

    values = {
        "eager 1": timed(eager_ms, (0.0, 0.0, 0.0)),
        "compiled 1": timed(compiled_ms, (10.0, 2.0, 1.0)),
    }
    usual = {"kind": "cell", "network": "resnet18", "device": "cpu", "batches": "1", "size": 224}
    case = Case(experiment="lab4_compile", params={**usual, **DEFAULT, **params})
    return dataclasses.replace(a_record(), case=case, values={"measurements": values})


def with_modes(codes: tuple[str, str, str], **ms: float) -> Record:
    """A cell of 20 ms eager and 10 compiled whose modes have this code and take these times."""
    record = a_cell(20.0, 10.0, beside="aot_eager reduce-overhead max-autotune")
    measured = dict(record.values["measurements"])
    for way in ("reduce-overhead", "max-autotune"):
        one = a_cell(20.0, ms.get(way.replace("-", "_"), 10.0)).values["measurements"]
        measured[f"{way} 1"] = one["compiled 1"]
    ways = dict(zip(("compiled", "reduce-overhead", "max-autotune"), codes))
    generated = {way: {"kernels": {"cpp_fused_relu": 3}, "code": c} for way, c in ways.items()}
    return dataclasses.replace(record, values={"measurements": measured, "generated": generated})


def test_the_first_call_is_paid_for_by_what_later_calls_save():
    calls, (low, high) = pair(a_cell(20.0, 10.0)).calls_to_pay
    assert calls == pytest.approx(1000, rel=0.01)  # ten seconds at ten milliseconds a call
    assert low <= calls <= high


@pytest.mark.parametrize("cell", [a_cell(10.0, 10.0), a_cell(10.0, 20.0)])
def test_no_number_of_calls_pays_where_no_speed_up_is_shown(cell):
    assert pair(cell).calls_to_pay is None


def test_the_preset_with_random_weights_is_the_pretrained_one_in_shape():
    drawn = models.with_random_weights("all-MiniLM-L6-v2", seed=0)
    loaded = models.load_pretrained("all-MiniLM-L6-v2", seed=0)
    shapes = [{name: p.shape for name, p in one.named_parameters()} for one in (drawn, loaded)]
    assert shapes[0] == shapes[1]
    assert drawn.config.num_labels == loaded.config.num_labels == models.NUM_LABELS


def test_the_control_is_two_modes_whose_code_is_equal():
    found = lab4_compile.equal_code(Records([with_modes(("a", "b", "b"))]))
    assert found.holds(found.comparison.effect)
    far = lab4_compile.equal_code(Records([with_modes(("a", "b", "b"), max_autotune=11.0)]))
    assert not far.holds(far.comparison.effect)
    with pytest.raises(Pending):
        lab4_compile.equal_code(Records([with_modes(("a", "b", "c"))]))


def test_generated_kernels_are_told_by_the_operators_in_their_names():
    kernels = {"cpp_fused_add_arange_ge_where": 2, "cpp_fused_arange": 1, "cpp_fused_gelu": 6}
    values = {"generated": {"compiled": {"kernels": kernels, "code": "a"}}}
    record = dataclasses.replace(a_cell(1.0, 1.0), values=values)
    assert lab4_compile.kernels(record, "arange", "where") == 2
    assert lab4_compile.kernels(record) == 9


def test_first_calls_with_filled_caches_are_those_before_which_nothing_was_compiled():
    assert pair(a_cell(20.0, 10.0)).cached_s == 2.0


def test_the_figure_crosses_where_the_table_says_that_it_pays():
    arms = pair(a_cell(20.0, 17.0))
    calls, (low, high) = arms.calls_to_pay
    assert paid(arms) == pytest.approx(calls, rel=0.05)
    assert plain(arms.total(round(calls))) == pytest.approx(1, abs=1e-3)
    assert interval_of(arms.total(round(low))).low == pytest.approx(1, abs=1e-3)
    assert interval_of(arms.total(round(high))).high == pytest.approx(1, abs=1e-3)


def test_times_taken_on_a_crowded_machine_say_nothing():
    crowded = a_cell(20.0, 10.0, contention=0.5)
    assert pair(crowded).calls_to_pay is None
    assert lab4_compile.resnet_faster(Records([crowded])).p_values() == (1.0, 1.0)


@pytest.mark.parametrize(("compiled", "side"), [(10.0, 0), (40.0, 1)])
def test_a_claim_of_speed_reads_both_outcomes(compiled, side):
    assert lab4_compile.resnet_faster(Records([a_cell(20.0, compiled)])).p_values()[side] < 0.01


def test_a_cell_whose_backend_failed_is_pending():
    failed = dataclasses.replace(a_cell(1.0, 1.0), values={"failed": "no such backend"})
    with pytest.raises(Failed, match="it failed on CPU: no such backend"):
        lab4_compile.resnet_faster(Records([failed]))


def test_a_naive_first_call_is_in_the_mean_and_shown_apart():
    made = a_cell(20.0, 10.0, kind="naive")
    runs = made.values["measurements"]
    one = runs.pop("compiled 1")[0]
    runs["compiled"] = {**one, "samples_s": [10.0, *[one["samples_s"][0]] * 4]}
    found = Records([made])
    assert naive(found, "compiled").value == pytest.approx(2008)  # (10 s + 4 × 10 ms) / 5
    assert naive(found, "compiled", skip=1).value == pytest.approx(10)
