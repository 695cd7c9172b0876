"""Our formats beside other libraries': how many results differ, and on what values.

A library that is not installed has no case. Two results are the same if their bits are; NaNs count
as one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.formats.design import ORDINARY, SLOW_VALUES
from madl.formats.base import NumberFormat
from madl.formats.blocked import MXFloat, MXInt, RealScale
from madl.formats.fixed import ScaledInteger
from madl.formats.minifloat import Minifloat
from madl.logbook.records import Params, Values

COLUMNS = 1024  # of the values that are drawn
BLOCK = 32
ROWS = 1024  # at a time
ENDS = (
    2.0**-110,
    2.0**126,
)  # of float32: a block's scale or an element can leave its normal numbers

MX_FLOATS = {(4, 3): "e4m3", (5, 2): "e5m2", (3, 2): "e3m2", (2, 3): "e2m3", (2, 1): "e2m1"}
FLOATS = {
    **{"e2m1": Minifloat(width=4, exponent_width=2), "e2m3": Minifloat(width=6, exponent_width=2)},
    "e3m2": Minifloat(width=6, exponent_width=3),
    "e4m3": Minifloat(width=8, exponent_width=4, specials="nan"),
    "e5m2": Minifloat(width=8, exponent_width=5, specials="ieee"),
    "float16": Minifloat(width=16, exponent_width=5, specials="ieee"),
    "bfloat16": Minifloat(width=16, exponent_width=8, specials="ieee"),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A library's conversion to a format, there and back, beside ours."""

    group: str  # of formats, in words
    ours: NumberFormat
    theirs: Callable[[Tensor], Tensor]  # (rows, values) → the same shape, float32
    finite: bool = False  # takes no NaN and no infinity: it has zeros there
    values: int | None = None  # at most, where it is slow


def agreement(params: Params) -> Values:
    """Compare all formats that a library shares with us: a row each, and the library's version."""
    library, size = str(params["library"]), int(params["values"] or 0)
    x = drawn(size, seed=int(params["seed"] or 0))
    rows = [
        {"group": peer.group, "format": peer.ours.name, **compared(x, peer)}
        for peer in LIBRARIES[library]()
    ]
    return {"version": version(library), "rows": rows}


def version(library: str) -> str:
    """The version of an installed library; "" where it is a folder of sources."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


# ---- the values ---------------------------------------------------------------------------------


def near(x: Tensor) -> Tensor:
    """The same mantissas within twelve binades.

    A scale of a whole tensor turns all into zero that lies far below its largest value.
    """
    mantissa, exponent = x.frexp()
    return torch.ldexp(mantissa, exponent % 12 - 6)


def drawn(size: int, seed: int) -> Tensor:
    """At least `size` values in rows of `COLUMNS`, by blocks of 32.

    Of eight blocks, four lie within 60 binades, two of them on a coarse lattice, whose values are
    often ties; three lie anywhere in float32, subnormals included; one is zeros with either sign,
    or has NaN or infinities.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = COLUMNS // BLOCK * math.ceil(size / COLUMNS)
    kind = torch.arange(blocks).unsqueeze(1) % 8
    near = torch.randint(-30, 31, (blocks, 1), generator=generator)
    far = torch.randint(-149, 128, (blocks, 1), generator=generator)
    exponent = torch.where(kind < 4, near, far).double()
    x = torch.randn(blocks, BLOCK, generator=generator, dtype=torch.float64)
    x *= torch.exp2(-6 * torch.rand(blocks, BLOCK, generator=generator, dtype=torch.float64))
    x = torch.where(kind < 2, (x * 16).round() / 16, x) * torch.exp2(exponent)
    x = x.clamp(-torch.finfo(torch.float32).max, torch.finfo(torch.float32).max).float()
    odd = torch.randint(0, 4, (blocks, BLOCK), generator=generator)
    special = torch.tensor([math.nan, math.inf, -math.inf])[odd.clamp(max=2)]
    zeros = torch.copysign(torch.zeros(()), x)
    mixed = torch.where((odd < 3) & (torch.arange(BLOCK) % 11 == 3), special, x)
    is_zero = torch.arange(blocks).unsqueeze(1) % 16 == 7
    x = torch.where(kind == 7, torch.where(is_zero, zeros, mixed), x)
    return x.view(-1, COLUMNS)


