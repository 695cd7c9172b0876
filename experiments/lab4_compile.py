"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

Every cell runs in a process of its own with empty compiler caches, so that its first call pays for
the whole compilation. The naive way is run as well, as a measurement like any other, and the linter
that reads the records has to find its mistakes.
"""

import importlib.util
import itertools
import os
import shutil
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from madl.logbook import stats
from madl.logbook.arms import TimedArm, speed_up, timed
from madl.logbook.charts import Chart, level, line, linear, log
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device, num_cores

page = Experiment(title="torch.compile: when does it pay?", timed=True)

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
DEFAULT = {"backend": "inductor", "mode": "default"}
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # less than what two runs of one day differ by
COMPILERS = ("g++", "clang++", "c++")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {
        "resnet18": choose(smoke=64, quick=224, full=224),
        "bert": choose(smoke=8, quick=32, full=32),
    }
    batches = {
        ("cpu", "resnet18"): choose(smoke=(1,), quick=(1,), full=(1, 8)),
        ("cpu", "bert"): choose(smoke=(2,), quick=(8,), full=(1, 8, 32)),
        ("cuda", "resnet18"): choose(smoke=(1,), quick=(1, 32, 128), full=(1, 32, 128)),
        ("cuda", "bert"): choose(smoke=(2,), quick=(1, 32, 128), full=(1, 32, 128)),
    }
    shared = {"budget_s": choose(smoke=0.02, quick=2.0, full=5.0)}
    for device in DEVICES:
        for network, size in sizes.items():
            for batch in batches[device, network]:
                base = {
                    "device": device,
                    "network": network,
                    "batch": batch,
                    "size": size,
                    **shared,
                }
                if network == "bert":
                    base |= {"model": plan.workload["model"]}
                for way in ways(plan, device, network):
                    yield {"kind": "cell", **base, **way}
        first = batches[device, "resnet18"][0]
        yield {
            **{"kind": "naive", "device": device, "network": "resnet18", "batch": first},
            **{"size": sizes["resnet18"], "naive_calls": NAIVE_CALLS, **shared, **naive_way(plan)},
        }
    lengths = choose(smoke="3 4", quick=LENGTHS, full=LENGTHS)
    yield {"kind": "shapes", "lengths": lengths}


LENGTHS = "11 13 17 19 23 29 31 37 41 43 47 53"


def ways(plan: Plan, device: str, network: str) -> list[dict[str, Any]]:
    """Backends, and inductor's modes; a short run on a CPU has time for few."""
    capture = {"backend": "aot_eager", "mode": "default"}
    if plan.profile.name == "smoke":
        return [capture]
    if device == "cpu" and plan.profile.name == "quick":
        return [DEFAULT, capture] if network == "resnet18" else [DEFAULT]
    modes = ("reduce-overhead", "max-autotune")
    found = [DEFAULT, capture, {"backend": "eager", "mode": "default"}]
    found += [{"backend": "inductor", "mode": mode} for mode in modes]
    if device == "cuda":
        found += [{"backend": b, "mode": "default"} for b in ("cudagraphs", "torch_tensorrt")]
    return found


def naive_way(plan: Plan) -> dict[str, Any]:
    return {"backend": "aot_eager", "mode": "default"} if plan.profile.name == "smoke" else DEFAULT


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
    from madl.machine import fresh

    argument = {**params, "threads": num_cores()}
    if params["kind"] == "naive":
        return fresh.call("madl.execution.compiling:measure_naively", argument)
    if params["kind"] == "shapes":
        sizes = [int(size) for size in str(params["lengths"]).split()]
        return fresh.call("madl.execution.compiling:study_shapes", {**argument, "sizes": sizes})
    return fresh.call("madl.execution.compiling:measure", argument)


# ---- reading the records ------------------------------------------------------------------------


class Pair(NamedTuple):
    """One model in eager mode and compiled, timed in turn in one process."""

    eager: TimedArm
    compiled: TimedArm

    @property
    def calls_to_pay(self) -> tuple[float, stats.Interval] | None:
        """After how many calls the first one is paid for; None while no speed-up is shown."""
        compared = speed_up(self.compiled, over=self.eager)
        if compared.blocked or compared.interval.low <= 0:
            return None
        firsts = zip(self.compiled.runs, self.eager.runs)
        extra = [slow["first_call_s"] - fast["first_call_s"] for slow, fast in firsts]
        return stats.break_even(extra, *(list(itertools.chain(*a.samples_s)) for a in self))


def pair(r: Records, **where: Any) -> Pair:
    """The two of one cell. Raises: Pending: it has not run, or its backend failed."""
    return Pair(timed(r, "eager", **where), timed(r, "compiled", **where))


def cell(r: Records, network: str, device: str = "cpu", **way: str) -> Record:
    """The smallest batch of a network, by the default compiler unless another way is asked for."""
    where = {"kind": "cell", "network": network, "device": device, **DEFAULT, **way}
    return r.one(**where, batch=min(r.where(**where).each("batch"), default=0))


