"""What the records of compiled models hold beside times that are compared, in words.

The modes and their code, what a call runs, the naive timing, and what a linter finds.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from experiments.lab4_compile.compiled import (
    COMPILED,
    DEFAULT,
    MODES,
    NETWORKS,
    Pair,
    batches,
    cell,
    drawn,
    pair,
    problem,
    ways,
)
from madl.logbook import stats
from madl.logbook.arms import timed
from madl.logbook.claims import Fact, compare
from madl.logbook.records import Pending, Record, Records, Values
from madl.machine import lint

CAPTURED = "aot_eager"  # the way that captures a graph and generates no code
READ = "_local_scalar_dense"  # the operator that gives Python a tensor's value
WHOLE = "tensor operations only"  # the one of the small functions that needs no tensor's value

# ---- modes --------------------------------------------------------------------------------------


def modes(record: Record) -> list[str]:
    """Inductor's modes that took turns with its default."""
    found = [way for way in ways(record, batches(record)[0]) if way in MODES]
    if not found:
        raise Pending("modes beside the default")
    return found


def against_default(record: Record) -> str:
    """How long a call of each of inductor's modes takes, in the default's processes, in words."""
    default = pair(record).compiled
    kernels = {way: sum(generated(record, way).values()) for way in (COMPILED, *modes(record))}
    each = (
        f"`{way}` ({kernels[way]}) takes {pair(record, way=way).compiled / default:i} the time"
        for way in modes(record)
    )
    said = f"Against the mode `default` ({kernels[COMPILED]} generated kernels a call)"
    return f"{said}, {', '.join(each)}"


def equal_code(record: Record) -> tuple[str, str] | None:
    """Two of inductor's ways whose generated code is the same to the letter, if there are any."""
    known: dict[str, str] = {}
    for way in (COMPILED, *modes(record)):
        code = str(record.values["generated"][way]["code"])
        if code in known:
            return known[code], way
        known[code] = way
    return None


def between_equals(record: Record) -> str:
    """How far two ways of equal code differ where they took turns, in words."""
    if (same := equal_code(record)) is None:
        return "No two of inductor's modes run equal code, so nothing says how far equals differ"
    a, b = (pair(record, way=way).compiled for way in same)
    low, high = compare(b, a).comparison.interval
    names = [DEFAULT["mode"] if way == COMPILED else way for way in same]
    shown = "nothing shows" if low <= 0 <= high else "it is clear"
    return (
        f"The control: `{names[0]}` and `{names[1]}` run equal code for ResNet-18 on the CPU, and "
        f"in the same processes the second takes {b / a:i} the time of the first; {shown} that "
        "something beside the code makes a difference"
    )


# ---- what a call runs ---------------------------------------------------------------------------

# Operators that inductor leaves to a library: attention, convolutions and matrix products.
LIBRARY = {
    *("addmm", "bmm", "convolution", "linear", "mm"),
    *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"),
}


def generated(record: Record, way: str = COMPILED) -> Mapping[str, int]:
    """The kernels that inductor wrote, by what they fuse, and how often a call runs each."""
    return record.values["generated"][way]["kernels"]


def operators(record: Record) -> str:
    """How many a call runs in eager mode and compiled, in words."""
    counted: list[Mapping[str, int]] = [record.values["kernels"][v] for v in Pair._fields]
    before, left = (sum(counts.values()) for counts in counted)
    library = [sum(counts.get(name, 0) for name in LIBRARY) for counts in counted]
    made = sum(generated(record).values())
    return (
        f"{before} operators in eager mode, {library[0]} of them the library's, and {left + made} "
        f"compiled, {library[1]} of them the library's and {made} generated"
    )


# What a kernel prepares for the library, by the operator in its name, whatever else is in there …
PREPARED = {
    "scaled_dot_product_flash_attention": "attention's mask and layout",
    "convolution": "copies for the library's convolution, alone or beside other operators",
}
# … and the operators that it fuses; the rest of a name is views and indices.
PARTS = {
    "native_batch_norm": "batch norm",
    "native_layer_norm": "layer norm",
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
    kinds: Counter[str] = Counter()
    for name, count in generated(record).items():
        prepared = [title for part, title in PREPARED.items() if part in name]
        fused = " + ".join(title for part, title in PARTS.items() if part in name)
        kinds[prepared[0] if prepared else fused or name] += count
    return ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())


def kinds(r: Records) -> Fact:
    """The generated kernels of each network by what they do."""
    each = (f"{title}: {kernel_kinds(cell(r, n))}" for n, title in NETWORKS.items())
    return Fact(text="; ".join(each), of="generated kernels, by the operators in their names")


def fewer_passes(r: Records) -> Fact:
    """How many operators each network runs, eager and compiled."""
    each = [f"{title} runs {operators(cell(r, n))}" for n, title in NETWORKS.items()]
    of = "the operators of one call on the CPU"
    for record in r.where(kind="cell", device="cuda", **DEFAULT):
        if "kernels" in record.values:
            eager, left = (sum(record.values["kernels"][v].values()) for v in Pair._fields)
            title = NETWORKS[str(record.case.params["network"])]
            said = f"on the {record.place}, {title} launches {eager} kernels in eager mode"
            each.append(f"{said} and {left} compiled")
            of = "the operators of one call on the CPU, the kernels of one on CUDA"
    return Fact(text="; ".join(each), of=of)


