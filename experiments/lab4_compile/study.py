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

from experiments.lab4_compile import design
from experiments.lab4_compile.design import BUILT, EAGER
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.machine import fresh, timing
from madl.machine.device import num_cores
from madl.machine.memory import keep_freed_pages

Json = Mapping[str, Any]
Form = tuple[nn.Module, list[Tensor]]


def run(params: Params, ctx: Context) -> Values:
    """Run a case by its `kind`, in fresh processes."""
    argument = {**params, "threads": 1 if params.get("cores") == design.ONE else num_cores()}
    measures = {"parts": measure_with_parts, "naive": measure_naively}
    function = f"{__name__}:{measures.get(str(params['kind']), measure).__name__}"
    if params["kind"] != "parts":
        return fresh.call(function, argument, timeout_s=design.TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="madl-caches-") as folder:
        cold = fresh.call(function, argument, caches=Path(folder))
        cached = fresh.call(f"{__name__}:{measure_first.__name__}", argument, caches=Path(folder))
    return {**cold, **cached}


def measure(argument: Json) -> dict[str, Any]:
    """Time the ways of a case in turn, after their first calls, which are timed apart.

    `missing` says why a way cannot be compiled here, or how far its outputs are off.
    """
    _set_up(argument)
    device, modes = argument["device"], execution_modes(argument)
    tolerance = design.TOLERANCE[argument.get("dtype", "float32")]
    first_s: dict[str, float] = {}
    missing: dict[str, str] = {}
    measurements: dict[str, Any] = {}
    with torch.no_grad():
        for way, mode in modes.items():
            try:
                first_s[way] = timing.stopwatch_of(device).first(mode.first)
            except Exception as error:  # whatever a backend raises is a result
                lines = str(error).split("\n")
                missing[way] = f"{type(error).__name__}: {lines[0]}"
        measured = timing.compare(
            {way: modes[way] for way in first_s},
            device=device,
            budget_s=argument["budget_s"],
            min_samples=design.LEAST_ROUNDS,
        )
        exact = modes[EAGER]()
        for way, run in measured.items():  # after the clock: a check before it eats the first call
            mode = modes[way]
            off = float((mode() - exact).abs().max() / exact.abs().max())
            if not off <= tolerance:  # which no NaN is
                missing[way] = f"its output is off by {off:.1e} of the largest"
                continue
            subject = timing.observe(mode, mode.inputs, module=mode.module)
            measurements[way] = replace(run, subject=subject, first_call_s=first_s[way]).to_json()
    return {"measurements": measurements, "missing": missing}


def measure_with_parts(argument: Json) -> dict[str, Any]:
    """Time the ways of a case, and the parts of a call as built, eager and compiled."""
    values, (model, inputs) = measure(argument), network_of(argument)
    torch._dynamo.reset()  # what else was compiled is no code to look through
    compiler = "named" if argument["built"] == BUILT else "eager"
    built: Any = compile_module(model, compiler, inputs)
    calls = {EAGER: lambda: model(*inputs), argument["built"]: lambda: built(*inputs)}
    with torch.no_grad():
        return {**values, "parts": {way: parts(call) for way, call in calls.items()}}


def measure_first(argument: Json) -> dict[str, Any]:
    """Time the first call of the compiled network where the caches are filled."""
    _set_up(argument)
    (mode,) = execution_modes({**argument, "ways": argument["built"]}).values()
    with torch.no_grad():
        return {"cached_s": timing.stopwatch_of(argument["device"]).first(mode.first)}


def measure_naively(argument: Json) -> dict[str, Any]:
    """Time as the course does: training mode, gradients on, the first call averaged in.

    In evaluation mode without gradients, too.
    """
    _set_up(argument)
    model, inputs = network_of(argument)
    device, calls = argument["device"], argument["naive_calls"]
    measurements: dict[str, Any] = {}
    for mode, gradients in (("training", True), ("evaluation", False)):
        model.train(gradients)
        compiled: Any = torch.compile(model, backend=argument["backend"])
        with torch.set_grad_enabled(gradients):
            for name, fn in (("eager", model), ("compiled", compiled)):
                run = timing.naive(lambda fn=fn: fn(*inputs), device=device, calls=calls)
                subject = timing.observe(lambda fn=fn: fn(*inputs), inputs, module=model)
                measurements[f"{name}, {mode}"] = replace(run, subject=subject).to_json()
    return {"measurements": measurements}


# ---- forms --------------------------------------------------------------------------------------


def channels_last(model: nn.Module, inputs: list[Tensor]) -> Form:
    """The network and its images in the memory order that the library's convolutions prefer."""
    last = torch.channels_last
    return model.to(memory_format=last), [t.to(memory_format=last) for t in inputs]  # type: ignore


def folded(model: nn.Module, inputs: list[Tensor]) -> Form:
    """The network with each batch norm computed into the convolution before it."""
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


class ExecutionMode:
    """A network in one form, run by one compiler; `first` compiles it."""

    def __init__(self, way: str, module: nn.Module, inputs: list[Tensor]) -> None:
        self.compiler, self.module, self.inputs = way.partition("/")[0], module, inputs
        self.run: Any = None

    def __call__(self) -> Tensor:
        return self.run(*self.inputs)

    def first(self) -> Tensor:
        """Compile the network, and call it once.

        Raises:
            MadlError: torch.compile made no graph, so the network would run as it is.
        """
        self.run = compile_module(self.module, self.compiler, self.inputs)
        stats = dynamo.counters["stats"]
        graphs = stats["unique_graphs"]
        freezing = inductor.patch(freezing=True)  # type: ignore[reportUnknownMemberType]
        with freezing if self.compiler == "frozen" else contextlib.nullcontext():
            result = self()
        if self.compiler != "eager" and stats["unique_graphs"] == graphs:
            raise MadlError("torch.compile made no graph of it")
        return result


