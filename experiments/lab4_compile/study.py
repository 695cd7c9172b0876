"""torch.compile under the clock: ways to run a network in turn, parts of a call, naive timing.

A way is a compiler and a form of the network, "default/channels_last": forms compute the same and
differ in what is done to the network by hand. Every case runs in a fresh process with empty
compiler caches, so a first call is a first call.

Source: ResNet-18 is He et al. 2015, arXiv 1512.03385, table 1, with projection shortcuts (option B)
and the strides of the usual implementations.
Shapes: B images, C channels, H and W pixels.
Not handled: pretrained weights; time does not depend on their values.
"""

import contextlib
import copy
import importlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.utils as dynamo
from torch import Tensor, nn
from torch._inductor import config as inductor
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.profiler import ProfilerActivity, profile

from madl.errors import MadlError
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages

Json = Mapping[str, Any]
Form = tuple[nn.Module, list[Tensor]]
TOLERANCE = 1e-3  # of the largest output: fused arithmetic rounds in another order
ROUNDS = 5  # at least, in one process; verdicts come from between processes
EAGER = "eager/plain"  # the network as it is built


def study(params: Json) -> dict[str, Any]:
    """One case by its `kind`, in fresh processes."""
    argument, function = dict(params), f"{__name__}:{KINDS[params['kind']].__name__}"
    if params["kind"] != "ways":
        return fresh.call(function, argument)
    with tempfile.TemporaryDirectory(prefix="madl-caches-") as folder:
        cold = fresh.call(function, argument, caches=Path(folder))
        cached = fresh.call(f"{__name__}:{measure_first.__name__}", argument, caches=Path(folder))
    return {**cold, **cached}


def measure(argument: Json) -> dict[str, Any]:
    """The ways of a case in turn, after first calls that are kept apart.

    A way that cannot be compiled here, or whose outputs are off, is missing and says why.
    """
    _set_up(argument)
    device, ways = str(argument["device"]), ways_of(argument)
    first: dict[str, float] = {}
    missing: dict[str, str] = {}
    found: dict[str, Any] = {}
    with torch.no_grad():
        for name, way in ways.items():
            try:
                first[name] = timing.stopwatch_of(device).first(way.first)
            except Exception as error:  # whatever a backend raises is a result
                lines = str(error).split("\n")
                missing[name] = f"{type(error).__name__}: {lines[0]}"
        budget_s, calls = float(argument["budget_s"]), {name: ways[name] for name in first}
        measured = timing.compare(calls, device=device, budget_s=budget_s, min_samples=ROUNDS)
        exact = ways[EAGER]()
        for name, run in measured.items():  # after the clock: a check before it eats the first call
            off = float((ways[name]() - exact).abs().max() / exact.abs().max())
            if off > TOLERANCE:
                missing[name] = f"its output is off by {off:.1e} of the largest"
                continue
            subject = timing.observe(ways[name], ways[name].inputs, module=ways[name].module)
            found[name] = replace(run, subject=subject, first_call_s=first[name]).to_json()
    return {"measurements": found, "missing": missing}


def measure_all(argument: Json) -> dict[str, Any]:
    """The same, and what a call of the network as it is built consists of, eager and compiled."""
    found, (model, inputs) = measure(argument), network_of(argument)
    torch._dynamo.reset()  # what else was compiled is no code to look through
    compiler = "named" if argument["built"] == "default/plain" else "eager"
    built: Any = compiled(model, compiler, inputs)
    with torch.no_grad():
        ways = {EAGER: model, argument["built"]: built}
        return {**found, "parts": {way: parts(lambda m=m: m(*inputs)) for way, m in ways.items()}}


def measure_first(argument: Json) -> dict[str, Any]:
    """What the first call of the compiled network takes where the caches are filled."""
    _set_up(argument)
    (call,) = ways_of({**argument, "ways": argument["built"]}).values()
    with torch.no_grad():
        return {"cached_s": timing.stopwatch_of(str(argument["device"])).first(call.first)}


