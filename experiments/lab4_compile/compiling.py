"""torch.compile under the clock: one cell of the study, the way into compiled code, naive timing.

Every function here runs in a process of its own (`study`), the first one with empty compiler
caches, so a first call is a first call. Arguments and results are JSON.

Not handled: other compilers than torch's own; a backend that fails is a result and says why.
"""

import functools
import importlib
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_compile import tracing
from experiments.lab4_compile.fused import generated, kernels, wrappers
from experiments.lab4_compile.resnet import ResNet18
from madl.errors import MadlError
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages

Json = Mapping[str, Any]
TOLERANCE = 1e-3  # of the largest output: fused arithmetic rounds in another order
RESNET = "resnet18"
WAYS = {
    "aot_eager": {"backend": "aot_eager", "mode": "default"},
    "reduce-overhead": {"backend": "inductor", "mode": "reduce-overhead"},
    "max-autotune": {"backend": "inductor", "mode": "max-autotune"},
}
ROUNDS = 5  # at least, in one process; verdicts come from between processes


def study(params: Json) -> dict[str, Any]:
    """One case by its `kind`, in fresh processes: several where a verdict rests on it."""
    kind, argument = params["kind"], dict(params)
    if kind == "naive":
        return fresh.call(f"{__name__}:measure_naively", argument)
    if kind == "guards":
        return fresh.call(f"{__name__}:measure_guards", argument)
    if kind == "shapes":
        sizes = [int(size) for size in params["lengths"].split()]
        return fresh.call(f"{tracing.__name__}:study_shapes", {**argument, "sizes": sizes})
    argument["batches"] = [int(batch) for batch in params["batches"].split()]
    argument["beside"] = params.get("beside", "").split()
    return timing.over_processes(
        f"{__name__}:measure", argument, processes=params["processes"], keep_caches=True
    )


def measure(argument: Json) -> dict[str, Any]:
    """Eager and compiled in turn, at each batch size: first calls, steady state, kernels, code.

    Every batch size has a compiled model of its own, as if the others had never been; at the first,
    other ways to compile (`beside`) take turns with these two. Kernels and generated code are those
    of the first, and a process that finds the compiler's caches full has no code to tell.
    """
    from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException

    _set_up(argument)
    found: dict[str, Any] = {"measurements": {}, "error": 0.0}
    try:
        for batch in argument["batches"]:
            torch._dynamo.reset()
            model, inputs = _model({**argument, "batch": batch})
            ways = {"compiled": _compile(model, argument)}
            if batch == argument["batches"][0]:
                ways |= {way: _compile(model, WAYS[way]) for way in argument["beside"]}
            with torch.no_grad():
                _measured(found, batch, model, ways, inputs, argument)
    except (BackendCompilerFailed, TorchDynamoException, ImportError, RuntimeError) as error:
        return {"failed": f"{type(error).__name__}: {_first_line(error)}"}
    if found["error"] > TOLERANCE:
        return {"failed": f"the compiled output is off by {found['error']:.1e} of the largest"}
    return found


def in_order(ways: Sequence[str], process: int) -> list[str]:
    """Who is called first in a process: where memory happens to lie is decided then.

    The process that finds the caches empty takes eager mode, then the ways as they stand, so its
    first call is nobody else's. Each later process compiles another way before the others, and
    draws the rest: what an order does to one side scatters between processes.
    """
    if process == 0:
        return ["eager", *ways]
    drawn = random.Random(os.getpid())
    ahead = ways[(process - 1) % len(ways)]
    order = [ahead, *drawn.sample([way for way in ways if way != ahead], len(ways) - 1)]
    order.insert(drawn.randint(0, len(ways)), "eager")
    return order


def _measured(
    found: dict[str, Any],
    batch: int,
    model: nn.Module,
    ways: Mapping[str, Any],
    inputs: list[Tensor],
    argument: Json,
) -> None:
    import torch._dynamo.utils as dynamo

    device = str(argument["device"])
    calls: dict[str, Callable[[], Tensor]] = {
        name: functools.partial({"eager": model, **ways}[name], *inputs)
        for name in in_order(list(ways), int(argument["process"]))
    }
    first, code = _first_calls(calls, device)
    found.setdefault("generated", code)
    measured = timing.compare(
        calls, device=device, budget_s=float(argument["budget_s"]), min_samples=ROUNDS
    )
    exact = model(*inputs)
    for way in ways:  # after the clock: a check before it eats the first call
        found["error"] = max(found["error"], _error(calls[way](), exact))
    compiled = [name for name in calls if name in ways]
    for name, measurement in measured.items():
        subject = timing.observe(calls[name], inputs, module=model)
        run = replace(measurement, subject=subject, first_call_s=first[name])
        before = compiled.index(name) if name in ways else 0
        found["measurements"][f"{name} {batch}"] = {**run.to_json(), "compiled_before": before}
    if "kernels" not in found:
        found["kernels"] = {name: kernels(calls[name], device) for name in ("eager", "compiled")}
        found["breaks"] = sum(dynamo.counters["graph_break"].values())


