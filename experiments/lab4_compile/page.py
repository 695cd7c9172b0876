"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A cell is a network under one compiler, in several fresh processes. The first finds the compiler's
caches empty, and its first call pays for all the compilation; later ones load what it made, each in
another order. On a CPU the modes take turns in the same processes, and two of them whose code is
equal are the control. The naive way is run as well, and the records' linter has to find its faults.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from experiments.lab4_compile.compiled import (
    DEFAULT,
    MODES,
    NETWORKS,
    batches,
    cell,
    cell_rows,
    drawn,
    lacking,
    measured,
    meetings,
    pair,
    problem,
    speed,
    totals,
)
from experiments.lab4_compile.compiled_facts import (
    against_default,
    between_equals,
    broken,
    captured_too,
    fewer_passes,
    first_calls,
    graphs_made,
    kinds,
    linted,
    masks_made,
    naive_on_cuda,
    naive_times,
    not_explained,
)
from madl.logbook import stats
from madl.logbook.arms import timed
from madl.logbook.charts import Chart, category, intervals, level, line, linear, log
from madl.logbook.claims import Fact, Judged, compare
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
PROCESSES = {"resnet18": 6, "bert": 5}  # one more where the effect is smaller
NAIVE_CALLS = 5  # as in the course's notebook
SAME = 0.05  # of the time: less is not worth a compilation
LENGTHS = "11 13 17 19 23 29 31 37 41 43 47 53"


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sizes = {"resnet18": choose(smoke=64, quick=224), "bert": choose(smoke=8, quick=32)}
    batches = {
        "cpu": choose(smoke="1 2", quick="1 8"),
        "cuda": choose(smoke="1 2", quick="1 32 128"),
    }
    processes = {n: choose(smoke=1, quick=count, full=9) for n, count in PROCESSES.items()}
    budget = {"budget_s": choose(smoke=0.0, quick=0.4, full=2.0)}
    for device in ("cpu", "cuda"):
        for network, size in sizes.items():
            base = {"device": device, "network": network, "size": size, **budget}
            base |= {"batches": batches[device], "processes": processes[network]}
            if network == "bert":
                base |= {"model": plan.workload["model"]}
            for way in compilers(plan, device):
                yield {"kind": "cell", **base, **way}
        naive = CAPTURE if plan.profile.name == "smoke" else DEFAULT
        image = {"network": "resnet18", "size": sizes["resnet18"], "batch": 1}
        yield {"kind": "naive", "device": device, **image, "naive_calls": NAIVE_CALLS, **naive}
    yield {"kind": "guards", **budget}
    yield {"kind": "shapes", "lengths": choose(smoke="3 4", quick=LENGTHS)}


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
    return no_device(params) or lacking(params)


@page.quick
def quick(params: Params) -> bool:
    return params["kind"] in ("guards", "shapes")


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_compile import compiling

    return compiling.study({**params, "threads": num_cores()})


# ---- claims -------------------------------------------------------------------------------------


