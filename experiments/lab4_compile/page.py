"""Question 4.1: why naive timing shows no speed-up from torch.compile, and what there is of one.

A way to run a network is a compiler and a form: what is done to the network by hand before. A case
is one fresh process with empty caches, in which eager forms and compiled ones take turns. The
fastest of each are chosen by a tuning process; others confirm, and they are the units.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Chart, bars, category, intervals, level, linear, log
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, contended, counted
from madl.logbook.records import Failed, Params, Records, Row, Scalar, Values
from madl.machine import lint
from madl.machine.device import no_device, num_cores

page = Experiment(title="torch.compile: when does it pay?", timed=True)

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
FORMS = {
    "plain": "as built",
    "channels_last": "channels_last",
    "folded": "batch norms folded",
    "both": "folded and channels_last",
    "unmasked": "no mask",
}
BY_HAND = {"resnet18": ("plain", "channels_last", "folded", "both"), "bert": ("plain", "unmasked")}
EAGER, BUILT = "eager/plain", "default/plain"
TRIED = {  # compiled ways, of which tuning chooses the fastest
    "resnet18": (BUILT, "default/channels_last", "default/both", "frozen/plain"),
    "bert": (BUILT, "default/unmasked", "frozen/plain", "frozen/unmasked"),
}
FASTEST = {"resnet18": "frozen/plain", "bert": "frozen/plain"}
MODES = ("aot_eager", "reduce-overhead", "max-autotune")
BESIDE = [f"{compiler}/plain" for compiler in (*MODES, "torchscript")]
SMOKE = "aot_eager/plain"  # generates no code, so nothing has to be compiled
ON_CUDA = ("default", *MODES, "cudagraphs", "torch_tensorrt")
BATCHES = {"cpu": (1, 8), "cuda": (1, 32, 128)}
TUNING, CONFIRMING, FEWER = (0,), (1, 2, 3, 4, 5), (1, 2, 3)  # processes
NAIVE_CALLS = 5  # as in the course's notebook


# ---- cases --------------------------------------------------------------------------------------


def params_of(plan: Plan, network: str, device: str, batch: int) -> dict[str, Any]:
    choose = plan.profile.choose
    sizes = {"resnet18": choose(smoke=64, quick=224), "bert": choose(smoke=8, quick=32)}
    found = {"device": device, "network": network, "size": sizes[network], "batch": batch}
    return found | ({"model": plan.workload["model"]} if network == "bert" else {})


def in_turn(plan: Plan, kind: str, process: int, built: str, *ways: str, **of: Any) -> Params:
    """A process in which these ways and every eager form take turns, `built` compiled first."""
    every = " ".join((*(f"eager/{form}" for form in BY_HAND[of["network"]]), built, *ways))
    case = {
        "kind": kind,
        "process": process,
        "built": built,
        "ways": every,
        **params_of(plan, **of),
    }
    return {**case, "budget_s": plan.profile.choose(smoke=0.0, quick=0.5)}


def every_way(plan: Plan, processes: Sequence[int]) -> Iterable[Params]:
    networks = plan.profile.choose(smoke=("resnet18",), quick=tuple(NETWORKS))
    for process, network in product(processes, networks):
        where = {"network": network, "device": "cpu", "batch": 1}
        built, *ways = plan.profile.choose(smoke=[SMOKE], quick=[*TRIED[network], *BESIDE])
        yield in_turn(plan, "ways", process, built, *ways, **where)


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    yield from every_way(plan, TUNING)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    networks = choose(smoke=("bert",), quick=tuple(NETWORKS))
    for process, network in product(choose(smoke=(1,), quick=CONFIRMING), networks):
        for device, batch in ((where, batch) for where in BATCHES for batch in BATCHES[where]):
            built = [BUILT, FASTEST[network]] if batch == 1 else [BUILT]
            if device == "cuda":
                backends = ON_CUDA if batch == 1 else ON_CUDA[:1]
                built = [f"{backend}/plain" for backend in backends]
            for one in choose(smoke=[SMOKE] if batch == 1 else [], quick=built):
                where = {"network": network, "device": device, "batch": batch}
                yield in_turn(plan, "time", process, one, **where)
    yield from every_way(plan, choose(smoke=(), quick=FEWER))
    for device, network in product(BATCHES, choose(smoke=("resnet18",), quick=tuple(NETWORKS))):
        backend = choose(smoke="eager", quick="inductor")
        loop = {"kind": "naive", "naive_calls": NAIVE_CALLS, "backend": backend}
        yield loop | params_of(plan, network, device, 1)


@page.unavailable
def unavailable(params: Params) -> str | None:
    """No device, no compiler, no such backend: why a case cannot run here."""
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
    """What the claims compare, in one process a network."""
    where = at(str(params["network"]), FASTEST[str(params["network"])])
    return {**where, "process": CONFIRMING[0]}.items() <= params.items()


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_compile import study

    return study.study({**params, "threads": num_cores()})


# ---- ways ---------------------------------------------------------------------------------------


def at(network: str, built: str, batch: int = 1, device: str = "cpu") -> dict[str, Scalar]:
    """The processes that confirm this compiled way, beside eager forms alone."""
    return {"kind": "time", "device": device, "network": network, "batch": batch, "built": built}


def every(network: str) -> dict[str, Scalar]:
    """The processes in which all ways of a network took turns."""
    return {"kind": "ways", "device": "cpu", "network": network, "batch": 1}


def named(way: str) -> str:
    compiler, _, form = way.partition("/")
    return f"{COMPILERS[compiler]}, {FORMS[form]}"


def pair(r: Records, compiled: str, eager: str = EAGER, **where: Scalar) -> list[TimedArm]:
    """Two ways in the same processes. Raises: Failed: one did not run there, or Pending."""
    for record, way in product(r.all(**where), (compiled, eager)):
        if why := record.values["missing"].get(way):
            raise Failed(f"{named(way)} failed on {record.place}: {why}")
    return [timed(r, way, named(way), **where) for way in (compiled, eager)]


def as_built(r: Records, network: str, batch: int = 1, device: str = "cpu") -> Contrast:
    """Compiled over eager, the network as it is built: what everybody compares."""
    return compare(*pair(r, BUILT, **at(network, BUILT, batch, device)))


def by_hand(r: Records, network: str) -> str:
    """The eager form that was the fastest in the tuning process. Raises: Pending: it is missing."""
    measured = r.tuning.one(**every(network)).values["measurements"]
    eager = [f"eager/{form}" for form in BY_HAND[network]]
    return min(eager, key=lambda way: median(measured[way]["samples_s"]))


def against_by_hand(r: Records, network: str, compiled: str) -> Contrast:
    return compare(*pair(r, compiled, by_hand(r, network), **at(network, compiled)))


def first_s(arm: TimedArm) -> float:
    """The first call: the median of the processes that count."""
    kept, _ = stats.quiet(arm.contention)
    return median(float(arm.runs[i]["first_call_s"]) for i in kept)


def calls_to_pay(compiled: TimedArm, eager: TimedArm) -> float | None:
    """After how many calls the first is paid for by what later ones save; None: not shown to be."""
    made = compare(compiled, eager).comparison
    if made.blocked or made.interval.low <= 0:
        return None
    extra = first_s(compiled) - first_s(eager)
    return 1 + max(extra, 0.0) / (eager.median_s - compiled.median_s)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def resnet_faster(r: Records) -> Contrast:
    """On the CPU, ResNet-18 in its fastest compiled form is faster than in its fastest eager form,
    once the first call is over."""
    return against_by_hand(r, "resnet18", FASTEST["resnet18"])


@page.claim(primary=True)
def bert_faster(r: Records) -> Contrast:
    """On the CPU, BERT in its fastest compiled form is faster than in its fastest eager form, once
    the first call is over."""
    return against_by_hand(r, "bert", FASTEST["bert"])


@page.claim
def resnet_compiled_as_built(r: Records) -> Contrast:
    """On the CPU, ResNet-18 compiled as it is built is faster than its fastest eager form."""
    return against_by_hand(r, "resnet18", BUILT)


@page.claim
def rewriting_pays(r: Records) -> Contrast:
    """On the CPU, ResNet-18's fastest eager form is faster than eager mode as it is built."""
    return compare(*pair(r, by_hand(r, "resnet18"), **at("resnet18", BUILT)))