# ---- one format ---------------------------------------------------------------------------------


def compared(x: Tensor, peer: Peer) -> dict[str, Any]:
    """How many values were compared, how many results differ, and on what; an example of each."""
    x, rows = x[: peer.values and max(1, peer.values // COLUMNS)], ROWS
    if peer.finite:
        x = torch.where(x.isfinite(), x, 0.0)
    if isinstance(peer.ours, RealScale):  # tensors of few rows
        x, rows = near(x), 8
    why, examples, nonzero = dict[str, int](), dict[str, list[float | None]](), 0
    for part in x.split(rows):
        ours, theirs = peer.ours.quantize(part), peer.theirs(part.clone())
        assert theirs.dtype is torch.float32, theirs.dtype
        nonzero += int((ours != 0).sum())
        for reason, where in reasons(part, ours, theirs, peer.ours).items():
            if count := int(where.sum()):
                why[reason] = why.get(reason, 0) + count
                at = tuple(where.nonzero()[0].tolist())
                example = [float(values[at]) for values in (part, ours, theirs)]
                examples.setdefault(reason, [v if math.isfinite(v) else None for v in example])
    counts = {"compared": x.numel(), "nonzero": nonzero, "differing": sum(why.values())}
    return {**counts, "why": why, "examples": examples}


def reasons(x: Tensor, ours: Tensor, theirs: Tensor, f: NumberFormat) -> dict[str, Tensor]:
    """Where results differ, by what is special about the value: each is counted once, in order."""
    same = (ours.view(torch.int32) == theirs.view(torch.int32)) | (ours.isnan() & theirs.isnan())
    left, largest = ~same, x.abs()
    if f.shared is not None:  # a block has what its largest value has
        blocks = largest.unflatten(-1, (-1, f.shared.block))
        largest = blocks.amax(-1, keepdim=True).expand_as(blocks).flatten(-2)
    high = math.inf if f.range is None else f.range[1]
    ties, logarithms, other = ORDINARY
    far, near = (x.double() - y.double() for y in (ours, theirs))
    # Two's complement has it.
    lowest = torch.ldexp(-torch.ones_like(largest), largest.frexp().exponent)
    is_rceil = isinstance(f, MXFloat) and f.rule == "rceil"
    needed = (largest / f.grid.high).log2() if is_rceil else torch.full_like(largest, math.nan)
    tests = {
        "signs of zero": (ours == 0) & (theirs == 0),
        "NaN and infinity": ~largest.isfinite(),
        "values beyond the range": largest > high,
        "blocks at an end of float32": (largest < ENDS[0]) | (largest >= ENDS[1]),
        "the lowest integer": (theirs == lowest) & isinstance(f, MXInt),
        logarithms: needed == needed.round(),
        ties: far.abs() == near.abs(),
        other: torch.ones_like(left),
    }
    by_reason: dict[str, Tensor] = {}
    for reason, test in tests.items():
        by_reason[reason] = left & test
        left = left & ~test
    return by_reason


# ---- the libraries ------------------------------------------------------------------------------


def of_torch() -> Iterator[Peer]:
    """Casts to torch's dtypes, and its fake quantization."""
    dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    dtypes |= {"float16": torch.float16, "bfloat16": torch.bfloat16}
    for name, dtype in dtypes.items():
        cast = partial(lambda x, dtype: x.to(dtype).float(), dtype=dtype)
        yield Peer("floats, integers", FLOATS[name], cast)
    for width in (4, 8):
        most = 2 ** (width - 1) - 1

        def by_row(x: Tensor, most: int = most) -> Tensor:
            scale = x.abs().amax(-1).clamp(min=1e-30) / most
            zero = torch.zeros(len(x), dtype=torch.int32)
            return torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -most, most)

        yield Peer("floats, integers", ScaledInteger(width=width), by_row, finite=True)


def of_torchao() -> Iterator[Peer]:
    """MX by four rules of the scale, and NVFP4, there and back."""
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
    from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2

    elements: dict[tuple[int, int], Any] = {
        **{(4, 3): torch.float8_e4m3fn, (5, 2): torch.float8_e5m2},
        **{(3, 2): DTYPE_FP6_E3M2, (2, 3): DTYPE_FP6_E2M3, (2, 1): torch.float4_e2m1fn_x2},
    }

    def mx(x: Tensor, element: Any, rule: str) -> Tensor:
        mode = mx_tensor.ScaleCalculationMode[rule.upper()]
        scale, data = mx_tensor.to_mx(x, element, BLOCK, mode)
        return mx_tensor.to_dtype(data, scale, element, BLOCK, torch.float32)

    def nvfp4(x: Tensor) -> Tensor:
        scale = nvfp4_tensor.per_tensor_amax_to_scale(x.abs().amax())
        return nvfp4_tensor.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale).dequantize()

    for (exponent, mantissa), element in elements.items():
        for rule in ("floor", "ceil", "rceil", "even"):
            ours = MXFloat(exponent_width=exponent, mantissa_width=mantissa, rule=rule)
            yield Peer(
                "MX, by four rules of the scale", ours, partial(mx, element=element, rule=rule)
            )
    ours = RealScale(element_name="e2m1", scale="e4m3", block=16)
    yield Peer("NVFP4", ours, nvfp4, finite=True)


