"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A way to run a network is a compiler and a form: what is done to the network by hand before. A case
is one fresh process with empty caches, in which eager forms and compiled ones take turns, or in
which the course's own loop runs. The fastest forms are chosen by a tuning process; sittings confirm
on the CPU, processes on CUDA, and they are the units.
"""

import importlib.util
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from experiments.lab4_compile import design
from experiments.lab4_compile.design import ALL, BUILT, EAGER, FROZEN, LAB_BATCH, ONE
from madl.logbook.arms import TimedArm, timed_arm
from madl.logbook.charts import Chart, bars, category, intervals, level, linear
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import TUNING, Experiment, Plan
from madl.logbook.numbers import (
    ExactValue,
    NumberFn,
    computed,
    contended_processes,
    exact,
    hours_of,
)
from madl.logbook.records import (
    Failed,
    Params,
    Pending,
    Record,
    Records,
    Row,
    Scalar,
    Unplanned,
    none_if_pending,
)
from madl.logbook.stats import CONTENDED
from madl.logbook.values import Estimate, number
from madl.machine import lint

page = Experiment(timed=True, version=2)

STEM = "lab4_compile"
NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
COMPILERS = {
    "eager": "eager",
    "default": "compiled",
    "frozen": "compiled, frozen",
    "reduce-overhead": "compiled, reduce-overhead",
    "aot_eager": "captured only",
    "cudagraphs": "CUDA graphs",
    "torch_tensorrt": "Torch-TensorRT",
}
FORM_TITLES = {
    "plain": "as built",
    "channels_last": "channels_last",
    "folded": "batch norms folded",
    "both": "folded and channels_last",
    "unmasked": "no mask",
}
SMOKE_WAY = "aot_eager/plain"  # generates no code, so nothing has to be compiled
SMOKE_SIZES = {"resnet18": 64, "bert": 8}


def network_params(plan: Plan, network: str, device: str, batch: int) -> dict[str, Scalar]:
    size = plan.profile.choose(smoke=SMOKE_SIZES, quick=design.SIZES)[network]
    batch = plan.profile.choose(smoke=min(batch, 2), quick=batch)
    params = {"device": device, "network": network, "size": size, "batch": batch}
    return params | ({"model": plan.workload["model"]} if network == "bert" else {})


def process_params(plan: Plan, built: str, ways: Iterable[str], **where: Any) -> Params:
    """Parameters of a process in which these ways take turns, `built` among them."""
    dtype, cores = where.pop("dtype", "float32"), where.pop("cores", ALL)
    how = {"dtype": dtype, "cores": cores} if where["device"] == "cpu" else {}
    return {
        "built": built,
        "ways": " ".join(dict.fromkeys(ways)),
        "budget_s": plan.profile.choose(smoke=0.0, quick=design.BUDGET_S),
        **{**network_params(plan, **where), **how},
    }


def eager_forms(network: str) -> list[str]:
    return [f"eager/{form}" for form in design.FORMS[network]]


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for process, (network, batch) in product(
        design.TUNING, plan.profile.choose(smoke=design.TUNED[1:2], quick=design.TUNED)
    ):
        ways = plan.profile.choose(smoke=(SMOKE_WAY,), quick=design.TRIED[network])
        every, where = (*eager_forms(network), *ways), {"network": network, "batch": batch}
        params = process_params(plan, ways[0], every, device="cpu", **where)
        yield {"kind": "ways", "process": process, **params}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, tuned = plan.profile.choose, plan.records(f"{STEM}{TUNING}")
    backend = choose(smoke="eager", quick="inductor")
    loop = {"kind": "naive", "naive_calls": design.LAB_CALLS, "backend": backend}
    for sitting in choose(smoke=(1,), quick=design.SITTINGS):
        yield {**loop, "process": sitting, **network_params(plan, "resnet18", "cpu", LAB_BATCH)}
        for network, batch, dtype, cores in choose(smoke=design.CPU[-1:], quick=design.CPU):
            ways = [EAGER, *choose(smoke=(SMOKE_WAY,), quick=(BUILT, FROZEN))]
            if plan.profile.name != "smoke" and is_tuned(network, batch, dtype, cores):
                ways += [fastest(tuned, network, batch, kind) for kind in ("eager", "compiled")]
            where = {"network": network, "batch": batch, "dtype": dtype, "cores": cores}
            params = process_params(plan, ways[1], ways, device="cpu", **where)
            yield {"kind": "time", "process": sitting, **params}
    for process, network in product(design.PROFILED, choose(smoke=(), quick=tuple(NETWORKS))):
        where = {"network": network, "device": "cpu", "batch": 1}
        params = process_params(plan, BUILT, (EAGER, BUILT), **where)
        yield {"kind": "parts", "process": process, **params}
    processes = choose(smoke=(1,), quick=design.CUDA_PROCESSES)
    networks = choose(smoke=("bert",), quick=tuple(NETWORKS))
    for process, network, (batch, ways) in product(processes, networks, design.CUDA.items()):
        for way in choose(smoke=[SMOKE_WAY] if batch == 1 else [], quick=ways):
            where = {"network": network, "device": "cuda", "batch": batch}
            params = process_params(plan, way, (*eager_forms(network), way), **where)
            yield {"kind": "time", "process": process, **params}
    for network in choose(smoke=("resnet18",), quick=tuple(NETWORKS)):
        yield {**loop, **network_params(plan, network, "cuda", LAB_BATCH)}


def is_tuned(network: str, batch: int, dtype: str, cores: str) -> bool:
    """Whether tuning chose the fastest forms for this setting of the CPU."""
    return (network, batch) in design.TUNED and (dtype, cores) == ("float32", ALL)


def fastest(tuned: Records, network: str, batch: int, kind: str) -> str:
    """The eager or compiled way that was the fastest in the tuning process.

    Raises:
        Pending: it is missing.
    """
    runs = tuned.single(**ways_params(network, batch)).values["measurements"]
    ways = [way for way in runs if way.startswith("eager/") == (kind == "eager")]
    return min(ways, key=lambda way: median(runs[way]["samples_s"]))


@page.unavailable
def unavailable(params: Params) -> str | None:
    compiler = str(params.get("built", params.get("backend"))).partition("/")[0]
    if compiler == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    from kernels import compilers

    if compiler not in ("aot_eager", "cudagraphs") and not any(compilers.cpp()):
        return compilers.NO_COMPILER
    return None


@page.quick
def quick(params: Params) -> bool:
    """One sitting at a batch of one."""
    where = timed_params(str(params["network"]))
    return {**where, "process": design.SITTINGS[0]}.items() <= params.items()


def timed_params(
    network: str,
    batch: int = 1,
    device: str = "cpu",
    *,
    built: str = BUILT,
    dtype: str = "float32",
    cores: str = ALL,
) -> dict[str, Scalar]:
    """Parameters of the cases in which ways take turns; `built` is compiled first."""
    how = {"dtype": dtype, "cores": cores} if device == "cpu" else {}
    where = {"device": device, "network": network, "batch": batch, "built": built}
    return {"kind": "time", **where, **how}


def ways_params(network: str, batch: int = 1) -> dict[str, Scalar]:
    """Parameters of the cases in which all ways that are tried take turns."""
    return {**timed_params(network, batch), "kind": "ways"}


def way_title(way: str) -> str:
    compiler, _, form = way.partition("/")
    return f"{COMPILERS[compiler]}, {FORM_TITLES[form]}"


def pair(r: Records, compiled: str, eager: str = EAGER, **where: Scalar) -> list[TimedArm]:
    """The times of two ways, `compiled` and `eager`, in the same processes.

    Raises:
        Failed: one of them did not run there.
        Pending: a process is missing.
    """
    for record, way in product(r.all(**where), (compiled, eager)):
        if reason := record.values["missing"].get(way):
            raise Failed(f"{way_title(way)} failed on {record.place}: {reason}")
    return [timed_arm(r, way, way_title(way), **where) for way in (compiled, eager)]


def over_eager(r: Records, network: str, way: str = BUILT, **where: Any) -> Contrast:
    """A compiled way over eager mode, the network as it is built: the usual comparison."""
    return compare(*pair(r, way, **timed_params(network, **where)))


def at_best(r: Records, network: str, batch: int) -> Contrast:
    """The fastest compiled form over the fastest eager form, as tuning chose them."""
    compiled, eager = (fastest(r.tuning, network, batch, kind) for kind in ("compiled", "eager"))
    return compare(*pair(r, compiled, eager, **timed_params(network, batch)))


def by_the_loop(
    r: Records, way: str, mode: str = "training", skip: int = 0, **on: Scalar
) -> TimedArm:
    """Times of the course's loop: of each sitting the mean of a call, without the first `skip`."""
    name = f"{way}, {mode}"
    where = {"kind": "naive", "device": "cpu", "network": "resnet18", **on}
    arm = timed_arm(r, name, f"{way}, by the loop", **where)
    runs = [(run, run["samples_s"]) for run in arm.runs]
    means = [{**run, "samples_s": [fmean(s[skip:])], "first_call_s": s[0]} for run, s in runs]
    return replace(arm, runs=tuple(means))


