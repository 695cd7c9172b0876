"""A Linear layer and a whole classifier in several arithmetics, checked and then timed in turn.

FP32, BF16 and MXINT8 hold their weights as they multiply them; FP32 and BF16 once more with weights
that oneDNN has rearranged beforehand, which MXINT8's are too; torch's dynamic INT8 as it comes, and
once more computed by oneDNN. A classifier has every Linear converted, and for BF16 all the rest as
well.

A layer is timed twice. Warm: a call just before the sample, which is not timed, leaves the weights
in the caches. Cold: there are so many copies of the layer, each called in its turn, that what all
variants read between two calls of one copy is more than the last cache holds.

Shapes: a layer of `in` inputs and `out` outputs is given `rows` rows; a classifier gets `batch`
sentences of `length` tokens. Units: errors in decibel, signal over error.
Source: `mkldnn::_linear_pointwise`, which torch.compile calls for weights that it has frozen.
"""

import contextlib
import copy
import functools
import itertools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_mxint8.page import (
    BF16,
    COLD,
    DYNAMIC,
    FP32,
    MXINT8,
    ONEDNN,
    PREPACKED,
    VARIANTS,
    WARM,
)
from madl.compression import pack
from madl.machine import fresh, timing
from madl.machine.memory import keep_freed_pages

LEAST_DB = 20.0  # of a layer's result: below, an arithmetic is wrong, not coarse
PEERS = tuple(v for v in VARIANTS if v not in (FP32, MXINT8))  # others' code: it costs its own row
ROUNDS = 5  # at least, in one process; verdicts come from between processes
BYTES = {FP32: 4.0, BF16: 2.0, DYNAMIC: 1.0, MXINT8: 1.03125}  # that a weight's value takes
Json = Mapping[str, Any]
Call = Callable[[], Any]


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


def prepack_(model: nn.Module) -> None:
    """Every Linear inside the model, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Prepacked(child))


def prepared(model: nn.Module, variant: str) -> nn.Module:
    """A copy of the model in that arithmetic; prepacked weights are arranged in its first call."""
    model = copy.deepcopy(model).eval()
    if variant.startswith(BF16):
        model = model.bfloat16()
    if variant.endswith(PREPACKED):
        prepack_(model)
    if variant == MXINT8:
        pack.pack_(model, [pack.MXINT8])
    if variant.startswith(DYNAMIC):
        model = dynamic_int8(model, "onednn" if variant.endswith(ONEDNN) else None)
    return model


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
    """Those that this build of torch can compute."""
    has_onednn = "onednn" in torch.backends.quantized.supported_engines
    return [v for v in VARIANTS if has_onednn or not v.endswith(ONEDNN)]


def error_db(y: Tensor, exact: Tensor) -> float:
    """Signal to error: twenty decibel are a tenth of the signal."""
    error = (y.double() - exact).square().sum() / exact.square().sum()
    return float(-10 * error.log10())


def study(params: Json) -> dict[str, Any]:
    """One timed case, in a process of its own."""
    function = {"linear": time_layer, "evaluation": time_model}[params["what"]]
    return fresh.call(f"{__name__}:{function.__name__}", dict(params))


# ---- a layer ------------------------------------------------------------------------------------


def time_layer(argument: Json) -> dict[str, Any]:
    """One layer in every arithmetic, at each number of rows; results checked before their time."""
    keep_freed_pages()
    generator = torch.Generator().manual_seed(0)
    num_in, num_out = argument["in"], argument["out"]
    layer = nn.Linear(num_in, num_out)
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    count = copies(num_in * num_out, argument["rotated_mb"])
    found: dict[str, Any] = {"measurements": {}, "error_db": {}, "failed_peers": {}}
    found["last_cache_mb"] = last_cache_mb()
    with torch.inference_mode():
        for rows in map(int, argument["rows"].split()):
            x = torch.randn(rows, num_in, generator=generator)
            exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
            works: dict[str, list[Call]] = {}
            for variant in variants():
                name = f"{variant} {rows}"
                with _at_its_own_cost(variant, name, found["failed_peers"]):
                    works[variant], found["error_db"][name] = _ready(
                        layer, variant, x, exact, count
                    )
            for state, run in _cold_and_warm(works, x, argument["budget_s"]):
                for variant, measured in run.items():
                    found["measurements"][f"{variant} {rows} {state}"] = measured
    return found


def last_cache_mb() -> float | None:
    """The largest cache that a core sees, where Linux tells it."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    return max((int(kib.removesuffix("K")) * 1024 / 1e6 for kib in sizes), default=None)


