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

CODES = 256
BIT_SIX, BELOW_BIT_SIX = 0x40, 0x3F
BIAS, NAN_SCALE = 127, 255
SCALES = (0, 1, 2, 6, 7, 64, 126, 127, 128, 192, 253, 254, 255)  # whose wrong codes are listed
FAR = 20  # of an exponent: a reader sees smaller powers as numbers
WRONG = ((-128, 127), (-128, 254), (100, 0), (1, 0), (64, 255))  # mantissas and scales shown


def study() -> dict[str, Any]:
    """Counts over all codes, and the loop's steps under the scale whose power of two is one."""
    mantissas = torch.arange(-128, 128).repeat(CODES, 1)
    scales = torch.arange(CODES)[:, None]
    truth = definition(mantissas, scales)
    codec = mxint8.dequantize(mantissas.to(torch.int8), scales.to(torch.uint8), CODES).double()
    loop = coursework_loop(mantissas, scales)
    has_one = (mantissas.abs() & BIT_SIX) != 0
    normal = (scales > 0) & (scales < NAN_SCALE) & (mantissas > -128)
    signed_power = power(scales) * torch.where(mantissas < 0, -1.0, 1.0)
    wrong = differs(loop["result"], truth)
    return {
        "codes": truth.numel(),
        "codec_wrong": int(differs(codec, truth.bfloat16().double()).sum()),
        "beyond": [
            example(loop, truth, m - 128, s)
            for s, m in (truth.isfinite() & codec.isinf()).nonzero().tolist()
        ],
        "with_one": int((normal & has_one).sum()),
        "with_one_off": int((normal & has_one & differs(loop["out"], truth)).sum()),
        "without_one": int((normal & ~has_one).sum()),
        "without_one_off": int(
            (normal & ~has_one & differs(loop["out"] - signed_power, truth)).sum()
        ),
        "wrong": by_cause(wrong, mantissas, scales),
        "wrong_mantissas": {
            str(scale): (wrong[scale].nonzero().flatten() - 128).tolist() for scale in SCALES
        },
        "steps": [worked(loop, truth, mantissa) for mantissa in range(-128, 128)],
        "examples_of_wrong": [example(loop, truth, m, s) for m, s in WRONG],
    }


def example(loop: dict[str, Tensor], truth: Tensor, mantissa: int, scale: int) -> dict[str, Any]:
    """One code, and its value by the loop and by the definition."""
    made, meant = shown(loop["result"], mantissa, scale), shown(truth, mantissa, scale)
    return {"mantissa": mantissa, "scale": scale, "loop": made, "truth": meant}


def power(scales: Tensor) -> Tensor:
    """2^(scale - 127) in float64; NaN for 255."""
    value = torch.exp2((scales - BIAS).double())
    return torch.where(scales == NAN_SCALE, math.nan, value)


def definition(mantissas: Tensor, scales: Tensor) -> Tensor:
    """mantissa · 2^-6 · 2^(scale - 127) in float64, which holds every one of them exactly."""
    return mantissas.double() / 64 * power(scales)


def coursework_loop(mantissas: Tensor, scales: Tensor) -> dict[str, Tensor]:
    """Each step of the loop, as float64 values of the bfloat16 that it holds."""
    magnitude = mantissas.abs()  # in an int, so that of -128 is 128
    sign = torch.where(mantissas < 0, 1 << 15, 0)
    exponent = scales << 7
    fraction = (magnitude & BELOW_BIT_SIX) << 1
    out = as_bf16(sign | exponent | fraction)
    bias = as_bf16((sign | exponent).expand_as(out))
    dont_need_abs = (magnitude & BIT_SIX) != 0
    result = torch.where(dont_need_abs, out, out - bias)  # in bfloat16, as there
    return {"out": out.double(), "bias": bias.double(), "result": result.double()}


def as_bf16(bits: Tensor) -> Tensor:
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
        "elsewhere": int((wrong & ~lowest & ~zero & (scales != NAN_SCALE)).sum()),
    }


def shown(values: Tensor, mantissa: int, scale: int) -> str:
    """A value in words; a power of two that is far from one as such: "-2^128"."""
    value = float(values[scale, mantissa + 128])
    fraction, exponent = math.frexp(abs(value))
    if fraction == 0.5 and abs(exponent) > FAR:
        return f"{'-' if value < 0 else ''}2^{exponent - 1}"
    return f"{value:.6g}".replace("inf", "∞")


def worked(loop: dict[str, Tensor], truth: Tensor, mantissa: int) -> dict[str, Any]:
    """One mantissa under scale 127, where 2^E is one."""
    at = (BIAS, mantissa + 128)
    return {
        "mantissa": mantissa,
        "out": float(loop["out"][at]),
        "bias": float(loop["bias"][at]),
        "result": float(loop["result"][at]),
        "truth": float(truth[at]),
    }
