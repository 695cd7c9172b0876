"""A Linear and a classifier in several arithmetics: their names, and the records of their times.

`arithmetic` makes the records. Rows are those of a layer's inputs. Imports no torch: pages are made
without it.
"""

from dataclasses import replace

from madl.logbook import benchmarks, claims
from madl.logbook.arms import TimedArm, timed
from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import number, per_cent

FP32, BF16, DYNAMIC, MXINT8 = "FP32", "BF16", "INT8, torch dynamic", "MXINT8"
PREPACKED = ", prepacked"
VARIANTS = (FP32, FP32 + PREPACKED, BF16, BF16 + PREPACKED, DYNAMIC, MXINT8)
SAID = {DYNAMIC: "torch's INT8"}  # what a sentence, a column or a series calls it
BITS = {FP32: 32, BF16: 16, DYNAMIC: 8, MXINT8: 8.25}  # of a weight and its share of the scale
CONVERTED = (BF16, DYNAMIC, MXINT8)  # of a whole classifier, beside FP32
IN_MODEL = (FP32, *CONVERTED)
BATCHES = "1 32"  # sentences at a time


def said(variant: str) -> str:
    return SAID.get(variant, variant)


def layer_case(r: Records, layer: str = "coursework") -> Record:
    return r.one(what="linear", layer=layer)


def num_rows(record: Record) -> list[int]:
    return [int(rows) for rows in str(record.case.params["rows"]).split()]


def most(r: Records) -> int:
    return num_rows(layer_case(r))[-1]


def times(record: Record, rows: int) -> dict[str, TimedArm]:
    """Every arithmetic of one layer, at this number of rows."""
    return {v: timed(Records([record]), f"{v} {rows}", said(v)) for v in VARIANTS}


def model_times(r: Records, batch: int) -> dict[str, TimedArm]:
    """The whole classifier in every arithmetic, so many sentences at a time."""
    return {v: timed(r, f"{v} {batch}", said(v), what="evaluation") for v in IN_MODEL}


def faster(a: TimedArm, b: TimedArm, where: str) -> claims.Judged:
    """`claims.faster`; in the whole classifier, also what the other arithmetics take."""
    made = claims.faster(a, b, where)
    if a.records[0].case.params["what"] != "evaluation":
        return made
    every = model_times(Records(a.records), int(a.within[-1].rpartition(" ")[2])).values()
    others = [one for one in every if one.label not in (a.label, b.label)]
    more = "; beside them, " + " and ".join(f"{one.label} takes {one}" for one in others)
    texts = {v: getattr(made, v) + more for v in ("supported", "refuted", "undecided")}
    return replace(made, **texts)


def strongest(t: dict[str, TimedArm], variant: str) -> TimedArm:
    """The faster where there are two: weights as they come, or prepacked."""
    found = [t[name] for name in (variant, variant + PREPACKED) if name in t]
    return min(found, key=lambda one: one.median_s)


def num_weights(record: Record) -> int:
    return int(record.case.params["in"] or 0) * int(record.case.params["out"] or 0)


def megabytes(record: Record, variant: str) -> float:
    """Of the layer's weight."""
    return num_weights(record) * BITS[variant.removesuffix(PREPACKED)] / 8 / 1e6


def speedup_rows(r: Records) -> list[Row]:
    """How many times as fast MXINT8 is as each other arithmetic, by the number of rows."""
    record = layer_case(r)
    every = {n: times(record, n) for n in num_rows(record)}
    return [
        {"rows": n, **{said(v): t[v] / t[MXINT8] for v in VARIANTS[:-1]}} for n, t in every.items()
    ]


def layer_rows(r: Records) -> list[Row]:
    """The time of every arithmetic, by the number of rows."""
    record = layer_case(r)
    every = {n: times(record, n) for n in num_rows(record)}
    return [{"rows": n, **{said(v): t[v] for v in VARIANTS}} for n, t in every.items()]


def model_rows(r: Records) -> list[Row]:
    """The whole classifier's speed over FP32's, by the number of sentences at a time."""
    every = {n: model_times(r, int(n)) for n in BATCHES.split()}
    return [
        {"batch": f"batch of {n}", **{said(v): t[FP32] / t[v] for v in CONVERTED}}
        for n, t in every.items()
    ]


def rate_rows(r: Records) -> list[Row]:
    """How fast each reads its weights with one row, and how much it computes with the most."""
    record, machine = layer_case(r), r.of("machine").one(device="cpu")
    one, many = times(record, 1), times(record, most(r))
    int8 = timed(Records([machine]), "int8")
    top = machine.values["amount"]["int8"] / min(map(min, int8.samples_s))
    rows: list[Row] = []
    for v in VARIANTS:
        speed = 2.0 * most(r) * num_weights(record) / many[v].median_s
        rows.append(
            {
                "arithmetic": said(v),
                "weight (MB)": megabytes(record, v),
                "1 row, GB/s of weights": megabytes(record, v) / 1e3 / one[v].median_s,
                f"{most(r)} rows, Gop/s": speed / 1e9,
                "of the INT8 ceiling": per_cent(speed / top),
            }
        )
    return rows


def peer_rows() -> list[Row]:
    """MXINT8's time, and how many times as fast it is as each peer, in a run of the benchmark.

    Raises:
        Pending: it was never published.
    """
    made: list[Row] = []
    for (layer, rows), medians in benchmarks.medians_us("mxint8", part="linear").items():
        ours = medians[MXINT8]
        over = {name: f"{number(us / ours)} ×" for name, us in medians.items() if name != MXINT8}
        made.append({"layer": layer, "rows": rows, f"{MXINT8}, µs": number(ours), **over})
    if not made:
        raise Pending("a published run of the benchmark mxint8 with its samples")
    return made
