"""The straight-through estimator by its definition, the quantized layer, and bfloat16 products."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels import build, compilers, linear_bf16
from madl.compression.quantize import Rule, fake_quantize, quantize_
from madl.errors import MadlError
from madl.formats import rounding
from madl.formats.blocked import MXInt
from madl.formats.fixed import FixedPoint
from madl.formats.presets import FORMATS
from tests.reference import same
from tests.test_kernels import forget, threads

pytestmark = pytest.mark.outside

assert forget  # a fixture
FIXED8 = FixedPoint(width=8, frac_width=4)
EXACT = [f for f in FORMATS.values() if f.exact_in_bf16]


def leaf(*shape: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return x.requires_grad_()


@pytest.mark.parametrize("number_format", FORMATS.values(), ids=FORMATS.keys())
def test_the_gradient_passes_straight_through_by_default(number_format):
    x, weights = leaf(6, 40, scale=100.0), torch.randn(6, 40)
    q = fake_quantize(x, number_format)
    (q * weights).sum().backward()
    assert same(q.detach(), number_format.quantize(x))
    assert same(x.grad, weights)


def linear(*, bias: bool = True, columns: int = 48) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(columns, 20, bias=bias)


def quantized(rule: Rule, *, bias: bool = True) -> nn.Module:
    model = nn.Sequential(linear(bias=bias))
    quantize_(model, [rule])
    return model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("number_format", FORMATS.values(), ids=FORMATS.keys())
def test_a_layer_is_the_linear_of_quantized_parts(number_format, bias):
    layer = quantized(Rule.uniform(number_format), bias=bias)
    plain, x = linear(bias=bias), torch.randn(3, 7, 48)
    expected = F.linear(
        number_format.quantize(x),
        number_format.quantize(plain.weight),
        number_format.quantize(plain.bias) if bias else None,
    )
    for training in (True, False):
        with torch.set_grad_enabled(training):
            assert torch.equal(layer.train(training)(x), expected)


def test_a_kept_weight_follows_its_master_also_in_other_memory():
    model, x = quantized(Rule(weight=FIXED8)).eval(), torch.randn(2, 48)
    layer = model[0]
    with torch.no_grad():
        before = model(x)
        layer.weight.add_(1.0)
        assert not torch.equal(model(x), before)
        assert torch.equal(model(x), F.linear(x, FIXED8.quantize(layer.weight), layer.bias))
        for _ in range(5):  # memory that was freed is likely to be had again
            layer.weight.data = layer.weight.detach().roll(1, 0)
            assert torch.equal(model(x), F.linear(x, FIXED8.quantize(layer.weight), layer.bias))
        copied = copy.deepcopy(model)
        assert not copied[0]._frozen
        assert torch.equal(copied(x), model(x))


def test_the_first_rule_that_matches_wins_and_an_unused_one_is_refused():
    model = nn.Sequential(linear(), nn.ReLU(), linear(columns=20))
    first, rest = Rule(pattern="0", weight=MXInt()), Rule(weight=FIXED8)
    assert quantize_(model, [first, rest]) == {"0": first, "2": rest}
    with pytest.raises(MadlError, match="'9' took no Linear layer; layers: 0, 2"):
        quantize_(nn.Sequential(linear(), nn.ReLU(), linear(columns=20)), [Rule(pattern="9")])


# torch.compile itself instantiates the autograd function while it traces
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")
@pytest.mark.parametrize(
    ("name", "products"),
    [("fixed(8,4)", "float32"), ("minifloat(8,5,ieee)", "bfloat16"), ("mxfp8-e4m3", "bfloat16")],
)
def test_a_training_step_can_be_compiled_whole(name, products):
    def gradient(model: nn.Module) -> torch.Tensor:
        layer.zero_grad()
        model(x).square().mean().backward()
        return layer[0].weight.grad.clone()

    layer, x = quantized(Rule.uniform(FORMATS[name], products=products)), torch.randn(5, 48)
    eager = gradient(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled), eager)


BF16 = pytest.mark.parametrize("number_format", EXACT, ids=lambda f: f.name)


@BF16
@pytest.mark.parametrize("shape", [(48,), (5, 9, 48), (0, 48)])
def test_bf16_products_and_their_gradients_change_only_the_order_of_the_sum(number_format, shape):
    layer, x = quantized(Rule.uniform(number_format, products="bfloat16")), leaf(*shape)
    out = layer(x)
    grad = leaf(*out.shape, seed=1).detach()
    out.backward(grad)
    assert {one.dtype for one in (out, x.grad, layer[0].weight.grad)} == {torch.float32}
    rows = grad.double().reshape(-1, 20)
    weight = number_format.quantize(layer[0].weight).double()
    inputs = number_format.quantize(x).double().reshape(-1, 48)
    bias = number_format.quantize(layer[0].bias).double()
    with torch.no_grad():
        evaluated = layer(x)
    for got, left, right in (
        (x.grad.reshape(-1, 48), rows, weight),
        (layer[0].weight.grad, rows.t(), inputs),
        (layer[0].bias.grad[None], torch.ones(1, len(rows), dtype=torch.float64), rows),
        *((made.detach().reshape(-1, 20) - bias, inputs, weight.t()) for made in (out, evaluated)),
    ):
        assert ((got - left @ right).abs() <= sum_bound(left, right)).all()


def sum_bound(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """What float32 sums of exact products may be wrong by, in any order, with three a product."""
    return 3 * (left.shape[-1] + 1) * 2**-24 * (left.abs() @ right.abs() * (1 + 2**-7))


KERNELS = ["auto", "avx512"]  # auto is AMX where there is some


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch, forget):
    if not any(compilers.cpp()):
        pytest.skip(compilers.NO_COMPILER)
    monkeypatch.setenv("MADL_KERNELS", request.param)
    if not build.runs("avx512_bf16"):
        pytest.skip("no bfloat16 products on this CPU")
    assert linear_bf16.is_fast(), linear_bf16.route().reason
    return request.param


SHAPES = [(1, 1, 1), (13, 65, 7), (200, 130, 385), (40, 1000, 40), (33, 32, 64)]


@pytest.mark.parametrize(("rows", "columns", "num_in"), SHAPES)
def test_the_bf16_kernel_is_exact_on_integers_of_any_shape(kernel, rows, columns, num_in):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-128, 129, (rows, num_in), generator=generator).float()
    w = torch.randint(-128, 129, (columns, num_in), generator=generator).float()
    bias = torch.randint(-9, 9, (columns,), generator=generator).float()
    for b in (bias, None):
        expected = F.linear(x.double(), w.double(), b if b is None else b.double()).float()
        for count in (1, 2, 3):
            with threads(count):
                assert torch.equal(torch.ops.madl.linear_bf16(x, w, b), expected)


@pytest.mark.parametrize(
    "number_format", [f for f in EXACT if f.grid is not None], ids=lambda f: f.name
)
@pytest.mark.parametrize("count", [1, 3])
def test_rounding_on_the_way_to_a_product_gives_the_bits_of_rounding_first(
    kernel, number_format, count
):
    fields = rounding.fields_of_cpp(torch.ones(1), number_format)
    w, bias = number_format.quantize(linear().weight.detach()), torch.randn(20)
    with threads(count):
        for shape in ((48,), (0, 48), (7, 3, 48), (200, 48)):
            x = leaf(*shape, scale=3.0).detach()
            first = linear_bf16.linear_bf16(number_format.quantize(x), w, bias)
            assert torch.equal(linear_bf16.linear_bf16(x, w, bias, *fields), first)


def either_way(x: torch.Tensor) -> list[torch.Tensor]:
    """The same matrix row by row, column by column, and with gaps."""
    spread = torch.zeros(2 * len(x), 2 * x.shape[1])
    spread[::2, ::2] = x
    return [x, x.t().contiguous().t(), spread[::2, ::2]]


@pytest.mark.parametrize(("rows", "columns", "num_in"), SHAPES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_product_with_an_exact_operand_is_as_right_as_float32(rows, columns, num_in, count):
    generator = torch.Generator().manual_seed(rows)
    a = torch.randn(rows, num_in, generator=generator) * torch.logspace(-30, 30, num_in)
    b = torch.randn(num_in, columns, generator=generator).bfloat16().float()
    exact = a.double() @ b.double()
    with threads(count):
        for left in either_way(a):
            for right in either_way(b):
                got = linear_bf16.product_bf16(left, right)
                assert ((got - exact).abs() <= sum_bound(a.double(), b.double())).all()


def test_all_bits_nan_and_infinity_reach_the_rows_of_a_product_they_are_in():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (64, 64), generator=generator, dtype=torch.int64)
    a = bits.to(torch.int32).view(torch.float32)
    a = torch.where((a.abs() > 2.0**-100) & (a.abs() < 2.0**120), a, 1.0 + 2.0**-23)
    assert torch.equal(linear_bf16.product_bf16(a, torch.eye(64)), a)
    a = torch.ones(5, 40)
    a[1, 3], a[2, 7], a[3, 39] = float("nan"), float("inf"), -float("inf")
    a.view(torch.int32)[4, 1] = 0x7F800001  # NaN by its last bit alone
    got = linear_bf16.product_bf16(a, torch.ones(40, 20))
    for row, expected in enumerate((40.0, float("nan"), float("inf"), -float("inf"), float("nan"))):
        assert same(got[row], torch.full((20,), expected))


def test_without_the_kernel_bf16_products_give_the_float32_result(monkeypatch, forget):
    monkeypatch.setenv("MADL_KERNELS", "torch")
    x = torch.randn(5, 48)
    with torch.no_grad():
        slow = quantized(Rule.uniform(FIXED8, products="bfloat16"))(x)
        assert torch.equal(slow, quantized(Rule.uniform(FIXED8))(x))
    for route in (linear_bf16.route(), linear_bf16.product_route()):
        assert "MADL_KERNELS=torch" in route.reason
