"""Every form of attention against float64, arithmetic counted by hand, memory and its limit.

What the page reads from its records is checked on made ones, whose times are known.
"""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from experiments import lab4_attention
from madl.execution import attention
from madl.execution.attention import MASKS, TOLERANCE, Problem
from madl.logbook.records import Case, Pending, Record, Records
from madl.machine import memory
from tests.conftest import a_record
from tests.synthetic import a_measurement

SMALL = {"batch": 2, "heads": 3, "length": 24, "head_dim": 16}
ON_CPU = ("naive", "math", "flash")


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("form", ON_CPU)
def test_every_form_agrees_with_float64(form, dtype, mask, backward):
    problem = Problem(**SMALL, dtype=dtype, mask=mask, backward=backward)
    expected = attention.outcome("naive", problem, "cpu", double=True)
    found = attention.outcome(form, problem, "cpu")
    assert attention.error(found, expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("mask", MASKS)
def test_the_reference_is_attention(mask):
    """By a loop over positions, which shares nothing with the formula under test."""
    problem = Problem(batch=1, heads=1, length=7, head_dim=4, dtype="float32", mask=mask)
    q, k, v = (t[0, 0].double() for t in attention.inputs(problem, "cpu"))
    found = attention.outcome("naive", problem, "cpu", double=True)[0, 0]
    hidden = int(attention.PADDED * 7)
    for i in range(7):
        last = {"none": 7, "causal": i + 1, "padding": 7 - hidden}[mask]
        weights = [float(torch.exp(q[i] @ k[j] / 4**0.5)) for j in range(last)]
        row = sum(w * v[j] for j, w in enumerate(weights)) / sum(weights)
        assert torch.allclose(found[i], row)


def test_ones_pass_at_any_scale_and_random_inputs_do_not():
    for by_input in attention.scale_errors(32, 16).values():
        assert by_input["all ones"] < 1e-6
        assert by_input["random"] > 0.1


def test_work_is_counted_as_by_hand():
    # B = 2, H = 3, T = 4, D = 5: q k^T is 2·3·4·4·5 = 480 multiply-adds, and so is p v
    one = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32")
    assert one.flops == 2 * 480 * 2
    causal = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32", mask="causal")
    assert causal.flops == 2 * 2 * (2 * 3 * 10 * 5)  # 1 + 2 + 3 + 4 pairs
    both = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float32", backward=True)
    assert both.flops == 3 * one.flops


def test_traffic_is_counted_as_by_hand():
    one = Problem(batch=2, heads=3, length=4, head_dim=5, dtype="float16")
    assert one.tensor_bytes == 2 * 3 * 4 * 5 * 2
    assert one.score_bytes == 2 * 3 * 4 * 4 * 2


def test_the_profiler_counts_the_same_products():
    problem = Problem(**SMALL, dtype="float32")
    with FlopCounterMode(display=False) as counter:
        attention.call("naive", problem, "cpu")()
    assert counter.get_total_flops() == problem.flops


def test_peak_memory_is_what_the_formula_holds():
    """Two matrices of scores at once, and the scaled queries or the output beside them."""
    problem = Problem(batch=1, heads=2, length=512, head_dim=16, dtype="float32")
    naive = memory.peak_bytes(attention.call("naive", problem, "cpu"), "cpu")
    assert 2 * problem.score_bytes <= naive <= 2 * problem.score_bytes + 2 * problem.tensor_bytes
    with attention.only("flash"):
        work = attention.call("flash", problem, "cpu")
        assert memory.peak_bytes(work, "cpu") < problem.score_bytes


def test_peak_memory_is_the_most_held_at_once():
    def work():
        a = torch.ones(1000, dtype=torch.uint8)
        del a
        b = torch.ones(3000, dtype=torch.uint8)
        c = torch.ones(2000, dtype=torch.uint8)
        return b, c

    assert 5000 <= memory.peak_bytes(work, "cpu") < 5400  # not 6,000: `a` was freed


LIMITS = {"device": "cpu", "limit_gb": 1.0, "limit_s": 60.0, "budget_s": 0.0}


def test_out_of_memory_is_a_cell_and_the_rest_goes_on():
    shape = {"batch": 1, "heads": 4, "head_dim": 16, "dtype": "float32", "lengths": [64, 4096]}
    found = attention.time_lengths({**LIMITS, **shape, "limit_gb": 0.19})
    assert found["missing"]["naive 4096"] == attention.OUT_OF_MEMORY
    assert {"naive 64", "flash 64", "flash 4096"} <= set(found["measurements"])
    assert torch.ones(256 << 20, dtype=torch.uint8).sum() > 0  # the limit is gone again


def test_a_form_that_a_device_has_not_says_so():
    found = attention.time_lengths({**LIMITS, **SMALL, "dtype": "float32", "lengths": [24]})
    assert {"efficient 24", "cudnn 24"} == set(found["missing"])
    assert {"naive 24", "math 24", "flash 24"} == set(found["measurements"])


def test_a_form_that_takes_too_long_says_so():
    shape = {**SMALL, "dtype": "float32", "lengths": [24]}
    found = attention.time_lengths({**LIMITS, **shape, "limit_s": 0.0})
    assert found["missing"]["naive 24"] == "over 0 s"
    assert found["measurements"] == {}


def test_dtypes_and_variants_are_timed_in_turn_and_only_the_call_is_timed():
    found = attention.time_dtypes({**LIMITS, **SMALL})["measurements"]
    assert set(found) == {f"{f} {d}" for f in ("naive", "fused") for d in TOLERANCE}
    assert all(run["turns"] > 0 for run in found.values())
    found = attention.time_variants({**LIMITS, **SMALL, "dtype": "float32"})["measurements"]
    assert set(found) == {f"{f} {v}" for f in ("naive", "fused") for v in attention.VARIANTS}
    assert found["fused and backward"]["subject"]["is_training_step"]


def test_a_pass_back_and_forth_is_timed_as_one():
    problem = Problem(**SMALL, dtype="float32", backward=True)
    work = attention.call("naive", problem, "cpu")
    subject = attention.observed(work, problem)
    assert subject.is_training_step
    assert subject.records_gradient
    assert subject.shape == "2×3×24×16"


def test_pinning_a_backend_really_forbids_the_others():
    q = torch.randn(1, 1, 4, 8)
    with attention.only("cudnn"), pytest.raises(RuntimeError, match="viable|available"):
        F.scaled_dot_product_attention(q, q, q)


def a_timing(kind: str, ms: dict[str, float], **params) -> Record:
    """A case whose variants took these times in each of three processes."""
    runs = {
        name: [a_measurement([one / 1e3 * x for x in (1.0, 1.001, 0.999)]) for _ in range(3)]
        for name, one in ms.items()
    }
    for several in runs.values():
        for process, one in enumerate(several):  # so that they are not all alike
            one["samples_s"] = [x * (1 + 0.001 * process) for x in one["samples_s"]]
    shape = {"batch": 1, "heads": 8, "head_dim": 64, "device": "cpu"}
    case = Case(experiment="lab4_attention", params={"kind": kind, **shape, **params})
    return dataclasses.replace(a_record(), case=case, values={"measurements": runs, "missing": {}})


def lengths(dtype: str, ms: dict[str, float]) -> Record:
    return a_timing("time", ms, dtype=dtype, lengths="512 1024 4096")


GROWING = Records(
    [
        lengths(
            "float32",
            {
                **{"naive 512": 2.0, "flash 512": 4.0, "naive 1024": 20.0, "flash 1024": 10.0},
                "flash 4096": 50.0,
            },
        ),
        a_timing("dtypes", {"naive bfloat16": 4.0, "fused bfloat16": 8.0}, length=128),
    ]
)


def test_the_claim_of_speed_is_of_the_longest_sequence_that_naive_reaches():
    found = lab4_attention.cpu_faster(GROWING)
    assert found.agrees
    assert found.p < 0.01
    assert "1,024 positions" in found.supported
    assert "2 × as fast" in found.supported


def test_the_notebook_shape_is_a_case_of_its_own():
    found = lab4_attention.bf16_faster(GROWING)
    assert not found.agrees
    assert "2 × the time" in found.refuted
    with pytest.raises(Pending):
        lab4_attention.bf16_faster(Records(GROWING[:1]))


def test_a_form_that_ran_out_of_memory_ends_its_line():
    rows = lab4_attention.time(GROWING).rows
    assert [row["positions"] for row in rows] == [512, 1024, 4096]
    assert rows[-1]["naive"] is None


def test_a_device_that_did_not_run_has_no_rows():
    assert {row["panel"] for row in lab4_attention.time(GROWING).rows} == {"CPU, FP32"}
