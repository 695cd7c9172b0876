"""A Linear layer and a whole classifier in several arithmetics, checked and then timed in turn.

FP32, BF16 and MXINT8 hold their weights as they multiply them. FP32 and BF16 run again with weights
that oneDNN has rearranged beforehand, as MXINT8's always are, and BF16 by a product of ours. INT8
is torch's dynamic one, as it comes and by oneDNN, and torchao's compiled, with warm weights alone.
A classifier has every Linear converted, and for BF16 all the rest as well.

A layer is timed twice. Warm: a call just before the sample, which is not timed, leaves the weights
in the caches. Cold: calls go round so many copies of the layer that what all variants read between
two calls of one copy is more than the last cache holds.

Shapes: a layer of `in` inputs and `out` outputs is given `rows` rows; a classifier gets `batch`
sentences of `length` tokens.
Units: errors in decibel, signal over error.
Source: `mkldnn::_linear_pointwise`, which torch.compile calls for weights that it has frozen.
"""

import contextlib
import copy
import functools
import importlib
import itertools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_mxint8 import design
from experiments.lab4_mxint8.design import BF16, COLD, FP32, INT8, MXINT8, WARM
from kernels.linear_bf16_packed import PackedLinear
from madl.compression import pack
from madl.errors import first_line
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages
from madl.training import baseline

PEERS = tuple(
    v for v in design.VARIANTS if v not in (FP32, MXINT8)
)  # others' code: it costs its own row
Json = Mapping[str, Any]
Call = Callable[[], Any]


def run(params: Params, ctx: Context) -> Values:
    """Judge a converted classifier, or time a layer or a classifier in a process of its own."""
    match params["what"]:
        case "accuracy":
            model = convert(baseline.fine_tuned(params, ctx), params["variant"])
            return baseline.judge_on_test(model, params, "cpu")
        case "linear":
            return fresh.call(f"{__name__}:{time_layer.__name__}", dict(params))
        case _:
            argument = {**params, "checkpoint": str(baseline.checkpoint(params, ctx))}
            return fresh.call(f"{__name__}:{time_model.__name__}", argument)


# ---- arithmetics --------------------------------------------------------------------------------