def both(record: Record) -> Pair:
    return pair(Records([record]))


def place(record: Record) -> str:
    """The device; a borrowed GPU with its name."""
    return "CPU" if record.case.params["device"] == "cpu" else record.run.device


def rounded(calls: float) -> str:
    """Two significant digits: a first call was timed once."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def num_kernels(record: Record) -> tuple[int, int, int]:
    """What a call runs: operators of eager mode, calls left to a library, generated kernels."""
    before, after = (sum(record.values["kernels"][v].values()) for v in ("eager", "compiled"))
    on_cpu = record.case.params["device"] == "cpu"
    return before, after, sum(record.values["generated"].values()) if on_cpu else 0


# ---- claims -------------------------------------------------------------------------------------


def _faster(record: Record) -> Judged:
    eager, compiled = both(record)
    p = record.case.params
    times = f"{compiled} a call after the first, against {eager} in eager mode"
    what = f"{NETWORKS[str(p['network'])]} (batch {p['batch']}) on the {place(record)}"
    return compare(compiled, eager).judge(
        supported=f"Compiled, {what} is {eager / compiled} as fast: {times}",
        refuted=f"Compiled, {what} is slower and takes {compiled / eager} the time: {times}",
        undecided=f"Nothing shows that {what} gains or loses speed when compiled: "
        f"{eager / compiled:i} as fast as eager mode's {eager} a call",
    )


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
    """On CUDA, BERT compiled with CUDA graphs is faster than in eager mode at a small batch."""
    return _faster(cell(r, "bert", "cuda", mode="reduce-overhead"))


@page.claim
def capture_alone(r: Records) -> Judged:
    """Capturing ResNet-18's graph without generating code does not change the time of a call."""
    eager, captured = both(cell(r, "resnet18", backend="aot_eager"))
    what, margin = "capturing ResNet-18's graph alone", f"{stats.number(100 * SAME)} %"
    times = f"{captured} a call captured, {eager} in eager mode"
    alike = compare(captured, eager).within(SAME)
    return alike.judge(
        supported=f"Generating no code, {what} changes its time by less than {margin}: {times}",
        refuted=f"Generating no code, {what} changes its time by more than {margin}: {times}",
        undecided=f"Whether {what} changes its time by {margin} is open: a speed-up of "
        f"{eager / captured:i} over {eager} in eager mode",
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact
def naive_compiles(r: Records) -> Fact:
    where = {"kind": "naive", "device": "cpu"}
    eager, compiled = ([1e3 * s for s in timed(r, v, **where).samples_s[0]] for v in Pair._fields)
    return Fact(
        text=f"Timed naively on the CPU, a call of ResNet-18 takes {stats.number(fmean(compiled))} "
        f"ms compiled and {stats.number(fmean(eager))} ms in eager mode. That is a mean which "
        "includes the first call, and the first compiled call is the compilation: "
        f"{stats.per_cent(compiled[0] / sum(compiled))} of the time of all compiled calls",
        of=f"{len(compiled)} calls of each in 1 process",
    )


@page.fact
def pays_back(r: Records) -> Fact:
    said: list[str] = []
    for network, title in NETWORKS.items():
        arms = both(cell(r, network))
        found = arms.calls_to_pay
        enough = "no number of calls is shown to pay for that"
        if found is not None:
            calls, (low, high) = found
            enough = f"{rounded(calls)} calls [{rounded(low)}, {rounded(high)}] pay for that"
        first = stats.number(arms.compiled.first_call_s)
        said.append(f"the first call of compiled {title} takes {first} s, and {enough}")
    return Fact(
        text=f"On the CPU, {'; '.join(said)}", of="1 first call and all timed later calls of each"
    )


@page.fact
def fewer_passes(r: Records) -> Fact:
    said: list[str] = []
    for network, title in NETWORKS.items():
        before, left, generated = num_kernels(cell(r, network))
        said.append(
            f"{title} runs {before} operators in eager mode and {left + generated} compiled, "
            f"{generated} of them generated"
        )
    return Fact(text="; ".join(said), of="the operators of one call on the CPU")


@page.fact
def linter_finds(r: Records) -> Fact:
    naive = pair(r, kind="naive", device="cpu")
    right = [both(record) for record in _cells_that_ran(r)]
    wrong, *others = (p.compiled.mistakes(lint.mistakes, against=p.eager) for p in (naive, *right))
    failing = [mistakes for mistakes in others if mistakes]
    which = f" ({', '.join(sorted(set(itertools.chain(*failing))))})" if failing else ""
    checks = len(lint.CHECKS) + 1
    return Fact(
        text=f"The naive timing fails {len(wrong)} of the linter's {checks} checks; of this page's "
        f"own {len(others)} timings, {len(failing)} fail a check{which}",
        of=f"{checks} checks of {1 + len(others)} records",
    )


def _cells_that_ran(r: Records) -> list[Record]:
    return [record for record in r.where(kind="cell") if "measurements" in record.values]


@page.fact
def sizes_recompile(r: Records) -> Fact:
    values = r.one(kind="shapes").values
    static, automatic, dynamic = (
        values["graphs"][name][-1] for name in ("static", "automatic", "dynamic")
    )
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
    caption="Total time of all calls so far over eager mode's, on the CPU. The first call pays for "
    "the compilation; where a line is below eager mode's, that has been paid for. The axis is cut."
)
def total(r: Records) -> Chart:
    rows: list[dict[str, Any]] = [{"calls": calls} for calls in CALLS]
    for network, title in NETWORKS.items():
        arms = both(cell(r, network))
        for row in rows:
            eager, compiled = (a.first_call_s + (row["calls"] - 1) * a.median_s for a in arms)
            row[title] = compiled / eager
    return Chart(
        rows,
        x=log("calls", "calls of the model"),
        y=linear(label="total time over eager mode's", unit="×", limits=(0, TOP)),
        marks=[level(1.0, "eager mode"), *(line(t, markers=False) for t in NETWORKS.values())],
    )


