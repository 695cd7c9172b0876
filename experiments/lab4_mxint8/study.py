"""A Linear layer and a whole classifier in several arithmetics, checked and then timed in turn.

FP32, BF16 and MXINT8 hold their weights as they multiply them; FP32 and BF16 once more with weights
that oneDNN has rearranged beforehand, which MXINT8's are too; torch's dynamic INT8 as it comes, and
once more computed by oneDNN. A classifier has every Linear converted, and for BF16 all the rest as
well.

Shapes: a layer of `in` inputs and `out` outputs is given `rows` rows; a classifier gets `batch`
sentences of `length` tokens. Units: errors in decibel, signal over error.
Source: `mkldnn::_linear_pointwise`, which torch.compile calls for weights that it has frozen.
"""

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.lab4_mxint8.page import (
    BF16,
    DYNAMIC,
    FP32,
    MXINT8,
    ONEDNN,
    PREPACKED,
    VARIANTS,
)
from madl.compression import pack
from madl.machine import timing
from madl.machine.memory import keep_freed_pages

LEAST_DB = 20.0  # of a layer's result: below, an arithmetic is wrong, not coarse
PEERS = tuple(v for v in VARIANTS if v not in (FP32, MXINT8))  # others' code: it costs its own row
ROUNDS = 5  # at least, in one process; verdicts come from between processes
Json = Mapping[str, Any]


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
    """One timed case by what it times, in fresh processes."""
    argument = dict(params)
    if params["what"] == "linear":
        argument["rows"] = [int(rows) for rows in params["rows"].split()]
    else:
        argument["batches"] = [int(batch) for batch in params["batches"].split()]
    function = {"linear": "time_layer", "evaluation": "time_model"}[params["what"]]
    return timing.over_processes(f"{__name__}:{function}", argument, processes=params["processes"])


def time_layer(argument: Json) -> dict[str, Any]:
    """One layer in every arithmetic, at each number of rows; results checked before their time."""
    keep_freed_pages()
    generator = torch.Generator().manual_seed(0)
    num_in, num_out = argument["in"], argument["out"]
    layer = nn.Linear(num_in, num_out)
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    found: dict[str, Any] = {"measurements": {}, "error_db": {}, "failed_peers": {}}
    with torch.inference_mode():
        for rows in argument["rows"]:
            x = torch.randn(rows, num_in, generator=generator)
            exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
            work: dict[str, Callable[[], Tensor]] = {}
            for variant in variants():
                name = f"{variant} {rows}"
                with _at_its_own_cost(variant, name, found["failed_peers"]):
                    given = x.bfloat16() if variant.startswith(BF16) else x
                    one = functools.partial(prepared(nn.Sequential(layer), variant), given)
                    found["error_db"][name] = _right(variant, one(), exact, "the exact product")
                    work[variant] = one
            for variant, run in _timed(work, x, argument).items():
                found["measurements"][f"{variant} {rows}"] = run
    return found


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


def time_model(argument: Json) -> dict[str, Any]:
    """The whole classifier of a checkpoint on random tokens, at each number of sentences.

    Whatever is only arranged otherwise has to give the same logits first.
    """
    from madl.training import models

    keep_freed_pages()
    model: Any = models.load_checkpoint(Path(argument["checkpoint"]))
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {"measurements": {}, "failed_peers": {}}
    for num_sentences in argument["batches"]:
        size = (num_sentences, argument["length"])
        ids = torch.randint(1, model.config.vocab_size, size, generator=generator)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        work: dict[str, Callable[[], Any]] = {}
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
            for variant, run in _timed(work, ids, argument).items():
                found["measurements"][f"{variant} {num_sentences}"] = run
    return found


def _usual(variant: str) -> str:
    """The same arithmetic as torch has it."""
    return variant.removesuffix(PREPACKED).removesuffix(ONEDNN)


def _timed(work: Mapping[str, Callable[[], Any]], x: Tensor, argument: Json) -> dict[str, Any]:
    subjects = {name: timing.observe(fn, [x]) for name, fn in work.items()}
    measured = timing.compare(
        work, budget_s=argument["budget_s"], min_samples=ROUNDS, subjects=subjects
    )
    return {name: m.to_json() for name, m in measured.items()}
