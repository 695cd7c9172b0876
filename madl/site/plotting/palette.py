"""How each series looks: a colour and a marker by the name of what it shows.

A name of the field has one colour on every page; any other takes the next colour that its chart
does not use yet. Colours are names of CSS variables, which `charts.css` gives a value for light,
dark and print. Colour never stands alone: markers differ, too, and names stand beside lines.

Source: Okabe & Ito 2008, "Color universal design"; darkened where a thin line on white needs it.
"""

from dataclasses import dataclass
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
    **{"fp32": "ink", "bf16": "purple"},
    **{"ptq": "blue", "qat": "orange"},
    **{"l1-norm": "blue", "random": "purple", "grid": "gold", "tpe": "blue"},
    **{"training": "blue", "validation": "orange", "test": "green"},
    **{"naive": "purple", "tuned": "blue", "sdpa flash": "green", "sdpa math": "orange"},
}
DASHED, DOTTED, DASHDOT = (5.0, 2.5), (1.2, 2.0), (7.0, 2.0, 1.2, 2.0)
REFERENCES = (("ink", DASHED), ("muted", DOTTED), ("muted", DASHDOT), ("ink", DOTTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A hollow marker and dashes tell what borrows a colour from its owner."""

    color: str
    marker: str = "o"
    dash: tuple[float, ...] = ()  # in line widths
    hollow: bool = False

    @property
    def glyph(self) -> str:
        """The marker, in a text."""
        return GLYPHS[self.marker][self.hollow]


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every series of a chart, by its name; levels are dashed and grey."""
    owners = chart.owners()
    found: dict[str, Look] = {}
    for name, mark in owners.items():
        known = mark.like if mark.like and mark.like not in owners else name
        color = KNOWN.get(known.casefold(), "")
        taken = [look.color for look in found.values()]
        is_free = color and color not in taken and not _owner(mark, owners)
        if is_free and mark.kind not in ("level", "span"):
            found[name] = Look(color=color, marker=MARKERS.get(color, "o"))
    taken = {look.color for look in found.values()}
    free = [Look(color=c, marker=m) for c, m in MARKERS.items() if c not in taken]
    others = (Look(color=c, marker=m, dash=DASHED, hollow=True) for c, m in MARKERS.items())
    unused, references = cycle([*free, *others]), cycle(REFERENCES)
    for name, mark in owners.items():
        if mark.kind in ("level", "span"):
            color, dash = next(references)
            found[name] = Look(color=color, dash=dash)
        elif name not in found and not _owner(mark, owners):
            found[name] = next(unused)
    for name, mark in owners.items():
        if name not in found:
            owner = found[_owner(mark, owners)]
            found[name] = Look(color=owner.color, marker=owner.marker, dash=DASHED, hollow=True)
    return {name: found[name] for name in owners}


def _owner(mark: Mark, owners: dict[str, Mark]) -> str:
    """The drawn series that a mark borrows its colour from."""
    owner = owners.get(mark.like or "")
    return mark.like or "" if owner is not None and owner is not mark and not owner.like else ""


# ---- colours ------------------------------------------------------------------------------------

_NEUTRAL = ("ink", "muted", "grid", "paper")
_NAMES = (*_NEUTRAL, "heat", *MARKERS)
HEX = {name: f"#0000{i + 1:02x}" for i, name in enumerate(_NAMES)}  # stands in while drawing
TEXT = {name: f"#0001{i + 1:02x}" for i, name in enumerate(_NAMES)}  # the same, read as text


def variable(color: str) -> str:
    """The CSS variable of a colour's name."""
    return f"var(--chart-{color})" if color in _NEUTRAL else f"var(--c-{color})"


def colored(svg: str) -> str:
    """The drawing with CSS variables in place of the colours that stood in for them."""
    for name in _NAMES:
        own, ink = variable(name), variable("ink")
        text = own if name in _NEUTRAL else f"color-mix(in srgb,{own} 75%,{ink})"
        svg = svg.replace(HEX[name], own).replace(TEXT[name], text)
    return svg
