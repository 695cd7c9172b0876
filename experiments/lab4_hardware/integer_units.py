"""Units whose products are integers: fixed point, MXINT, block floating point, signs, ternary.

Raises, all of them: ValueError for no lane, a width outside its limits, or lanes that are no
multiple of the block. A mantissa's width does not count the sign. A block longer than the unit is
one that takes several cycles.
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.lab4_hardware.float_units import BF16, WINDOW
from experiments.lab4_hardware.operands import (
    SCALE_BIAS,
    Integer,
    Operand,
    Scale,
    SignMagnitude,
    Signs,
    Unit,
    check,
    check_lanes,
    checked_block,
    log2,
)


def fixed(*, lanes: int, width: int) -> Unit:
    """Integers on both sides; the result is the exact integer."""
    return _integers(f"fixed{width}", Integer(width=width), "none", lanes)


def scaled(*, lanes: int, width: int) -> Unit:
    """The same with a scale for each row, which the sum of a row takes once, outside the unit."""
    return _integers(f"scaled{width}", Integer(width=width), "row", lanes)


def _integers(name: str, element: Integer, scale: Scale, lanes: int) -> Unit:
    check("width", element.width, 2, 16)
    return _exact(
        name,
        "dot_fixed",
        Operand(element=element, scale=scale),
        lanes,
        {"WIDTH": element.width},
        bits=2 * element.width + log2(lanes),
    )


def binary(*, lanes: int) -> Unit:
    """±1 on both sides: XNOR and a count."""
    return _signs("binary", "none", lanes, 1)


def scaled_binary(*, lanes: int) -> Unit:
    """The same with a scale for each row."""
    return _signs("scaled binary", "row", lanes, 1)


def residual_sign(*, lanes: int, levels: int) -> Unit:
    """Sums of signs, each level with a scale for each row: a result for each pair of levels."""
    check("levels", levels, 2, 8)
    return _signs(f"residual sign {levels}", "row", lanes, levels)


def _signs(name: str, scale: Scale, lanes: int, levels: int) -> Unit:
    return _exact(
        name,
        "dot_signs",
        Operand(element=Signs(levels=levels), scale=scale),
        lanes,
        {"LEVELS": levels},
        bits=lanes.bit_length() + 1,
        integers=levels**2,
    )


def ternary(*, lanes: int) -> Unit:
    """-1, 0 and 1 on both sides, with a scale for each row: a mask, XOR and a count."""
    side = Operand(element=SignMagnitude(mantissa=1), scale="row")
    return _exact("ternary", "dot_ternary", side, lanes, {}, bits=lanes.bit_length() + 1)


def _exact(
    name: str,
    top: str,
    side: Operand,
    lanes: int,
    widths: Mapping[str, int],
    *,
    bits: int,
    integers: int = 1,
) -> Unit:
    """Exact sums of `bits` bits each."""
    check_lanes(lanes)
    return Unit(
        name=f"{name} × {name}",
        top=top,
        parameters={"LANES": lanes, **widths},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        integers=integers,
        result_bits=integers * bits,
    )


def mxint(*, lanes: int, width: int, block: int = 32) -> Unit:
    """MXINT on both sides."""
    check("width", width, 2, 16)
    return _under_scales(
        f"MXINT{width}",
        "dot_mxint",
        Operand(element=Integer(width=width), scale="e8m0"),
        {"WIDTH": width},
        product_bits=2 * width,
        fraction_bits=width - 2,
        lanes=lanes,
        block=checked_block(lanes, block),
    )


def mxint_quantizing(*, lanes: int, width: int, block: int = 32) -> Unit:
    """MXINT weights (side a) with bfloat16 activations (side b), which the unit makes MXINT first.

    The width is at most 8.
    """
    check("width", width, 2, 8)
    inner = mxint(lanes=lanes, width=width, block=block)
    return replace(
        inner,
        name=f"{inner.name}, quantizing",
        top="dot_mxint_quantizing",
        b=Operand(element=BF16),
        inner=inner,
    )


def block_float(*, lanes: int, mantissa: int, block: int = 16) -> Unit:
    """Block floating point (MSFP) on both sides."""
    check("mantissa", mantissa, 1, 16)
    return _under_scales(
        f"block FP{mantissa + 1}",
        "dot_block_float",
        Operand(element=SignMagnitude(mantissa=mantissa), scale="exponent"),
        {"MANTISSA": mantissa},
        product_bits=2 * mantissa + 1,
        fraction_bits=mantissa - 1,
        lanes=lanes,
        block=checked_block(lanes, block),
    )


def _under_scales(
    name: str,
    top: str,
    side: Operand,
    widths: Mapping[str, int],
    *,
    product_bits: int,
    fraction_bits: int,
    lanes: int,
    block: int,
) -> Unit:
    """Integers under a scale a block, on both sides: the sum within a block is exact."""
    guard = max(0, WINDOW - product_bits - log2(block))
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
    """MXINT weights (side a) with bfloat16 activations (side b)."""
    block = checked_block(lanes, block)
    check("width", width, 2, 16)
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
        a=Operand(element=Integer(width=width), scale="e8m0"),
        b=Operand(element=BF16),
        block=block,
        lane_guard=guard,
    )