def loop_ratio(r: Records, mode: str = "training", skip: int = 0) -> Contrast:
    """Compiled over eager by the course's loop on the CPU, without its first `skip` calls."""
    compiled, eager = (by_the_loop(r, way, mode, skip) for way in ("compiled", "eager"))
    if len(compiled.runs) == 1:
        raise Pending("a second sitting of the course's loop")
    return compare(compiled, eager)


def first_s(arm: TimedArm) -> float:
    """Seconds of the first call: the median of the processes that are not contended."""
    return median(float(arm.runs[i]["first_call_s"]) for i in arm.uncontended)


def calls_to_pay(compiled: TimedArm, eager: TimedArm, first: float) -> tuple[float, ...] | None:
    """The number of calls after which a first call of so many seconds is paid for by what later
    ones save, and the least and the most by the interval of the speed-up; None where it is not
    shown that they save time."""
    comparison = compare(compiled, eager).comparison
    if comparison.blocked or comparison.interval.low <= 0:
        return None
    low, high = comparison.interval
    longer = max(first / eager.median_s - 1, 0.0)  # the first call takes, in eager calls
    saved = 1 - compiled.median_s / eager.median_s  # by a later call, of an eager one
    return tuple(1 + longer / share for share in (saved, -math.expm1(-high), -math.expm1(-low)))


