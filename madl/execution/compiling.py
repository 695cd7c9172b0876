"""torch.compile under the clock: one cell of the study, its kernels, its graphs, its breaks.

Every function here runs in a process of its own (`study`), the first one with empty compiler
caches, so a first call is a first call. Arguments and results are JSON.

Not handled: other compilers than torch's own; a backend that fails is a result and says why.
"""

import contextlib
import functools
import importlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from madl.errors import MadlError
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages
from madl.training.resnet import ResNet18

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
    if kind == "shapes":
        sizes = [int(size) for size in params["lengths"].split()]
        return fresh.call(f"{__name__}:study_shapes", {**argument, "sizes": sizes})
    if kind == "cell":
        argument["batches"] = [int(batch) for batch in params["batches"].split()]
        argument["beside"] = params.get("beside", "").split()
    function = "measure" if kind == "cell" else "measure_guards"
    return timing.over_processes(
        f"{__name__}:{function}", argument, processes=params["processes"], keep_caches=True
    )


def measure(argument: Json) -> dict[str, Any]:
    """Eager and compiled in turn, at each batch size: first calls, steady state, kernels, graphs.

    Every batch size has a compiled model of its own, as if the others had never been. Kernels and
    graphs are those of the first; a process that finds the compiler's caches full has none to tell.
    Other ways to compile (`beside`) take turns with these two at the first batch size; their first
    calls find what the one before left.
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


def _measured(
    found: dict[str, Any],
    batch: int,
    model: nn.Module,
    ways: Mapping[str, Any],
    inputs: list[Tensor],
    argument: Json,
) -> None:
    device = str(argument["device"])
    calls: dict[str, Callable[[], Tensor]] = {
        name: functools.partial(one, *inputs) for name, one in {"eager": model, **ways}.items()
    }
    stopwatch = timing.stopwatch_of(device)
    first = {name: stopwatch.first(calls[name]) for name in ("eager", "compiled")}
    if "graphs" not in found:  # before any other way is compiled
        found |= {
            "generated": generated_kernels(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])),
            "graphs": _counted("stats", "unique_graphs"),
            "breaks": sum(_counters()["graph_break"].values()),
        }
    measured = timing.compare(
        calls, device=device, budget_s=float(argument["budget_s"]), min_samples=ROUNDS
    )
    exact = model(*inputs)
    for way in ways:  # after the clock: a check before it eats the first call
        found["error"] = max(found["error"], _error(calls[way](), exact))
    for name, measurement in measured.items():
        subject = timing.observe(calls[name], inputs, module=model)
        cold_s = first.get(name, measurement.first_call_s)
        run = replace(measurement, subject=subject, first_call_s=cold_s)
        found["measurements"][f"{name} {batch}"] = run.to_json()
    if "kernels" not in found:
        found["kernels"] = {name: kernels(calls[name], device) for name in first}


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


def study_shapes(argument: Json) -> dict[str, Any]:
    """How many graphs a sequence of new shapes makes, by how sizes are treated; what breaks one.

    The graphs are counted by a backend that only counts, so nothing but tracing is paid for.
    """
    _set_up(argument)
    sizes = [int(size) for size in argument["sizes"]]
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 2)).eval()
    return {
        "sizes": sizes,
        "limit": int(torch._dynamo.config.recompile_limit),  # pyright: ignore
        "graphs": {
            name: _graphs_by_call(model, sizes, dynamic)
            for name, dynamic in (("static", False), ("automatic", None), ("dynamic", True))
        },
        "breaks": {name: _explained(fn) for name, fn in EXAMPLES.items()},
    }


def _graphs_by_call(model: nn.Module, sizes: Sequence[int], dynamic: bool | None) -> list[int]:
    """Graphs made so far, after each call."""
    torch._dynamo.reset()
    made: list[int] = []
    counting = _Counting()
    compiled: Any = torch.compile(model, backend=counting, dynamic=dynamic)
    with torch.no_grad(), _no_warnings():
        for size in sizes:
            compiled(torch.randn(size, 16))
            made.append(counting.graphs)
    return made


class _Counting:
    """A backend that runs a graph as it is and counts it."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


def _whole(x: Tensor) -> Tensor:
    return torch.relu(x @ x.T) + 1


