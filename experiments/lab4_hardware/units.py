"""The dot-product units that are compared, each for a reason, and how each kind is built.

The reasons: bf16 is what everybody has. MXINT8 meets it in two's complement, as OCP writes it, and
with signs beside magnitudes; with smaller blocks; with weights alone in MXINT8; and with inputs
that the unit quantizes. INT8 has a scale for a whole row. Eight, six and four bits come as
integers, floats and powers of two, so that bits, mantissas and exponents can be told apart. NVFP4
and groups of INT4 have scales that are floats; MXFP4 in NVFP4's blocks tells scales from blocks.

Products of floats are aligned to the largest and added as integers, of which a window of bits is
kept. Where exponents are so few that the window holds every product wherever it lies, each is
shifted to its place instead, and the sum is exact.

Not handled: widths outside what is compared; the Verilog says its own limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.lab4_hardware.design import LANES, WINDOW_BITS
from experiments.lab4_hardware.operands import (
    FLOAT_SCALES,
    SCALE_BIAS,
    Float,
    Integer,
    Operand,
    Scale,
    Specials,
    Unit,
)

SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "hardware"
BF16 = Float(exponent=8, mantissa=7)
E2M1 = Float(exponent=2, mantissa=1, specials="none")
_SPECIALS: Mapping[str, int] = {"none": 0, "nan": 1, "ieee": 2}  # as decode_float numbers them


def unit_named(name: str, lanes: int = LANES) -> Unit:
    """The unit of that name.

    Raises:
        ValueError: there is none, or its blocks do not fill the lanes.
    """
    if name not in UNITS:
        raise ValueError(f"unknown unit {name!r}; known: {', '.join(UNITS)}")
    unit = UNITS[name](lanes=lanes)
    if lanes % unit.block:
        raise ValueError(f"lanes are a multiple of the block, got {lanes} and {unit.block}")
    return unit


# ---- integers -----------------------------------------------------------------------------------


def integers(*, lanes: int, width: int) -> Unit:
    """A unit for integers; a row's scale multiplies a finished sum, outside the unit."""
    side = Operand(element=Integer(bits=width), scale="row")
    return Unit(
        top="dot_int",
        parameters={"LANES": lanes, "WIDTH": width},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        is_integer=True,
    )


