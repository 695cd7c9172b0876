"""Attention written out, and each fused form of it: correct first, then its arithmetic, then time.

Shapes: B batch, H heads, T positions, D features of a head; q, k, v are (B, H, T, D).
Units: `flops` counts a multiplication and an addition as two, of the matrix products alone; the
softmax is left out, as is usual. `bytes` is what must move to and from main memory if nothing stays
in a cache between two operators.
Invariants: where no mask leaves a row empty, all forms compute the same function.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from madl.machine import timing
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

    def moved_bytes(self, *, fused: bool) -> float:
        """To and from memory: fused forms read q, k, v and write the output, once each.

        The written-out form writes scores, reads and writes them scaled, reads and writes their
        softmax, and reads that: six times the matrix; a mask reads and writes it once more.
        Backward, q, k, v, the output and its gradient are read and three gradients written; written
        out, the gradient of the scores goes back the same way, six times, beside two readings of
        the softmax.
        """
        tensors = 12 if self.backward else 4
        if fused:
            return float(tensors * self.tensor_bytes)
        scores = 6 + (0 if self.mask == "none" else 2) + (8 if self.backward else 0)
        return float(tensors * self.tensor_bytes + scores * self.score_bytes)


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


def pinned(form: str, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The work with only this backend allowed, as one call."""

    def run() -> Tensor:
        with only(form):
            return work()

    return run


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


def errors(argument: Any) -> dict[str, Any]:
    """Every form, dtype, mask and pass against float64, before anything is timed."""
    device, length, head_dim = argument["device"], argument["length"], argument["head_dim"]
    shape: dict[str, Any] = {"batch": 2, "heads": 2, "length": length, "head_dim": head_dim}
    rows: list[dict[str, Any]] = []
    for dtype, mask, backward in itertools.product(TOLERANCE, MASKS, (False, True)):
        problem = Problem(**shape, dtype=dtype, mask=mask, backward=backward)
        expected = outcome(NAIVE, problem, device, double=True)
        for form in FORMS:
            row: dict[str, Any] = {"form": form, "dtype": dtype, "mask": mask, "backward": backward}
            try:
                row["error"] = error(outcome(form, problem, device), expected)
            except RuntimeError as missing:
                row["missing"] = first_line(missing)
            rows.append(row)
    free = {dtype: chosen_backend(Problem(**shape, dtype=dtype), device) for dtype in TOLERANCE}
    return {
        "errors": rows,
        "tolerance": TOLERANCE,
        "chosen": free,
        "scales": scale_errors(length, head_dim),
    }


def contrast(argument: Any) -> dict[str, Any]:
    """Two pairs in turn: the naive form in two dtypes, the fused one with and without a mask."""
    device = argument["device"]
    shape = {name: argument[name] for name in ("batch", "heads", "length", "head_dim")}
    half = "float16"
    fused = chosen_backend(Problem(**shape, dtype=half), device)
    problems = {
        "naive float32": (NAIVE, Problem(**shape, dtype="float32")),
        "naive float16": (NAIVE, Problem(**shape, dtype=half)),
        "fused all": (fused, Problem(**shape, dtype=argument["fused_dtype"])),
        "fused causal": (fused, Problem(**shape, dtype=argument["fused_dtype"], mask="causal")),
    }
    return {**_compared(problems, device, argument["budget_s"]), "missing": {}}


def timed(problem: Problem, device: str, *, budget_s: float, limit_bytes: int) -> dict[str, Any]:
    """Every form in turn; one that does not exist here or runs out of memory says so."""
    missing: dict[str, str] = {}
    for form in FORMS:
        reason = _fails(pinned(form, call(form, problem, device)), device, limit_bytes)
        if reason is not None:
            missing[form] = reason
    problems = {form: (form, problem) for form in FORMS if form not in missing}
    return {**_compared(problems, device, budget_s), "missing": missing}


def _compared(
    problems: Mapping[str, tuple[str, Problem]], device: str, budget_s: float
) -> dict[str, Any]:
    """Measurements of these forms and problems, on tensors in several places of the memory."""
    places: list[Tensor] = []

    def work() -> dict[str, Callable[[], Tensor]]:
        places.append(torch.empty(4096 * len(places) + 64))  # moves what is allocated after it
        return {name: pinned(form, call(form, p, device)) for name, (form, p) in problems.items()}

    calls = work()
    subjects = {name: observed(calls[name], problem) for name, (_, problem) in problems.items()}
    measured = timing.compare(
        calls, device=device, budget_s=budget_s, subjects=subjects, renew=work
    )
    return {"measurements": {name: m.to_json() for name, m in measured.items()}}


def observed(work: Callable[[], Tensor], problem: Problem) -> timing.Subject:
    """What is timed; a pass back and forth records a graph because it needs one."""
    q = torch.empty(problem.batch, problem.heads, problem.length, problem.head_dim, device="meta")
    subject = timing.observe(work, [q.to(getattr(torch, problem.dtype))])
    return replace(subject, is_training_step=problem.backward)


def peaks(argument: Any) -> dict[str, Any]:
    """Peak memory of each form as the sequence doubles, until it runs out under the limit."""
    device, limit_bytes = argument["device"], int(argument["limit_gb"] * 2**30)
    rows: list[dict[str, Any]] = []
    for form in FORMS:
        for length in argument["lengths"]:
            problem = Problem(
                batch=argument["batch"],
                heads=argument["heads"],
                length=length,
                head_dim=argument["head_dim"],
                dtype=argument["dtype"],
            )
            work = pinned(form, call(form, problem, device))
            row: dict[str, Any] = {"form": form, "length": length}
            reason = _fails(work, device, limit_bytes)
            row |= {"missing": reason} if reason else {"peak_bytes": peak_bytes(work, device)}
            rows.append(row)
            if reason:
                break
    return {"peaks": rows}


def _fails(work: Callable[[], Tensor], device: str, limit_bytes: int) -> str | None:
    """Why one call under the memory limit does not work; None if it does."""
    try:
        with limited(limit_bytes, device):
            work()
            if device == "cuda":
                torch.cuda.synchronize()
    except RuntimeError as problem:
        return OUT_OF_MEMORY if ran_out(problem) else first_line(problem)
    return None


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