def _branches_on_data(x: Tensor) -> Tensor:
    y = x @ x.T
    return torch.relu(y) if y.sum() > 0 else y - 1  # Python must know the value to go on


def _leaves_torch(x: Tensor) -> Tensor:
    y = torch.relu(x @ x.T)
    return y + float(y.max())


EXAMPLES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tensor operations only": _whole,
    "an `if` on a tensor's value": _branches_on_data,
    "a tensor turned into a Python number": _leaves_torch,
}


def _explained(fn: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """What `torch._dynamo.explain` says: graphs, breaks, and the first reason."""
    torch._dynamo.reset()
    with _no_warnings():
        found: Any = torch._dynamo.explain(fn)(torch.ones(4, 4))
    reasons = [str(reason.reason).splitlines()[0] for reason in found.break_reasons]
    return {
        "graphs": int(found.graph_count),
        "breaks": int(found.graph_break_count),
        "why": reasons[0] if reasons else "",
    }


# ---- kernels ------------------------------------------------------------------------------------

# Operators that make a tensor's description or its memory, or return their input as it is.
FREE = {
    *("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_", "set_"),
    *("as_strided", "as_strided_", "view", "_unsafe_view", "reshape", "_reshape_alias", "flatten"),
    *("transpose", "t", "permute", "expand", "expand_as", "unsqueeze", "squeeze", "unflatten"),
    *("slice", "select", "split", "chunk", "unbind", "narrow", "detach", "alias", "contiguous"),
    *("to", "resolve_conj", "lift_fresh", "result_type", "dropout", "_nnpack_available"),
}
# Operators that are one piece of work, whatever they prepare inside.
WHOLE = {
    *("addmm", "mm", "bmm", "baddbmm", "convolution", "linear", "native_layer_norm"),
    *("native_batch_norm", "scaled_dot_product_attention", "add", "sub", "mul", "div"),
}


def kernels(fn: Callable[[], object], device: str) -> dict[str, int]:
    """What one call runs, by name: on CUDA its kernels, on a CPU the operators that compute."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        fn()
        if device == "cuda":
            torch.cuda.synchronize()
    events: Any = profiler.events()
    return dict(Counter(_cuda_kernels(events) if device == "cuda" else _computing(events)))


def _cuda_kernels(events: Any) -> list[str]:
    """Kernels alone: no copies, and no ranges that torch.compile names on the device's timeline."""
    on_device = [e for e in events if str(e.device_type).endswith("CUDA")]
    names = [e.name for e in on_device if not getattr(e, "is_user_annotation", False)]
    return [n for n in names if not n.startswith(("Memcpy", "Memset", "Torch-Compiled", "## "))]


def _computing(events: Any) -> list[str]:
    """Operators that compute: the innermost ones, except that a product or a norm is one."""
    found: list[str] = []

    def visit(event: Any) -> bool:
        """Whether anything was counted in here."""
        space, separator, name = event.name.partition("::")
        counted = [] if name in WHOLE else [c for c in event.cpu_children if visit(c)]
        inside = bool(counted)
        computes = bool(separator) and space.islower() and name not in FREE
        if computes and not inside:
            found.append(name)
        return inside or computes

    for event in events:
        if event.cpu_parent is None:
            visit(event)
    return found


def generated_kernels(folder: Path) -> dict[str, int]:
    """Kernels that inductor wrote for a CPU, by what they fuse, and how often a call runs each.

    The profiler does not see them. They are counted in the code that calls them, which is in the
    process's own compiler cache: nothing but this study's graph is in there.
    """
    sources = [path.read_text("utf-8") for path in folder.rglob("*.py")]
    called = [name for text in sources for name in re.findall(r"^ +(cpp_fused_\w+)\(", text, re.M)]
    return dict(Counter(re.sub(r"_\d+$", "", name) for name in called))


# ---- models, modes, counters --------------------------------------------------------------------


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


def _counters() -> Mapping[str, Counter[str]]:
    import torch._dynamo.utils as dynamo

    counters: Any = dynamo.counters
    return counters


def _counted(group: str, name: str) -> int:
    return int(_counters()[group][name])


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def _no_warnings() -> AbstractContextManager[object]:
    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    return stack
