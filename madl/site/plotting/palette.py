"""How each series looks: a colour, a marker and a line style by the name of what it shows.

One thing has one look on every page, so known names stand in a table; an unknown name takes the
next look that its chart does not use yet. Colours are names of CSS variables, which `charts.css`
gives a value for light, dark and print. Colour never stands alone: markers and dashes differ too.

Source: Okabe & Ito 2008, "Color universal design"; darkened where a thin line on white needs it.
Units: markers are SVG paths around 0, in points; dashes as Matplotlib takes them, in line widths.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from madl.logbook.charts import Chart, Mark

# ---- looks --------------------------------------------------------------------------------------

SOLID, DASHED, DOTTED, DASHDOT, LONG = (), (4, 2), (1, 1.6), (6, 2, 1.2, 2), (8, 2)
DASHES = (DASHED, DOTTED, DASHDOT, LONG)  # of what borrows a colour: the first that no line has

MARKERS = {
    "o": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "s": "M-2.7-2.7h5.4v5.4h-5.4z",
    "D": "M0-3.7L3.7 0L0 3.7L-3.7 0z",
    "^": "M0-3.6L3.6 2.7H-3.6z",
    "v": "M0 3.6L3.6-2.7H-3.6z",
    "P": "M-1.2-3.5h2.4v2.3h2.3v2.4h-2.3v2.3h-2.4v-2.3h-2.3v-2.4h2.3z",
    "X": "M-3.4-2L-2-3.4L0-1.4L2-3.4L3.4-2L1.4 0L3.4 2L2 3.4L0 1.4L-2 3.4L-3.4 2L-1.4 0z",
    "h": "M-3.6 0L-1.8-3.1H1.8L3.6 0L1.8 3.1H-1.8z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one series is drawn. A hollow marker tells what borrows a colour from its owner."""

    color: str
    marker: str = ""
    dash: tuple[float, ...] = SOLID
    hollow: bool = False


def _style(color: str, marker: str = "", dash: tuple[float, ...] = SOLID) -> Style:
    return Style(color=color, marker=marker, dash=dash)


FREE = (
    _style("blue", "o"),
    _style("orange", "s", LONG),
    _style("green", "D", DASHDOT),
    _style("purple", "^", DASHED),
    _style("gold", "v"),
    _style("sky", "P", DASHED),
    _style("brown", "X", LONG),
    _style("slate", "h", DASHDOT),
)
REFERENCES = (
    _style("muted", dash=DASHED),
    _style("muted", dash=DOTTED),
    _style("ink", dash=DASHDOT),
    _style("ink", dash=DOTTED),
)

FP32 = _style("ink", "", DASHED)
CONTROL = _style("green", "D", DASHDOT)
CHANCE = _style("muted", "", DOTTED)
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH = FREE

KNOWN = {
    # references
    "fp32": FP32,
    "nothing removed": FP32,
    "fp32 + same training": CONTROL,
    "fp32 tuned alike": CONTROL,
    "nothing removed, same training": CONTROL,
    "larger class": CHANCE,
    "reported by others": _style("purple", "", DASHED),
    # quantization
    "ptq": _style("blue", "o"),
    "qat": _style("orange", "s"),
    "weights": FIRST,
    "inputs": SECOND,
    "both": THIRD,
    # pruning
    "random": FOURTH,
    "l1-norm": FIRST,
    # searches
    "grid": _style("gold", "v", LONG),
    "tpe": _style("sky", "P"),
    # schedules of compression, and the objectives that score them
    "compressed": FIRST,
    "compressed and trained on": SECOND,
    "plain": THIRD,
    "plain, before compression": CHANCE,
    # execution
    "eager mode": FIRST,
    "naive": FOURTH,
    "tuned": FIRST,
    "sdpa flash": THIRD,
    "sdpa math": SECOND,
    "the machine's ceilings": FP32,
    "limit": CHANCE,
    # fine-tuning
    "full fine-tuning": SECOND,
    "frozen embedding": THIRD,
    # formats
    "bf16": FOURTH,
    "mxint8": FIRST,
    "prepacked fp32": SECOND,
    "prepacked bf16": THIRD,
    "torch's int8": FIFTH,
    "torch's int8 by onednn": SIXTH,
    "one format": _style("ink", "o"),
    # families of formats
    "binary, ternary": FIRST,
    "fixed, scaled": SECOND,
    "fixed point, scaled integer": SECOND,
    "floating": THIRD,
    "minifloat": THIRD,
    "with a block's scale": FOURTH,
    "with a scale for each block": FOURTH,
    "logarithmic": FIFTH,
    # splits of the data
    "training": FIRST,
    "validation": SECOND,
    "test": THIRD,
}