def mxint(
    *, lanes: int, width: int, block: int = 32, signs: bool = False, scale: Scale = "e8m0"
) -> Unit:
    """A unit for integers under a scale a block: MXINT, or block floating point (`exponent`).

    The sum within a block is exact. `signs`: a sign bit beside a magnitude. A block longer than the
    unit takes several cycles.
    """
    block = min(block, lanes)
    side = Operand(element=Integer(bits=width, signs=signs), scale=scale)
    sum_bits = 2 * width - signs + _log2(block)
    guard = max(0, WINDOW_BITS - sum_bits)
    return Unit(
        top="dot_mxint",
        parameters={
            **{"LANES": lanes, "WIDTH": width, "SIGNS": int(signs)},
            **{"SCALE_NAN": int(scale == "e8m0"), "BLOCK": block, "GUARD": guard},
            "OFFSET": 2 * (SCALE_BIAS + width - 2),
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        block_guard=guard,
    )


def quantizing_mxint(*, lanes: int, width: int) -> Unit:
    """A unit for MXINT weights (a) and bfloat16 activations (b), which it makes MXINT first."""
    inner = mxint(lanes=lanes, width=width, block=lanes, signs=True)
    return replace(
        inner,
        top="dot_mxint_quantizing",
        parameters={name: inner.parameters[name] for name in ("LANES", "WIDTH", "OFFSET")},
        b=Operand(element=BF16),
        inner=inner,
    )


def mxint_bf16(*, lanes: int, width: int) -> Unit:
    """A unit for MXINT weights (a) and bfloat16 activations (b)."""
    guard = max(0, WINDOW_BITS - (width - 1) - (BF16.mantissa + 1))
    offset = SCALE_BIAS + width - 2 + BF16.bias + BF16.mantissa + guard
    return Unit(
        top="dot_mxint_bf16",
        parameters={"LANES": lanes, "WIDTH": width, "GUARD": guard, "OFFSET": offset},
        lanes=lanes,
        a=Operand(element=Integer(bits=width, signs=True), scale="e8m0"),
        b=Operand(element=BF16),
        block=lanes,
        lane_guard=guard,
    )


# ---- numbers with exponents ---------------------------------------------------------------------


def floats(*, lanes: int, element: Float) -> Unit:
    """A unit for floats without a shared scale."""
    guard = max(0, WINDOW_BITS - element.product_bits)
    side = Operand(element=element)
    return Unit(
        top="dot_float",
        parameters={
            **{"LANES": lanes, "EXPONENT": element.exponent, "MANTISSA": element.mantissa},
            **{"SPECIALS": _SPECIALS[element.specials], "GUARD": guard},
            "OFFSET": 2 * (element.bias + element.mantissa) + guard,
        },
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        lane_guard=guard,
    )


def mxfloat(
    *, lanes: int, exponent: int, mantissa: int, specials: Specials = "none", block: int = 32
) -> Unit:
    """A unit for MXFP: small floats under an E8M0 scale."""
    element = Float(exponent=exponent, mantissa=mantissa, specials=specials)
    return _under_scales(element, "e8m0", lanes, block)


def block_log(*, lanes: int, width: int) -> Unit:
    """A unit for powers of two under a bias of the block."""
    element = Float(exponent=width - 1, mantissa=0, specials="none", own_bias=0)
    return _under_scales(element, "bias", lanes, 16)


def _under_scales(element: Float, scale: Scale, lanes: int, block: int) -> Unit:
    """A unit for floats under a scale a block; exact if the window holds every product in place."""
    block = min(block, lanes)
    is_exact = element.specials == "none" and element.product_bits + element.range <= WINDOW_BITS
    guard = element.range if is_exact else max(0, WINDOW_BITS - element.product_bits)
    sum_bits = 1 + element.product_bits + guard + _log2(block)
    block_guard = max(0, WINDOW_BITS - sum_bits)
    place = -2 * element.lowest if is_exact else 2 * (element.bias + element.mantissa) + guard
    side = Operand(element=element, scale=scale)
    return Unit(
        top="dot_mxfloat",
        parameters={
            **{"LANES": lanes, "EXPONENT": element.exponent, "MANTISSA": element.mantissa},
            **{"ALIGNED": int(not is_exact), "SPECIALS": _SPECIALS[element.specials]},
            **{"BIASES": int(scale == "bias"), "BLOCK": block, "GUARD": guard},
            **{"BLOCK_GUARD": block_guard, "OFFSET": 2 * SCALE_BIAS + place},
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        lane_guard=None if is_exact else guard,
        block_guard=block_guard,
    )


def scaled(*, lanes: int, element: Integer | Float, scale: Scale, block: int) -> Unit:
    """A unit for small numbers under a float a block, by which its exact sum is multiplied."""
    block, by = min(block, lanes), FLOAT_SCALES[scale]
    is_float = isinstance(element, Float)
    exponent, mantissa = (element.exponent, element.mantissa) if is_float else (0, element.bits - 1)
    span, lowest = (element.range, element.lowest) if is_float else (0, 0)
    bits = 1 + element.product_bits + span if is_float else 2 * element.bits
    guard = max(0, WINDOW_BITS - bits - _log2(block) - by.product_bits)
    side = Operand(element=element, scale=scale)
    return Unit(
        top="dot_scaled",
        parameters={
            **{"LANES": lanes, "EXPONENT": exponent, "MANTISSA": mantissa, "RANGE": span},
            **{"SCALE_EXPONENT": by.exponent, "SCALE_MANTISSA": by.mantissa},
            **{"SCALE_SPECIALS": _SPECIALS[by.specials], "BLOCK": block, "GUARD": guard},
            "OFFSET": 2 * (by.bias + by.mantissa - lowest),
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        block_guard=guard,
    )


def _log2(count: int) -> int:
    """The number of bits that a sum of `count` terms is wider than a term."""
    return (count - 1).bit_length()


UNITS: Mapping[str, Callable[..., Unit]] = {
    "BF16": partial(floats, element=BF16),
    "MXINT8 × BF16": partial(mxint_bf16, width=8),
    "MXINT8, quantizing": partial(quantizing_mxint, width=8),
    "MXINT8": partial(mxint, width=8),
    "MXINT8, signs apart": partial(mxint, width=8, signs=True),
    "MXINT8, blocks of 8": partial(mxint, width=8, block=8),
    "INT8 by row": partial(integers, width=8),
    "MXFP8-e4m3": partial(mxfloat, exponent=4, mantissa=3, specials="nan"),
    "MXFP6-e2m3": partial(mxfloat, exponent=2, mantissa=3),
    "MXINT4": partial(mxint, width=4),
    "block float 4": partial(mxint, width=4, block=16, signs=True, scale="exponent"),
    "MXFP4-e2m1": partial(mxfloat, exponent=2, mantissa=1),
    "MXFP4, blocks of 16": partial(mxfloat, exponent=2, mantissa=1, block=16),
    "NVFP4": partial(scaled, element=E2M1, scale="e4m3", block=16),
    "INT4 by 32": partial(scaled, element=Integer(bits=4), scale="fp16", block=32),
    "block log 4": partial(block_log, width=4),
}
