"""MXINT8 in Triton: what a GPU runs where neither nvcc nor NVRTC is, Triton coming with torch.

Bits, not floats, go through the last step: the interpreter's cast to bfloat16 is wrong for some
subnormals, and a bfloat16 that float32 holds exactly is its upper half.

Shapes: as `mxint8_cuda`; the linear takes any number of rows, 16 at a time.
Any group is right; the linear loads and decodes a scale for each element, not for each group, which
is slow. Not handled: gradients.
"""

# Triton's decorated functions have no types that a checker knows.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _values(mantissas, scales):
    """Exact float32 values: see `mxint8_decode.h`."""
    e = scales.to(tl.int32)
    bits = tl.where(e > 6, (e - 6) << 23, 1 << ((e & 7) + 16))
    bits = tl.where(e == 255, 0x7FC00000, bits)
    return mantissas.to(tl.float32) * bits.to(tl.float32, bitcast=True)


@triton.jit
def _dequantize(mantissas, scales, out, count, columns, group, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < count
    groups = (columns + group - 1) // group
    row, column = at // columns, at % columns
    m = tl.load(mantissas + at, mask=exists, other=0)
    s = tl.load(scales + row * groups + column // group, mask=exists, other=0)
    bits = _values(m, s).to(tl.int32, bitcast=True) >> 16
    tl.store(out + at, bits.to(tl.int16), mask=exists)


def dequantize(mantissas: Tensor, scales: Tensor, out: Tensor, group: int) -> None:
    """Dense tensors into dense bfloat16 memory."""
    count, block = mantissas.numel(), 2048
    _dequantize[(triton.cdiv(count, block),)](
        mantissas, scales, out.view(torch.int16), count, mantissas.shape[-1], group, BLOCK=block
    )


@triton.jit
def _linear(
    x, weight, scales, bias, y, num_rows, num_in, num_out, group,
    HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    outs = (tl.program_id(0) * OUT + tl.arange(0, OUT)).to(tl.int64)
    groups = (num_in + group - 1) // group
    sums = tl.zeros((ROWS, OUT), dtype=tl.float32)
    for first in range(0, num_in, IN):
        ins = first + tl.arange(0, IN)
        x_exists = (rows[:, None] < num_rows) & (ins[None, :] < num_in)
        left = tl.load(x + rows[:, None] * num_in + ins[None, :], mask=x_exists, other=0.0)
        w_exists = (outs[None, :] < num_out) & (ins[:, None] < num_in)
        at = outs[None, :] * num_in + ins[:, None]
        m = tl.load(weight + at, mask=w_exists, other=0)  # (IN, OUT)
        s = tl.load(scales + outs[None, :] * groups + ins[:, None] // group, mask=w_exists, other=0)
        right = _values(m, s).to(left.dtype)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
    if HAS_BIAS:
        sums += tl.load(bias + outs, mask=outs < num_out, other=0.0)[None, :]
    exists = (rows[:, None] < num_rows) & (outs[None, :] < num_out)
    result = sums.to(y.dtype.element_ty)
    tl.store(y + rows[:, None].to(tl.int64) * num_out + outs[None, :], result, mask=exists)


def linear(
    x: Tensor, mantissas: Tensor, scales: Tensor, bias: Tensor | None, y: Tensor, group: int
) -> None:
    """x (…, K) times the transposed weight into y (…, N), all dense; float32 sums."""
    num_out, num_in = mantissas.shape
    rows, tile_rows, tile_out = x.numel() // num_in, 16, 32
    _linear[(triton.cdiv(num_out, tile_out), triton.cdiv(rows, tile_rows))](
        x, mantissas, scales, bias, y, rows, num_in, num_out, group,
        HAS_BIAS=bias is not None, ROWS=tile_rows, OUT=tile_out, IN=64, PRECISION="ieee",
    )  # fmt: skip
