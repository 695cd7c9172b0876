"""An estimate with its interval, drawn in HTML: at any width its words keep their size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from madl.logbook.claims import Contrast
from madl.logbook.values import Unit, number
from madl.site.markup import html

ROOM = 0.06  # of the width, beside what is farthest out
TICKS = 4  # about as many


@dataclass(frozen=True)
class Axis:
    """A stretch of values, as they are stored (see `Unit`), as shares of the picture's width."""

    low: float
    high: float
    unit: Unit

    @classmethod
    def over(cls, values: Sequence[float], unit: Unit) -> "Axis":
        """The axis that has room for all these values."""
        low, high = min(values), max(values)
        room = (high - low) * ROOM or abs(high) * ROOM or 1 / unit.shown(1.0)
        return cls(low - room, high + room, unit)

    def at(self, value: float) -> str:
        """Where a value stands, as CSS has it: "12.5%"."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{100 * share:.1f}%"

    def ticks(self) -> list[tuple[float, str]]:
        """Round values as a reader sees them, and their texts; the last one has the unit.

        None stands where its text would leave the picture.
        """
        room = (self.high - self.low) * ROOM
        low, high = self.unit.shown(self.low + room / 2), self.unit.shown(self.high - 2 * room)
        rough = (high - low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
        shown = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if self.unit is Unit.TIMES:
            places = {math.log(value): value for value in shown if value > 0}
        else:
            places = {value / self.unit.shown(1.0): value for value in shown}
        texts = {place: number(round(value, 9)) for place, value in places.items()}
        last = max(texts, default=0.0)
        named = {last: f"{texts[last]}\N{NO-BREAK SPACE}{self.unit}"} if texts else {}
        return [*(texts | named).items()]


def drawn(
    value: float,
    interval: Sequence[float],
    each: Iterable[float],
    unit: Unit,
    *,
    words: str,
    contrast: Contrast | None = None,
) -> Markup:
    """HTML of a value on an axis with its interval, and a dot for each unit; `words` say it.

    With a contrast, lines show no difference and the margins, a tint where its hypothesis holds.
    """
    each = list(each)
    lines = boundaries(contrast) if contrast else {}
    axis = Axis.over([value, *interval, *each, *lines], unit)
    parts = [_zone(contrast, axis)] if contrast else []
    parts.append(_lines(lines, axis))
    parts += [_mark("unit", axis, place) for place in each]
    if interval:
        low, high = (axis.at(end) for end in interval)
        parts.append(html('<i class="bar" style="--at:{};--to:{}"></i>', low, high))
    parts.append(_mark("mean", axis, value))
    ticks = ((axis.at(place), text) for place, text in axis.ticks())
    parts += [html('<span class="tick" style="--at:{}">{}</span>', *tick) for tick in ticks]
    form = '<div class="interval" role="img" aria-label="{}">{}</div>'
    return html(form, words, Markup().join(parts))


def pair(theirs: float, ours: float, text: str) -> Markup:
    """HTML of a number that others report and of ours, `text`, on an axis that has nought."""
    least, most = 1.15 * min(theirs, ours, 0.0), 1.15 * max(theirs, ours, 0.0)
    length = most - least or 1.0
    low, high = sorted((theirs, ours))
    unit = "".join(text.partition("\u00a0")[1:])
    form = (
        '<div class="interval pair" role="img" aria-label="{}">'
        '<i class="gap" style="--at:{};--to:{}"></i>'
        '<i class="theirs" style="--at:{}"><b>{}</b></i>'
        '<i class="mean" style="--at:{}"><b>{}</b></i></div>'
    )
    at = {v: f"{100 * (v - least) / length:.1f}%" for v in (theirs, ours)}
    told = f"{number(theirs)}{unit}"
    words = f"reported {told}, measured {text}"
    return html(form, words, at[low], at[high], at[theirs], told, at[ours], text)


def boundaries(contrast: Contrast) -> dict[float, str]:
    """Effects by name: what data are tested against, and none."""
    margin = contrast.boundary
    return {0.0: "no difference"} | ({margin: "margin"} if margin else {})


def _zone(contrast: Contrast, axis: Axis) -> Markup:
    """The part of the axis where the hypothesis holds."""
    low, high = axis.at(contrast.boundary), axis.at(axis.high)
    return html('<i class="zone" style="--at:{};--to:{}"></i>', low, high)


def _lines(names: Mapping[float, str], axis: Axis) -> Markup:
    """Lines with their names, each on the side that has more room."""
    form = '<i class="line {}{}" style="--at:{}"><b>{}</b></i>'
    middle = (axis.low + axis.high) / 2
    return Markup().join(
        html(form, "margin" if at else "zero", " left" * (at > middle), axis.at(at), name)
        for at, name in names.items()
    )


def _mark(look: str, axis: Axis, value: float) -> Markup:
    return html('<i class="{}" style="--at:{}"></i>', look, axis.at(value))
