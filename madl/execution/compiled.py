"""The records of compiled models: a cell's pairs of eager and compiled, and when compiling pays.

A cell is a network compiled one way, on one device, at several batch sizes; at the first of them,
other ways may take turns beside it. `compiling` makes them.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.claims import compare
from madl.logbook.records import Params, Pending, Record, Records, Row

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
    def filled_s(self) -> float | None:
        """What the first call takes of a process that finds the caches filled; None: there is none.

        The median over those processes.
        """
        first = [float(run["first_call_s"]) for run in self.compiled.runs[1:]]
        return median(first) if first else None

    @property
    def first_call(self) -> str:
        """In words, with empty and with filled caches."""
        filled = (
            "" if (s := self.filled_s) is None else f" ({stats.number(s)} s with filled caches)"
        )
        return f"{stats.number(self.compiled.first_call_s)} s{filled}"

    @property
    def calls_to_pay(self) -> tuple[float, stats.Interval] | None:
        """After how many calls the first process's first one is paid for, where a gain is shown."""
        return self._break_even(self.compiled.first_call_s)

    def _break_even(self, first_s: float) -> tuple[float, stats.Interval] | None:
        medians = ([median(samples) for samples in one.samples_s] for one in self)
        gains = [eager - compiled for eager, compiled in zip(*medians)]
        if compare(self.compiled, self.eager).comparison.blocked:
            return None
        return stats.break_even(first_s - self.eager.first_call_s, gains)

    @property
    def enough(self) -> str:
        """In words, with the interval."""
        if (found := self.calls_to_pay) is None:
            return "no number of calls is shown to pay for that"
        calls, (low, high) = found
        said = f"{rounded(calls)} calls [{rounded(low)}, {rounded(high)}] pay for that"
        filled = None if self.filled_s is None else self._break_even(self.filled_s)
        return said + (f" ({rounded(filled[0])} with filled caches)" if filled else "")


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


def against_default(record: Record) -> str:
    """How long a call of each of inductor's modes takes, in the default's processes, in words."""
    default = pair(record).compiled
    present = [way for way in ways(record, batches(record)[0]) if way in MODES]
    if not present:
        raise Pending("modes beside the default")
    return ", ".join(
        f"`{way}` takes {pair(record, way=way).compiled / default:i} the time" for way in present
    )


def naive_times(naive: Records, *, skip: int = 0) -> str:
    """What the naive run says, without its first calls or with them, in words."""
    each = (timed(naive, variant).samples_s[0][skip:] for variant in (COMPILED, "eager"))
    a, b = (f"{stats.number(1e3 * fmean(samples))} ms" for samples in each)
    return f"{a} a call compiled and {b} in eager mode"


def first_calls(naive: Records) -> str:
    """What the naive run says, and what the first call takes of its compiled time, in words."""
    samples = timed(naive, COMPILED).samples_s[0]
    share = stats.per_cent(samples[0] / sum(samples))
    return f"{naive_times(naive)}: the first call is the compilation, {share} of the compiled time"


def operators(record: Record) -> str:
    """How many a call runs in eager mode and compiled, in words."""
    before, left = (sum(record.values["kernels"][v].values()) for v in Pair._fields)
    made = sum(record.values["generated"].values())
    return f"{before} operators in eager mode and {left + made} compiled, {made} of them generated"


# Operators in the names of generated kernels; the rest of a name is views and indices.
PARTS = {
    "scaled_dot_product_flash_attention": "attention's mask and layout",
    "native_batch_norm": "batch norm",
    "native_layer_norm": "layer norm",
    "convolution": "convolution",
    "max_pool2d": "max pooling",
    "embedding": "embedding",
    "gelu": "GELU",
    "tanh": "tanh",
    "relu": "ReLU",
    "mean": "mean",
    "_add": "addition",
}


def kernel_kinds(record: Record) -> str:
    """The generated kernels by the operators in their names, and how many of each, in words."""
    kinds: dict[str, int] = {}
    generated: Mapping[str, int] = record.values["generated"]
    for name, count in generated.items():
        held = [title for part, title in PARTS.items() if part in name]
        kind = held[0] if held[:1] == [next(iter(PARTS.values()))] else " + ".join(held) or name
        kinds[kind] = kinds.get(kind, 0) + count
    return ", ".join(
        f"{n} of {kind}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1])
    )


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
    return {**row, "first call": arms.first_call, **found, "pays after": pays}
