"""The CUDA operators: plans, definitions and errors anywhere; results where a GPU is."""

import random

import pytest
import torch
import torch.nn.functional as F

from kernels import build_cuda, mxint8, mxint8_cuda
from tests.reference import same
from tests.test_cuda_build import cute

pytestmark = pytest.mark.outside

assert cute  # a fixture

OPERATOR_TESTS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


def codes(*shape: int, group: int, device: str = "cpu", seed: int = 0):
    """Mantissas and scales of weights' usual sizes."""
    generator = torch.Generator().manual_seed(seed)
    mantissas = torch.randint(-128, 128, shape, generator=generator, dtype=torch.int16)
    scale_shape = (*shape[:-1], -(-shape[-1] // group))
    scales = torch.randint(110, 130, scale_shape, generator=generator, dtype=torch.int16)
    return mantissas.to(torch.int8).to(device), scales.to(torch.uint8).to(device)


def linear_in_float64(x, mantissas, scales, bias, group):
    weight = mxint8.values(mantissas, scales, group).double()
    return F.linear(x.double(), weight, None if bias is None else bias.double())


def test_the_flat_grid_covers_every_element_by_vectors_where_it_can():
    for count, group in ((1, 8), (7, 32), (8192, 512), (8193, 32), (2**31 + 9, 8), (2**33, 512)):
        name, (blocks, y), further = mxint8_cuda.flat_plan(count, count, group, is_aligned=True)
        assert (name, y) == ("madl_dequantize_vector", 1)
        assert (blocks - 1) * 8192 < count <= blocks * 8192
        assert blocks < 2**31
        assert further[0].value == count  # 64 bits wide
        assert 8 << further[2].value == group
    plain = ((64, 64, 32, False), (64, 64, 12, True), (240, 40, 32, True))
    for count, columns, group, fits in plain:  # misaligned, no multiple of eight, a short group
        name, (blocks, _), further = mxint8_cuda.flat_plan(count, columns, group, is_aligned=fits)
        assert name == "madl_dequantize_any"
        assert (blocks - 1) * 256 < count <= blocks * 256
        assert [argument.value for argument in further] == [count, columns, group]


@pytest.mark.parametrize("group", [8, 16, 24, 32, 64, 100, 128, 256, 512, 640])
def test_the_tile_grid_covers_every_group(group):
    for count in (1, 1000, 65536, 2**31 + 9):
        name, (x, y) = mxint8_cuda.tile_plan(count, group)
        height, vector = map(int, name.removeprefix("madl_dequantize_tile_").split("_"))
        source = (build_cuda.SOURCES / mxint8_cuda.TILE).read_text()
        assert f"MADL_TILE({height}, {vector})" in source
        assert group % vector == 0
        assert y * height >= group
        block = 1024 * vector // height * group  # of elements
        assert (x - 1) * block < count <= x * block
        assert y < 65536
        assert x < 2**31


H200 = {"multiprocessors": 132, "clusters": True}
A100 = {"multiprocessors": 108, "clusters": False}
SHAPES = ((1, 16), (40, 64), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 11008))  # out, in


def test_the_linear_takes_the_fewest_tiles_that_hold_the_rows_and_whole_groups():
    for rows in range(1, 65):
        plan = mxint8_cuda.linear_plan(rows, 4096, 4096, is_float=False, **H200)
        assert plan.parts == 1
        assert rows <= 8 * plan.tiles
        assert plan.tiles == 1 or rows > 4 * plan.tiles
        if rows <= mxint8_cuda.pass_rows(True):
            plan = mxint8_cuda.linear_plan(rows, 4096, 4096, is_float=True, **H200)
            assert plan.parts == 3
            assert 3 * rows <= 8 * plan.tiles
    shapes = [(4096, 32), (48, 16), (96, 48), (40, 32), (64, 8)]
    assert [mxint8_cuda.fits_tensor_cores(*one) for one in shapes] == [True] * 2 + [False] * 3


@pytest.mark.parametrize("gpu", [H200, A100], ids=["H200", "A100"])
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 21, 32, 64])
@pytest.mark.parametrize(("num_out", "num_in"), SHAPES)
def test_the_splits_cover_every_step_once_and_none_is_empty(rows, num_out, num_in, gpu):
    plan = mxint8_cuda.linear_plan(rows, num_in, num_out, is_float=False, **gpu)
    wide = mxint8_cuda.WIDE[plan.tiles]
    columns, splits = plan.grid
    assert (columns - 1) * 16 * wide < num_out <= columns * 16 * wide
    assert (splits - 1) * plan.steps < -(-num_in // (64 * 8 // wide)) <= splits * plan.steps
    two_waves = 2 * gpu["multiprocessors"] * mxint8_cuda.RESIDENT[plan.tiles]
    assert splits == 1 or columns * splits <= two_waves
    assert plan.in_cluster == (gpu["clusters"] and 1 < splits <= 8)


def test_the_constants_of_plans_are_those_of_the_kernels():
    text = (build_cuda.SOURCES / mxint8_cuda.LINEAR).read_text()
    for tiles, wide in mxint8_cuda.WIDE.items():
        assert f"MADL_LINEAR({tiles}, {wide}, " in text
    header = (build_cuda.SOURCES / "linear_tile.h").read_text()
    assert f"kAhead = {mxint8_cuda.AHEAD};" in header
    assert f"kMaxCluster = {mxint8_cuda.MAX_CLUSTER};" in header
    assert "kResident = kTiles < 8 ? 2 : 1;" in header
    assert mxint8_cuda.RESIDENT == {1: 2, 2: 2, 4: 2, 8: 1}


@pytest.mark.parametrize(
    ("is_float", "l2_mb", "rows"), [(False, 60, 128), (False, 16, 256), (True, 60, 252)]
)
def test_up_to_how_many_rows_fused_moves_fewer_bytes(is_float, l2_mb, rows):
    """By hand, in bytes a weight of 4096²: 33 MB as bfloat16, 67 MB as float32.

    bfloat16: (1.03 + 2) / 1.03 is 2 passes where L2 holds it, (1.03 + 4) / 1.03 is 4 where not;
    float32: (1.03 + 6 + 6) / 1.03 is 12 passes of 21 rows.
    """
    found = mxint8_cuda.max_rows(4096, 4096, 32, is_float=is_float, l2_bytes=l2_mb << 20)
    assert found == rows


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(torch.float32, (5, 40)), (torch.bfloat16, (2, 3, 40)), (torch.bfloat16, (0, 40))],
)
def test_the_linear_passes_torchs_own_check(dtype, shape):
    mantissas, scales = codes(24, 40, group=16)
    x, bias = torch.randn(shape).to(dtype), torch.randn(24)
    arguments = (x, mantissas, scales, bias, 16)
    torch.library.opcheck(mxint8_cuda.linear, arguments, test_utils=OPERATOR_TESTS)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    expected = linear_in_float64(*arguments).to(dtype)
    torch.testing.assert_close(mxint8_cuda.linear(*arguments), expected, rtol=tolerance, atol=1e-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.randn(2, 40).half()}, "values must be float32 or bfloat16, got torch.float16"),
        ({"x": torch.randn(2, 39)}, r"x \(2, 39\) and weight \(24, 40\) must agree"),
        ({"mantissas": torch.zeros(24, 40)}, "mantissas must be int8, got torch.float32"),
        ({"scales": torch.zeros(24, 2, dtype=torch.uint8)}, r"must have shape \(24, 3\)"),
        ({"bias": torch.zeros(23)}, r"bias must have shape \(24,\), got \(23,\)"),
        ({"group": 0}, "a group is"),
    ],
)
def test_the_linear_says_what_is_wrong(changes, message):
    mantissas, scales = codes(24, 40, group=16)
    good = {"x": torch.randn(2, 40), "mantissas": mantissas, "scales": scales, "bias": None}
    with pytest.raises(ValueError, match=message):
        mxint8_cuda.linear(*({**good, "group": 16} | changes).values())


