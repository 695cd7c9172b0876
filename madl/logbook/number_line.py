"""Number lines as SVG text: a row a set of values, a tick a value, on a scale of powers of two.

Shaded bands say where data lie. Colours are classes that the site's style sheet fills, as in
`drawing`; without it the lines are black on nothing.

Units: SVG user units, pixels at full size.
"""

import html
import math
from collections.abc import Mapping, Sequence

WIDTH, ROW, LEFT, EDGE = 520, 28, 170, 16
LOOKS = ("module", "added")  # of the bands, in their order


def number_lines(
    rows: Mapping[str, Sequence[float]],
    bands: Mapping[str, tuple[float, float]],
    *,
    low: int,
    high: int,
    label: str,
) -> str:
    """Positive values of every row between 2^low and 2^high; what lies beyond is not drawn.

    `bands` are ranges of magnitudes, by name.
    """
    first_row = ROW * len(bands)
    height = first_row + EDGE * 2 + ROW * (len(rows) + 1)
    bottom = height - ROW

    def x(value: float) -> float:
        share = (math.log2(value) - low) / (high - low)
        return LEFT + (WIDTH - LEFT - EDGE) * min(max(share, 0.0), 1.0)

    parts: list[str] = []
    for i, (look, (name, (first, last))) in enumerate(zip(LOOKS, bands.items())):
        left, right, top = x(first), x(last), ROW * (i + 1)
        parts.append(
            f'<g class="{look}"><rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" '
            f'height="{bottom - top}"/><text class="note" '
            f'x="{(left + right) / 2:.1f}" y="{top - 8}" text-anchor="middle">'
            f"{html.escape(name)}</text></g>"
        )
    for i, (name, values) in enumerate(rows.items()):
        top = first_row + ROW * i + 5
        seen = [value for value in values if 2.0**low <= value <= 2.0**high]
        ticks = "".join(f"M{x(value):.1f} {top}v{ROW - 10}" for value in seen)
        parts.append(
            f'<text class="note" x="0" y="{top + 12}">{html.escape(name)}</text>'
            f'<path class="wire" d="M{LEFT} {top + 8}H{WIDTH - EDGE}{ticks}"/>'
        )
    for power in range(low, high + 1, 4):
        said = f"{2.0**power:g}" if power >= 0 else f"1/{2**-power}"
        parts.append(
            f'<text class="detail" x="{x(2.0**power):.1f}" y="{bottom + 14}" '
            f'text-anchor="middle">{said}</text>'
        )
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{html.escape(label, quote=True)}">{"".join(parts)}</svg>'
    )
