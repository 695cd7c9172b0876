"""The published run of `benchmarks/mxint8_cuda.py`: MXINT8 weights on a GPU, beside its peers.

Without one, these cells are not run here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from madl.logbook import benchmarks
from madl.logbook.claims import Fact
from madl.logbook.records import Pending, Records, Row
from madl.logbook.stats import number

NAME = "mxint8_cuda"
NOT_RUN: Row = {"on a GPU": "not run here"}
BASELINES = {"linear bfloat16": "cuBLAS, BF16", "dequantize": "a copy of as many bytes"}
OURS = "ours, "


def gpu_kernels(r: Records) -> Sequence[Row]:
    """A row a work, a column a variant: how many times as fast as the baseline, by medians."""
    by_work: dict[str, dict[str, Any]] = {}
    for row in _rows():
        work = str(row["work"])
        beside = next((said for kind, said in BASELINES.items() if work.startswith(kind)), None)
        if beside and row["variant"] != row["baseline"]:
            of_it = by_work.setdefault(work, {"on a GPU": work, "beside": beside})
            of_it[row["variant"].replace(OURS, "MXINT8, ")] = f"{number(row['speed'])} ×"
    variants = {variant: "–" for row in by_work.values() for variant in row}
    return [{**variants, **row} for row in by_work.values()] or [NOT_RUN]


def gpu_run(r: Records) -> Fact:
    """On which machine the kernels were run, or that they were not."""
    if not _rows():
        text = "No GPU has run these kernels here; where there is one, `python cli.py gpu` does"
        return Fact(text=text, of="the published runs of the benchmark mxint8_cuda")
    absent: Mapping[str, str] = benchmarks.kept(NAME, "not_run") or {}
    without = "; ".join(f"{peer} ({why})" for peer, why in absent.items())
    run = {row[""]: row[" "] for row in benchmarks.run_table(NAME)}
    return Fact(
        text=f"Run on {run['Machine']} with {run['Peers']}"
        + (f"; not run there: {without}" if without else ""),
        of=f"medians of 1 run, {run['Date']}, the variants of a row in turn, no interval; "
        f"used by other processes: {run['Used by other processes']}",
    )


def _rows() -> list[dict[str, Any]]:
    try:
        return benchmarks.rows(NAME)
    except Pending:
        return []
