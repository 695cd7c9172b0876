"""The torch operator `madl::linear_bf16`: a Linear with bfloat16 products and a float32 result.

For operands that bfloat16 holds exactly it differs from a float32 Linear in the order of the
summation only; torch's bfloat16 Linear would round its result to bfloat16 too.

Shapes: x (..., in_features), weight (out_features, in_features), bias (out_features).
Not handled: gradients; operands that bfloat16 does not hold, which are truncated.
"""

import torch
from torch import Tensor

from kernels import build, operators

SOURCE = "linear_bf16.cpp"


def route() -> build.Route:
    """Which path multiplies on this CPU, and why."""
    return build.load(SOURCE, extension="avx512_bf16", operator="linear_bf16")


@operators.constant_in_traces
def is_fast() -> bool:
    """Whether this CPU has bfloat16 products and C++ uses them."""
    return route().library is not None


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if any(t.dtype != torch.float32 for t in (x, weight)) or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"madl::linear_bf16: x {tuple(x.shape)} {x.dtype} and weight {tuple(weight.shape)} "
            f"{weight.dtype} must be float32 and agree in the last dimension"
        )
    num_out = len(weight)
    if bias is not None and (bias.shape != (num_out,) or bias.dtype != torch.float32):
        raise ValueError(
            f"madl::linear_bf16: bias must be float32 ({num_out},), got {bias.dtype} "
            f"{tuple(bias.shape)}"
        )


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


linear_bf16 = operators.define(
    "linear_bf16(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    route=route,
    check=_check,
    fake=_fake,
)
