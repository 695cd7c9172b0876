"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A way to run a network is a compiler and a form: what is done to the network by hand before. A case
is one fresh process with empty caches, in which eager forms and compiled ones take turns. The
fastest of each are chosen by a tuning process; others confirm, and they are the units.
"""

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from experiments.lab4_compile import design
from experiments.lab4_compile.design import BUILT, EAGER
from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed_arm
from madl.logbook.charts import Chart, bars, category, intervals, level, linear
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, contended_processes, exact
from madl.logbook.records import Failed, Params, Record, Records, Row, Scalar, none_if_pending
from madl.logbook.values import Estimate, Unit, number
from madl.machine import lint
from madl.machine.device import no_device

page = Experiment(timed=True)

NETWORKS = {"resnet18": "ResNet-18", "bert": "BERT"}
COMPILERS = {
    "eager": "eager",
    "default": "compiled",
    "frozen": "compiled, frozen",
    "reduce-overhead": "compiled, reduce-overhead",
    "max-autotune": "compiled, max-autotune",
    "aot_eager": "captured only",
    "torchscript": "TorchScript, frozen",
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


def network_params(plan: Plan, network: str, device: str, batch: int) -> dict[str, Scalar]:
    size = plan.profile.choose(smoke=SMOKE_SIZES, quick=design.SIZES)[network]
    params = {"device": device, "network": network, "size": size, "batch": batch}
    return params | ({"model": plan.workload["model"]} if network == "bert" else {})


SMOKE_SIZES = {"resnet18": 64, "bert": 8}


def process_params(plan: Plan, built: str, *ways: str, network: str, **where: Any) -> Params:
    """Parameters of a process in which these ways and every eager form take turns.

    Of the ways that compile, `built` is called first.
    """
    eager = (f"eager/{form}" for form in design.FORMS[network])
    return {
        "built": built,
        "ways": " ".join((*eager, built, *ways)),
        "budget_s": plan.profile.choose(smoke=0.0, quick=design.BUDGET_S),
        **network_params(plan, network, **where),
    }


def ways_in_turn(plan: Plan, processes: Sequence[int]) -> Iterable[Params]:
    """Cases in which all ways of a network take turns, at a batch of one on the CPU."""
    networks = plan.profile.choose(smoke=("resnet18",), quick=tuple(NETWORKS))
    as_built = [f"{compiler}/plain" for compiler in design.OTHER_COMPILERS]
    for process, network in product(processes, networks):
        ways = plan.profile.choose(smoke=[SMOKE_WAY], quick=[*design.TRIED[network], *as_built])
        params = process_params(plan, *ways, network=network, device="cpu", batch=1)
        yield {"kind": "ways", "process": process, **params}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    yield from ways_in_turn(plan, design.TUNING)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    networks = choose(smoke=("bert",), quick=tuple(NETWORKS))
    processes = choose(smoke=(1,), quick=design.CONFIRMING)
    for process, network, (device, batch) in product(processes, networks, design.COMPILED):
        ways = design.COMPILED[device, batch]
        for way in choose(smoke=[SMOKE_WAY] if batch == 1 else [], quick=ways):
            params = process_params(plan, way, network=network, device=device, batch=batch)
            yield {"kind": "time", "process": process, **params}
    yield from ways_in_turn(plan, choose(smoke=(), quick=design.IN_TURN))
    for network in choose(smoke=("resnet18",), quick=tuple(NETWORKS)):
        backend = choose(smoke="eager", quick="inductor")
        loop = {"kind": "naive", "naive_calls": design.NAIVE_CALLS, "backend": backend}
        for device, batch in design.NAIVE_BATCH.items():
            yield {**loop, **network_params(plan, network, device, batch)}


@page.unavailable
def unavailable(params: Params) -> str | None:
    if missing := no_device(params):
        return missing
    compiler = str(params.get("built", params.get("backend"))).partition("/")[0]
    if compiler == "torch_tensorrt" and not importlib.util.find_spec("torch_tensorrt"):
        return "Torch-TensorRT is not installed here"
    from kernels import compilers

    if compiler not in ("aot_eager", "cudagraphs") and not any(compilers.cpp()):
        return compilers.NO_COMPILER
    return None


@page.quick
def quick(params: Params) -> bool:
    """The cases of the CPU's claims, in one process a network."""
    network = params["network"]
    claimed = timed_params(network, design.FASTEST[network])
    return {**claimed, "process": design.CONFIRMING[0]}.items() <= params.items()


