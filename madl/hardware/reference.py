"""What a unit must give, in whole numbers, and what the number formats say it may be off by.

Two oracles. The *definition* follows the unit step by step and is compared bit for bit. The *exact
dot product* of the formats' own values, as `madl.formats` rounds them, holds the result to a bound:

* an integer unit: no error;
* aligned sums: each of the n terms of a sum loses less than 2^(largest exponent - guard);
* FP32 adders: (1 + levels) roundings of 2^-24 of the sum of magnitudes each;
* and in every FP32 result one rounding of 2^-24, and 2^-126 for what is flushed to zero.

Shapes: codes are lists of one entry a lane; scales one entry a block.
Units: a number is a pair (significand, exponent), exact: significand · 2^exponent.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from madl.errors import MadlError
from madl.hardware import simulation
from madl.hardware.simulation import Vector
from madl.hardware.units import SCALE_BIAS, Float, Integer, Operand, SignMagnitude, Unit

if TYPE_CHECKING:
    from torch import Tensor

    from madl.formats.base import NumberFormat

NAN = 0x7FC0_0000
SCALE_NAN = 0xFF
Number = tuple[int, int]
ZERO: Number = (0, 0)


# ---- codes --------------------------------------------------------------------------------------


def decode(element: Integer | SignMagnitude | Float, code: int) -> Number | None:
    """The value of an element's code, None where it is no finite number."""
    if isinstance(element, Integer):
        value = code - (1 << element.width) if code >> (element.width - 1) else code
        return value, 0
    if isinstance(element, SignMagnitude):
        magnitude = code & ((1 << element.mantissa) - 1)
        return (-magnitude if code >> element.mantissa else magnitude), 0
    return _decode_float(element, code)


def _decode_float(element: Float, code: int) -> Number | None:
    fraction = code & ((1 << element.mantissa) - 1)
    field = (code >> element.mantissa) & ((1 << element.exponent) - 1)
    last = field == (1 << element.exponent) - 1
    if last and element.specials == "ieee":
        return None
    if last and element.specials == "nan" and fraction == (1 << element.mantissa) - 1:
        return None
    if field == 0 and not element.has_subnormals:
        return ZERO
    significand = fraction + ((1 << element.mantissa) if field else 0)
    sign = -1 if code >> (element.bits - 1) else 1
    return sign * significand, max(field, 1) - element.bias - element.mantissa


def point(element: Integer | SignMagnitude | Float) -> int:
    """Bits behind the point of a scaled integer element, as OCP MX and MSFP place them."""
    if isinstance(element, Integer):
        return element.width - 2
    return element.mantissa - 1 if isinstance(element, SignMagnitude) else 0


