"""The coursework's dequantize loop, step by step on every code, beside what it should be.

Shapes: tensors of all codes are (scale, mantissa + 128), 256 × 256.
Source: OCP Microscaling Formats (MX) v1.0, sections 5.3.4 and 5.4.1; the loop is that of
`dequantize1d_host` in DeepWok/mase-cuda, src/csrc/mxint/dequantize.cuh, written anew.
"""

import math

import torch
from torch import Tensor

from experiments.lab4_decode.design import BIT_SIX, CODES, EXAMPLES
from kernels import mxint8
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values

BELOW_BIT_SIX = BIT_SIX - 1
BIAS, NAN_SCALE = 127, 255
LARGEST_PRINTED = 20  # an exponent: a reader sees larger powers as powers


def run(params: Params, ctx: Context) -> Values:
    """Count the codes on which the loop is wrong, and keep its steps at scale one and on examples.

    Raises:
        MadlError: the codec is not the definition, or the loop is wrong for a reason not known.
    """
    mantissas = torch.arange(-128, 128).repeat(CODES, 1)
    scales = torch.arange(CODES)[:, None]
    truth = definition(mantissas, scales)
    codec = mxint8.dequantize(mantissas.to(torch.int8), scales.to(torch.uint8), CODES).double()
    refuse("the codec of this repository differs", differs(codec, truth.bfloat16().double()))
    loop = coursework_loop(mantissas, scales)
    has_one = (mantissas.abs() & BIT_SIX) != 0
    normal = (scales > 0) & (scales < NAN_SCALE) & (mantissas > -128)
    leading_one = power(scales) * torch.where(mantissas < 0, -1.0, 1.0)
    with_one, without_one = normal & has_one, normal & ~has_one
    refuse("`out` is off with bit six set", with_one & differs(loop["out"], truth))
    refuse("`out` is off by another value", without_one & differs(loop["out"] - leading_one, truth))
    refuse("the loop is wrong", normal & differs(loop["result"], truth))
    return {
        "codes": truth.numel(),
        "with_one": int(with_one.sum()),
        "without_one": int(without_one.sum()),
        "wrong": count_by_cause(differs(loop["result"], truth), mantissas, scales),
        "steps": [
            {"mantissa": mantissa - 128, "truth": float(truth[BIAS, mantissa])}
            | {name: float(values[BIAS, mantissa]) for name, values in loop.items()}
            for mantissa in range(CODES)
        ],
        "examples": [
            {"mantissa": m, "scale": s}
            | {name: in_words(v[s, m + 128]) for name, v in {**loop, "truth": truth}.items()}
            for m, s in EXAMPLES
        ],
    }


def refuse(fault: str, codes: Tensor) -> None:
    """Raise an error that names the first code, if any has this fault.

    Raises:
        MadlError: `codes` is true for some code.
    """
    if indices := codes.nonzero().tolist():
        scale, mantissa = indices[0]
        raise MadlError(
            f"{fault} on {len(indices):,} codes, "
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
    """Each step of the loop by name, as float64 values of the bfloat16 that it holds."""
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
    """Elementwise whether values differ; NaN equals NaN, and `b` beyond float32 is infinite."""
    beyond = b.abs() >= 2.0**128  # what no float32 holds is infinite in IEEE arithmetic
    b = b.where(~beyond, b.sign() * math.inf)
    return (a != b) & ~(a.isnan() & b.isnan())


def count_by_cause(wrong: Tensor, mantissas: Tensor, scales: Tensor) -> dict[str, int]:
    """The numbers of wrong codes: all, and by cause, each code under the first that applies."""
    lowest, zero = mantissas == -128, scales.expand_as(mantissas) == 0
    return {
        "all": int(wrong.sum()),
        "lowest": int((wrong & lowest).sum()),
        "zero": int((wrong & zero & ~lowest).sum()),
        "nan": int((wrong & (scales == NAN_SCALE) & ~lowest).sum()),
    }


def in_words(value: Tensor) -> str:
    """A value as text; a power of two that is far from one as such: "-2^128"."""
    fraction, exponent = math.frexp(abs(float(value)))
    if fraction == 0.5 and abs(exponent) > LARGEST_PRINTED:
        return f"{'-' if value < 0 else ''}2^{exponent - 1}"
    return f"{float(value):.6g}".replace("inf", "∞").replace("nan", "NaN")
