"""Question 4.2: attention written out against the fused forms of it, in time and in memory.

Correct first, against float64 on random inputs. Forms that are compared take turns within every
one of several fresh processes. The rival of a fused form is the formula as it is taught, and the
same written out with care. Memory is measured apart, under a limit that the naive form runs into.
"""

from collections.abc import Iterable, Sequence

from experiments.lab4_attention import attention_checks, attention_profile
from experiments.lab4_attention.attention_times import (
    DTYPES,
    WITH_MEMORY,
    against_naive,
    at_course,
    by_length,
    chosen_rows,
    grown,
    in_scores,
    memory_rows,
    of,
    of_longest,
    ran,
    said,
    shape_of,
    time_rows,
    where_it_ends,
    without_kernel,
)
from madl.logbook.charts import Chart, line, log
from madl.logbook.claims import Fact, Judged, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.machine.device import no_device

TIMED = ("time", "dtypes", "variants", "profile")
page = Experiment(
    title="Attention: fused against naive",
    needs=("machine",),
    timed=lambda params: params["kind"] in TIMED,
)
page.unavailable(no_device)

HEAD_DIM = 64
COURSE = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook
TINY = {"batch": 2, "heads": 2, "length": 16}
SHAPES = {"cpu": {"batch": 1, "heads": 8}, "cuda": {"batch": 8, "heads": 8}}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    lengths = {
        "cpu": choose(smoke="32 64", quick="128 512 2048", full="128 256 512 1024 2048 4096"),
        "cuda": choose(smoke="64", quick="512 2048 8192 16384", full="512 2048 8192 32768"),
    }
    middle = {"cpu": choose(smoke=64, quick=512), "cuda": 4096}
    longest = {"cpu": choose(smoke=128, quick=8192), "cuda": 32768}
    limits = {"cpu": choose(smoke=0.25, quick=0.5, full=2.0), "cuda": 16.0}
    taken_apart = {"cpu": choose(smoke=64, quick=2048), "cuda": 2048}
    processes = choose(smoke=1, quick=5, full=9)
    fewer = choose(smoke=1, quick=3, full=5)  # where no claim is decided
    repeated = {
        "processes": processes,
        "budget_s": choose(smoke=0.0, quick=0.05),
        "limit_s": choose(smoke=1.0, quick=0.5, full=2.0),
    }
    for device, shape in SHAPES.items():
        base = {"device": device, "head_dim": HEAD_DIM}
        size = {"length": choose(smoke=16, quick=96, full=200), "lengths": lengths[device]}
        yield {"kind": "correct", **base, **size}
        base |= {"limit_gb": limits[device]}
        yield {"kind": "memory", **base, **shape, "longest": longest[device]}
        base |= repeated
        yield {"kind": "dtypes", **base, **choose(smoke=TINY, quick=COURSE)}
        usual = "float16" if device == "cuda" else "float32"
        yield {"kind": "variants", **base, **shape, "dtype": usual, "length": middle[device]}
        alone = {"dtype": "float32", "length": taken_apart[device], "processes": fewer}
        yield {"kind": "profile", **base, **shape, **alone}
        for dtype in DTYPES:
            times = {**base, **shape, "dtype": dtype, "lengths": lengths[device]}
            times |= {"processes": processes if dtype == "float32" else fewer}
            yield {"kind": "time", **times}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_attention import attention_study

    return attention_study.study(params)


# ---- claims -------------------------------------------------------------------------------------


def _of_course(r: Records, *variants: str) -> Judged:
    """Two variants at the notebook's shape on the CPU."""
    record = r.one(kind="dtypes", device="cpu")
    a, b = (of(record, variant, said(variant)) for variant in variants)
    return faster(a, b, f"on this CPU at the notebook's shape ({shape_of(record)})")


@page.claim
def fp32_faster(r: Records) -> Judged:
    """In FP32, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _of_course(r, "fused float32", "naive float32")


@page.claim
def bf16_faster(r: Records) -> Judged:
    """In BF16 too, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _of_course(r, "fused bfloat16", "naive bfloat16")


@page.claim
def fp16_faster(r: Records) -> Judged:
    """In FP16 too, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _of_course(r, "fused float16", "naive float16")


@page.claim
def fp16_slower(r: Records) -> Judged:
    """On this CPU, naive attention is slower in FP16 than in FP32 at the notebook's shape."""
    return _of_course(r, "naive float32", "naive float16")


