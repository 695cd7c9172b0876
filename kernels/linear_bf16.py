"""Products of float32 matrices whose values bfloat16 holds: the operators `madl::linear_bf16` and
`madl::product_bf16`.

The product of two bfloat16 is exact in float32, and the sums are float32 here, so these differ from
a float32 product in the order of the summation only; torch's bfloat16 Linear would round its result
to bfloat16 too. `product_bf16` asks that of its second operand alone: any float32 is the sum of
three bfloat16 (24 significant bits are three times 8), so three exact products stand for one. That
is for gradients, and pays on AMX only.

Where the CPU has AMX, `linear_bf16_amx.cpp` computes both; with AVX512_BF16, `linear_bf16.cpp`
computes the Linear. oneDNN would use AMX for float32 tensors too, but by a setting of the whole
process (`torch.backends.mkldnn.matmul.fp32_precision`), which other threads' models would see.

With the fields of a grid, `linear_bf16` rounds x to it first, to the bits of `madl::round_to_grid`,
and saves the way of the rounded x through memory.

Shapes: x (..., in_features), weight (out_features, in_features), bias (out_features); a (M, K),
b (K, N).
Not handled: gradients; operands that bfloat16 does not hold, which are truncated; subnormals, which
are taken as zero.
"""

import torch
from torch import Tensor

from kernels import build, operators, round_to_grid

SOURCE = "linear_bf16.cpp"
AMX_SOURCE = "linear_bf16_amx.cpp"


def route() -> build.Route:
    """The path that multiplies on this CPU, and why: `amx`, `avx512` or `torch`."""
    round_to_grid.route()  # it rounds for this one, where it is there
    amx = build.load(AMX_SOURCE, ("amx",), operators=("linear_bf16",))
    if amx.library is not None:
        return amx
    return build.load(SOURCE, ("avx512_bf16",), operators=("linear_bf16",))


@operators.constant_in_traces
def is_fast() -> bool:
    """Whether this CPU has bfloat16 products and C++ uses them."""
    return route().library is not None


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, *fields: float) -> None:
    """Raise ValueError for operands of `linear_bf16` of another dtype or that do not fit."""
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


_FIELDS = [f"{f}={False if f.startswith('bool') else -1}" for f in round_to_grid.FIELDS]

linear_bf16 = operators.define(
    f"linear_bf16(Tensor x, Tensor weight, Tensor? bias, {', '.join(_FIELDS)}) -> Tensor",
    check=_check,
    empty=lambda x, weight, *rest: x.new_empty((*x.shape[:-1], weight.shape[0])),
    route=route,
)


def product_route() -> build.Route:
    """The path that computes `product_bf16` on this CPU, and why: `amx` or `torch` in float32."""
    return build.load(AMX_SOURCE, ("amx",), operators=("product_bf16",))


def _check_product(a: Tensor, b: Tensor) -> None:
    """Raise ValueError for operands of `product_bf16` of another dtype or that do not fit."""
    fit = a.dim() == b.dim() == 2 and a.shape[1:] == b.shape[:1]
    if not fit or any(t.dtype != torch.float32 for t in (a, b)):
        raise ValueError(
            f"madl::product_bf16: a {tuple(a.shape)} {a.dtype} and b {tuple(b.shape)} {b.dtype} "
            "must be float32 matrices that fit together"
        )


product_bf16 = operators.define(
    "product_bf16(Tensor a, Tensor b) -> Tensor",
    check=_check_product,
    empty=lambda a, b: a.new_empty((a.shape[0], b.shape[1])),
    route=product_route,
    in_torch=torch.mm,
)
