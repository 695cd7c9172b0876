"""The cases of attention: forms held against float64, timed in turn, taken apart, and their memory.

What is timed runs in fresh processes, all of which tell glibc to keep the memory that is freed:
whether a matrix of scores comes with new pages to be faulted in is then the same in each of them,
and depends on its size alone.
"""

import functools
import itertools
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.lab4_attention.attention import (
    BACKENDS,
    FORMS,
    TOLERANCE,
    Json,
    call,
    chosen_backend,
    errors,
    first_line,
    only,
    steps,
)
from experiments.lab4_attention.attention_problem import NAIVE, TUNED, Problem
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages, limited, peak_bytes, ran_out

OUT_OF_MEMORY = "out of memory"
SHAPE = ("batch", "heads", "length", "head_dim")
DOUBLINGS = 4  # of the sequence, up to the longest whose memory is taken
ROUNDS = 5  # at least, in one process; verdicts come from between processes


def study(params: Json) -> dict[str, Any]:
    """One case by its `kind`, in fresh processes: several where it measures time."""
    kind, argument = params["kind"], dict(params)
    if kind == "memory":
        argument["lengths"] = [params["longest"] >> k for k in range(DOUBLINGS, -1, -1)]
    elif "lengths" in params:
        argument["lengths"] = [int(length) for length in params["lengths"].split()]
    if kind in TIMED:
        function = f"{__name__}:{measure.__name__}"
        return timing.over_processes(function, argument, processes=params["processes"])
    once = {"correct": errors, "memory": peaks}[kind]
    return fresh.call(f"{once.__module__}:{once.__name__}", argument)


def measure(argument: Json) -> dict[str, Any]:
    """What is timed in one process, with freed memory kept for every form alike."""
    keep_freed_pages()
    return TIMED[argument["kind"]](argument)


# ---- time ---------------------------------------------------------------------------------------


def time_lengths(argument: Json) -> dict[str, Any]:
    """Every form at each length of one dtype, in turn; one that cannot run says why."""
    found: dict[str, Any] = {"measurements": {}, "missing": {}}
    for length in argument["lengths"]:
        problem = _problem(argument, length=length)
        here = _in_turn({f"{form} {length}": (form, problem) for form in FORMS}, argument)
        for part, rows in found.items():
            rows.update(here[part])
    return found


def time_dtypes(argument: Json) -> dict[str, Any]:
    """Both written-out forms and the one that torch chooses, in each dtype, all in turn."""
    device = argument["device"]
    problems: dict[str, tuple[str, Problem]] = {}
    for dtype in TOLERANCE:
        problem = _problem(argument, dtype=dtype)
        forms = {NAIVE: NAIVE, TUNED: TUNED, "fused": chosen_backend(problem, device)}
        problems |= {f"{name} {dtype}": (form, problem) for name, form in forms.items()}
    return _in_turn(problems, argument)


def time_variants(argument: Json) -> dict[str, Any]:
    """Masks and the backward pass, written out and fused, all in turn; tuned has none backward."""
    problems: dict[str, tuple[str, Problem]] = {}
    for name, changes in VARIANTS.items():
        problem = _problem(argument, **changes)
        fused = chosen_backend(problem, argument["device"])
        written_out = (NAIVE,) if problem.backward else (NAIVE, TUNED)
        forms = {form: form for form in written_out} | {"fused": fused}
        problems |= {f"{title} {name}": (form, problem) for title, form in forms.items()}
    return _in_turn(problems, argument)


VARIANTS: Mapping[str, dict[str, Any]] = {
    "no mask": {},
    "causal": {"mask": "causal"},
    "padding": {"mask": "padding"},
    "and backward": {"backward": True},
    "BF16 and backward": {"backward": True, "dtype": "bfloat16"},
}


def take_apart(argument: Json) -> dict[str, Any]:
    """The naive form and each of its steps alone, in turn; pages that a call of each form faults.

    Faults are of a CPU: a GPU's memory comes from torch's own allocator, which keeps it.
    """
    problem, device = _problem(argument), argument["device"]
    forms = {NAIVE: NAIVE, TUNED: TUNED, "fused": chosen_backend(problem, device)}
    works, missing = _ready({name: (form, problem) for name, form in forms.items()}, argument)
    taken = {name: work for name, work in works.items() if name == NAIVE}
    if taken:
        alone = steps(problem, device)
        taken |= {name: Work(step, NAIVE, problem) for name, step in alone.items()}
    counted = works | taken if device == "cpu" else {}
    return {
        "measurements": _timed(taken, argument),
        "missing": missing,
        "faults": {name: _faults(work) for name, work in counted.items()},
        "page_bytes": resource.getpagesize(),
    }


