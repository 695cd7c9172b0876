"""Attention written out and torch's forms of it: held against float64, timed in turn, and weighed.

All that is measured runs in a fresh process that tells glibc to keep freed memory, so that whether
a matrix of scores comes in new pages depends on its size alone.

Shapes: B batch, H heads, T positions, D features of a head; q, k, v are (B, H, T, D).
"""

import contextlib
import functools
import itertools
import math
import resource
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages, limited, peak_bytes, ran_out

Json = Mapping[str, Any]
Call = Callable[[], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
NAIVE, TUNED, CAST = "naive", "tuned", "cast"
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
FORMS = (NAIVE, TUNED, CAST, *BACKENDS)
SHAPE = ("batch", "heads", "length", "head_dim", "dtype")
ROUNDS = 5  # at least, in one process; verdicts come from between processes
DOUBLINGS = 4  # of the sequence, up to the longest whose memory is taken
WAIT_S = 0.5  # that a first call may wait for a library
OUT_OF_MEMORY = "out of memory"

# Largest error against float64, as a share of the largest output: sums of T rounded products.
TOLERANCE = {"float32": 1e-5, "bfloat16": 4e-2, "float16": 5e-3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One attention to compute."""

    batch: int
    heads: int
    length: int
    head_dim: int
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def flops(self) -> int:
        """Of the two products; a multiplication and an addition are two."""
        return 4 * self.exponentials * self.head_dim

    @property
    def exponentials(self) -> int:
        """One a score."""
        return self.batch * self.heads * self.length**2

    @property
    def score_bytes(self) -> int:
        """One matrix of scores, a number for every pair of positions."""
        return self.exponentials * self.torch_dtype.itemsize

    @property
    def tensor_bytes(self) -> int:
        """One of q, k, v and the output."""
        return self.score_bytes // self.length * self.head_dim


# ---- forms --------------------------------------------------------------------------------------


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As the formula says it: three matrices of scores, each in new memory."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    return torch.softmax(scores, dim=-1) @ v


def tuned(problem: Problem, device: str) -> Attend:
    """Written out with care: the product scales, the softmax overwrites, the memory is kept."""
    p, count = problem, problem.batch * problem.heads  # of matrix products

    @functools.cache
    def kept() -> tuple[Tensor, Tensor]:
        sizes = (count, p.length, p.length), (count, p.length, p.head_dim)
        scores, out = (torch.empty(size, dtype=p.torch_dtype, device=device) for size in sizes)
        return scores, out

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores, out = kept()
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        scores.baddbmm_(q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(p.head_dim))
        torch.softmax(scores, dim=-1, out=scores)
        return torch.bmm(scores, v, out=out).view(p.batch, p.heads, p.length, p.head_dim)

    return attend


def cast(problem: Problem, device: str) -> Attend:
    """Tuned, computed in float32: for dtypes that a processor multiplies slowly.

    Raises:
        RuntimeError: the problem is in float32, where this is the tuned form.
    """
    if problem.dtype == "float32":
        raise RuntimeError("the same as tuned")
    attend = tuned(replace(problem, dtype="float32"), device)
    return lambda q, k, v: attend(q.float(), k.float(), v.float()).to(problem.torch_dtype)


def inputs(problem: Problem, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v: their scores differ, so a wrong scale shows."""
    shape = (problem.batch, problem.heads, problem.length, problem.head_dim)
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(shape, generator=generator) for _ in range(3))
    q, k, v = (t.to(device, problem.torch_dtype) for t in drawn)
    return q, k, v


def call(form: str, problem: Problem, device: str) -> Call:
    """One forward pass of a form on fixed inputs."""
    q, k, v = inputs(problem, device)
    written: dict[str, Callable[[], Attend]] = {
        NAIVE: lambda: naive,
        TUNED: lambda: tuned(problem, device),
        CAST: lambda: cast(problem, device),
    }
    attend = written.get(form, lambda: F.scaled_dot_product_attention)()

    def once() -> Tensor:
        with torch.no_grad():
            return attend(q, k, v)

    return once


@contextlib.contextmanager
def only(form: str) -> Generator[None]:
    """Let `scaled_dot_product_attention` use this backend and no other."""
    with sdpa_kernel(BACKENDS[form]) if form in BACKENDS else contextlib.nullcontext():
        yield


def chosen_backend(problem: Problem, device: str) -> str:
    """What `scaled_dot_product_attention` picks when it is free to choose."""
    choose: Any = torch._fused_sdp_choice  # pyright: ignore
    number = int(choose(*inputs(problem, device), None, 0.0, False))
    return next((name for name, b in BACKENDS.items() if int(b.value) == number), "another")  # type: ignore


# ---- correctness --------------------------------------------------------------------------------


def error(found: Tensor, expected: Tensor) -> float:
    """Largest difference, as a share of the largest expected output."""
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def check(argument: Json) -> dict[str, Any]:
    """Every form and dtype against float64 on random inputs, and the trap of inputs of ones.

    Raises:
        AssertionError: a form is further from float64 than its dtype's rounding allows.
    """
    device, shares = argument["device"], dict[str, float]()
    for dtype, form in itertools.product(TOLERANCE, FORMS):
        problem = _problem(argument, dtype=dtype)
        expected = naive(*(t.double() for t in inputs(problem, device)))
        try:
            with only(form):
                found = call(form, problem, device)()
        except RuntimeError:  # no such kernel here
            continue
        share = shares[f"{form} {dtype}"] = error(found, expected) / TOLERANCE[dtype]
        assert share <= 1, f"{form} in {dtype} is wrong: {share:.3g} times the allowed error"
    return {"errors": shares, "scales": scale_errors(_problem(argument, dtype="float32"))}


def scale_errors(problem: Problem) -> dict[str, float]:
    """Attention without its scale against attention, on inputs of ones and on random ones."""
    random = inputs(problem, "cpu")
    ones = tuple(torch.ones_like(t) for t in random)
    return {
        name: error(F.scaled_dot_product_attention(q, k, v, scale=1.0), naive(q, k, v))
        for name, (q, k, v) in (("ones", ones), ("random", random))
    }


# ---- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """A call that is measured, and by which form."""

    call: Call
    form: str
    subject: timing.Subject


def time_forms(argument: Json) -> dict[str, Any]:
    """Every form of one problem, in turn; one that cannot run says why."""
    problem = _problem(argument)
    works, missing = _ready(FORMS, problem, argument)
    return {"measurements": _timed(works, argument), "missing": missing}


def take_apart(argument: Json) -> dict[str, Any]:
    """Three forms, each step of the naive one, and what bounds them, in turn; faults of each form.

    Bounds: one large product, and a copy of a matrix of scores to memory that is there.
    """
    problem, device = _problem(argument), argument["device"]
    forms = (NAIVE, TUNED, chosen_backend(problem, device))
    works, missing = _ready(forms, problem, argument)
    faults = {name: _faults(work) for name, work in works.items() if device == "cpu"}
    alone = {**steps(problem, device), **bounds(problem, device)}
    works |= {name: Work(one, NAIVE, works[NAIVE].subject) for name, one in alone.items()}
    return {
        "measurements": _timed(works, argument),
        "missing": missing,
        "fault_bytes": {form: n * resource.getpagesize() for form, n in faults.items()},
        "flops": problem.flops,
        "exponentials": problem.exponentials,
        "product_flops": 2 * PRODUCT**3,
        "score_bytes": problem.score_bytes,
        "tensor_bytes": problem.tensor_bytes,
    }


PRODUCT = 1024  # rows and columns of the product whose speed is a bound


def steps(problem: Problem, device: str) -> dict[str, Call]:
    """Each step of the naive form alone, on what the step before it gives."""
    q, k, v = inputs(problem, device)
    root = math.sqrt(problem.head_dim)
    products = q @ k.transpose(-2, -1)
    scaled = products / root
    weights = torch.softmax(scaled, dim=-1)
    return {
        "first product": lambda: q @ k.transpose(-2, -1),
        "scale": lambda: products / root,
        "softmax": lambda: torch.softmax(scaled, dim=-1),
        "second product": lambda: weights @ v,
    }


def bounds(problem: Problem, device: str) -> dict[str, Call]:
    """What the machine does of each kind of work alone."""
    square = torch.ones(PRODUCT, PRODUCT, dtype=problem.torch_dtype, device=device)
    scores = torch.ones(problem.exponentials, dtype=problem.torch_dtype, device=device)
    target = torch.ones_like(scores)
    return {"product": lambda: square @ square, "copy": lambda: target.copy_(scores)}


def _ready(
    forms: Iterable[str], problem: Problem, argument: Json
) -> tuple[dict[str, Work], dict[str, str]]:
    """Those that run here, under the limits of memory and time; the others with the reason.

    Raises:
        AssertionError: two forms disagree on the inputs that are timed.
    """
    works: dict[str, Work] = {}
    missing: dict[str, str] = {}
    reference: Tensor | None = None
    for form in forms:
        try:
            one = call(form, problem, argument["device"])
            with only(form):
                found = _tried(one, argument)
                subject = timing.observe(one, inputs(problem, "meta"))
        except RuntimeError as failed:
            missing[form] = OUT_OF_MEMORY if ran_out(failed) else first_line(failed)
            continue
        reference = found if reference is None else reference
        far = error(found, reference) / TOLERANCE[problem.dtype]
        assert far <= 2, f"{form} differs from {next(iter(works))} by {far:.3g} times the error"
        works[form] = Work(one, form, subject)
    return works, missing


def _tried(one: Call, argument: Json) -> Tensor:
    """The result of a call under the limits; a first call may have waited for a library.

    Raises:
        RuntimeError: it runs out of memory or of time, or has no kernel.
    """
    limit_s = argument["limit_s"]
    for allowed_s in (limit_s + WAIT_S, limit_s):
        start = time.perf_counter()
        with limited(int(argument["limit_gb"] * 2**30), argument["device"]):
            found = one()
            if argument["device"] == "cuda":
                torch.cuda.synchronize()
        took_s = time.perf_counter() - start
        if took_s <= limit_s:
            return found.clone()  # the tuned form overwrites its own
        if took_s > allowed_s:
            break
    raise RuntimeError(f"over {limit_s:g} s")


def _timed(works: Mapping[str, Work], argument: Json) -> dict[str, Any]:
    """Measurements of these in turn."""
    measured = timing.compare(
        {name: work.call for name, work in works.items()},
        device=argument["device"],
        budget_s=argument["budget_s"],
        min_samples=ROUNDS,
        subjects={name: work.subject for name, work in works.items()},
        inside={name: functools.partial(only, work.form) for name, work in works.items()},
    )
    return {name: m.to_json() for name, m in measured.items()}


def _faults(work: Work) -> int:
    """Pages that the system hands out anew during a call, the fewest of several in a row."""
    faulted: list[int] = []
    with only(work.form):
        for _ in range(2 * timing.WARMUP_CALLS):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            work.call()
            faulted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(faulted)


# ---- memory -------------------------------------------------------------------------------------


def peaks(argument: Json) -> dict[str, Any]:
    """Peak memory of each form's first call as the sequence doubles, until it runs out."""
    rows: list[dict[str, Any]] = []
    device, longest = argument["device"], argument["longest"]
    for dtype, form in itertools.product(TOLERANCE, FORMS):
        for length in (longest >> k for k in range(DOUBLINGS, -1, -1)):
            problem = _problem(argument, dtype=dtype, length=length)
            row = {"form": form, "dtype": dtype, "length": length}
            try:
                with only(form):
                    _tried(call(form, problem, device), argument)
                    row["peak_bytes"] = peak_bytes(call(form, problem, device), device)
            except RuntimeError as failed:
                row["missing"] = OUT_OF_MEMORY if ran_out(failed) else first_line(failed)
            rows.append({**row, "score_bytes": problem.score_bytes})
            if "missing" in row:
                break
    return {"peaks": rows}


# ---- cases --------------------------------------------------------------------------------------

KINDS: Mapping[str, Callable[[Json], dict[str, Any]]] = {
    "correct": check,
    "memory": peaks,
    "time": time_forms,
    "notebook": time_forms,
    "profile": take_apart,
}


def study(params: Json) -> dict[str, Any]:
    """One case, in a process of its own."""
    return fresh.call(f"{__name__}:{measure.__name__}", dict(params))


def measure(argument: Json) -> dict[str, Any]:
    """One case, in this process."""
    keep_freed_pages()
    with torch.no_grad():
        return KINDS[argument["kind"]](argument)


def first_line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return "no kernel" if text.startswith("No viable backend") else text


def _problem(argument: Json, **changes: Any) -> Problem:
    return Problem(**{**{name: argument[name] for name in SHAPE if name in argument}, **changes})
