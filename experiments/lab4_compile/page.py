"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A cell is a network under one compiler, in several fresh processes, which are the units. The first
finds the compiler's caches empty, and its first call pays for all the compilation; later ones load
what it made. On a CPU the modes take turns in the same processes.
"""

import importlib.util
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Chart, category, intervals, level, line, linear, log, points, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Failed, Params, Pending, Record, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device, num_cores

page = Experiment(title="torch.compile: when does it pay?", timed=True)

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
DEFAULT = {"backend": "inductor", "mode": "default"}
MODES = ("reduce-overhead", "max-autotune")  # inductor's, beside its default
CAPTURE = {"backend": "aot_eager", "mode": "default"}  # captures a graph, generates no code
BESIDE = " ".join((CAPTURE["backend"], *MODES))  # what takes turns with the default on a CPU
ON_CUDA = ("cudagraphs", "torch_tensorrt")
COMPILED = "compiled"
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # of the time: less is not worth a compilation


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {"resnet18": choose(smoke=64, quick=224), "bert": choose(smoke=8, quick=32)}
    batches = {
        "cpu": choose(smoke="1 2", quick="1 8"),
        "cuda": choose(smoke="1 2", quick="1 32 128"),
    }
    budget = {"budget_s": choose(smoke=0.0, quick=2.0)}
    for device in ("cpu", "cuda"):
        for network, size in sizes.items():
            base = {"device": device, "network": network, "size": size, **budget}
            base |= {"batches": batches[device], "processes": choose(smoke=1, quick=9)}
            if network == "bert":
                base |= {"model": plan.workload["model"]}
            for way in compilers(plan, device):
                yield {"kind": "cell", **base, **way}
        naive = CAPTURE if plan.profile.name == "smoke" else DEFAULT
        image = {"network": "resnet18", "size": sizes["resnet18"], "batch": 1}
        yield {"kind": "naive", "device": device, **image, "naive_calls": NAIVE_CALLS, **naive}
    yield {"kind": "guards", **budget}


def compilers(plan: Plan, device: str) -> list[dict[str, Any]]:
    """Backends and inductor's modes: on a CPU in the same processes, on CUDA each in its own."""
    if plan.profile.name == "smoke":
        return [{**CAPTURE, "beside": ""}]
    if device == "cpu":
        return [{**DEFAULT, "beside": BESIDE}]
    modes = ({"backend": "inductor", "mode": mode} for mode in MODES)
    found = [DEFAULT, CAPTURE, *modes]
    found += [{"backend": backend, "mode": "default"} for backend in ON_CUDA]
    return [{**way, "beside": ""} for way in found]


@page.unavailable
def unavailable(params: Params) -> str | None:
    """No device, no compiler, no such backend: why a case cannot run here."""
    if missing := no_device(params):
        return missing
    if params.get("backend") == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    found = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    if params.get("backend") == "inductor" and not any(shutil.which(c) for c in found if c):
        return "no C++ compiler here, which inductor needs"
    return None


@page.quick
def quick(params: Params) -> bool:
    return params["kind"] == "guards"


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_compile import study

    return study.study({**params, "threads": num_cores()})


# ---- a cell's pairs -----------------------------------------------------------------------------


class Pair(NamedTuple):
    """One model in eager mode and compiled, timed in turn in every process."""

    eager: TimedArm
    compiled: TimedArm

    @property
    def speed_up(self) -> Contrast:
        return compare(self.compiled, self.eager)

    @property
    def cached_s(self) -> float | None:
        """The median first call that found the caches filled, and no other way compiled before."""
        later = (run for run in self.compiled.runs[1:] if not run.get("compiled_before"))
        found = [float(run["first_call_s"]) for run in later]
        return median(found) if found else None

    @property
    def calls_to_pay(self) -> tuple[float, stats.Interval] | None:
        """After how many calls the first one, with empty caches, is paid for by the later ones.

        The interval is the speed-up's: the first call was taken once. None: that interval reaches
        no difference, or nothing may be read from it.
        """
        made = self.speed_up.comparison
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

        made = self.speed_up.comparison
        interval = stats.Interval(ratio(made.interval.high), ratio(made.interval.low))
        return stats.Estimate(ratio(made.effect), interval, stats.Unit.TIMES, len(eager.runs))


def batches(record: Record) -> list[int]:
    return [int(batch) for batch in str(record.case.params["batches"]).split()]


def pair(record: Record, batch: int | None = None, way: str = COMPILED) -> Pair:
    """The two of one cell at this batch size, or its first. Raises: Failed: its backend did."""
    if "failed" in record.values:
        raise Failed(f"it failed on {record.place}: {record.values['failed']}")
    records, at = Records([record]), batch or batches(record)[0]
    return Pair(timed(records, f"eager {at}", "eager"), timed(records, f"{way} {at}", way))


