"""The number formats in use, in one table: a new one is a row here, and a class if it needs one.

Searches, pages, tests, benchmarks and the command line take all rows, in this order. Parameters
and records name a format by its `name`, pages by its title. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from madl.formats.base import NumberFormat
from madl.formats.binary import Binary, ResidualSign, Ternary
from madl.formats.blocked import BlockFloat, BlockLog, BlockMinifloat, MXFloat, MXInt, RealScale
from madl.formats.fixed import FixedPoint, ScaledInteger
from madl.formats.log import Logarithmic
from madl.formats.minifloat import DenormalMinifloat, Minifloat


@dataclass(frozen=True, slots=True)
class Family:
    """Formats of one kind, which a search tries together."""

    name: str
    group: str  # families that a chart colours alike
    source: str  # of the definition
    formats: Mapping[str, NumberFormat]  # by title: the name on every page
    sources: Mapping[str, str] = field(default_factory=dict)  # by title, of those with their own


_FIXED, _FLOATING, _BLOCKED = "fixed, scaled", "floating", "with a block's scale"
_LOG, _BINARY = "logarithmic", "binary, ternary"
_RESIDUAL = "arXiv:1711.01243; one level, arXiv:1603.05279"
_OCP = "OCP MX 1.0"

FAMILIES = (
    Family("binary", _BINARY, "arXiv:1602.02830", {"binary": Binary()}),
    Family("scaled binary", _BINARY, _RESIDUAL, {"scaled binary": ResidualSign(levels=1)}),
    Family(
        "residual sign",
        _BINARY,
        _RESIDUAL,
        {"two signs": ResidualSign(levels=2), "three signs": ResidualSign(levels=3)},
    ),
    Family("ternary", _BINARY, "arXiv:1605.04711", {"ternary": Ternary()}),
    Family(
        "fixed point",
        _FIXED,
        "two's complement",
        {
            "fixed 4": FixedPoint(width=4, frac_width=2),
            "fixed 8": FixedPoint(width=8, frac_width=4),
            "fixed 16": FixedPoint(width=16, frac_width=8),
        },
    ),
    Family(
        "scaled integer",
        _FIXED,
        "`torch.fake_quantize_per_channel_affine`",
        {
            "INT4 by row": ScaledInteger(width=4),
            "INT8 by row": ScaledInteger(width=8),
            "INT8 by tensor": ScaledInteger(width=8, per="tensor"),
        },
        sources={"INT8 by tensor": "`torch.fake_quantize_per_tensor_affine`"},
    ),
    Family(
        "logarithmic",
        _LOG,
        "arXiv:1603.01025",
        {"log 4": Logarithmic(width=4), "log 8": Logarithmic(width=8)},
    ),
    Family(
        "block log",
        _LOG,
        "Logarithmic under a shared bias",
        {"block log 4": BlockLog(width=4), "block log 8": BlockLog(width=8)},
    ),
    Family(
        "minifloat",
        _FLOATING,
        "IEEE 754; OCP FP8 1.0",
        {
            "FP4-e2m1": Minifloat(width=4, exponent_width=2),
            "FP6-e2m3": Minifloat(width=6, exponent_width=2),
            "FP6-e3m2": Minifloat(width=6, exponent_width=3),
            "FP8-e4m3": Minifloat(width=8, exponent_width=4),
            "FP8-e4m3 with NaN": Minifloat(width=8, exponent_width=4, specials="nan"),
            "FP8-e5m2": Minifloat(width=8, exponent_width=5, specials="ieee"),
            "FP16": Minifloat(width=16, exponent_width=5, specials="ieee"),
            "BF16": Minifloat(width=16, exponent_width=8, specials="ieee"),
        },
    ),
    Family(
        "denormal",
        _FLOATING,
        "Minifloat without an implicit one",
        {
            "denormal FP4-e2m1": DenormalMinifloat(width=4, exponent_width=2),
            "denormal FP8-e4m3": DenormalMinifloat(width=8, exponent_width=4),
        },
    ),
    Family(
        "block float",
        _BLOCKED,
        "MSFP, NeurIPS 2020",
        {
            "block float 4": BlockFloat(mantissa_width=3),
            "block float 8": BlockFloat(mantissa_width=7),
        },
    ),
    Family(
        "block minifloat",
        _BLOCKED,
        "Fox et al., ICLR 2021",
        {
            "block FP4-e2m1": BlockMinifloat(width=4, exponent_width=2),
            "block FP8-e4m3": BlockMinifloat(width=8, exponent_width=4),
        },
    ),
    Family(
        "MX integer",
        _BLOCKED,
        _OCP,
        {"MXINT4": MXInt(width=4), "MXINT8": MXInt(width=8)},
        sources={"MXINT4": "MXINT8's rule, narrower"},  # OCP's only integer is MXINT8
    ),
    Family(
        "MX float",
        _BLOCKED,
        _OCP,
        {
            "MXFP8-e4m3": MXFloat(exponent_width=4, mantissa_width=3),
            "MXFP8-e5m2": MXFloat(exponent_width=5, mantissa_width=2),
            "MXFP6-e3m2": MXFloat(exponent_width=3, mantissa_width=2),
            "MXFP6-e2m3": MXFloat(exponent_width=2, mantissa_width=3),
            "MXFP4-e2m1": MXFloat(exponent_width=2, mantissa_width=1),
            "MXFP4-e2m1, even": MXFloat(exponent_width=2, mantissa_width=1, rule="even"),
        },
        sources={"MXFP4-e2m1, even": "torchao's `ScaleCalculationMode.EVEN`"},
    ),
    Family(
        "real scale",
        _BLOCKED,
        "groups under FP16, largest value over seven",
        {
            "NVFP4": RealScale(element_name="e2m1", scale="e4m3", block=16),
            "INT4 by 32": RealScale(element_name="int4", scale="fp16", block=32),
            "INT4 by 128": RealScale(element_name="int4", scale="fp16", block=128),
        },
        sources={"NVFP4": "torchao's `nvfp4_quantize`"},
    ),
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A format of the table, with its title and family."""

    format: NumberFormat
    title: str
    family: Family

    @property
    def source(self) -> str:
        """Where the format is defined: a paper or standard."""
        return self.family.sources.get(self.title, self.family.source)


PRESETS: Mapping[str, Preset] = {
    number_format.name: Preset(number_format, title, family)
    for family in FAMILIES
    for title, number_format in family.formats.items()
}
FORMATS: Mapping[str, NumberFormat] = {name: preset.format for name, preset in PRESETS.items()}
