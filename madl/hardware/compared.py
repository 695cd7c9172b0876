"""The units that question 4.4 compares: which there are, and which formats' accuracy they buy."""

from collections.abc import Iterator, Mapping
from typing import Any

from madl.hardware.counts import COMPARED

MXINT8, BF16, QUANTIZING, MIXED, *ROUNDED = COMPARED.values()
NARROW_MXINT: Mapping[str, Any] = {**MXINT8, "width": 4}
MXFP8: Mapping[str, Any] = {"unit": "mxfloat", "exponent": 4, "mantissa": 3, "block": 32}
# floats with bf16's exponents and fewer bits: as exact as MXINT8, or not
SHORTER = tuple({**BF16, "mantissa": bits} for bits in (4, 5))
WINDOWED = {**BF16, "window": 24}  # as many bits as an FP32 significand
# Formats of question 3.2, and the unit that multiplies two vectors of each.
JUDGED: Mapping[str, Mapping[str, Any]] = {
    "minifloat(16,8,ieee)": BF16,
    "mxint8": MXINT8,
    "mxint4": NARROW_MXINT,
    "fixed(4,2)": {"unit": "fixed", "width": 4},
    "fixed(8,4)": {"unit": "fixed", "width": 8},
    "fixed(16,8)": {"unit": "fixed", "width": 16},
    "minifloat(8,4,nan)": {"unit": "float", "exponent": 4, "mantissa": 3, "specials": "nan"},
    "mxfp8-e4m3": MXFP8,
    "mxfp4-e2m1": {"unit": "mxfloat", "exponent": 2, "mantissa": 1, "block": 32},
    "block-float(7,8,block=16)": {"unit": "block_float", "mantissa": 7, "block": 16},
    "block-float(3,8,block=16)": {"unit": "block_float", "mantissa": 3, "block": 16},
}
RUN = ({"width": 4}, {"width": 6}, {"block": 4}, {"block": 16})  # of the sweeps, in quick
COSTLY = ("fixed(16,8)", "minifloat(8,4,nan)", "block-float(7,8,block=16)")  # to synthesise
FAMILIES: Mapping[str, str] = {
    "mxint": "MXINT",
    "mxint_quantizing": "MXINT, quantizing",
    "mxint_bf16": "MXINT weights only",
    "fixed": "fixed point",
    "float": "floating point",
    "float_adders": "FP32 adders",
    "mxfloat": "MXFP",
    "block_float": "block FP",
}


def every_unit(profile: str) -> Iterator[Mapping[str, Any]]:
    """The compared ones, those of question 3.2, and some widths and blocks: counted and run."""
    yield from (MXINT8, BF16, QUANTIZING, *SHORTER)
    if profile == "smoke":
        return
    is_full = profile == "full"
    yield MIXED
    yield from (unit for name, unit in JUDGED.items() if is_full or name not in COSTLY)
    yield from swept() if is_full else ({**MXINT8, **one} for one in RUN)
    if is_full:
        yield from (*ROUNDED, WINDOWED)


def swept() -> Iterator[Mapping[str, Any]]:
    """Every width and every block: counted in every profile but smoke."""
    yield from ({**MXINT8, "width": width} for width in (3, 4, 5, 6, 7, 8, 10, 12, 16))
    yield from ({**MXINT8, "block": block} for block in (2, 4, 8, 16))
