"""Four-bit formats taken apart: element, block, scale, operands, methods and outliers.

Nothing is trained: the fine-tuned models are rounded in one way after the other, and asked how many
of FP32's answers they change. The tuning seed chooses how many inputs a rotation turns.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from experiments.four_bits import design
from experiments.four_bits.design import BLOCK, FARTHEST, NAMED, NOTHING, OPERANDS, PLAIN, ROTATION
from madl.logbook import stats
from madl.logbook.arms import Arm, answers_changed, arm, beside, changed
from madl.logbook.charts import Chart, category, drawn_share, intervals, percent
from madl.logbook.claims import Contrast, contrast
from madl.logbook.drawing import Panel, field, says
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, Sourced, exact, sourced
from madl.logbook.records import Params, Pending, Records, Row
from madl.logbook.values import Estimate, Unit, number
from madl.training import baseline

page = Experiment(title="Which part of a four-bit format matters?", needs=("baseline",))

STEM = "four_bits"
ALONE, WITH_BYTES, ALL = OPERANDS
Outliers = tuple[str, int]  # kind and factor


def rounding(element: str, block: int | str, scale: str, **more: str | int) -> Params:
    """The parameters of models rounded to a format: by default weights and inputs, no outliers."""
    format_: Params = {"element": element, "block": block, "scale": scale}
    where: Params = {"operands": ALL, **dict(zip(("outliers", "factor"), NOTHING, strict=True))}
    return {"method": PLAIN, **format_, **where, **more}


def tried(
    name: str, method: str = PLAIN, outliers: Outliers = NOTHING, operands: str = ALL
) -> Params:
    """The parameters of models in a format that has a name, by a method, under outliers."""
    kind, factor = outliers
    where: dict[str, Any] = {"outliers": kind, "factor": factor, "operands": operands}
    turned = {"turned": design.ROTATED[name]} if method in (ROTATION, design.BOTH) else {}
    return rounding(*NAMED[name], method=method, **where, **turned)


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    """How many inputs are turned together, with the larger constants."""
    base = baseline.drawn_params(plan, TUNING_SEED)
    sizes = plan.profile.choose(smoke=design.ROTATIONS_TRIED[:1], quick=design.ROTATIONS_TRIED)
    for name, size in product(NAMED, sizes):
        yield {**tried(name, ROTATION, FARTHEST), "turned": size, **base}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    formats = plan.profile.choose(smoke=design.FORMATS[:1], quick=design.FORMATS)
    names = plan.profile.choose(smoke=["MXFP4"], quick=[*NAMED])
    ways = [rounding(*parts, operands=it) for parts, it in product(formats, (ALL, ALONE))]
    ways += [rounding("e2m1", BLOCK, rule) for rule in design.RULES]
    ways += [tried(name, operands=WITH_BYTES) for name in names]
    ways += [
        tried(name, method, operands=ALONE) for name, method in product(names, design.ON_WEIGHTS)
    ]
    for outliers, methods in design.OUTLIERS.items():
        ways += [tried(name, method, outliers) for name, method in product(names, methods)]
    yield {"method": "block", **baseline.drawn_params(plan, plan.seeds[0])}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        yield {"method": "fp32", **base}
        for way in ways:
            yield {**way, **base}


@page.quick
def quick(params: Params) -> bool:
    plain = params["method"] == "fp32" or tried("MXFP4").items() <= params.items()
    return plain and params["seed"] == CONFIRMING_SEEDS[0]


def fp32(r: Records) -> Arm:
    return arm(r.of_experiment(STEM), "FP32", method="fp32")


def rounded(r: Records, element: str, block: int | str, scale: str, **more: str | int) -> Arm:
    """The models rounded to a format, as `rounding` has its parameters."""
    where = rounding(element, block, scale, **more)
    return arm(r, f"{element}, blocks of {block}, {TITLES.get(scale, scale)}", **where)


def named(
    r: Records,
    name: str,
    method: str = PLAIN,
    outliers: Outliers = NOTHING,
    operands: str = ALL,
) -> Arm:
    """The models in a format that has a name, as `tried` has their parameters."""
    label = ", ".join((name, method, _outliers_title(outliers), operands))
    return arm(r, label, **tried(name, method, outliers, operands))


def _outliers_title(outliers: Outliers) -> str:
    """Outliers in words: "none", "scaled, 32 ×", "constant, 32 σ"."""
    kind, factor = outliers
    unit = "σ" if kind == design.CONSTANT else "×"
    return kind if outliers == NOTHING else f"{kind}, {factor} {unit}"


def share_changed(r: Records, a: Arm) -> Estimate:
    """The mean share of test answers, 0…1, that are not FP32's, with its interval."""
    return answers_changed(a, beside(fp32(r), a))