def copies(size: int, rotated_mb: float) -> int:
    """Of a layer of that many weights, for all arithmetics together to read so much in a turn."""
    one = sum(size * BYTES[_usual(variant)] for variant in variants())
    return max(1, -int(-rotated_mb * 1e6 // one))


def _ready(
    layer: nn.Module, variant: str, x: Tensor, exact: Tensor, count: int
) -> tuple[list[Call], float]:
    """A call of each copy, each right and its weights arranged; and the error of the worst."""
    given = x.bfloat16() if variant.startswith(BF16) else x
    calls: list[Call] = [
        functools.partial(prepared(nn.Sequential(layer), variant), given) for _ in range(count)
    ]
    return calls, min(_right(variant, one(), exact, "the exact product") for one in calls)


def _cold_and_warm(
    works: Mapping[str, Sequence[Call]], x: Tensor, budget_s: float
) -> Generator[tuple[str, dict[str, Any]]]:
    one = {variant: calls[0] for variant, calls in works.items()}
    yield COLD, _timed({v: rotated(calls) for v, calls in works.items()}, x, budget_s)
    called_before = {v: functools.partial(warm, call) for v, call in one.items()}
    yield WARM, _timed(one, x, budget_s, inside=called_before)


def rotated(calls: Sequence[Call]) -> Call:
    """One of them after the other, and again from the first."""
    turns = itertools.cycle(calls)
    return lambda: next(turns)()


@contextlib.contextmanager
def warm(call: Call) -> Generator[None]:
    """What follows finds in the caches what the call needs."""
    call()
    yield


@contextlib.contextmanager
def _at_its_own_cost(variant: str, name: str, failed: dict[str, str]) -> Generator[None]:
    """A peer that this processor or torch cannot compute, or computes wrongly, is left out, and
    `failed` says why.
    """
    try:
        yield
    except (AttributeError, RuntimeError, Wrong) as error:  # the first two: no such operator
        if variant not in PEERS:
            raise
        failed[name] = next(iter(str(error).splitlines()), type(error).__name__)


class Wrong(AssertionError):
    """A result that is none of its arithmetic's."""


def _right(variant: str, y: Tensor, expected: Tensor, of: str) -> float:
    """The error of a result. Raises: Wrong: it is too large."""
    error = error_db(y, expected)
    if not error > LEAST_DB:  # which no NaN is
        raise Wrong(f"{variant} is {error:.1f} dB from {of}; at least {LEAST_DB:g} dB are needed")
    return error


# ---- a classifier -------------------------------------------------------------------------------


def time_model(argument: Json) -> dict[str, Any]:
    """The whole classifier of a checkpoint on random tokens, at each number of sentences.

    Whatever is only arranged otherwise has to give the same logits first.
    """
    from madl.training import models

    keep_freed_pages()
    model: Any = models.load_checkpoint(Path(argument["checkpoint"]))
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {"measurements": {}, "failed_peers": {}}
    for num_sentences in map(int, argument["batches"].split()):
        size = (num_sentences, argument["length"])
        ids = torch.randint(1, model.config.vocab_size, size, generator=generator)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        work: dict[str, Call] = {}
        logits: dict[str, Tensor] = {}
        with torch.inference_mode():
            for variant in variants():
                name = f"{variant} {num_sentences}"
                with _at_its_own_cost(variant, name, found["failed_peers"]):
                    one = functools.partial(prepared(model, variant), **batch)
                    logits[variant] = one().logits
                    if (usual := logits.get(_usual(variant))) is None:
                        raise Wrong(
                            f"{_usual(variant)} fails, so nothing is there to hold it against"
                        )
                    _right(variant, logits[variant], usual.double(), _usual(variant))
                    work[variant] = one
            for variant, run in _timed(work, ids, argument["budget_s"]).items():
                found["measurements"][f"{variant} {num_sentences}"] = run
    return found


def _usual(variant: str) -> str:
    """The same arithmetic as torch has it."""
    return variant.removesuffix(PREPACKED).removesuffix(ONEDNN)


def _timed(
    work: Mapping[str, Call],
    x: Tensor,
    budget_s: float,
    *,
    inside: Mapping[str, timing.Inside] | None = None,
) -> dict[str, Any]:
    subjects = {name: timing.observe(fn, [x]) for name, fn in work.items()}
    measured = timing.compare(
        work, budget_s=budget_s, min_samples=ROUNDS, subjects=subjects, inside=inside
    )
    return {name: m.to_json() for name, m in measured.items()}