def decode_side(unit: Unit, operand: Operand, vector: Vector, side: str) -> list[Number] | None:
    """One side's values with their scales, None where one is no finite number."""
    values: list[Number] = []
    for lane, code in enumerate(vector[side]):
        value = decode(operand.element, code)
        scale = vector[f"{side}_scale"][lane // unit.block] if operand.is_scaled else None
        if value is None or (scale == SCALE_NAN and has_nan_scale(operand)):
            return None
        shift = 0 if scale is None else scale - SCALE_BIAS - point(operand.element)
        values.append((value[0], value[1] + shift))
    return values


def has_nan_scale(operand: Operand) -> bool:
    """E8M0 has a NaN; the shared exponent of block floating point does not."""
    return not isinstance(operand.element, SignMagnitude)


# ---- the definition -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The code that a unit must give; how far the formats' exact result may lie from it."""

    code: int
    exact: Fraction | None
    bound: Fraction = Fraction(0)


def expected(unit: Unit, vector: Vector) -> Expected:
    """Follow the unit on one vector."""
    if unit.inner is not None:
        return expected(unit.inner, quantized(unit.inner, vector))
    a = decode_side(unit, unit.a, vector, "a")
    b = decode_side(unit, unit.b, vector, "b")
    if a is None or b is None:
        return Expected(code=NAN, exact=None)
    products = [(x[0] * y[0], x[1] + y[1]) for x, y in zip(a, b)]
    exact = _sum(products)
    if unit.rounds_each_step:
        return _stepwise(products, exact)
    if unit.gives_integer:
        code = sum(p for p, _ in products) & ((1 << unit.result_bits) - 1)
        return Expected(code=code, exact=exact)
    return _aligned(unit, products, exact)


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
    blocks = unit.blocks if unit.a.is_scaled and unit.b.is_scaled else 1
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
    rounding = abs(_fraction(total)) / 2**24 + Fraction(1, 2**126)
    return Expected(code=to_fp32(*total), exact=exact, bound=dropped + rounding)


def _aligned_sum(terms: Sequence[Number], guard: int) -> tuple[Number, Fraction]:
    """The sum as the unit makes it, and what it may be too small by."""
    exponents = [e for p, e in terms if p]
    if not exponents:
        return ZERO, Fraction(0)
    low = max(exponents) - guard
    total = sum(p << (e - low) if e >= low else p >> (low - e) for p, e in terms if p)
    loses = len(set(exponents)) > 1
    return (total, low), len(terms) * _fraction((1, low)) if loses else Fraction(0)


def _stepwise(products: Sequence[Number], exact: Fraction) -> Expected:
    magnitude = _sum([(abs(p), exponent) for p, exponent in products])
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


def to_fp32(significand: int, exponent: int) -> int:
    """FP32's code: nearest, ties to even; too small becomes +0, too large NaN, as in the units."""
    magnitude = abs(significand)
    excess = magnitude.bit_length() - 24
    if excess > 0:
        kept, rest = magnitude >> excess, magnitude & ((1 << excess) - 1)
        half = 1 << (excess - 1)
        kept += rest > half or (rest == half and kept & 1 == 1)
    else:
        kept = magnitude << -excess
    if kept == 1 << 24:
        kept, excess = kept >> 1, excess + 1
    field = exponent + excess + 23 + 127
    if magnitude == 0 or field <= 0:
        return 0
    return NAN if field >= 255 else (significand < 0) << 31 | field << 23 | (kept & 0x7F_FFFF)


FP32 = Float(exponent=8, mantissa=23, has_subnormals=False)


def from_fp32(code: int) -> Number | None:
    """The value of a result, None for NaN."""
    return decode(FP32, code)


def _number(value: float) -> Number:
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def _sum(numbers: Sequence[Number]) -> Fraction:
    """Exact: as one integer above the smallest exponent."""
    low = min((exponent for _, exponent in numbers), default=0)
    return _fraction((sum(p << (exponent - low) for p, exponent in numbers), low))


def _fraction(number: Number) -> Fraction:
    significand, exponent = number
    return Fraction(significand) * Fraction(2) ** exponent


# ---- the formats --------------------------------------------------------------------------------


def number_format(operand: Operand, block: int) -> "NumberFormat | None":
    """The format whose values a side takes; None for FP32, which torch itself holds."""
    from madl.formats.blocked import BlockFloat, MXFloat, MXInt
    from madl.formats.fixed import FixedPoint
    from madl.formats.minifloat import Minifloat

    match operand:
        case Operand(element=Integer(width=width), is_scaled=False):
            return FixedPoint(width=width, frac_width=fixed_point(width))
        case Operand(element=Integer(width=width)):
            return MXInt(width=width, block=block)
        case Operand(element=SignMagnitude(mantissa=mantissa)):
            return BlockFloat(mantissa_width=mantissa, block=block)
        case Operand(element=Float(mantissa=23)):
            return None
        case Operand(element=Float() as f, is_scaled=False):
            return Minifloat(width=f.bits, exponent_width=f.exponent, specials=f.specials)
        case Operand(element=Float() as f):
            return MXFloat(exponent_width=f.exponent, mantissa_width=f.mantissa, block=block)
        case _:
            raise AssertionError(operand)


def fixed_point(width: int) -> int:
    """Where this project puts the point of an unscaled integer."""
    return width // 2


def encode(operand: Operand, values: Sequence[float], block: int) -> tuple[list[int], list[int]]:
    """Codes and scales (empty where there are none) of values that the format represents.

    Raises:
        ValueError: a value that it does not.
    """
    element = operand.element
    if not operand.is_scaled:
        frac = fixed_point(element.width) if isinstance(element, Integer) else 0
        return [_encode(element, math.ldexp(v, frac)) for v in values], []
    codes: list[int] = []
    scales: list[int] = []
    for start in range(0, len(values), block):
        part = values[start : start + block]
        largest = max(abs(v) for v in part)
        exponent = math.frexp(largest)[1] - 1 - _top(element) if largest else -SCALE_BIAS
        exponent = max(exponent, -SCALE_BIAS)
        codes += [_encode(element, math.ldexp(v, point(element) - exponent)) for v in part]
        scales.append(exponent + SCALE_BIAS)
    return codes, scales


def _top(element: Integer | SignMagnitude | Float) -> int:
    """The exponent of an element's largest power of two."""
    if not isinstance(element, Float):
        return 0
    last_is_taken = element.specials == "ieee"
    return (1 << element.exponent) - 1 - last_is_taken - element.bias


def _encode(element: Integer | SignMagnitude | Float, value: float) -> int:
    code = _nearest_code(element, value)
    decoded = decode(element, code) if 0 <= code < 1 << element.bits else None
    if decoded is None or math.ldexp(*decoded) != value:
        raise ValueError(f"{value} is no value of {element}")
    return code


def _nearest_code(element: Integer | SignMagnitude | Float, value: float) -> int:
    if isinstance(element, Integer):
        return round(value) % (1 << element.width)
    negative = value < 0
    if isinstance(element, SignMagnitude):
        return negative << element.mantissa | round(abs(value))
    exponent = max(math.frexp(value)[1] - 1, 1 - element.bias) if value else 1 - element.bias
    significand = round(math.ldexp(abs(value), element.mantissa - exponent))
    field = exponent + element.bias if significand >> element.mantissa else 0
    fraction = significand & ((1 << element.mantissa) - 1)
    return negative << (element.bits - 1) | field << element.mantissa | fraction


# ---- vectors ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """A vector, and the exact result of the format's own values where it was made from some."""

    vector: Vector
    exact: Fraction | None = None


def stimuli(unit: Unit, *, num_random: int, seed: int) -> Iterator[Stimulus]:
    """Corners; then `num_random` vectors of quantized values and as many of any codes."""
    yield from corners(unit)
    yield from from_rows(unit, *(_normal(unit, num_random, seed + side) for side in (0, 1)))
    rng = random.Random(seed)
    for _ in range(num_random):
        yield Stimulus(vector=_any_codes(unit, rng))


def corners(unit: Unit) -> Iterator[Stimulus]:
    """All pairs of awkward codes in all lanes; at scales of one also in one lane among zeros."""
    for scale in (0, SCALE_BIAS, 254, SCALE_NAN) if unit.a.is_scaled else (SCALE_BIAS,):
        for x in corner_codes(unit.a):
            for y in corner_codes(unit.b):
                for lanes in (unit.lanes, 1) if scale == SCALE_BIAS else (unit.lanes,):
                    rest = [0] * (unit.lanes - lanes)
                    yield Stimulus(
                        vector={
                            "a": [x] * lanes + rest,
                            "b": [y] * lanes + rest,
                            "a_scale": [scale] * unit.blocks,
                            "b_scale": [min(SCALE_BIAS * 2 - scale, 254) % 256] * unit.blocks,
                        }
                    )


def corner_codes(operand: Operand) -> list[int]:
    """Zero, the smallest and the largest of each sign, and the codes next to the special ones."""
    bits = operand.element.bits
    sign = 1 << (bits - 1)
    codes = {0, 1, sign, sign | 1, sign - 1, 2 * sign - 1}
    if isinstance(operand.element, Float):
        first_normal = 1 << operand.element.mantissa
        special = (sign - 1) >> operand.element.mantissa << operand.element.mantissa
        codes |= {first_normal, first_normal - 1, special, special - 1, sign | (special - 1)}
    return sorted(codes)


def from_rows(unit: Unit, a: "Tensor", b: "Tensor") -> Iterator[Stimulus]:
    """Rows of values, rounded by the formats themselves, as a unit is given them."""
    given = [_rounded(operand, unit.block, x) for operand, x in ((unit.a, a), (unit.b, b))]
    used = [given[0], given[1]]
    if unit.inner is not None:
        used[1] = _rounded(unit.inner.b, unit.block, given[1])
    for x, y, p, q in zip(*(rows.tolist() for rows in (*given, *used))):
        vector: dict[str, list[int]] = {}
        vector["a"], vector["a_scale"] = encode(unit.a, x, unit.block)
        vector["b"], vector["b_scale"] = encode(unit.b, y, unit.block)
        pairs = [(_number(one), _number(other)) for one, other in zip(p, q)]
        exact = _sum([(one[0] * other[0], one[1] + other[1]) for one, other in pairs])
        yield Stimulus(vector=vector, exact=exact)


def _rounded(operand: Operand, block: int, values: "Tensor") -> "Tensor":
    made = number_format(operand, block)
    return values if made is None else made.quantize(values)


def _normal(unit: Unit, count: int, seed: int) -> "Tensor":
    """Normal random rows of different spread."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.randn(count, 1, generator=generator) * 2)
    return torch.randn(count, unit.lanes, generator=generator) * spread


def _any_codes(unit: Unit, rng: random.Random) -> Vector:
    return {
        "a": _codes(unit.a, unit.lanes, rng),
        "b": _codes(unit.b, unit.lanes, rng),
        "a_scale": [_scale(rng) for _ in range(unit.blocks)],
        "b_scale": [_scale(rng) for _ in range(unit.blocks)],
    }


def _codes(operand: Operand, count: int, rng: random.Random) -> list[int]:
    """Any bits; of a float, exponents around one of their own, or nearly every sum would be NaN."""
    element = operand.element
    codes = [rng.getrandbits(element.bits) for _ in range(count)]
    if not isinstance(element, Float):
        return codes
    last = (1 << element.exponent) - 1
    around, spread = rng.randint(0, last - 1), rng.choice([1, 4, 16, 64])
    fields = [min(max(around + rng.randint(-spread, spread), 0), last - 1) for _ in codes]
    mask = last << element.mantissa
    return [code & ~mask | field << element.mantissa for code, field in zip(codes, fields)]


def _scale(rng: random.Random) -> int:
    """Mostly near one; sometimes anything."""
    return rng.randint(0, 255) if rng.random() < 0.02 else rng.randint(97, 157)


# ---- the verdict --------------------------------------------------------------------------------


def verify(
    unit: Unit, *, num_random: int, seed: int, rows: "tuple[Tensor, Tensor] | None" = None
) -> dict[str, Any]:
    """Simulate a unit and count the results that are not what they must be.

    `mismatches`: not the definition's code. `beyond_bound`: further from the exact dot product than
    the bound. `from_format`: results whose exact value was computed from the format's own values.
    `correctly_rounded`: share of finite results that are the exact dot product, rounded once.
    `rows` are unrounded values (rows × lanes, each side); `error_db`: the unit's results for them,
    signal to error in decibels, against their exact dot products.
    """
    given = list(stimuli(unit, num_random=num_random, seed=seed))
    first = len(given)
    given += [] if rows is None else from_rows(unit, *rows)
    results = simulation.simulate(unit, [s.vector for s in given])
    wants = [expected(unit, s.vector) for s in given]
    wrong = [i for i, (got, want) in enumerate(zip(results, wants)) if got != want.code]
    checks = [
        _against_format(unit, got, want, stimulus)
        for got, want, stimulus in zip(results, wants, given)
        if want.exact is not None and want.code != NAN
    ]
    found = {
        "vectors": len(given),
        "mismatches": len(wrong),
        "first_mismatch": _describe(given[wrong[0]], results[wrong[0]], wants[wrong[0]])
        if wrong
        else None,
        "finite": len(checks),
        "from_format": sum(s.exact is not None for s in given),
        "beyond_bound": sum(not inside for inside, _ in checks),
        "correctly_rounded": sum(rounded for _, rounded in checks) / max(len(checks), 1),
    }
    if rows is None:
        return found
    return {**found, "rows": len(given) - first, "error_db": error_db(unit, results[first:], *rows)}


def verified(unit: Unit, **how: Any) -> dict[str, Any]:
    """What `verify` finds of a unit that is right.

    Raises:
        MadlError: a wrong bit, or a result beyond its bound.
    """
    found = verify(unit, **how)
    if found["mismatches"] or found["beyond_bound"]:
        raise MadlError(
            f"the Verilog of {unit.name} gives {found['mismatches']} results with wrong bits and "
            f"{found['beyond_bound']} beyond its bound: {found['first_mismatch']}"
        )
    return found


def error_db(unit: Unit, results: Sequence[int], a: "Tensor", b: "Tensor") -> float:
    """Signal to error of a unit's results for unrounded rows, in decibels.

    Raises:
        MadlError: a result that is no number, or no error at all.
    """
    exact = (a.double() * b.double()).sum(1).tolist()
    values = [value_of(unit, code) for code in results]
    if None in values:
        raise MadlError(f"{unit.name} gives NaN for finite values")
    noise = sum((float(value or 0) - wanted) ** 2 for value, wanted in zip(values, exact))
    if not noise:
        raise MadlError(f"{unit.name} makes no error at all, which has no decibels")
    return 10 * math.log10(sum(wanted**2 for wanted in exact) / noise)


def value_of(unit: Unit, code: int) -> Fraction | None:
    """What a result means in its formats' values, None for NaN."""
    if not unit.gives_integer:
        number = from_fp32(code)
        return None if number is None else _fraction(number)
    assert isinstance(unit.a.element, Integer)
    value = code - (1 << unit.result_bits) if code >> (unit.result_bits - 1) else code
    return Fraction(value, 2 ** (2 * fixed_point(unit.a.element.width)))


def _against_format(unit: Unit, got: int, want: Expected, s: Stimulus) -> tuple[bool, bool]:
    """Whether a result is within the bound, and whether it is the exact one rounded once."""
    assert want.exact is not None
    exact, value = want.exact if s.exact is None else s.exact, value_of(unit, got)
    if value is None:
        return False, False
    if unit.gives_integer:
        assert isinstance(unit.a.element, Integer)
        if s.exact is None:  # the definition counts in whole numbers
            exact /= 2 ** (2 * fixed_point(unit.a.element.width))
        return value == exact, value == exact
    rounded = to_fp32(exact.numerator, -(exact.denominator.bit_length() - 1))
    return abs(value - exact) <= want.bound, got == rounded


def _describe(stimulus: Stimulus, got: int, want: Expected) -> str:
    return f"got {got:#x}, expected {want.code:#x} for {dict(stimulus.vector)}"[:400]
