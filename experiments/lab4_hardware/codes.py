"""Exact values of the codes of a unit's operands, and codes of values.

Shapes: codes are lists of one entry a value; block scales one entry a block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.dyadic import Number
from experiments.lab4_hardware.operands import (
    FLOAT_SCALES,
    SCALE_BIAS,
    Element,
    Float,
    Integer,
    Operand,
)

if TYPE_CHECKING:
    from torch import Tensor

    from madl.formats.base import NumberFormat

SCALE_NAN = 0xFF


# ---- from codes ---------------------------------------------------------------------------------


def decode(element: Element, code: int) -> Number | None:
    """The exact value of an element's code, None where it is no finite number."""
    half = 1 << (element.bits - 1)
    top, rest = divmod(code, half)
    if isinstance(element, Integer):
        negative = -rest if element.signs else rest - half
        return negative if top else rest, 0
    field, fraction = divmod(rest, 1 << element.mantissa)
    last = field == (1 << element.exponent) - 1
    all_ones = fraction == (1 << element.mantissa) - 1
    if last and (element.specials == "ieee" or (element.specials == "nan" and all_ones)):
        return None
    significand = fraction + (1 << element.mantissa if field else 0)
    exponent = max(field, 1) - element.bias - element.mantissa
    return -significand if top else significand, exponent


def point(operand: Operand) -> int:
    """The number of bits behind an integer element's point: as OCP MX and MSFP have it, or none."""
    element = operand.element
    if isinstance(element, Float) or operand.scale in ("row", "fp16"):
        return 0
    return element.bits - 2


def scale_of(operand: Operand, code: int) -> Number | None:
    """The number that the code of a block's scale means, None for NaN."""
    if operand.scale in FLOAT_SCALES:
        return decode(FLOAT_SCALES[operand.scale], code)
    if operand.scale == "bias":
        return 1, -(code - 256 if code >> 7 else code)
    if operand.scale == "e8m0" and code == SCALE_NAN:
        return None
    return 1, code - SCALE_BIAS


