"""MXINT8 on the CPU: every code against its definition, every path against exact integers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import build, compilers, mxint8
from madl.formats.blocked import MXInt
from tests.reference import same
from tests.test_kernels import awkward, forget, needs_compiler, threads, usable_paths

pytestmark = pytest.mark.outside

assert forget  # a fixture

GROUPS = [4, 8, 20, 32, 64, 512]


@pytest.fixture(params=["auto", *usable_paths(), "torch"])
def forced(request, monkeypatch):
    if request.param != "torch" and not any(compilers.cpp()):
        pytest.skip(compilers.NO_COMPILER)
    monkeypatch.setenv("MADL_KERNELS", request.param)
    build.load.cache_clear()
    # operators that are registered would go on with their path
    for route in (mxint8.route(), mxint8.linear_route()):
        assert (route.library is not None) == (request.param != "torch"), route.reason
    yield request.param
    monkeypatch.undo()
    build.load.cache_clear()
    mxint8.route()
    mxint8.linear_route()


@pytest.mark.parametrize("group", [4, 32, 64, 256])
def test_every_code_decodes_to_its_definition(forced, group):
    mantissas = torch.arange(-128, 128, dtype=torch.int8).repeat(256, 1)  # a row per scale
    scales = torch.arange(256, dtype=torch.uint8)[:, None]
    expected = np.ldexp(mantissas.double().numpy(), scales.int().numpy() - 133)
    expected[255] = math.nan
    expected[254, 0] = -math.inf  # -2^128, the one code beyond bfloat16
    scales = scales.repeat(1, 256 // group)
    decoded = mxint8.dequantize(mantissas, scales, group)
    assert decoded.dtype is torch.bfloat16
    assert same(decoded.float(), torch.from_numpy(expected).float())


def test_large_tensors_are_written_around_the_cache_with_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    rows, columns = (1 << 23) // 4096, 4096
    mantissas = torch.randint(-128, 128, (rows, columns), generator=generator, dtype=torch.int8)
    scales = torch.randint(0, 256, (rows, columns // 32), generator=generator, dtype=torch.uint8)
    large = mxint8.dequantize(mantissas, scales, 32)
    for row in (0, 1, rows // 2, rows - 1):
        assert same(large[row], mxint8.dequantize(mantissas[row], scales[row], 32))


@pytest.mark.parametrize("group", GROUPS)
def test_quantizing_is_the_format_bit_for_bit(forced, group):
    for columns in (7, 32, 100, 1056):
        x = awkward(columns)
        mantissas, scales = mxint8.quantize(x, group)
        assert mantissas.min() >= -127
        assert same(
            mxint8.dequantize(mantissas, scales, group).float(), MXInt(block=group).quantize(x)
        )


def test_every_path_makes_the_same_codes(forced):
    x = awkward(100)
    mantissas, scales = mxint8.quantize(x, 32)
    expected = mxint8.quantize_in_torch(x, 32)
    assert torch.equal(mantissas, expected[0])
    assert torch.equal(scales, expected[1])
    assert set(scales[x.isnan().any(-1)].flatten().tolist()) >= {mxint8.NAN_SCALE}


def test_threads_share_the_work_without_changing_it():
    x = torch.randn(301, 1000)
    weight = mxint8.arrange(*mxint8.quantize(torch.randn(700, 1000), 32), 32)
    found = []
    for count in (1, 2, 3):
        with threads(count):
            mantissas, scales = mxint8.quantize(x, 32)
            decoded = mxint8.dequantize(mantissas, scales, 32)
            found.append((mantissas, decoded, mxint8.linear(x, *weight, None, 700, 32)))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))


def exact_linear(x, weight, bias, group):
    """Integers within a group, then the groups in order in float32, as the kernel promises."""
    (x_codes, x_scales), (w_codes, w_scales) = (
        [t.numpy().astype(np.int64) for t in mxint8.quantize(part, group)] for part in (x, weight)
    )
    y = np.zeros((len(x), len(weight)), np.float32)
    if bias is not None:
        y += bias.numpy()
    for g in range(x_scales.shape[1]):
        part = slice(g * group, (g + 1) * group)
        sums = (x_codes[:, part] @ w_codes[:, part].T).astype(np.float64)
        scales = x_scales[:, None, g], w_scales[None, :, g]
        sums[(scales[0] == mxint8.NAN_SCALE) | (scales[1] == mxint8.NAN_SCALE)] = math.nan
        with np.errstate(over="ignore", invalid="ignore"):
            y += np.ldexp(sums, scales[0] + scales[1] - 2 * 133).astype(np.float32)
    return torch.from_numpy(y)


def packed(weight, group=32):
    return mxint8.arrange(*mxint8.quantize(weight, group), group)


@pytest.mark.parametrize(
    ("rows", "num_in", "num_out", "group"),
    [
        (64, 96, 40, 32),
        (3, 100, 33, 32),
        (5, 31, 1, 32),
        (2, 1, 64, 4),
        (6, 70, 32, 8),
        (7, 513, 50, 512),
        (3, 37, 31, 20),
        (9, 2048, 65, 64),
    ],
)
def test_linear_equals_exact_integers(forced, rows, num_in, num_out, group):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, num_in, generator=generator)
    weight = torch.randn(num_out, num_in, generator=generator) * 0.05
    for bias in (torch.randn(num_out, generator=generator), None):
        y = mxint8.linear(x, *packed(weight, group), bias, num_out, group)
        assert torch.equal(y, exact_linear(x, weight, bias, group))


def test_linear_takes_every_mantissa(forced):
    """-128 too, which other programs may have made: against the largest sums there are."""
    mantissas = torch.arange(-128, 128, dtype=torch.int8).repeat(32, 2)
    mantissas[0], mantissas[1] = -128, 127
    scales = torch.full((32, 1), 127, dtype=torch.uint8)
    x = torch.full((2, 512), 127.0 / 64)
    x[1] = -x[1]
    y = mxint8.linear(x, *mxint8.arrange(mantissas, scales, 512), None, 32, 512)
    assert torch.equal(y, (x.double() @ (mantissas.double() / 64).t()).float())


def test_the_smallest_scale_is_not_only_that_of_zeros(forced):
    mantissas = torch.full((40, 40), 64, dtype=torch.int8)
    scales = torch.full((40, 2), 127, dtype=torch.uint8)
    mantissas[0], scales[0] = 0, 0
    x = torch.ones(16, 40)
    for smallest, expected in ((0, 0.0), (1, 2.0**-133)):
        mantissas[0, 39], scales[0, 1] = smallest, 0
        y = mxint8.linear(x, *mxint8.arrange(mantissas, scales, 32), None, 40, 32)
        assert (y[:, 0] == expected).all()
        assert (y[:, 1:] == 40).all()


SCALES = st.sampled_from(
    [-140, -126, -97, -96, -70, -60, -20, -19, -18, -1, 0, 1, 2, 22, 24, 25, 59, 60, 100, 127, None]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.integers(1, 40),
    num_in=st.integers(1, 130),
    num_out=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    odd=st.lists(st.tuples(st.booleans(), st.integers(0, 2**32), SCALES), max_size=4),
)
def test_scales_of_any_size_have_the_bits_of_the_definition(
    forced, rows, num_in, num_out, seed, odd
):
    """Groups of zeros, NaN, and powers of two from one end of float32 to the other."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, num_in, generator=generator)
    weight = torch.randn(num_out, num_in, generator=generator)
    bias = torch.randn(num_out, generator=generator)
    for is_weight, place, exponent in odd:
        part = weight if is_weight else x
        group = part[place % len(part)][place % num_in // 32 * 32 :][:32]
        group *= 0.0 if exponent is None else 2.0**exponent
        if place % 7 == 0:
            group[0] = math.nan
    found = mxint8.linear(x, *packed(weight), bias, num_out, 32)
    expected = exact_linear(x, weight, bias, 32)
    assert same(found, expected)


def test_bfloat16_in_bfloat16_out_and_unusual_shapes():
    x, weight = torch.randn(2, 3, 64).bfloat16(), torch.randn(40, 64)
    y = mxint8.linear(x, *packed(weight), None, 40, 32)
    assert same(y, mxint8.linear(x.float(), *packed(weight), None, 40, 32).bfloat16())
    for shape in ((0, 64), (2, 0, 64), (64,)):
        y = mxint8.linear(torch.ones(shape), *packed(torch.ones(40, 64)), None, 40, 32)
        assert torch.equal(y, torch.full((*shape[:-1], 40), 64.0))


def test_arranging_is_undone_by_restoring():
    for num_out, num_in, group in ((1, 1, 4), (33, 70, 8), (64, 64, 32)):
        codes = mxint8.quantize(torch.randn(num_out, num_in), group)
        panels, scales = mxint8.arrange(*codes, group)
        back = mxint8.restore(panels, scales, out_features=num_out, in_features=num_in)
        assert all(torch.equal(a, b) for a, b in zip(codes, back))


CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


def test_operators_pass_torchs_own_check_and_bad_input_is_named():
    x = torch.randn(3, 5, 70)
    codes = mxint8.quantize(x, 32)
    weight = packed(torch.randn(40, 70))
    for operator, arguments in (
        (torch.ops.madl.mxint8_quantize.default, (x, 32)),
        (torch.ops.madl.mxint8_dequantize.default, (*codes, 32)),
        (torch.ops.madl.linear_mxint8.default, (x, *weight, torch.zeros(40), 40, 32)),
        (torch.ops.madl.linear_mxint8.default, (x.bfloat16(), *weight, None, 40, 32)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=CHECKS)
    x, weight = torch.zeros(2, 64), packed(torch.zeros(40, 64))
    codes = mxint8.quantize(x, 32)
    for call, match in (
        (lambda: mxint8.quantize(x, 6), r"a group is 4, 8, 12 … 512 values, got 6"),
        (lambda: mxint8.dequantize(*codes, 16), r"of 16 must have shape \(2, 4\), got \(2, 2\)"),
        (lambda: mxint8.linear(x[:, :60], *weight, None, 40, 32), r"panels for 60 inputs .* must"),
        (lambda: mxint8.linear(x, *weight, torch.zeros(39), 40, 32), r"bias must have shape"),
        (lambda: mxint8.linear(x.to("meta"), *weight, None, 40, 32), r"x is on meta, the weight"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


@needs_compiler
def test_amx_is_taken_where_it_is_and_without_an_instruction_the_next_path(monkeypatch, forget):
    monkeypatch.delenv("MADL_KERNELS", raising=False)
    best = next(t for t in ("amx", "avx512_vnni", "avx2", "portable") if build.runs(t))
    assert mxint8.linear_route().path == best.partition("_")[0]
    monkeypatch.setattr(build, "runs", lambda target: target == "portable")
    forget()
    route = mxint8.linear_route()
    assert route.path == "portable"
    assert "would need amx or avx512_vnni or avx2 for more" in route.reason


@pytest.mark.parametrize(
    ("forced", "has", "path"),
    [
        ("auto", ("amx", "avx512_vnni", "avx512", "avx2", "portable"), "amx"),
        ("avx512", ("amx", "avx512_vnni", "avx512", "avx2", "portable"), "avx512"),
        ("auto", ("avx512_vnni", "avx512", "avx2", "portable"), "avx512"),
        ("auto", ("avx512", "avx2", "portable"), "avx2"),  # which has no VNNI
        ("avx512", ("avx512", "avx2", "portable"), "avx2"),
        ("portable", ("avx512", "avx2", "portable"), "portable"),
        ("torch", ("avx512", "avx2", "portable"), "torch"),
    ],
)
def test_the_first_target_is_taken_that_the_cpu_has_and_the_user_allows(
    monkeypatch, forget, forced, has, path
):
    built = []
    monkeypatch.setenv("MADL_KERNELS", forced)
    monkeypatch.setattr(build, "runs", has.__contains__)

    def load_first(source, targets):
        built.append(source)
        return None, next(iter(targets)), "a compiler"

    monkeypatch.setattr(build, "_load_first", load_first)
    targets = ("amx", "avx512_vnni", "avx2", "portable")
    assert build.load("a.cpp", targets).path == path
    assert len(built) == (path != "torch")
    alone = build.load("b.cpp", ("avx512_vnni",))
    assert alone.path == ("avx512" if "avx512_vnni" in has else "torch")
    assert (
        alone.path != "torch" or "b.cpp would need avx512_vnni" in alone.reason or path == "torch"
    )


@needs_compiler
def test_a_header_is_part_of_a_library_s_key(tmp_path):
    (tmp_path / "inner.h").write_text("int inner;")
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    source = tmp_path / "source.cpp"
    source.write_text('#include <vector>\n#include "outer.h"\n#include "inner.h"\n')
    assert sorted(map(len, build.texts(source))) == sorted(
        len(path.read_text()) for path in tmp_path.iterdir()
    )
