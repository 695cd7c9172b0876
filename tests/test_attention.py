"""Every form of attention against float64, its memory and its limits."""

import pytest
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from experiments.lab4_attention import study
from experiments.lab4_attention.design import TOLERANCE
from experiments.lab4_attention.study import Problem
from madl.machine import memory

SMALL = {"batch": 2, "heads": 3, "length": 24, "head_dim": 16}
LIMITS = {"device": "cpu", "limit_gb": 1.0, "limit_s": 60.0, "budget_s": 0.0}
WRITTEN_AND_CPU = ("naive", "tuned", "cast", "math", "flash")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("form", WRITTEN_AND_CPU)
def test_each_form_agrees_with_float64_at_each_call(form, dtype):
    if (form, dtype) == ("cast", "float32"):
        pytest.skip("it is the tuned form there")
    problem = Problem(**SMALL, dtype=dtype)
    expected = study.naive(*(t.double() for t in study.inputs(problem, "cpu")))
    with study.only(form):
        work = study.call(form, problem, "cpu")
        for _ in range(2):  # the second finds the first one's scores in the memory that is kept
            assert study.error(work(), expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("scale", [1.0, float("nan")])
def test_a_wrong_form_fails_its_case_and_one_of_torch_s_is_not_timed(monkeypatch, scale):
    argument = {"device": "cpu", **SMALL}
    assert max(study.check(argument)["errors"].values()) <= 1
    unscaled = study.call

    def wrong(form, problem, device):
        q, k, v = study.inputs(problem, device)
        if form != bad:
            return unscaled(form, problem, device)
        return lambda: F.scaled_dot_product_attention(q, k, v, scale=scale)

    monkeypatch.setattr(study, "call", wrong)
    bad = "flash"
    with pytest.raises(AssertionError, match="flash in float32 is wrong"):
        study.check(argument)
    found = study.time_forms({**LIMITS, **SMALL, "dtype": "float32"})
    assert found["missing"]["flash"].startswith("differs from naive")
    assert {"naive", "tuned", "math"} == found["measurements"].keys()
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
