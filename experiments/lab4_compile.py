"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A cell is a network under one compiler, in several fresh processes. The first finds the compiler's
caches empty, and its first call pays for all the compilation; later ones load what it made. On a
CPU the modes take turns in the same processes. The naive way is run as well, and the linter that
reads the records has to find its mistakes.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from madl.execution.compiled import (
    DEFAULT,
    MODES,
    NETWORKS,
    Pair,
    against_default,
    batches,
    cell,
    cell_rows,
    every_pair,
    first_calls,
    kernel_kinds,
    lacking,
    measured,
    naive_times,
    operators,
    pair,
    totals,
)
from madl.logbook import stats
from madl.logbook.arms import timed
from madl.logbook.charts import Chart, category, intervals, level, line, linear, log, span
from madl.logbook.claims import Fact, Judged, compare, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device, num_cores

page = Experiment(
    title="torch.compile: when does it pay?", timed=lambda params: params["kind"] != "shapes"
)

CAPTURE = {"backend": "aot_eager", "mode": "default"}
BESIDE = " ".join((CAPTURE["backend"], *MODES))  # what takes turns with the default on a CPU
ON_CUDA = ("cudagraphs", "torch_tensorrt")
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # of the time: less is not worth a compilation
WHOLE = "tensor operations only"
LENGTHS = "11 13 17 19 23 29 31 37 41 43 47 53"


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {
        "resnet18": choose(smoke=64, quick=224),
        "bert": choose(smoke=8, quick=32),
    }
    batches = {
        "cpu": choose(smoke="1 2", quick="1 8", full="1 8 32"),
        "cuda": choose(smoke="1 2", quick="1 32 128"),
    }
    fewer = {("cpu", "resnet18"): choose(smoke="1 2", quick="1", full="1 8 32")}
    repeated = {
        "budget_s": choose(smoke=0.0, quick=0.2, full=2.0),
        "processes": choose(smoke=2, quick=4, full=9),
    }
    for device in ("cpu", "cuda"):
        for network, size in sizes.items():
            base = {"device": device, "network": network, "size": size}
            base |= {"batches": fewer.get((device, network), batches[device])}
            if network == "bert":
                base |= {"model": plan.workload["model"]}
            for way in compilers(plan, device, network):
                yield {"kind": "cell", **base, **repeated, **way}
        naive = CAPTURE if plan.profile.name == "smoke" else DEFAULT
        image = {"network": "resnet18", "size": sizes["resnet18"], "batch": 1}
        yield {"kind": "naive", "device": device, **image, "naive_calls": NAIVE_CALLS, **naive}
    yield {"kind": "guards", **repeated, "processes": 1}
    yield {"kind": "shapes", "lengths": choose(smoke="3 4", quick=LENGTHS)}


def compilers(plan: Plan, device: str, network: str) -> list[dict[str, Any]]:
    """Backends and inductor's modes: on a CPU in the same processes, on CUDA each in its own."""
    if plan.profile.name == "smoke":
        return [{**CAPTURE, "beside": ""}]
    every_mode = network == "resnet18" or plan.profile.name == "full"
    if device == "cpu":
        return [{**DEFAULT, "beside": BESIDE if every_mode else ""}]
    modes = ({"backend": "inductor", "mode": mode} for mode in MODES)
    found = [DEFAULT, *((CAPTURE, *modes) if every_mode else ())]
    found += [{"backend": backend, "mode": "default"} for backend in ON_CUDA]
    return [{**way, "beside": ""} for way in found]


@page.unavailable
def unavailable(params: Params) -> str | None:
    """No device, no compiler, no such backend: why a case cannot run here."""
    return no_device(params) or lacking(params)


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import compiling

    return compiling.study({**params, "threads": num_cores()})


# ---- claims -------------------------------------------------------------------------------------


def _faster(record: Record) -> Judged:
    eager, compiled = pair(record)
    where = f"after the first call (batch {batches(record)[0]}, {record.place})"
    return faster(compiled, eager, where)


