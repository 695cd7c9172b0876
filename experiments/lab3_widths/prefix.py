"""Evaluate models that differ in one layer: what comes before its block is computed once.

An encoder is a list of blocks, each a function of what the one before it gave. If one layer
varies, all that its block is given is the same; so the outputs of every block, kept from one
evaluation, take the place of the blocks before it. Nothing is approximated: the same operations run
on the same numbers, and the losses are those of a plain evaluation to the last bit.

Memory: the outputs of all blocks on all batches, in float32.
Not handled: a block that reads more than its predecessor's output and what all blocks are given.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from madl.compression.quantize import set_module_
from madl.training.data import Encoded
from madl.training.precision import (
    LayerFormat,
    Precision,
    layer_names,
    set_layer_,
    set_precision_,
)
from madl.training.train import Evaluation, evaluate
from madl.training.width_space import block

Outputs = list[list[Any]]  # of every block: what it gave for each batch, in their order


def one_at_a_time(
    model: nn.Module, precision: Precision, other: LayerFormat, data: Encoded, device: str = "cpu"
) -> tuple[Evaluation, dict[str, Evaluation]]:
    """The model in a precision, and with the other format in each of its Linear layers alone."""
    set_precision_(model, precision)
    with recorded(model) as outputs:
        plain = evaluate(model, data, device=device)
    found: dict[str, Evaluation] = {}
    for name in layer_names(model):
        before = set_layer_(model, name, other)
        with replayed(model, outputs[: block(name)]):  # of the head: all
            found[name] = evaluate(model, data, device=device)
        set_module_(model, name, before)
    return plain, found


def blocks(model: nn.Module) -> nn.ModuleList:
    """The encoder's blocks, in the order in which they run: the model's first list of modules."""
    return next(module for module in model.modules() if isinstance(module, nn.ModuleList))


@contextmanager
def recorded(model: nn.Module) -> Generator[Outputs]:
    """Keep what every block gives while this lasts."""
    outputs: Outputs = [[] for _ in blocks(model)]

    def keep(number: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            outputs[number].append(output)

        return hook

    hooks = [one.register_forward_hook(keep(i)) for i, one in enumerate(blocks(model))]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def replayed(model: nn.Module, outputs: Sequence[Sequence[Any]]) -> Generator[None]:
    """While this lasts, the first blocks give what they gave, to the same batches in order."""
    every = blocks(model)
    skipped = list(every)[: len(outputs)]
    for i, kept in enumerate(outputs):
        every[i] = _Replay(kept)
    try:
        yield
    finally:
        for i, one in enumerate(skipped):
            every[i] = one


class _Replay(nn.Module):
    """Gives what was kept, one batch a call."""

    def __init__(self, kept: Sequence[Any]) -> None:
        super().__init__()
        self._left = iter(kept)

    def forward(self, *_: Any, **__: Any) -> Any:
        return next(self._left)
