"""Attention written out, and each fused form of it: correct first, then its arithmetic, then time.

Shapes: B batch, H heads, T positions, D features of a head; q, k, v are (B, H, T, D).
Units: `flops` counts a multiplication and an addition as two, of the matrix products alone; the
softmax is left out, as is usual.
Invariants: where no mask leaves a row empty, all forms compute the same function.
"""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from madl.machine import fresh, timing
from madl.machine.memory import limited, peak_bytes, ran_out

NAIVE = "naive"
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
FORMS = (NAIVE, *BACKENDS)
MASKS = ("none", "causal", "padding")
OUT_OF_MEMORY = "out of memory"
PADDED = 0.25  # share of the positions at the end that the padding mask hides

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
    mask: str = "none"
    backward: bool = False

    @property
    def item_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def flops(self) -> float:
        """Of the products: two forward, four more backward; a causal mask needs half of each."""
        products = 6 if self.backward else 2
        pairs = self.length * (self.length + 1) / 2 if self.mask == "causal" else self.length**2
        return products * 2.0 * self.batch * self.heads * pairs * self.head_dim

    @property
    def score_bytes(self) -> int:
        """One matrix of scores, a number for every pair of positions."""
        return self.batch * self.heads * self.length**2 * self.item_bytes

    @property
    def tensor_bytes(self) -> int:
        """One of q, k, v and the output."""
        return self.batch * self.heads * self.length * self.head_dim * self.item_bytes


def naive(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """As the formula says it: every score is written to memory. A mask is True where seen."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def inputs(problem: Problem, device: str, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v: their scores differ, so a wrong scale shows."""
    shape = (problem.batch, problem.heads, problem.length, problem.head_dim)
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator) for _ in range(3)]
    dtype: torch.dtype = getattr(torch, problem.dtype)
    q, k, v = (t.to(device, dtype).requires_grad_(problem.backward) for t in drawn)
    return q, k, v


def seen(problem: Problem, device: str) -> Tensor | None:
    """The mask as a tensor, True where a position is seen; None where all are."""
    length = problem.length
    if problem.mask == "none":
        return None
    if problem.mask == "causal":
        return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # (T, T)
    visible = torch.arange(length, device=device) < length - int(PADDED * length)
    return visible.expand(problem.batch, 1, length, length)


