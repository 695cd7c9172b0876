"""Rows of a model's own tensors: what a dot-product unit is given when the model runs in it.

A format may take its scale from a whole row, so whole rows are kept, and a unit is given a piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.format_errors import SENTENCES, linear_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An output's weights (a) and what the layer is given for a token (b); a unit takes both from
    `start` on.

    Shapes: a and b have the layer's inputs, FP32.
    """

    a: Tensor
    b: Tensor
    start: int

    def dot(self, lanes: int) -> float:
        """The piece's dot product, unrounded."""
        part = slice(self.start, self.start + lanes)
        return float((self.a[part].double() * self.b[part].double()).sum())


def of_model(params: Params, ctx: Context, *, lanes: int) -> list[Piece]:
    """`params["rows"]` rows of the fine-tuned model, made once."""
    count = params["rows"]
    assert isinstance(count, int)
    made = baseline.checkpoint(params, ctx)

    def build(folder: Path) -> None:
        validation = baseline.load_splits(params).validation
        pieces = sampled(baseline.fine_tuned(params, ctx), validation, lanes=lanes, count=count)
        folder.mkdir()
        torch.save([(one.a, one.b, one.start) for one in pieces], folder / "rows.pt")

    folder = ctx.artifact(f"whole-dot-rows-{made.name}-{count}x{lanes}", build)
    found = torch.load(folder / "rows.pt", weights_only=True)
    return [Piece(a=a, b=b, start=start) for a, b, start in found]


def sampled(model: nn.Module, data: Encoded, *, lanes: int, count: int) -> Sequence[Piece]:
    """From all Linear layers in turn: any output, any token that is no padding, any piece."""
    generator = torch.Generator().manual_seed(0)

    def any_below(size: int) -> int:
        return int(torch.randint(size, (), generator=generator))

    batch = data.batch(range(min(SENTENCES, len(data))))
    kept = batch["attention_mask"].bool()
    pairs = [
        (layer.weight.detach(), x[kept] if x.dim() == 3 else x)
        for layer, x in zip(linear_layers(model), linear_inputs(model, batch), strict=True)
        if layer.weight.shape[1] % lanes == 0
    ]
    found: list[Piece] = []
    for index in range(count):
        weight, x = pairs[index % len(pairs)]
        start = lanes * any_below(weight.shape[1] // lanes)
        a, b = weight[any_below(len(weight))], x[any_below(len(x))]
        found.append(Piece(a=a.clone(), b=b.clone(), start=start))
    return found
