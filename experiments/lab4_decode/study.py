"""The coursework's dequantize loop, step by step on every code, beside what it should be.

Shapes: tensors of all codes are (scale, mantissa + 128), 256 × 256.
Source: OCP Microscaling Formats (MX) v1.0, sections 5.3.4 and 5.4.1; the loop is that of
`dequantize1d_host` in DeepWok/mase-cuda, src/csrc/mxint/dequantize.cuh, written anew.
"""

import math
from typing import Any

import torch
from torch import Tensor

from kernels import mxint8
from madl.errors import MadlError

CODES = 256
BIT_SIX, BELOW_BIT_SIX = 0x40, 0x3F
BIAS, NAN_SCALE = 127, 255
FAR = 20  # of an exponent: a reader sees smaller powers as numbers
EXAMPLES = (  # mantissa, scale: bit six clear, bit six set, and codes that the loop gets wrong
    *((32, 127), (80, 127), (-32, 127)),
    *((-128, 127), (-128, 254), (1, 0), (100, 0), (64, 255)),
)


def study() -> dict[str, Any]:
    """Counts over all codes, and the loop's steps under the scale whose power of two is one.

    Raises:
        MadlError: the codec is not the definition, or the loop is wrong for a reason not known.
    """
    mantissas = torch.arange(-128, 128).repeat(CODES, 1)
    scales = torch.arange(CODES)[:, None]
    truth = definition(mantissas, scales)
    codec = mxint8.dequantize(mantissas.to(torch.int8), scales.to(torch.uint8), CODES).double()
    none("the codec of this repository differs", differs(codec, truth.bfloat16().double()))
    loop = coursework_loop(mantissas, scales)
    has_one = (mantissas.abs() & BIT_SIX) != 0
    normal = (scales > 0) & (scales < NAN_SCALE) & (mantissas > -128)
    one = power(scales) * torch.where(mantissas < 0, -1.0, 1.0)
    with_one, without_one = normal & has_one, normal & ~has_one
    none("`out` is off with bit six set", with_one & differs(loop["out"], truth))
    none("`out` is off by another value", without_one & differs(loop["out"] - one, truth))
    none("the loop is wrong", normal & differs(loop["result"], truth))
    return {
        "codes": truth.numel(),
        "with_one": int(with_one.sum()),
        "without_one": int(without_one.sum()),
        "wrong": by_cause(differs(loop["result"], truth), mantissas, scales),
        "steps": [
            {"mantissa": mantissa - 128, "truth": float(truth[BIAS, mantissa])}
            | {name: float(values[BIAS, mantissa]) for name, values in loop.items()}
            for mantissa in range(CODES)
        ],
        "examples": [
            {"mantissa": m, "scale": s}
            | {name: shown(v[s, m + 128]) for name, v in {**loop, "truth": truth}.items()}
            for m, s in EXAMPLES
        ],
    }


def none(what: str, codes: Tensor) -> None:
    """Raises: MadlError: there is such a code."""
    if found := codes.nonzero().tolist():
        scale, mantissa = found[0]
        raise MadlError(
            f"{what} on {len(found):,} codes, "
            f"the first mantissa {mantissa - 128} under scale {scale}"
        )


def power(scales: Tensor) -> Tensor:
    """2^(scale - 127) in float64; NaN for 255."""
    value = torch.exp2((scales - BIAS).double())
    return torch.where(scales == NAN_SCALE, math.nan, value)


def definition(mantissas: Tensor, scales: Tensor) -> Tensor:
    """mantissa · 2^-6 · 2^(scale - 127) in float64, which holds every one of them exactly."""
    return mantissas.double() / 64 * power(scales)


def coursework_loop(mantissas: Tensor, scales: Tensor) -> dict[str, Tensor]:
    """Each step of the loop, as float64 values of the bfloat16 that it holds."""
    mantissa_abs = mantissas.abs()  # in an int, so that of -128 is 128
    sign = torch.where(mantissas < 0, 1 << 15, 0)
    exp = scales << 7
    frac = (mantissa_abs & BELOW_BIT_SIX) << 1
    out = as_bf16(sign | exp | frac)
    bias = as_bf16((sign | exp).expand_as(out))
    dont_need_abs = (mantissa_abs & BIT_SIX) != 0
    result = torch.where(dont_need_abs, out, out - bias)  # in bfloat16, as there
    return {"out": out.double(), "bias": bias.double(), "result": result.double()}


def as_bf16(bits: Tensor) -> Tensor:
    """The bfloat16 values of these bits, given as integers."""
    return bits.to(torch.int32).to(torch.int16).view(torch.bfloat16)


def differs(a: Tensor, b: Tensor) -> Tensor:
    """Where two values are not the same; one NaN is as good as another."""
    beyond = b.abs() >= 2.0**128  # what no float32 holds is infinite in IEEE arithmetic
    b = b.where(~beyond, b.sign() * math.inf)
    return (a != b) & ~(a.isnan() & b.isnan())


def by_cause(wrong: Tensor, mantissas: Tensor, scales: Tensor) -> dict[str, int]:
    """The wrong codes, each counted once, in this order."""
    lowest, zero = mantissas == -128, scales.expand_as(mantissas) == 0
    return {
        "all": int(wrong.sum()),
        "lowest": int((wrong & lowest).sum()),
        "zero": int((wrong & zero & ~lowest).sum()),
        "nan": int((wrong & (scales == NAN_SCALE) & ~lowest).sum()),
    }


def shown(value: Tensor) -> str:
    """A value in words; a power of two that is far from one as such: "-2^128"."""
    fraction, exponent = math.frexp(abs(float(value)))
    if fraction == 0.5 and abs(exponent) > FAR:
        return f"{'-' if value < 0 else ''}2^{exponent - 1}"
    return f"{float(value):.6g}".replace("inf", "∞").replace("nan", "NaN")
