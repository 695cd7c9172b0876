"""The records of compiled models: a cell's pairs of eager and compiled, and when compiling pays.

A cell is a network compiled one way, on one device, at several batch sizes; at the first of them,
other ways may take turns beside it. `compiling` makes them.
"""

import importlib.util
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Mark, span
from madl.logbook.claims import Judged, compare, faster
from madl.logbook.records import Failed, Params, Record, Records, Row

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
    def speed_up(self) -> stats.Comparison:
        return compare(self.compiled, self.eager).comparison

    @property
    def as_equivalence(self) -> str:
        """The speed-up in words, with the interval that an equivalence is read from."""
        made, level = self.speed_up, 1 - 2 * stats.ALPHA
        shown = stats.Estimate(
            made.effect, made.interval_at(level), made.unit, len(self.eager.runs)
        )
        return f"a speed-up of {shown:i} ({100 * level:.0f} % interval)"

    @property
    def filled_s(self) -> list[float]:
        """First calls that found the compiler's caches filled, and no other way compiled before."""
        later = (run for run in self.compiled.runs[1:] if not run.get("compiled_before"))
        return [float(run["first_call_s"]) for run in later]

    @property
    def first_call(self) -> str:
        """In words: with empty caches, and the median with filled ones."""
        filled = f" ({stats.number(median(self.filled_s))} s)" if self.filled_s else ""
        return f"{stats.number(self.compiled.first_call_s)} s{filled}"

    @property
    def calls_to_pay(self) -> tuple[float, stats.Interval] | None:
        """After how many calls the first one, with empty caches, is paid for by the later ones.

        The interval is the speed-up's: the first call was taken once, and its own scatter is not in
        it. None: that interval reaches no difference, or nothing may be read from it.
        """
        made = self.speed_up
        if made.blocked or made.interval.low <= 0:
            return None
        extra = self.compiled.first_call_s - self.eager.first_call_s
        least, calls, most = (
            1 - extra / (self.eager.median_s * math.expm1(-gain))
            for gain in (made.interval.high, made.effect, made.interval.low)
        )
        return calls, stats.Interval(least, most)

    def total(self, calls: int) -> stats.Estimate:
        """Time of so many calls over that in eager mode, the first included."""
        first, eager = self.compiled.first_call_s, self.eager
        in_eager = eager.first_call_s + (calls - 1) * eager.median_s

        def ratio(gain: float) -> float:
            later = (calls - 1) * eager.median_s * math.exp(-gain)
            return math.log((first + later) / in_eager)

        made = self.speed_up
        interval = stats.Interval(ratio(made.interval.high), ratio(made.interval.low))
        return stats.Estimate(ratio(made.effect), interval, stats.Unit.TIMES, len(eager.runs))


def speed(pair: Pair, where: str) -> Judged:
    """Whether the compiled model is faster, and, where that is shown, when its first call pays."""
    variants = " and ".join(arm.within[-1] for arm in (pair.compiled, pair.eager))  # and the batch
    judged = faster(pair.compiled, pair.eager, where, part=variants)
    first = f"first call, of {stats.number(pair.compiled.first_call_s)} s with the compilation"
    never = f"No number of calls is shown to pay for its {first}"
    paid = never
    if found := pair.calls_to_pay:
        calls, low, high = (rounded(one) for one in (found[0], *found[1]))
        paid = f"Later calls have paid for its {first}, after {calls} calls [{low}, {high}]"
    return replace(
        judged,
        supported=f"{judged.supported}. {paid}",
        refuted=f"{judged.refuted}. Later calls do not pay for its {first}",
        undecided=f"{judged.undecided}. {never}",
    )


