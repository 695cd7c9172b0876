"""The base class of number formats: frozen fields say which one it is, all else follows from them.

Imports no torch where no tensor is rounded, so that plans and pages can name formats.
Invariants: `quantize` returns the nearest representable value, ties to the even code; beyond the
range it saturates to the largest finite value; ±0 becomes +0; NaN stays NaN; ±inf saturates unless
the format has infinities. A representable value is returned as it is, unless the format says that
its scale is computed from the data and rounded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from madl.formats.grid import Grid, SharedScale

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class NumberFormat(ABC):
    """A set of representable values and the rule that maps a tensor onto it.

    A format whose values lie on a `Grid` defines `grid` (and `shared` where a block of values
    shares a scale), any other `quantize_reference`.
    """

    place_field: ClassVar[str] = ""  # the field that, increased by one, halves all values
    scales_rows: ClassVar[bool] = False  # each row has its own scale, from several passes over it

    @property
    @abstractmethod
    def name(self) -> str:
        """The short and unique name that parameters and records use, such as `fixed(8,4)`."""

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits per value, including its part of a block's shared scale.

        A scale per row or tensor is not counted: its share depends on the length of the row.
        """

    @property
    def range(self) -> tuple[float, float] | None:
        """(smallest, largest) finite value; None where the scale comes from the data."""
        return None if self.grid is None or self.shared else (self.grid.low, self.grid.high)

    @property
    def grid(self) -> Grid | None:
        """The representable values as a `Grid`; None where they form none."""
        return None

    @property
    def shared(self) -> SharedScale | None:
        """The rule for the scale that a block of values shares; None: no shared scale."""
        return None

    @property
    def place(self) -> int | None:
        """The value of `place_field` (fraction bits or exponent bias); None without one."""
        return getattr(self, self.place_field) if self.place_field else None

    def placed(self, place: int) -> Self:
        """This format with another value of `place_field`: all values scale by a power of two."""
        assert self.place_field, f"{self.name} has no place"
        return replace(self, **{self.place_field: place})

    def decoded(self) -> Iterable[float] | None:
        """The value of every finite code; None where data decide it, or codes are too many."""
        return None

    def values(self) -> "Tensor | None":
        """Every finite value once, ascending, as float32; None where `decoded` is."""
        import torch

        if (decoded := self.decoded()) is None:
            return None
        return torch.tensor([*decoded], dtype=torch.float32).add_(0.0).unique()

    @property
    def exact_in_bf16(self) -> bool:
        """Whether bfloat16 holds every value as a normal number (products flush subnormal ones).

        A block's scale only moves exponents. Not handled: blocks whose largest magnitude is below
        about 2^-100 reach bfloat16's subnormals.
        """
        return self.grid is not None and self.grid.exact_in_bf16

    def quantize(self, x: "Tensor") -> "Tensor":
        """Round every value to the nearest representable one, in C++ or torch, with the same bits.

        Shapes: any shape in, the same shape and dtype out; blocks lie on the last dimension.
        The result is contiguous and carries no gradient.

        Raises:
            ValueError: a dtype that is not float32, bfloat16 or float16.
        """
        from madl.formats import rounding

        return rounding.quantize(x, self)

    def quantize_reference(self, x: "Tensor") -> "Tensor":
        """The definition of `quantize` in torch; `x`: contiguous float32, no scalar, not empty."""
        from madl.formats import rounding

        assert self.grid is not None, f"{self.name} has no grid: it must say how to quantize"
        return rounding.round_to_grid(x, self.grid, self.shared)
