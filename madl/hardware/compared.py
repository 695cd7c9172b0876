"""The units that question 4.4 compares: which there are, and which formats' accuracy they buy."""

from collections.abc import Iterator, Mapping

from madl.hardware.counts import (
    BF16,
    BF16_ADDERS,
    FP32,
    MIXED,
    MXINT8,
    QUANTIZING,
    Described,
)
from madl.training.families import GROUPS, moved_of

ALIGNED = (MXINT8, BF16, QUANTIZING, MIXED)  # which round once, at the end
ROUNDED = (BF16_ADDERS, FP32)  # which round after every addition
NARROW_MXINT: Described = {**MXINT8, "width": 4}
FINE: Described = {**MXINT8, "block": 4}  # a scale for few values
MXFP8: Described = {"unit": "mxfloat", "exponent": 4, "mantissa": 3, "block": 32}
FIXED, SCALED, LOG = {"unit": "fixed"}, {"unit": "scaled"}, {"unit": "log"}
BINARY: Described = {"unit": "binary"}
BLOCK_FLOAT, BLOCK_LOG = {"unit": "block_float", "block": 16}, {"unit": "block_log", "block": 16}
BLOCK_MINIFLOAT = {"unit": "block_minifloat", "block": 16}
NARROW, WIDE = {"exponent": 2, "mantissa": 1}, {"exponent": 4, "mantissa": 3}
# Bits a value → powers of two, and block floating point in as many bits.
POWERS: Mapping[int, tuple[Described, Described]] = {
    4: ({**BLOCK_LOG, "width": 4}, {**BLOCK_FLOAT, "mantissa": 3}),
    8: ({**BLOCK_LOG, "width": 8}, {**BLOCK_FLOAT, "mantissa": 7}),
}
# floats with bf16's exponents and fewer bits: as exact as MXINT8, or not
SHORTER = tuple({**BF16, "mantissa": bits} for bits in (4, 5, 6))
WINDOWED = {**BF16, "window": 24}  # as many bits as an FP32 significand
MULTIPLIER: Described = {"unit": "float_adders", "mantissa": 23, "lanes": 1}  # one of FP32
NARROW_POWERS = ("block-log(4,8,block=16)", "block-float(3,8,block=16)")  # their formats
WIDE_POWERS = ("block-log(8,8,block=16)", "block-float(7,8,block=16)")
# Formats of question 3.2, and the unit that multiplies two vectors of each.
JUDGED: Mapping[str, Described] = {
    "minifloat(16,8,ieee)": BF16,
    "mxint8": MXINT8,
    "mxint4": NARROW_MXINT,
    **{f"fixed({width},{width // 2})": {**FIXED, "width": width} for width in (4, 8, 16)},
    **{f"scaled({width},row)": {**SCALED, "width": width} for width in (4, 8)},
    "minifloat(4,2)": {"unit": "float", **NARROW, "specials": "none"},
    "minifloat(6,2)": {"unit": "float", "exponent": 2, "mantissa": 3, "specials": "none"},
    "minifloat(6,3)": {"unit": "float", "exponent": 3, "mantissa": 2, "specials": "none"},
    "minifloat(8,4)": {"unit": "float", **WIDE, "specials": "none"},
    "minifloat(8,4,nan)": {"unit": "float", **WIDE, "specials": "nan"},
    "minifloat(8,5,ieee)": {"unit": "float", "exponent": 5, "mantissa": 2},
    "minifloat(16,5,ieee)": {"unit": "float", "exponent": 5, "mantissa": 10},
    "denormal(4,2)": {"unit": "denormal", **NARROW},
    "denormal(8,4)": {"unit": "denormal", **WIDE},
    "mxfp8-e4m3": MXFP8,
    "mxfp8-e5m2": {"unit": "mxfloat", "exponent": 5, "mantissa": 2, "block": 32},
    "mxfp6-e3m2": {"unit": "mxfloat", "exponent": 3, "mantissa": 2, "block": 32},
    "mxfp6-e2m3": {"unit": "mxfloat", "exponent": 2, "mantissa": 3, "block": 32},
    "mxfp4-e2m1": {"unit": "mxfloat", **NARROW, "block": 32},
    NARROW_POWERS[1]: POWERS[4][1],
    "block-float(7,8,block=16)": POWERS[8][1],
    "block-minifloat(4,2,8,block=16)": {**BLOCK_MINIFLOAT, **NARROW},
    "block-minifloat(8,4,8,block=16)": {**BLOCK_MINIFLOAT, **WIDE},
    **{f"log({width})": {**LOG, "width": width} for width in (4, 8)},
    NARROW_POWERS[0]: POWERS[4][0],
    "block-log(8,8,block=16)": POWERS[8][0],
    "binary": BINARY,
    "scaled-binary": {"unit": "scaled_binary"},
    **{f"residual-sign({n})": {"unit": "residual_sign", "levels": n} for n in (2, 3)},
    "ternary(0.7)": {"unit": "ternary"},
}
# The same with their values at other positions, which multiply a result by a power of two. As a
# row's scale, that is done to finished sums, outside the unit.
MOVED: Mapping[str, Described] = {
    moved: unit for name, unit in JUDGED.items() if (moved := moved_of(name))
}
# The same under another scale, which no unit applies.
RESCALED: Mapping[str, Described] = {"scaled(8,tensor)": {**SCALED, "width": 8}}
MXFP6 = JUDGED["mxfp6-e2m3"]
# The same numbers, from the same blocks: a sign kept apart, and two's complement.
SIGN_APART, COMPLEMENT = POWERS[8][1], {**MXINT8, "block": 16}
_FIXED, _FLOATING, _BLOCKS, _LOG, _SIGNS = GROUPS
GROUP: Mapping[str, str] = {  # of units, as question 3.2 groups their formats
    **dict.fromkeys(("fixed", "scaled"), _FIXED),
    **dict.fromkeys(("float", "float_adders", "denormal"), _FLOATING),
    **dict.fromkeys(("mxint", "mxint_quantizing", "mxint_bf16", "mxfloat"), _BLOCKS),
    **dict.fromkeys(("block_float", "block_minifloat"), _BLOCKS),
    **dict.fromkeys(("log", "block_log"), _LOG),
    **dict.fromkeys(("binary", "scaled_binary", "residual_sign", "ternary"), _SIGNS),
}


def every_unit(profile: str) -> Iterator[Described]:
    """The compared ones, those of question 3.2, every width and every block: counted and run."""
    yield from (MXINT8, BF16, QUANTIZING, FINE)
    if profile == "smoke":
        return
    yield from (*SHORTER, MIXED)
    yield from JUDGED.values()
    yield from swept()
    yield from (*ROUNDED, WINDOWED)


def swept() -> Iterator[Described]:
    """MXINT of every width, and of every block."""
    yield from ({**MXINT8, "width": width} for width in (3, 4, 5, 6, 7, 8, 10, 12, 16))
    yield from ({**MXINT8, "block": block} for block in (2, 4, 8, 16))
