"""Attention written out and torch's forms of it: checked against float64, timed, memory measured.

Every case runs in a fresh process that tells glibc to keep freed memory, so that whether a matrix
of scores comes in new pages depends on its size alone.

Shapes: B batch, H heads, T positions, D features of a head; q, k, v are (B, H, T, D).
"""

import contextlib
import functools
import itertools
import math
import resource
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.lab4_attention import design
from experiments.lab4_attention.memory import limited, ran_out
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages, peak_bytes

Json = Mapping[str, Any]
Call = Callable[[], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
NAIVE, TUNED, CHUNKED, *_ = design.WRITTEN
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
FORMS = (*design.WRITTEN, "math", *design.FUSED)
SHAPE = ("batch", "heads", "length", "head_dim", "dtype", "kind")
OUT_OF_MEMORY = "out of memory"
UNAVAILABLE = ("No viable backend", "No available kernel")  # as torch says it on a CPU, and on CUDA


def run(params: Params, ctx: Context) -> Values:
    """Run a case in a process of its own."""
    return fresh.call(f"{__name__}:{measure.__name__}", dict(params))


def measure(argument: Json) -> dict[str, Any]:
    """Run a case in this process."""
    keep_freed_pages()
    measures = {"correct": check, "memory": peaks, "profile": profile}
    with torch.no_grad():
        return measures.get(argument["kind"], time_forms)(argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The shape and dtype of one attention, and its kind: `CAUSAL`, `BACKWARD`, or any other."""

    batch: int
    heads: int
    length: int
    head_dim: int
    dtype: str
    kind: str = "forward"

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def flops(self) -> int:
        """Operations of the two products; a multiplication and an addition are two."""
        return 4 * self.exponentials * self.head_dim

    @property
    def exponentials(self) -> int:
        """Exponentials to compute: one for each score."""
        return self.batch * self.heads * self.length**2

    @property
    def score_bytes(self) -> int:
        """Bytes of all scores, a number for every pair of positions in every head."""
        return self.exponentials * self.torch_dtype.itemsize

    @property
    def tensor_bytes(self) -> int:
        """Bytes of q; of k, v and the output, too."""
        return self.score_bytes // self.length * self.head_dim


# ---- forms --------------------------------------------------------------------------------------


def naive(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention as its formula is written: three matrices of scores, each in new memory."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v


@functools.lru_cache(maxsize=2)
def mask_of(problem: Problem, device: str) -> Tensor | None:
    """The terms a causal mask adds to scores, minus infinity for later keys: (T, T), or None."""
    if problem.kind != design.CAUSAL:
        return None
    shape = (problem.length, problem.length)
    return torch.full(shape, -math.inf, dtype=problem.torch_dtype, device=device).triu(1)


def tuned(problem: Problem, device: str) -> Attend:
    """Attention written out with care: all queries in one chunk.

    For a backward pass, which needs what that overwrites, the queries are scaled, not the scores.
    """
    if problem.kind != design.BACKWARD:
        return by_chunks(problem, device, rows=problem.length)
    scale = 1 / math.sqrt(problem.head_dim)
    return lambda q, k, v: torch.softmax((q * scale) @ k.transpose(-2, -1), dim=-1) @ v


def chunked(problem: Problem, device: str) -> Attend:
    """Attention written out with care, so few queries at a time that their scores stay in a cache.

    Raises:
        RuntimeError: a backward pass is asked for, which needs what it overwrites.
    """
    if problem.kind == design.BACKWARD:
        raise RuntimeError("overwrites what backward needs")
    return by_chunks(problem, device, rows=min(design.CHUNK, -(-problem.length // 2)))


def by_chunks(problem: Problem, device: str, *, rows: int) -> Attend:
    """Attention for `rows` queries of all heads at a time: the product scales, softmax overwrites,
    memory is kept, and keys that a causal mask hides from a whole chunk are left out.

    Each call overwrites the output of the one before.
    """
    p, count = problem, problem.batch * problem.heads  # of matrix products
    mask = mask_of(p, device)

    @functools.cache
    def buffers() -> tuple[Tensor, Tensor]:
        sizes = (count * rows * p.length,), (count, p.length, p.head_dim)
        scores, out = (torch.empty(size, dtype=p.torch_dtype, device=device) for size in sizes)
        return scores, out

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept, out = buffers()
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        for start in range(0, p.length, rows):
            end = min(start + rows, p.length)
            seen = p.length if mask is None else end
            scores = kept[: count * (end - start) * seen].view(count, end - start, seen)
            keys = k[:, :seen].transpose(1, 2)
            scores.baddbmm_(q[:, start:end], keys, beta=0, alpha=1 / math.sqrt(p.head_dim))
            if mask is not None:
                scores.add_(mask[start:end, :seen])
            torch.softmax(scores, dim=-1, out=scores)
            torch.bmm(scores, v[:, :seen], out=out[:, start:end])
        return out.view(p.batch, p.heads, p.length, p.head_dim)

    return attend


@functools.lru_cache(maxsize=1)
def inputs(problem: Problem, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v, the same for all forms: their scores differ, so a wrong scale shows."""
    shape = (problem.batch, problem.heads, problem.length, problem.head_dim)
    generator = torch.Generator(device).manual_seed(0)
    drawn = (torch.randn(shape, generator=generator, device=device) for _ in range(3))
    q, k, v = (t.to(problem.torch_dtype) for t in drawn)
    return q, k, v


def call(form: str, problem: Problem, device: str) -> Call:
    """The first of what `passes` returns: the output; or the gradient of q, once all are there."""
    return first_of(passes(form, problem, device))


def first_of(every: Callable[[], Sequence[Tensor]]) -> Call:
    return lambda: every()[0]


def passes(form: str, problem: Problem, device: str) -> Callable[[], Sequence[Tensor]]:
    """A function that makes one pass of a form, on fixed inputs, as `outputs` or `gradients`."""
    every = gradients if problem.kind == design.BACKWARD else outputs
    return every(attention(form, problem, device), inputs(problem, device))


def attention(form: str, problem: Problem, device: str) -> Attend:
    """The function of q, k and v that is a form.

    Raises:
        RuntimeError: there is no such form of the problem, or it is the same as another.
    """
    if (plain := form.removesuffix(design.IN_FP32)) != form:
        if problem.dtype == "float32":
            raise RuntimeError(f"the same as {plain}")
        wide = attention(plain, replace(problem, dtype="float32"), device)
        return lambda q, k, v: wide(q.float(), k.float(), v.float()).to(problem.torch_dtype)
    is_causal, mask = problem.kind == design.CAUSAL, mask_of(problem, device)
    written: dict[str, Callable[[], Attend]] = {
        NAIVE: lambda: functools.partial(naive, mask=mask),
        TUNED: lambda: tuned(problem, device),
        CHUNKED: lambda: chunked(problem, device),
    }
    fused = functools.partial(F.scaled_dot_product_attention, is_causal=is_causal)
    return written.get(form, lambda: fused)()


def outputs(attend: Attend, qkv: Sequence[Tensor]) -> Callable[[], Sequence[Tensor]]:
    """A function that computes the output, alone in a list."""

    def forward() -> Sequence[Tensor]:
        with torch.no_grad():
            return [attend(*qkv)]

    return forward


def gradients(attend: Attend, qkv: Sequence[Tensor]) -> Callable[[], Sequence[Tensor]]:
    """A function that computes the gradients of q, k and v, under a random gradient of the output:
    of ones, that of v would be one sum repeated."""
    traced = [t.clone().requires_grad_() for t in qkv]
    generator = torch.Generator(qkv[0].device).manual_seed(1)
    given = torch.randn(qkv[0].shape, generator=generator, device=qkv[0].device).to(qkv[0].dtype)

    def forward_and_backward() -> Sequence[Tensor]:
        with torch.enable_grad():
            return torch.autograd.grad(attend(*traced), traced, given)

    return forward_and_backward


@contextlib.contextmanager
def only(form: str) -> Generator[None]:
    """A context in which `scaled_dot_product_attention` uses the form's backend and no other."""
    backend = BACKENDS.get(form.removesuffix(design.IN_FP32))
    with sdpa_kernel(backend) if backend is not None else contextlib.nullcontext():
        yield


def chosen_backend(problem: Problem, device: str) -> str:
    """The backend that `scaled_dot_product_attention` picks when it is free to choose."""
    choose: Any = torch._fused_sdp_choice  # pyright: ignore
    number = int(choose(*inputs(problem, device), None, 0.0, False))
    return next((name for name, b in BACKENDS.items() if int(b.value) == number), "another")  # type: ignore


# ---- correctness --------------------------------------------------------------------------------


def error(output: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest expected output."""
    return float((output.double() - expected.double()).abs().max() / expected.double().abs().max())


def check(argument: Json) -> dict[str, Any]:
    """Check all forms and dtypes against float64, on random inputs; try a wrong scale, on ones,
    too.

    Raises:
        AssertionError: a form is further from float64 than its dtype's rounding allows.
    """
    device, shares = argument["device"], dict[str, float]()
    kinds = design.EXPECTED if device == "cpu" else ("forward",)
    for kind, dtype in itertools.product(kinds, design.TOLERANCE):
        problem = _problem(argument, dtype=dtype, kind=kind)
        every = gradients if kind == design.BACKWARD else outputs
        exact = [t.double() for t in inputs(problem, device)]
        expected = every(attention(NAIVE, problem, device), exact)()
        ran: list[str] = []
        for form in FORMS:
            try:
                with only(form):
                    results = every(attention(form, problem, device), inputs(problem, device))()
            except RuntimeError:  # no such kernel here, or none of this kind
                continue
            ran.append(form)
            name = f"{form} {dtype}" + f", {kind}" * (kind != "forward")
            far = max(map(error, results, expected))
            share = shares[name] = far / design.TOLERANCE[dtype]
            assert share <= 1, f"{name} is wrong: {share:.3g} times the allowed error"
        expects = design.EXPECTED[kind] if (device, dtype) == ("cpu", "float32") else ()
        assert {*expects} <= {*ran}, f"{kind}: of {expects} only {ran} ran"
    return {"errors": shares, "scales": scale_errors(_problem(argument, dtype="float32"))}


def scale_errors(problem: Problem) -> dict[str, float]:
    """The error of attention without its scale, on inputs of ones and on random ones."""
    random = inputs(problem, "cpu")
    ones = tuple(torch.ones_like(t) for t in random)
    return {
        name: error(F.scaled_dot_product_attention(q, k, v, scale=1.0), naive(q, k, v))
        for name, (q, k, v) in (("ones", ones), ("random", random))
    }


# ---- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """A call that is measured, and the form that makes it."""

    call: Call
    form: str
    subject: timing.Subject


def time_forms(argument: Json) -> dict[str, Any]:
    """Time every form of one problem, in turn; `missing` says why a form did not run."""
    problem = _problem(argument)
    works, missing = checked_works(FORMS, problem, argument)
    return {"measurements": _timed(works, argument), "missing": missing}


def profile(argument: Json) -> dict[str, Any]:
    """Time four forms, each step of the naive one, and what bounds them; count page faults.

    Bounds: one large product, and a copy of a matrix of scores to memory that is there.
    """
    problem, device = _problem(argument), argument["device"]
    forms = (NAIVE, TUNED, CHUNKED, chosen_backend(problem, device))
    works, missing = checked_works(forms, problem, argument)
    faults = {name: _faults(work) for name, work in works.items() if device == "cpu"}
    alone = {**steps(problem, device), **bounds(problem, device)}
    works |= {name: Work(step, NAIVE, works[NAIVE].subject) for name, step in alone.items()}
    return {
        "measurements": _timed(works, argument),
        "missing": missing,
        "fault_bytes": {form: n * resource.getpagesize() for form, n in faults.items()},
        "flops": problem.flops,
        "exponentials": problem.exponentials,
        "product_flops": 2 * design.PRODUCT_SIZE**3,
        "score_bytes": problem.score_bytes,
        "tensor_bytes": problem.tensor_bytes,
    }


def steps(problem: Problem, device: str) -> dict[str, Call]:
    """Calls of each step of the naive form alone, on the result of the step before it."""
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
    """Calls of the work that bounds a form: a large product, and a copy of a matrix of scores."""
    size = design.PRODUCT_SIZE
    square = torch.ones(size, size, dtype=problem.torch_dtype, device=device)
    scores = torch.ones(problem.exponentials, dtype=problem.torch_dtype, device=device)
    target = torch.ones_like(scores)
    return {"product": lambda: square @ square, "copy": lambda: target.copy_(scores)}


def checked_works(
    forms: Iterable[str], problem: Problem, argument: Json
) -> tuple[dict[str, Work], dict[str, str]]:
    """(form → its work, form → why it does not run here), under the limits of memory and time.

    Raises:
        AssertionError: a form that is written out disagrees with the first on these inputs.
    """
    works: dict[str, Work] = {}
    missing: dict[str, str] = {}
    reference: Tensor | None = None
    for form in forms:
        try:
            every = passes(form, problem, argument["device"])
            attend = first_of(every)
            with only(form):
                _limited_output(attend, argument)
                output = torch.stack([*every()])
                subject = timing.observe(attend, inputs(problem, argument["device"]))
        except RuntimeError as failed:
            missing[form] = reason(failed)
            continue
        reference = output if reference is None else reference
        far = error(output, reference) / design.TOLERANCE[problem.dtype]
        if not far <= 2:  # which no NaN is
            differs = f"differs from {next(iter(works), form)} by {far:.3g} times the error"
            assert form not in design.WRITTEN, f"{form} {differs}"
            missing[form] = differs  # a fault of torch's costs its own cell
            continue
        works[form] = Work(attend, form, subject)
    return works, missing


def _limited_output(attend: Call, argument: Json) -> Tensor:
    """The output of a call under the limits; a first call may have waited for a library.

    Raises:
        RuntimeError: it runs out of memory or of time, or has no kernel.
    """
    limit_s = argument["limit_s"]
    for allowed_s in (limit_s + design.WAIT_S[argument["device"]], limit_s):
        start = time.perf_counter()
        with limited(int(argument["limit_gb"] * 2**30), argument["device"]):
            output = attend()
            if argument["device"] == "cuda":
                torch.cuda.synchronize()
        took_s = time.perf_counter() - start
        if took_s <= limit_s:
            return output.clone()  # the tuned form overwrites its own
        if took_s > allowed_s:
            break
    raise RuntimeError(f"over {limit_s:g} s")


def _timed(works: Mapping[str, Work], argument: Json) -> dict[str, Any]:
    """Time these calls in turn: name → its measurement as JSON."""
    measured = timing.compare(
        {name: work.call for name, work in works.items()},
        device=argument["device"],
        budget_s=argument["budget_s"],
        min_samples=design.LEAST_ROUNDS,
        subjects={name: work.subject for name, work in works.items()},
        inside={name: functools.partial(only, work.form) for name, work in works.items()},
    )
    return {name: m.to_json() for name, m in measured.items()}


def _faults(work: Work) -> int:
    """The number of page faults of a call, the fewest of several in a row."""
    faults: list[int] = []
    with only(work.form):
        for _ in range(2 * timing.WARMUP_CALLS):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            work.call()
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(faults)


# ---- memory -------------------------------------------------------------------------------------


def peaks(argument: Json) -> dict[str, Any]:
    """Peak memory of each form's first call as the sequence doubles, until it runs out."""
    rows: list[dict[str, Any]] = []
    device, longest = argument["device"], argument["longest"]
    for dtype, form in itertools.product(design.TOLERANCE, FORMS):
        for length in (longest >> k for k in range(design.DOUBLINGS, -1, -1)):
            problem = _problem(argument, dtype=dtype, length=length)
            row = {"form": form, "dtype": dtype, "length": length}
            try:
                with only(form):
                    _limited_output(call(form, problem, device), argument)
                    row["peak_bytes"] = peak_bytes(call(form, problem, device), device)
            except RuntimeError as failed:
                row["missing"] = reason(failed)
            rows.append({**row, "score_bytes": problem.score_bytes})
            if "missing" in row:
                break
    return {"peaks": rows}


def reason(failed: RuntimeError) -> str:
    """Why a form did not run: no memory, no kernel, or else the first line of the error."""
    if ran_out(failed):
        return OUT_OF_MEMORY
    text = next((line.strip() for line in str(failed).splitlines() if line.strip()), "no message")
    return "no kernel" if text.startswith(UNAVAILABLE) else text


def _problem(argument: Json, **changes: Any) -> Problem:
    return Problem(**{**{name: argument[name] for name in SHAPE if name in argument}, **changes})
