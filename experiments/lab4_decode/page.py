"""Question 4.3b: what `dont_need_abs` and `bias` do in the coursework's dequantize loop.

The loop runs beside the definition on all 65,536 pairs of mantissa and scale.
"""

import struct
from collections.abc import Iterable, Sequence

from madl.logbook.charts import Chart, line, linear, points, span
from madl.logbook.drawing import Panel, field, says
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import value
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import superscript

CODES = 256 * 256
BIT_SIX = 0x40

page = Experiment(title="The implicit one in the dequantize loop", version=3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    yield {"codes": CODES}  # all of them, whatever the profile


@page.quick
def quick(params: Params) -> bool:
    return True


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_decode.study import study

    return study()


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
    if example["result"] == example["truth"]:
        return ""
    if example["mantissa"] == -128:
        return "lowest"
    return "zero" if example["scale"] == 0 else "nan"


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The first code of the rows, as the script shows any other."""
    row = rows[0]
    magnitude = abs(row["mantissa"])
    heads = ("", "±", "exponent", "bit 6", "fraction", "value")
    spans = {"fraction": ' colspan="7"'}
    top = "".join(f"<th{spans.get(head, '')}>{head}</th>" for head in heads)
    body = (
        _word(
            "mantissa",
            f"mantissa {field('mantissa', row['mantissa'])}",
            (int(row["mantissa"] < 0), magnitude >> 7, magnitude >> 6 & 1),
            f"{magnitude & 0x3F:06b}",
            row["truth"],
        ),
        _word("out", "<code>out</code>", *_bits(row["out"]), row["out"]),
        _word("bias", "<code>bias</code>", *_bits(row["bias"]), row["bias"]),
        _word("result", field("rule", "out - bias", "code"), *_bits(row["result"]), row["result"]),
    )
    table = f'<table class="words"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody>'
    return [Panel(title="", svg=f"{table}</table>\n{says(_said(row))}", folded=False)]


def _bits(value: str) -> tuple[tuple[int, int, int], str]:
    """Sign, exponent, implied one and fraction of a BF16."""
    (bits,) = struct.unpack(">H", struct.pack(">f", float(value))[:2])
    exponent = bits >> 7 & 0xFF
    return (bits >> 15, exponent, int(exponent > 0)), f"{bits & 0x7F:07b}"


def _word(name: str, head: str, first: tuple[int, int, int], fraction: str, value: object) -> str:
    """A row of cells: sign, exponent, one and fraction, each a place of the script's."""
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


def _said(row: Row) -> str:
    """What happens to a code without the leading one; the script says it of any."""
    return (
        f"Bit six is 0, yet BF16 reads a one there: out is {row['out']}. Without that one, "
        f"{row['out']} − {row['bias']} = {row['result']}, what the code means."
    )


def _alt(rows: Sequence[Row]) -> str:
    row = rows[0]
    return f"The loop on mantissa {row['mantissa']}, scale {row['scale']}. {_said(row)}"


@page.drawing(panels=_panels, alt=_alt, script="decode")
def loop(r: Records) -> Sequence[Row]:
    return [
        {**example, "where": where, "because": why}
        for example in r.one().values["examples"]
        for where, why in [CAUSES.get(_cause(example), ("", ""))]
    ]


# ---- chart and table ----------------------------------------------------------------------------


@page.chart
def one(r: Records) -> Chart:
    rows = [
        {
            "mantissa": step["mantissa"],
            "definition": step["truth"],
            "bits read as BF16": step["out"],
            "after the loop": step["result"],
        }
        for step in r.one().values["steps"]
    ]
    return Chart(
        rows,
        x=linear("mantissa"),
        y=linear(label="value, in units of 2ᴱ"),
        marks=[
            span(0.5 - BIT_SIX, BIT_SIX - 0.5, "bit six is 0"),
            line("definition", markers=False, like="FP32"),
            points("bits read as BF16"),
            points("after the loop"),
        ],
    )


def _typeset(value: str) -> str:
    base, _, exponent = value.partition("^")
    return base.replace("-", "−") + superscript(exponent)


@page.table
def wrong(r: Records) -> Sequence[Row]:
    values = r.one().values
    first = {_cause(example): example for example in reversed(values["examples"])}
    return [
        {
            "where": where,
            "wrong codes": values["wrong"][cause],
            "such as": f"{other} {first[cause][other]}",
            "loop": _typeset(first[cause]["result"]),
            "definition": _typeset(first[cause]["truth"]),
            "because": why,
        }
        for cause, (where, why) in CAUSES.items()
        for other in ["scale" if cause == "lowest" else "mantissa"]
    ]
