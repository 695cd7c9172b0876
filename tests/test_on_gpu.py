"""What only a CUDA GPU can show: all of it in one file, so that one worker has the GPU."""

import random

import pytest
import torch

from experiments.lab4_memory.allocator import CachingAllocator
from experiments.lab4_memory.design import MIB
from kernels import build_cuda, mxint8, mxint8_cuda
from madl.machine import fresh
from tests.reference import same
from tests.test_allocator import SIZES
from tests.test_cuda_build import cute
from tests.test_formats import fixed_noise, per_preset
from tests.test_mxint8_cuda import codes, linear_in_float64

pytestmark = [pytest.mark.cuda, pytest.mark.outside]

assert cute  # a fixture


# ---- MXINT8 -------------------------------------------------------------------------------------


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


def test_a_gpu_decodes_every_pair(path):
    mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1).cuda()
    scales = torch.arange(256).to(torch.uint8)[:, None].cuda()
    expected = mxint8.dequantize(mantissas.cpu(), scales.cpu(), 256)  # which test_mxint8 proves
    assert same(mxint8_cuda.dequantize(mantissas, scales, 256).cpu(), expected)


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


@pytest.mark.parametrize("group", [8, 12, 24, 32, 64, 128, 256, 512])
def test_a_gpu_dequantizes_through_the_tile(cute, group):
    for count in (1, group, 3 * group + 5, 2048 * 5 + 3):
        mantissas, scales = codes(count, group=group)
        on_gpu = (mantissas.cuda(), scales.cuda())
        got = mxint8_cuda.dequantize_by_tile(*on_gpu, group, include=cute)
        assert same(got.cpu(), mxint8.dequantize(mantissas, scales, group)), count


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
        terms = linear_in_float64(x.abs(), mantissas.short().abs(), scales, None, group)
        # float32 sums in another order, which tensor cores cut and do not round, then one rounding
        # to the result's type; the definition rounds the bias, too
        rounded = expected.abs() + (0 if bias is None else bias.double().abs())
        error = 1e-5 * terms + {torch.float32: 0, torch.bfloat16: 2**-8}[dtype] * rounded
        assert ((got.double() - expected).abs() <= error + 1e-6).all(), (rows, num_out)


# ---- formats ------------------------------------------------------------------------------------


@per_preset
def test_cuda_equals_the_cpu(number_format):
    x = fixed_noise()
    on_gpu = number_format.quantize(x.cuda()).cpu()
    if number_format.grid is not None:
        assert same(on_gpu, number_format.quantize(x))
    else:
        torch.testing.assert_close(on_gpu, number_format.quantize(x), rtol=1e-5, atol=1e-6)


# ---- the allocator ------------------------------------------------------------------------------


def test_the_model_agrees_with_the_allocator():
    """In a process that holds nothing yet."""
    assert fresh.call(f"{__name__}:model_beside_allocator", {"steps": 2000}) == {"agree": 2000}


def model_beside_allocator(argument):
    draw, model, held = random.Random(0), CachingAllocator(), []
    for _ in range(argument["steps"]):
        if held and draw.random() < 0.5:
            address, tensor = held.pop(draw.randrange(len(held)))
            model.free(address)
            del tensor
        else:
            size = draw.choice((*SIZES, draw.randrange(1, 30 * MIB)))
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            model._end = tensor.data_ptr()  # where a new segment begins is the driver's choice
            held.append((model.allocate(size), tensor))
            assert held[-1][0] == tensor.data_ptr()
        assert torch.cuda.memory_allocated() == model.allocated_bytes
    return {"agree": argument["steps"]}
