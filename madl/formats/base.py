"""What a number format is: a value with a name, a cost in bits, and one pure function.

Invariants: `quantize` returns the nearest representable value, ties to the even code; beyond the
range it saturates to the largest finite value; ±0 becomes +0; NaN stays NaN; a representable value
is returned as it is.
"""

from abc import ABC, abstractmethod

from torch import Tensor


class NumberFormat(ABC):
    """A set of representable values and the rule that maps a tensor onto it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short and unique, as tables and parameters show it: `fixed(8,4)`."""

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits per value, a shared scale counted in."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float] | None:
        """Smallest and largest finite value; None where the scale comes from the data."""

    @abstractmethod
    def quantize(self, x: Tensor) -> Tensor:
        """Nearest representable values.

        Shapes: any shape in, the same shape and dtype out; blocks lie on the last dimension.
        """