@page.claim
def cuda_faster(r: Records) -> Contrast:
    """On CUDA, ResNet-18 is faster compiled than in eager mode once its first call is over."""
    return as_built(r, "resnet18", device="cuda")


# ---- numbers ------------------------------------------------------------------------------------


def frozen_over_built(r: Records) -> Contrast:
    """ResNet's fastest compiled form over eager mode as it is built."""
    best = FASTEST["resnet18"]
    return compare(*pair(r, best, **at("resnet18", best)))


def naive_s(r: Records, network: str, way: str, mode: str = "training", skip: int = 0) -> float:
    """The mean that the naive loop gives on the CPU, without its first calls or with them."""
    run = r.one(kind="naive", device="cpu", network=network).values["measurements"]
    return fmean(run[f"{way}, {mode}"]["samples_s"][skip:])


def naive(r: Records, way: str) -> Counted:
    found = r.where(kind="naive", device="cpu", network="resnet18")
    return counted(1e3 * naive_s(r, "resnet18", way), "ms", of=found)


def naive_mistakes(r: Records) -> Counted:
    found = r.all(kind="naive", device="cpu", network="resnet18")
    run = found[0].values["measurements"]
    wrong = lint.mistakes(run["compiled, training"], against=run["eager, training"])
    return counted(len(wrong), of=found)


