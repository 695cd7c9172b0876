"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A cell is a network under one compiler, in several fresh processes. The first finds the compiler's
caches empty, so its first call pays for the whole compilation; the later ones load what it made.
The naive way is run as well, as a measurement like any other, and the linter that reads the records
has to find its mistakes.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Chart, category, intervals, level, line, linear, log, span
from madl.logbook.claims import Fact, Judged, compare, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device, num_cores

page = Experiment(
    title="torch.compile: when does it pay?", timed=lambda params: params["kind"] != "shapes"
)

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
DEFAULT = {"backend": "inductor", "mode": "default"}
CAPTURE = {"backend": "aot_eager", "mode": "default"}
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # of the time: less is not worth a compilation
COMPILERS = ("g++", "clang++", "c++")
LENGTHS = "11 13 17 19 23 29 31 37 41 43 47 53"


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {
        "resnet18": choose(smoke=64, quick=224, full=224),
        "bert": choose(smoke=8, quick=32, full=32),
    }
    batches = {
        "cpu": choose(smoke="1 2", quick="1 8", full="1 8 32"),
        "cuda": choose(smoke="1 2", quick="1 32 128", full="1 32 128"),
    }
    repeated = {
        "budget_s": choose(smoke=0.0, quick=0.3, full=2.0),
        "processes": choose(smoke=2, quick=5, full=9),
    }
    for device in batches:
        for network, size in sizes.items():
            base = {"device": device, "network": network, "size": size, "batches": batches[device]}
            if network == "bert":
                base |= {"model": plan.workload["model"]}
            for way in ways(plan, device, network):
                yield {"kind": "cell", **base, **repeated, **way}
        naive = CAPTURE if plan.profile.name == "smoke" else DEFAULT
        image = {"network": "resnet18", "size": sizes["resnet18"], "batch": 1}
        yield {"kind": "naive", "device": device, **image, "naive_calls": NAIVE_CALLS, **naive}
    yield {"kind": "guards", **repeated}
    yield {"kind": "shapes", "lengths": choose(smoke="3 4", quick=LENGTHS, full=LENGTHS)}


def ways(plan: Plan, device: str, network: str) -> list[dict[str, Any]]:
    """Backends, and inductor's modes."""
    if plan.profile.name == "smoke":
        return [CAPTURE]
    found: list[dict[str, Any]] = [DEFAULT]
    if network == "resnet18" or plan.profile.name == "full":
        modes = ("reduce-overhead", "max-autotune")
        found += [CAPTURE, *({"backend": "inductor", "mode": mode} for mode in modes)]
    if device == "cuda":
        backends = ("cudagraphs", "torch_tensorrt")
        found += [{"backend": backend, "mode": "default"} for backend in backends]
    return found


@page.unavailable
def unavailable(params: Params) -> str | None:
    """No device, no compiler, no such backend: why a case cannot run here."""
    reason = no_device(params)
    if reason:
        return reason
    if params.get("backend") == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    compilers = [os.environ.get("CXX"), *COMPILERS]
    if params.get("backend") == "inductor" and not any(shutil.which(c) for c in compilers if c):
        return "no C++ compiler here, which inductor needs"
    return None


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import compiling

    return compiling.study({**params, "threads": num_cores()})


# ---- reading the records ------------------------------------------------------------------------


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


def pair(record: Record, batch: int | None = None) -> Pair:
    """The two of one cell at this batch size, or its first. Raises: Pending: its backend failed."""
    p = record.case.params
    at = batch or int(str(p["batches"]).split()[0])
    network, records = NETWORKS[str(p["network"])], Records([record])
    eager = timed(records, f"eager {at}", f"{network} in eager mode")
    return Pair(eager, timed(records, f"compiled {at}", f"compiled {network}"))


def cell(r: Records, network: str, device: str = "cpu", **way: str) -> Record:
    """A network by the default compiler unless another way is asked for."""
    return r.one(**{"kind": "cell", "network": network, "device": device, **DEFAULT, **way})


def batches(record: Record) -> list[int]:
    return [int(batch) for batch in str(record.case.params["batches"]).split()]


def rounded(calls: float) -> str:
    """Two significant digits: a first call was timed once."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def measured(r: Records) -> list[Record]:
    """The cells whose backend works here."""
    cell(r, "resnet18"), cell(r, "bert")  # pending without them, whatever else is there
    return [record for record in r.where(kind="cell") if "measurements" in record.values]


# ---- claims -------------------------------------------------------------------------------------


def _faster(record: Record) -> Judged:
    eager, compiled = pair(record)
    where = f"after the first call (batch {batches(record)[0]}, {record.place})"
    return faster(compiled, eager, where)


@page.claim(headline=True)
def resnet_faster(r: Records) -> Judged:
    """On the CPU, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return _faster(cell(r, "resnet18"))


