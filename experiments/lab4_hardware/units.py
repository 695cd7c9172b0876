"""The kinds of dot-product unit that `kernels/hardware/` can build, by the names that cases use."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.lab4_hardware.float_units import (
    block_log,
    block_minifloat,
    denormal,
    float_adders,
    floating,
    log,
    mxfloat,
)
from experiments.lab4_hardware.integer_units import (
    binary,
    block_float,
    fixed,
    mxint,
    mxint_bf16,
    mxint_quantizing,
    residual_sign,
    scaled,
    scaled_binary,
    ternary,
)
from experiments.lab4_hardware.operands import Unit

SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "hardware"
KINDS: Mapping[str, Callable[..., Unit]] = {
    "fixed": fixed,
    "scaled": scaled,
    "mxint": mxint,
    "mxint_quantizing": mxint_quantizing,
    "mxint_bf16": mxint_bf16,
    "block_float": block_float,
    "float": floating,
    "float_adders": float_adders,
    "denormal": denormal,
    "mxfloat": mxfloat,
    "block_minifloat": block_minifloat,
    "log": log,
    "block_log": block_log,
    "binary": binary,
    "scaled_binary": scaled_binary,
    "residual_sign": residual_sign,
    "ternary": ternary,
}
OPTIONS = ("width", "mantissa", "exponent", "levels", "specials", "window", "block")


def from_params(params: Mapping[str, Any]) -> Unit:
    """The unit that a case's parameters describe: `unit` names the kind, the rest its widths.

    Raises:
        ValueError: an unknown kind, or values that the kind does not take.
    """
    kind = str(params.get("unit"))
    if kind not in KINDS:
        raise ValueError(f"unknown unit {kind!r}; known: {', '.join(KINDS)}")
    return KINDS[kind](**{name: params[name] for name in ("lanes", *OPTIONS) if name in params})