def changed_by(r: Records, name: str, **where: Any) -> Sourced:
    """The share of FP32's answers that a named format changes."""
    a = named(r, name, **where)
    return sourced(share_changed(r, a), a, beside(fp32(r), a))


def changed_in(r: Records, element: str, block: int | str, scale: str) -> Sourced:
    """The share of FP32's answers that a format of these parts changes."""
    a = rounded(r, element, block, scale)
    return sourced(share_changed(r, a), a, beside(fp32(r), a))


def fewer_changed(r: Records, a: Arm, b: Arm) -> Contrast:
    """How many answers fewer A changes than B: positive where A is better."""
    full = fp32(r)
    compared = stats.compare(changed(b, full), changed(a, full))
    return contrast(compared, (*a.records, *b.records, *full.records))


def rotated_against(r: Records, name: str, outliers: Outliers) -> Contrast:
    """How many answers fewer models change in a named format if they are rotated first."""
    return fewer_changed(r, named(r, name, ROTATION, outliers), named(r, name, PLAIN, outliers))


@page.claim(primary=True)
def rounding_of_the_scale(r: Records) -> Contrast:
    """The rounding of the scale decides: MXFP4's answers diverge further from FP32's under scales
    rounded down than under scales rounded to even."""
    even, down = named(r, "MXFP4, even"), named(r, "MXFP4")
    if len(even.records) == 1:
        raise Pending("a second model")
    pairs = zip(even.values("divergence"), down.values("divergence"), strict=True)
    logs = [math.log(of_down / of_even) for of_even, of_down in pairs]
    compared = stats.mean(logs, unit=Unit.TIMES, unit_name=stats.MODELS)
    return contrast(compared, (*even.records, *down.records))


@page.claim
def even_changes_fewer(r: Records) -> Contrast:
    """In MXFP4, a scale rounded to even changes fewer of FP32's answers than one rounded down."""
    return fewer_changed(r, named(r, "MXFP4, even"), named(r, "MXFP4"))


@page.claim(primary=True)
def finer_scales(r: Records) -> Contrast:
    """FP4 under E4M3 scales in blocks of 32 changes fewer of FP32's answers than under powers of
    two, rounded to even, in blocks of 16."""
    return fewer_changed(r, rounded(r, "e2m1", 32, "e4m3"), rounded(r, "e2m1", 16, "even"))


@page.claim(primary=True)
def rotation_repairs(r: Records) -> Contrast:
    """A rotation repairs outliers: under large constants in inputs, MXFP4 turned by a Hadamard
    matrix changes at most a point more answers than without them."""
    rotated_, without = named(r, "MXFP4", ROTATION, FARTHEST), named(r, "MXFP4")
    return fewer_changed(r, rotated_, without).no_worse()


@page.claim
def rotation(r: Records) -> Contrast:
    """With the same constants, models in MXFP4 change fewer of FP32's answers rotated."""
    return rotated_against(r, "MXFP4", FARTHEST)


@page.claim
def rotation_in_nvfp4(r: Records) -> Contrast:
    """With the same constants, models in NVFP4 change fewer of FP32's answers rotated."""
    return rotated_against(r, "NVFP4", FARTHEST)


@page.claim
def rotation_under_scaled_outliers(r: Records) -> Contrast:
    """With four channels of each input scaled, and their columns of the weight scaled back, models
    in MXFP4 change fewer of FP32's answers rotated."""
    return rotated_against(r, "MXFP4", design.FARTHEST_SCALED)


@page.claim
def outliers_hurt(r: Records) -> Contrast:
    """Rounded to MXFP4, models change fewer of FP32's answers without those constants than with
    them."""
    return fewer_changed(r, named(r, "MXFP4"), named(r, "MXFP4", outliers=FARTHEST))


@page.claim
def finer_scales_over_floor(r: Records) -> Contrast:
    """FP4 with E4M3 scales in blocks of 32 changes fewer of FP32's answers than with powers of two,
    rounded down, in blocks of 16."""
    return fewer_changed(r, rounded(r, "e2m1", 32, "e4m3"), rounded(r, "e2m1", 16, "floor"))


