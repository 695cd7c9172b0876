"""Number formats by family and by group, and the one name that pages have for each.

Names only, for plans and pages. A format's key is that of its preset; its name is the field's:
`minifloat(6,3)` is FP6-e3m2 everywhere, in blocks and out of them.
"""

from collections.abc import Mapping

FAMILIES: Mapping[str, Mapping[str, str]] = {  # family → preset → name
    "binary": {"binary": "binary"},
    "scaled binary": {"scaled-binary": "scaled binary"},
    "residual sign": {"residual-sign(2)": "two signs", "residual-sign(3)": "three signs"},
    "ternary": {"ternary(0.7)": "ternary"},
    "fixed point": {"fixed(4,2)": "fixed 4", "fixed(8,4)": "fixed 8", "fixed(16,8)": "fixed 16"},
    "scaled integer": {
        "scaled(4,row)": "INT4 by row",
        "scaled(8,row)": "INT8 by row",
        "scaled(8,tensor)": "INT8 by tensor",
    },
    "logarithmic": {"log(4)": "log 4", "log(8)": "log 8"},
    "block log": {
        "block-log(4,8,block=16)": "block log 4",
        "block-log(8,8,block=16)": "block log 8",
    },
    "minifloat": {
        "minifloat(4,2)": "FP4-e2m1",
        "minifloat(6,2)": "FP6-e2m3",
        "minifloat(6,3)": "FP6-e3m2",
        "minifloat(8,4)": "FP8-e4m3",
        "minifloat(8,4,nan)": "FP8-e4m3 with NaN",
        "minifloat(8,5,ieee)": "FP8-e5m2",
        "minifloat(16,5,ieee)": "FP16",
        "minifloat(16,8,ieee)": "BF16",
    },
    "denormal": {"denormal(4,2)": "denormal FP4-e2m1", "denormal(8,4)": "denormal FP8-e4m3"},
    "block float": {
        "block-float(3,8,block=16)": "block float 4",
        "block-float(7,8,block=16)": "block float 8",
    },
    "block minifloat": {
        "block-minifloat(4,2,8,block=16)": "block FP4-e2m1",
        "block-minifloat(8,4,8,block=16)": "block FP8-e4m3",
    },
    "MX integer": {"mxint4": "MXINT4", "mxint8": "MXINT8"},
    "MX float": {
        "mxfp8-e4m3": "MXFP8-e4m3",
        "mxfp8-e5m2": "MXFP8-e5m2",
        "mxfp6-e3m2": "MXFP6-e3m2",
        "mxfp6-e2m3": "MXFP6-e2m3",
        "mxfp4-e2m1": "MXFP4-e2m1",
    },
}
NAMES = tuple(preset for members in FAMILIES.values() for preset in members)
GROUPS: Mapping[str, tuple[str, ...]] = {  # that a page colours alike
    "fixed, scaled": ("fixed point", "scaled integer"),
    "floating": ("minifloat", "denormal"),
    "with a block's scale": ("block float", "block minifloat", "MX integer", "MX float"),
    "logarithmic": ("logarithmic", "block log"),
    "binary, ternary": ("binary", "scaled binary", "residual sign", "ternary"),
}


def family_of(preset: str) -> str:
    """The family of a format."""
    return next(family for family, members in FAMILIES.items() if preset in members)


def group_of(preset: str) -> str:
    """The group of its family."""
    return next(group for group, families in GROUPS.items() if family_of(preset) in families)


def name_of(preset: str) -> str:
    """What every page calls a format."""
    return FAMILIES[family_of(preset)][preset]
