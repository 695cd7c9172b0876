"""The records of compiled models: a cell's pairs of eager and compiled, and when compiling pays.

A cell is a network compiled one way, on one device, at several batch sizes; at the first of them,
other ways may take turns beside it. `compiling` makes them.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.claims import compare
from madl.logbook.records import Params, Record, Records, Row

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
DEFAULT = {"backend": "inductor", "mode": "default"}
MODES = ("reduce-overhead", "max-autotune")  # inductor's, beside its default
COMPILED = "compiled"
CALLS = tuple(round(10 ** (k / 8)) for k in range(8, 49))  # ten to a million


def lacking(params: Params) -> str | None:
    """What a case's backend needs and this machine has not."""
    if params.get("backend") == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    if params.get("backend") == "inductor" and not any(shutil.which(c) for c in compilers if c):
        return "no C++ compiler here, which inductor needs"
    return None


class Pair(NamedTuple):
    """One model in eager mode and compiled, timed in turn in every process."""

    eager: TimedArm
    compiled: TimedArm

    @property
    def calls_to_pay(self) -> tuple[float, stats.Interval] | None:
        """After how many calls the first process's first one is paid for, where a gain is shown."""
        medians = ([median(samples) for samples in one.samples_s] for one in self)
        gains = [eager - compiled for eager, compiled in zip(*medians)]
        if compare(self.compiled, self.eager).comparison.blocked:
            return None
        return stats.break_even(self.compiled.first_call_s - self.eager.first_call_s, gains)

    @property
    def enough(self) -> str:
        """In words, with the interval."""
        if (found := self.calls_to_pay) is None:
            return "no number of calls is shown to pay"
        calls, (low, high) = found
        return f"{rounded(calls)} calls [{rounded(low)}, {rounded(high)}] pay"


def pair(record: Record, batch: int | None = None, way: str = COMPILED) -> Pair:
    """The two of one cell at this batch size, or its first. Raises: Pending: its backend failed."""
    at = batch or batches(record)[0]
    network, records = NETWORKS[str(record.case.params["network"])], Records([record])
    eager = timed(records, f"eager {at}", f"{network} in eager mode")
    return Pair(eager, timed(records, f"{way} {at}", f"compiled {network}"))


def cell(r: Records, network: str, device: str = "cpu", **way: str) -> Record:
    """A network by the default compiler unless another way is asked for."""
    return r.one(**{"kind": "cell", "network": network, "device": device, **DEFAULT, **way})


def measured(r: Records) -> list[Record]:
    """The cells whose backend works here."""
    for network in NETWORKS:
        cell(r, network)  # pending without it, whatever else is there
    return [record for record in r.where(kind="cell") if "measurements" in record.values]


def batches(record: Record) -> list[int]:
    return [int(batch) for batch in str(record.case.params["batches"]).split()]


def ways(record: Record, batch: int) -> list[str]:
    """What was timed against eager mode at this batch size."""
    beside = str(record.case.params.get("beside", "")).split()
    return [COMPILED, *(beside if batch == batches(record)[0] else [])]


def every_pair(record: Record) -> list[Pair]:
    """All that was timed of one cell."""
    return [pair(record, n, way) for n in batches(record) for way in ways(record, n)]


def rounded(calls: float) -> str:
    """Two significant digits: a first call was timed once."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def totals(pairs: Mapping[str, Pair]) -> list[dict[str, Any]]:
    """The time of so many calls compiled over that in eager mode, first calls included."""
    rows: list[dict[str, Any]] = [{"calls": calls} for calls in CALLS]
    for title, arms in pairs.items():
        for row in rows:
            eager, compiled = (a.first_call_s + (row["calls"] - 1) * a.median_s for a in arms)
            row[title] = compiled / eager
    return rows


def cell_rows(record: Record) -> Sequence[Row]:
    """A row a batch size and way to compile; a backend that failed says why."""
    return [_row(record, batch, way) for batch in batches(record) for way in ways(record, batch)]


def _row(record: Record, batch: int, way: str) -> Row:
    p = record.case.params
    backend, mode = str(p["backend"]), str(p["mode"])
    if way != COMPILED:
        backend, mode = ("inductor", way) if way in MODES else (way, "")
    model = f"{NETWORKS[str(p['network'])]} on {record.place}"
    compiler = f"{backend}, {mode}" if backend == "inductor" else backend
    row: dict[str, Any] = {"model": model, "batch": batch, "compiler": compiler}
    if "failed" in record.values:
        names = ("eager", "compiled", "speed-up", "pays after")
        return {**row, "first call": record.values["failed"], **dict.fromkeys(names, "–")}
    arms = pair(record, batch, way)
    found = {
        "eager": arms.eager,
        "compiled": arms.compiled,
        "speed-up": arms.eager / arms.compiled,
    }
    if way != COMPILED:  # its first call found what the one before had left
        return {**row, "first call": "–", **found, "pays after": "–"}
    calls = arms.calls_to_pay
    pays = "not shown" if calls is None else f"{rounded(calls[0])} calls"
    first = f"{stats.number(arms.compiled.first_call_s)} s"
    return {**row, "first call": first, **found, "pays after": pays}