@page.claim
def finer_scales_alone(r: Records) -> Contrast:
    """FP4 in blocks of 32 changes fewer of FP32's answers with E4M3 scales than with powers of two,
    rounded to even."""
    return fewer_changed(r, rounded(r, "e2m1", 32, "e4m3"), rounded(r, "e2m1", 32, "even"))


@page.claim
def shorter_blocks_alone(r: Records) -> Contrast:
    """FP4 with powers of two, rounded to even, changes fewer of FP32's answers in blocks of 16 than
    in blocks of 32."""
    return fewer_changed(r, rounded(r, "e2m1", 16, "even"), rounded(r, "e2m1", 32, "even"))


@page.claim
def shorter_blocks_diverge(r: Records) -> Contrast:
    """FP4's answers diverge further from FP32's under powers of two, rounded to even, in blocks of
    16 than under E4M3 scales in blocks of 32."""
    finer, shorter = rounded(r, "e2m1", 32, "e4m3"), rounded(r, "e2m1", 16, "even")
    if len(finer.records) == 1:
        raise Pending("a second model")
    pairs = zip(finer.values("divergence"), shorter.values("divergence"), strict=True)
    logs = [math.log(of_shorter / of_finer) for of_finer, of_shorter in pairs]
    compared = stats.mean(logs, unit=Unit.TIMES, unit_name=stats.MODELS)
    return contrast(compared, (*finer.records, *shorter.records))


@page.claim
def nvfp4_over_mxfp4(r: Records) -> Contrast:
    """NVFP4 changes fewer of FP32's answers than MXFP4."""
    return fewer_changed(r, named(r, "NVFP4"), named(r, "MXFP4"))


@page.claim
def gptq_of_rotated_weights(r: Records) -> Contrast:
    """With weights alone in MXFP4, GPTQ changes fewer of FP32's answers after a rotation than
    without it."""
    rotated, as_it_is = (
        named(r, "MXFP4", method, operands=ALONE) for method in (design.BOTH, design.GPTQ)
    )
    return fewer_changed(r, rotated, as_it_is)


def bits_of(element: str, block: int, scale: str) -> ExactValue:
    """Bits a value of a format, its part of the scale among them."""
    return exact(4 + design.SCALE_BITS[scale] / block, unit="bits")


def lost(a: Arm, name: str) -> ExactValue:
    """A loss by rounding, as `study.lost` has them, in per cent: the mean over the models."""
    return exact(round(100 * a.mean(name), 2), a.records, "%")


page.numbers(
    sentences=lambda r: exact(design.CALIBRATION_SENTENCES),
    probed=lambda r: exact(design.PROBE_SENTENCES),
    finer=lambda r: bits_of("e2m1", 32, "e4m3"),
    shorter=lambda r: bits_of("e2m1", 16, "even"),
    shorter_diverge=shorter_blocks_diverge,
    finer_alone=finer_scales_alone,
    shorter_alone=shorter_blocks_alone,
    channels=lambda r: exact(design.OUTLIER_CHANNELS),
    factor=lambda r: exact(FARTHEST[1], unit="standard deviations"),
    fp32_right=fp32,
    mxfp4_right=partial(named, name="MXFP4"),
    mxfp4=partial(changed_by, name="MXFP4"),
    nvfp4=partial(changed_by, name="NVFP4"),
    int4=partial(changed_by, name="INT4"),
    int4_row=partial(changed_in, element="int4", block="row", scale="fp16"),
    floor_16=partial(changed_in, element="e2m1", block=16, scale="floor"),
    mxfp4_outliers=partial(changed_by, name="MXFP4", outliers=FARTHEST),
    smooth=partial(changed_by, name="MXFP4", method=design.SMOOTH, outliers=FARTHEST),
    nvfp4_outliers=partial(changed_by, name="NVFP4", outliers=FARTHEST),
    nvfp4_rotated=partial(changed_by, name="NVFP4", method=ROTATION, outliers=FARTHEST),
    even_fewer=even_changes_fewer,
    rotated=rotation,
    scaled_rotated=rotation_under_scaled_outliers,
    error=lambda r: lost(named(r, "MXFP4"), "output_error"),
    error_even=lambda r: lost(named(r, "MXFP4, even"), "output_error"),
    error_outliers=lambda r: lost(named(r, "MXFP4", outliers=FARTHEST), "output_error"),
    error_rotated=lambda r: lost(named(r, "MXFP4", ROTATION, FARTHEST), "output_error"),
)