@page.claim(headline=True)
def bert_faster(r: Records) -> Judged:
    """On the CPU, BERT is faster compiled than in eager mode once its first call is over."""
    return _faster(cell(r, "bert"))


@page.claim(headline=True)
def cuda_faster(r: Records) -> Judged:
    """On CUDA, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return _faster(cell(r, "resnet18", "cuda"))


@page.claim
def cuda_graphs_faster(r: Records) -> Judged:
    """On CUDA, ResNet-18 replayed as CUDA graphs is faster than in eager mode at a small batch."""
    return _faster(cell(r, "resnet18", "cuda", mode="reduce-overhead"))


@page.claim
def capture_alone(r: Records) -> Judged:
    """Capturing ResNet-18's graph without generating code does not change the time of a call."""
    eager, captured = pair(cell(r, "resnet18", **CAPTURE))
    what, margin = "capturing ResNet-18's graph alone", f"{stats.number(100 * SAME)} %"
    times = f"{captured} a call captured, {eager} in eager mode"
    return (
        compare(captured, eager)
        .within(SAME)
        .judge(
            supported=f"Generating no code, {what} changes its time by less than {margin}: {times}",
            refuted=f"Generating no code, {what} changes its time by more than {margin}: {times}",
            undecided=f"Whether {what} changes its time by {margin} is open: a speed-up of "
            f"{eager / captured:i} over {eager} in eager mode",
        )
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def naive_compiles(r: Records) -> Fact:
    naive, right = r.where(kind="naive", device="cpu"), pair(cell(r, "resnet18"))
    eager, compiled = (timed(naive, v).samples_s[0] for v in Pair._fields)
    said = [f"{stats.number(1e3 * fmean(samples))} ms" for samples in (compiled, eager)]
    return Fact(
        text=f"Timed naively on the CPU, ResNet-18 takes {said[0]} compiled and {said[1]} a call "
        "in eager mode. The first compiled call is the compilation, "
        f"{stats.per_cent(compiled[0] / sum(compiled))} of the time of all of them; after it, a "
        f"call takes {right.compiled}, and {right.eager} in eager mode",
        of=f"{len(compiled)} naive calls of each, and {len(right.eager.runs)} processes",
    )


@page.fact
def pays_back(r: Records) -> Fact:
    said: list[str] = []
    for network, title in NETWORKS.items():
        arms = pair(cell(r, network))
        first, found = stats.number(arms.compiled.first_call_s), arms.calls_to_pay
        enough = "no number of calls is shown to pay for that"
        if found is not None:
            calls, (low, high) = found
            enough = f"{rounded(calls)} calls [{rounded(low)}, {rounded(high)}] pay for that"
        said.append(f"the first call of compiled {title} takes {first} s, and {enough}")
    return Fact(text=f"On the CPU, {'; '.join(said)}", of="1 first call, and all later ones")


@page.fact
def fewer_passes(r: Records) -> Fact:
    said: list[str] = []
    for network, title in NETWORKS.items():
        values = cell(r, network).values
        before, left = (sum(values["kernels"][v].values()) for v in Pair._fields)
        made = sum(values["generated"].values())
        said.append(
            f"{title} runs {before} operators in eager mode and {left + made} compiled, "
            f"{made} of them generated"
        )
    return Fact(text="; ".join(said), of="the operators of one call on the CPU")


@page.fact
def guards_cost(r: Records) -> Fact:
    guards = r.where(kind="guards")
    eager, compiled = (timed(guards, v).median_s for v in Pair._fields)
    return Fact(
        text=f"A function that adds one to a number takes {stats.number(1e6 * eager)} µs in eager "
        f"mode and {stats.number(1e6 * compiled)} µs when torch.compile runs the same addition "
        "behind its guards",
        of=f"medians of {len(timed(guards, 'eager').runs)} processes",
    )


@page.fact
def linter_finds(r: Records) -> Fact:
    naive = r.one(kind="naive", device="cpu").values["measurements"]
    wrong = lint.mistakes(naive["compiled"], against=naive["eager"])
    runs = [(a.runs, b.runs) for x in measured(r) for n in batches(x) for a, b in [pair(x, n)]]
    said, count = lint.failing((b, a) for a, b in runs)
    return Fact(
        text=f"The naive timing fails {len(wrong)} of the linter's checks: {', '.join(wrong)}. The "
        f"checks that this page's own timings fail: {said}",
        of=f"{len(lint.CHECKS) + 1} checks of {1 + count} timings",
    )


@page.fact
def sizes_recompile(r: Records) -> Fact:
    values = r.one(kind="shapes").values
    made = values["graphs"]
    static, automatic, dynamic = (made[k][-1] for k in ("static", "automatic", "dynamic"))
    return Fact(
        text=f"Called with one new batch size after another, torch.compile makes {static} graphs "
        f"with `dynamic=False` and then leaves the rest to eager mode (its limit is "
        f"{values['limit']}), {automatic} when left alone, {dynamic} with `dynamic=True`",
        of=f"{len(values['sizes'])} batch sizes",
    )


WHOLE = "tensor operations only"


@page.fact
def data_breaks(r: Records) -> Fact:
    found = r.one(kind="shapes").values["breaks"]
    broken = sum(example["breaks"] > 0 for name, example in found.items() if name != WHOLE)
    return Fact(
        text=f"{broken} of {len(found) - 1} small functions that need a tensor's value in Python "
        f"break their graph; one of tensor operations alone has {found[WHOLE]['breaks']} breaks",
        of=f"{len(found)} functions",
    )


# ---- charts and tables --------------------------------------------------------------------------

CALLS = tuple(round(10 ** (k / 8)) for k in range(8, 49))  # ten to a million
TOP = 3.0  # where the axis is cut: the first calls are hundreds of times slower


@page.chart(
    caption="How many times as fast a call is as in eager mode, after the first one, with the "
    "interval from between processes: a row a batch size and compiler. Left of the line is slower."
)
def speed_ups(r: Records) -> Chart:
    rows = [
        {
            "call": f"{row['model']}, batch {row['batch']}, {row['compiler']}",
            "speed-up": row["speed-up"],
        }
        for row in cells(r)
    ]
    return Chart(
        [row for row in rows if row["speed-up"] != "–"],
        x=linear("speed-up", "speed-up over eager mode", "×"),
        y=category("call"),
        marks=[level(1.0, "eager mode"), intervals("speed-up")],
    )


@page.chart(
    caption="Total time of all calls so far over eager mode's, on the CPU, at the smallest batch. "
    "The first call pays for the compilation; where a line is below eager mode's, that is paid. "
    "Shaded: where it pays, with its interval. The axis is cut."
)
def total(r: Records) -> Chart:
    rows: list[dict[str, Any]] = [{"calls": calls} for calls in CALLS]
    paid = []
    for network, title in NETWORKS.items():
        arms = pair(cell(r, network))
        paid += [span(*found[1], f"{title} pays")] if (found := arms.calls_to_pay) else []
        for row in rows:
            eager, compiled = (a.first_call_s + (row["calls"] - 1) * a.median_s for a in arms)
            row[title] = compiled / eager
    return Chart(
        rows,
        x=log("calls", "calls of the model"),
        y=linear(label="total time over eager mode's", unit="×", limits=(0, TOP)),
        marks=[
            *paid,
            level(1.0, "eager mode"),
            *(line(t, markers=False) for t in NETWORKS.values()),
        ],
    )


@page.table
def cells(r: Records) -> Sequence[Row]:
    measured(r)
    return [_cell_row(x, batch) for x in r.where(kind="cell") for batch in batches(x)]


def _cell_row(record: Record, batch: int) -> Row:
    p = record.case.params
    way, model = str(p["backend"]), f"{NETWORKS[str(p['network'])]} on {record.place}"
    compiler = f"{way}, {p['mode']}" if way == "inductor" else way
    row: dict[str, Any] = {"model": model, "batch": batch, "compiler": compiler}
    if "failed" in record.values:
        names = ("eager", "compiled", "speed-up", "pays after")
        return {**row, "first call": record.values["failed"], **dict.fromkeys(names, "–")}
    arms = pair(record, batch)
    calls = arms.calls_to_pay
    return {
        **row,
        "first call": f"{stats.number(arms.compiled.first_call_s)} s",
        "eager": arms.eager,
        "compiled": arms.compiled,
        "speed-up": arms.eager / arms.compiled,
        "pays after": "not shown" if calls is None else f"{rounded(calls[0])} calls",
    }
