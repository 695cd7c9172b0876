"""The torch operator `madl::linear_bf16`: a Linear with bfloat16 products and a float32 result.

For operands that bfloat16 holds exactly it differs from a float32 Linear in the order of the
summation only; torch's bfloat16 Linear would round its result to bfloat16 too.

Shapes: x (..., in_features), weight (out_features, in_features), bias (out_features).
Not handled: gradients; operands that bfloat16 does not hold, which are truncated.
"""

import ctypes

import torch
from torch import Tensor

from kernels import build
from kernels.ops import constant_in_traces

SOURCE = "linear_bf16.cpp"

_library = torch.library.Library("madl", "FRAGMENT")
_library.define("linear_bf16(Tensor x, Tensor weight, Tensor? bias) -> Tensor")


def route() -> build.Route:
    """Which path multiplies on this CPU, and why."""
    return build.load(SOURCE, extension="avx512_bf16")


@constant_in_traces
def is_fast() -> bool:
    """Whether this CPU has bfloat16 products and C++ uses them."""
    return route().library is not None


def _linear_bf16(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    library = route().library
    if library is None:
        raise RuntimeError(f"madl::linear_bf16 needs its C++: {route().reason}")
    (num_out, num_in), dense = weight.shape, [t.contiguous() for t in (x, weight)]
    if any(t.dtype != torch.float32 for t in dense) or x.shape[-1] != num_in:
        raise ValueError(
            f"madl::linear_bf16: x {tuple(x.shape)} {x.dtype} and weight {tuple(weight.shape)} "
            f"{weight.dtype} must be float32 and agree in the last dimension"
        )
    y = x.new_empty((*x.shape[:-1], num_out))
    row = None if bias is None else bias.contiguous()
    if row is not None and (row.shape != (num_out,) or row.dtype != torch.float32):
        raise ValueError(
            f"madl::linear_bf16: bias must be float32 ({num_out},), got {row.dtype} "
            f"{tuple(row.shape)}"
        )
    library.madl_linear_bf16(
        *(ctypes.c_void_p(t.data_ptr()) for t in dense),
        ctypes.c_void_p(None if row is None else row.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
        *(ctypes.c_int64(n) for n in (y.numel() // max(num_out, 1), num_out, num_in)),
        torch.get_num_threads(),
    )
    return y


def _fake_linear_bf16(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


_library.impl("linear_bf16", _linear_bf16, "CPU")
torch.library.register_fake("madl::linear_bf16", _fake_linear_bf16, lib=_library)