def first_call(r: Records) -> Counted:
    """Of ResNet, with empty caches, to two digits."""
    compiled, _ = pair(r, BUILT, **at("resnet18", BUILT))
    return counted(round(first_s(compiled)), "s", of=compiled.records)


def cached(r: Records) -> Counted:
    """The same where an earlier process has filled the caches."""
    found = r.all(**every("resnet18"))
    return counted(median(float(x.values["cached_s"]) for x in found), "s", of=found)


def parts(r: Records, network: str, way: str) -> dict[str, float]:
    """Seconds of a call by part: medians of the processes."""
    found = [x.values["parts"][way]["seconds"] for x in r.all(**every(network))]
    return {name: median(one[name] for one in found) for name in found[0]}


def part(r: Records, network: str, name: str, way: str = BUILT) -> Counted:
    """What this part takes of a call, under the profiler."""
    return counted(1e3 * parts(r, network, way)[name], "ms", of=r.all(**every(network)))


def generated(r: Records, network: str, *words: str) -> Counted:
    """The generated kernels of a call whose names hold all of these operators."""
    found = r.all(**every(network))
    names = found[0].values["parts"][BUILT]["generated"].items()
    return counted(round(sum(k for n, k in names if all(w in n for w in words))), of=found)


def mask_share(r: Records) -> Contrast:
    """BERT's speed-up with the mask over that without it, all four in the same processes."""
    masked, free = (
        compare(*pair(r, f"default/{form}", f"eager/{form}", **every("bert"))).comparison.by_unit
        for form in ("plain", "unmasked")
    )
    logs = [a - b for a, b in zip(masked, free, strict=True)]
    made = stats.mean(logs, unit=stats.Unit.TIMES, drawn="processes")
    return contrast(made, r.all(**every("bert")))


page.numbers(
    naive_compiled=partial(naive, way="compiled"),
    naive_eager=partial(naive, way="eager"),
    naive_mistakes=naive_mistakes,
    built_resnet=partial(as_built, network="resnet18"),
    built_bert=partial(as_built, network="bert"),
    rewritten=rewriting_pays,
    on_cuda=cuda_faster,
    frozen_resnet=frozen_over_built,
    first_resnet=first_call,
    cached_resnet=cached,
    built_bert_in_turn=lambda r: compare(*pair(r, BUILT, **every("bert"))),
    library_before=partial(part, network="resnet18", name="library", way=EAGER),
    library=partial(part, network="resnet18", name="library"),
    between_before=partial(part, network="resnet18", name="operators", way=EAGER),
    between=partial(part, network="resnet18", name="generated"),
    bert_before=partial(part, network="bert", name="operators", way=EAGER),
    bert_between=partial(part, network="bert", name="generated"),
    guards=partial(part, network="bert", name="guards"),
    weights_copied=lambda r: generated(r, "resnet18", "convolution"),
    masks=lambda r: generated(r, "bert", "arange", "where"),
    mask_share=mask_share,
    contended=lambda r: contended(r.where(kind="time", device="cpu")),
)


