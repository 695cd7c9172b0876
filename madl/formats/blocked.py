"""Formats in which a block of neighbours shares a scale.

Other than `RealScale`'s it is a power of two: 2^(floor(log2 of the block's largest magnitude) -
exponent of the element's largest power of two), clamped to the exponents that its bits can encode.

Source: OCP Microscaling Formats (MX) v1.0, section 6.3; MSFP, Darvish Rouhani et al. 2020
(NeurIPS); block minifloat, Fox et al. 2021 (ICLR).
Shapes: blocks of `block` values lie on the last dimension; a short last block is one of its own.
Invariants: idempotent. A NaN makes its block NaN (as scale 0xFF does in MX); an infinity takes the
largest scale, and the rest of its block is rounded under that.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, get_args

from madl.formats.base import NumberFormat
from madl.formats.fixed import SignMagnitude
from madl.formats.grid import ROW, Grid, Scale, ScaleRule, SharedScale, shared_scale
from madl.formats.log import Logarithmic
from madl.formats.minifloat import Minifloat


class Blocked(NumberFormat):
    """Base class: elements under a scale that `block` neighbours share; subclasses define both."""

    __slots__ = ()
    block: int

    @property
    @abstractmethod
    def element(self) -> NumberFormat:
        """The format of a value before it is scaled."""

    @property
    @abstractmethod
    def scale_bits(self) -> int:
        """The number of bits of the shared scale."""

    @property
    def scale_exponents(self) -> tuple[int, int]:
        """(smallest, largest) exponent that the scale's bits can encode."""
        half = 1 << (self.scale_bits - 1)
        return 1 - half, half

    @property
    def bits(self) -> float:
        return self.element.bits + self.scale_bits / self.block

    @property
    def grid(self) -> Grid:
        grid = self.element.grid
        assert grid is not None
        return grid

    @property
    def shared(self) -> SharedScale:
        low, high = self.scale_exponents
        return shared_scale(self.grid, block=self.block, low=low, high=high)

    def check_block(self) -> None:
        """Raise ValueError for a block without values, or a scale of other than 1 … 8 bits."""
        kind = type(self).__name__
        if self.block < 1:
            raise ValueError(f"{kind}: block is at least 1 value, got {self.block}")
        if not 1 <= self.scale_bits <= 8:
            raise ValueError(f"{kind}: the shared scale has 1 … 8 bits, got {self.scale_bits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFloat(Blocked):
    """Block floating point (MSFP): sign-magnitude mantissas under an exponent shared by a block.

    `mantissa_width` does not count the sign. The largest value of a block keeps its leading bit at
    the top of the mantissa; if it would round up to the next power of two it saturates.

    Raises:
        ValueError: mantissa_width outside 1 … 16, exponent_width outside 1 … 8, block below 1.
    """

    mantissa_width: int
    exponent_width: int = 8
    block: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.mantissa_width <= 16:
            raise ValueError(f"BlockFloat: mantissa_width is 1 … 16, got {self.mantissa_width}")
        self.check_block()

    @property
    def name(self) -> str:
        return f"block-float({self.mantissa_width},{self.exponent_width},block={self.block})"

    @property
    def element(self) -> SignMagnitude:
        return SignMagnitude(width=self.mantissa_width + 1, frac_width=self.mantissa_width - 1)

    @property
    def scale_bits(self) -> int:
        return self.exponent_width


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMinifloat(Blocked):
    """Minifloats without infinity and NaN under an exponent bias that the block shares.

    The bias is a two's complement number. It puts the last exponent at the block's largest
    magnitude; small values make it large, values far above one make it negative.

    Raises:
        ValueError: widths of no minifloat, exponent_width above 6, bias_width outside 1 … 8, block
            below 1.
    """

    width: int
    exponent_width: int
    bias_width: int = 8
    block: int = 16

    def __post_init__(self) -> None:
        if self.exponent_width > 6:
            raise ValueError(f"BlockMinifloat: exponent_width is 1 … 6, got {self.exponent_width}")
        _ = self.element  # checks the widths
        self.check_block()

    @property
    def name(self) -> str:
        widths = f"{self.width},{self.exponent_width},{self.bias_width}"
        return f"block-minifloat({widths},block={self.block})"

    @property
    def element(self) -> Minifloat:
        return Minifloat(width=self.width, exponent_width=self.exponent_width, bias=0)

    @property
    def scale_bits(self) -> int:
        return self.bias_width


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLog(Blocked):
    """Powers of two under an exponent bias, a two's complement number, that the block shares.

    The bias puts the last exponent at the power of two nearest to the block's largest magnitude.

    Raises:
        ValueError: width outside 2 … 8, bias_width outside 1 … 8, block below 1.
    """

    width: int
    bias_width: int = 8
    block: int = 16

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 8:
            raise ValueError(f"BlockLog: width is 2 … 8 bits, got {self.width}")
        self.check_block()

    @property
    def name(self) -> str:
        return f"block-log({self.width},{self.bias_width},block={self.block})"

    @property
    def element(self) -> Logarithmic:
        return Logarithmic(width=self.width, bias=0)

    @property
    def scale_bits(self) -> int:
        return self.bias_width

    @property
    def shared(self) -> SharedScale:
        low, high = self.scale_exponents
        return shared_scale(self.grid, block=self.block, low=low, high=high, rule="nearest")


class _Microscaling(Blocked):
    """Base class of the OCP MX formats, whose scale is E8M0: 2^-127 … 2^127, or NaN."""

    __slots__ = ()

    @property
    def scale_bits(self) -> int:
        return 8

    @property
    def scale_exponents(self) -> tuple[int, int]:
        return -127, 127


@dataclass(frozen=True, slots=True, kw_only=True)
class MXInt(_Microscaling):
    """OCP MX with integer elements: MXINT8 and its narrower kin, two's complement · 2^-(width-2).

    The code of -2 stays unused, as the specification permits: it would make the format lopsided,
    and a second pass would find a larger maximum than the first.

    Raises:
        ValueError: width outside 2 … 16, block below 1.
    """

    width: int = 8
    block: int = 32

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 16:
            raise ValueError(f"MXInt: width is 2 … 16 bits, got {self.width}")
        self.check_block()

    @property
    def name(self) -> str:
        return f"mxint{self.width}" + ("" if self.block == 32 else f"(block={self.block})")

    @property
    def element(self) -> SignMagnitude:
        return SignMagnitude(width=self.width, frac_width=self.width - 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MXFloat(_Microscaling):
    """OCP MX with floating-point elements: MXFP8 (E4M3, E5M2), MXFP6 (E3M2, E2M3), MXFP4 (E2M1).

    Conversion saturates: the infinities that an E5M2 element could hold are not made.

    Raises:
        ValueError: an element that is none of those five, or block below 1.
    """

    exponent_width: int
    mantissa_width: int
    block: int = 32
    rule: ScaleRule = "floor"  # OCP's; "rceil" is NVIDIA's

    def __post_init__(self) -> None:
        if (self.exponent_width, self.mantissa_width) not in _MX_ELEMENTS:
            known = ", ".join(f"e{e}m{m}" for e, m in _MX_ELEMENTS)
            raise ValueError(
                f"MXFloat: unknown element e{self.exponent_width}m{self.mantissa_width}; "
                f"known: {known}"
            )
        if self.rule not in (rules := get_args(ScaleRule)):
            raise ValueError(f"MXFloat: rule is one of {', '.join(rules)}, got {self.rule!r}")
        self.check_block()

    @property
    def name(self) -> str:
        element = f"e{self.exponent_width}m{self.mantissa_width}"
        changes = [f"block={self.block}"] * (self.block != 32) + [self.rule] * (
            self.rule != "floor"
        )
        how = f"({','.join(changes)})" if changes else ""
        return f"mxfp{1 + self.exponent_width + self.mantissa_width}-{element}{how}"

    @property
    def shared(self) -> SharedScale:
        low, high = self.scale_exponents
        return shared_scale(self.grid, block=self.block, low=low, high=high, rule=self.rule)

    @property
    def element(self) -> Minifloat:
        return _MX_ELEMENTS[self.exponent_width, self.mantissa_width]

    @property
    def grid(self) -> Grid:
        grid = self.element.grid
        return replace(grid, keep_inf=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealScale(Blocked):
    """Elements of four bits under a scale that is no power of two: NVFP4, group-wise INT4.

    The scale of a block is its largest magnitude over the largest element, rounded: to E4M3 under a
    float32 for the whole tensor, by which the largest scale is 448, or to FP16. A block of `ROW`
    is a row. A NaN makes its block NaN; infinities count as float32's largest.

    Invariants: nearest and idempotent up to the rounding of the scale.

    Raises:
        ValueError: an element that is neither "e2m1" nor "int4", another scale, or block below 1.
    """

    element_name: Literal["e2m1", "int4"]
    scale: Literal["e4m3", "fp16"]
    block: int

    def __post_init__(self) -> None:
        if self.element_name not in _REAL_ELEMENTS or self.scale not in _REAL_SCALES:
            raise ValueError(
                f"RealScale: elements {', '.join(_REAL_ELEMENTS)} under scales "
                f"{', '.join(_REAL_SCALES)}, got {self.element_name!r} and {self.scale!r}"
            )
        self.check_block()

    @property
    def name(self) -> str:
        if (self.element_name, self.scale, self.block) == ("e2m1", "e4m3", 16):
            return "nvfp4"
        block = "row" if self.block == ROW else self.block
        return f"{self.element_name}({self.scale},block={block})"

    @property
    def element(self) -> NumberFormat:
        return _REAL_ELEMENTS[self.element_name]

    @property
    def scale_bits(self) -> int:
        return 8  # of E4M3; the bits of FP16 are counted in `bits`

    @property
    def bits(self) -> float:
        shared = 0 if self.block == ROW else {"e4m3": 8, "fp16": 16}[self.scale] / self.block
        return self.element.bits + shared

    @property
    def shared(self) -> SharedScale:
        return SharedScale(block=self.block, kind=_REAL_SCALES[self.scale])

    @property
    def exact_in_bf16(self) -> bool:
        return False


_REAL_ELEMENTS: dict[str, NumberFormat] = {
    "e2m1": Minifloat(width=4, exponent_width=2),
    "int4": SignMagnitude(width=4, frac_width=0),
}
_REAL_SCALES = {"e4m3": Scale.E4M3, "fp16": Scale.FP16}
_MX_ELEMENTS = {
    (4, 3): Minifloat(width=8, exponent_width=4, specials="nan"),
    (5, 2): Minifloat(width=8, exponent_width=5, specials="ieee"),
    (3, 2): Minifloat(width=6, exponent_width=3),
    (2, 3): Minifloat(width=6, exponent_width=2),
    (2, 1): Minifloat(width=4, exponent_width=2),
}