def _first_calls(
    calls: Mapping[str, Callable[[], Tensor]], device: str
) -> tuple[dict[str, float], dict[str, Any]]:
    """What each first call takes, and the code that it made; none where the caches had it."""
    stopwatch = timing.stopwatch_of(device)
    caches = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    first: dict[str, float] = {}
    code: dict[str, Any] = {}
    for name, call in calls.items():
        known = wrappers(caches)
        first[name] = stopwatch.first(call)
        if name != "eager":
            code[name] = generated(wrappers(caches) - known)
    return first, code


def measure_guards(argument: Json) -> dict[str, Any]:
    """A function of one small addition, eager and compiled to the very same: what is left is the
    way into compiled code, its guards first of all.
    """
    _set_up(argument)
    x = torch.ones(1)

    def add(x: Tensor) -> Tensor:
        return x + 1

    compiled: Any = torch.compile(add, backend="eager")
    with torch.no_grad():
        calls: dict[str, Callable[[], Tensor]] = {
            "eager": lambda: add(x),
            "compiled": lambda: compiled(x),
        }
        subjects = {name: timing.observe(fn, [x]) for name, fn in calls.items()}
        measured = timing.compare(
            calls, budget_s=float(argument["budget_s"]), min_samples=ROUNDS, subjects=subjects
        )
    return {"measurements": {name: m.to_json() for name, m in measured.items()}}


def measure_naively(argument: Json) -> dict[str, Any]:
    """The course's way: training mode, gradients on, the first call averaged in, no waiting."""
    _set_up(argument)
    model, inputs = _model(argument)
    model.train()
    device, calls = str(argument["device"]), int(argument["naive_calls"])
    compiled = _compile(model, argument)
    runs = {"eager": lambda: model(*inputs), "compiled": lambda: compiled(*inputs)}
    timed = {name: timing.naive(fn, device=device, calls=calls) for name, fn in runs.items()}
    subjects = {n: timing.observe(fn, inputs, module=model) for n, fn in runs.items()}
    return {
        "measurements": {
            name: timing.with_subject(m, subjects[name]).to_json() for name, m in timed.items()
        }
    }


# ---- models and modes ---------------------------------------------------------------------------


def _set_up(argument: Json) -> None:
    keep_freed_pages()
    torch.set_num_threads(int(argument["threads"]))
    torch.manual_seed(0)
    if argument.get("device") == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # its default rounds FP32 convolutions to 10 bits


def _model(argument: Json) -> tuple[nn.Module, list[Tensor]]:
    """The model in evaluation mode and a batch for it; the weights' values do not matter."""
    device, batch, size = str(argument["device"]), int(argument["batch"]), int(argument["size"])
    if argument["network"] == RESNET:
        images = torch.randn(batch, 3, size, size, device=device)
        return ResNet18().to(device).eval(), [images]
    from madl.training.models import with_random_weights

    classifier: Any = with_random_weights(str(argument["model"]), seed=0).to(device).eval()
    tokens = torch.randint(5, int(classifier.config.vocab_size), (batch, size), device=device)
    return Logits(classifier).eval(), [tokens, torch.ones_like(tokens)]


class Logits(nn.Module):
    """A classifier called with positional tensors, giving its logits alone."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.classifier(input_ids=input_ids, attention_mask=attention_mask).logits


def _compile(model: nn.Module, argument: Json) -> Any:
    backend, mode = str(argument["backend"]), argument["mode"]
    if backend == "torch_tensorrt":
        try:
            importlib.import_module("torch_tensorrt")  # which registers the backend
        except Exception as error:  # it loads libraries that may not be there, or not fit
            raise MadlError(f"torch_tensorrt cannot be loaded: {_first_line(error)}") from error
    if backend == "inductor":
        return torch.compile(model, mode=None if mode == "default" else mode)
    return torch.compile(model, backend=backend)


def _error(found: Tensor, expected: Tensor) -> float:
    """Largest difference, as a share of the largest expected output."""
    return float((found - expected).abs().max() / expected.abs().max())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