def forward(form: str, problem: Problem, device: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The form as a function of q, k, v; the mask is made beforehand."""
    mask = None if form != NAIVE and problem.mask == "causal" else seen(problem, device)
    if form == NAIVE:
        return lambda q, k, v: naive(q, k, v, mask)
    causal = problem.mask == "causal"

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    return fused


def call(form: str, problem: Problem, device: str) -> Callable[[], Tensor]:
    """One whole piece of work on fixed inputs; with backward, the gradients are taken too."""
    q, k, v = inputs(problem, device)
    attend = forward(form, problem, device)
    if not problem.backward:

        def once() -> Tensor:
            with torch.no_grad():
                return attend(q, k, v)

        return once
    outward = torch.ones_like(q)

    def both() -> Tensor:
        out = attend(q, k, v)
        torch.autograd.grad(out, (q, k, v), outward)
        return out

    return both


@contextlib.contextmanager
def only(form: str) -> Generator[None]:
    """Let `scaled_dot_product_attention` use this backend and no other."""
    if form == NAIVE:
        yield
        return
    with sdpa_kernel(BACKENDS[form]):
        yield


def chosen_backend(problem: Problem, device: str) -> str:
    """What `scaled_dot_product_attention` picks when it is free to choose."""
    q, k, v = inputs(problem, device)
    causal = problem.mask == "causal"
    mask = None if causal else seen(problem, device)
    choose: Any = torch._fused_sdp_choice  # pyright: ignore
    number = int(choose(q, k, v, mask, 0.0, causal))
    return next((name for name, b in BACKENDS.items() if int(b.value) == number), "another")  # type: ignore


def outcome(form: str, problem: Problem, device: str, *, double: bool = False) -> Tensor:
    """The output, or with backward the gradients of q, k and v; in float64 for a reference."""
    q, k, v = inputs(problem, device)
    if double:
        q, k, v = (t.detach().double().requires_grad_(problem.backward) for t in (q, k, v))
    with only(form):
        found = forward(form, problem, device)(q, k, v)
        if not problem.backward:
            return found.detach()
        return torch.stack(torch.autograd.grad(found, (q, k, v), torch.ones_like(found)))


def error(found: Tensor, expected: Tensor) -> float:
    """Largest difference, as a share of the largest expected output."""
    return float((found.double() - expected).abs().max() / expected.abs().max())


def scale_errors(length: int, head_dim: int) -> dict[str, dict[str, float]]:
    """Wrong scales against the right one, on all-ones and on random inputs."""
    problem = Problem(batch=1, heads=1, length=length, head_dim=head_dim, dtype="float32")
    random = inputs(problem, "cpu")
    ones = (torch.ones_like(random[0]),) * 3
    found: dict[str, dict[str, float]] = {}
    for name, scale in (("no scale", 1.0), ("1/D instead of 1/√D", 1 / head_dim)):
        found[name] = {}
        for kind, (q, k, v) in (("all ones", ones), ("random", random)):
            wrong = F.scaled_dot_product_attention(q, k, v, scale=scale)
            right = naive(q.double(), k.double(), v.double(), None)
            found[name][kind] = error(wrong, right)
    return found


# ---- cases --------------------------------------------------------------------------------------

Json = Mapping[str, Any]
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
    functions = {
        **{"correct": errors, "memory": peaks},
        **{"time": time_lengths, "dtypes": time_dtypes, "variants": time_variants},
    }
    function = f"{__name__}:{functions[kind].__name__}"
    if kind in ("correct", "memory"):
        return fresh.call(function, argument)
    return timing.over_processes(function, argument, processes=params["processes"])


def errors(argument: Json) -> dict[str, Any]:
    """Every form, dtype, mask and pass against float64, before anything is timed."""
    device, length, head_dim = argument["device"], argument["length"], argument["head_dim"]
    shape: dict[str, Any] = {"batch": 2, "heads": 2, "length": length, "head_dim": head_dim}
    rows: list[dict[str, Any]] = []
    chosen: list[dict[str, Any]] = []
    for dtype, mask, backward in itertools.product(TOLERANCE, MASKS, (False, True)):
        problem = Problem(**shape, dtype=dtype, mask=mask, backward=backward)
        at: dict[str, Any] = {"dtype": dtype, "mask": mask, "backward": backward}
        chosen += [
            {**at, "length": size, "form": chosen_backend(replace(problem, length=size), device)}
            for size in (length, *argument["lengths"])
        ]
        expected = outcome(NAIVE, problem, device, double=True)
        for form in FORMS:
            row = {"form": form, **at}
            try:
                row["error"] = error(outcome(form, problem, device), expected)
            except RuntimeError as missing:
                row["missing"] = first_line(missing)
            rows.append(row)
    return {
        "errors": rows,
        "tolerance": TOLERANCE,
        "chosen": chosen,
        "scales": scale_errors(length, head_dim),
    }


def time_lengths(argument: Json) -> dict[str, Any]:
    """Every form at each length of one dtype, in turn; one that cannot run says why."""
    found: dict[str, Any] = {"measurements": {}, "missing": {}}
    for length in argument["lengths"]:
        problem = _problem(argument, length=length)
        here, missing = _ready({form: (form, problem) for form in FORMS}, argument)
        for form, run in _timed(here, argument).items():
            found["measurements"][f"{form} {length}"] = run
        for form, why in missing.items():
            found["missing"][f"{form} {length}"] = why
    return found


def time_dtypes(argument: Json) -> dict[str, Any]:
    """The written-out form and the one that torch chooses, in each dtype, all in turn."""
    problems: dict[str, tuple[str, Problem]] = {}
    for dtype in TOLERANCE:
        problem = _problem(argument, dtype=dtype)
        fused = chosen_backend(problem, argument["device"])
        problems |= {f"naive {dtype}": (NAIVE, problem), f"fused {dtype}": (fused, problem)}
    here, missing = _ready(problems, argument)
    return {"measurements": _timed(here, argument), "missing": missing}


def time_variants(argument: Json) -> dict[str, Any]:
    """Masks and the backward pass, written out and fused, all in turn."""
    problems: dict[str, tuple[str, Problem]] = {}
    for name, changes in VARIANTS.items():
        problem = _problem(argument, **changes)
        fused = chosen_backend(problem, argument["device"])
        problems |= {f"naive {name}": (NAIVE, problem), f"fused {name}": (fused, problem)}
    here, missing = _ready(problems, argument)
    return {"measurements": _timed(here, argument), "missing": missing}


VARIANTS: Mapping[str, dict[str, Any]] = {
    "no mask": {},
    "causal": {"mask": "causal"},
    "padding": {"mask": "padding"},
    "and backward": {"backward": True},
    "BF16 and backward": {"backward": True, "dtype": "bfloat16"},
}


def peaks(argument: Json) -> dict[str, Any]:
    """Peak memory of each dtype and form as the sequence doubles, until it runs out."""
    device, limit_bytes = argument["device"], int(argument["limit_gb"] * 2**30)
    rows: list[dict[str, Any]] = []
    for dtype, form in itertools.product(TOLERANCE, FORMS):
        for length in argument["lengths"]:
            problem = _problem(argument, length=length, dtype=dtype)
            work = call(form, problem, device)
            row: dict[str, Any] = {"form": form, "dtype": dtype, "length": length}
            with only(form):
                reason = _fails(work, argument, limit_bytes)
                row |= {"missing": reason} if reason else {"peak_bytes": peak_bytes(work, device)}
            rows.append({**row, "score_bytes": problem.score_bytes})
            if reason:
                break
    return {"peaks": rows}


def _problem(argument: Json, **changes: Any) -> Problem:
    shape = {name: argument[name] for name in SHAPE if name in argument}
    return Problem(**{"dtype": argument.get("dtype", ""), **shape, **changes})


Named = Mapping[str, tuple[str, Problem]]


def _ready(problems: Named, argument: Json) -> tuple[Named, dict[str, str]]:
    """Those that run here, under the limits of memory and time; the others with the reason."""
    missing: dict[str, str] = {}
    for name, (form, problem) in problems.items():
        with only(form):
            why = _fails(
                call(form, problem, argument["device"]),
                argument,
                int(argument["limit_gb"] * 2**30),
            )
        if why is not None:
            missing[name] = why
    return {name: one for name, one in problems.items() if name not in missing}, missing


def _timed(problems: Named, argument: Json) -> dict[str, Any]:
    """Measurements of these forms and problems in turn."""
    device = argument["device"]
    calls = {name: call(form, problem, device) for name, (form, problem) in problems.items()}
    inside = {name: functools.partial(only, form) for name, (form, _) in problems.items()}
    subjects: dict[str, timing.Subject] = {}
    for name, (form, problem) in problems.items():
        with only(form):
            subjects[name] = observed(calls[name], problem)
    measured = timing.compare(
        calls,
        device=device,
        budget_s=argument["budget_s"],
        min_samples=ROUNDS,
        subjects=subjects,
        inside=inside,
    )
    return {name: m.to_json() for name, m in measured.items()}


def observed(work: Callable[[], Tensor], problem: Problem) -> timing.Subject:
    """What is timed; a pass back and forth records a graph because it needs one."""
    q = torch.empty(problem.batch, problem.heads, problem.length, problem.head_dim, device="meta")
    subject = timing.observe(work, [q.to(getattr(torch, problem.dtype))])
    return replace(subject, is_training_step=problem.backward)


def _fails(work: Callable[[], Tensor], argument: Json, limit_bytes: int) -> str | None:
    """Why one call under the limits does not work; None if it does.

    A first call that takes too long has a second chance: it may have waited for the library.
    """
    limit_s = argument.get("limit_s")
    for _ in range(2):
        start = time.perf_counter()
        try:
            with limited(limit_bytes, argument["device"]):
                work()
                if argument["device"] == "cuda":
                    torch.cuda.synchronize()
        except RuntimeError as problem:
            return OUT_OF_MEMORY if ran_out(problem) else first_line(problem)
        if limit_s is None or time.perf_counter() - start <= limit_s:
            return None
    return f"over {limit_s:g} s"


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