TIMED: Mapping[str, Callable[[Json], dict[str, Any]]] = {
    "time": time_lengths,
    "dtypes": time_dtypes,
    "variants": time_variants,
    "profile": take_apart,
}


@dataclass(frozen=True, slots=True)
class Work:
    """A call that is measured: by which form, of which problem."""

    call: Callable[[], Tensor]
    form: str
    problem: Problem


Named = Mapping[str, tuple[str, Problem]]


def _in_turn(problems: Named, argument: Json) -> dict[str, Any]:
    works, missing = _ready(problems, argument)
    return {"measurements": _timed(works, argument), "missing": missing}


def _ready(problems: Named, argument: Json) -> tuple[dict[str, Work], dict[str, str]]:
    """Those that run here, under the limits of memory and time; the others with the reason."""
    works: dict[str, Work] = {}
    missing: dict[str, str] = {}
    for name, (form, problem) in problems.items():
        work = Work(call(form, problem, argument["device"]), form, problem)
        why = _fails(work, argument)
        if why is None:
            works[name] = work
        else:
            missing[name] = why
    return works, missing


def _timed(works: Mapping[str, Work], argument: Json) -> dict[str, Any]:
    """Measurements of these in turn."""
    measured = timing.compare(
        {name: work.call for name, work in works.items()},
        device=argument["device"],
        budget_s=argument["budget_s"],
        min_samples=ROUNDS,
        subjects={name: observed(work) for name, work in works.items()},
        inside={name: functools.partial(only, work.form) for name, work in works.items()},
    )
    return {name: m.to_json() for name, m in measured.items()}


def observed(work: Work) -> timing.Subject:
    """What is timed; a pass back and forth records a graph because it needs one."""
    p = work.problem
    q = torch.empty(p.batch, p.heads, p.length, p.head_dim, device="meta")
    with only(work.form):
        subject = timing.observe(work.call, [q.to(getattr(torch, p.dtype))])
    return replace(subject, is_training_step=p.backward)


def _faults(work: Work) -> int:
    """Pages that the system hands out anew during a call, the fewest of several in a row.

    A single one can meet an allocator whose free blocks do not fit yet.
    """
    faulted: list[int] = []
    with only(work.form):
        for _ in range(2 * timing.WARMUP_CALLS):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            work.call()
            faulted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(faulted)


# ---- memory -------------------------------------------------------------------------------------


def peaks(argument: Json) -> dict[str, Any]:
    """Peak memory of each dtype and form as the sequence doubles, until it runs out.

    The tuned form is left out: it takes its memory once, and no call of it is a peak.
    """
    rows: list[dict[str, Any]] = []
    for dtype, form in itertools.product(TOLERANCE, (NAIVE, *BACKENDS)):
        for length in argument["lengths"]:
            problem = _problem(argument, length=length, dtype=dtype)
            work = Work(call(form, problem, argument["device"]), form, problem)
            row: dict[str, Any] = {"form": form, "dtype": dtype, "length": length}
            reason = _fails(work, argument)
            with only(form):
                peak = None if reason else peak_bytes(work.call, argument["device"])
            row |= {"missing": reason} if reason else {"peak_bytes": peak}
            rows.append({**row, "score_bytes": problem.score_bytes})
            if reason:
                break
    return {"peaks": rows}


def _problem(argument: Json, **changes: Any) -> Problem:
    shape = {name: argument[name] for name in SHAPE if name in argument}
    return Problem(**{"dtype": argument.get("dtype", ""), **shape, **changes})


def _fails(work: Work, argument: Json) -> str | None:
    """Why one call under the limits does not work; None if it does.

    A first call that takes too long has a second chance: it may have waited for the library.
    """
    limit_bytes, limit_s = int(argument["limit_gb"] * 2**30), argument.get("limit_s")
    for _ in range(2):
        start = time.perf_counter()
        try:
            with only(work.form), limited(limit_bytes, argument["device"]):
                work.call()
                if argument["device"] == "cuda":
                    torch.cuda.synchronize()
        except RuntimeError as problem:
            return OUT_OF_MEMORY if ran_out(problem) else first_line(problem)
        if limit_s is None or time.perf_counter() - start <= limit_s:
            return None
    return f"over {limit_s:g} s"