def _faster(record: Record) -> Judged:
    arms, batch = pair(record), batches(record)[0]
    what = f"{problem(record, batch)}, {record.place}, {drawn(arms)}"
    return speed(arms, f"after the first call ({what})")


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
    """On the CPU, ResNet-18 captured, no code generated, takes eager mode's time within 5 %."""
    record = cell(r, "resnet18")
    eager, captured = arms = pair(record, way=CAPTURE["backend"])
    what = f"capturing ResNet-18's graph alone ({problem(record, batches(record)[0])}, CPU)"
    margin = f"{stats.number(100 * SAME)} %"
    times = f"{captured} a call captured and {eager} in eager mode, {arms.as_equivalence}"
    return (
        compare(captured, eager)
        .within(SAME)
        .judge(
            supported=f"Generating no code, {what} changes its time by less than {margin}: {times}",
            refuted=f"Generating no code, {what} changes its time by more than {margin}: {times}",
            undecided=f"Whether {what} changes its time by {margin} is open: {times}",
        )
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def naive_compiles(r: Records) -> Fact:
    naive = r.where(kind="naive", device="cpu")
    what = f"{NAIVE_CALLS} calls, {problem(naive.one(), 1)}"
    return Fact(
        text=f"Timed naively on the CPU ({what}), ResNet-18 takes {first_calls(naive)}. "
        f"Without it, still in training mode and with gradients, the other calls say "
        f"{naive_times(naive, skip=1)}{naive_on_cuda(r)}",
        of=f"{stats.counted(len(r.where(kind='naive')), 'process')} timed naively, in training "
        "mode and with gradients",
    )


@page.fact
def first_ones(r: Records) -> Fact:
    resnet, bert = (pair(cell(r, network)) for network in ("resnet18", "bert"))
    counts = f"{len(resnet.filled_s)} and {len(bert.filled_s)}"
    return Fact(
        text=f"On the CPU, the first call of compiled ResNet-18 takes {resnet.first_call} and that "
        f"of compiled BERT {bert.first_call}: with the compiler's cache on disk empty and, in "
        "brackets, in a later process that finds there what was compiled",
        of=f"1 first call with an empty cache each, medians of {counts} with a filled one",
    )


@page.fact
def control(r: Records) -> Fact:
    record = cell(r, "resnet18")
    where = f"{drawn(pair(record))}, {problem(record, batches(record)[0])}"
    return Fact(text=between_equals(record), of=f"{where}; the interval is not corrected")


@page.fact
def modes_compared(r: Records) -> Fact:
    record = cell(r, "resnet18")
    of = f"{drawn(pair(record))}, ResNet-18 on the CPU; intervals not corrected"
    return Fact(text=against_default(record), of=of)


for counted in (kinds, fewer_passes, masks_made, captured_too, not_explained):
    page.fact(counted)


@page.fact
def guards_cost(r: Records) -> Fact:
    guards = r.where(kind="guards")
    each = [timed(guards, variant).samples_s[0] for variant in ("eager", "compiled")]
    eager, compiled = (f"{stats.number(1e6 * median(samples))} µs" for samples in each)
    return Fact(
        text=f"Adding one to a tensor of one element takes {eager} in eager mode and {compiled} "
        "when torch.compile runs the same addition behind its guards",
        of=f"medians of {len(each[0])} and {len(each[1])} samples, of 1 process",
    )


@page.fact
def linter_finds(r: Records) -> Fact:
    naive, few = linted(record.values for record in r.where(kind="naive", device="cpu"))
    own, many = linted(x.values for x in (*measured(r), *r.where(kind="guards")))
    return Fact(
        text=f"What the linter finds in the naive timings: {naive}. In all others of this page: "
        f"{own}",
        of=f"{len(lint.CHECKS) + len(lint.AGAINST)} checks of each of {few} and {many} timings; a "
        "timing is of one way to run a model, at one batch size, in one process",
    )


@page.fact
def sizes_recompile(r: Records) -> Fact:
    values = r.one(kind="shapes").values
    return Fact(
        text=f"Called with one new batch size after another, {graphs_made(values)}",
        of=f"{len(values['sizes'])} batch sizes",
    )


@page.fact
def data_breaks(r: Records) -> Fact:
    values = r.one(kind="shapes").values
    return Fact(text=broken(values), of=f"{len(values['breaks'])} functions")


# ---- charts and tables --------------------------------------------------------------------------

TOP = 3.0  # where the axis is cut: the first calls are hundreds of times slower


@page.chart(
    caption="How many times as fast a call is as in eager mode, after the first one, with the "
    "interval from between processes, not corrected. inductor is torch.compile's own compiler, "
    "with its mode; aot_eager captures the graph and generates no code. Left of the line: slower."
)
def speed_ups(r: Records) -> Chart:
    rows = [
        {**row, "compiled as": f"{row['model']}, batch {row['batch']}, {row['compiler']}"}
        for row in cells(r)
        if not isinstance(row["speed-up"], str)
    ]
    return Chart(
        rows,
        x=linear("speed-up", "speed-up over eager mode", "×"),
        y=category("compiled as"),
        marks=[level(1.0, "eager mode"), intervals("speed-up")],
    )


@page.chart(
    caption="Total time of all calls so far over eager mode's, on the CPU, at the smallest batch, "
    "the first call with empty caches and every later one its median: where a line is below eager "
    "mode's, it is paid. Bands, and what is shaded where they cross eager mode's line: the "
    "speed-up's interval, not corrected. The axis is cut."
)
def total(r: Records) -> Chart:
    pairs = {title: pair(cell(r, network)) for network, title in NETWORKS.items()}
    return Chart(
        totals(pairs),
        x=log("calls", "calls of the model"),
        y=linear(label="total time over eager mode's", unit="×", limits=(0, TOP)),
        marks=[*meetings(pairs), level(1.0, "eager mode")]
        + [line(title, markers=False) for title in pairs],
    )


@page.table
def cells(r: Records) -> Sequence[Row]:
    measured(r)
    return [row for x in r.where(kind="cell") for row in cell_rows(x)]
