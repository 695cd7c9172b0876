"""Question 4.3b: what `dont_need_abs` and `bias` do in the coursework's dequantize loop.

The loop runs beside the definition on all 65,536 pairs of mantissa and scale.
"""

import struct
from collections.abc import Iterable, Sequence

from experiments.lab4_decode import design
from madl.logbook.charts import Chart, line, linear, points, span
from madl.logbook.drawing import Panel, field, says
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import value
from madl.logbook.records import Params, Records, Row
from madl.logbook.values import number, superscript

page = Experiment(version=3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    yield {"codes": design.CODES**2}  # all of them, whatever the profile


page.quick(lambda params: True)


page.numbers(
    codes=value("codes"),
    failing=value("wrong", "all"),
    with_one=value("with_one"),
    without_one=value("without_one"),
)


# ---- the toy ------------------------------------------------------------------------------------


BIT_SEVEN = "the magnitude’s one is bit seven, which the loop drops"
SUBNORMAL = "a subnormal BF16 has no implied one, and its exponent is −126, not −127"
EMPTY = "±64: an empty fraction under exponent 255 is an infinity, not NaN"
CAUSES = {  # in the records: where, and why
    "lowest": ("mantissa −128", BIT_SEVEN),
    "zero": ("scale 0", SUBNORMAL),
    "nan": ("scale 255", EMPTY),
}


def _cause(example: Row) -> str:
    """The key in `CAUSES` of why the loop is wrong on an example; "" where it is right."""
    if example["result"] == example["truth"]:
        return ""
    if example["mantissa"] == -128:
        return "lowest"
    return "zero" if example["scale"] == 0 else "nan"


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel, of the first row's code; the page's script shows any other."""
    row = rows[0]
    magnitude = abs(row["mantissa"])
    heads = ("", "±", "exponent", "one", "fraction", "value")
    spans = {"fraction": ' colspan="7"'}
    top = "".join(f"<th{spans.get(head, '')}>{head}</th>" for head in heads)
    rule = field("rule", "out - bias", "code")
    body = (
        _word(
            "mantissa",
            f"mantissa {field('mantissa', number(row['mantissa']))}",
            (int(row["mantissa"] < 0), magnitude >> 7, magnitude >> 6 & 1),
            f"{magnitude & 0x3F:06b}",
            _typeset(row["truth"]),
        ),
        _word("out", "<code>out</code>", *_bits(row["out"]), _typeset(row["out"])),
        _word("bias", "<code>bias</code>", *_bits(row["bias"]), _typeset(row["bias"])),
        _word("result", rule, *_bits(row["result"]), _typeset(row["result"])),
    )
    table = f'<table class="words"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody>'
    return [Panel(title="", svg=f"{table}</table>\n{says(_sentence(row))}", folded=False)]


def _bits(value: str) -> tuple[tuple[int, int, int], str]:
    """((sign, exponent, implied one), fraction's bits) of a BF16."""
    (bits,) = struct.unpack(">H", struct.pack(">f", float(value))[:2])
    exponent = bits >> 7 & 0xFF
    return (bits >> 15, exponent, int(exponent > 0)), f"{bits & 0x7F:07b}"


def _word(name: str, head: str, first: tuple[int, int, int], fraction: str, value: object) -> str:
    """An HTML row: sign, exponent, one, fraction and value, in cells that the script can find."""
    looks = ("bit", "bit" if name == "mantissa" else "bit exponent", "bit lead")
    cells = "".join(
        f"<td>{field(f'{name}-{place}', bit, look=f'{look} on' if bit == 1 else look)}</td>"
        for place, look, bit in (
            *zip("sel", looks, first, strict=True),
            *((str(i), "bit", int(bit)) for i, bit in enumerate(fraction)),
        )
    )
    cells += "<td></td>" * (7 - len(fraction))
    return (
        f'<tr class="{name}"><th scope="row">{head}</th>{cells}'
        f"<td>{field(f'{name}-value', value)}</td></tr>"
    )


def _sentence(row: Row) -> str:
    """A sentence on a positive code without bit six; the page's script has the same words."""
    out, bias, result = (_typeset(row[name]) for name in ("out", "bias", "result"))
    return (
        f"Bit six is 0, yet BF16 reads a one there: out is {out}. "
        f"Without that one, {out} − {bias} = {result}, what the code means."
    )


def _alt(rows: Sequence[Row]) -> str:
    row = rows[0]
    return f"The loop on mantissa {number(row['mantissa'])}, scale {row['scale']}. {_sentence(row)}"


@page.drawing(panels=_panels, alt=_alt, script="decode")
def loop(r: Records) -> Sequence[Row]:
    """The examples: each step of the loop on a code, and where and why it is wrong."""
    return [
        {**example, "where": where, "because": why}
        for example in r.single().values["examples"]
        for where, why in [CAUSES.get(_cause(example), ("", ""))]
    ]


@page.chart
def one(r: Records) -> Chart:
    """The value of each mantissa under scale one: by definition, in BF16's bits, by the loop."""
    rows = [
        {
            "mantissa": step["mantissa"],
            "definition": step["truth"],
            "bits read as BF16": step["out"],
            "after the loop": step["result"],
        }
        for step in r.single().values["steps"]
    ]
    return Chart(
        rows,
        x=linear("mantissa"),
        y=linear(label="value, in units of 2ᴱ"),
        marks=[
            span(0.5 - design.BIT_SIX, design.BIT_SIX - 0.5, "bit six is 0"),
            line("definition", markers=False, like="FP32"),
            points("bits read as BF16"),
            points("after the loop"),
        ],
    )


def _typeset(value: str) -> str:
    """A number with a true minus and a raised exponent: "-2^128" is "−2¹²⁸"."""
    base, _, exponent = value.partition("^")
    return base.replace("-", "−") + superscript(exponent)


@page.table
def wrong(r: Records) -> Sequence[Row]:
    """Causes of wrong codes, each with their number and an example."""
    values = r.single().values
    first = {_cause(example): example for example in reversed(values["examples"])}
    return [
        {
            "where": where,
            "wrong codes": values["wrong"][cause],
            "such as": f"{operand} {first[cause][operand]}",
            "loop": _typeset(first[cause]["result"]),
            "definition": _typeset(first[cause]["truth"]),
            "because": why,
        }
        for cause, (where, why) in CAUSES.items()
        for operand in ["scale" if cause == "lowest" else "mantissa"]
    ]