@page.claim(headline=True)
def cpu_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster than naive in FP32 at the longest sequence timed."""
    return of_longest(r, "cpu", "fused", "naive")


@page.claim(headline=True)
def beats_tuned(r: Records) -> Judged:
    """On the CPU, fused attention is faster in FP32 at the longest sequence timed than the formula
    written out with care."""
    return of_longest(r, "cpu", "fused", "tuned")


@page.claim
def care_pays(r: Records) -> Judged:
    """On the CPU, the formula written out with care is faster than naive in FP32 at the longest
    sequence timed."""
    return of_longest(r, "cpu", "tuned", "naive")


@page.claim(headline=True)
def cuda_faster(r: Records) -> Judged:
    """On CUDA, fused attention is faster than naive in FP32 at the longest sequence timed."""
    return of_longest(r, "cuda", "fused", "naive")


BACKWARD = "fused attention, forward and backward,", "naive attention"


def _of_variants(
    r: Records, a: str, b: str, label: str, rival: str, dtype: str = "float32"
) -> Judged:
    record = r.one(kind="variants", device="cpu")
    where = f"in {DTYPES[dtype]} on this CPU at {record.case.params['length']:,} positions"
    return faster(of(record, a, label), of(record, b, rival), where)


@page.claim
def training_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster in FP32 with the backward pass as well."""
    return _of_variants(r, "fused and backward", "naive and backward", *BACKWARD)


@page.claim
def bf16_training_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster with the backward pass in BF16 too."""
    variants = "fused BF16 and backward", "naive BF16 and backward"
    return _of_variants(r, *variants, *BACKWARD, dtype="bfloat16")


@page.claim
def causal_saves(r: Records) -> Judged:
    """On this CPU, the fused form is faster with a causal mask than without one."""
    both = "fused attention with a causal mask", "without one"
    return _of_variants(r, "fused causal", "fused no mask", *both)


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def at_shape(r: Records) -> Fact:
    return Fact(text=at_course(r), of="all processes; intervals not corrected for one another")


@page.fact(headline=True)
def grows(r: Records) -> Fact:
    return Fact(text=f"In FP32 on this CPU, {grown(r)}", of="1 peak each, all processes' times")


@page.fact(headline=True)
def naive_runs_out(r: Records) -> Fact:
    text, count = where_it_ends(r)
    return Fact(text=text, of=f"{count} calls under the limit")


@page.fact
def no_kernel(r: Records) -> Fact:
    text = f"On the CPU, torch has no kernel for {' and '.join(without_kernel(r, 'CPU')) or 'none'}"
    return Fact(text=text, of=f"{len(WITH_MEMORY)} forms in {len(DTYPES)} dtypes")


@page.fact
def peak_in_scores(r: Records) -> Fact:
    text = f"In FP32 on this CPU, in matrices of scores: {in_scores(r)}"
    return Fact(text=text, of="every allocation of 1 call of each form")


@page.fact
def time_goes(r: Records) -> Fact:
    return Fact(text=attention_profile.where_time_goes(r), of=attention_profile.MEANS)


@page.fact
def faults(r: Records) -> Fact:
    return Fact(text=attention_profile.faulted(r), of="1 call of each form after others")


@page.fact
def under_the_roof(r: Records) -> Fact:
    text = attention_profile.of_the_roof(r, "cpu")
    return Fact(text=text, of=f"{attention_profile.MEANS}; the fastest sample of each ceiling")


@page.fact
def all_are_correct(r: Records) -> Fact:
    return attention_checks.within_tolerance(ran(r, "correct"))


@page.fact
def ones_prove_nothing(r: Records) -> Fact:
    return attention_checks.wrong_scales(r.one(kind="correct", device="cpu"))


@page.fact
def linted(r: Records) -> Fact:
    return attention_checks.linted(ran(r, kind) for kind in TIMED)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart(
    caption="Time of one call, forward, a panel a dtype. SDPA forms are torch's, each held to one "
    "kernel: math is written out as well, the others are fused. A line goes on to the longest "
    "length tried unless the form runs out of memory or of time."
)
def time(r: Records) -> Chart:
    return by_length(time_rows(r), log(label="time of one call", unit="ms"))


@page.chart(
    caption="Peak memory of one call beyond what was held before, forward, a panel a dtype. A line "
    "ends before the length at which the form runs out under the limit. Peaks are counted from "
    "allocations, and what the limit sees can differ: a call that ran may lie above it."
)
def memory(r: Records) -> Chart:
    y = log(label="peak memory of one call", unit="MB", factor=1e-6)
    return by_length(memory_rows(r), y, line("limit", markers=False))


@page.chart(
    caption="A point is a form in FP32 at a number of positions: across, its operations for each "
    "byte that it must move, if every pass over the scores went to memory; upward, the operations "
    "it does a second. The line is what the machine reached in a copy, on its slope, and in a "
    "product, where it is flat. Bytes are counted by hand: naive passes over its scores when a "
    "product writes them, twice to scale them, twice in the softmax and when a product reads them; "
    "tuned does not scale; fused moves queries, keys, values and output alone. Short sequences "
    "whose scores stay in the cache may lie above the slope."
)
def roofline(r: Records) -> Chart:
    return attention_profile.roofline(r)


@page.table
def steps(r: Records) -> Sequence[Row]:
    return attention_profile.step_rows(r)


@page.table
def dtypes(r: Records) -> Sequence[Row]:
    """The notebook's shape: the speed-up that a report gives depends on the dtype it used."""
    return against_naive(r, "dtypes")


@page.table
def variants(r: Records) -> Sequence[Row]:
    return against_naive(r, "variants")


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """What torch picks when it is free to, for each mask and dtype; all lengths and passes."""
    return chosen_rows(r)