TITLES = {"floor": "power, down", "even": "power, even", "e4m3": "E4M3", "fp16": "FP16"}
PARTS = {  # of a format, by what it is called: value → its title
    "element": {"e2m1": "FP4", "int4": "INT4"},
    "block": {16: "16", 32: "32", "row": "row"},
    "scale": {**TITLES, "floor": "2ⁿ, floor", "even": "2ⁿ, even"},
}
KEPT = {"weight": "weights", "input": "inputs"}
OF = {"element": "elements", "block": "values per scale", "scale": "scale"}
WIDE, HIGH, LEFT, ABOVE = 84, 32, 140, 40  # of a cell; of what stands left of all, and above


@page.chart
def every(r: Records) -> Chart:
    """Answers changed by every format, with intervals: weights and inputs, and weights alone."""
    rows = list[Row]()
    for parts in design.FORMATS:
        arms = {it: rounded(r, *parts, operands=it) for it in (ALL, ALONE)}
        label = ", ".join(_titles(dict(zip(PARTS, parts, strict=True))))
        rows.append({"format": label} | {name: share_changed(r, a) for name, a in arms.items()})
    marks = [intervals(name) for name in (ALL, ALONE)]
    return Chart(rows, x=percent("answers changed"), y=category("format"), marks=marks)


def _titles(parts: Row) -> list[str]:
    """A format's parts in words: "FP4", "by 16", "E4M3"."""
    titles = {name: titles[parts[name]] for name, titles in PARTS.items() if name in parts}
    if "block" in titles:
        titles["block"] = f"by {titles['block']}"
    return [*titles.values()]


def _grid_panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel: weights and inputs, blocks across; the page's script turns it."""
    shown = [row for row in rows if row["operands"] == ALL]
    svg = f"{_grid_svg(shown, 'block')}\n{says(_grid_sentence(rows))}"
    return [Panel(title="", svg=svg, folded=False)]


def _grid_svg(rows: Sequence[Row], across: str) -> str:
    """A cell a format; one of its parts runs across, the others down."""
    placed: dict[tuple[str, str], Row] = {}
    for row in rows:
        down = {name: row[name] for name in PARTS if name != across}
        placed[PARTS[across][row[across]], ", ".join(_titles(down))] = row
    lines = dict.fromkeys(line for _, line in placed)
    return _heat_svg(placed, [*PARTS[across].values()], [*lines], OF[across])


def _heat_svg(
    cells: Mapping[tuple[str, str], Row], columns: Sequence[str], lines: Sequence[str], head: str
) -> str:
    """Cells by (column, line), the darker the more answers change; the page's script draws it so,
    too."""
    most = max(row["changed"] for row in cells.values())
    text = f'<text class="note" x="{LEFT}" y="12">{head}</text>'
    for i, column in enumerate(columns):
        x = LEFT + WIDE * i + WIDE / 2
        text += f'<text class="note" x="{x:g}" y="30" text-anchor="middle">{column}</text>'
    for j, line in enumerate(lines):
        text += f'<text class="note" x="0" y="{ABOVE + HIGH * j + 20}">{line}</text>'
    for (column, line), row in cells.items():
        x, y = LEFT + WIDE * columns.index(column), ABOVE + HIGH * lines.index(line)
        text += (
            f'<g class="cell"><title>{row["low"]:.1f} to {row["high"]:.1f} %</title>'
            f'<rect x="{x + 2}" y="{y + 2}" width="{WIDE - 4}" height="{HIGH - 4}" '
            f'style="fill-opacity: {0.08 + 0.8 * row["changed"] / most:.2f}"/>'
            f'<text x="{x + WIDE / 2:g}" y="{y + 20}" text-anchor="middle">'
            f"{row['changed']:.1f} %</text></g>"
        )
    size = f"{LEFT + WIDE * len(columns)} {ABOVE + HIGH * len(lines)}"
    return f'<svg class="graph" viewBox="0 0 {size}" aria-hidden="true">{text}</svg>'