def measure_naively(argument: Json) -> dict[str, Any]:
    """The course's way: training mode, gradients on, the first call averaged in, no waiting."""
    _set_up(argument)
    model, inputs = network_of(argument)
    device, calls = str(argument["device"]), int(argument["naive_calls"])
    found: dict[str, Any] = {}
    for mode, gradients in (("training", True), ("evaluation", False)):
        model.train(gradients)
        compiled: Any = torch.compile(model, backend=str(argument["backend"]))
        with torch.set_grad_enabled(gradients):
            for name, fn in (("eager", model), ("compiled", compiled)):
                run = timing.naive(lambda fn=fn: fn(*inputs), device=device, calls=calls)
                subject = timing.observe(lambda fn=fn: fn(*inputs), inputs, module=model)
                found[f"{name}, {mode}"] = timing.with_subject(run, subject).to_json()
    return {"measurements": found}


KINDS: Mapping[str, Callable[[Json], dict[str, Any]]] = {
    "time": measure,
    "ways": measure_all,
    "naive": measure_naively,
}


# ---- forms --------------------------------------------------------------------------------------


def channels_last(model: nn.Module, inputs: list[Tensor]) -> Form:
    """Weights and images in the order that the library's convolutions work in."""
    last = torch.channels_last
    return model.to(memory_format=last), [t.to(memory_format=last) for t in inputs]  # type: ignore


def folded(model: nn.Module, inputs: list[Tensor]) -> Form:
    """Every batch norm computed into the weights of the convolution before it."""
    for module in list(model.modules()):
        for conv, norm in PAIRS:
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d):
                fused = fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                setattr(module, conv, fused)
                setattr(module, norm, nn.Identity().eval())
    return model, inputs


PAIRS = (("conv1", "norm1"), ("conv2", "norm2"), ("0", "1"))  # names of a convolution and its norm


FORMS: Mapping[str, Callable[[nn.Module, list[Tensor]], Form]] = {
    "plain": lambda model, inputs: (model, inputs),
    "channels_last": channels_last,
    "folded": folded,
    "both": lambda model, inputs: channels_last(*folded(model, inputs)),
    "unmasked": lambda model, inputs: (model, inputs[:1]),  # where no sentence is padded
}


# ---- ways ---------------------------------------------------------------------------------------


class Way:
    """A call of a network in one form by one compiler; compiled when it is called first."""

    def __init__(self, way: str, module: nn.Module, inputs: list[Tensor]) -> None:
        self.compiler, self.module, self.inputs = way.partition("/")[0], module, inputs
        self.run: Any = None

    def __call__(self) -> Tensor:
        return self.run(*self.inputs)

    def first(self) -> Tensor:
        """Compile, and call.

        Raises:
            MadlError: what is to be compiled is run as it is.
        """
        self.run = compiled(self.module, self.compiler, self.inputs)
        stats = dynamo.counters["stats"]
        graphs = stats["unique_graphs"]
        freezing = inductor.patch(freezing=True)  # type: ignore[reportUnknownMemberType]
        with freezing if self.compiler == "frozen" else contextlib.nullcontext():
            result = self()
        if self.compiler not in ("eager", "torchscript") and stats["unique_graphs"] == graphs:
            raise MadlError("torch.compile made no graph of it")
        return result


def compiled(module: nn.Module, compiler: str, inputs: list[Tensor]) -> Any:
    if compiler == "eager":
        return module
    if compiler == "torchscript":
        traced: Any = torch.jit.trace(module, tuple(inputs))  # type: ignore[reportUnknownMemberType]
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    if compiler == "torch_tensorrt":
        importlib.import_module(compiler)  # which registers the backend
    return torch.compile(module, **INDUCTOR.get(compiler, {"backend": compiler}))


INDUCTOR: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "named": {"options": {"cpp.enable_kernel_profile": True}},  # its kernels show in a profile
    "frozen": {"options": {"freezing": True}},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
}


