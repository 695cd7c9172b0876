"""A Linear and a classifier in several arithmetics: their names, and the records of their times.

`arithmetic` makes the records. Rows are those of a layer's inputs. Imports no torch: pages are made
without it.
"""

from collections.abc import Mapping
from statistics import median

from madl.execution.ceilings import rates
from madl.logbook.arms import TimedArm, timed
from madl.logbook.claims import Judged
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import per_cent

FP32, BF16, DYNAMIC, MXINT8 = "FP32", "BF16", "INT8, torch dynamic", "MXINT8"
PREPACKED, ONEDNN = ", prepacked", ", oneDNN"  # the same arithmetic, computed in another way
VARIANTS = (
    *(FP32, FP32 + PREPACKED, BF16, BF16 + PREPACKED),
    *(DYNAMIC, DYNAMIC + ONEDNN, MXINT8),
)
SAID = {  # what a sentence, a column or a series calls it
    FP32 + PREPACKED: f"prepacked {FP32}",
    BF16 + PREPACKED: f"prepacked {BF16}",
    DYNAMIC: "torch's INT8",
    DYNAMIC + ONEDNN: "torch's INT8 by oneDNN",
}
BITS = {FP32: 32, BF16: 16, DYNAMIC: 8, MXINT8: 8.25}  # of a weight and its share of the scale
RIVALS = (FP32, BF16, DYNAMIC)  # of MXINT8, each in the faster of its ways
CONVERTED = (BF16, DYNAMIC, MXINT8)  # of a whole classifier that is judged, beside FP32
BATCHES = "1 32"  # sentences at a time
MIB = 2**20


def said(variant: str) -> str:
    return SAID.get(variant, variant)


def layer_case(r: Records, layer: str = "coursework") -> Record:
    return r.one(what="linear", layer=layer)


def layer_cases(r: Records) -> tuple[Record, Record]:
    """The larger layer and the smaller."""
    return layer_case(r), layer_case(r, "default")


def shape(record: Record) -> str:
    """A layer as a sentence names it."""
    params = record.case.params
    return f"a Linear of {params['in']} inputs and {params['out']} outputs"


def num_rows(record: Record) -> list[int]:
    return [int(rows) for rows in str(record.case.params["rows"]).split()]


def most(r: Records) -> int:
    return num_rows(layer_case(r))[-1]


def times(record: Record, rows: int) -> dict[str, TimedArm]:
    """Every arithmetic that was timed in one layer, at this number of rows."""
    return _timed(Records([record]), rows)


def model_times(r: Records, batch: int) -> dict[str, TimedArm]:
    """The whole classifier in every arithmetic, so many sentences at a time."""
    return _timed(r.where(what="evaluation"), batch)


def _timed(r: Records, size: int) -> dict[str, TimedArm]:
    measured = r.one().values["measurements"]
    return {v: timed(r, f"{v} {size}", said(v)) for v in VARIANTS if f"{v} {size}" in measured}


def strongest(t: dict[str, TimedArm], variant: str) -> TimedArm:
    """The faster of an arithmetic's ways: as torch has it, prepacked, or by another engine."""
    found = [t[name] for name in (variant, variant + PREPACKED, variant + ONEDNN) if name in t]
    return min(found, key=lambda one: one.median_s)


def beside(made: Judged, t: dict[str, TimedArm], rival: str) -> Judged:
    """The findings, with what the other rivals take."""
    others = [strongest(t, one) for one in RIVALS if one != rival]
    return made.beside("beside them, " + " and ".join(f"{one.label} takes {one}" for one in others))


def num_weights(record: Record) -> int:
    return int(record.case.params["in"] or 0) * int(record.case.params["out"] or 0)


def weight_bytes(record: Record, variant: str) -> float:
    """Of the layer's weight, with its scales."""
    return num_weights(record) * BITS[variant.removesuffix(PREPACKED).removesuffix(ONEDNN)] / 8


def speedup_rows(r: Records) -> list[Row]:
    """How many times as fast MXINT8 is as each other arithmetic, by the number of rows."""
    record = layer_case(r)
    every = {n: times(record, n) for n in num_rows(record)}
    others = [v for v in _in_all(every) if v != MXINT8]
    return [{"rows": n, **{said(v): t[v] / t[MXINT8] for v in others}} for n, t in every.items()]


def _in_all(every: Mapping[int, dict[str, TimedArm]]) -> list[str]:
    """The variants of every size: a peer whose result was wrong with one is not drawn."""
    return [v for v in VARIANTS if all(v in t for t in every.values())]


def layer_rows(r: Records) -> list[Row]:
    """The time of every arithmetic in the larger layer, by the number of rows."""
    return _time_rows(layer_case(r))


def small_layer_rows(r: Records) -> list[Row]:
    """The same of the smaller layer."""
    return _time_rows(layer_case(r, "default"))


def _time_rows(record: Record) -> list[Row]:
    every = {n: times(record, n) for n in num_rows(record)}
    return [{"rows": n, **{said(v): t[v] for v in _in_all(every)}} for n, t in every.items()]


def model_rows(r: Records) -> list[Row]:
    """The whole classifier's speed over FP32's, by the number of sentences at a time."""
    every = {n: model_times(r, n) for n in map(int, BATCHES.split())}
    others = [v for v in _in_all(every) if v != FP32]
    return [
        {"batch": f"batch of {n}", **{said(v): t[FP32] / t[v] for v in others}}
        for n, t in every.items()
    ]


def read_rate(record: Record, one_row: TimedArm, variant: str) -> float:
    """Bytes of weights a second, where each is used once."""
    return weight_bytes(record, variant) / one_row.median_s


def reached(r: Records, work: str) -> float:
    """What this machine does a second, of operations or bytes: the median of its own page."""
    return median(rates(r.of("machine").one(device="cpu"), work))


def rate_rows(r: Records) -> list[Row]:
    """How fast each reads its weights with one row, and how much it computes with the most."""
    record = layer_case(r)
    one, many = times(record, 1), times(record, most(r))
    rows: list[Row] = []
    for v in _in_all({1: one, most(r): many}):
        speed = 2.0 * most(r) * num_weights(record) / many[v].median_s
        rows.append(
            {
                "arithmetic": said(v),
                "weight (MiB)": weight_bytes(record, v) / MIB,
                "1 row, GB/s of weights": read_rate(record, one[v], v) / 1e9,
                f"{most(r)} rows, Gop/s": speed / 1e9,
                "of the large INT8 product": per_cent(speed / reached(r, "int8")),
            }
        )
    return rows
