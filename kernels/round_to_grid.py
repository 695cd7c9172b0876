"""The torch operator `madl::round_to_grid`: one pass of C++ over a contiguous float32 CPU tensor.

Its definition is `madl.formats.rounding`; the arguments are the fields of `Grid` and `SharedScale`.
Being an operator with a fake kernel, it goes through `torch.compile` and `torch.export` whole.

Shapes: any; blocks lie on the last dimension.
Not handled: gradients. `madl.compression.quantize` has the straight-through estimator.
"""

import torch
from torch import Tensor

from kernels import build, operators

SOURCE = "round_to_grid.cpp"


def route() -> build.Route:
    """The path that rounds on this CPU, and why."""
    return build.load(SOURCE, operators=("round_to_grid",))


@operators.constant_in_traces
def is_fast() -> bool:
    """Whether C++ rounds on this CPU, and not torch."""
    return route().library is not None


def _check(x: Tensor, *fields: float) -> None:
    if x.dtype != torch.float32:
        raise ValueError(f"madl::round_to_grid takes float32, got {x.dtype}; cast first")


FIELDS = (
    *("int spacing", "int mantissa_bits", "int min_exponent", "float low", "float high"),
    *("bool keep_inf", "bool signed_zero", "bool is_wide"),
    *("int block", "int scale_kind", "int top", "int scale_low", "int scale_high", "int carry"),
)

round_to_grid = operators.define(
    f"round_to_grid(Tensor x, {', '.join(FIELDS)}) -> Tensor",
    check=_check,
    empty=lambda x, *fields: x.new_empty(x.shape),
    route=route,
)
