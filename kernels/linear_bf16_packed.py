"""A bfloat16 Linear whose weights are packed once, as MXINT8's are: the rival of that product.

torch's own is slower than its float32 product with one row and cached weights, on half the bytes;
this one is not. It needs AVX512_BF16.

Shapes: x (..., in_features), weight (out_features, in_features), bias (out_features); in_features
is even.
"""

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kernels import build

SOURCE = "linear_bf16_packed.cpp"
PANEL = 64  # rows of the weight


def route() -> build.Route:
    """The path that multiplies on this CPU, and why: `avx512` or none, told as `torch`."""
    return build.load(SOURCE, ("avx512_bf16",))


class PackedLinear(nn.Module):
    """A bfloat16 Linear for inference on a CPU.

    Raises:
        RuntimeError: this CPU has no bfloat16 products, or there is no compiler.
        ValueError: in_features is odd.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().bfloat16().contiguous()
        self.num_out, self.num_in = weight.shape
        if self.num_in % 2:
            raise ValueError(f"in_features is even, got {self.num_in}")
        panels = -(-self.num_out // PANEL)
        self.packed = torch.empty((panels, self.num_in // 2, PANEL), dtype=torch.int32)
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        _call("madl_pack_bf16", (weight, self.packed), (self.num_out, self.num_in))

    def forward(self, input: Tensor) -> Tensor:
        x = input.bfloat16().contiguous()
        y = torch.empty((*x.shape[:-1], self.num_out), dtype=torch.bfloat16)
        sizes = (x.numel() // self.num_in, self.num_out, self.num_in)
        threads = torch.get_num_threads()
        _call("madl_linear_bf16_packed", (x, self.packed, self.bias, y), sizes, threads)
        return y


def _call(
    function: str, tensors: tuple[Tensor | None, ...], sizes: tuple[int, ...], *threads: int
) -> None:
    """Call a function of the library. Raises RuntimeError: there is none here."""
    pointers = [None if t is None else t.data_ptr() for t in tensors]
    _function(function, len(tensors), len(sizes), len(threads))(*pointers, *sizes, *threads)


@functools.cache
def _function(name: str, *counts: int) -> Callable[..., None]:
    """The library's function, which takes so many pointers, sizes and small integers."""
    if (library := route().library) is None:
        raise RuntimeError(f"no packed bfloat16 product: {route().reason}")
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
    function = library[name]
    function.argtypes = [kind for kind, count in zip(kinds, counts) for _ in range(count)]
    function.restype = None
    return function
