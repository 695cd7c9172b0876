"""How each series looks: a colour and a marker by the name of what it shows.

A name of the field has one colour on every page; any other takes the next colour that its chart
does not use yet. Colours are names of CSS variables, which `charts.css` gives a value for light,
dark and print. Colour never stands alone: markers differ, too, and names stand beside lines.

Source: Okabe & Ito 2008, "Color universal design"; darkened where a thin line on white needs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle

from madl.logbook.charts import Chart, Mark

MARKERS = {
    "blue": "o",
    "orange": "s",
    "green": "D",
    "purple": "^",
    "gold": "v",
    "indigo": "P",
    "brown": "X",
    "slate": "h",
}
GLYPHS = dict(zip("osD^vPXh", zip("●■◆▲▼✚✕⬢", "○□◇△▽✛✕⬡")))  # filled, hollow
KNOWN = {
    **{"fp32": "ink", "bf16": "purple", "other parts": "muted"},
    **{"ptq": "blue", "qat": "orange"},
    **{"l1-norm": "blue", "random": "purple", "grid": "gold", "tpe": "blue"},
    **{"training": "blue", "validation": "orange", "test": "green"},
    **{"naive": "purple", "tuned": "blue", "sdpa flash": "green", "sdpa math": "orange"},
}
DASHED, DOTTED, DASHDOT = (5.0, 2.5), (1.2, 2.0), (7.0, 2.0, 1.2, 2.0)
REFERENCES = (("ink", DASHED), ("muted", DOTTED), ("muted", DASHDOT), ("ink", DOTTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A series' colour, marker and dashes; hollow where its colour is another's."""

    color: str
    marker: str = "o"
    dash: tuple[float, ...] = ()  # in line widths
    hollow: bool = False

    @property
    def glyph(self) -> str:
        """The marker as a character."""
        return GLYPHS[self.marker][self.hollow]


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every series of a chart, by its name; levels are dashed and grey."""
    elsewhere = looks(chart.beside) if chart.beside else {}
    owners, references = chart.owners(), cycle(REFERENCES)
    lenders = {name: _lender(mark, owners) for name, mark in owners.items()}
    drawn = {n: m for n, m in owners.items() if m.kind not in ("level", "span")}
    by_name = {name: elsewhere[name] for name in drawn if name in elsewhere}
    taken = {look.color for look in by_name.values()}
    for name, mark in drawn.items():
        known = mark.like if mark.like and mark.like not in owners else name
        color = KNOWN.get(known.casefold(), "")
        if color and color not in taken and name not in by_name and not lenders[name]:
            by_name[name] = Look(color=color, marker=MARKERS.get(color, "o"))
            taken.add(color)
    free = [Look(color=c, marker=m) for c, m in MARKERS.items() if c not in taken]
    others = (Look(color=c, marker=m, dash=DASHED, hollow=True) for c, m in MARKERS.items())
    unused = cycle([look for look in (*free, *others) if look not in by_name.values()])
    for name in owners:
        if name not in drawn:
            color, dash = next(references)
            by_name[name] = Look(color=color, dash=dash)
        elif name not in by_name and not lenders[name]:
            by_name[name] = next(unused)
    by_name |= {
        n: replace(by_name[of], dash=DASHED, hollow=True) for n, of in lenders.items() if of
    }
    by_name |= {n: replace(by_name[n], marker="s") for n, m in owners.items() if m.kind == "bars"}
    return {name: by_name[name] for name in owners}


def _lender(mark: Mark, owners: Mapping[str, Mark]) -> str:
    """The drawn series whose colour a mark takes; "" if its colour is its own."""
    owner = owners.get(mark.like or "")
    return mark.like or "" if owner is not None and owner is not mark and not owner.like else ""


# ---- colours ------------------------------------------------------------------------------------

_NEUTRAL = ("ink", "muted", "grid", "paper")
_NAMES = (*_NEUTRAL, "heat", *MARKERS)
HEX = {name: f"#0000{i + 1:02x}" for i, name in enumerate(_NAMES)}  # stands in while drawing
TEXT = {name: f"#0001{i + 1:02x}" for i, name in enumerate(_NAMES)}  # likewise, of texts


def variable(color: str) -> str:
    """The CSS variable of a colour: "var(--c-blue)" of "blue"."""
    return f"var(--chart-{color})" if color in _NEUTRAL else f"var(--c-{color})"


def colored(svg: str) -> str:
    """The drawing with CSS variables in place of the colours that stood in for them."""
    for name in _NAMES:
        own, ink = variable(name), variable("ink")
        text = own if name in _NEUTRAL else f"color-mix(in srgb,{own} 75%,{ink})"
        svg = svg.replace(HEX[name], own).replace(TEXT[name], text)
    return svg