def timed_params(
    network: str, built: str, batch: int = 1, device: str = "cpu"
) -> dict[str, Scalar]:
    """Parameters of the cases in which this compiled way takes turns with eager forms alone."""
    return {"kind": "time", "device": device, "network": network, "batch": batch, "built": built}


def ways_params(network: str) -> dict[str, Scalar]:
    """Parameters of the cases in which all ways of a network take turns."""
    return {"kind": "ways", "device": "cpu", "network": network, "batch": 1}


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


def as_built(r: Records, network: str, batch: int = 1, device: str = "cpu") -> Contrast:
    """Compiled over eager, the network as it is built: the usual comparison."""
    return compare(*pair(r, BUILT, **timed_params(network, BUILT, batch, device)))


def fastest_eager(r: Records, network: str) -> str:
    """The eager way that was the fastest in the tuning process. Raises: Pending: it is missing."""
    measurements = r.tuning.single(**ways_params(network)).values["measurements"]
    eager = [f"eager/{form}" for form in design.FORMS[network]]
    return min(eager, key=lambda way: median(measurements[way]["samples_s"]))


def against_fastest_eager(r: Records, network: str, compiled: str) -> Contrast:
    return compare(*pair(r, compiled, fastest_eager(r, network), **timed_params(network, compiled)))


def first_s(arm: TimedArm) -> float:
    """Seconds of the first call: the median of the processes that are not contended."""
    return median(arm.runs[i]["first_call_s"] for i in arm.uncontended)


def calls_to_pay(compiled: TimedArm, eager: TimedArm) -> float | None:
    """The number of calls after which the first is paid for by what later ones save; None where it
    is not shown that they save time."""
    comparison = compare(compiled, eager).comparison
    if comparison.blocked or comparison.interval.low <= 0:
        return None
    extra = first_s(compiled) - first_s(eager)
    return 1 + max(extra, 0.0) / (eager.median_s - compiled.median_s)


@page.claim(primary=True)
def resnet_faster(r: Records) -> Contrast:
    """On the CPU, ResNet-18 in its fastest compiled form is faster than in its fastest eager form,
    once the first call is over."""
    return against_fastest_eager(r, "resnet18", design.FASTEST["resnet18"])


@page.claim(primary=True)
def bert_faster(r: Records) -> Contrast:
    """On the CPU, BERT in its fastest compiled form is faster than in its fastest eager form, once
    the first call is over."""
    return against_fastest_eager(r, "bert", design.FASTEST["bert"])


@page.claim
def resnet_compiled_as_built(r: Records) -> Contrast:
    """On the CPU, ResNet-18 compiled as it is built is faster than its fastest eager form."""
    return against_fastest_eager(r, "resnet18", BUILT)


@page.claim
def rewriting_pays(r: Records) -> Contrast:
    """On the CPU, ResNet-18's fastest eager form is faster than eager mode as it is built."""
    return compare(*pair(r, fastest_eager(r, "resnet18"), **timed_params("resnet18", BUILT)))


@page.claim(primary=True)
def cuda_faster(r: Records) -> Contrast:
    """On a CUDA GPU, ResNet-18 compiled as it is built is faster than in eager mode as it is built,
    at a batch of one, once the first call is over."""
    return as_built(r, "resnet18", device="cuda")


def frozen_over_built(r: Records) -> Contrast:
    """ResNet's fastest compiled form over eager mode as it is built."""
    best = design.FASTEST["resnet18"]
    return compare(*pair(r, best, **timed_params("resnet18", best)))


def naive_s(
    r: Records, network: str, way: str, mode: str = "training", skip: int = 0, device: str = "cpu"
) -> float:
    """Mean seconds of a call in the naive loop, without its first `skip` calls."""
    runs = r.single(kind="naive", device=device, network=network).values["measurements"]
    return fmean(runs[f"{way}, {mode}"]["samples_s"][skip:])


def naive(r: Records, way: str) -> ExactValue:
    """The mean that the naive loop gives for ResNet, compiled or eager, in ms."""
    return exact(1e3 * naive_s(r, "resnet18", way), [naive_loop(r)], "ms")


def naive_loop(r: Records) -> Record:
    return r.single(kind="naive", device="cpu", network="resnet18")


def num_mistakes(record: Record) -> int:
    """The number of mistakes that the linter of timings finds in the naive loop."""
    runs = record.values["measurements"]
    return len(lint.mistakes(runs["compiled, training"], against=runs["eager, training"]))


