"""The straight-through estimator by its definition, the quantized layer, and bfloat16 products."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels import build, linear_bf16
from madl.compression.quantize import Rule, fake_quantize, quantize_
from madl.errors import MadlError
from madl.formats import presets
from madl.formats.blocked import MXInt
from madl.formats.fixed import FixedPoint, ScaledInteger
from madl.formats.minifloat import Minifloat
from tests.reference import same

PRESETS = presets()
FIXED8 = FixedPoint(width=8, frac_width=4)
WITH_RANGE = [f for f in PRESETS.values() if f.range is not None]
EXACT = [f for f in PRESETS.values() if f.exact_in_bf16]


def leaf(*shape: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return x.requires_grad_()


@pytest.mark.parametrize("number_format", PRESETS.values(), ids=PRESETS.keys())
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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("number_format", PRESETS.values(), ids=PRESETS.keys())
def test_a_layer_is_the_linear_of_quantized_parts(number_format, bias, training):
    layer = quantized(Rule.uniform(number_format), bias=bias).train(training)
    plain, x = linear(bias=bias), torch.randn(3, 7, 48)
    expected = F.linear(
        number_format.quantize(x),
        number_format.quantize(plain.weight),
        number_format.quantize(plain.bias) if bias else None,
    )
    with torch.set_grad_enabled(training):
        assert torch.equal(layer(x), expected)


def test_a_kept_weight_follows_its_master():
    model = quantized(Rule(weight=FIXED8)).eval()
    x = torch.randn(2, 48)
    with torch.no_grad():
        before = model(x)
        model[0].weight.add_(1.0)
        after = model(x)
        assert torch.equal(after, F.linear(x, FIXED8.quantize(model[0].weight), model[0].bias))
    assert not torch.equal(before, after)


def test_the_first_rule_that_matches_wins_and_an_unused_one_is_refused():
    model = nn.Sequential(linear(), nn.ReLU(), linear(columns=20))
    first, rest = Rule(pattern="0", weight=MXInt()), Rule(weight=FIXED8)
    assert quantize_(model, [first, rest]) == {"0": first, "2": rest}
    with pytest.raises(MadlError, match="'9' took no Linear layer; layers: 0, 2"):
        quantize_(nn.Sequential(linear(), nn.ReLU(), linear(columns=20)), [Rule(pattern="9")])


# torch.compile itself instantiates the autograd function while it traces
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")
@pytest.mark.parametrize("products", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["fixed(8,4)", "minifloat(8,5,ieee)", "mxfp8-e4m3"])
def test_a_training_step_can_be_compiled_whole(name, products):
    def gradient(model: nn.Module) -> torch.Tensor:
        layer.zero_grad()
        model(x).square().mean().backward()
        return layer[0].weight.grad.clone()

    layer, x = quantized(Rule.uniform(PRESETS[name], products=products)), torch.randn(5, 48)
    eager = gradient(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled), eager)


BF16 = pytest.mark.parametrize("number_format", EXACT, ids=lambda f: f.name)


@BF16
@pytest.mark.parametrize("shape", [(48,), (1, 48), (7, 48), (3, 50, 48), (0, 48)])
def test_bf16_products_change_only_the_order_of_the_sum(number_format, shape):
    x, plain = torch.randn(shape) * 2, linear()
    exact = F.linear(
        number_format.quantize(x).double(),
        number_format.quantize(plain.weight).double(),
        number_format.quantize(plain.bias).double(),
    )
    with torch.no_grad():
        ours = quantized(Rule.uniform(number_format, products="bfloat16")).eval()(x)
        theirs = quantized(Rule.uniform(number_format)).eval()(x)
    bound = 48 * 2**-24 * F.linear(x.abs() * 4 + 4, plain.weight.abs() * 4 + 1).double()
    assert ours.dtype == torch.float32
    assert ((ours - exact).abs() <= bound).all()
    assert ((theirs - exact).abs() <= bound).all()


def test_bf16_products_of_fixed_point_equal_integer_arithmetic():
    x, plain = torch.randn(33, 48) * 3, linear()
    with torch.no_grad():
        got = quantized(Rule(weight=FIXED8, input=FIXED8, products="bfloat16"), bias=False)(x)
    weight = linear(bias=False).weight
    codes = [(FIXED8.quantize(t) * 16).long() for t in (x, weight)]
    assert torch.equal(got, (codes[0] @ codes[1].t()).float() / 256)
    assert plain.weight.shape == weight.shape


@BF16
def test_bf16_gradients_are_near_those_of_float32(number_format):
    grads = {}
    for products in ("float32", "bfloat16"):
        layer = quantized(Rule.uniform(number_format, products=products))
        x = leaf(5, 9, 48)
        layer(x).mul(
            torch.randn(5, 9, 20, generator=torch.Generator().manual_seed(1))
        ).sum().backward()
        grads[products] = [x.grad, layer[0].weight.grad, layer[0].bias.grad]
    for wanted, got in zip(grads["float32"], grads["bfloat16"]):
        error = (wanted - got).norm()
        assert error <= wanted.norm() / 128


@pytest.mark.parametrize(("rows", "columns", "num_in"), [(1, 1, 1), (13, 65, 7), (200, 130, 385)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.skipif(not linear_bf16.is_fast(), reason=linear_bf16.route().reason)
def test_the_bf16_kernel_is_exact_on_integers_of_any_shape(rows, columns, num_in, threads):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-128, 129, (rows, num_in), generator=generator).float()
    w = torch.randint(-128, 129, (columns, num_in), generator=generator).float()
    bias = torch.randint(-9, 9, (columns,), generator=generator).float()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for b in (bias, None):
            got = torch.ops.madl.linear_bf16(x, w, b)
            assert torch.equal(
                got, F.linear(x.double(), w.double(), b if b is None else b.double()).float()
            )
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not linear_bf16.is_fast(), reason=linear_bf16.route().reason)
def test_the_bf16_operator_checks_its_arguments_and_passes_torchs_own_check():
    x, w = torch.ones(3, 4), torch.ones(5, 4)
    torch.library.opcheck(
        torch.ops.madl.linear_bf16.default,
        (x, w, None),
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
    with pytest.raises(ValueError, match="agree in the last dimension"):
        linear_bf16.linear_bf16(x, torch.ones(5, 3), None)
    with pytest.raises(ValueError, match=r"bias must be float32 \(5,\)"):
        linear_bf16.linear_bf16(x, w, torch.ones(4))
    with pytest.raises(RuntimeError, match="agree in the last dimension"):
        torch.ops.madl.linear_bf16(x, torch.ones(5, 3), None)


def test_without_the_kernel_bf16_products_give_the_float32_result(monkeypatch):
    monkeypatch.setenv("MADL_KERNELS", "torch")
    build.load.cache_clear()
    try:
        x = torch.randn(5, 48)
        with torch.no_grad():
            slow = quantized(Rule.uniform(FIXED8, products="bfloat16"))(x)
            assert torch.equal(slow, quantized(Rule.uniform(FIXED8))(x))
        assert "MADL_KERNELS=torch" in linear_bf16.route().reason
    finally:
        build.load.cache_clear()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            lambda: Rule.uniform(FixedPoint(width=16, frac_width=8), products="bfloat16"),
            "fixed.16,8",
        ),
        (lambda: Rule.uniform(ScaledInteger(width=8), products="bfloat16"), "scaled.8,row"),
        (lambda: Rule(weight=FIXED8, products="bfloat16"), "the input, which is float32"),
        (lambda: Rule(weight=FIXED8, products="int8"), "got 'int8'"),
    ],
)
def test_bf16_products_are_refused_where_they_would_change_the_result(rule, message):
    with pytest.raises(ValueError, match=message):
        rule()


def test_nine_bits_of_fixed_point_are_exact_in_bf16_and_ten_are_not():
    assert FixedPoint(width=9, frac_width=4).exact_in_bf16
    assert not FixedPoint(width=10, frac_width=4).exact_in_bf16
    assert Minifloat(width=12, exponent_width=4).exact_in_bf16
    assert not Minifloat(width=13, exponent_width=4).exact_in_bf16
