"""What the codes of a unit's operands mean, in exact numbers, and how values become codes.

Shapes: codes are lists of one entry a lane; block scales one entry a block; row scales one a level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.dyadic import Number
from experiments.lab4_hardware.operands import (
    SCALE_BIAS,
    Element,
    Float,
    Integer,
    Operand,
    SignMagnitude,
    Signs,
)

if TYPE_CHECKING:
    from torch import Tensor

    from madl.formats.base import NumberFormat

SCALE_NAN = 0xFF


# ---- from codes ---------------------------------------------------------------------------------


def decode(element: Element, code: int) -> Number | None:
    """The value of an element's code, None where it is no finite number; of signs, their sum."""
    if isinstance(element, Integer):
        return (code - (1 << element.width) if code >> (element.width - 1) else code), 0
    if isinstance(element, SignMagnitude):
        magnitude = code & ((1 << element.mantissa) - 1)
        return (-magnitude if code >> element.mantissa else magnitude), 0
    if isinstance(element, Signs):
        return sum(sign_of(code, level) for level in range(element.levels)), 0
    return _decode_float(element, code)


def sign_of(code: int, level: int) -> int:
    """+1 or -1."""
    return -1 if code >> level & 1 else 1


def _decode_float(element: Float, code: int) -> Number | None:
    fraction = code & ((1 << element.mantissa) - 1)
    field = (code >> element.mantissa) & ((1 << element.exponent) - 1)
    last = field == (1 << element.exponent) - 1
    if last and element.specials == "ieee":
        return None
    if last and element.specials == "nan" and fraction == (1 << element.mantissa) - 1:
        return None
    if field == 0 and not element.has_subnormals:
        return dyadic.ZERO
    significand = fraction + (1 << element.mantissa if field and element.has_implicit_one else 0)
    sign = -1 if code >> (element.bits - 1) else 1
    exponent = max(field, element.least_field) - element.bias - element.mantissa
    return sign * significand, exponent


def point(operand: Operand) -> int:
    """Bits behind an integer element's point: as OCP MX and MSFP place them, or this project."""
    element = operand.element
    if isinstance(element, Integer) and operand.scale != "row":
        return element.width - 2 if operand.scale == "e8m0" else fixed_point(element.width)
    return element.mantissa - 1 if isinstance(element, SignMagnitude) else 0


def fixed_point(width: int) -> int:
    """Where this project puts the point of an unscaled integer."""
    return width // 2


def scale_of(operand: Operand, code: int) -> int | None:
    """The exponent that a block's scale says, None for NaN."""
    if operand.scale == "bias":
        return -(code - 256 if code >> 7 else code)
    if operand.scale == "e8m0" and code == SCALE_NAN:
        return None
    return code - SCALE_BIAS


