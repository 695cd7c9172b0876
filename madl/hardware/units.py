"""The dot-product units that `kernels/hardware/` can build, as values.

A unit is a top module with its parameters, the operands of its two sides, and how far its sums are
aligned. Everything else (ports, widths, the arithmetic to check against) follows from that.

Source: the operands are those of `madl.formats`; E8M0 scales as in OCP MX 1.0.
Units: widths, guards and exponents in bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "hardware"
WINDOW = 16  # bits that an aligned sum keeps of its largest term: as many as a bf16 product has
SCALE_BIAS = 127  # of a shared exponent of 8 bits
FP32_BITS = 32

Specials = Literal["none", "nan", "ieee"]
_SPECIALS: Mapping[str, int] = {"none": 0, "nan": 1, "ieee": 2}  # as decode_float numbers them
_MX_SPECIALS: Mapping[tuple[int, int], Specials] = {(4, 3): "nan", (5, 2): "ieee"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """Two's complement."""

    width: int

    @property
    def bits(self) -> int:
        return self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class SignMagnitude:
    """A sign and a magnitude of `mantissa` bits."""

    mantissa: int

    @property
    def bits(self) -> int:
        return self.mantissa + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """Sign, exponent, mantissa with an implicit one; `has_subnormals` or they count as zero."""

    exponent: int
    mantissa: int
    specials: Specials = "ieee"
    has_subnormals: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side of a unit; `is_scaled`: each block has an E8M0 scale."""

    element: Integer | SignMagnitude | Float
    is_scaled: bool = False


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
    below the largest product when products are aligned, None where they have one exponent and
    nothing is aligned. `block_guard`: the same for the sums of blocks. `rounds_each_step`: every
    product and partial sum is an FP32 number. `result_bits`: FP32's, or those of an integer.
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
    result_bits: int = FP32_BITS
    inner: "Unit | None" = None  # what works on side b once the unit has quantized it

    @property
    def blocks(self) -> int:
        return self.lanes // self.block

    @property
    def gives_integer(self) -> bool:
        """The exact sum as it is, no FP32 number."""
        return isinstance(self.a.element, Integer) and not self.a.is_scaled

    @property
    def inputs(self) -> tuple[Port, ...]:
        sides = (("a", self.a), ("b", self.b))
        values = [Port(name=n, fields=self.lanes, bits=o.element.bits) for n, o in sides]
        scales = [
            Port(name=f"{n}_scale", fields=self.blocks, bits=8) for n, o in sides if o.is_scaled
        ]
        return (*values, *scales)

    @property
    def input_bits(self) -> int:
        return sum(port.fields * port.bits for port in self.inputs)


def fixed(*, lanes: int, width: int) -> Unit:
    """Integers on both sides; the result is the exact integer.

    Raises:
        ValueError: no lane, or a width outside 2 … 16.
    """
    _check_lanes(lanes)
    _check("width", width, 2, 16)
    side = Operand(element=Integer(width=width))
    return Unit(
        name=f"fixed{width} × fixed{width}",
        top="dot_fixed",
        parameters={"LANES": lanes, "WIDTH": width},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        result_bits=2 * width + _log2(lanes),
    )


def mxint(*, lanes: int, width: int, block: int = 32) -> Unit:
    """MXINT on both sides. A block longer than the unit is one that takes several cycles.

    Raises:
        ValueError: no lane, a width outside 2 … 16, lanes that are no multiple of the block.
    """
    _check("width", width, 2, 16)
    return _block_integers(
        f"MXINT{width}",
        "dot_mxint",
        Integer(width=width),
        {"WIDTH": width},
        product_bits=2 * width,
        fraction_bits=width - 2,
        lanes=lanes,
        block=_checked_block(lanes, block),
    )


def mxint_quantizing(*, lanes: int, width: int, block: int = 32) -> Unit:
    """MXINT weights (side a) with bfloat16 activations (side b), which the unit makes MXINT first.

    Raises:
        ValueError: no lane, a width outside 2 … 8, lanes that are no multiple of the block.
    """
    _check("width", width, 2, 8)
    inner = mxint(lanes=lanes, width=width, block=block)
    return replace(
        inner,
        name=f"{inner.name}, quantizing",
        top="dot_mxint_quantizing",
        b=Operand(element=BF16),
        inner=inner,
    )


def block_float(*, lanes: int, mantissa: int, block: int = 16) -> Unit:
    """Block floating point (MSFP) on both sides; `mantissa` does not count the sign.

    Raises:
        ValueError: no lane, a mantissa outside 1 … 16, lanes that are no multiple of the block.
    """
    _check("mantissa", mantissa, 1, 16)
    return _block_integers(
        f"block FP{mantissa + 1}",
        "dot_block_float",
        SignMagnitude(mantissa=mantissa),
        {"MANTISSA": mantissa},
        product_bits=2 * mantissa + 1,
        fraction_bits=mantissa - 1,
        lanes=lanes,
        block=_checked_block(lanes, block),
    )


def _block_integers(
    name: str,
    top: str,
    element: Integer | SignMagnitude,
    widths: Mapping[str, int],
    *,
    product_bits: int,
    fraction_bits: int,
    lanes: int,
    block: int,
) -> Unit:
    """Integers under a scale a block, on both sides: the sum within a block is exact."""
    side = Operand(element=element, is_scaled=True)
    guard = max(0, WINDOW - product_bits - _log2(block))
    return Unit(
        name=f"{name} × {name}",
        top=top,
        parameters={
            **{"LANES": lanes, **widths, "BLOCK": block, "GUARD": guard},
            "OFFSET": 2 * (SCALE_BIAS + fraction_bits),
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        block_guard=guard,
    )


def mxint_bf16(*, lanes: int, width: int, block: int = 32) -> Unit:
    """MXINT weights (side a) with bfloat16 activations (side b).

    Raises:
        ValueError: no lane, a width outside 2 … 16, lanes that are no multiple of the block.
    """
    block = _checked_block(lanes, block)
    _check("width", width, 2, 16)
    guard = max(0, WINDOW - width - 8)
    offset = SCALE_BIAS + width - 2 + BF16.bias + BF16.mantissa + guard
    return Unit(
        name=f"MXINT{width} × bf16",
        top="dot_mxint_bf16",
        parameters={
            **{"LANES": lanes, "WIDTH": width, "BLOCK": block, "GUARD": guard},
            "OFFSET": offset,
        },
        lanes=lanes,
        a=Operand(element=Integer(width=width), is_scaled=True),
        b=Operand(element=BF16),
        block=block,
        lane_guard=guard,
    )


def floating(
    *,
    lanes: int,
    exponent: int,
    mantissa: int,
    specials: Specials = "ieee",
    window: int = WINDOW,
) -> Unit:
    """Floating point on both sides, products aligned to the largest and added as integers.

    `window`: bits that the sum keeps below its largest product, never less than a product has.

    Raises:
        ValueError: no lane, an exponent outside 2 … 8, a mantissa outside 1 … 23, no window.
    """
    _check_lanes(lanes)
    _check("window", window, 1, 64)
    element = _float(exponent, mantissa, specials)
    guard = max(0, window - 2 * (mantissa + 1))
    side = Operand(element=element)
    return Unit(
        name=f"{_float_name(element)} × {_float_name(element)}",
        top="dot_float",
        parameters={
            **{"LANES": lanes, "EXPONENT": exponent, "MANTISSA": mantissa},
            **{"SPECIALS": _SPECIALS[specials], "GUARD": guard},
            "OFFSET": 2 * (element.bias + mantissa) + guard,
        },
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        lane_guard=guard,
    )


def mxfloat(*, lanes: int, exponent: int, mantissa: int, block: int = 32) -> Unit:
    """MXFP on both sides: small floats under an E8M0 scale.

    Raises:
        ValueError: no lane, widths of no float, lanes that are no multiple of the block.
    """
    block = _checked_block(lanes, block)
    element = _float(exponent, mantissa, _MX_SPECIALS.get((exponent, mantissa), "none"))
    guard = max(0, WINDOW - 2 * (mantissa + 1))
    side = Operand(element=element, is_scaled=True)
    name = f"MXFP{element.bits}-e{exponent}m{mantissa}"
    return Unit(
        name=f"{name} × {name}",
        top="dot_mxfloat",
        parameters={
            **{"LANES": lanes, "EXPONENT": exponent, "MANTISSA": mantissa},
            **{"SPECIALS": _SPECIALS[element.specials], "BLOCK": block, "GUARD": guard},
            "OFFSET": 2 * (SCALE_BIAS + element.bias + mantissa) + guard,
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        lane_guard=guard,
    )


def float_adders(*, lanes: int, mantissa: int) -> Unit:
    """bfloat16 (`mantissa` 7) or FP32 (23), every product and partial sum an FP32 number.

    Raises:
        ValueError: no lane, or a mantissa outside 1 … 23.
    """
    _check_lanes(lanes)
    element = _float(8, mantissa, "ieee", has_subnormals=False)
    side = Operand(element=element)
    name = _float_name(element)
    return Unit(
        name=f"{name} × {name}, FP32 adders",
        top="dot_float_adders",
        parameters={"LANES": lanes, "MANTISSA": mantissa},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        rounds_each_step=True,
    )


KINDS: Mapping[str, Callable[..., Unit]] = {
    "fixed": fixed,
    "mxint": mxint,
    "mxint_quantizing": mxint_quantizing,
    "block_float": block_float,
    "mxint_bf16": mxint_bf16,
    "float": floating,
    "mxfloat": mxfloat,
    "float_adders": float_adders,
}
_FIELDS = ("lanes", "width", "mantissa", "exponent", "specials", "window", "block")


def from_params(params: Mapping[str, Any]) -> Unit:
    """The unit that a case's parameters describe: `unit` names the kind, the rest its widths.

    Raises:
        ValueError: an unknown kind, or values that the kind does not take.
    """
    kind = str(params.get("unit"))
    if kind not in KINDS:
        raise ValueError(f"unknown unit {kind!r}; known: {', '.join(KINDS)}")
    return KINDS[kind](**{name: params[name] for name in _FIELDS if name in params})


def _float(
    exponent: int, mantissa: int, specials: Specials, *, has_subnormals: bool = True
) -> Float:
    _check("exponent", exponent, 2, 8)
    _check("mantissa", mantissa, 1, 23)
    if specials not in _SPECIALS:
        raise ValueError(f"specials is one of {', '.join(_SPECIALS)}, got {specials!r}")
    return Float(
        exponent=exponent, mantissa=mantissa, specials=specials, has_subnormals=has_subnormals
    )


BF16 = Float(exponent=8, mantissa=7)


def _float_name(element: Float) -> str:
    known = {(8, 7): "bf16", (8, 23): "FP32", (5, 10): "fp16"}
    own = f"FP{element.bits}-e{element.exponent}m{element.mantissa}"
    return known.get((element.exponent, element.mantissa), own)


def _check_lanes(lanes: int) -> None:
    _check("lanes", lanes, 1, 1024)


def _checked_block(lanes: int, block: int) -> int:
    """The block as the unit sees it: never longer than the unit."""
    _check_lanes(lanes)
    _check("block", block, 1, 1024)
    if block < lanes and lanes % block:
        raise ValueError(f"lanes must be a multiple of the block, got {lanes} and {block}")
    return min(block, lanes)


def _check(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} is {low} … {high}, got {value}")


def _log2(count: int) -> int:
    """Bits that a sum of `count` terms is wider than a term."""
    return (count - 1).bit_length()