@page.claim(primary=True)
def pays_past_the_first_call(r: Records) -> Contrast:
    """By the course's own loop on the CPU, without its first call, ResNet-18 compiled as it is
    built is faster than in eager mode: training mode, a batch of 128."""
    return loop_ratio(r, skip=1)


@page.claim(primary=True)
def resnet_faster(r: Records) -> Contrast:
    """On the CPU, at a batch of 128, ResNet-18 in its fastest compiled form is faster than in its
    fastest eager form."""
    return at_best(r, "resnet18", LAB_BATCH)


@page.claim
def bert_faster(r: Records) -> Contrast:
    """On the CPU, at a batch of one, BERT in its fastest compiled form is faster than in its
    fastest eager form."""
    return at_best(r, "bert", 1)


@page.claim
def resnet_faster_at_one(r: Records) -> Contrast:
    """On the CPU, at a batch of one, ResNet-18 in its fastest compiled form is faster than in its
    fastest eager form."""
    return at_best(r, "resnet18", 1)


@page.claim
def rewriting_pays(r: Records) -> Contrast:
    """On the CPU, at a batch of 128, ResNet-18's fastest eager form is faster than eager mode as it
    is built."""
    best = fastest(r.tuning, "resnet18", LAB_BATCH, "eager")
    return compare(*pair(r, best, **timed_params("resnet18", LAB_BATCH)))