def pair(record: Record, batch: int | None = None, way: str = COMPILED) -> Pair:
    """The two of one cell at this batch size, or its first. Raises: Failed: its backend did."""
    p, at = record.case.params, batch or batches(record)[0]
    if "failed" in record.values:
        raise Failed(f"it failed on {record.place}: {record.values['failed']}")
    network, records = NETWORKS[str(p["network"])], Records([record])
    chosen = [f"`{p[name]}`" for name in DEFAULT if p[name] != DEFAULT[name]]
    shown = f" ({', '.join(chosen)})" if chosen else ""
    eager = timed(records, f"eager {at}", f"{network} in eager mode")
    return Pair(eager, timed(records, f"{way} {at}", f"compiled {network}{shown}"))


def cell(r: Records, network: str, device: str = "cpu", **way: str) -> Record:
    """A network by the default compiler unless another way is asked for."""
    return r.one(**{"kind": "cell", "network": network, "device": device, **DEFAULT, **way})


def measured(r: Records) -> list[Record]:
    """The cells whose backend works here."""
    for network in NETWORKS:
        cell(r, network)  # pending without it, whatever else is there
    return [record for record in r.where(kind="cell") if "measurements" in record.values]


def problem(record: Record, batch: int) -> str:
    """What one call computes, in words."""
    p = record.case.params
    architecture = f", {p['model']}'s architecture" if "model" in p else ""
    return f"batch {batch} of {size(record)}, FP32{architecture}"


def size(record: Record) -> str:
    """Of one example."""
    p = record.case.params
    return f"{p['size']} tokens" if "model" in p else f"3×{p['size']}×{p['size']}"


def drawn(arms: Pair) -> str:
    """What was timed, in words: "6 processes of 15 to 17 calls"."""
    runs = arms.compiled.runs
    counts = sorted(len(run["samples_s"]) * int(run.get("calls_per_sample", 1)) for run in runs)
    each = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    return f"{len(runs)} processes of {each} calls"


def batches(record: Record) -> list[int]:
    return [int(batch) for batch in str(record.case.params["batches"]).split()]


def ways(record: Record, batch: int) -> list[str]:
    """What was timed against eager mode at this batch size."""
    beside = str(record.case.params.get("beside", "")).split()
    return [COMPILED, *(beside if batch == batches(record)[0] else [])]


def rounded(calls: float) -> str:
    """Two significant digits: a first call was timed once."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def totals(pairs: Mapping[str, Pair]) -> list[Row]:
    """The time of so many calls compiled over that in eager mode, first calls included."""
    return [
        {"calls": calls, **{title: arms.total(calls) for title, arms in pairs.items()}}
        for calls in CALLS
    ]


def meetings(pairs: Mapping[str, Pair]) -> list[Mark]:
    """Where a line of the total meets eager mode's, as far as the speed-up is known to."""
    paid = ((title, arms.calls_to_pay) for title, arms in pairs.items())
    return [span(*found[1], f"{title} pays") for title, found in paid if found]


def cell_rows(record: Record) -> Sequence[Row]:
    """A row a batch size and way to compile; a backend that failed says why."""
    return [_row(record, batch, way) for batch in batches(record) for way in ways(record, batch)]


def _row(record: Record, batch: int, way: str) -> Row:
    p = record.case.params
    backend, mode = str(p["backend"]), str(p["mode"])
    if way != COMPILED:
        backend, mode = ("inductor", way) if way in MODES else (way, "")
    row: dict[str, Any] = {
        "model": f"{NETWORKS[str(p['network'])]} on {record.place}",
        "batch": batch,
        "size": size(record),
        "compiler": f"{backend}, {mode}" if backend == "inductor" else backend,
    }
    if "failed" in record.values:
        names = ("eager", "compiled", "speed-up")
        return {**row, "first call": record.values["failed"], **dict.fromkeys(names, "–")}
    arms = pair(record, batch, way)
    return {
        **row,
        "first call": arms.first_call if way == COMPILED else "–",  # after others had compiled
        "eager": arms.eager,
        "compiled": arms.compiled,
        "speed-up": arms.eager / arms.compiled,
    }
