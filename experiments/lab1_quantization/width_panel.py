"""A fixed-point format as a window over the magnitudes of weights and inputs, as a picture.

Left of a window values become zero, right of it they are clipped. A row is an octave (a factor of
two in magnitude) with its share of weights and of inputs, or a format that was judged.

Units: octaves are exponents of two, `width` and bits after the point (`weights`, `inputs`) bits.
"""

from collections.abc import Sequence

from madl.logbook.arms import Arm
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.records import Record, Row
from madl.logbook.stats import per_cent

WIDTH, ROOM, GAP, TOP = 480.0, 84.0, 34.0, 18.0
PARTS = ("weights", "inputs")
LOSSES = {
    "weights to zero": "weight_zeroed",
    "weights clipped": "weight_saturated",
    "inputs to zero": "input_zeroed",
    "inputs clipped": "input_saturated",
}
FIRST, LAST = -18, 6  # octaves that are drawn; below and above, all there is


def width_rows(model: Record, formats: Sequence[tuple[Arm, str]]) -> list[Row]:
    """The octaves of one model, then every format with what was measured of it."""
    held = model.values["octaves"]
    rows: list[Row] = [
        {"what": "octave", "octave": octave, **{part: held[part][i] for part in PARTS}}
        for i, octave in enumerate(range(FIRST, LAST + 1))
    ]
    for a, points in formats:
        every = [record.values["shares"] for record in a.records]
        rows.append(
            {
                **{"what": "format", "points": points, "width": a.param("width")},
                **{"weights": a.param("frac_width"), "inputs": a.param("input_frac_width")},
                **{name: sum(s[key] for s in every) / len(every) for name, key in LOSSES.items()},
                "accuracy": a,
            }
        )
    return rows


def width_alt(rows: Sequence[Row]) -> str:
    return f"Weights and inputs by magnitude. {_said(_formats(rows)[0])}"


def width_panels(rows: Sequence[Row]) -> list[Panel]:
    """The first format; the script shows any other."""
    first = _formats(rows)[0]
    table = field_table(
        ("measured", ""),
        (
            *((name, field(name, per_cent(first[name]))) for name in LOSSES),
            ("test accuracy", field("accuracy", first["accuracy"])),
        ),
    )
    svg = f"{_picture(rows, first)}\n{table}\n{says(_said(first))}"
    return [Panel(title="Magnitudes, an octave a bar", svg=svg, folded=False)]


def _formats(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["what"] == "format"]


def _said(at: Row) -> str:
    """The script has the same words."""
    width, weights, inputs = at["width"], at["weights"], at["inputs"]
    if weights == inputs:
        return f"{width} bits, {weights} after the point: one window for both."
    return f"{width} bits: {weights} after the point of weights, {inputs} after that of inputs."


def _x(octave: float) -> float:
    return WIDTH * min(max((octave - FIRST) / (LAST + 1 - FIRST), 0.0), 1.0)


def _picture(rows: Sequence[Row], at: Row) -> str:
    bars = [row for row in rows if row["what"] == "octave"]
    drawn = ""
    for i, part in enumerate(PARTS):
        top = TOP + i * (ROOM + GAP)
        floor = top + ROOM
        most = max(bar[part] for bar in bars)
        outline = "".join(
            f"V{floor - (ROOM - 14) * bar[part] / most:.1f}H{_x(bar['octave'] + 1):.1f}"
            for bar in bars
        )
        low, high = _x(-at[part] - 1), _x(at["width"] - 1 - at[part])
        note = f'class="note" y="{top + 12:g}"'
        drawn += (
            f'<path class="bars" d="M0 {floor:g}{outline}V{floor:g}z"/>'
            f'<rect class="zone low" x="0" y="{top:g}" width="{low:.1f}" height="{ROOM:g}"/>'
            f'<rect class="zone" x="{high:.1f}" y="{top:g}" width="{WIDTH - high:.1f}" '
            f'height="{ROOM:g}"/><text {note} x="4">{part}: to zero</text>'
            f'<text {note} x="{WIDTH - 4:g}" text-anchor="end">clipped</text>'
        )
    below = TOP + 2 * ROOM + GAP + 16
    ticks = "".join(
        f'<text class="note" x="{_x(e):.1f}" y="{below:g}" text-anchor="middle">{_power(e)}</text>'
        for e in range(FIRST + 2, LAST, 4)
    )
    height = below + 6
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH:g} {height:g}" data-first="{FIRST}" '
        f'data-last="{LAST}" aria-hidden="true">{drawn}{ticks}</svg>'
    )


def _power(octave: int) -> str:
    return str(2**octave) if octave >= 0 else f"1/{2**-octave:,}"