def values_of(
    operand: Operand, codes: Sequence[int], scales: Sequence[int], block: int
) -> list[Number] | None:
    """One side's values under their block scales, None where one is no finite number."""
    values: list[Number] = []
    for lane, code in enumerate(codes):
        value = decode(operand.element, code)
        scale = scale_of(operand, scales[lane // block]) if operand.has_block_scale else 0
        if value is None or scale is None:
            return None
        values.append((value[0], value[1] + scale - point(operand)))
    return values


# ---- to codes -----------------------------------------------------------------------------------


def number_format(operand: Operand, block: int) -> "NumberFormat | None":
    """The format whose values a side takes; None for FP32, which torch itself holds."""
    from madl.formats.binary import Binary, ResidualSign, Ternary
    from madl.formats.blocked import BlockFloat, BlockLog, BlockMinifloat, MXFloat, MXInt
    from madl.formats.fixed import FixedPoint, ScaledInteger
    from madl.formats.log import Logarithmic
    from madl.formats.minifloat import DenormalMinifloat, Minifloat

    match operand:
        case Operand(element=Integer(width=width), scale="e8m0"):
            return MXInt(width=width, block=block)
        case Operand(element=Integer(width=width), scale="row"):
            return ScaledInteger(width=width)
        case Operand(element=Integer(width=width)):
            return FixedPoint(width=width, frac_width=fixed_point(width))
        case Operand(element=SignMagnitude(), scale="row"):
            return Ternary()
        case Operand(element=SignMagnitude(mantissa=mantissa)):
            return BlockFloat(mantissa_width=mantissa, block=block)
        case Operand(element=Signs(levels=levels), scale=scale):
            return ResidualSign(levels=levels) if scale == "row" else Binary()
        case Operand(element=Float(mantissa=23)):
            return None
        case Operand(element=Float(mantissa=0) as f, scale=scale):
            width = f.bits
            return (
                BlockLog(width=width, block=block) if scale == "bias" else Logarithmic(width=width)
            )
        case Operand(element=Float() as f, scale="e8m0"):
            return MXFloat(exponent_width=f.exponent, mantissa_width=f.mantissa, block=block)
        case Operand(element=Float() as f, scale="bias"):
            return BlockMinifloat(width=f.bits, exponent_width=f.exponent, block=block)
        case Operand(element=Float(has_implicit_one=False) as f):
            return DenormalMinifloat(width=f.bits, exponent_width=f.exponent)
        case Operand(element=Float() as f):
            return Minifloat(width=f.bits, exponent_width=f.exponent, specials=f.specials)
        case _:
            raise AssertionError(operand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded:
    """One side of a vector: its codes, the scales of its blocks, the scales of its row's levels
    (none where a row has none), and what they mean together."""

    codes: list[int]
    scales: list[int]
    levels: list[Number]
    values: list[Number]


def coded(operand: Operand, block: int, row: "Tensor", lanes: slice) -> Coded:
    """Some lanes of a row that its format rounds as a whole.

    Shapes: any number of values, FP32.

    Raises:
        ValueError: a code that does not mean the format's value.
    """
    made = number_format(operand, block)
    rounded = row if made is None else made.quantize(row)
    if operand.scale == "row":
        return _under_row_scales(operand.element, row, rounded, lanes)
    values = rounded[lanes].tolist()
    codes, scales = encode(operand, values, block)
    return Coded(codes=codes, scales=scales, levels=[], values=[dyadic.number(v) for v in values])


def _under_row_scales(element: Element, row: "Tensor", rounded: "Tensor", lanes: slice) -> Coded:
    """What the format rounds to float32, once a value, is exact here: code times scale."""
    import torch

    if isinstance(element, Signs):
        parts = _levels(row, element.levels)
    else:
        largest = (1 << (element.bits - 1)) - 1
        scale = (row if isinstance(element, Integer) else rounded).abs().amax() / largest
        safe = scale.clamp(min=math.ldexp(1.0, -126))  # as ScaledInteger has it
        parts = [((rounded / safe).round(), safe)]
    again = torch.zeros_like(row)
    for units, scale in parts:
        again += units * scale
    if not torch.equal(again, rounded):
        raise ValueError(f"codes of {element} do not mean the format's values")
    scales = [dyadic.number(float(scale)) for _, scale in parts]
    integers = [[int(unit) for unit in units[lanes].tolist()] for units, _ in parts]
    values = [
        dyadic.total([(unit * s, e) for unit, (s, e) in zip(of_lane, scales)])
        for of_lane in zip(*integers)
    ]
    return Coded(
        codes=[_row_code(element, of_lane) for of_lane in zip(*integers)],
        scales=[],
        levels=scales,
        values=values,
    )


def _levels(row: "Tensor", levels: int) -> "list[tuple[Tensor, Tensor]]":
    """Signs and scale of each level: a scaled binary of what the levels before left over."""
    from madl.formats.binary import Binary, ResidualSign

    found: list[tuple[Tensor, Tensor]] = []
    rest = row.clone()
    for _ in range(levels):
        level = ResidualSign(levels=1).quantize(rest)
        found.append((Binary().quantize(rest), level.abs().amax()))
        rest -= level
    return found


def _row_code(element: Element, integers: Sequence[int]) -> int:
    if isinstance(element, Signs):
        return sum((sign < 0) << level for level, sign in enumerate(integers))
    return _nearest_code(element, integers[0])


def encode(operand: Operand, values: Sequence[float], block: int) -> tuple[list[int], list[int]]:
    """Codes and scales (empty where there are none) of values that the format represents.

    Raises:
        ValueError: a value that it does not.
    """
    element, places = operand.element, point(operand)
    if not operand.has_block_scale:
        return [_encode(element, math.ldexp(v, places)) for v in values], []
    codes: list[int] = []
    scales: list[int] = []
    for start in range(0, len(values), block):
        part = values[start : start + block]
        largest = max(abs(v) for v in part)
        exponent = math.frexp(largest)[1] - 1 - _top(element) if largest else -SCALE_BIAS
        exponent = max(exponent, -SCALE_BIAS)
        codes += [_encode(element, math.ldexp(v, places - exponent)) for v in part]
        scales.append(-exponent % 256 if operand.scale == "bias" else exponent + SCALE_BIAS)
    return codes, scales


def _top(element: Element) -> int:
    """The exponent of an element's largest power of two."""
    if not isinstance(element, Float):
        return 0
    last_is_taken = element.specials == "ieee"
    return (1 << element.exponent) - 1 - last_is_taken - element.bias


def _encode(element: Element, value: float) -> int:
    code = _nearest_code(element, value)
    decoded = decode(element, code) if 0 <= code < 1 << element.bits else None
    if decoded is None or math.ldexp(*decoded) != value:
        raise ValueError(f"{value} is no value of {element}")
    return code


def _nearest_code(element: Element, value: float) -> int:
    if isinstance(element, Integer):
        return round(value) % (1 << element.width)
    negative = value < 0
    if isinstance(element, Signs):
        return int(negative)
    if isinstance(element, SignMagnitude):
        return negative << element.mantissa | round(abs(value))
    lowest = element.least_field - element.bias  # exponent of the smallest values' top
    first_bit = 1 if element.has_implicit_one else 0  # which weighs 2^exponent, or half of that
    exponent = max(math.frexp(value)[1] - first_bit, lowest) if value else lowest
    significand = round(math.ldexp(abs(value), element.mantissa - exponent))
    field = exponent + element.bias
    if element.has_implicit_one and not significand >> element.mantissa:
        field = 0
    fraction = significand & ((1 << element.mantissa) - 1)
    return negative << (element.bits - 1) | field << element.mantissa | fraction