# ---- giving them out ----------------------------------------------------------------------------


def styles(chart: Chart) -> dict[str, Style]:
    """The look of every series of a chart, by its name, no two alike."""
    owners = _owners(chart)
    likes = {n: m.like for n, m in owners.items() if m.like and m.by is None and m.like != n}
    found = {
        name: KNOWN[name.casefold()] for name in owners if _is_known(name) and name not in likes
    }
    found = _without_twins(found, owners)
    taken = {look.color for look in found.values()}
    taken |= {KNOWN[like.casefold()].color for like in likes.values() if _is_known(like)}
    unused, references = _unused(taken), _unused_references()
    for name, mark in owners.items():
        if name not in found and name not in likes:
            free = references if mark.kind in ("level", "span") else unused
            found[name] = _apart(next(free), found)
    for name, like in likes.items():
        look = found.get(like) or KNOWN.get(like.casefold()) or next(unused)
        if like in found:  # both are drawn: same colour, and still two things
            drawn = {look.dash, *(found[n].dash for n in found if owners[n].kind == "line")}
            dash = next((d for d in DASHES if d not in drawn), DASHED)
            look = replace(look, hollow=True, dash=dash)
        found[name] = _apart(look, found)
    return {name: found[name] for name in owners}


def _is_known(name: str) -> bool:
    return name.casefold() in KNOWN


def _without_twins(found: dict[str, Style], owners: dict[str, Mark]) -> dict[str, Style]:
    """Of known names of one colour the first keeps it: within a chart, what differs must differ."""
    kept: dict[str, Style] = {}
    for name, look in found.items():
        if owners[name].kind == "level":
            kept[name] = _apart(look, kept)
        elif look.color not in {
            other.color for n, other in kept.items() if owners[n].kind != "level"
        }:
            kept[name] = look
    return kept


def _owners(chart: Chart) -> dict[str, Mark]:
    """The mark behind each name of the legend, in its order."""
    found: dict[str, Mark] = {}
    for mark in chart.marks:
        names = [mark.label] if mark.by is None else _values(chart, mark.by)
        for name in names:
            found.setdefault(name, mark)
    return {name: found[name] for name in chart.series()}


def _values(chart: Chart, column: str) -> list[str]:
    return [str(row[column]) for row in chart.rows if row.get(column) is not None]


def _unused(colors: set[str]) -> Iterator[Style]:
    """The free looks of other colours than these, then all, with other markers and dashes."""
    yield from (look for look in FREE if look.color not in colors)
    for shift in range(1, len(FREE)):
        for i, look in enumerate(FREE):
            other = FREE[(i + shift) % len(FREE)]
            yield replace(look, marker=other.marker, dash=other.dash, hollow=bool(shift % 2))
    raise AssertionError("more series than looks")


def _unused_references() -> Iterator[Style]:
    while True:
        yield from REFERENCES


def _apart(look: Style, found: dict[str, Style]) -> Style:
    """The look, its marker and dash changed while another series of the chart has the same."""
    for marker, dash in [(look.marker, look.dash), *((other.marker, other.dash) for other in FREE)]:
        changed = replace(look, marker=marker if look.marker else "", dash=dash)
        if changed not in found.values():
            return changed
    return look


# ---- colours ------------------------------------------------------------------------------------

_NEUTRAL = ("ink", "muted", "grid", "paper")
_NAMES = (*_NEUTRAL, "heat", *(look.color for look in FREE))
HEX = {name: f"#0000{i + 1:02x}" for i, name in enumerate(_NAMES)}  # stands in while drawing
VARIABLES = {
    HEX[name]: f"var(--chart-{name})" if name in _NEUTRAL else f"var(--c-{name})" for name in _NAMES
}


def variable(color: str) -> str:
    """The CSS variable of a colour's name."""
    return VARIABLES[HEX[color]]


def filled(style: Style) -> str:
    """The CSS of a marker or a bar."""
    color = variable(style.color)
    if style.hollow:
        return f"fill:{variable('paper')};stroke:{color};stroke-width:1.4"
    return f"fill:{color}"