class Prepacked(nn.Module):
    """A Linear whose weight oneDNN rearranges for as many rows as its first call has.

    For inference on a CPU. Later calls with other numbers of rows are right, but may be slow.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight.detach(), linear.bias
        self.packed: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        if self.packed is None:
            rows = input.numel() // input.shape[-1]
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, rows)  # pyright: ignore
        return torch.ops.mkldnn._linear_pointwise(  # pyright: ignore
            input, self.packed, self.bias, "none", [], ""
        )


def replace_(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every Linear inside the model by what is made of it."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, make(child))


def convert(model: nn.Module, variant: str) -> nn.Module:
    """A copy of the model in that arithmetic; prepacked weights are arranged in its first call."""
    model = copy.deepcopy(model).eval()
    if arithmetic_of(variant) == BF16:
        model = model.bfloat16()
    if variant.endswith(", prepacked"):
        replace_(model, Prepacked)
    if variant == design.PACKED:
        replace_(model, PackedLinear)
    if variant == MXINT8:
        pack.pack_(model, [pack.MXINT8])
    if variant == design.TORCHAO:
        return torchao_int8(model)
    if variant in design.WAYS[INT8]:
        model = dynamic_int8(model, "onednn" if variant == design.ONEDNN else None)
    return model


def torchao_int8(model: nn.Module) -> nn.Module:
    """The model with torchao's dynamic INT8, compiled with frozen weights as it is first called.

    Raises:
        RuntimeError: torchao is not installed.
    """
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise RuntimeError("torchao is not installed: pip install torchao==0.18.0") from error
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    torch.compiler.reset()  # a compilation for each number of rows, none that fits all
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.freezing = True  # as an option of torch.compile it comes too late
    compiled: Any = torch.compile(model)
    return compiled


def dynamic_int8(model: nn.Module, engine: str | None = None) -> nn.Module:
    """A copy whose Linears are torch's dynamic INT8, computed by that engine or torch's own choice.

    An engine is chosen for good when weights are packed for it, which is here.

    Raises:
        RuntimeError: this build of torch does not have the engine.
    """
    quantized: Any = torch.backends.quantized
    usual = quantized.engine
    try:
        quantized.engine = engine or usual
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is announced to move to another package
            quantize: Any = torch.ao.quantization.quantize_dynamic  # pyright: ignore
            return quantize(model, {nn.Linear}, torch.qint8)
    finally:
        quantized.engine = usual


def variants() -> list[str]:
    """The variants that this build of torch can compute."""
    has_onednn = "onednn" in torch.backends.quantized.supported_engines
    return [v for v in design.VARIANTS if has_onednn or v != design.ONEDNN]


def error_db(y: Tensor, exact: Tensor) -> float:
    """Signal to error in decibel: at twenty, the error is a tenth of the signal."""
    error = (y.double() - exact).square().sum() / exact.square().sum()
    return float(-10 * error.log10())


# ---- a layer ------------------------------------------------------------------------------------


def time_layer(argument: Json) -> dict[str, Any]:
    """Check and time one layer in every arithmetic, at each number of rows, cold and warm."""
    keep_freed_pages()
    generator = torch.Generator().manual_seed(0)
    num_in, num_out = argument["in"], argument["out"]
    layer = nn.Linear(num_in, num_out)
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    count = num_copies(num_in * num_out, argument["rotated_mb"])
    values: dict[str, Any] = {"measurements": {}, "error_db": {}, "failed_peers": {}}
    values["last_cache_mb"] = last_cache_mb()
    with torch.inference_mode():
        for rows in map(int, argument["rows"].split()):
            x = torch.randn(rows, num_in, generator=generator)
            exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
            works: dict[str, list[Call]] = {}
            for variant in variants():
                name = f"{variant} {rows}"
                with _failing_alone(variant, name, values["failed_peers"]):
                    copies = 1 if variant == design.TORCHAO else count
                    works[variant], values["error_db"][name] = _checked_calls(
                        layer, variant, x, exact, copies
                    )
            for state, run in _cold_and_warm(works, x, argument["budget_s"]):
                for variant, measured in run.items():
                    values["measurements"][f"{variant} {rows} {state}"] = measured
    return values


def last_cache_mb() -> float | None:
    """MB of the largest cache that a core sees, None where Linux does not tell it."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    return max((int(kib.removesuffix("K")) * 1024 / 1e6 for kib in sizes), default=None)


