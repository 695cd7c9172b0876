"""The memory of a stored model under any number format: a calculator over the ledger, as a picture.

A row is a model whose Linear weights are packed in one format. What is not packed, and what an
evaluation holds beside the weights, is the model's own, as ledger and simulation counted it; a
weight that is written out is its largest one, whoever multiplies.

Units: bytes in rows, 2^20 bytes where shown. Not handled: what an allocator adds, and scales that a
format has for a whole row or tensor, which are a few bytes.
"""

from collections.abc import Mapping, Sequence

from experiments.lab4_memory.packed_memory import (
    BITS,
    LARGE,
    PARTS,
    SCALE_BITS,
    in_mib,
    ledger_of,
    parts_of,
    written_out,
)
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.records import Records, Row
from madl.logbook.stats import number, per_cent
from madl.machine.replay import BLOCK

HELD = PARTS[:4]  # what is there without an allocator
PACKED, WRITTEN = HELD[0], HELD[3]
FP32, START = "FP32", "mxint8"
WIDTH, BAR, TOP, STEP = 420.0, 26.0, 18.0, 48.0


def memory_rows(r: Records) -> list[Row]:
    """A row for each stored model and format, FP32 first, then by bits a value."""
    bits: Mapping[str, float] = {START: BITS + SCALE_BITS / BLOCK}
    for record in r.of("formats"):
        bits = {n: f["bits"] for n, f in record.values["formats"].items() if "moved" not in f}
    rows: list[Row] = []
    parts = parts_of(r)
    for model in dict.fromkeys(model for model, _ in parts):
        packed = ledger_of(r, model).num_packed
        dense, held = ({p: parts[model, kind][p] for p in HELD} for kind in ("FP32", "MXINT8"))
        held[WRITTEN] = written_out(r, model)
        rows.append({"model": model, "format": FP32, "bits": 32.0, **dense})
        rows += [
            {"model": model, "format": name, "bits": of} | {**held, PACKED: round(packed * of / 8)}
            for name, of in sorted(bits.items(), key=lambda item: (item[1], item[0]))
        ]
    return rows


def memory_alt(rows: Sequence[Row]) -> str:
    dense, packed = _start(rows)
    return _said(dense, packed)


def memory_panels(rows: Sequence[Row]) -> list[Panel]:
    """The coursework's model in its format; the script shows any other."""
    dense, packed = _start(rows)
    table = field_table(
        ("in MiB", "in FP32", "as chosen"),
        (
            *(
                (
                    f'<i class="key part{i}"></i>{part}',
                    field(f"dense{i}", _mib(dense[part])),
                    field(f"chosen{i}", _mib(packed[part])),
                )
                for i, part in enumerate(HELD)
            ),
            ("sum", field("dense", _mib(_sum(dense))), field("chosen", _mib(_sum(packed)))),
        ),
    )
    svg = _bars({"in FP32": dense, "as chosen": packed})
    return [
        Panel(
            title="A model's memory, part by part",
            svg=f"{svg}\n{table}\n{says(_said(dense, packed))}",
            folded=False,
        )
    ]


def _start(rows: Sequence[Row]) -> tuple[Row, Row]:
    of = {row["format"]: row for row in rows if row["model"] == LARGE}
    return of[FP32], of[START]


def _sum(row: Row) -> int:
    return sum(row[part] for part in HELD)


def _mib(num_bytes: float) -> str:
    return number(in_mib(num_bytes))


def _said(dense: Row, packed: Row) -> str:
    """The script has the same words."""
    of, whole = _sum(packed), _sum(dense)
    saved = 1 - packed[PACKED] / dense[PACKED]
    return (
        f"{packed['model']}, Linear weights packed in {packed['format']} at {packed['bits']:g} "
        f"bits each: {_mib(of)} MiB instead of {_mib(whole)} MiB. The packed weights shrink by "
        f"{per_cent(saved)}, the sum by {per_cent(1 - of / whole)}."
    )


def _bars(bars: Mapping[str, Row]) -> str:
    """Each model as a bar of its parts, all on the scale of the first."""
    whole = _sum(next(iter(bars.values())))
    drawn: list[str] = []
    for j, (name, row) in enumerate(bars.items()):
        top, left = TOP + j * STEP, 0.0
        drawn.append(f'<text class="note" x="0" y="{top - 5:g}">{name}</text>')
        for i, part in enumerate(HELD):
            width = WIDTH * row[part] / whole
            drawn.append(
                f'<rect class="part{i}" data-bar="{j}" x="{left:.1f}" y="{top:g}" '
                f'width="{width:.1f}" height="{BAR:g}"/>'
            )
            left += width
    height = TOP + len(bars) * STEP - 18
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH:g} {height:g}" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )
