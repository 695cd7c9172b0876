"""The decode header against the definition of MXINT8, on all 65,536 pairs of mantissa and scale."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from madl.formats.blocked import MXInt
from tests.reference import same

NATIVE = Path(__file__).parent / "native"
MANTISSAS = torch.arange(-128, 128)  # (256,)
SCALES = torch.arange(256)  # (256,)


def truth() -> torch.Tensor:
    """m · 2^-6 · 2^(s-127) in float64, which holds every one of them; scale 255 is NaN."""
    power = torch.exp2((SCALES - 127).double())
    power[255] = float("nan")
    return power[:, None] * MANTISSAS.double() / 64  # (scale, mantissa)


@pytest.fixture(scope="module", params=[("-O0",), ("-O3", "-march=native"), ("-O2", "-fwrapv")])
def decoded(request, tmp_path_factory):
    """(bfloat16, float32), both (scale, mantissa), as this build of the header gives them."""
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("no g++ on the PATH")
    library = tmp_path_factory.mktemp("decode") / "decode_all.so"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *request.param]
    subprocess.run([compiler, *flags, NATIVE / "decode_all.cpp", "-o", library], check=True)
    bits = torch.empty(256, 256, dtype=torch.int16)
    values = torch.empty(256, 256)
    ctypes.CDLL(str(library)).decode_all(
        ctypes.c_void_p(bits.data_ptr()), ctypes.c_void_p(values.data_ptr())
    )
    return bits.view(torch.bfloat16), values


def test_every_pair_is_the_definitions_value(decoded):
    bits, values = decoded
    assert same(bits, truth().to(torch.bfloat16))
    assert same(values, truth().float())


def test_nothing_is_rounded_and_one_code_overflows(decoded):
    bits, _ = decoded
    finite = bits.isfinite()
    assert torch.equal(bits.double()[finite], truth()[finite])
    infinite = bits.isinf().nonzero().tolist()
    assert infinite == [[254, 0]]  # mantissa -128 there is -2^128
    assert bits[255].isnan().all()
    assert not bits[:255].isnan().any()


def test_the_values_are_those_of_the_number_format(decoded):
    bits, _ = decoded
    codes = bits[:255, 1:].float()  # the format leaves -128 and scale 255 unused
    one_group = MXInt(width=8, block=255)
    assert same(one_group.quantize(codes), codes)
    element = one_group.element.values()
    assert torch.equal(codes[127].double().sort().values, element.double().sort().values)


def test_scale_zero_gives_subnormals(decoded):
    bits, _ = decoded
    mantissas = MANTISSAS.to(torch.int16)
    expected = mantissas.abs() | (mantissas < 0).to(torch.int16) << 15
    assert torch.equal(bits[0].view(torch.int16), expected)