def cell(r: Records, network: str, device: str = "cpu", **way: str) -> Record:
    """A network by the default compiler unless another way is asked for."""
    return r.one(**{"kind": "cell", "network": network, "device": device, **DEFAULT, **way})


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def resnet_faster(r: Records) -> Contrast:
    """On the CPU, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return pair(cell(r, "resnet18")).speed_up


@page.claim(primary=True)
def bert_faster(r: Records) -> Contrast:
    """On the CPU, BERT is faster compiled than in eager mode once its first call is over."""
    return pair(cell(r, "bert")).speed_up


@page.claim
def capture_alone(r: Records) -> Contrast:
    """On the CPU, ResNet-18 captured, no code generated, takes eager mode's time within 5 %."""
    return pair(cell(r, "resnet18"), way=CAPTURE["backend"]).speed_up.within(SAME)


@page.claim
def equal_code(r: Records) -> Contrast:
    """Two of inductor's modes that generate equal code for ResNet-18 take equal time within 5 %."""
    record = cell(r, "resnet18")
    code = [record.values["generated"][mode]["code"] for mode in MODES]
    if code[0] != code[1]:
        raise Pending("two modes of equal code")
    first, second = (pair(record, way=mode).compiled for mode in MODES)
    return compare(second, first).within(SAME)


@page.claim
def cuda_faster(r: Records) -> Contrast:
    """On CUDA, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return pair(cell(r, "resnet18", "cuda")).speed_up


@page.claim
def cuda_graphs_faster(r: Records) -> Contrast:
    """On CUDA, ResNet-18 replayed as CUDA graphs is faster than in eager mode at a small batch."""
    return pair(cell(r, "resnet18", "cuda", mode="reduce-overhead")).speed_up


# ---- numbers ------------------------------------------------------------------------------------


def naive(r: Records, way: str, *, skip: int = 0) -> Counted:
    """The mean that the naive loop gives on the CPU, without its first calls or with them."""
    found = r.where(kind="naive", device="cpu")
    samples = timed(found, way).samples_s[0][skip:]
    return counted(1e3 * fmean(samples), "ms", of=found)


def first_call(r: Records, *, network: str, cached: bool = False) -> Counted:
    record = cell(r, network)
    arms = pair(record)
    seconds = arms.cached_s if cached else arms.compiled.first_call_s
    if seconds is None:
        raise Pending("a first call with filled caches")
    return counted(float(f"{seconds:.2g}"), "s", of=[record])


def paid(arms: Pair) -> float | None:
    """Calls until it pays, to two digits: a first call was timed once."""
    found = arms.calls_to_pay
    return float(f"{found[0]:.2g}") if found else None


def pays(r: Records, network: str) -> Counted:
    record = cell(r, network)
    if (calls := paid(pair(record))) is None:
        raise Pending("a speed-up")
    return counted(calls, of=[record])


def captured(r: Records, network: str) -> Contrast:
    return pair(cell(r, network), way=CAPTURE["backend"]).speed_up


def operators(record: Record, way: str) -> int:
    return sum(record.values["kernels"][way].values())


def kernels(record: Record, *parts: str) -> int:
    """The generated kernels of one call whose names hold all of these operators."""
    found = record.values["generated"][COMPILED]["kernels"].items()
    return sum(count for name, count in found if all(part in name for part in parts))


def generated(r: Records, network: str, *parts: str) -> Counted:
    record = cell(r, network)
    return counted(kernels(record, *parts), of=[record])


def guards(r: Records, way: str) -> Counted:
    found = r.where(kind="guards")
    return counted(1e6 * median(timed(found, way).samples_s[0]), "µs", of=found)


def naive_mistakes(r: Records) -> Counted:
    found = r.all(kind="naive", device="cpu")
    run = found[0].values["measurements"]
    return counted(len(lint.mistakes(run[COMPILED], against=run["eager"])), of=found)


page.numbers(
    naive_compiled=partial(naive, way=COMPILED),
    later_compiled=partial(naive, way=COMPILED, skip=1),
    later_eager=partial(naive, way="eager", skip=1),
    first_resnet=partial(first_call, network="resnet18"),
    cached_resnet=partial(first_call, network="resnet18", cached=True),
    resnet_pays=partial(pays, network="resnet18"),
    bert_pays=partial(pays, network="bert"),
    captured_bert=partial(captured, network="bert"),
    weights_copied=lambda r: generated(r, "resnet18", "convolution"),
    masks=lambda r: generated(r, "bert", "arange", "where"),
    guarded=partial(guards, way=COMPILED),
    unguarded=partial(guards, way="eager"),
    naive_mistakes=naive_mistakes,
    on_cuda=cuda_faster,
)


# ---- charts and tables --------------------------------------------------------------------------

CALLS = (1, 2, 3, 4, 5, *(round(10 ** (k / 8)) for k in range(6, 49)))  # to a million
LOOP = "naive loop, ResNet-18"


@page.chart
def total(r: Records) -> Chart:
    """All calls so far over eager mode's, at the smallest batch on the CPU; the loop at its own."""
    pairs = {title: pair(cell(r, network)) for network, title in NETWORKS.items()}
    found = [(title, arms.calls_to_pay) for title, arms in pairs.items()]
    loop = naive(r, COMPILED).value / naive(r, "eager").value
    rows = [
        {
            "calls": calls,
            **{title: arms.total(calls) for title, arms in pairs.items()},
            LOOP: loop if calls == NAIVE_CALLS else None,
        }
        for calls in CALLS
    ]
    return Chart(
        rows,
        x=log("calls", "calls that are averaged"),
        y=log(label="mean time of a call over eager mode's", unit="×"),
        marks=[
            *(span(*made[1], f"{title} pays") for title, made in found if made),
            level(1.0, "eager mode"),
            *(line(title, markers=False) for title in pairs),
            points(LOOP),
        ],
    )


