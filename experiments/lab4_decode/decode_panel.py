"""One code of MXINT8 through the coursework's dequantize loop, step by step, in plain integers.

The same steps as `decode_loop`, for pages, which are made without torch; and as the site's script
computes for any code, `docs/assets/explain_decode.js`. Tests hold all three together.

Units: bits of a bfloat16 as an integer; a value is that of the float32 with these upper bits.
"""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.records import Row

SIGN, EXPONENT, BIT_SIX, BELOW_BIT_SIX = 15, 7, 0x40, 0x3F
BIAS, NAN_SCALE, BEHIND = 127, 255, 6  # bits behind the point of a mantissa


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the loop holds on its way, as bits of a bfloat16."""

    dont_need_abs: bool
    out: int
    bias: int
    result: int


def steps(mantissa: int, scale: int) -> Steps:
    """The loop on one code."""
    magnitude = abs(mantissa)
    bias = (mantissa < 0) << SIGN | scale << EXPONENT
    out = bias | (magnitude & BELOW_BIT_SIX) << 1
    has_one = bool(magnitude & BIT_SIX)
    result = out if has_one else bits(value(out) - value(bias))  # exact: of one exponent
    return Steps(dont_need_abs=has_one, out=out, bias=bias, result=result)


def value(of: int) -> float:
    return struct.unpack(">f", struct.pack(">I", of << 16))[0]


def bits(of: float) -> int:
    """Of a value that bfloat16 holds."""
    return struct.unpack(">I", struct.pack(">f", of))[0] >> 16


def definition(mantissa: int, scale: int) -> float:
    """The value that the code means, as bfloat16 has it."""
    if scale == NAN_SCALE:
        return math.nan
    exact = math.ldexp(mantissa, scale - BIAS - BEHIND)
    return math.copysign(math.inf, exact) if abs(exact) >= 2.0**128 else exact


def is_right(mantissa: int, scale: int) -> bool:
    made, meant = value(steps(mantissa, scale).result), definition(mantissa, scale)
    return made == meant or (math.isnan(made) and math.isnan(meant))


# ---- the picture --------------------------------------------------------------------------------


def decode_panels(rows: Sequence[Row]) -> list[Panel]:
    """The first code of the rows, as the script shows any other."""
    first = rows[0]
    return [Panel(title="One code through the loop", svg=_picture(first), folded=False)]


def decode_alt(rows: Sequence[Row]) -> str:
    """The same in one line."""
    return "The dequantize loop on one code. " + _said(rows[0]["mantissa"], rows[0]["scale"])


def _picture(row: Row) -> str:
    mantissa, scale = row["mantissa"], row["scale"]
    made = steps(mantissa, scale)
    meant = definition(mantissa, scale)
    table = field_table(
        ("step", "bits", "value"),
        (
            (
                "the magnitude of the mantissa",
                _code("magnitude", f"{abs(mantissa):08b}"),
                field("absolute", abs(mantissa)),
            ),
            (
                "<code>dont_need_abs</code>: bit 6 of it",
                _code("one", int(made.dont_need_abs)),
                field("needed", str(made.dont_need_abs).lower()),
            ),
            (
                "<code>out</code>: sign, scale, the bits below bit 6",
                _code("outbits", grouped(made.out)),
                field("out", shown(value(made.out))),
            ),
            (
                "<code>bias</code>: sign and scale alone",
                _code("biasbits", grouped(made.bias)),
                field("bias", shown(value(made.bias))),
            ),
            (
                f"the result: {field('rule', _rule(made), 'code')}",
                _code("resultbits", grouped(made.result)),
                field("result", shown(value(made.result))),
            ),
            (
                f"the definition: {field('formula', _formula(mantissa, scale))}",
                _code("meantbits", "NaN" if math.isnan(meant) else grouped(bits(meant))),
                field("meant", shown(meant)),
            ),
        ),
    )
    inputs = "".join(
        f'<div class="byte"><b>{name}</b> {field(name, number)}<div>{_cells(name[0], number)}</div>'
        "</div>"
        for name, number in (("mantissa", mantissa), ("scale", scale))
    )
    return f'<div class="bytes">{inputs}</div>\n{table}\n{says(_said(mantissa, scale))}'


def _code(name: str, text: object) -> str:
    return field(name, text, "code")


def _cells(letter: str, number: int) -> str:
    """The eight bits of a byte, the highest first."""
    cells = ((i, number >> i & 1) for i in reversed(range(8)))
    return "".join(field(f"{letter}{i}", bit, look="bit one" if bit else "bit") for i, bit in cells)


def grouped(of: int) -> str:
    """Sixteen bits as sign, exponent and fraction."""
    text = f"{of:016b}"
    return f"{text[0]} {text[1:9]} {text[9:]}"


def shown(number: float) -> str:
    """At most six significant digits; a power of ten where there would be many zeros."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    size = abs(number)
    text = f"{number:.6g}" if not size or 1e-4 <= size < 1e6 else f"{number:.3e}"
    return re.sub(r"e([-+])0*", r"e\1", text).replace("-", "−")


def _rule(made: Steps) -> str:
    return "out" if made.dont_need_abs else "out - bias"


def _formula(mantissa: int, scale: int) -> str:
    if scale == NAN_SCALE:
        return "a scale that means NaN"
    return f"{mantissa} / {1 << BEHIND} × 2^({scale} − {BIAS})".replace("-", "−")


def _said(mantissa: int, scale: int) -> str:
    """What happens to a code, in a sentence; the script has the same words."""
    made, meant = steps(mantissa, scale), shown(definition(mantissa, scale))
    out, bias, result = (shown(value(of)) for of in (made.out, made.bias, made.result))
    taken = f"set, so the loop takes out as it is: {result}"
    if not made.dont_need_abs:
        taken = f"clear, so the loop takes out − bias: {out} − {bias} = {result}"
    verdict = "as it should be" if is_right(mantissa, scale) else f"where it should be {meant}"
    return f"Mantissa {mantissa}, scale {scale}: bit 6 is {taken}, {verdict}.".replace("-", "−")