def ways_of(argument: Json) -> dict[str, Way]:
    """The ways of a case, in the order in which they are called first.

    Of those that compile, the network as it is built is first, so its first call is nobody else's.
    The rest is drawn: where memory happens to lie is decided then, so what an order does to one
    side scatters between processes.
    """
    ways, built = str(argument["ways"]).split(), argument["built"]
    order = random.Random(int(argument["process"])).sample(ways, len(ways))
    first = next(i for i, way in enumerate(order) if not way.startswith("eager/"))
    order.remove(built)
    order.insert(first, built)
    model, inputs = network_of(argument)
    made = {
        form: FORMS[form](copy.deepcopy(model), list(inputs))
        for form in {way.partition("/")[2] for way in order}
    }
    return {way: Way(way, *made[way.partition("/")[2]]) for way in order}


# ---- networks -----------------------------------------------------------------------------------


def _set_up(argument: Json) -> None:
    keep_freed_pages()
    torch.set_num_threads(int(argument["threads"]))
    torch.manual_seed(0)
    if argument.get("device") == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # its default rounds FP32 convolutions to 10 bits
    torch._dynamo.config.automatic_dynamic_shapes = False  # another way is no other shape …
    torch._dynamo.config.recompile_limit = 64  # … nor a reason to give up compiling


def network_of(argument: Json) -> tuple[nn.Module, list[Tensor]]:
    """In evaluation mode, and a batch for it; the weights' values do not matter."""
    device, batch, size = str(argument["device"]), int(argument["batch"]), int(argument["size"])
    if argument["network"] == "resnet18":
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

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.classifier(input_ids=input_ids, attention_mask=attention_mask).logits


# ---- what a call consists of --------------------------------------------------------------------

PROFILED = 5  # calls
PARTS = ("guards", "library", "operators", "generated")
# Operators that are left to a library, whatever they prepare inside.
LIBRARY = {
    *("addmm", "mm", "bmm", "baddbmm", "conv2d", "convolution", "linear", "matmul"),
    *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"),
}


def parts(call: Callable[[], Tensor]) -> dict[str, Any]:
    """Seconds of a call on a CPU by part, and the generated kernels in it by name.

    Guards are torch.compile's search for the code that fits; library, other operators and generated
    kernels are what computes; the rest is Python, its dispatch and memory.
    """
    for _ in range(1 + timing.WARMUP_CALLS):
        call()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        for _ in range(PROFILED):
            call()
        whole_s = time.perf_counter() - start
    found = list(pieces(profiler.events() or ()))
    seconds = {part: sum(s for of, _, s in found if of == part) for part in PARTS}
    seconds["rest"] = whole_s - sum(seconds.values())
    names = Counter(name for part, name, _ in found if part == "generated")
    return {
        "seconds": {part: s / PROFILED for part, s in seconds.items()},
        "generated": {name: count / PROFILED for name, count in names.items()},
    }


def pieces(events: Iterable[Any]) -> Iterable[tuple[str, str, float]]:
    """Each piece of work once: its part, its name and its seconds."""
    stack = [event for event in events if event.cpu_parent is None]
    while stack:
        event = stack.pop()
        space, _, operator = event.name.rpartition("::")
        if event.name == "TorchDynamo Cache Lookup":
            part, name = "guards", event.name
        elif "cpp_fused" in event.name:
            part, name = (
                "generated",
                event.name[event.name.index("cpp_fused") :].rstrip("_0123456789"),
            )
        elif operator in LIBRARY:
            part, name = "library", operator
        elif space and space.islower():
            part, name = "operators", operator
        else:
            stack += event.cpu_children
            continue
        yield part, name, event.time_range.elapsed_us() / 1e6


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

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        for narrow, wide in zip((WIDTHS[0], *WIDTHS), WIDTHS):
            blocks += [Block(narrow, wide, stride=wide // narrow), Block(wide, wide, stride=1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTHS[-1], 1000)

    def forward(self, images: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, 1000)
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))
