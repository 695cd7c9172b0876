"""Question 4.3b: what `dont_need_abs` and `bias` do in the coursework's dequantize loop.

The loop is run beside the definition on all 65,536 pairs of mantissa and scale, step by step, so
what its variables are for is seen in what they change. The codec is the one that every kernel of
this repository shares, and it too is held against the definition in float64.

Source: OCP Microscaling Formats (MX) v1.0, sections 5.3.4 and 5.4.1; the loop is that of
`dequantize1d_host` in DeepWok/mase-cuda, src/csrc/mxint/dequantize.cuh, written anew.
"""

from collections.abc import Iterable, Sequence

from experiments.lab4_decode.decode_panel import decode_alt, decode_panels
from madl.logbook.charts import Chart, category, intervals, line, linear, points, span
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, superscript

CODES = 256
BIT_SIX, BELOW_BIT_SIX = 0x40, 0x3F
BIAS = 127
EXAMPLES = (64, 80, 127, 32, 1, 0, -80, -1, -127, -128)  # mantissas worked out in full


page = Experiment(title="The implicit one in the dequantize loop", version=2)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    yield {"codes": CODES * CODES}  # all of them, whatever the profile


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_decode import decode_loop

    return decode_loop.study()


# ---- facts --------------------------------------------------------------------------------------


def _counted(r: Records) -> Values:
    return r.one(codes=CODES * CODES).values


@page.fact(headline=True)
def what_they_are_for(r: Records) -> Fact:
    values = _counted(r)
    return Fact(
        text="`dont_need_abs` is bit 6 of the mantissa's magnitude, the leading one that BF16 adds "
        "by itself: where it is set, the assembled bits are the value; where it is clear, `bias` "
        "is the one too many, ±2ᴱ with E = scale − 127, and is subtracted. Still, the loop gives a "
        f"wrong value for {values['wrong']['all']} of {values['codes']:,} codes",
        of="all pairs of mantissa and scale",
    )


@page.fact(headline=True)
def both_cases_are_right(r: Records) -> Fact:
    values = _counted(r)
    return Fact(
        text=f"Under scales that are neither 0 nor NaN, {values['with_one_off']} of the "
        f"{values['with_one']:,} codes with bit 6 set are off, and {values['without_one_off']} of "
        f"the {values['without_one']:,} with it clear, mantissa −128 left out",
        of="the same loop",
    )


@page.fact(headline=True)
def wrong_codes(r: Records) -> Fact:
    values = _counted(r)
    wrong = values["wrong"]
    return Fact(
        text=f"The loop gives a wrong value for {wrong['all']} codes: {wrong['lowest']} with "
        f"mantissa −128, {wrong['zero']} more with scale 0, {wrong['nan']} with the scale that "
        f"means NaN, and {wrong['elsewhere']} anywhere else",
        of=f"{values['codes']:,} pairs of mantissa and scale",
    )


@page.fact
def codec_is_right(r: Records) -> Fact:
    values = _counted(r)
    beyond = [
        f"{_typeset(one['truth'])} (mantissa {one['mantissa']}, scale {one['scale']})"
        for one in values["beyond"]
    ]
    return Fact(
        text=f"The codec of this repository is wrong on {values['codec_wrong']} codes. Of all that "
        f"mean a number it is exact but on {len(beyond)}, {', '.join(beyond)}, which is below "
        "BF16's lowest value and becomes −∞, counted as right".replace("-", "−"),
        of=f"{values['codes']:,} pairs of mantissa and scale",
    )


# ---- charts and tables --------------------------------------------------------------------------


def _typeset(value: str) -> str:
    base, power, exponent = value.partition("^")
    base = base.replace("-", "−").replace("nan", "NaN")
    return base + superscript(exponent) if power else base


SUBNORMAL = "a subnormal BF16 has no implied one, and its fraction counts double"
WHY = {
    (-128, 127): ("lowest", "its one is bit 7, which nothing looks at"),
    (-128, 254): ("lowest", "the same; and it is below BF16's lowest value, so −∞ would be right"),
    (100, 0): ("zero", SUBNORMAL),
    (1, 0): ("zero", SUBNORMAL),
    (64, 255): ("nan", "an empty fraction is ∞, not NaN"),
}
CAUSES = {"lowest": "mantissa −128", "zero": "scale 0", "nan": "scale 255"}


