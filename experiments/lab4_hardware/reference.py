"""The definition of a unit's result for a vector of codes, with which its Verilog is compared.

It follows the unit step by step, in whole numbers, and says how far the result may lie from the
exact sum of the accumulator and the dot product:

* exact integers: no error;
* aligned sums: each of the n terms of a sum loses less than 2^(largest exponent - guard);
* in FP32 two roundings of 2^-24, of the dot product and of its sum with the accumulator, and for
  each 2^-126, for what is flushed to zero.

Shapes: codes are lists of one entry a lane; scales one entry a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.codes import point, scale_of, values_of
from experiments.lab4_hardware.dyadic import NAN, ZERO, Number, from_fp32, to_fp32
from experiments.lab4_hardware.operands import RESULT_BITS, Float, Operand, Unit
from experiments.lab4_hardware.simulation import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """The code that a unit must give, and how far from the exact value it may be.

    `exact`: accumulator plus dot product, None where the result is no number. `bound`: the largest
    difference between the code's value and `exact`.
    """

    code: int
    exact: Fraction | None
    bound: Fraction = Fraction(0)


def expected_result(unit: Unit, vector: Vector) -> ExpectedResult:
    """The result that a unit must give for one vector, computed step by step as the unit does."""
    if unit.inner is not None:
        return expected_result(unit.inner, quantize_inputs(unit.inner, vector))
    (acc,) = vector["acc"]
    sides = [
        values_of(operand, vector[name], _scales(operand, vector, name), unit.block)
        for name, operand in (("a", unit.a), ("b", unit.b))
    ]
    if sides[0] is None or sides[1] is None:
        return ExpectedResult(code=NAN, exact=None)
    products = [dyadic.product(x, y) for x, y in zip(*sides)]
    if unit.is_integer:
        result = signed(acc) + sum(p for p, _ in products)
        code = result % (1 << RESULT_BITS)
        return ExpectedResult(code=code, exact=Fraction(signed(code)))
    return _accumulated(acc, *_dot(unit, vector, products), dyadic.total(products))


def signed(code: int) -> int:
    """The value of an integer accumulator's code, in two's complement."""
    return code - (1 << RESULT_BITS) if code >> (RESULT_BITS - 1) else code


def _accumulated(acc: int, dot: Number, dropped: Fraction, exact: Number) -> ExpectedResult:
    """The result if a dot product, off by at most `dropped`, is rounded and accumulated in FP32."""
    rounded = to_fp32(*dot)
    before, code = from_fp32(acc), dyadic.add_fp32(acc, rounded)
    if before is None or code == NAN:
        return ExpectedResult(code=code, exact=None)
    start, ulp = dyadic.fraction(before), Fraction(1, 2**24)
    middle = abs(dyadic.fraction(dot))
    bound = dropped + (2 * middle + abs(start)) * ulp * (1 + ulp) + Fraction(2, 2**126)
    return ExpectedResult(code=code, exact=start + dyadic.fraction(exact), bound=bound)


def _scales(operand: Operand, vector: Vector, name: str) -> Sequence[int]:
    return vector[f"{name}_scale"] if operand.has_block_scale else ()


def _dot(unit: Unit, vector: Vector, products: Sequence[Number]) -> tuple[Number, Fraction]:
    """The dot product as the unit has it before FP32, and the largest error of its aligned sums."""
    parts = [
        _block(unit, vector, products[i * unit.block : (i + 1) * unit.block], i)
        for i in range(unit.blocks)
    ]
    dropped = sum((loss for _, loss in parts), Fraction(0))
    if len(parts) == 1:
        return parts[0][0], dropped
    total, loss = _aligned_sum([value for value, _ in parts], unit.block_guard, to_zero=False)
    return total, dropped + loss


def _block(
    unit: Unit, vector: Vector, products: Sequence[Number], block: int
) -> tuple[Number, Fraction]:
    """The sum of one block's products as the unit has it, and the largest error that this makes."""
    if unit.lane_guard is not None:
        return _aligned_sum(products, unit.lane_guard, to_zero=True)
    low = sum(
        _lowest(operand, vector[f"{name}_scale"][block])
        for name, operand in (("a", unit.a), ("b", unit.b))
    )
    return (sum(p << (e - low) for p, e in products), low), Fraction(0)


def _lowest(operand: Operand, scale: int) -> int:
    """The exponent of the last bit of a side's smallest values, under a scale that is no NaN."""
    element = operand.element
    least = element.lowest if isinstance(element, Float) else -point(operand)
    return least + (scale_of(operand, scale) or ZERO)[1]


def _aligned_sum(terms: Sequence[Number], guard: int, *, to_zero: bool) -> tuple[Number, Fraction]:
    """The sum as the unit's aligned adder rounds it, and the largest error that this can cause.

    A term's bits below the guard are dropped: toward zero, or else downward.
    """
    exponents = [e for p, e in terms if p]
    if not exponents:
        return ZERO, Fraction(0)
    low = max(exponents) - guard
    total = 0
    for p, e in terms:
        if p and e >= low:
            total += p << (e - low)
        elif p:
            total += -(-p >> (low - e)) if to_zero and p < 0 else p >> (low - e)
    loses = len(set(exponents)) > 1
    return (total, low), len(terms) * dyadic.fraction((1, low)) if loses else Fraction(0)


# ---- quantizing units ---------------------------------------------------------------------------


def quantize_inputs(inner: Unit, vector: Vector) -> Vector:
    """The vector whose side b, in bfloat16, a quantizing unit has made integers under one scale."""
    scale = max(code >> 7 & 0xFF for code in vector["b"])
    codes = [_quantized_code(code, scale, inner.b.element.bits) for code in vector["b"]]
    return {**vector, "b": codes, "b_scale": [scale]}


def _quantized_code(code: int, scale: int, width: int) -> int:
    """The sign-magnitude code of a bfloat16 under a scale: nearest, ties to even, saturated."""
    field = code >> 7 & 0xFF
    significand = (code & 0x7F) + (0x80 if field else 0)
    steps = scale - max(field, 1) + 9 - width
    kept, rest = significand >> steps, significand & ((1 << steps) - 1)
    kept += 2 * rest > 1 << steps or (2 * rest == 1 << steps and kept & 1 == 1)
    return code >> 15 << (width - 1) | min(kept, (1 << (width - 1)) - 1)
