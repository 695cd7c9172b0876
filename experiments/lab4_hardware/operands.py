"""The description of a dot-product unit: the operands of its two sides, its ports, its alignment.

Source: the operands are those of `madl.formats`; E8M0 scales as in OCP MX 1.0.
Units: widths, guards and exponents in bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCALE_BIAS = 127  # of a shared exponent of 8 bits
RESULT_BITS = 32  # of the accumulator, FP32 or an integer

Specials = Literal["none", "nan", "ieee"]
# The factor of a side's values. Each block has an exponent: `e8m0`, which may be NaN; `exponent`,
# which may not; `bias`, in two's complement, counted the other way. Or each block has a float
# without a sign, `e4m3` or `fp16`. Or each `row` of a matrix has a float32, which is applied to
# finished sums and so to none of a unit's numbers; so is the tensor's float32 beside `e4m3`.
Scale = Literal["none", "e8m0", "exponent", "bias", "e4m3", "fp16", "row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """An element in two's complement, or with `signs` a sign bit beside a magnitude."""

    bits: int
    signs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """An element of sign, exponent, mantissa; without mantissa a power of two.

    `own_bias` None is the bias of IEEE 754.
    """

    exponent: int
    mantissa: int
    specials: Specials = "ieee"
    own_bias: int | None = None

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1 if self.own_bias is None else self.own_bias

    @property
    def lowest(self) -> int:
        """The exponent of the last mantissa bit of the smallest values."""
        return 1 - self.bias - self.mantissa

    @property
    def product_bits(self) -> int:
        """Bits of a product's magnitude."""
        return 2 * (self.mantissa + 1) if self.mantissa else 1

    @property
    def range(self) -> int:
        """The most that the exponents of two products may differ, were every code finite."""
        return 2 * ((1 << self.exponent) - 2)


Element = Integer | Float
FLOAT_SCALES: Mapping[Scale, Float] = {
    "e4m3": Float(exponent=4, mantissa=3, specials="nan"),
    "fp16": Float(exponent=5, mantissa=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side of a unit: its elements, and what scales them."""

    element: Element
    scale: Scale = "none"

    @property
    def has_block_scale(self) -> bool:
        """Whether the unit is given a scale for each block."""
        return self.scale not in ("none", "row")

    @property
    def scale_bits(self) -> int:
        """Bits of a block's scale; a float's sign, which counts, is always 0."""
        return FLOAT_SCALES[self.scale].bits if self.scale in FLOAT_SCALES else 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input of `fields` fields of `bits` bits each, the first field lowest."""

    name: str
    fields: int
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A dot product of `lanes` pairs, added to an accumulator.

    `block`: lanes that share a scale, all of them where nothing is scaled. `lane_guard`: bits kept
    below the largest product where products are aligned; None where nothing is lost in a block,
    since the products have one exponent or are shifted to one. `block_guard`: bits kept below the
    largest sum of a block. `is_integer`: accumulator and result are integers, not FP32. `inner`:
    the unit that computes with side b once this unit has quantized it.
    """

    top: str
    parameters: Mapping[str, int]
    lanes: int
    a: Operand
    b: Operand
    block: int
    lane_guard: int | None = None
    block_guard: int = 0
    is_integer: bool = False
    inner: "Unit | None" = None

    @property
    def blocks(self) -> int:
        return self.lanes // self.block

    @property
    def inputs(self) -> tuple[Port, ...]:
        sides = (("a", self.a), ("b", self.b))
        values = [Port(name=n, fields=self.lanes, bits=o.element.bits) for n, o in sides]
        scales = [
            Port(name=f"{n}_scale", fields=self.blocks, bits=o.scale_bits)
            for n, o in sides
            if o.has_block_scale
        ]
        return (*values, *scales, Port(name="acc", fields=1, bits=RESULT_BITS))
