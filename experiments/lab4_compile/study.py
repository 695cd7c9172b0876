"""torch.compile under the clock: one cell of the study, the way into compiled code, naive timing.

Every case runs in processes of its own (`study`), the first one with empty compiler caches, so a
first call is a first call. Arguments and results are JSON. Generated CPU kernels are counted in the
code that calls them, because the profiler does not see them.

Source: ResNet-18 is He et al. 2015, arXiv 1512.03385, table 1, with projection shortcuts (option B)
and the strides of the usual implementations.
Shapes: B images, C channels, H and W pixels.
Units: calls of a kernel in one call of the model.
Not handled: other compilers than torch's own; a backend that fails is a result and says why.
Pretrained weights: time does not depend on their values.
"""

import functools
import hashlib
import importlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

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


# ---- what a call runs ---------------------------------------------------------------------------

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


NOTES = re.compile(r"^\s*# .*$", re.MULTILINE)  # its numbering of graphs, and where code comes from


def wrappers(folder: Path) -> set[Path]:
    """The files of code that inductor has written so far, one a graph, kernels included."""
    return set(folder.rglob("*.py"))


def generated(files: Iterable[Path]) -> dict[str, Any]:
    """Kernels in these files by what they fuse, how often a call runs each, and a digest of all.

    The profiler does not see kernels that were generated for a CPU, so they are counted in the code
    that calls them. Two ways with one digest run equal code: its notes are not in it.
    """
    sources = sorted(NOTES.sub("", path.read_text("utf-8")) for path in files)
    called = [name for text in sources for name in re.findall(r"^ +(cpp_fused_\w+)\(", text, re.M)]
    return {
        "kernels": dict(Counter(re.sub(r"_\d+$", "", name) for name in called)),
        "code": hashlib.sha256("".join(sources).encode()).hexdigest()[:12] if sources else None,
    }


# ---- ResNet-18 ----------------------------------------------------------------------------------

WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, a mean over the pixels, a Linear head."""

    def __init__(self, *, num_classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        before = (WIDTHS[0], *WIDTHS[:-1])
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    Block(narrow, wide, stride=1 if stage == 0 else 2), Block(wide, wide, stride=1)
                )
                for stage, (narrow, wide) in enumerate(zip(before, WIDTHS))
            )
        )
        self.head = nn.Linear(WIDTHS[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, num_classes)
        return self.head(self.stages(self.stem(images)).mean((2, 3)))