@page.claim(primary=True)
def cuda_faster(r: Records) -> Contrast:
    """On a CUDA GPU, ResNet-18 compiled as it is built is faster than in eager mode as it is built,
    at a batch of one, once the first call is over."""
    return over_eager(r, "resnet18", device="cuda")


def naive(r: Records, way: str) -> ExactValue:
    """Seconds of a call by the course's loop, compiled or eager: the mean of the sittings."""
    arm = by_the_loop(r, way)
    return exact(round(fmean(naive_means(arm)), 2), arm.records, "s")


def loops(r: Records) -> Sequence[Record]:
    """The course's loop on the CPU, a record for each sitting."""
    return r.all(kind="naive", device="cpu", network="resnet18")


def eager_call(r: Records, at: int) -> ExactValue:
    """Seconds of the loop's eager call at this place: the median of the sittings."""
    runs = [record.values["measurements"]["eager, training"] for record in loops(r)]
    return exact(round(median(run["samples_s"][at] for run in runs), 1), loops(r), "s")


def compiling(r: Records) -> ExactValue:
    """The share, in %, of the time of the loop's compiled calls that the first takes beyond a later
    one."""
    whole, past = (by_the_loop(r, "compiled", skip=skip) for skip in (0, 1))
    share = 1 - fmean(naive_means(past)) / fmean(naive_means(whole))
    return exact(round(100 * share), whole.records, "%")


def naive_means(arm: TimedArm) -> list[float]:
    """The loop's mean of each sitting beside which nothing else ran, in seconds."""
    return [arm.runs[i]["samples_s"][0] for i in arm.uncontended]


def num_mistakes(record: Record) -> int:
    """The number of mistakes in the course's loop that are there on any machine: of its form."""
    runs = record.values["measurements"]
    mistakes = lint.mistakes(runs["compiled, training"], against=runs["eager, training"])
    return len([name for name in mistakes if name not in lint.OF_THE_MACHINE])


def profiled(network: str) -> Callable[[Records], Sequence[Record]]:
    """A function that reads the records of a call's parts, at a batch of one on the CPU: those
    beside which nothing else ran, or all if there are none."""

    def read(r: Records) -> Sequence[Record]:
        every = r.all(kind="parts", device="cpu", network=network)
        return [record for record in every if (record.run.contention or 0) <= CONTENDED] or every

    return read


def cached_s(records: Sequence[Record]) -> float:
    """Seconds of the first call where an earlier process has filled the caches: the median."""
    return median(record.values["cached_s"] for record in records)


def part_seconds(records: Sequence[Record], way: str) -> dict[str, float]:
    """Part of a call → seconds, medians of the processes."""
    seconds = [record.values["parts"][way]["seconds"] for record in records]
    return {name: median(parts[name] for parts in seconds) for name in seconds[0]}


WORK = ("library", "operators", "generated")  # the parts of a call that compute


def work_ms(network: str, way: str) -> NumberFn:
    """A function that reads what computes in a call under the profiler, all parts of it, in ms."""

    def read(records: Sequence[Record]) -> float:
        return 1e3 * sum(part_seconds(records, way)[part] for part in WORK)

    return computed(profiled(network), read, "ms")


def first_call(r: Records) -> ExactValue:
    """ResNet's first compiled call with empty caches, at a batch of one, in whole seconds."""
    where = {"kind": "parts", "device": "cpu", "network": "resnet18"}
    compiled = timed_arm(r, BUILT, way_title(BUILT), **where)
    return exact(round(first_s(compiled)), compiled.records, "s")


