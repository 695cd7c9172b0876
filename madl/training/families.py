"""The precisions of question 3.2: families of number formats, their groups, and their positions.

A precision's name is a preset's, and all layers can take it for weight, bias and input. The values
of a narrow format without a scale lie where its *position* puts them, a fraction width or an
exponent bias; the larger that is, the smaller are the values. Such a format can be *moved*, to one
position for weights and biases and one for inputs: `log(4) moved`.

Names only, for plans and pages; a case that runs turns them into formats.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from madl.formats.base import NumberFormat
    from madl.training.precision import Operands

FP32 = "fp32"  # a layer that is left alone
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "binary": ("binary",),
    "scaled binary": ("scaled-binary",),
    "residual sign": ("residual-sign(2)", "residual-sign(3)"),
    "ternary": ("ternary(0.7)",),
    "fixed point": ("fixed(4,2)", "fixed(8,4)", "fixed(16,8)"),
    "scaled integer": ("scaled(4,row)", "scaled(8,row)", "scaled(8,tensor)"),
    "logarithmic": ("log(4)", "log(8)"),
    "block log": ("block-log(4,8,block=16)", "block-log(8,8,block=16)"),
    "minifloat": (
        *("minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)", "minifloat(8,4)"),
        *("minifloat(8,4,nan)", "minifloat(8,5,ieee)"),
        *("minifloat(16,5,ieee)", "minifloat(16,8,ieee)"),
    ),
    "denormal": ("denormal(4,2)", "denormal(8,4)"),
    "block float": ("block-float(3,8,block=16)", "block-float(7,8,block=16)"),
    "block minifloat": ("block-minifloat(4,2,8,block=16)", "block-minifloat(8,4,8,block=16)"),
    "MX integer": ("mxint4", "mxint8"),
    "MX float": ("mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4-e2m1"),
}
NAMES = tuple(name for members in FAMILIES.values() for name in members)
# What is moved, and the preset that it comes from: formats without a scale whose own position
# rounds more than a tenth of this model's weights to zero.
_PRESETS: Mapping[str, str] = {
    "fixed(4)": "fixed(4,2)",
    "fixed(8)": "fixed(8,4)",
    **{name: name for name in ("log(4)", "minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)")},
    "denormal(4,2)": "denormal(4,2)",
}
_MOVED = " moved"
MOVED = tuple(name + _MOVED for name in _PRESETS)
EVERY = (*NAMES, *MOVED)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "fixed, scaled": ("fixed point", "scaled integer"),
    "floating": ("minifloat", "denormal"),
    "with a block's scale": ("block float", "block minifloat", "MX integer", "MX float"),
    "logarithmic": ("logarithmic", "block log"),
    "binary, ternary": ("binary", "scaled binary", "residual sign", "ternary"),
}
SCALED = (  # families that take a scale from the data, for a block, a row or a tensor
    *("scaled integer", "scaled binary", "residual sign", "ternary"),
    *("block log", "block float", "block minifloat", "MX integer", "MX float"),
)


def space(family: Any) -> tuple[str, ...]:
    """What a kind of layer may take in the search of that family, or in the search over all.

    FP32, and all formats of the family, each once: moved, where it can be.
    """
    once = (moved_of(name) or name for name in NAMES if family in (None, family_of(name)))
    return (FP32, *once)


def moved_of(preset: str) -> str | None:
    """The name of that preset with positions of its own, if it is one that is moved."""
    return next((name + _MOVED for name, of in _PRESETS.items() if of == preset), None)


def family_of(name: str) -> str:
    """The family of a preset, or of a format that was moved."""
    kind = name.partition("(")[0]
    known = (family for family, members in FAMILIES.items() if name in members)
    return next(known, {"fixed": "fixed point", "log": "logarithmic"}.get(kind, kind))


def group_of(name: str) -> str:
    """The group that a page colours alike."""
    return next(group for group, families in GROUPS.items() if family_of(name) in families)


def has_scale(name: str) -> bool:
    """Whether it takes a scale from the data."""
    return family_of(name) in SCALED


def is_log(name: str) -> bool:
    """Whether its values are powers of two, under a scale or not."""
    return group_of(name) == "logarithmic"


def short(name: str) -> str:
    """A format's name without its block size, which is the same in all of a family."""
    return name.replace(",block=16", "")


# ---- where a case runs --------------------------------------------------------------------------


def named(name: str) -> "NumberFormat | None":
    """The preset, or None for a layer that is left alone."""
    from madl.formats import presets

    return None if name == FP32 else presets()[name]


def preset_of(moved: str) -> "NumberFormat":
    """The format at its own position."""
    from madl.formats import presets

    return presets()[_PRESETS[moved.removesuffix(_MOVED)]]


def position(number_format: Any) -> int:
    """Where a format with a position has it."""
    if hasattr(number_format, "frac_width"):
        return number_format.frac_width
    return number_format.effective_bias


def moved(name: str, weights: int, inputs: int) -> "Operands":
    """That format (`log(4) moved`) with these positions."""
    from madl.training.precision import Operands

    def at(where: int) -> "NumberFormat":
        preset: Any = preset_of(name)
        part = "frac_width" if hasattr(preset, "frac_width") else "bias"
        return replace(preset, **{part: where})

    return Operands(weight=at(weights), input=at(inputs))
