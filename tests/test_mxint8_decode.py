"""The decode header against the definition of MXINT8, on all 65,536 pairs of mantissa and scale."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

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
