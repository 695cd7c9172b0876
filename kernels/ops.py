"""The torch operator `madl::round_to_grid`: one pass of C++ over a contiguous float32 CPU tensor.

Its definition is `madl.formats.grid`; the arguments are the fields of `Grid` and `SharedScale`.
Being an operator with a fake kernel, it goes through `torch.compile` and `torch.export` whole.

Shapes: any; blocks lie on the last dimension.
Not handled: gradients. `madl.compression.quantize` has the straight-through estimator.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from kernels import build

_P = ParamSpec("_P")
_R = TypeVar("_R")

SOURCE = "round_to_grid.cpp"

_library = torch.library.Library("madl", "FRAGMENT")
_library.define(
    "round_to_grid(Tensor x, int spacing, int mantissa_bits, int min_exponent, float low,"
    " float high, bool keep_inf, bool is_wide, int block, int top, int scale_low, int scale_high,"
    " bool nearest_power) -> Tensor"
)


class _Grid(ctypes.Structure):
    """`struct Grid` of the C++."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("spacing", "mantissa_bits", "min_exponent")),
        *((name, ctypes.c_int32) for name in ("keep_inf", "is_wide", "block", "top")),
        *((name, ctypes.c_int32) for name in ("scale_low", "scale_high", "nearest_power")),
        *((name, ctypes.c_float) for name in ("low", "high")),
    )


def route() -> build.Route:
    """Which path rounds on this CPU, and why."""
    return build.load(SOURCE)


@functools.lru_cache(maxsize=8)
def _function(library: ctypes.CDLL) -> Callable[..., int]:
    function = library.madl_round_to_grid
    function.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.POINTER(_Grid), ctypes.c_int32),
    )
    return function


def constant_in_traces(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let `torch.compile` call the function while it traces, and not look inside.

    This is what `torch.compiler.assume_constant_result` sets; that one imports torch._dynamo, which
    takes a second, in programs that compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_in_traces
def is_fast() -> bool:
    """Whether C++ rounds on this CPU."""
    return route().library is not None


@functools.lru_cache(maxsize=256)
def _struct(
    spacing: int,
    mantissa_bits: int,
    min_exponent: int,
    low: float,
    high: float,
    keep_inf: bool,
    is_wide: bool,
    block: int,
    top: int,
    scale_low: int,
    scale_high: int,
    nearest_power: bool,
) -> _Grid:
    return _Grid(
        *(spacing, mantissa_bits, min_exponent, keep_inf, is_wide),
        *(block, top, scale_low, scale_high, nearest_power, low, high),
    )


def _round_to_grid(x: Tensor, *fields: float) -> Tensor:
    library = route().library
    if library is None:
        raise RuntimeError(
            f"madl::round_to_grid needs its C++ ({route().reason}); trace the model anew with "
            "MADL_KERNELS=torch to be free of it"
        )
    if x.dtype != torch.float32:
        raise ValueError(f"madl::round_to_grid takes float32, got {x.dtype}; cast first")
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y
    columns = x.shape[-1] if x.dim() else 1
    status = _function(library)(
        x.data_ptr(),
        y.data_ptr(),
        x.numel() // columns,
        columns,
        _struct(*fields),
        torch.get_num_threads(),
    )
    assert status == 0, f"the C++ knows no spacing {fields[0]}"
    return y


def _fake_round_to_grid(x: Tensor, *fields: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_library.impl("round_to_grid", _round_to_grid, "CPU")
torch.library.register_fake("madl::round_to_grid", _fake_round_to_grid, lib=_library)

round_to_grid = torch.ops.madl.round_to_grid.default
