"""Attention written out, as it is taught and with care, and torch's forms of it, against float64.

Shapes: B batch, H heads, T positions, D features of a head; q, k, v are (B, H, T, D).
Invariants: where no mask leaves a row empty, all forms compute the same function.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.lab4_attention.attention_problem import NAIVE, TUNED, WRITTEN_OUT, Problem

Json = Mapping[str, Any]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
FORMS = (*WRITTEN_OUT, *BACKENDS)
MASKS = ("none", "causal", "padding")
PADDED = 0.25  # share of the positions at the end that the padding mask hides

# Largest error against float64, as a share of the largest output: sums of T rounded products.
TOLERANCE = {"float32": 1e-5, "bfloat16": 4e-2, "float16": 5e-3}


def naive(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
    """As the formula says it: every score is written to memory, several times over."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def tuned(problem: Problem, device: str, hidden: Tensor | None) -> Attend:
    """Written out with care: the product scales, and the first call's memory serves all others.

    Scores are still written to memory, but once, and the softmax takes their place. Forward only.
    """
    p, dtype = problem, getattr(torch, problem.dtype)
    batch = p.batch * p.heads  # of matrix products

    @functools.cache
    def kept() -> tuple[Tensor, Tensor]:
        sizes = (batch, p.length, p.length), (batch, p.length, p.head_dim)
        scores, out = (torch.empty(size, dtype=dtype, device=device) for size in sizes)
        return scores, out

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores, out = kept()
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        scores.baddbmm_(q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(p.head_dim))
        if hidden is not None:
            scores.view(p.batch, p.heads, p.length, p.length).masked_fill_(hidden, -math.inf)
        torch.softmax(scores, dim=-1, out=scores)
        return torch.bmm(scores, v, out=out).view(p.batch, p.heads, p.length, p.head_dim)

    return attend


def steps(problem: Problem, device: str) -> dict[str, Callable[[], Tensor]]:
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


def forward(form: str, problem: Problem, device: str) -> Attend:
    """The form as a function of q, k, v; the mask is made beforehand."""
    mask, causal = seen(problem, device), problem.mask == "causal"
    if form in WRITTEN_OUT:
        hidden = None if mask is None else ~mask
        if form == TUNED:
            return tuned(problem, device, hidden)
        return lambda q, k, v: naive(q, k, v, hidden)
    given = None if causal else mask

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=causal)

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
    if form in WRITTEN_OUT:
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
    if form == TUNED and problem.backward:
        raise RuntimeError("the tuned form has no backward pass")
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


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
