"""What a dot-product unit is, as a value: the operands of its two sides, its ports, its alignment.

Source: the operands are those of `madl.formats`; E8M0 scales as in OCP MX 1.0.
Units: widths, guards and exponents in bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCALE_BIAS = 127  # of a shared exponent of 8 bits
FP32_BITS = 32

Specials = Literal["none", "nan", "ieee"]
# What multiplies a side's values. Each block has an exponent: `e8m0`, which may be NaN; `exponent`,
# which may not; `bias`, in two's complement, counted the other way. Or each `row` of a matrix has a
# float32, which is applied to finished sums and so to none of a unit's numbers.
Scale = Literal["none", "e8m0", "exponent", "bias", "row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """Two's complement."""

    width: int

    @property
    def bits(self) -> int:
        return self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class SignMagnitude:
    """A sign and a magnitude of `mantissa` bits; with one bit a ternary number."""

    mantissa: int

    @property
    def bits(self) -> int:
        return self.mantissa + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """A sign for each level, the first level lowest; a set bit is -1. Zero is no value."""

    levels: int

    @property
    def bits(self) -> int:
        return self.levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """Sign, exponent, mantissa.

    `has_implicit_one`, or a denormal minifloat; without mantissa a logarithmic number.
    `has_subnormals`, or they count as zero. `own_bias` None is IEEE 754's.
    """

    exponent: int
    mantissa: int
    specials: Specials = "ieee"
    has_subnormals: bool = True
    has_implicit_one: bool = True
    own_bias: int | None = None

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1 if self.own_bias is None else self.own_bias

    @property
    def least_field(self) -> int:
        """The exponent field of the smallest values, zero apart."""
        return 1 if self.has_implicit_one else 0

    @property
    def lowest(self) -> int:
        """The exponent of the last bit of the smallest values."""
        return self.least_field - self.bias - self.mantissa

    @property
    def product_bits(self) -> int:
        """Of a product's magnitude."""
        if self.mantissa == 0:
            return 1
        return 2 * (self.mantissa + self.has_implicit_one)

    @property
    def range(self) -> int:
        """How far the exponents of two products may lie apart, were every code finite."""
        return 2 * ((1 << self.exponent) - 1 - self.least_field)


Element = Integer | SignMagnitude | Signs | Float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side of a unit."""

    element: Element
    scale: Scale = "none"

    @property
    def has_block_scale(self) -> bool:
        """Whether the unit is given a scale for each block."""
        return self.scale in ("e8m0", "exponent", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input: so many fields of so many bits, the first field lowest."""

    name: str
    fields: int
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A dot product of `lanes` pairs.

    `block`: lanes that share a scale, all of them where nothing is scaled. `lane_guard`: bits kept
    below the largest product when products are aligned, None where nothing is lost in a block: the
    products have one exponent, or are shifted to one. `block_guard`: the same for the sums of
    blocks. `rounds_each_step`: every product and partial sum is an FP32 number. `integers`: the
    result is so many exact sums, the first one lowest, or, where zero, one FP32 number.
    """

    name: str
    top: str
    parameters: Mapping[str, int]
    lanes: int
    a: Operand
    b: Operand
    block: int
    lane_guard: int | None = None
    block_guard: int = 0
    rounds_each_step: bool = False
    integers: int = 0
    result_bits: int = FP32_BITS
    inner: "Unit | None" = None  # what works on side b once the unit has quantized it

    @property
    def blocks(self) -> int:
        return self.lanes // self.block

    @property
    def inputs(self) -> tuple[Port, ...]:
        sides = (("a", self.a), ("b", self.b))
        values = [Port(name=n, fields=self.lanes, bits=o.element.bits) for n, o in sides]
        scales = [
            Port(name=f"{n}_scale", fields=self.blocks, bits=8)
            for n, o in sides
            if o.has_block_scale
        ]
        return (*values, *scales)

    @property
    def input_bits(self) -> int:
        return sum(port.fields * port.bits for port in self.inputs)


def check_lanes(lanes: int) -> None:
    """Raises: ValueError for lanes outside 1 … 1024."""
    check("lanes", lanes, 1, 1024)


def checked_block(lanes: int, block: int) -> int:
    """The block as the unit sees it: never longer than the unit.

    Raises:
        ValueError: no lane, no block, or lanes that are no multiple of it.
    """
    check_lanes(lanes)
    check("block", block, 1, 1024)
    if block < lanes and lanes % block:
        raise ValueError(f"lanes must be a multiple of the block, got {lanes} and {block}")
    return min(block, lanes)


def check(what: str, value: int, low: int, high: int) -> None:
    """Raises: ValueError for a value outside its limits."""
    if not low <= value <= high:
        raise ValueError(f"{what} is {low} … {high}, got {value}")


def log2(count: int) -> int:
    """Bits that a sum of `count` terms is wider than a term."""
    return (count - 1).bit_length()
