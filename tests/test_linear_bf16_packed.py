"""The packed bfloat16 Linear against float64 and torch's, where the processor has its products."""

import pytest
import torch
from torch import nn

from kernels import linear_bf16_packed
from kernels.linear_bf16_packed import PackedLinear

pytestmark = pytest.mark.outside


@pytest.mark.parametrize(("num_in", "num_out"), [(2, 1), (64, 96), (130, 70), (1024, 2049)])
@pytest.mark.parametrize("bias", [True, False])
def test_it_rounds_the_exact_product_once(num_in, num_out, bias):
    if linear_bf16_packed.route().library is None:
        pytest.skip(linear_bf16_packed.route().reason)
    generator = torch.Generator().manual_seed(num_in)
    linear = nn.Linear(num_in, num_out, bias=bias)
    packed = PackedLinear(linear)
    for rows in (1, 2, 6, 7, 13):
        x = torch.randn(rows, num_in, generator=generator).bfloat16()
        weight = linear.weight.detach().bfloat16().double()
        terms = x.double().abs() @ weight.abs().T
        exact = x.double() @ weight.T + (linear.bias.double() if bias else 0)
        found = packed(x)
        assert (found.dtype, found.shape) == (torch.bfloat16, (rows, num_out))
        bound = exact.abs() * 2**-8 + terms * 2**-18  # half a step of bfloat16; sums in float32
        assert bool(((found.double() - exact).abs() <= bound).all())
        assert torch.equal(packed(x.view(1, rows, num_in))[0], found)


def test_an_odd_depth_is_refused_and_without_a_compiler_it_says_why(monkeypatch):
    with pytest.raises(ValueError, match="in_features is even, got 3"):
        PackedLinear(nn.Linear(3, 4))
    gone = linear_bf16_packed.build.Route(path="torch", reason="no C++ compiler here")
    monkeypatch.setattr(linear_bf16_packed, "route", lambda: gone)
    linear_bf16_packed._function.cache_clear()
    with pytest.raises(RuntimeError, match="no packed bfloat16 product: no C\\+\\+ compiler here"):
        PackedLinear(nn.Linear(2, 4))
