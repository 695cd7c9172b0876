"""The published run of `benchmarks/mxint8_cuda.py`: MXINT8 weights on a GPU, beside its peers.

Without one, a table has a row that says so: these cells are not run here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from madl.logbook import benchmarks
from madl.logbook.records import Pending, Records, Row
from madl.logbook.stats import number

NAME = "mxint8_cuda"
NOT_RUN: Row = {"on a GPU": "not run here: `python cli.py gpu`, where there is one"}
PRODUCTS, DECODING = "linear bfloat16, ", "dequantize "  # how works of each table begin
OURS, TORCH = "ours, ", "MXINT8, plain torch"


def gpu_products(r: Records) -> Sequence[Row]:
    """A Linear with MXINT8 weights and BF16 inputs: speed over cuBLAS' BF16 product."""
    return _rows(PRODUCTS)


def gpu_decoding(r: Records) -> Sequence[Row]:
    """MXINT8 to BF16: speed over a copy that moves as many bytes."""
    return _rows(DECODING)


def gpu_run(r: Records) -> Sequence[Row]:
    """On which machine, and which peers did not run there."""
    try:
        absent: Mapping[str, str] = benchmarks.kept(NAME, "not_run") or {}
        return [
            *benchmarks.run_table(NAME),
            *({"": f"Not run: {peer}", " ": why} for peer, why in absent.items()),
        ]
    except Pending:
        return [NOT_RUN]


def _rows(begins: str) -> Sequence[Row]:
    """A row a work, a column a variant: how many times as fast as the baseline, by medians."""
    by_work: dict[str, dict[str, Any]] = {}
    try:
        for row in benchmarks.rows(NAME):
            work = str(row["work"])
            if work.startswith(begins) and row["variant"] != row["baseline"]:
                of_it = by_work.setdefault(work, {"on a GPU": work.removeprefix(begins)})
                of_it[_said(row["variant"])] = f"{number(row['speed'])} ×"
    except Pending:
        pass
    variants = {variant: "–" for row in by_work.values() for variant in row}
    return [{**variants, **row} for row in by_work.values()] or [NOT_RUN]


def _said(variant: str) -> str:
    """A variant for a reader: our kernels by what has compiled them."""
    return variant.replace(f"{OURS}torch", TORCH).replace(OURS, "MXINT8, ")