def num_copies(size: int, rotated_mb: float) -> int:
    """The copies of a layer of `size` weights with which all variants read `rotated_mb` a round."""
    copied = [variant for variant in variants() if variant != design.TORCHAO]
    copy_bytes = sum(size * design.VALUE_BYTES[arithmetic_of(variant)] for variant in copied)
    return max(1, -int(-rotated_mb * 1e6 // copy_bytes))


def _checked_calls(
    layer: nn.Module, variant: str, x: Tensor, exact: Tensor, count: int
) -> tuple[list[Call], float]:
    """(calls of `count` converted copies of the layer, each checked; the least of their dB)."""
    inputs = x.bfloat16() if arithmetic_of(variant) == BF16 else x
    calls: list[Call] = [
        functools.partial(convert(nn.Sequential(layer), variant), inputs) for _ in range(count)
    ]
    return calls, min(_check(variant, call(), exact, "the exact product") for call in calls)


def _cold_and_warm(
    works: Mapping[str, Sequence[Call]], x: Tensor, budget_s: float
) -> Generator[tuple[str, dict[str, Any]]]:
    """Yield (COLD, variant → measurement), then the same for WARM; torchao's is warm alone."""
    copied = {v: rotation(calls) for v, calls in works.items() if v != design.TORCHAO}
    yield COLD, _timed(copied, x, budget_s)
    first = {variant: calls[0] for variant, calls in works.items()}
    called_before = {v: functools.partial(warm_caches, call) for v, call in first.items()}
    yield WARM, _timed(first, x, budget_s, inside=called_before)


def rotation(calls: Sequence[Call]) -> Call:
    """A function that makes the next of these calls each time, and after the last the first."""
    turns = itertools.cycle(calls)
    return lambda: next(turns)()


@contextlib.contextmanager
def warm_caches(call: Call) -> Generator[None]:
    """A context that first makes the call, so that the weights are in the caches."""
    call()
    yield


@contextlib.contextmanager
def _failing_alone(variant: str, name: str, failed: dict[str, str]) -> Generator[None]:
    """A context in which an error of a peer, which this processor or torch cannot compute or
    computes wrongly, is put into `failed` and raised no further."""
    try:
        yield
    except (AttributeError, RuntimeError, WrongResult) as error:  # the first two: no such operator
        if variant not in PEERS:
            raise
        failed[name] = first_line(error)


class WrongResult(AssertionError):
    """A result further from the right one than its arithmetic rounds."""


def _check(
    variant: str, y: Tensor, expected: Tensor, source: str, least: float = design.LEAST_DB
) -> float:
    """The signal to error of a result, in decibel. Raises: WrongResult: it is too small."""
    error = error_db(y, expected)
    if not error > least:  # which no NaN is
        need = f"at least {least:g} dB are needed"
        raise WrongResult(f"{variant} is {error:.1f} dB from {source}; {need}")
    return error


# ---- a classifier -------------------------------------------------------------------------------


def time_model(argument: Json) -> dict[str, Any]:
    """Check and time the classifier of a checkpoint on random tokens, at each number of sentences.

    Logits have to be near those of FP32, and those of an arithmetic's other ways near those of its
    first, torch's own.
    """
    from madl.training import models

    keep_freed_pages()
    model: Any = models.load_checkpoint(Path(argument["checkpoint"]))
    generator = torch.Generator().manual_seed(0)
    values: dict[str, Any] = {"measurements": {}, "failed_peers": {}}
    for num_sentences in map(int, argument["batches"].split()):
        size = (num_sentences, argument["length"])
        ids = torch.randint(1, model.config.vocab_size, size, generator=generator)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        work: dict[str, Call] = {}
        logits: dict[str, Tensor] = {}
        with torch.inference_mode():
            for variant in variants():
                if variant == design.TORCHAO:
                    continue
                name = f"{variant} {num_sentences}"
                with _failing_alone(variant, name, values["failed_peers"]):
                    call = functools.partial(convert(model, variant), **batch)
                    own = call().logits
                    usual = design.WAYS[arithmetic_of(variant)][0]
                    coarse = design.LEAST_DB if variant == MXINT8 else design.LEAST_MODEL_DB
                    for source, least in ((FP32, coarse), (usual, design.LEAST_DB)):
                        if source == variant:
                            continue
                        if source not in logits:
                            raise WrongResult(f"{source} fails, so nothing can be held against it")
                        _check(variant, own, logits[source].double(), source, least)
                    logits[variant], work[variant] = own, call
            for variant, run in _timed(work, ids, argument["budget_s"]).items():
                values["measurements"][f"{variant} {num_sentences}"] = run
    return values


def arithmetic_of(variant: str) -> str:
    """The arithmetic of which a variant is a way."""
    return next(name for name, ways in design.WAYS.items() if variant in ways)


def _timed(
    work: Mapping[str, Call],
    x: Tensor,
    budget_s: float,
    *,
    inside: Mapping[str, timing.Inside] | None = None,
) -> dict[str, Any]:
    """Time these calls in turn: name → its measurement as JSON."""
    subjects = {name: timing.observe(fn, [x]) for name, fn in work.items()}
    measured = timing.compare(
        work, budget_s=budget_s, min_samples=design.LEAST_ROUNDS, subjects=subjects, inside=inside
    )
    return {name: m.to_json() for name, m in measured.items()}
