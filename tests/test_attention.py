"""Every form of attention against float64, its memory and its limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from experiments.lab4_attention import study
from experiments.lab4_attention.design import IN_FP32, TOLERANCE, WRITTEN
from experiments.lab4_attention.study import Problem
from madl.machine import memory

SMALL = {"batch": 2, "heads": 3, "length": 24, "head_dim": 16}
ROWS = 9  # of a chunk: the last one is shorter
LIMITS = {"device": "cpu", "limit_gb": 1.0, "limit_s": 60.0, "budget_s": 0.0}
WRITTEN_AND_CPU = (*WRITTEN, "math", "flash", f"flash{IN_FP32}")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(study.design, "CHUNK", ROWS)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("form", WRITTEN_AND_CPU)
def test_each_form_agrees_with_float64_at_each_call(form, dtype):
    if form.endswith(IN_FP32) and dtype == "float32":
        with pytest.raises(RuntimeError, match="the same as"):
            study.call(form, Problem(**SMALL, dtype=dtype), "cpu")
        return
    problem = Problem(**SMALL, dtype=dtype)
    expected = study.naive(*(t.double() for t in study.inputs(problem, "cpu")))
    with study.only(form):
        work = study.call(form, problem, "cpu")
        for _ in range(2):  # the second finds the first one's scores in the memory that is kept
            assert study.error(work(), expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("form", WRITTEN_AND_CPU)
def test_a_causal_mask_hides_what_comes_later_and_backward_gives_q_s_gradient(form):
    causal = Problem(**SMALL, dtype="bfloat16", kind="causal")
    q, k, v = (t.double() for t in study.inputs(causal, "cpu"))
    hidden = torch.ones(SMALL["length"], SMALL["length"], dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(SMALL["head_dim"])).masked_fill(hidden, -math.inf)
    expected = scores.softmax(-1) @ v
    backward = Problem(**SMALL, dtype="float32", kind="backward")
    leaves = [t.double().requires_grad_() for t in study.inputs(backward, "cpu")]
    given = torch.randn(leaves[0].shape, generator=torch.Generator().manual_seed(1))
    study.naive(*leaves).backward(given.double())
    with study.only(form):
        found = study.call(form, causal, "cpu")()
        assert study.error(found, expected) <= TOLERANCE["bfloat16"]
        if form.startswith("chunked"):
            with pytest.raises(RuntimeError):
                study.call(form, backward, "cpu")
            return
        if form.endswith(IN_FP32):
            return
        attend, qkv = study.attention(form, backward, "cpu"), study.inputs(backward, "cpu")
        for found, leaf in zip(study.gradients(attend, qkv)(), leaves, strict=True):
            assert study.error(found, leaf.grad) <= TOLERANCE["float32"]


@pytest.mark.parametrize("scale", [1.0, float("nan")])
def test_a_wrong_form_fails_its_case_and_one_of_torch_s_is_not_timed(monkeypatch, scale):
    argument = {"device": "cpu", **SMALL}
    assert max(study.check(argument)["errors"].values()) <= 1
    unscaled = study.attention

    def wrong(form, problem, device):
        if form != bad:
            return unscaled(form, problem, device)
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale)

    monkeypatch.setattr(study, "attention", wrong)
    bad = "flash"
    with pytest.raises(AssertionError, match="flash float32 is wrong"):
        study.check(argument)
    found = study.time_forms({**LIMITS, **SMALL, "dtype": "float32"})
    assert found["missing"]["flash"].startswith("differs from naive")
    assert {"naive", "tuned", "chunked", "math"} == found["measurements"].keys()
    bad = "tuned"
    with pytest.raises(AssertionError, match="tuned differs from naive"):
        study.time_forms({**LIMITS, **SMALL, "dtype": "float32"})


def test_operations_and_peak_memory_are_what_the_formulas_say():
    problem = Problem(**SMALL, dtype="float32")
    with FlopCounterMode(display=False) as counter:
        study.call("naive", problem, "cpu")()
    assert counter.get_total_flops() == problem.flops
    problem = Problem(batch=1, heads=2, length=512, head_dim=16, dtype="float32")
    work = {form: study.call(form, problem, "cpu") for form in ("naive", "tuned", "flash")}
    naive, tuned, again = (memory.peak_bytes(work[f], "cpu") for f in ("naive", "tuned", "tuned"))
    assert 2 * problem.score_bytes <= naive <= 2 * problem.score_bytes + 2 * problem.tensor_bytes
    assert tuned == problem.score_bytes + problem.tensor_bytes
    assert again == 0
    with study.only("flash"):
        assert memory.peak_bytes(work["flash"], "cpu") < problem.score_bytes
