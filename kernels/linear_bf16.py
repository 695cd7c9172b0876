"""The torch operator `madl::linear_bf16`: a Linear with bfloat16 products and a float32 result.

For operands that bfloat16 holds exactly it differs from a float32 Linear in the order of the
summation only; torch's bfloat16 Linear would round its result to bfloat16 too.

Shapes: x (..., in_features), weight (out_features, in_features), bias (out_features).
Not handled: gradients; operands that bfloat16 does not hold, which are truncated.
"""

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


def _first(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not x.is_cpu or not is_fast():
        raise operators.needs_cpp("linear_bf16", route())
    return linear_bf16(x, weight, bias)


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


linear_bf16 = operators.define(
    "linear_bf16(Tensor x, Tensor weight, Tensor? bias) -> Tensor", fake=_fake, first=_first
)