page.numbers(
    naive_compiled=partial(naive, way="compiled"),
    naive_eager=partial(naive, way="eager"),
    compiling=compiling,
    by_loop=loop_ratio,
    past_first=partial(loop_ratio, skip=1),
    rewritten=rewriting_pays,
    second_eager=partial(eager_call, at=1),
    last_eager=partial(eager_call, at=-1),
    naive_mistakes=computed(lambda r: loops(r)[0], num_mistakes),
    built_resnet=partial(over_eager, network="resnet18", batch=LAB_BATCH),
    built_at_one=partial(over_eager, network="resnet18"),
    frozen_at_one=partial(over_eager, network="resnet18", way=FROZEN),
    best_at_one=resnet_faster_at_one,
    best_bert=bert_faster,
    first_resnet=first_call,
    cached_resnet=computed(profiled("resnet18"), cached_s, "s"),
    resnet_eager=work_ms("resnet18", EAGER),
    resnet_compiled=work_ms("resnet18", BUILT),
    bert_eager=work_ms("bert", EAGER),
    bert_compiled=work_ms("bert", BUILT),
    rounds=lambda r: exact(design.LEAST_ROUNDS),
    hours=lambda r: hours_of(r.where(kind="time", device="cpu")),
    contended=lambda r: contended_processes(r.where(device="cpu")),
)


AFTER_TRAINING = "evaluation mode"  # in the process of the training mode, whose graph it finds


def steps(r: Records) -> list[tuple[str, str, TimedArm, TimedArm]]:
    """The course's loop, corrected one thing after the other: what, in code, compiled and eager."""
    loop = [
        ("the course's loop", "`n = 5`, `model.train()`", "training", 0),
        ("first call left out", "`compiled(x)` before the loop", "training", 1),
        (AFTER_TRAINING, "`model.eval()`, `torch.no_grad()`", "evaluation", 1),
    ]
    by_loop = [
        (step, code, *(by_the_loop(r, way, mode, skip) for way in ("compiled", "eager")))
        for step, code, mode, skip in loop
    ]
    freezing = "`torch._inductor.config.freezing = True`"
    timed = [
        ("warm, in turn", "`timing.compare`", BUILT, {"batch": LAB_BATCH}),
        ("weights frozen", freezing, FROZEN, {"batch": LAB_BATCH}),
        ("a batch of one", "`torch.randn(1, 3, 224, 224)`", FROZEN, {}),
        ("BF16", "`model.to(torch.bfloat16)`", FROZEN, {"dtype": "bfloat16"}),
    ]
    by_turns = [
        (step, code, *pair(r, way, **timed_params("resnet18", **where)))
        for step, code, way, where in timed
    ]
    return [*by_loop, *by_turns]


@page.chart
def corrections(r: Records) -> Chart:
    """The speed-up after each correction of the loop, on the CPU; and BERT's."""
    of_bert = [
        (step, "", *pair(r, way, **timed_params("bert")))
        for step, way in (("BERT, a batch of one", BUILT), ("BERT, frozen", FROZEN))
    ]
    rows: list[Row] = [
        {
            **{"timed": step, "network": NETWORKS["bert" if rest in of_bert else "resnet18"]},
            **{"speed-up": eager / compiled, "eager": eager, "a call": compiled},
            "first call (s)": None if step == AFTER_TRAINING else first_s(compiled),
        }
        for rest in (*steps(r), *of_bert)
        for step, _, compiled, eager in [rest]
    ]
    return Chart(
        rows,
        x=linear("speed-up", "speed of compiled over eager", "×"),
        y=category("timed"),
        marks=[level(1.0, "equally fast"), intervals("speed-up", by="network")],
    )


@page.table
def corrected(r: Records) -> Sequence[Row]:
    """The loop after each correction: in code, the two times, their ratio."""
    return [
        {
            "each row keeps those above": step,
            "in code": code,
            "eager": eager,
            "compiled": compiled,
            "compiled over eager": f"{eager / compiled:i}",
        }
        for step, code, compiled, eager in steps(r)
    ]


PARTS = {
    "library": "library",
    "operators": "other operators",
    "generated": "generated kernels",
    "guards": "guards",
    "rest": "Python and memory",
}


@page.chart
def split(r: Records) -> Chart:
    """The time of a call by part."""
    rows: list[Row] = []
    for (network, title), way in product(NETWORKS.items(), (EAGER, BUILT)):
        seconds = part_seconds(profiled(network)(r), way)
        name = f"{title}, {COMPILERS[way.partition('/')[0]]}"
        rows.append({"call": name, **{PARTS[part]: 1e3 * s for part, s in seconds.items()}})
    y = linear(label="a call under the profiler", unit="ms")
    return Chart(rows, x=category("call"), y=y, marks=bars(*PARTS.values(), stacked=True))


