"""Units whose lanes have exponents: floats, denormal and logarithmic numbers, under a scale or not.

Products are aligned to the largest and added as integers, of which a window of bits is kept. Where
the exponents are so few that the window holds every product wherever it lies, each is shifted to
its place instead, and the sum is exact.

Raises, all of them: ValueError for no lane, widths outside their limits, or lanes that are no
multiple of the block.
"""

from collections.abc import Mapping

from experiments.lab4_hardware.operands import (
    FP32_BITS,
    SCALE_BIAS,
    Float,
    Operand,
    Scale,
    Specials,
    Unit,
    check,
    check_lanes,
    checked_block,
    log2,
)

WINDOW = 16  # bits that an aligned sum keeps of its largest term: as many as a bf16 product has
BF16 = Float(exponent=8, mantissa=7)
_SPECIALS: Mapping[str, int] = {"none": 0, "nan": 1, "ieee": 2}  # as decode_float numbers them
_MX_SPECIALS: Mapping[tuple[int, int], Specials] = {(4, 3): "nan", (5, 2): "ieee"}


def floating(
    *,
    lanes: int,
    exponent: int,
    mantissa: int,
    specials: Specials = "ieee",
    window: int = WINDOW,
) -> Unit:
    """Floating point; `window`: bits that the sum keeps, never less than a product has."""
    element = _float(exponent, mantissa, specials)
    return _unscaled(_float_name(element), element, lanes, window)


def denormal(*, lanes: int, exponent: int, mantissa: int) -> Unit:
    """Floats without an implicit one."""
    check("exponent", exponent, 2, 7)
    check("mantissa", mantissa, 1, 20)
    element = Float(exponent=exponent, mantissa=mantissa, specials="none", has_implicit_one=False)
    return _unscaled(f"denormal{element.bits}", element, lanes)


def log(*, lanes: int, width: int) -> Unit:
    """Powers of two: products add exponents."""
    check("width", width, 3, 8)
    return _unscaled(f"log{width}", _power(width), lanes)


def mxfloat(*, lanes: int, exponent: int, mantissa: int, block: int = 32) -> Unit:
    """MXFP: small floats under an E8M0 scale."""
    element = _float(exponent, mantissa, _MX_SPECIALS.get((exponent, mantissa), "none"))
    name = f"MXFP{element.bits}-e{exponent}m{mantissa}"
    return _under_scales(name, element, "e8m0", lanes, block)


def block_minifloat(*, lanes: int, exponent: int, mantissa: int, block: int = 16) -> Unit:
    """Small floats without specials under a bias of the block."""
    check("exponent", exponent, 2, 6)
    check("mantissa", mantissa, 1, 20)
    element = Float(exponent=exponent, mantissa=mantissa, specials="none", own_bias=0)
    return _under_scales(f"block minifloat{element.bits}", element, "bias", lanes, block)


def block_log(*, lanes: int, width: int, block: int = 16) -> Unit:
    """Powers of two under a bias of the block."""
    check("width", width, 3, 8)
    return _under_scales(f"block log{width}", _power(width, own_bias=0), "bias", lanes, block)


def float_adders(*, lanes: int, mantissa: int) -> Unit:
    """bfloat16 (`mantissa` 7) or FP32 (23), every product and partial sum an FP32 number."""
    check_lanes(lanes)
    element = _float(8, mantissa, "ieee", has_subnormals=False)
    side = Operand(element=element)
    name = _float_name(element)
    return Unit(
        name=f"{name} × {name}, FP32 adders",
        top="dot_float_adders",
        parameters={"LANES": lanes, "MANTISSA": mantissa},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        rounds_each_step=True,
    )


def _unscaled(name: str, element: Float, lanes: int, window: int = WINDOW) -> Unit:
    check_lanes(lanes)
    check("window", window, 1, 64)
    side = Operand(element=element)
    is_exact = _is_exact(element)
    guard = element.range if is_exact else max(0, window - element.product_bits)
    parameters = {"LANES": lanes, **_shape(element), "GUARD": guard}
    rounded = {
        "SPECIALS": _SPECIALS[element.specials],
        "OFFSET": 2 * (element.bias + element.mantissa) + guard,
    }
    bits = 1 + element.product_bits + guard + log2(lanes)
    return Unit(
        name=f"{name} × {name}",
        top="dot_float_exact" if is_exact else "dot_float",
        parameters=parameters if is_exact else {**parameters, **rounded},
        lanes=lanes,
        a=side,
        b=side,
        block=lanes,
        lane_guard=None if is_exact else guard,
        integers=int(is_exact),
        result_bits=bits if is_exact else FP32_BITS,
    )


def _under_scales(name: str, element: Float, scale: Scale, lanes: int, block: int) -> Unit:
    block = checked_block(lanes, block)
    is_exact = _is_exact(element)
    guard = element.range if is_exact else max(0, WINDOW - element.product_bits)
    sum_bits = 1 + element.product_bits + guard + log2(block)
    block_guard = max(0, WINDOW - sum_bits)
    place = -2 * element.lowest if is_exact else 2 * (element.bias + element.mantissa) + guard
    side = Operand(element=element, scale=scale)
    return Unit(
        name=f"{name} × {name}",
        top="dot_mxfloat",
        parameters={
            **{"LANES": lanes, **_shape(element), "ALIGNED": int(not is_exact)},
            **{"SPECIALS": _SPECIALS[element.specials], "BIASES": int(scale == "bias")},
            **{"BLOCK": block, "GUARD": guard, "BLOCK_GUARD": block_guard},
            "OFFSET": 2 * SCALE_BIAS + place,
        },
        lanes=lanes,
        a=side,
        b=side,
        block=block,
        lane_guard=None if is_exact else guard,
        block_guard=block_guard,
    )


def _is_exact(element: Float) -> bool:
    """Whether the usual window holds every product wherever it lies."""
    return element.specials == "none" and element.product_bits + element.range <= WINDOW


def _shape(element: Float) -> dict[str, int]:
    form = 2 if element.mantissa == 0 else 0 if element.has_implicit_one else 1
    return {"EXPONENT": element.exponent, "MANTISSA": element.mantissa, "FORM": form}


def _power(width: int, own_bias: int | None = None) -> Float:
    return Float(exponent=width - 1, mantissa=0, specials="none", own_bias=own_bias)


def _float(
    exponent: int, mantissa: int, specials: Specials, *, has_subnormals: bool = True
) -> Float:
    check("exponent", exponent, 2, 8)
    check("mantissa", mantissa, 1, 23)
    if specials not in _SPECIALS:
        raise ValueError(f"specials is one of {', '.join(_SPECIALS)}, got {specials!r}")
    return Float(
        exponent=exponent, mantissa=mantissa, specials=specials, has_subnormals=has_subnormals
    )


def _float_name(element: Float) -> str:
    known = {(8, 7): "bf16", (8, 23): "FP32", (5, 10): "fp16"}
    own = f"FP{element.bits}-e{element.exponent}m{element.mantissa}"
    return known.get((element.exponent, element.mantissa), own)
