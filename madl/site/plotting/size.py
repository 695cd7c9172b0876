"""The widths in which charts are drawn, and how much room texts take there.

Source: DejaVu Sans' widths, which are above those of the fonts that pages use.
Units: pixels of a phone or a page at its usual width.
"""

import functools
import re
from dataclasses import dataclass

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path  # type: ignore[attr-defined]

FONT, SMALL = 12.0, 11.0
LINE = 14.0  # from one line of a text to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size in which charts are drawn."""

    name: str
    width: float
    height: float
    ticks: int  # intervals between the ticks of a linear axis, at most
    columns: int  # of small multiples
    margin: float = 70  # left and right of the plot, both together

    @property
    def is_thumbnail(self) -> bool:
        return self.name == "thumb"


WIDE = Size(name="wide", width=700, height=370, ticks=7, columns=4)
NARROW = Size(name="narrow", width=350, height=310, ticks=5, columns=2)
THUMBNAIL = Size(name="thumb", width=260, height=150, ticks=3, columns=1, margin=24)


@functools.cache
def width(text: str, size: float) -> float:
    """The width of a line of text in this font size."""
    font = FontProperties(family="DejaVu Sans", size=size)
    line = text.replace("\n", " ")  # which no font has
    return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])


def cut(text: str, size: float, room: float) -> str:
    """The text on one line, cut so that it fits the room; three dots say that it goes on."""
    if width(text, size) <= room:
        return text
    kept = next((n for n in range(len(text), 0, -1) if width(f"{text[:n]} …", size) <= room), 0)
    return f"{text[:kept].rstrip(' ,')} …"


def brief(title: str, size: float, room: float) -> str:
    """The title on one line, cut to fit the room: at a comma, colon or bracket if it can be."""
    ends = (mark.start() for mark in re.finditer(r"[:,] | \(|$", title))
    fits = [title[:end] for end in ends if width(title[:end], size) <= room]
    return fits[-1] if fits else cut(title, size, room)


def wrapped(text: str, size: float, room: float) -> list[str]:
    """The text in lines that fit the room, but for a wider word; no-break spaces do not break."""
    lines: list[str] = []
    for word in re.findall(r"[^ \t\n]+", text):
        if lines and width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]
