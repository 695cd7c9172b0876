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
from madl.execution.attention import FORMS, MASKS, TOLERANCE, Problem
from madl.logbook.records import Case, Pending, Record, Records
from madl.machine import memory
from tests.conftest import a_record

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
    assert one.moved_bytes(fused=True) == 4 * 240
    assert one.moved_bytes(fused=False) == 4 * 240 + 6 * 192


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
    work = attention.pinned("flash", attention.call("flash", problem, "cpu"))
    assert memory.peak_bytes(work, "cpu") < problem.score_bytes


def test_peak_memory_is_the_most_held_at_once():
    def work():
        a = torch.ones(1000, dtype=torch.uint8)
        del a
        b = torch.ones(3000, dtype=torch.uint8)
        c = torch.ones(2000, dtype=torch.uint8)
        return b, c

    assert 5000 <= memory.peak_bytes(work, "cpu") < 5400  # not 6,000: `a` was freed


def test_out_of_memory_is_a_cell_and_the_rest_goes_on():
    problem = Problem(batch=1, heads=4, length=4096, head_dim=16, dtype="float32")
    found = attention.timed(problem, "cpu", budget_s=0.0, limit_bytes=192 << 20)
    assert found["missing"]["naive"] == attention.OUT_OF_MEMORY
    assert "flash" in found["measurements"]
    assert torch.ones(256 << 20, dtype=torch.uint8).sum() > 0  # the limit is gone again


def test_a_form_that_a_device_has_not_says_so():
    problem = Problem(**SMALL, dtype="float32")
    found = attention.timed(problem, "cpu", budget_s=0.0, limit_bytes=1 << 30)
    assert set(found["measurements"]) | set(found["missing"]) == set(FORMS)
    assert set(found["missing"]) == {"efficient", "cudnn"}


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


def a_timing(length: int, ms: dict[str, float], **params) -> Record:
    """A problem whose forms took these times; those without one ran out of memory."""
    jitter = [1.0, 1.001, 0.999, 1.002, 0.998] * 2
    usual = {"kind": "time", "device": "cpu", "dtype": "float32", "mask": "none", "batch": 1}
    case = Case(
        experiment="lab4_attention",
        params={**usual, "heads": 8, "backward": False, "length": length, **params},
    )
    runs = {
        form: {"samples_s": [one * x / 1e3 for x in jitter], "contention": 0.0}
        for form, one in ms.items()
    }
    missing = {form: attention.OUT_OF_MEMORY for form in FORMS if form not in ms}
    sizes = {"flops": 1e9, "moved_bytes": dict.fromkeys(FORMS, 1e8)}
    values = {"measurements": runs, "missing": missing, **sizes}
    return dataclasses.replace(a_record(), case=case, values=values)


GROWING = Records(
    [
        a_timing(4096, {"flash": 50.0}),
        a_timing(1024, {"naive": 20.0, "flash": 10.0}),
        a_timing(512, {"naive": 2.0, "flash": 4.0}),
        a_timing(128, {"naive": 4.0, "flash": 8.0}, dtype="bfloat16", batch=32),
    ]
)


def test_the_claim_of_speed_is_of_the_longest_sequence_that_naive_reaches():
    found = lab4_attention.cpu_faster(GROWING)
    assert found.agrees
    assert found.p < 0.01
    assert "1,024 positions" in found.supported
    assert "2 × as fast" in found.supported


def test_the_notebook_shape_is_told_from_a_sequence_of_its_length():
    found = lab4_attention.bf16_faster(GROWING)
    assert not found.agrees
    assert "2 × the time" in found.refuted
    with pytest.raises(Pending):
        lab4_attention.bf16_faster(Records(GROWING[:3]))


def test_a_form_that_ran_out_of_memory_ends_its_line_and_says_so_in_the_table():
    rows = lab4_attention.time(GROWING).rows
    assert [row["positions"] for row in rows] == [512, 1024, 4096]
    assert rows[-1]["naive"] is None
    assert lab4_attention.cells(GROWING)[-1]["naive"] == attention.OUT_OF_MEMORY


def test_a_device_that_did_not_run_has_no_rows():
    assert {row["device"] for row in lab4_attention.time(GROWING).rows} == {"CPU"}
    assert lab4_attention.time(GROWING).facet is None