@page.claim
def resnet_faster(r: Records) -> Judged:
    """On the CPU, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return _faster(cell(r, "resnet18"))


@page.claim
def bert_faster(r: Records) -> Judged:
    """On the CPU, BERT is faster compiled than in eager mode once its first call is over."""
    return _faster(cell(r, "bert"))


@page.claim
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
    eager, captured = pair(cell(r, "resnet18"), way=CAPTURE["backend"])
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
    return Fact(
        text=f"Timed naively on the CPU ({NAIVE_CALLS} calls), ResNet-18 takes "
        f"{first_calls(naive)}. After it, in evaluation mode without gradients, a call takes "
        f"{right.compiled} compiled and {right.eager} in eager mode, and {right.enough}",
        of=f"1 process timed naively, and {len(right.eager.runs)} processes",
    )


@page.fact
def pays_back(r: Records) -> Fact:
    arms = ((title, pair(cell(r, network))) for network, title in NETWORKS.items())
    said = (f"the first call of compiled {t} takes {x.first_call}, and {x.enough}" for t, x in arms)
    of = "1 first call with empty caches, the other processes' median with filled ones"
    return Fact(text=f"On the CPU, {'; '.join(said)}", of=of)


@page.fact
def modes_alike(r: Records) -> Fact:
    record = cell(r, "resnet18")
    of = f"{len(pair(record).eager.runs)} processes, ResNet-18; intervals not corrected"
    return Fact(text=f"Against the mode `default`, {against_default(record)}", of=of)


@page.fact
def kinds(r: Records) -> Fact:
    each = (f"{title}: {kernel_kinds(cell(r, n))}" for n, title in NETWORKS.items())
    return Fact(text="; ".join(each), of="generated kernels, by the operators in their names")


@page.fact
def fewer_passes(r: Records) -> Fact:
    each = (f"{title} runs {operators(cell(r, n))}" for n, title in NETWORKS.items())
    return Fact(text="; ".join(each), of="the operators of one call on the CPU")


@page.fact
def guards_cost(r: Records) -> Fact:
    guards = r.where(kind="guards")
    both = [timed(guards, v).samples_s for v in Pair._fields]
    eager, compiled = (median(samples) for one in both for samples in one[:1])
    return Fact(
        text=f"A function that adds one to a number takes {stats.number(1e6 * eager)} µs in eager "
        f"mode and {stats.number(1e6 * compiled)} µs when torch.compile runs the same addition "
        "behind its guards",
        of=f"medians of {len(both[0][0])} samples each, of 1 process",
    )


@page.fact
def linter_finds(r: Records) -> Fact:
    naive = r.where(kind="naive", device="cpu")
    one = naive.one().values["measurements"]
    wrong = lint.mistakes(one["compiled"], against=one["eager"])
    pairs = [one for record in measured(r) for one in every_pair(record)]
    said, count = lint.failing((compiled.runs, eager.runs) for eager, compiled in pairs)
    return Fact(
        text=f"Without its first call, the naive timing says {naive_times(naive, skip=1)}. It "
        f"fails {len(wrong)} of the linter's checks: {', '.join(wrong)}. This page's fail: {said}",
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

TOP = 3.0  # where the axis is cut: the first calls are hundreds of times slower


@page.chart(
    caption="How many times as fast a call is as in eager mode, after the first one, with the "
    "interval from between processes: a row a batch size and compiler. Left of the line is slower."
)
def speed_ups(r: Records) -> Chart:
    rows = [
        {**row, "call": f"{row['model']}, batch {row['batch']}, {row['compiler']}"}
        for row in cells(r)
        if not isinstance(row["speed-up"], str)
    ]
    return Chart(
        rows,
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
    pairs = {title: pair(cell(r, network)) for network, title in NETWORKS.items()}
    paid = [(title, arms.calls_to_pay) for title, arms in pairs.items()]
    return Chart(
        totals(pairs),
        x=log("calls", "calls of the model"),
        y=linear(label="total time over eager mode's", unit="×", limits=(0, TOP)),
        marks=[
            *(span(*found[1], f"{title} pays") for title, found in paid if found),
            level(1.0, "eager mode"),
            *(line(t, markers=False) for t in NETWORKS.values()),
        ],
    )


@page.table
def cells(r: Records) -> Sequence[Row]:
    measured(r)
    return [row for x in r.where(kind="cell") for row in cell_rows(x)]
