"""The Triton kernels in Triton's interpreter, which runs them on a CPU as plain Python."""

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

# The interpreter is chosen when Triton is imported, so it gets a process of its own.
EVERY_PAIR = """
import torch
from kernels import triton_mxint8
from tests.reference import same
from tests.test_mxint8_decode import truth
mantissas = torch.arange(-128, 128).to(torch.int8).repeat(256, 1)
scales = torch.arange(256).to(torch.uint8)[:, None].contiguous()
y = torch.empty(256, 256, dtype=torch.bfloat16)
triton_mxint8.dequantize(mantissas, scales, y, 256)
expected = truth().to(torch.bfloat16)
assert same(y, expected), (y.view(torch.int16) != expected.view(torch.int16)).nonzero()[:5]
"""
SHAPES = """
import torch
from kernels import mxint8, triton_mxint8
from tests.reference import same
from tests.test_mxint8_cuda import codes, linear_in_float64
for shape, group in (((1,), 8), ((5000,), 32), ((7, 100), 32), ((3, 2, 40), 12)):
    mantissas, scales = codes(*shape, group=group)
    y = torch.empty(shape, dtype=torch.bfloat16)
    triton_mxint8.dequantize(mantissas, scales, y, group)
    assert same(y, mxint8.dequantize(mantissas, scales, group)), shape
for rows, num_in, num_out, group in ((1, 64, 40, 32), (17, 100, 33, 20), (3, 16, 1, 16)):
    mantissas, scales = codes(num_out, num_in, group=group)
    x, bias = torch.randn(rows, num_in), torch.randn(num_out)
    y = torch.empty(rows, num_out)
    triton_mxint8.linear(x, mantissas, scales, bias, y, group)
    expected = linear_in_float64(x, mantissas, scales, bias, group)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
"""


@pytest.mark.parametrize("code", [EVERY_PAIR, SHAPES], ids=["every pair", "shapes"])
def test_triton_computes_what_the_definition_says(code):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
