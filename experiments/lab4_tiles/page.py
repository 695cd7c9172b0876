"""Question 4.3c: how `cta_tiler` tiles the copy and how `layout_sX` maps threads onto it.

A small program (`kernels/tile_map.cpp`) asks CuTe itself, on the host, which thread touches which
element; coalescing and bank conflicts follow from that by counting. The same threads laid the other
way round are mapped beside it, and the vectorised kernel here.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from experiments.lab4_tiles import design, layout
from experiments.lab4_tiles.design import FEWER, LAB, MAPPINGS, TILE, TRANSPOSED, USUAL_GROUP
from experiments.lab4_tiles.layout import WARP
from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Panel, field, says
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import computed, value
from madl.logbook.records import Params, Record, Records, Row

LABELS = {
    LAB: "down a group (coursework)",
    TRANSPOSED: "across the groups",
    TILE: "down a group, eight bytes each",
}

page = Experiment(version=4)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for group in plan.profile.choose(smoke=(USUAL_GROUP,), quick=design.GROUPS):
        yield {"group": group, "elements": design.ELEMENTS}


@cache
def _missing() -> str | None:
    """Why CuTe cannot be asked here; None where it can."""
    from kernels import compilers
    from madl import assets

    if not any(compilers.cpp()):
        return compilers.NO_COMPILER
    try:
        assets.cute_include()
    except MadlError as error:
        return f"no CuTe headers ({error})"
    return None


@page.unavailable
def unavailable(params: Params) -> str | None:
    return _missing()


page.quick(lambda params: True)


def _sectors_across(records: Sequence[Record]) -> list[int]:
    """Sectors that a load touches with the threads laid across the groups, by group size."""
    return [record.values[TRANSPOSED]["fetched"] // layout.SECTOR_BYTES for record in records]


page.numbers(
    values=value(LAB, "threads", group=USUAL_GROUP),
    vector_bytes=value(TILE, "bytes", group=USUAL_GROUP),
    usual_group=value(LAB, "group", group=USUAL_GROUP),
    wanted=computed(lambda r: r.single(group=USUAL_GROUP), lambda _: WARP),
    touched=value(TRANSPOSED, "fetched", group=USUAL_GROUP),
    fewest_sectors=computed(Records.where, lambda records: min(_sectors_across(records))),
    most_sectors=computed(Records.where, lambda records: max(_sectors_across(records))),
    fewer_threads=value(FEWER, "threads", group=USUAL_GROUP),
    fewer_filled=value(FEWER, "filled", group=USUAL_GROUP),
    tallest=computed(Records.where, lambda _: design.TALLEST),
)


# ---- the toy ------------------------------------------------------------------------------------

WIDTH, HEIGHT, TOP = 340, 124, 22  # of either drawing, below a line of text
ACROSS = 8  # blocks across the groups that are drawn


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel: the coursework's mapping at the usual group size; the script shows any."""
    row, tile_m, tile_k = rows[0], rows[0]["tile m"], rows[0]["tile k"]
    down, across = layout.warp_extent(row)
    starts = [layout.place(row, first) for first in range(0, row["threads"], WARP)]
    y, x, wide = HEIGHT / tile_m, WIDTH / tile_k, WIDTH / ACROSS
    blocks = [
        _box(f"block={i}", "" if i else "added", i * wide, 0, wide, HEIGHT, label=f"0, {i}")
        for i in range(ACROSS)
    ]
    warps = [
        _box(f"thread={WARP * i}", "" if i else "added", p.k * x, p.m * y, across * x, down * y)
        for i, p in enumerate(starts)
    ]
    warps.append(_box("thread=0", "mark", 0, 0, x, row["bytes"] * y))
    size = f"{tile_m}\u00a0×\u00a0{tile_k}"
    titles = f"blocks, each of {tile_k} groups (not to scale)", f"block (0, 0): a tile of {size}"
    notes = "green: block (0, 0); more follow", "orange: T0; green: its warp, T0 to T31"
    left = _svg(titles[0], "blocks", blocks, notes[0])
    right = _svg(titles[1], "warps", warps, notes[1])
    drawn = f'<div class="beside">{left}{right}</div>'
    return [Panel(title="", svg=f"{drawn}\n{says(_sentence(rows))}", folded=False)]


def _svg(title: str, part: str, boxes: Sequence[str], note: str) -> str:
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH} {HEIGHT + 2 * TOP}" aria-hidden="true">'
        f'<text class="note" y="12">{field(f"{part}-title", title, "tspan")}</text>'
        f'<g transform="translate(0 {TOP})" data-part="{part}">{"".join(boxes)}</g>'
        f'<text class="note" y="{HEIGHT + TOP + 18}">{field(f"{part}-note", note, "tspan")}</text>'
        "</svg>"
    )


def _box(
    data: str, look: str, x: float, y: float, width: float, height: float, label: str = ""
) -> str:
    at = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle"'
    text = f'<text class="note" {at}>{label}</text>' if label else ""
    return (
        f'<g class="{look}" data-{data}><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/>{text}</g>'
    )


def _sentence(rows: Sequence[Row]) -> str:
    row = rows[0]
    return (
        "T0 of block (0, 0) copies value 0 of group 0: byte 0 of global memory to slot 0 of shared "
        f"memory. One load of its warp wants {WARP * row['bytes']} bytes; the sectors that it "
        f"touches hold {row['fetched']:,}. Shared memory serves it in {row['passes']} turn."
    )


@page.drawing(panels=_panels, alt=_sentence, script="tiles")
def tile(r: Records) -> Sequence[Row]:
    """A row for each order of threads and group size; the one drawn at first comes first."""
    rows: list[Row] = [
        {"threads run": LABELS[name], **r.single(group=group).values[name]}
        for name in MAPPINGS
        for group in sorted(r.param_values("group"))
    ]
    start = LABELS[LAB], USUAL_GROUP
    return sorted(rows, key=lambda row: (row["threads run"], row["group"]) != start)


@page.chart
def moved(r: Records) -> Chart:
    """Bytes that one load of a warp wants, and those of the sectors it touches, by mapping."""
    usual = r.single(group=USUAL_GROUP).values
    return Chart(
        [
            {
                "threads run": LABELS[name],
                "wanted": WARP * usual[name]["bytes"],
                "touched": usual[name]["fetched"],
            }
            for name in MAPPINGS
        ],
        x=linear(label="bytes of one load of a warp"),
        y=category("threads run"),
        marks=bars("wanted", "touched"),
    )


@page.table
def groups(r: Records) -> Sequence[Row]:
    """The coursework's tile, threads and warp, by group size."""
    rows: list[Row] = []
    for group in sorted(r.param_values("group")):
        lab = r.single(group=group).values[LAB]
        down, across = layout.warp_extent(lab)
        rows.append(
            {
                "group size": group,
                "tile": f"{lab['tile m']}\u00a0×\u00a0{lab['tile k']}",
                "blocks a group": -(-group // lab["tile m"]),
                "thread layout": f"`{lab['layout']}`",
                "a warp holds": f"{down}\u00a0×\u00a0{across}",
            }
        )
    return rows