def ways(record: Record, batch: int) -> list[str]:
    """What was timed against eager mode at this batch size."""
    beside = str(record.case.params.get("beside", "")).split()
    return [COMPILED, *(beside if batch == batches(record)[0] else [])]


def measured(r: Records) -> list[Record]:
    """The cells whose backend works. Raises: Pending: a network is missing on the CPU."""
    for network in NETWORKS:
        cell(r, network)
    return [record for record in r.where(kind="cell") if "measurements" in record.values]


@page.chart
def speed_ups(r: Records) -> Chart:
    rows = [
        _row(x, batch, way) for x in measured(r) for batch in batches(x) for way in ways(x, batch)
    ]
    return Chart(
        rows,
        x=linear("speed-up", "speed-up over eager mode", "×"),
        y=category("compiled as"),
        marks=[level(1.0, "eager mode"), intervals("speed-up")],
    )


def _row(record: Record, batch: int, way: str) -> Row:
    arms, model = pair(record, batch, way), NETWORKS[str(record.case.params["network"])]
    backend, mode = (str(record.case.params[name]) for name in DEFAULT)
    if way != COMPILED:
        backend, mode = ("inductor", way) if way in MODES else (way, "")
    cached = f" ({stats.number(arms.cached_s)} s)" if arms.cached_s is not None else ""
    first = f"{stats.number(arms.compiled.first_call_s)} s{cached}"
    shown = mode if backend == "inductor" else backend
    on = "" if record.case.params["device"] == "cpu" else f" on {record.place}"
    return {
        "compiled as": f"{model}{on}, batch {batch}, {shown}",
        "model": f"{model} on {record.place}",
        "batch": batch,
        "compiler": f"{backend}, {mode}" if backend == "inductor" else backend,
        "first call": first if way == COMPILED else "–",  # after others had compiled
        "eager": arms.eager,
        "compiled": arms.compiled,
        "speed-up": arms.eager / arms.compiled,
    }


@page.table
def costs(r: Records) -> Sequence[Row]:
    """The default compiler: what the first call takes, and when it is paid for."""
    rows: list[Row] = []
    for record in measured(r):
        if DEFAULT.items() <= record.case.params.items():
            for batch in batches(record):
                arms, row = pair(record, batch), _row(record, batch, COMPILED)
                calls = paid(arms)
                rows.append(
                    {
                        "model": f"{row['model']}, batch {batch}",
                        "first call (from the cache)": row["first call"],
                        "eager": arms.eager,
                        "compiled": arms.compiled,
                        "pays after": f"{calls:,.0f} calls" if calls else "not shown to",
                    }
                )
    return rows


# Operators that inductor leaves to a library: attention, convolutions and matrix products.
LIBRARY = {
    *("addmm", "bmm", "convolution", "linear", "mm"),
    *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"),
}


@page.table
def passes(r: Records) -> Sequence[Row]:
    """What one call on the CPU runs."""
    rows: list[Row] = []
    for network, title in NETWORKS.items():
        record = cell(r, network)
        made, left = kernels(record), record.values["kernels"][COMPILED]
        library = sum(left.get(name, 0) for name in LIBRARY)
        rows.append(
            {
                "one call": title,
                "eager": operators(record, "eager"),
                "compiled": operators(record, COMPILED) + made,
                "of them the library's": library,
                "of them generated": made,
            }
        )
    return rows
