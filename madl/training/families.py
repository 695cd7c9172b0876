"""The precisions of question 3.2: families of number formats, their groups, and their positions.

A precision's name is a preset's, and all layers can take it for weight, bias and input. The values
of a narrow format without a scale lie where its *position* puts them, a fraction width or an
exponent bias; the larger that is, the smaller are the values. Such a format can be *moved*, to one
position for weights and biases and one for inputs: `log(4) moved`.

Names only, for plans and pages; a case that runs turns them into formats.
"""

from collections.abc import Mapping
from functools import partial
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
# Of each format that can be moved, the positions that are tried: of weights, and of inputs.
POSITIONS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "fixed(4)": ((4, 5, 6), (1, 2, 3)),
    "fixed(8)": ((7, 8, 9), (3, 4, 5)),
    "log(4)": ((7, 8, 9), (4, 5, 6)),
    "minifloat(4,2)": ((4, 5, 6), (1, 2, 3)),
    "denormal(4,2)": ((3, 4, 5), (0, 1, 2)),
}
CLASSES = {4: (0, 4), 8: (4, 8), 16: (8, 16)}  # bits: above, and up to; formats that are rivals
_MOVED = " moved"
MOVED = tuple(name + _MOVED for name in POSITIONS)
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

    FP32, and all formats of the family, the moved ones too.
    """
    formats = (name for name in EVERY if family in (None, family_of(name)))
    return (FP32, *formats)


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


def positions(moved: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The positions that are tried for a format that is moved: of weights, and of inputs."""
    return POSITIONS[moved.removesuffix(_MOVED)]


def tried(moved: str) -> str:
    """The same as a parameter: "7 8 9 | 4 5 6"."""
    return " | ".join(" ".join(map(str, part)) for part in positions(moved))


# ---- where a case runs --------------------------------------------------------------------------


def named(name: str) -> "NumberFormat | None":
    """The preset, or None for a layer that is left alone."""
    from madl.formats import presets

    return None if name == FP32 else presets()[name]


def bits_of(name: str) -> float:
    """Bits per value of a preset or of a moved format."""
    found = moved(name, 0, 0) if name in MOVED else named(name)
    return 32.0 if found is None else found.bits


def at_position(name: str, position: int) -> "NumberFormat":
    """The format of that name (a key of `POSITIONS`) with its values there."""
    from madl.formats.fixed import FixedPoint
    from madl.formats.log import Logarithmic
    from madl.formats.minifloat import DenormalMinifloat, Minifloat

    if name.startswith("fixed"):
        return FixedPoint(width=int(name[6:-1]), frac_width=position)
    make: dict[str, Any] = {
        "log(4)": partial(Logarithmic, width=4),
        "minifloat(4,2)": partial(Minifloat, width=4, exponent_width=2),
        "denormal(4,2)": partial(DenormalMinifloat, width=4, exponent_width=2),
    }
    return make[name](bias=position)


def moved(name: str, weights: int, inputs: int) -> "Operands":
    """That format (`log(4) moved`) with these positions."""
    from madl.training.precision import Operands

    of = name.removesuffix(_MOVED)
    return Operands(weight=at_position(of, weights), input=at_position(of, inputs))