@page.table
def settings(r: Records) -> Sequence[Row]:
    """Compiled and frozen over eager mode as built, in every setting of the CPU."""
    rows: list[Row] = []
    for network, batch, dtype, cores in design.CPU:
        where = timed_params(network, batch, dtype=dtype, cores=cores)
        on = ", one core" if cores == ONE else ""
        rows.append(
            {
                "network": f"{NETWORKS[network]}, batch {batch}, {dtype}{on}",
                "eager": none_if_pending(eager_time, r, **where),
                "compiled": none_if_pending(ratio_text, r, BUILT, **where),
                "frozen": none_if_pending(ratio_text, r, FROZEN, **where),
            }
        )
    return rows


def eager_time(r: Records, **where: Scalar) -> TimedArm:
    return pair(r, BUILT, **where)[1]


def ratio_text(r: Records, way: str, **where: Scalar) -> str:
    """A way over eager mode as built, with its interval."""
    compiled, eager = pair(r, way, **where)
    return f"{eager / compiled:i}"


def two_digits(count: float) -> str:
    return f"{float(f'{count:.2g}'):,.0f}"


@page.table
def first_calls(r: Records) -> Sequence[Row]:
    """The first call, and how many calls pay for it, at the course's batch and at one."""
    compiled, eager = (by_the_loop(r, way, skip=1) for way in ("compiled", "eager"))
    rows = [("ResNet-18, batch 128, the course's loop", compiled, eager, first_s(compiled))]
    for network, title in NETWORKS.items():
        timed = pair(r, BUILT, **timed_params(network))
        where = {"kind": "parts", "device": "cpu", "network": network}
        rows.append((f"{title}, batch 1", *timed, first_s(timed_arm(r, BUILT, "", **where))))
    table: list[Row] = []
    for title, compiled, eager, first in rows:
        calls = calls_to_pay(compiled, eager, first)
        pays = "{} calls [{}, {}]".format(*map(two_digits, calls)) if calls else "not shown"
        table.append({"network": title, "first call": f"{first:.0f} s", "pays after": pays})
    return table


UNPLANNED = "–"


@page.table
def devices(r: Records) -> Sequence[Row]:
    """Compiled over eager, both as built, on each device; and by the course's loop."""
    rows: list[Row] = []
    for network, title in NETWORKS.items():
        asked: list[tuple[str, Callable[..., Scalar | Estimate], tuple[Scalar, ...]]] = [
            (f"{title}, batch {batch}", built_over_eager, (network, batch))
            for batch in sorted(design.CUDA)
        ]
        asked.append((f"{title}, batch {LAB_BATCH}, the course's loop", naive_ratio, (network,)))
        for name, ratio, where in asked:
            cells = {d: dash_if_unplanned(ratio, r, *where, d) for d in ("cpu", "cuda")}
            if not all(cell is None or cell is UNPLANNED for cell in cells.values()):
                rows.append(
                    {"compiled over eager": name, **{r.place(d): c for d, c in cells.items()}}
                )
    return rows


def dash_if_unplanned(make: Callable[..., Any], *args: Any) -> Any:
    """The value that `make` gives; a dash where no case is planned, None where one has not run."""
    try:
        return make(*args)
    except Unplanned:
        return UNPLANNED
    except Pending:
        return None


def built_over_eager(r: Records, network: str, batch: int, device: str) -> Estimate:
    compiled, eager = pair(r, BUILT, **timed_params(network, batch, device))
    return eager / compiled


def naive_ratio(r: Records, network: str, device: str) -> str:
    """How many times as fast compiled is as eager by the course's loop, its first call included."""
    on = {"network": network, "device": device}
    eager, compiled = (
        fmean(naive_means(by_the_loop(r, way, **on))) for way in ("eager", "compiled")
    )
    return f"{number(float(f'{eager / compiled:.2g}'))} ×"