def _grid_sentence(rows: Sequence[Row], operands: str = ALL) -> str:
    """Two formats that have names, with intervals; the page's script has the same words."""
    shown = [row for row in rows if row["operands"] == operands]
    told: list[str] = []
    for name in ("MXFP4", "NVFP4"):
        parts = NAMED[name]
        row = next(r for r in shown if tuple(r[part] for part in PARTS) == parts)
        told.append(f"{name} ({_named(row)}) changes {_share_text(row)}")
    return f"{'; '.join(told)}. Across: {OF['block']}."


def _share_text(row: Row) -> str:
    """A share with its interval: "3.2 % [2.9, 3.6]"."""
    return f"{row['changed']:.1f} % [{row['low']:.1f}, {row['high']:.1f}]"


def _named(row: Row) -> str:
    """A format in a sentence: "FP4, 16 values under E4M3"."""
    scale = "E4M3" if row["scale"] == "e4m3" else "a power of two"
    return f"{PARTS['element'][row['element']]}, {row['block']} values under {scale}"


@page.drawing(panels=_grid_panels, alt=_grid_sentence, script="grid")
def grid(r: Records) -> Sequence[Row]:
    """A row for each format and operands: the answers changed and their interval, in per cent."""
    return [
        {
            **dict(zip(PARTS, parts, strict=True)),
            **{"operands": operands, **_shares(r, rounded(r, *parts, operands=operands))},
        }
        for operands, parts in product((ALL, ALONE), design.FORMATS)
    ]


def _shares(r: Records, a: Arm) -> Row:
    """The share of answers changed and its interval, in per cent."""
    return drawn_share("changed", share_changed(r, a))


def _repair_panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel: the largest constants; the page's script has the other outliers."""
    shown = [row for row in rows if row["outliers"] == _outliers_title(FARTHEST)]
    cells = {(row["format"], row["method"]): row for row in shown}
    svg = _heat_svg(cells, [*NAMED], design.OUTLIERS[FARTHEST], ALL)
    return [Panel(title="", svg=f"{svg}\n{says(_repair_sentence(rows))}", folded=False)]


def _repair_sentence(rows: Sequence[Row], outliers: Outliers = FARTHEST) -> str:
    """MXFP4 as it comes and rotated, with intervals; the page's script has the same words."""
    where = ("MXFP4", _outliers_title(outliers))
    shown = [row for row in rows if (row["format"], row["outliers"]) == where]
    plain, turned = (
        next(row for row in shown if row["method"] == method) for method in (PLAIN, ROTATION)
    )
    return f"MXFP4 changes {_share_text(plain)} as it comes, {_share_text(turned)} rotated."


@page.drawing(panels=_repair_panels, alt=_repair_sentence, script="repairs")
def repairs(r: Records) -> Sequence[Row]:
    """A row for each outliers, method and format: the answers changed, in per cent."""
    return [
        {
            **{"format": name, "method": method, "outliers": _outliers_title(outliers)},
            **_shares(r, named(r, name, method, outliers)),
        }
        for outliers, methods in design.OUTLIERS.items()
        for method, name in product(methods, NAMED)
    ]


@page.table
def methods(r: Records) -> Sequence[Row]:
    """Answers changed by each method in each named format, without outliers and with them."""
    return [
        {
            **{"method": method, "outliers": _outliers_title(outliers)},
            **_by_format(r, method=method, outliers=outliers),
        }
        for outliers, methods in design.OUTLIERS.items()
        for method in methods
    ]


@page.table
def on_weights(r: Records) -> Sequence[Row]:
    """Answers changed by each method in each named format, with inputs in FP32."""
    return [
        {"method": method, **_by_format(r, method=method, operands=ALONE)}
        for method in design.ON_WEIGHTS
    ]


@page.table
def operands(r: Records) -> Sequence[Row]:
    """Answers changed by each named format, by what is in four bits."""
    return [{"in four bits": it, **_by_format(r, operands=it)} for it in OPERANDS]


def _by_format(r: Records, **where: Any) -> Row:
    """The share of answers changed in each named format, with its interval, as text."""
    return {name: f"{share_changed(r, named(r, name, **where)):i}" for name in NAMED}


@page.table
def losses(r: Records) -> Sequence[Row]:
    """Losses of each named format by rounding, before any answer: `study.lost`, in per cent."""

    def told(a: Arm, name: str) -> str:
        return f"{100 * a.mean(name):.2f} %"

    return [
        {
            "format": name,
            **{
                f"{part} {loss}": told(named(r, name), f"{key}_{loss}")
                for (key, part), loss in product(KEPT.items(), ("zeroed", "saturated"))
            },
            "output error": told(named(r, name), "output_error"),
            "with constants": told(named(r, name, outliers=FARTHEST), "output_error"),
            "rotated": told(named(r, name, ROTATION, FARTHEST), "output_error"),
        }
        for name in NAMED
    ]


