"""The CUDA operators without a GPU: plans, definitions and errors."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from kernels import build_cuda, mxint8, mxint8_cuda

pytestmark = pytest.mark.outside

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


H100 = mxint8_cuda.Gpu(132, True, 3.0e12, 50 << 20)
H200 = mxint8_cuda.Gpu(132, True, 4.3e12, 60 << 20)
A100 = mxint8_cuda.Gpu(108, False, 1.4e12, 40 << 20)
SHAPES = ((1, 16), (40, 64), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 11008))  # out, in


def test_the_linear_takes_the_fewest_tiles_that_hold_the_rows_and_whole_groups():
    for rows in range(1, 65):
        plan = mxint8_cuda.linear_plan(rows, 4096, 4096, is_float=False, gpu=H200)
        assert plan.parts == 1
        assert rows <= 8 * plan.tiles
        assert plan.tiles == 1 or rows > 4 * plan.tiles
        if rows <= mxint8_cuda.pass_rows(True):
            plan = mxint8_cuda.linear_plan(rows, 4096, 4096, is_float=True, gpu=H200)
            assert plan.parts == 3
            assert 3 * rows <= 8 * plan.tiles
    shapes = [(4096, 32), (48, 16), (96, 48), (40, 32), (64, 8)]
    assert [mxint8_cuda.fits_tensor_cores(*one) for one in shapes] == [True] * 2 + [False] * 3


@pytest.mark.parametrize("gpu", [H100, H200, A100], ids=["H100", "H200", "A100"])
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 21, 32, 64])
@pytest.mark.parametrize(("num_out", "num_in"), SHAPES)
def test_the_splits_cover_every_step_once_and_none_is_empty(rows, num_out, num_in, gpu):
    for asked in (None, 1, 2, 3, 7, 8, 9, 1000):
        plan = mxint8_cuda.linear_plan(rows, num_in, num_out, is_float=False, gpu=gpu, splits=asked)
        wide = mxint8_cuda.WIDE[plan.tiles]
        columns, splits = plan.grid
        assert (columns - 1) * 16 * wide < num_out <= columns * 16 * wide
        assert (splits - 1) * plan.steps < -(-num_in // (64 * 8 // wide)) <= splits * plan.steps
        assert splits <= (asked or 1000)
        assert plan.in_cluster == (gpu.clusters and 1 < splits <= 8)


LARGE = [shape for shape in SHAPES if shape[0] * shape[1] >= 4096 * 4096]


@pytest.mark.parametrize("gpu", [H100, H200], ids=["H100", "H200"])
@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize(("num_out", "num_in"), LARGE)
def test_from_16_rows_on_nearly_all_multiprocessors_have_a_block(rows, num_out, num_in, gpu):
    plan = mxint8_cuda.linear_plan(rows, num_in, num_out, is_float=False, gpu=gpu)
    columns, splits = plan.grid
    assert columns * splits >= 0.95 * gpu.multiprocessors


@pytest.mark.parametrize("gpu", [H100, H200], ids=["H100", "H200"])
def test_predicted_times_are_above_the_memory_s_and_grow_with_the_rows(gpu):
    for num_out, num_in in LARGE:
        rows = (1, 8, 16, 32, 64)
        plans = [mxint8_cuda.linear_plan(n, num_in, num_out, is_float=False, gpu=gpu) for n in rows]
        seconds = [plan.seconds for plan in plans]
        assert seconds == sorted(seconds)
        assert seconds[0] * gpu.bandwidth > num_out * num_in * (1 + 1 / 32)
        assert seconds[2] * gpu.bandwidth < 2 * num_out * num_in  # less than reading bfloat16


def test_a_gpu_is_what_torch_says_of_it(monkeypatch):
    said = {"multi_processor_count": 132, "major": 9, "L2_cache_size": 50 << 20}
    said |= {"memory_clock_rate": 2_619_000, "memory_bus_width": 5120}  # kHz, bits: an H100's
    properties = SimpleNamespace(**said)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    found = mxint8_cuda.gpu.__wrapped__(0)
    assert found == replace(H100, bandwidth=found.bandwidth)
    assert found.bandwidth == pytest.approx(H100.bandwidth, rel=0.01)
    properties.memory_clock_rate = 0  # where the driver does not say
    assert mxint8_cuda.gpu.__wrapped__(0).bandwidth > 1e12


def test_a_launch_follows_the_plan_that_it_is_given(monkeypatch):
    launches = []

    def launch(cubin, name, device, grid, arguments, *, in_cluster=False):
        sizes = [one.value for one in arguments if not isinstance(one, int)]
        launches.append((name, grid, sizes, in_cluster))

    monkeypatch.setattr(mxint8_cuda, "launch", launch)
    monkeypatch.setattr(mxint8_cuda, "gpu", lambda device: H100)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    x, y = torch.zeros(16, 1024, dtype=torch.bfloat16), torch.zeros(16, 320, dtype=torch.bfloat16)
    arguments = (build_cuda.SOURCES, x, *codes(320, 1024, group=32), None, y, 32)
    plan = mxint8_cuda.linear_plan(16, 1024, 320, is_float=False, gpu=H100, splits=4)
    mxint8_cuda._launch_linear(*arguments, plan)
    first = ("madl_linear_bf16_2", (5, 4), [16, 1, 1024, 320, 5, 2])
    assert launches == [(*first, True)]
    launches.clear()
    mxint8_cuda._launch_linear(*arguments, replace(plan, in_cluster=False))
    second = ("madl_linear_splits_bf16", (2, 16), [4, 16, 320])
    assert launches == [(*first, False), (*second, False)]


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
    operator = torch.ops.madl.linear_mxint8_weight.default
    torch.library.opcheck(operator, arguments, test_utils=OPERATOR_TESTS)
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
