"""A fixed-point format over real weights: what it rounds to zero, rounds and clips, as a picture.

Rows are of two kinds: bars of the stored histogram of one layer's magnitudes, and points of the
sweeps with the accuracies measured there. What is computed of a histogram takes the weights of a
bar as spread evenly over it.

Units: `width` and `weights` (fraction width) in bits; signal to error in decibels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from madl.logbook.arms import Arm, every_arm
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.records import Params, Records, Row
from madl.logbook.stats import number, per_cent
from madl.training.widths import APART, chosen, pair_of

WIDTH, HEIGHT, TOP, BOTTOM = 420.0, 190.0, 22.0, 22.0
LAYER = "the first block's first feed-forward matrix"  # `pruned_layer.LAYER`
MOST_TICKS = 200  # more are closer than a reader can tell
BAR, POINT = "bar", "point"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a format does to the weights of a histogram: shares 0…1, and signal to error."""

    zeroed: float
    clipped: float
    db: float


def width_rows(r: Records) -> list[Row]:
    """The histogram where there is one, then every point of PTQ, the one to begin with first."""
    rows: list[Row] = []
    with_one = (x for x in r.of("lab1_pruning") if "histogram" in x.values)
    if found := next(with_one, None):
        histogram = found.values["histogram"]
        step, of = histogram["top"] / len(histogram["all"]), _model(found.case.params)
        rows += [
            {"what": BAR, "of": of, "from": i * step, "to": (i + 1) * step, "count": int(count)}
            for i, count in enumerate(histogram["all"])
        ]
    first = (APART, pair_of(chosen(r, "ptq", APART))[0])
    judged = r.of("lab1_quantization")
    tested = {_place(one): one for one in every_arm(judged, "PTQ", method="ptq", operands="both")}
    swept = {_place(one): one for one in every_arm(r, swept="ptq", operands="both")}
    return rows + [
        {
            **{"what": POINT, "width": place[0], "weights": place[1], "inputs": place[2]},
            **{"validation": swept[place].validation, "test": tested.get(place)},
            "models": len(swept[place].records),
        }
        for place in sorted(swept, key=lambda place: (place[:2] != first, place))
    ]


def _model(params: Params) -> str:
    """Whose weights are pruned: of the fine-tuned model, or of that trained on in a format."""
    name = f"the model of seed {params['seed']}"
    if params.get("tune_examples") is None:
        return f"{name}, fine-tuned in FP32"
    return f"{name}, trained on at {params['width']} bits, before it is rounded"


def _place(one: Arm) -> tuple[int, ...]:
    return (one.param("width"), *pair_of(one))


# ---- what a format does to a histogram ----------------------------------------------------------


def lost(bars: Sequence[Row], width: int, frac: int) -> Lost:
    """Of weights of either sign, as the positive half of the format has them."""
    step = math.ldexp(1.0, -frac)
    codes = 2 ** (width - 1) - 1
    largest = codes * step

    def squared(x: float) -> float:
        """The squared error of everything up to x, at a density of one."""
        code = min(math.floor(x / step + 0.5), codes)
        return code * step**3 / 12 + (x - code * step) ** 3 / 3

    total = zeroed = clipped = error = signal = 0.0
    for bar in bars:
        low, high, count = bar["from"], bar["to"], bar["count"]
        density = count / (high - low)
        total += count
        zeroed += density * max(min(high, step / 2) - low, 0.0)
        clipped += density * max(high - max(low, largest), 0.0)
        error += density * (squared(high) - squared(low))
        signal += density * (high**3 - low**3) / 3
    return Lost(zeroed=zeroed / total, clipped=clipped / total, db=10 * math.log10(signal / error))


# ---- the picture --------------------------------------------------------------------------------


def width_alt(rows: Sequence[Row]) -> str:
    return f"{_title(_bars(rows))}. {_said(rows, _points(rows)[0])}"


