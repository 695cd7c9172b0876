"""What a number format is: a value with a name, a cost in bits, and one pure function.

Invariants: `quantize` returns the nearest representable value, ties to the even code; beyond the
range it saturates to the largest finite value; ±0 becomes +0; NaN stays NaN; ±inf saturates unless
the format has infinities. A representable value is returned as it is, unless the format says that
its scale is computed from the data and rounded. A float16 or bfloat16 tensor is quantized in
float32, and the result saturates to its dtype again: log(8) has 65536, but float16 ends at 65504.
Not handled: float64, which float32 arithmetic would round twice.
"""

import functools
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from kernels import operators
from kernels import round_to_grid as cpp
from madl.formats.grid import Grid, SharedScale, grid_fields, round_to_grid, shared_fields

Fields = tuple[int | float | bool, ...]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class NumberFormat(ABC):
    """A set of representable values and the rule that maps a tensor onto it.

    `quantize` goes through C++ where there is some (`kernels.round_to_grid.route()` says), and is
    otherwise `quantize_reference`, the definition; both give the same bits. A format whose values
    lie on a `Grid` needs no more than `grid` (and `shared` where a block shares a scale); any other
    overrides `quantize_reference`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short and unique, as tables and parameters show it: `fixed(8,4)`."""

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits per value, a block's shared scale counted in.

        A scale per row or tensor is not counted: its share depends on the length of the row.
        """

    @property
    @abstractmethod
    def range(self) -> tuple[float, float] | None:
        """Smallest and largest finite value; None where the scale comes from the data."""

    @property
    def grid(self) -> Grid | None:
        """The values as plain numbers, None where they are no grid."""
        return None

    @property
    def shared(self) -> SharedScale | None:
        """The rule for the scale that a block shares, None where there is none."""
        return None

    def values(self) -> Tensor | None:
        """Every finite value, ascending; None where they depend on the data or are above 2^16."""
        return None

    @property
    def exact_in_bf16(self) -> bool:
        """Whether bfloat16 holds every value, as a normal number (its products flush others)."""
        values = self.values()
        if values is None:
            return False  # more values than bfloat16 has, or a scale that is any float32
        normal = (values == 0) | (values.abs() >= math.ldexp(1.0, -126))
        return bool((normal & (values == values.bfloat16())).all())

    def quantize(self, x: Tensor) -> Tensor:
        """Nearest representable values.

        Shapes: any shape in, the same shape and dtype out; blocks lie on the last dimension.
        The result is contiguous and carries no gradient.

        Raises:
            ValueError: a dtype that is not float32, bfloat16 or float16.
        """
        if x.dtype not in _DTYPES:
            raise ValueError(
                f"{self.name}: quantizes float32, bfloat16 and float16, got {x.dtype}; cast first"
            )
        if x.requires_grad:
            x = x.detach()
        if x.dim() == 0 or x.numel() == 0:
            return self.quantize(x.view(1)).view(()) if x.dim() == 0 else x.clone()
        if x.dtype is torch.float32:
            return self._round(x.contiguous())
        limit = torch.finfo(x.dtype).max
        wide = self._round(x.float().contiguous())
        return torch.where(wide.isinf(), wide, wide.clamp(-limit, limit)).to(x.dtype)

    def _round(self, x: Tensor) -> Tensor:
        fields = self.fields_of_cpp(x)
        return self.quantize_reference(x) if fields is None else cpp.round_to_grid(x, *fields)

    def fields_of_cpp(self, x: Tensor) -> Fields | None:
        """What `madl::round_to_grid` takes beside `x`, None where it does not quantize `x`."""
        is_fast = x.is_cpu and x.dtype is torch.float32 and cpp.is_fast()
        return _operator_fields(self) if is_fast else None

    def quantize_reference(self, x: Tensor) -> Tensor:
        """The definition in plain torch: contiguous float32 of one dimension or more, not empty."""
        assert self.grid is not None, f"{self.name} has no grid: it must say how to quantize"
        return round_to_grid(x, self.grid, self.shared)


@functools.lru_cache(maxsize=256)
def _computed_fields(number_format: NumberFormat) -> Fields | None:
    grid = number_format.grid
    return None if grid is None else (*grid_fields(grid), *shared_fields(number_format.shared))


@operators.constant_in_traces
def _operator_fields(number_format: NumberFormat) -> Fields | None:
    """The operator's arguments, None where the values are no grid."""
    return _computed_fields(number_format)