def of_ml_dtypes() -> Iterator[Peer]:
    """Casts to its dtypes, which round but do not saturate."""
    import ml_dtypes

    dtypes = {"e2m1": "float4_e2m1fn", "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn"}
    dtypes |= {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "bfloat16": "bfloat16"}

    def cast(x: Tensor, name: str) -> Tensor:
        with np.errstate(all="ignore"):
            values = x.numpy().astype(getattr(ml_dtypes, name)).astype(np.float32)
        return torch.from_numpy(values)

    for name, dtype in dtypes.items():
        yield Peer("floats", FLOATS[name], partial(cast, name=dtype))


def of_gfloat() -> Iterator[Peer]:
    """Its floats, saturating; and its MX, which is Python a block: on fewer values."""
    from gfloat import (
        BlockFormatInfo,
        RoundMode,
        compute_scale_amax,
        formats,
        quantize_block,
        round_ndarray,
    )

    def rounded(x: Tensor, info: Any) -> Tensor:
        with np.errstate(invalid="ignore"):
            out = round_ndarray(info, x.double().numpy(), RoundMode.TiesToEven, sat=True)
        return torch.from_numpy(out).float()

    def blocks(x: Tensor, info: BlockFormatInfo) -> Tensor:
        values = x.double().view(-1, BLOCK).numpy()
        out = [quantize_block(info, block, compute_scale_amax) for block in values]
        return torch.from_numpy(np.stack(out)).float().view(x.shape)

    for name in MX_FLOATS.values():
        info = getattr(formats, f"format_info_ocp_{name}")
        yield Peer("floats", FLOATS[name], partial(rounded, info=info))
    shared: dict[str, NumberFormat] = {
        f"mxfp{1 + e + m}_{name}": MXFloat(exponent_width=e, mantissa_width=m)
        for (e, m), name in MX_FLOATS.items()
    }
    for name, ours in (shared | {"mxint8": MXInt(width=8)}).items():
        info = getattr(formats, f"format_info_{name}")
        how = partial(blocks, info=info)
        yield Peer("MX", ours, how, finite=True, values=SLOW_VALUES)


def of_microxcaling() -> Iterator[Peer]:
    """Its MX, as it comes (ties away from zero), and with ties to even."""
    from mx.mx_ops import _quantize_mx

    formats: dict[str, NumberFormat] = {
        f"fp{1 + e + m}_{name}": MXFloat(exponent_width=e, mantissa_width=m)
        for (e, m), name in MX_FLOATS.items()
    }
    formats |= {"int8": MXInt(width=8), "int4": MXInt(width=4)}
    for rounding, group in (("even", "MX, ties to even"), ("nearest", "MX, as it comes")):
        for name, f in formats.items():
            how = {"scale_bits": 8, "elem_format": name, "axes": [-1], "block_size": BLOCK}
            yield Peer(group, f, partial(_quantize_mx, **how, round=rounding))


LIBRARIES: dict[str, Callable[[], Iterator[Peer]]] = {
    "torch": of_torch,
    "torchao": of_torchao,
    "ml_dtypes": of_ml_dtypes,
    "gfloat": of_gfloat,
    "microxcaling": of_microxcaling,
}