def width_panels(rows: Sequence[Row]) -> list[Panel]:
    """The narrowest width at its best position; the script shows any other format."""
    first = _points(rows)[0]
    width, frac = first["width"], first["weights"]
    made = lost(bars, width, frac) if (bars := _bars(rows)) else None
    table = field_table(
        ("of this format", ""),
        (
            ("step between values", field("step", _power(frac))),
            ("largest value", field("largest", _largest(width, frac))),
            *(_of_weights(made) if made else (("weights", NOT_COUNTED),)),
        ),
    )
    of = f", mean of {first['models']} models" if first["models"] > 1 else ""
    judged = (f"PTQ on {split}{of}" for split in ("validation", "test"))
    head = "".join(f"<th>{one}</th>" for one in ("behind the point of inputs", *judged))
    measured = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>"
        for row in _points(rows)
        if (row["width"], row["weights"]) == (width, frac)
    )
    return [
        Panel(
            title=_title(bars),
            svg=f"{_picture(bars, width, frac)}\n{table}\n"
            f'<table class="fields"><thead><tr>{head}</tr></thead>'
            f'<tbody data-f="measured">{measured}</tbody></table>\n{says(_said(rows, first))}',
            folded=False,
        )
    ]


NOT_COUNTED = "not counted here: no record of the pruning study"


def _title(bars: Sequence[Row]) -> str:
    if not bars:
        return "The values of a fixed-point format"
    return f"A fixed-point format over the weights of {LAYER}; bars: {bars[0]['of']}"


def _of_weights(made: Lost) -> tuple[tuple[str, str], ...]:
    return (
        ("weights that become zero", field("zeroed", per_cent(made.zeroed))),
        ("weights that are clipped", field("clipped", per_cent(made.clipped))),
        ("signal to error", field("db", f"{number(made.db)} dB")),
    )


def _bars(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["what"] == BAR]


def _points(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["what"] == POINT]


def _power(frac: int) -> str:
    return f"1/{2**frac}" if frac > 0 else str(2**-frac)


def _largest(width: int, frac: int) -> str:
    return number(float(math.ldexp(2 ** (width - 1) - 1, -frac)))


def _cells(row: Row) -> tuple[str, str, str]:
    test = "not measured" if row["test"] is None else f"{row['test']:i}"
    return str(row["inputs"]), per_cent(row["validation"]), test


def _said(rows: Sequence[Row], at: Row) -> str:
    """The script has the same words."""
    width, frac = at["width"], at["weights"]
    count = sum((row["width"], row["weights"]) == (width, frac) for row in _points(rows))
    text = f"{width} bits, {frac} behind the point: values {_power(frac)} apart"
    text += f" up to {_largest(width, frac)}."
    if bars := _bars(rows):
        made = lost(bars, width, frac)
        text += f" {per_cent(made.zeroed)} of this layer's weights become zero, "
        text += f"{per_cent(made.clipped)} are clipped."
    inputs = f"with {count} fraction width{'s' if count > 1 else ''} of the inputs"
    return f"{text} The accuracy is measured {inputs}."


def _picture(bars: Sequence[Row], width: int, frac: int) -> str:
    """The histogram, what becomes zero and what is clipped, and the values of the format."""
    top = bars[-1]["to"] if bars else 0.25
    floor, room = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    most = max((bar["count"] for bar in bars), default=1)

    def x(value: float) -> float:
        return WIDTH * min(value / top, 1.0)

    outline = "".join(
        f"V{floor - room * bar['count'] / most:.1f}H{x(bar['to']):.1f}" for bar in bars
    )
    step = math.ldexp(1.0, -frac)
    largest = step * (2 ** (width - 1) - 1)
    count = int(min(largest, top) / step)
    ticks = (
        "".join(f"M{x(k * step):.1f} {TOP:g}V{floor + 6:g}" for k in range(1, count + 1))
        if count <= MOST_TICKS
        else ""
    )
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" data-top="{top!r}" '
        f'aria-hidden="true"><path class="bars" d="M0 {floor:g}{outline}V{floor:g}z"/>'
        f'<rect class="zone low" x="0" y="{TOP:g}" width="{x(step / 2):.1f}" height="{room:g}"/>'
        f'<rect class="zone" x="{x(largest):.1f}" y="{TOP:g}" '
        f'width="{WIDTH - x(largest):.1f}" height="{room:g}"/>'
        f'<path class="grid" d="{ticks}"/>'
        f'<text class="note" x="2" y="{TOP - 6:g}">to zero</text>'
        f'<text class="note" x="{WIDTH:g}" y="{TOP - 6:g}" text-anchor="end">clipped</text>'
        f'<text class="note" x="0" y="{HEIGHT - 3:g}">0</text>'
        f'<text class="note" x="{WIDTH / 2:g}" y="{HEIGHT - 3:g}" text-anchor="middle">'
        f"magnitude of a weight</text>"
        f'<text class="note" x="{WIDTH:g}" y="{HEIGHT - 3:g}" text-anchor="end">'
        f"{number(top)}</text>"
        "</svg>"
    )