# ---- charts and tables --------------------------------------------------------------------------

STEPS = {  # of correcting the loop, each with those before it
    "naive loop": ("training", 0),
    "first call left out": ("training", 1),
    "evaluation mode, too": ("evaluation", 1),
}
RIGHT, BEST = "warm, in turn, many calls, too", "each at its best"


@page.chart
def corrections(r: Records) -> Chart:
    """What each correction of the loop does to the speed-up, at a batch of one on the CPU."""
    rows: list[Row] = []
    for network, title in NETWORKS.items():
        found: dict[str, Any] = {}
        for step, (mode, skip) in STEPS.items():
            eager, compiled = (naive_s(r, network, w, mode, skip) for w in ("eager", "compiled"))
            found[step] = eager / compiled
        compiled, eager = pair(r, BUILT, **at(network, BUILT))
        found[RIGHT] = eager / compiled
        best = FASTEST[network]
        compiled, eager = pair(r, best, by_hand(r, network), **at(network, best))
        found[BEST] = eager / compiled
        rows += [
            {"timed": f"{title}, {step}", "network": title, "speed-up": one}
            for step, one in found.items()
        ]
    return Chart(
        rows,
        x=log("speed-up", "speed of compiled over eager", "×"),
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
    """Where a call's time goes."""
    rows: list[Row] = []
    for (network, title), way in product(NETWORKS.items(), (EAGER, BUILT)):
        taken = parts(r, network, way)
        name = f"{title}, {named(way).partition(',')[0]}"
        rows.append({"call": name, **{PARTS[part]: 1e3 * s for part, s in taken.items()}})
    y = linear(label="a call under the profiler", unit="ms")
    return Chart(rows, x=category("call"), y=y, marks=bars(*PARTS.values(), stacked=True))


def row(r: Records, way: str, **where: Scalar) -> Row:
    """A way beside eager mode as the network is built."""
    arm, eager = pair(r, way, **where)
    compiled = not way.startswith("eager/")
    calls = calls_to_pay(arm, eager) if compiled else None
    return {
        "network": NETWORKS[str(where["network"])],
        "way": named(way),
        "first call (s)": round(first_s(arm)) if compiled else "–",
        "a call": arm,
        "over eager as built": eager / arm,
        "pays after": f"{float(f'{calls:.2g}'):,.0f} calls" if calls else "–",
    }


@page.table
def ways(r: Records) -> Sequence[Row]:
    """Eager and compiled, as built and in the fastest form, at a batch of one on the CPU."""
    return [
        row(r, way, **at(network, built))
        for network in NETWORKS
        for best in [FASTEST[network]]
        for way, built in {
            EAGER: BUILT,
            by_hand(r, network): BUILT,
            BUILT: BUILT,
            best: best,
        }.items()
    ]


@page.chart
def speed_ups(r: Records) -> Chart:
    """Every way over eager as built: all in turn at a batch of one on the CPU, each else alone."""
    places = [every(network) for network in NETWORKS]
    for params in (record.case.params for record in r.where(kind="time")):
        where = {name: params[name] for name in at("", "")}
        if (where["device"], where["batch"]) != ("cpu", 1) and where not in places:
            places.append(where)
    rows: list[Row] = []
    for where in places:
        found, network = r.all(**where)[0], str(where["network"])
        on = "" if where["device"] == "cpu" else f" on {found.place}"
        for way in str(found.case.params["ways"]).split():
            if way != EAGER and way not in found.values["missing"]:
                name = f"{NETWORKS[network]}{on}, batch {where['batch']}: {named(way)}"
                eager = pair(r, way, **where)[1]
                rows.append({"run as": name, **row(r, way, **where), "eager": eager})
    return Chart(
        rows,
        x=linear("over eager as built", "speed-up over eager as built", "×"),
        y=category("run as"),
        marks=[level(1.0, "eager as built"), intervals("over eager as built")],
    )
