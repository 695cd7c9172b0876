"""Question 4.2: attention written out against the fused forms of it, in time and in memory.

Correct first, against float64 on random inputs. Forms that are compared take turns within every
one of several fresh processes. Memory is taken apart, under a limit that the naive form runs into.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.execution.attention_times import (
    DTYPES,
    FORMS,
    against_naive,
    at_course,
    by_length,
    grown,
    held,
    of,
    of_longest,
    ran,
    said,
    where_it_ends,
    without_kernel,
)
from madl.logbook import stats
from madl.logbook.charts import Chart, line, log
from madl.logbook.claims import Fact, Judged, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.machine import lint
from madl.machine.device import no_device

TIMED = ("time", "dtypes", "variants")
page = Experiment(
    title="Attention: fused against naive",
    timed=lambda params: params["kind"] in TIMED,
)
page.unavailable(no_device)

HEAD_DIM = 64
COURSE = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook
SHAPES = {"cpu": {"batch": 1, "heads": 8}, "cuda": {"batch": 8, "heads": 8}}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    lengths = {
        "cpu": choose(smoke="32 64", quick="128 512 2048", full="128 256 512 1024 2048 4096 8192"),
        "cuda": choose(smoke="64", quick="512 2048 8192 16384", full="512 2048 8192 32768"),
    }
    middle = {"cpu": choose(smoke=64, quick=512, full=2048), "cuda": 4096}
    longest = {"cpu": choose(smoke=128, quick=8192, full=16384), "cuda": 32768}
    limits = {"cpu": choose(smoke=0.25, quick=0.5, full=6.0), "cuda": 16.0}
    processes = choose(smoke=2, quick=5, full=9)
    fewer = choose(smoke=2, quick=3, full=9)  # where no claim is decided
    repeated = {
        "processes": processes,
        "budget_s": choose(smoke=0.0, quick=0.05, full=0.5),
        "limit_s": choose(smoke=1.0, quick=0.5, full=5.0),
    }
    for device, shape in SHAPES.items():
        base = {"device": device, "head_dim": HEAD_DIM}
        size = {"length": choose(smoke=16, quick=96, full=200), "lengths": lengths[device]}
        yield {"kind": "correct", **base, **size}
        base |= {"limit_gb": limits[device]}
        yield {"kind": "memory", **base, **shape, "longest": longest[device]}
        base |= repeated
        course = choose(smoke={"batch": 2, "heads": 2, "length": 16}, quick=COURSE)
        yield {"kind": "dtypes", **base, **course}
        usual = "float16" if device == "cuda" else "float32"
        yield {"kind": "variants", **base, **shape, "dtype": usual, "length": middle[device]}
        for dtype in DTYPES:
            times = {**base, **shape, "dtype": dtype, "lengths": lengths[device]}
            times |= {"processes": processes if dtype == "float32" else fewer}
            yield {"kind": "time", **times}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import attention

    return attention.study(params)


# ---- claims -------------------------------------------------------------------------------------


def _of_course(r: Records, *variants: str) -> Judged:
    """Two variants at the notebook's shape on the CPU."""
    record = r.one(kind="dtypes", device="cpu")
    shape = ", ".join(f"{record.case.params[n]}" for n in ("batch", "heads", "length", "head_dim"))
    where = f"on this CPU at the notebook's shape ({shape})"
    a, b = (of(record, variant, said(variant)) for variant in variants)
    return faster(a, b, where)


@page.claim
def fp32_faster(r: Records) -> Judged:
    """In FP32, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _of_course(r, "fused float32", "naive float32")


@page.claim
def bf16_faster(r: Records) -> Judged:
    """In BF16 too, fused attention is faster than naive at the notebook's shape on this CPU."""
    return _of_course(r, "fused bfloat16", "naive bfloat16")


@page.claim
def fp16_slower(r: Records) -> Judged:
    """On this CPU, naive attention is slower in FP16 than in FP32 at the notebook's shape."""
    return _of_course(r, "naive float32", "naive float16")


@page.claim(headline=True)
def cpu_faster(r: Records) -> Judged:
    """On the CPU, fused attention is faster in FP32 at the longest sequence that naive reaches."""
    return of_longest(r, "cpu")


@page.claim(headline=True)
def cuda_faster(r: Records) -> Judged:
    """On CUDA, fused attention is faster in FP32 at the longest sequence that naive reaches."""
    return of_longest(r, "cuda")


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
def naive_runs_out(r: Records) -> Fact:
    text, count = where_it_ends(r)
    return Fact(text=text, of=f"{count} calls under the limit")


@page.fact(headline=True)
def grows(r: Records) -> Fact:
    return Fact(text=f"In FP32 on this CPU, {grown(r)}", of="1 peak each, all processes' times")


@page.fact(headline=True)
def at_shape(r: Records) -> Fact:
    count = r.one(kind="dtypes", device="cpu").case.params["processes"]
    text = "At the notebook's shape on this CPU, a call takes fused and naive (processes' medians)"
    of_what = f"{count} processes; intervals not corrected for one another"
    return Fact(text=f"{text}; fused is so many times as fast: {at_course(r)}", of=of_what)


