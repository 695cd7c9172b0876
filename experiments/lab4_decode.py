"""Question 4.3b: what `dont_need_abs` and `bias` do in the coursework's dequantize loop.

The loop is run beside the definition on all 65,536 pairs of mantissa and scale, step by step, so
what its variables are for is seen in what they change. The codec is the one that every kernel of
this repository shares, and it too is held against the definition in float64.

Source: OCP Microscaling Formats (MX) v1.0, sections 5.3.4 and 5.4.1; the loop is that of the
coursework's published CUDA extension, written anew from its description.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Record, Records

CODES = 256
BIT_SIX, BELOW_BIT_SIX = 0x40, 0x3F
BIAS, NAN_SCALE = 127, 255
EXAMPLES = (64, 80, 127, 32, 1, 0, -80, -1, -127, -128)  # mantissas worked out in full
SCALES = (0, 1, 2, 6, 7, 64, 126, 127, 128, 192, 253, 254, 255)  # rows of the map of wrong codes


def params(plan: Plan) -> Iterable[Params]:
    yield {"codes": CODES * CODES}  # all of them, whatever the profile


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    """Everything is counted: tensors are (scale, mantissa + 128)."""
    import torch

    from kernels import mxint8

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
        "examples_of_wrong": [
            {
                "mantissa": m,
                "scale": s,
                "loop": shown(loop["result"], m, s),
                "truth": shown(truth, m, s),
            }
            for m, s in ((-128, 127), (-128, 254), (100, 0), (1, 0), (64, 255))
        ],
    }


def power(scales: Any) -> Any:
    """2^(scale - 127) in float64; NaN for 255."""
    import torch

    value = torch.exp2((scales - BIAS).double())
    return torch.where(scales == NAN_SCALE, math.nan, value)


def definition(mantissas: Any, scales: Any) -> Any:
    """mantissa · 2^-6 · 2^(scale - 127) in float64, which holds every one of them exactly."""
    return mantissas.double() / 64 * power(scales)


def coursework_loop(mantissas: Any, scales: Any) -> dict[str, Any]:
    """Each step of the loop, as float64 values of the bfloat16 that it holds."""
    import torch

    magnitude = mantissas.abs()  # in an int, so that of -128 is 128
    sign = torch.where(mantissas < 0, 1 << 15, 0)
    exponent = scales << 7
    fraction = (magnitude & BELOW_BIT_SIX) << 1
    out = as_bf16(sign | exponent | fraction)
    bias = as_bf16((sign | exponent).expand_as(out))
    dont_need_abs = (magnitude & BIT_SIX) != 0
    result = torch.where(dont_need_abs, out, out - bias)  # in bfloat16, as there
    return {"out": out.double(), "bias": bias.double(), "result": result.double()}


def as_bf16(bits: Any) -> Any:
    import torch

    return bits.to(torch.int32).to(torch.int16).view(torch.bfloat16)


def differs(a: Any, b: Any) -> Any:
    """Where two values are not the same; one NaN is as good as another."""
    beyond = b.abs() >= 2.0**128  # what no float32 holds is infinite in IEEE arithmetic
    b = b.where(~beyond, b.sign() * math.inf)
    return (a != b) & ~(a.isnan() & b.isnan())


def by_cause(wrong: Any, mantissas: Any, scales: Any) -> dict[str, int]:
    """The wrong codes, each counted once, in this order."""
    lowest, zero = mantissas == -128, scales.expand_as(mantissas) == 0
    return {
        "all": int(wrong.sum()),
        "lowest": int((wrong & lowest).sum()),
        "zero": int((wrong & zero & ~lowest).sum()),
        "nan": int((wrong & (scales == NAN_SCALE) & ~lowest).sum()),
        "elsewhere": int((wrong & ~lowest & ~zero & (scales != NAN_SCALE)).sum()),
    }


def shown(values: Any, mantissa: int, scale: int) -> str:
    value = float(values[scale, mantissa + 128])
    return f"{value:.6g}".replace("inf", "∞")


def worked(loop: Mapping[str, Any], truth: Any, mantissa: int) -> dict[str, Any]:
    """One mantissa under scale 127, where 2^E is one."""
    at = (BIAS, mantissa + 128)
    return {
        "mantissa": mantissa,
        "out": float(loop["out"][at]),
        "bias": float(loop["bias"][at]),
        "result": float(loop["result"][at]),
        "truth": float(truth[at]),
    }


# ---- claims -------------------------------------------------------------------------------------


def _only(records: Records) -> Record:
    return Records(r for r in records if "codec_wrong" in r.values).one()


def _times(count: int) -> str:
    return f"{count:,}"


def one_is_there(records: Records) -> Claim:
    values = _only(records).values
    text = (
        "`dont_need_abs` is bit 6 of the mantissa's magnitude. Where it is set the value has the "
        "leading one that BF16 adds by itself, and the assembled bits are the value already: of "
        f"{_times(values['with_one'])} such codes {values['with_one_off']} are off"
    )
    return stats.none_of(values["with_one_off"], values["with_one"], text)


def one_is_too_much(records: Records) -> Claim:
    values = _only(records).values
    text = (
        "Where bit 6 is clear, BF16 adds a one that the value does not have, so the bits are worth "
        "exactly 2^E too much in magnitude; `bias` is that ±2^E, and subtracting it gives the "
        f"value: of {_times(values['without_one'])} such codes {values['without_one_off']} are off"
    )
    return stats.none_of(values["without_one_off"], values["without_one"], text)


def loop_is_wrong_somewhere(records: Records) -> Claim:
    values = _only(records).values
    wrong = values["wrong"]
    text = (
        f"The loop is wrong on {wrong['all']} of {_times(values['codes'])} codes: "
        f"{wrong['lowest']} times at mantissa −128, {wrong['zero']} times at exponent 0, "
        f"{wrong['nan']} times at the scale that means NaN"
    )
    return stats.counted(0.0, wrong["all"] / values["codes"], values["codes"]).improves(text)


def nothing_else_is_wrong(records: Records) -> Claim:
    values = _only(records).values
    text = f"Outside these, {values['wrong']['elsewhere']} codes come out wrong"
    return stats.none_of(values["wrong"]["elsewhere"], values["codes"], text)


def codec_is_right(records: Records) -> Claim:
    values = _only(records).values
    text = (
        f"The codec of this repository is wrong on {values['codec_wrong']} of "
        f"{_times(values['codes'])} codes"
    )
    return stats.none_of(values["codec_wrong"], values["codes"], text)


# ---- figures and tables -------------------------------------------------------------------------


def one_rows(records: Records) -> Sequence[Row]:
    return [
        {
            "mantissa": step["mantissa"],
            "bits read as BF16": step["out"],
            "after the loop": step["result"],
            "definition": step["truth"],
        }
        for step in _only(records).values["steps"]
    ]


def draw_one(ax: Any, rows: Sequence[Row]) -> None:
    xs = [row["mantissa"] for row in rows]
    read = [row["bits read as BF16"] for row in rows]
    loop = [row["after the loop"] for row in rows]
    for x, low, high in list(zip(xs, loop, read))[2::4]:
        if low != high:
            ax.plot([x, x], [low, high], color=plots.color("second"), linewidth=0.7, alpha=0.6)
    ax.plot(xs, [row["definition"] for row in rows], **plots.line("fp32", label="definition"))
    ax.plot(
        xs, read, **plots.line("second", linestyle="", markersize=2.4, label="bits read as BF16")
    )
    ax.plot(
        xs,
        loop,
        **plots.line("first", linestyle="", markersize=2.4, label="minus bias where needed"),
    )
    for edge in (-64, 64):
        ax.axvline(edge, color=plots.color("chance"), linewidth=0.8, linestyle=":")
    ax.annotate("±2^E", (20, 0.85), color=plots.color("second"))
    lowest = rows[0]
    ax.annotate(
        "−128",
        (-128, float(lowest["after the loop"] or 0)),
        xytext=(-118, 0.45),
        arrowprops={"arrowstyle": "-", "color": plots.color("chance"), "linewidth": 0.8},
    )
    ax.set_xticks([-128, -64, 0, 64, 127])
    ax.set_xlabel("mantissa")
    ax.set_ylabel("value / 2^E")
    plots.legend(ax)


def one_alt(rows: Sequence[Row]) -> str:
    inside = [row for row in rows if row["bits read as BF16"] != row["definition"]]
    first, last = inside[1]["mantissa"], inside[-1]["mantissa"]
    return (
        f"The bits read as BF16 are off the definition for mantissas {first} to {last}, by one in "
        f"magnitude; after the loop only {rows[0]['mantissa']} is off."
    )


def wrong_rows(records: Records) -> Sequence[Row]:
    found = _only(records).values["wrong_mantissas"]
    return [
        {"scale": int(scale), "mantissa": mantissa}
        for scale, mantissas in found.items()
        for mantissa in mantissas
    ]


def draw_wrong(ax: Any, rows: Sequence[Row]) -> None:
    places = {scale: i for i, scale in enumerate(SCALES)}
    for place in places.values():
        ax.plot([-128, 127], [place, place], color=plots.color("chance"), linewidth=0.5)
    ax.plot(
        [row["mantissa"] for row in rows],
        [places[int(row["scale"] or 0)] for row in rows],
        **plots.line("second", linestyle="", markersize=9, markeredgewidth=1.6, marker="|"),
    )
    ax.set_yticks(list(places.values()), [str(scale) for scale in places])
    ax.set_xticks([-128, -64, 0, 64, 127])
    ax.grid(visible=False)
    ax.set_xlabel("mantissa")
    ax.set_ylabel("scale")


def wrong_alt(rows: Sequence[Row]) -> str:
    counts = {scale: sum(row["scale"] == scale for row in rows) for scale in SCALES}
    return "Wrong mantissas by scale. " + "; ".join(f"{s}: {n}" for s, n in counts.items()) + "."


def _bits(value: int, width: int) -> str:
    return f"{value & ((1 << width) - 1):0{width}b}"


def examples_table(records: Records) -> Sequence[Row]:
    steps = {step["mantissa"]: step for step in _only(records).values["steps"]}
    rows: list[Row] = []
    for mantissa in EXAMPLES:
        magnitude, step = abs(mantissa), steps[mantissa]
        fraction = _bits((magnitude & BELOW_BIT_SIX) << 1, 7)
        clear = not magnitude & BIT_SIX
        rows.append(
            {
                "mantissa": str(mantissa).replace("-", "−"),
                "magnitude": f"`{_bits(magnitude, 8)}`",
                "bit 6": 0 if clear else 1,
                "BF16 bits": f"`{int(mantissa < 0)} {_bits(BIAS, 8)} {fraction}`",
                "read": f"{step['out']:g}",
                "subtracted": f"{step['bias']:g}" if clear else "nothing",
                "result": f"{step['result']:g}",
                "definition": f"{step['truth']:g}",
            }
        )
    return rows


def wrong_table(records: Records) -> Sequence[Row]:
    values = _only(records).values
    wrong = values["wrong"]
    why = {
        (-128, 127): ("mantissa −128", wrong["lowest"], "its one is bit 7, which nothing looks at"),
        (-128, 254): ("mantissa −128", wrong["lowest"], "the same; BF16 has no −2^128 but −∞"),
        (100, 0): ("exponent 0", wrong["zero"], "BF16 is subnormal there: no implicit one, and"
                   " a doubled step"),
        (1, 0): ("exponent 0", wrong["zero"], "the fraction was moved up by one bit for a step"
                 " that is not halved"),
        (64, 255): ("scale 255", wrong["nan"], "an empty fraction is ∞, not NaN"),
    }  # fmt: skip
    return [
        {
            "where": why[example["mantissa"], example["scale"]][0],
            "wrong codes": why[example["mantissa"], example["scale"]][1],
            "for example (mantissa, scale)": f"{example['mantissa']}, {example['scale']}",
            "loop": example["loop"],
            "definition": example["truth"],
            "because": why[example["mantissa"], example["scale"]][2],
        }
        for example in values["examples_of_wrong"]
    ]


experiment = Experiment(
    title="The implicit one in the dequantize loop",
    params=params,
    run=run,
    claims={
        "one_is_there": one_is_there,
        "one_is_too_much": one_is_too_much,
        "loop_is_wrong_somewhere": loop_is_wrong_somewhere,
        "nothing_else_is_wrong": nothing_else_is_wrong,
        "codec_is_right": codec_is_right,
    },
    figures={
        "one": Figure(
            caption="All mantissas under one scale. Between the dotted lines bit six of the "
            "magnitude is clear: there the assembled bits jump away from zero by two to the E, the "
            "one that BF16 implies, and the subtraction brings them back. Outside, they are right "
            "as they are, except at the far left, where the lowest mantissa becomes zero.",
            rows=one_rows,
            draw=draw_one,
            alt=one_alt,
        ),
        "wrong_codes": Figure(
            caption="Where the loop and the definition differ: the lowest mantissa under every "
            "scale that is a number, nearly every mantissa under scale zero, and two infinities "
            "where NaN is meant. Scales not shown look like their neighbours.",
            rows=wrong_rows,
            draw=draw_wrong,
            alt=wrong_alt,
        ),
    },
    tables={"examples": examples_table, "wrong": wrong_table},
)