def masks_made(r: Records) -> Fact:
    """What compiled BERT does that eager BERT skips: it makes attention's mask."""
    record = cell(r, "bert")
    eager, compiled = (record.values["kernels"][v] for v in Pair._fields)
    times = functools.partial(stats.counted, one="time")
    made = sum(n for name, n in generated(record).items() if "arange" in name and "where" in name)
    return Fact(
        text=f"BERT takes a tensor's value to Python (`{READ}`) {times(eager.get(READ, 0))} a "
        f"call in eager mode and {times(compiled.get(READ, 0))} compiled. Compiled, it runs "
        f"generated kernels that put attention's mask together {times(made)}; in eager mode it "
        f"runs such an operator (`where`) {times(eager.get('where', 0))}",
        of="one call on the CPU, by the names of operators and kernels",
    )


# ---- what is not generated, and what is not explained --------------------------------------------


def captured_too(r: Records) -> Fact:
    """BERT captured, no code generated, beside all that its compilation brings."""
    record = cell(r, "bert")
    whole = pair(record)
    said = "BERT was not timed in this profile"
    if CAPTURED in ways(record, batches(record)[0]):
        alone = pair(record, way=CAPTURED)
        said = f"BERT is {alone.eager / alone.compiled:i} as fast as in eager mode"
    return Fact(
        text=f"Captured, no code generated, {said}; compiled, with the code, it is "
        f"{whole.eager / whole.compiled:i} as fast as in eager mode",
        of=f"{drawn(whole)}, {problem(record, batches(record)[0])}, CPU; intervals not corrected",
    )


def not_explained(r: Records) -> Fact:
    """How the speed-up goes with the batch, in opposite ways."""
    records = {title: cell(r, network) for network, title in NETWORKS.items()}

    def said(record: Record) -> str:
        pairs = ((batch, pair(record, batch)) for batch in batches(record))
        return ", ".join(f"{of.eager / of.compiled:i} at batch {batch}" for batch, of in pairs)

    each = (f"{title} is {said(record)}" for title, record in records.items())
    return Fact(
        text=f"Compiled against eager mode, {'; '.join(each)}",
        of="on the CPU, each of several processes; intervals not corrected",
    )


# ---- what tracing makes -------------------------------------------------------------------------


def graphs_made(values: Values) -> str:
    """How many graphs new sizes make, by how sizes are treated, in words."""
    static, automatic, dynamic = (
        values["graphs"][kind][-1] for kind in ("static", "automatic", "dynamic")
    )
    return (
        f"torch.compile makes {static} graphs with `dynamic=False` and then leaves the rest to "
        f"eager mode (its limit is {values['limit']}), {automatic} when left alone, {dynamic} with "
        "`dynamic=True`"
    )


def broken(values: Values) -> str:
    """How many of the small functions break their graph, in words."""
    found = dict(values["breaks"])
    whole = found.pop(WHOLE)["breaks"]
    count = sum(example["breaks"] > 0 for example in found.values())
    return (
        f"{count} of {len(found)} small functions that need a tensor's value in Python break their "
        f"graph; one of tensor operations alone has {whole} breaks"
    )


# ---- the naive timing, and the linter -----------------------------------------------------------


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


def naive_on_cuda(r: Records) -> str:
    """The same where a GPU has been timed so, without waiting for its work; else nothing."""
    found = r.where(kind="naive", device="cuda")
    each = (
        f". So timed on the {one.place}, it takes {first_calls(Records([one]))}" for one in found
    )
    return "".join(each)


MISTAKES = {  # what it means when a check fails
    "synchronized": "the clock is read before the work is done",
    "steady clock": "its clock may jump while it runs",
    "warm-up excluded": "a first call, or what takes as long, is among the samples",
    "compile time apart": "something is compiled while samples are taken, or a first call is not "
    "kept apart",
    "evaluation mode": "the model is in training mode",
    "no gradient recorded": "gradients are recorded",
    "dtype and shape stated": "what is timed is not stated",
    "interleaved": "eager and compiled do not take turns",
    "enough samples": f"fewer than {lint.MIN_SAMPLES} samples",
    "quiet machine": "others use the machine meanwhile",
    lint.ALIKE: "eager and compiled do not make as many calls in a row",
    lint.EFFECT: f"its median differs from eager mode's by {100 * lint.NO_EFFECT:g} % or more, but "
    "by less than its samples' scatter can tell",
}


def linted(values: Iterable[Values]) -> tuple[str, int]:
    """How often each mistake is found, in words, and in how many timings.

    A timing is one way at one batch size in one process. It is held against eager mode there.
    """
    failed, count = lint.failures(
        (_several(runs), _several(measured[f"eager {name.partition(' ')[2]}".strip()]))
        for measured in (one["measurements"] for one in values)
        for name, runs in measured.items()
    )
    said = (f"{MISTAKES[check]} ({n} of {count})" for check, n in failed.most_common())
    return "; ".join(said) or "none", count


def _several(measured: Any) -> list[Mapping[str, Any]]:
    return measured if isinstance(measured, list) else [measured]