@pytest.fixture(params=["nvcc", "nvrtc", "torch"])
def path(request, monkeypatch):
    monkeypatch.setenv("MADL_CUDA_KERNELS", request.param)
    build_cuda.load.cache_clear()
    device = torch.cuda.current_device()
    way = mxint8_cuda.route(device)
    if way.path != request.param:
        pytest.skip(way.reason)
    way = mxint8_cuda.route(device, mxint8_cuda.LINEAR)
    assert way.path == request.param, way.reason  # else another path would be tested in its place
    yield request.param
    build_cuda.load.cache_clear()


@pytest.mark.cuda
def test_a_gpu_decodes_every_pair(path):
    mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1).cuda()
    scales = torch.arange(256).to(torch.uint8)[:, None].cuda()
    expected = mxint8.dequantize(mantissas.cpu(), scales.cpu(), 256)  # which test_mxint8 proves
    assert same(mxint8_cuda.dequantize(mantissas, scales, 256).cpu(), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("group", [8, 12, 16, 24, 32, 64, 128, 256, 512])
def test_a_gpu_dequantizes_as_the_cpu_does(path, group):
    for shape in [(1,), (group,), (3 * group + 5,), (7, 4 * group), (9, group + 4), (3, 2, 100)]:
        mantissas, scales = codes(*shape, group=group)
        expected = mxint8.dequantize(mantissas, scales, group)
        got = mxint8_cuda.dequantize(mantissas.cuda(), scales.cuda(), group)
        assert same(got.cpu(), expected), (shape, group)
    mantissas, scales = codes(1001, group=group)
    scales = codes(1000, group=group)[1]
    got = mxint8_cuda.dequantize(mantissas.cuda()[1:], scales.cuda(), group)  # misaligned
    assert same(got.cpu(), mxint8.dequantize(mantissas[1:], scales, group))


@pytest.mark.cuda
@pytest.mark.parametrize("group", [8, 12, 24, 32, 64, 128, 256, 512])
def test_a_gpu_dequantizes_through_the_tile(cute, group):
    for count in (1, group, 3 * group + 5, 2048 * 5 + 3):
        mantissas, scales = codes(count, group=group)
        on_gpu = (mantissas.cuda(), scales.cuda())
        got = mxint8_cuda.dequantize_by_tile(*on_gpu, group, include=cute)
        assert same(got.cpu(), mxint8.dequantize(mantissas, scales, group)), count


@pytest.mark.cuda
def test_a_gpu_multiplies_by_every_code_exactly(path):
    scales = torch.arange(254).to(torch.uint8).repeat_interleave(2)[:, None]  # of a row of 64
    mantissas = torch.arange(-128, 128).to(torch.int8).view(4, 64).repeat(127, 1)
    normal = 7 if path == "torch" else 0  # a library may take subnormal values for zeros
    kept = scales[:, 0] >= normal
    for shift in range(4):  # each scale meets every mantissa
        codes = (mantissas.roll(shift, 0), scales)
        x, on_gpu = torch.eye(64, dtype=torch.bfloat16), [one.cuda() for one in codes]
        got = mxint8_cuda.linear(x.cuda(), *on_gpu, None, 64).cpu()
        assert same(got[:, kept], mxint8.dequantize(*codes, 64).t()[:, kept])


@pytest.fixture
def whole_sums():
    """cuBLAS adds up products of bfloat16 in float32 to the end."""
    cublas = torch.backends.cuda.matmul
    before = cublas.allow_bf16_reduced_precision_reduction
    cublas.allow_bf16_reduced_precision_reduction = False
    yield
    cublas.allow_bf16_reduced_precision_reduction = before


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_in", "group"), [(64, 32), (1040, 16), (4096, 32), (16384, 64), (100, 20), (96, 96)]
)
def test_a_gpu_multiplies_as_the_definition_does(path, whole_sums, dtype, num_in, group):
    torch.manual_seed(num_in)
    order = random.Random(num_in)
    for rows in (1, 2, 7, 8, 9, 16, 21, 22, 33, 64, 65, 300):
        num_out = order.choice([1, 16, 40, 257])
        mantissas, scales = codes(num_out, num_in, group=group, seed=rows)
        x = torch.randn(rows, num_in).to(dtype)
        bias = torch.randn(num_out) if rows % 2 else None
        arguments = (x, mantissas, scales, bias, group)
        on_gpu = [a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments]
        got = mxint8_cuda.linear(*on_gpu).cpu()
        expected = linear_in_float64(*arguments)
        terms = linear_in_float64(x.abs(), mantissas.abs(), scales, None, group)
        # float32 sums in another order, which tensor cores cut and do not round, then one rounding
        # to the result's type; the definition rounds the bias, too
        rounded = expected.abs() + (0 if bias is None else bias.double().abs())
        error = 1e-5 * terms + {torch.float32: 0, torch.bfloat16: 2**-8}[dtype] * rounded
        assert ((got.double() - expected).abs() <= error + 1e-6).all(), (rows, num_out)