@page.table
def rules(r: Records) -> Sequence[Row]:
    """Answers changed by MXFP4 with its scale rounded by each rule, and how far they diverge."""
    ways = {
        **{"floor": "down (OCP)", "ceil": "always up", "even": "to even (torchao)"},
        "rceil": "up if the largest value would not fit (NVIDIA)",
    }
    return [
        {
            "the scale's exponent is rounded": title,
            "answers changed": f"{share_changed(r, models):i}",
            "divergence": f"{number(models.mean('divergence'))} nats",
        }
        for rule, title in ways.items()
        for models in [rounded(r, "e2m1", BLOCK, rule)]
    ]


page.power(design.TRUTHS, unit=Unit.TIMES)


# ---- the toy: a value grows, and its neighbours die ---------------------------------------------

BAR, HEIGHT = 11.0, 64.0  # of the picture of a format: a value's width, all of its height
IN_BLOCK = ("MXFP4", "NVFP4", "INT4")  # rounded to even, this block's scales are MXFP4's
FIRST = 6  # of the factors, with which the picture opens: eight times the largest


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel: the block in every format, at the first factor; the page's script has all."""
    shown = _first(rows)
    parts = "".join(_picture(name, [r for r in shown if r["format"] == name]) for name in IN_BLOCK)
    return [Panel(title="", svg=f"{parts}\n{says(_sentence(shown))}", folded=False)]


def _picture(name: str, rows: Sequence[Row]) -> str:
    """A format's name, how many values it kills, and the block: outlines as it is, bars rounded."""
    middle, most = HEIGHT / 2, max(abs(row["value"]) for row in rows if not _grows(row))
    bars = ""
    for row in rows:
        x = BAR * row["place"]
        for look, value in (("was", row["value"]), ("bar", row["rounded"])):
            high = min(abs(value) / most, 1.0) * (middle - 2)
            y = middle - high if value > 0 else middle
            size = f'width="{BAR - 2:g}" height="{high:.1f}"'
            bars += f'<rect class="{look}" x="{x:g}" y="{y:.1f}" {size}/>'
        dead = " dead" if _is_dead(row) else ""
        bars += f'<circle class="at{dead}" cx="{x + BAR / 2 - 1:g}" cy="{middle:g}" r="3"/>'
    told = field(f"dead {name}", f"{sum(map(_is_dead, rows))} of {len(rows)} become zero")
    svg = f'<svg viewBox="0 0 {BAR * len(rows):g} {HEIGHT:g}" aria-hidden="true">{bars}</svg>'
    return f'<div class="block" data-format="{name}"><p><b>{name}</b> {told}</p>{svg}</div>'


def _is_dead(row: Row) -> bool:
    return row["rounded"] == 0 and row["value"] != 0


def _grows(row: Row) -> bool:
    return row["place"] == design.SHOWN_VALUE


def _sentence(rows: Sequence[Row]) -> str:
    """The format that turns fewest values into zero."""
    dead = {name: sum(_is_dead(r) for r in rows if r["format"] == name) for name in IN_BLOCK}
    best = min(dead, key=dead.__getitem__)
    return f"{best} turns fewest values into zero, {dead[best]}."


def _alt(rows: Sequence[Row]) -> str:
    return f"A block with one large value. {_sentence(_first(rows))}"


def _first(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["factor"] == design.GROWTH[FIRST]]


@page.drawing(panels=_panels, alt=_alt, script="block")
def block(r: Records) -> Sequence[Row]:
    """Rows: a value of the block, as it is and rounded, by format and factor."""
    case = r.single(method="block")
    values, largest = case.values["values"], max(map(abs, case.values["values"]))
    return [
        {
            **{"factor": factor, "format": name, "place": place, "rounded": rounded},
            "value": largest * factor if place == design.SHOWN_VALUE else values[place],
        }
        for name, by_factor in case.values["rounded"].items()
        if name in IN_BLOCK
        for factor, block in zip(design.GROWTH, by_factor, strict=True)
        for place, rounded in enumerate(block)
    ]