@page.fact
def no_kernel(r: Records) -> Fact:
    text = f"On the CPU, torch has no kernel for {' and '.join(without_kernel(r, 'CPU')) or 'none'}"
    return Fact(text=text, of=f"{len(FORMS)} forms in {len(DTYPES)} dtypes")


@page.fact
def peak_in_scores(r: Records) -> Fact:
    """What a form holds, in matrices of one score for every pair of positions."""
    ok = [x for x in held(r, dtype="float32") if x["device"] == "CPU" and "peak_bytes" in x]
    longest = max(x["length"] for x in ok if x["form"] == "naive")
    each = {
        FORMS[x["form"]]: x["peak_bytes"] / x["score_bytes"] for x in ok if x["length"] == longest
    }
    said = ", ".join(f"{stats.number(count)} {form}" for form, count in each.items())
    return Fact(
        text=f"At {longest:,} positions in FP32 on this CPU, a call holds at most so many matrices "
        f"of scores: {said}",
        of="every allocation of 1 call of each form",
    )


@page.fact
def all_are_correct(r: Records) -> Fact:
    found = [(x, e) for x in ran(r, "correct") for e in x.values["errors"] if "error" in e]
    right = sum(e["error"] <= x.values["tolerance"][e["dtype"]] for x, e in found)
    return Fact(
        text=f"On random inputs, {right} of {len(found)} combinations agree with float64 to their "
        "dtype's rounding",
        of=f"{len(found)} combinations of device, form, dtype, mask and pass",
    )


@page.fact
def ones_prove_nothing(r: Records) -> Fact:
    found = r.one(kind="correct", device="cpu").values["scales"]
    ones = max(e["all ones"] for e in found.values())
    drawn = min(e["random"] for e in found.values())
    return Fact(
        text=f"With a wrong scale, inputs of ones give an error of {stats.number(ones)} of the "
        f"largest output at most, random inputs one of {stats.per_cent(drawn)} at least",
        of=f"{len(found)} wrong scales",
    )


@page.fact
def linted(r: Records) -> Fact:
    """Each against the naive form of the same problem, and that against itself."""
    runs = [x.values["measurements"] for kind in TIMED for x in ran(r, kind)]
    said, count = lint.failing(
        (m[name], m.get(f"naive {name.partition(' ')[2]}", m[name])) for m in runs for name in m
    )
    return Fact(
        text=f"The measurement linter's checks that a timing of this page fails: {said}",
        of=f"{len(lint.CHECKS) + 1} checks of {count} timings",
    )


# ---- charts and tables --------------------------------------------------------------------------


@page.chart(
    caption="Time of one call, forward, a panel a dtype. A line goes on to the longest length "
    "tried unless the form runs out of memory or of time."
)
def time(r: Records) -> Chart:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for record in ran(r, "time"):
        panel = f"{record.place}, {DTYPES[str(record.case.params['dtype'])]}"
        for name in record.values["measurements"]:
            form, _, length = name.partition(" ")
            row = rows.setdefault((panel, int(length)), {"panel": panel, "positions": int(length)})
            row[FORMS[form]] = of(record, name)
    return by_length(rows.values(), log(label="time of one call", unit="ms"))


@page.chart(
    caption="Peak memory of one call beyond what was held before, forward, a panel a dtype. A line "
    "ends before the length at which the form runs out under the limit. Peaks are counted from "
    "allocations, and what the limit sees can differ: a call that ran may lie above it."
)
def memory(r: Records) -> Chart:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for x in held(r):
        panel, length = f"{x['device']}, {DTYPES[x['dtype']]}", x["length"]
        limit = x["limit"] * 2**30
        row = rows.setdefault(
            (panel, length), {"panel": panel, "positions": length, "limit": limit}
        )
        row[FORMS[x["form"]]] = x.get("peak_bytes")
    y = log(label="peak memory of one call", unit="MB", factor=1e-6)
    return by_length(rows.values(), y, line("limit", markers=False))


@page.table
def dtypes(r: Records) -> Sequence[Row]:
    """The notebook's shape: the speed-up that a report gives depends on the dtype it used."""
    return against_naive(r, "dtypes", "dtype")


@page.table
def variants(r: Records) -> Sequence[Row]:
    return against_naive(r, "variants", "problem")


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """What torch picks when it is free to, for each mask and dtype; all lengths and passes."""
    rows: list[Row] = []
    for record in ran(r, "correct"):
        picked: list[Mapping[str, Any]] = record.values["chosen"]
        for mask in dict.fromkeys(one["mask"] for one in picked):
            row: dict[str, Any] = {"device": record.place, "mask": mask}
            for dtype, title in DTYPES.items():
                forms = {o["form"] for o in picked if (o["mask"], o["dtype"]) == (mask, dtype)}
                row[title] = " or ".join(FORMS.get(form, "another") for form in sorted(forms))
            rows.append(row)
    return rows