def compile_module(module: nn.Module, compiler: str, inputs: list[Tensor]) -> Any:
    if compiler == "eager":
        return module
    if compiler == "torch_tensorrt":
        importlib.import_module(compiler)  # which registers the backend
    return torch.compile(module, **INDUCTOR.get(compiler, {"backend": compiler}))


INDUCTOR: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "named": {"options": {"cpp.enable_kernel_profile": True}},  # its kernels show in a profile
    "frozen": {"options": {"freezing": True}},
    "reduce-overhead": {"mode": "reduce-overhead"},
}


def execution_modes(argument: Json) -> dict[str, ExecutionMode]:
    """Way → its network, in the order in which they are called first, which is random.

    The order decides where memory happens to lie, so its effect on one side becomes scatter between
    processes. A first call counts for little but where nothing is compiled before.
    """
    ways = argument["ways"].split()
    order = random.Random(argument["process"]).sample(ways, len(ways))
    model, inputs = network_of(argument)
    forms = {
        form: FORMS[form](copy.deepcopy(model), list(inputs))
        for form in {way.partition("/")[2] for way in order}
    }
    return {way: ExecutionMode(way, *forms[way.partition("/")[2]]) for way in order}


# ---- networks -----------------------------------------------------------------------------------


def _set_up(argument: Json) -> None:
    """Set threads, seed and torch.compile's limits in this process."""
    keep_freed_pages()
    torch.set_num_threads(argument["threads"])
    torch.manual_seed(0)
    if argument.get("device") == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # its default rounds FP32 convolutions to 10 bits
    torch._dynamo.config.automatic_dynamic_shapes = False  # another way is no other shape …
    torch._dynamo.config.recompile_limit = 64  # … nor a reason to give up compiling


def network_of(argument: Json) -> tuple[nn.Module, list[Tensor]]:
    """The network in evaluation mode, and a batch for it; the weights' values do not matter."""
    batch, size = argument["batch"], argument["size"]
    to: dict[str, Any] = {
        "device": argument["device"],
        "dtype": getattr(torch, argument.get("dtype", "float32")),
    }
    if argument["network"] == "resnet18":
        return ResNet18().to(**to).eval(), [torch.randn(batch, 3, size, size, **to)]
    from madl.training.models import with_random_weights

    classifier: Any = with_random_weights(argument["model"], seed=0).to(**to).eval()
    tokens = torch.randint(5, classifier.config.vocab_size, (batch, size), device=to["device"])
    return Logits(classifier).eval(), [tokens, torch.ones_like(tokens)]


class Logits(nn.Module):
    """A classifier called with positional tensors, giving its logits alone."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.classifier(input_ids=input_ids, attention_mask=attention_mask).logits


# ---- parts of a call ----------------------------------------------------------------------------

PARTS = ("guards", "library", "operators", "generated")
# Operators that are left to a library, whatever they prepare inside.
LIBRARY = {
    *("addmm", "mm", "bmm", "baddbmm", "conv2d", "convolution", "linear", "matmul"),
    *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"),
}


def parts(call: Callable[[], Tensor]) -> dict[str, Any]:
    """Seconds of a call on a CPU by part.

    Guards are torch.compile's search for the code that fits; library, other operators and generated
    kernels are what computes; the rest is Python, its dispatch and memory.
    """
    for _ in range(1 + timing.WARMUP_CALLS):
        call()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        for _ in range(design.PROFILED_CALLS):
            call()
        whole_s = time.perf_counter() - start
    seconds = dict.fromkeys(PARTS, 0.0)
    for part, spent_s in pieces(profiler.events() or ()):
        seconds[part] += spent_s
    seconds["rest"] = whole_s - sum(seconds.values())
    return {"seconds": {part: s / design.PROFILED_CALLS for part, s in seconds.items()}}


def pieces(events: Iterable[Any]) -> Iterable[tuple[str, float]]:
    """Yield (part, seconds) of each piece of work in a profile, once."""
    stack = [event for event in events if event.cpu_parent is None]
    while stack:
        event = stack.pop()
        space, _, operator = event.name.rpartition("::")
        if event.name == "TorchDynamo Cache Lookup":
            part = "guards"
        elif "cpp_fused" in event.name:
            part = "generated"
        elif operator in LIBRARY:
            part = "library"
        elif space and space.islower():
            part = "operators"
        else:
            stack += event.cpu_children
            continue
        yield part, event.time_range.elapsed_us() / 1e6


# ---- ResNet-18 ----------------------------------------------------------------------------------

WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut; sums and ReLUs overwrite, as torchvision's do."""

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
        inner = torch.relu_(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(inner))
        out += self.shortcut(x)
        return torch.relu_(out)


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, a mean over the pixels, a Linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        for narrow, wide in zip((WIDTHS[0], *WIDTHS), WIDTHS):
            blocks += [Block(narrow, wide, stride=wide // narrow), Block(wide, wide, stride=1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTHS[-1], 1000)

    def forward(self, images: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, 1000)
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))