def values_of(
    operand: Operand, codes: Sequence[int], scales: Sequence[int], block: int
) -> list[Number] | None:
    """The exact values of one side's codes under their block scales; None if any is not finite."""
    values: list[Number] = []
    for place, code in enumerate(codes):
        value = decode(operand.element, code)
        scale = scale_of(operand, scales[place // block]) if operand.has_block_scale else (1, 0)
        if value is None or scale is None:
            return None
        values.append(dyadic.product((value[0], value[1] - point(operand)), scale))
    return values


# ---- to codes -----------------------------------------------------------------------------------


def number_format(operand: Operand, block: int) -> "NumberFormat":
    """The number format of `madl.formats` that rounds to the values of a side's codes."""
    from madl.formats.blocked import BlockFloat, BlockLog, MXFloat, MXInt, RealScale
    from madl.formats.fixed import ScaledInteger
    from madl.formats.minifloat import Minifloat

    match operand:
        case Operand(element=Integer(bits=bits), scale="row"):
            return ScaledInteger(width=bits)
        case Operand(element=Integer(bits=bits), scale="exponent"):
            return BlockFloat(mantissa_width=bits - 1, block=block)
        case Operand(element=Integer(bits=4), scale="fp16"):
            return RealScale(element_name="int4", scale="fp16", block=block)
        case Operand(element=Float(exponent=2, mantissa=1), scale="e4m3"):
            return RealScale(element_name="e2m1", scale="e4m3", block=block)
        case Operand(element=Integer(bits=bits)):
            return MXInt(width=bits, block=block)
        case Operand(element=Float() as f, scale="e8m0"):
            return MXFloat(exponent_width=f.exponent, mantissa_width=f.mantissa, block=block)
        case Operand(element=Float() as f, scale="bias"):
            return BlockLog(width=f.bits, block=block)
        case Operand(element=Float() as f):
            return Minifloat(width=f.bits, exponent_width=f.exponent, specials=f.specials)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """The codes of a row and the codes of its blocks' scales, or the scale of the row."""

    codes: list[int]
    scales: list[int]
    row_scale: Number


def encode_row(operand: Operand, block: int, row: "Tensor") -> EncodedRow:
    """Round a row by its side's format, as a whole, and encode it.

    Shapes: any number of values, FP32.

    Raises:
        ValueError: a code that does not mean the format's value.
    """
    rounded = number_format(operand, block).quantize(row)
    if operand.scale == "row":
        return _under_row_scale(operand.element, row, rounded)
    if operand.scale in FLOAT_SCALES:
        return _under_float_scales(operand, block, row, rounded)
    values, element = rounded.tolist(), operand.element
    codes: list[int] = []
    scales: list[int] = []
    for start in range(0, len(values), block):
        part = values[start : start + block]
        exponent = 0
        if operand.has_block_scale:
            largest = max(abs(value) for value in part)
            exponent = math.frexp(largest)[1] - 1 - _top(element) if largest else -SCALE_BIAS
            exponent = max(exponent, -SCALE_BIAS)
            scales.append(-exponent % 256 if operand.scale == "bias" else exponent + SCALE_BIAS)
        codes += [_encode(element, math.ldexp(v, point(operand) - exponent)) for v in part]
    return EncodedRow(codes=codes, scales=scales, row_scale=(1, 0))


def _under_row_scale(element: Element, row: "Tensor", rounded: "Tensor") -> EncodedRow:
    """Encode a rounded row as integers under one scale, whose products with it are exact.

    Raises:
        ValueError: they are not the values that the format rounded to.
    """
    largest = (1 << (element.bits - 1)) - 1
    scale = (row.abs().amax() / largest).clamp(min=math.ldexp(1.0, -126))  # as ScaledInteger has it
    integers = (rounded / scale).round()
    if not (integers * scale).equal(rounded):
        raise ValueError(f"codes of {element} do not mean the format's values")
    codes = [_nearest_code(element, value) for value in integers.tolist()]
    return EncodedRow(codes=codes, scales=[], row_scale=dyadic.number(float(scale)))


def _under_float_scales(
    operand: Operand, block: int, row: "Tensor", rounded: "Tensor"
) -> EncodedRow:
    """Encode a rounded row under a float a block and, with E4M3, a float32 for all of it.

    Raises:
        ValueError: they are not the values that the format rounded to.
    """
    import torch

    from madl.formats.minifloat import Minifloat

    scale, element = FLOAT_SCALES[operand.scale], operand.element
    high = 7.0 if isinstance(element, Integer) else 6.0
    blocks = row.view(-1, min(block, len(row)))
    over, of_row = blocks.abs().amax(-1, keepdim=True) / high, torch.tensor(1.0)
    if operand.scale == "e4m3":  # as RealScale has it
        of_row = (row.abs().amax() / (448.0 * high)).clamp(min=2.0**-120)
        over = (over / of_row).clamp(min=2.0**-6)
    f = Minifloat(width=scale.bits, exponent_width=scale.exponent, specials=scale.specials)
    own = f.quantize(over)
    elements = (rounded.view_as(blocks).double() / (own * of_row).double()).nan_to_num(0.0)
    codes = [_nearest_code(element, value) for value in elements.flatten().tolist()]
    meant = [decode(element, code) for code in codes]
    values = torch.tensor([math.ldexp(*value) for value in meant if value]).view_as(blocks)
    if not (values * (own * of_row)).flatten().equal(rounded):
        raise ValueError(f"codes of {element} do not mean the format's values")
    scales = [_nearest_code(scale, value) for value in own.flatten().tolist()]
    return EncodedRow(codes=codes, scales=scales, row_scale=dyadic.number(float(of_row)))


def _top(element: Element) -> int:
    """The exponent of the largest power of two that an element can be."""
    if not isinstance(element, Float):
        return 0
    last_is_taken = element.specials == "ieee"
    return (1 << element.exponent) - 1 - last_is_taken - element.bias


def _encode(element: Element, value: float) -> int:
    """The code of a value. Raises: ValueError: the element has no such value."""
    code = _nearest_code(element, value)
    decoded = decode(element, code) if 0 <= code < 1 << element.bits else None
    if decoded is None or math.ldexp(*decoded) != value:
        raise ValueError(f"{value} is no value of {element}")
    return code


def _nearest_code(element: Element, value: float) -> int:
    """The code of the nearest value, ties to even, without a check of the range."""
    sign = (value < 0) << (element.bits - 1)
    if isinstance(element, Integer):
        return sign | round(abs(value)) if element.signs else round(value) % (1 << element.bits)
    exponent = max(math.frexp(value)[1] - 1, 1 - element.bias) if value else 1 - element.bias
    significand = round(math.ldexp(abs(value), element.mantissa - exponent))
    field = exponent + element.bias if significand >> element.mantissa else 0
    return sign | field << element.mantissa | significand & ((1 << element.mantissa) - 1)