SHOWN_FIRST = (32, 80)  # mantissas: bit six clear, and set


@page.drawing(
    caption="The loop on any of its codes: set bits, or move the sliders. The codes to begin with "
    "are one with bit six clear, one with it set, and the ones that the loop gets wrong.",
    panels=decode_panels,
    alt=decode_alt,
    script="decode",
)
def loop(r: Records) -> Sequence[Row]:
    values = _counted(r)
    steps = {step["mantissa"]: step for step in values["steps"]}
    return [
        *(
            {"mantissa": m, "scale": BIAS, "where": "right", "because": ""}
            | {"loop": number(steps[m]["result"]), "definition": number(steps[m]["truth"])}
            for m in SHOWN_FIRST
        ),
        *(
            {"mantissa": one["mantissa"], "scale": one["scale"], "where": CAUSES[cause]}
            | {"because": why, "loop": _typeset(one["loop"]), "definition": _typeset(one["truth"])}
            for one in values["examples_of_wrong"]
            for cause, why in [WHY[one["mantissa"], one["scale"]]]
        ),
    ]


@page.chart(
    caption="Every mantissa under one scale. In the shaded part, and at the lowest mantissa, "
    "bit six of the magnitude is clear. A dot off the dashed line is a value that differs from the "
    "definition.",
)
def one(r: Records) -> Chart:
    rows = [
        {
            "mantissa": step["mantissa"],
            "definition": step["truth"],
            "bits read as BF16": step["out"],
            "after the loop": step["result"],
        }
        for step in _counted(r)["steps"]
    ]
    return Chart(
        rows,
        x=linear("mantissa"),
        y=linear(label="value, in units of 2ᴱ"),
        marks=[
            span(0.5 - BIT_SIX, BIT_SIX - 0.5, "no leading one"),
            line("definition", markers=False, like="FP32"),
            points("bits read as BF16"),
            points("after the loop"),
        ],
    )


@page.chart(
    caption="Each dot is a code that the loop and the definition give different values for. Scales "
    "that are not shown look like their neighbours.",
)
def map_of_wrong(r: Records) -> Chart:
    found = _counted(r)["wrong_mantissas"]
    rows = [
        {"scale": scale, "mantissa": mantissa}
        for scale in sorted(map(int, found))
        for mantissa in found[str(scale)]
    ]
    return Chart(
        rows,
        x=linear(label="mantissa"),
        y=category("scale"),
        marks=[intervals("mantissa", "wrong code")],
    )


def _bits(value: int, width: int) -> str:
    return f"{value & ((1 << width) - 1):0{width}b}"


@page.table
def examples(r: Records) -> Sequence[Row]:
    """Each step on a few mantissas; spaces within bits do not break."""
    steps = {step["mantissa"]: step for step in _counted(r)["steps"]}
    rows: list[Row] = []
    for mantissa in EXAMPLES:
        magnitude, step = abs(mantissa), steps[mantissa]
        fraction = _bits((magnitude & BELOW_BIT_SIX) << 1, 7)
        needs_bias = not magnitude & BIT_SIX
        rows.append(
            {
                "mantissa": mantissa,
                "magnitude": f"`{_bits(magnitude, 8)}`",
                "bit 6": int(not needs_bias),
                "BF16 bits": f"`{int(mantissa < 0)}\u00a0{_bits(BIAS, 8)}\u00a0{fraction}`",
                "`out`": step["out"],
                "`bias`": number(step["bias"]) if needs_bias else "not needed",
                "result": step["result"],
                "definition": step["truth"],
            }
        )
    return rows


@page.table
def wrong(r: Records) -> Sequence[Row]:
    values = _counted(r)
    rows: list[Row] = []
    for example in values["examples_of_wrong"]:
        cause, why = WHY[example["mantissa"], example["scale"]]
        rows.append(
            {
                "where": CAUSES[cause],
                "wrong codes": values["wrong"][cause],
                "mantissa": example["mantissa"],
                "scale": example["scale"],
                "loop": _typeset(example["loop"]),
                "definition": _typeset(example["truth"]),
                "because": why,
            }
        )
    return rows