@page.chart(
    caption="Graphs compiled so far, for one new batch size a call: sizes fixed, left to "
    "torch.compile, or declared variable."
)
def graphs(r: Records) -> Chart:
    values = r.one(kind="shapes").values
    made = values["graphs"]
    return Chart(
        [
            {"call": i + 1, "size": size, **{name: made[name][i] for name in made}}
            for i, size in enumerate(values["sizes"])
        ],
        x=linear("call", "call, each with a new batch size"),
        y=linear(label="graphs compiled so far"),
        marks=[line(name) for name in ("static", "automatic", "dynamic")],
    )


@page.table
def cells(r: Records) -> Sequence[Row]:
    cell(r, "resnet18"), cell(r, "bert")  # pending without them, whatever else is there
    return [_cell_row(record) for record in r.where(kind="cell")]


def _cell_row(record: Record) -> Row:
    p = record.case.params
    way = str(p["backend"])
    row: dict[str, Any] = {
        "model": f"{NETWORKS[str(p['network'])]} on {place(record)}",
        "batch": p["batch"],
        "compiler": f"{way}, {p['mode']}" if way == "inductor" else way,
    }
    if "failed" in record.values:
        names = ("eager", "compiled", "speed-up", "pays after")
        return {**row, "first call": record.values["failed"], **dict.fromkeys(names, "–")}
    arms = both(record)
    calls = arms.calls_to_pay
    return {
        **row,
        "first call": f"{stats.number(arms.compiled.first_call_s)} s",
        "eager": arms.eager,
        "compiled": arms.compiled,
        "speed-up": arms.eager / arms.compiled,
        "pays after": "not shown" if calls is None else f"{rounded(calls[0])} calls",
    }


@page.table
def timings(r: Records) -> Sequence[Row]:
    """ResNet-18 by both ways of timing: what came first, what came later, what is reported."""
    rows: list[Row] = []
    for device in [d for d in DEVICES if r.where(kind="naive", device=d)]:
        right = cell(r, "resnet18", device)
        naive = pair(r, kind="naive", device=device)
        for way, arms in (("naive", naive), ("this page", both(right))):
            for variant, arm in zip(Pair._fields, arms):
                row = {"device": place(right), "timing": way, "variant": variant}
                rows.append({**row, **_timing(arm)})
    return rows


def _timing(arm: TimedArm) -> Row:
    """In milliseconds; a naive first call is one of the samples, and in the mean of them."""
    kept, samples = arm.runs[0]["first_call_s"], arm.samples_s[0]
    first, later = (samples[0], samples[1:]) if kept is None else (kept, samples)
    return {
        "first call (ms)": 1e3 * first,
        "median of later calls (ms)": 1e3 * median(later),
        "reported (ms)": 1e3 * (fmean(samples) if kept is None else median(samples)),
    }


@page.table
def checks(r: Records) -> Sequence[Row]:
    both_ways = (pair(r, kind="naive", device="cpu"), both(cell(r, "resnet18")))
    wrong, right = (lint.lint(p.compiled.runs[0], against=p.eager.runs[0]) for p in both_ways)
    return [
        {"check": w.check, "naive timing": _mark(w), "this page's timing": _mark(o)}
        for w, o in zip(wrong, right)
    ]


def _mark(finding: lint.Finding) -> str:
    return f"{'✓' if finding.passed else '✗'} {finding.why}"


@page.table
def kernels(r: Records) -> Sequence[Row]:
    """What ResNet-18's call runs before and after, by name."""
    values = cell(r, "resnet18").values
    before, after = (
        values["kernels"]["eager"],
        {**values["kernels"]["compiled"], **values["generated"]},
    )
    return [
        {"runs": f"`{name}`", "eager": before.get(name, 0), "compiled": after.get(name, 0)}
        for name in {**before, **after}
    ]


@page.table
def breaks(r: Records) -> Sequence[Row]:
    return [
        {
            "function has": name,
            "graphs": example["graphs"],
            "breaks": example["breaks"],
            "torch says": example["why"] or "–",
        }
        for name, example in r.one(kind="shapes").values["breaks"].items()
    ]
