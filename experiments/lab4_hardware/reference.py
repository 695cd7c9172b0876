"""What a unit must give for a vector of codes: the definition that its Verilog is compared with.

It follows the unit step by step, in whole numbers, and says how far the result may lie from the
exact dot product:

* exact integers: no error;
* aligned sums: each of the n terms of a sum loses less than 2^(largest exponent - guard);
* FP32 adders: (1 + levels) roundings of 2^-24 of the sum of magnitudes each;
* and in every FP32 result one rounding of 2^-24, and 2^-126 for what is flushed to zero.

Shapes: codes are lists of one entry a lane; scales one entry a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.lab4_hardware import dyadic
from experiments.lab4_hardware.codes import point, sign_of, values_of
from experiments.lab4_hardware.dyadic import NAN, ZERO, Number, from_fp32, to_fp32
from experiments.lab4_hardware.operands import Float, Integer, Operand, Signs, Unit
from experiments.lab4_hardware.simulation import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The code that a unit must give; how far the codes' exact dot product may lie from it.

    Scales of rows, which are no part of a vector, count as one.
    """

    code: int
    exact: Fraction | None
    bound: Fraction = Fraction(0)


def expected(unit: Unit, vector: Vector) -> Expected:
    """Follow the unit on one vector."""
    if unit.inner is not None:
        return expected(unit.inner, quantized(unit.inner, vector))
    a, b = _side(unit, unit.a, vector, "a"), _side(unit, unit.b, vector, "b")
    if a is None or b is None:
        return Expected(code=NAN, exact=None)
    products = [dyadic.product(x, y) for x, y in zip(a, b)]
    exact = dyadic.fraction(dyadic.total(products))
    if unit.integers:
        return Expected(code=_integers(unit, vector), exact=exact)
    if unit.rounds_each_step:
        return _stepwise(products, exact)
    return _aligned(unit, products, exact)


def _side(unit: Unit, operand: Operand, vector: Vector, side: str) -> list[Number] | None:
    """One side's values; where the unit shifts them to one place, as integers of that place."""
    scales = vector[f"{side}_scale"] if operand.has_block_scale else ()
    values = values_of(operand, vector[side], scales, unit.block)
    element = operand.element
    if values is None or unit.lane_guard is not None or not isinstance(element, Float):
        return values
    if unit.rounds_each_step:
        return values
    zeros = values_of(operand, [0] * unit.lanes, scales, unit.block)
    assert zeros is not None
    return [(p << (e - low), low) for (p, e), (_, low) in zip(values, zeros)]


def _integers(unit: Unit, vector: Vector) -> int:
    """The code of a result that is exact sums, side b's levels changing first."""
    bits = unit.result_bits // unit.integers
    code = 0
    pairs = [(x, y) for x in _planes(unit, "a", vector) for y in _planes(unit, "b", vector)]
    for place, (x, y) in enumerate(pairs):
        one = sum(p * q for p, q in zip(x, y))
        code |= (one & ((1 << bits) - 1)) << (place * bits)
    return code


def _planes(unit: Unit, side: str, vector: Vector) -> list[list[int]]:
    """Each level's integers; all but signs have one level."""
    operand = unit.a if side == "a" else unit.b
    if isinstance(operand.element, Signs):
        levels = range(operand.element.levels)
        return [[sign_of(code, level) for code in vector[side]] for level in levels]
    values = _side(unit, operand, vector, side)
    assert values is not None
    return [[p for p, _ in values]]


def place_of(unit: Unit) -> int:
    """The exponent of the last bit of an exact integer result."""
    return sum(
        o.element.lowest if isinstance(o.element, Float) else -point(o) for o in (unit.a, unit.b)
    )


def quantized(inner: Unit, vector: Vector) -> Vector:
    """The vector that a quantizing unit makes of its bfloat16 side, in whole numbers."""
    assert isinstance(inner.b.element, Integer)
    codes: list[int] = []
    scales: list[int] = []
    for start in range(0, inner.lanes, inner.block):
        part = vector["b"][start : start + inner.block]
        scales.append(max(code >> 7 & 0xFF for code in part))
        codes += [_quantized_code(code, scales[-1], inner.b.element.width) for code in part]
    return {**vector, "b": codes, "b_scale": scales}


def _quantized_code(code: int, scale: int, width: int) -> int:
    """Nearest, ties to even, saturated so that the lowest code stays unused."""
    field = code >> 7 & 0xFF
    significand = (code & 0x7F) + (0x80 if field else 0)
    steps = scale - max(field, 1) + 9 - width
    kept, rest = significand >> steps, significand & ((1 << steps) - 1)
    kept += 2 * rest > 1 << steps or (2 * rest == 1 << steps and kept & 1 == 1)
    magnitude = min(kept, (1 << (width - 1)) - 1)
    return (-magnitude if code >> 15 else magnitude) % (1 << width)


def _aligned(unit: Unit, products: Sequence[Number], exact: Fraction) -> Expected:
    blocks = unit.blocks if unit.a.has_block_scale and unit.b.has_block_scale else 1
    size = len(products) // blocks
    parts = [
        _aligned_sum(products[i * size : (i + 1) * size], unit.lane_guard or 0)
        for i in range(blocks)
    ]
    dropped = sum((loss for _, loss in parts), Fraction(0))
    total = parts[0][0]
    if blocks > 1:
        total, loss = _aligned_sum([value for value, _ in parts], unit.block_guard)
        dropped += loss
    rounding = abs(dyadic.fraction(total)) / 2**24 + Fraction(1, 2**126)
    return Expected(code=to_fp32(*total), exact=exact, bound=dropped + rounding)


def _aligned_sum(terms: Sequence[Number], guard: int) -> tuple[Number, Fraction]:
    """The sum as the unit makes it, and what it may be too small by."""
    exponents = [e for p, e in terms if p]
    if not exponents:
        return ZERO, Fraction(0)
    low = max(exponents) - guard
    total = sum(p << (e - low) if e >= low else p >> (low - e) for p, e in terms if p)
    loses = len(set(exponents)) > 1
    return (total, low), len(terms) * dyadic.fraction((1, low)) if loses else Fraction(0)


def _stepwise(products: Sequence[Number], exact: Fraction) -> Expected:
    magnitude = dyadic.fraction(dyadic.total([(abs(p), exponent) for p, exponent in products]))
    steps = 1 + (len(products) - 1).bit_length()
    bound = magnitude * ((1 + Fraction(1, 2**24)) ** steps - 1)
    flushed = Fraction(2 * len(products), 2**126)
    code = _tree([to_fp32(*p) for p in products])
    return Expected(code=code, exact=exact, bound=bound + flushed)


def _tree(codes: Sequence[int]) -> int:
    """FP32 sums in the order of the adder tree."""
    if len(codes) == 1:
        return codes[0]
    half = len(codes) // 2
    left, right = from_fp32(_tree(codes[:half])), from_fp32(_tree(codes[half:]))
    if left is None or right is None:
        return NAN
    low = min(left[1], right[1])
    return to_fp32((left[0] << (left[1] - low)) + (right[0] << (right[1] - low)), low)