def first_call(r: Records) -> ExactValue:
    """ResNet's first call with empty caches, in whole seconds."""
    compiled, _ = pair(r, BUILT, **timed_params("resnet18", BUILT))
    return exact(round(first_s(compiled)), compiled.records, "s")


def in_turn(network: str) -> Callable[[Records], Sequence[Record]]:
    """A function that reads the records in which all ways of a network took turns."""
    return lambda r: r.all(**ways_params(network))


def cached_s(records: Sequence[Record]) -> float:
    """Seconds of the first call where an earlier process has filled the caches: the median."""
    return median(record.values["cached_s"] for record in records)


def part_seconds(records: Sequence[Record], way: str) -> dict[str, float]:
    """Part of a call → seconds, medians of the processes."""
    seconds = [record.values["parts"][way]["seconds"] for record in records]
    return {name: median(parts[name] for parts in seconds) for name in seconds[0]}


def part_ms(network: str, part: str, way: str = BUILT) -> NumberFn:
    """A function that reads the time of a part of a call under the profiler, in ms."""
    return computed(in_turn(network), lambda records: 1e3 * part_seconds(records, way)[part], "ms")


def num_kernels(network: str, *words: str) -> NumberFn:
    """A function that counts a call's generated kernels whose names hold all of these words."""

    def count(records: Sequence[Record]) -> int:
        kernels = records[0].values["parts"][BUILT]["generated"].items()
        return round(sum(n for name, n in kernels if all(word in name for word in words)))

    return computed(in_turn(network), count)


def mask_share(r: Records) -> Contrast:
    """BERT's speed-up with the mask over that without it, all four in the same processes."""
    masked, unmasked = (
        compare(*pair(r, f"default/{form}", f"eager/{form}", **ways_params("bert"))).comparison
        for form in ("plain", "unmasked")
    )
    logs = [a - b for a, b in zip(masked.by_unit, unmasked.by_unit, strict=True)]
    ratio = stats.mean(logs, unit=Unit.TIMES, unit_name="processes")
    return contrast(ratio, in_turn("bert")(r))


page.numbers(
    naive_compiled=partial(naive, way="compiled"),
    naive_eager=partial(naive, way="eager"),
    naive_mistakes=computed(naive_loop, num_mistakes),
    built_resnet=partial(as_built, network="resnet18"),
    built_bert=partial(as_built, network="bert"),
    frozen_resnet=frozen_over_built,
    first_resnet=first_call,
    cached_resnet=computed(in_turn("resnet18"), cached_s, "s"),
    built_bert_in_turn=lambda r: compare(*pair(r, BUILT, **ways_params("bert"))),
    library_before=part_ms("resnet18", "library", EAGER),
    library=part_ms("resnet18", "library"),
    between_before=part_ms("resnet18", "operators", EAGER),
    between=part_ms("resnet18", "generated"),
    bert_before=part_ms("bert", "operators", EAGER),
    bert_between=part_ms("bert", "generated"),
    guards=part_ms("bert", "guards"),
    weights_copied=num_kernels("resnet18", "convolution"),
    masks=num_kernels("bert", "arange", "where"),
    mask_share=mask_share,
    contended=lambda r: contended_processes(r.where(kind="time", device="cpu")),
)


STEPS = {  # of correcting the loop, each with those before it
    "naive loop": ("training", 0),
    "first call left out": ("training", 1),
    "evaluation mode, too": ("evaluation", 1),
}
RIGHT, BEST = "warm, in turn, many calls, too", "each at its best"


@page.chart
def corrections(r: Records) -> Chart:
    """The speed-up after each correction of the loop, at a batch of one on the CPU."""
    rows: list[Row] = []
    for network, title in NETWORKS.items():
        speed_ups: dict[str, Any] = {}
        for step, (mode, skip) in STEPS.items():
            eager, compiled = (naive_s(r, network, w, mode, skip) for w in ("eager", "compiled"))
            speed_ups[step] = eager / compiled
        compiled, eager = pair(r, BUILT, **timed_params(network, BUILT))
        speed_ups[RIGHT] = eager / compiled
        best = design.FASTEST[network]
        compiled, eager = pair(r, best, fastest_eager(r, network), **timed_params(network, best))
        speed_ups[BEST] = eager / compiled
        rows += [
            {"timed": f"{title}, {step}", "network": title, "speed-up": speed_up}
            for step, speed_up in speed_ups.items()
        ]
    return Chart(
        rows,
        x=linear("speed-up", "speed of compiled over eager", "×"),
        y=category("timed"),
        marks=[level(1.0, "equally fast"), intervals("speed-up", by="network")],
    )


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
        seconds = part_seconds(in_turn(network)(r), way)
        name = f"{title}, {COMPILERS[way.partition('/')[0]]}"
        rows.append({"call": name, **{PARTS[part]: 1e3 * s for part, s in seconds.items()}})
    y = linear(label="a call under the profiler", unit="ms")
    return Chart(rows, x=category("call"), y=y, marks=bars(*PARTS.values(), stacked=True))


def row(r: Records, way: str, **where: Scalar) -> Row:
    """A row on a way, held against eager mode as the network is built."""
    arm, eager = pair(r, way, **where)
    compiled = not way.startswith("eager/")
    calls = calls_to_pay(arm, eager) if compiled else None
    return {
        "network": NETWORKS[str(where["network"])],
        "way": way_title(way),
        "first call (s)": round(first_s(arm)) if compiled else "–",
        "a call": arm,
        "over eager as built": eager / arm,
        "pays after": f"{float(f'{calls:.2g}'):,.0f} calls" if calls else "–",
    }


@page.table
def ways(r: Records) -> Sequence[Row]:
    """Eager and compiled, as built and in the fastest form, at a batch of one on the CPU."""
    rows: list[Row] = []
    for network in NETWORKS:
        best = design.FASTEST[network]
        built = {EAGER: BUILT, fastest_eager(r, network): BUILT, BUILT: BUILT, best: best}
        rows += [row(r, way, **timed_params(network, built[way])) for way in built]
    return rows


@page.chart
def speed_ups(r: Records) -> Chart:
    """Speed over eager as built: all ways in turn at a batch of one on the CPU, elsewhere alone."""
    places = [ways_params(network) for network in NETWORKS]
    for params in (record.case.params for record in r.where(kind="time")):
        where = {name: params[name] for name in timed_params("", "")}
        if (where["device"], where["batch"]) != ("cpu", 1) and where not in places:
            places.append(where)
    return Chart(
        [row for where in places for row in speed_ups_at(r, where)],
        x=linear("over eager as built", "speed-up over eager as built", "×"),
        y=category("run as"),
        marks=[level(1.0, "eager as built"), intervals("over eager as built")],
    )


def speed_ups_at(r: Records, where: Mapping[str, Scalar]) -> Sequence[Row]:
    """Rows of every way that ran in the cases `where`; none where a process is missing."""
    if r.where(**where).missing:
        return []
    first, network = r.all(**where)[0], where["network"]
    on = "" if where["device"] == "cpu" else f" on {first.place}"
    rows: list[Row] = []
    for way in first.case.params["ways"].split():
        if way != EAGER and way not in first.values["missing"]:
            name = f"{NETWORKS[network]}{on}, batch {where['batch']}: {way_title(way)}"
            eager = pair(r, way, **where)[1]
            rows.append({"run as": name, **row(r, way, **where), "eager": eager})
    return rows


@page.table
def devices(r: Records) -> Sequence[Row]:
    """Compiled over eager, both as built, on each device; and by the naive loop."""
    rows: list[Row] = []
    devices = tuple(design.NAIVE_BATCH)
    for network, title in NETWORKS.items():
        for batch in sorted({batch for _, batch in design.COMPILED}):
            ratios = {d: none_if_pending(built_over_eager, r, network, batch, d) for d in devices}
            if any(ratio is not None for ratio in ratios.values()):
                cells = {d: ratios[d] if (d, batch) in design.COMPILED else "–" for d in devices}
                rows.append({"network": f"{title}, batch {batch}", **cells})
        for device, batch in design.NAIVE_BATCH.items():
            if ratio := none_if_pending(naive_ratio, r, network, device):
                cells = {**dict.fromkeys(devices, "–"), device: ratio}
                rows.append({"network": f"{title}, batch {batch}, the naive loop", **cells})
    titles = {"network": "compiled over eager", **{d: r.place(d) for d in devices}}
    return [{titles[column]: cell for column, cell in row.items()} for row in rows]


def built_over_eager(r: Records, network: str, batch: int, device: str) -> Estimate:
    compiled, eager = pair(r, BUILT, **timed_params(network, BUILT, batch, device))
    return eager / compiled


def naive_ratio(r: Records, network: str, device: str) -> str:
    eager, compiled = (naive_s(r, network, way, device=device) for way in ("eager", "compiled"))
    return f"{number(float(f'{eager / compiled:.2g}'))} ×"
