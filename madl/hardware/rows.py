"""Rows of a model's own tensors: what a dot-product unit is given when the model runs in it.

Shapes: each side is rows × lanes, FP32: a piece of an output's weights, and the same piece of what
the layer is given for a token of a validation sentence.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline
from madl.training.data import Encoded
from madl.training.format_errors import SENTENCES, linear_inputs


def of_model(params: Params, ctx: Context, *, lanes: int) -> tuple[Tensor, Tensor]:
    """`params["rows"]` rows of the fine-tuned model, made once."""
    count = params["rows"]
    assert isinstance(count, int)
    made = baseline.checkpoint(params, ctx)

    def build(folder: Path) -> None:
        validation = baseline.load_splits(params).validation
        a, b = sampled(baseline.fine_tuned(params, ctx), validation, lanes=lanes, count=count)
        folder.mkdir()
        torch.save({"a": a, "b": b}, folder / "rows.pt")

    found = torch.load(
        ctx.artifact(f"dot-rows-{made.name}-{count}x{lanes}", build) / "rows.pt", weights_only=True
    )
    return found["a"], found["b"]


def sampled(model: nn.Module, data: Encoded, *, lanes: int, count: int) -> tuple[Tensor, Tensor]:
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
    a: list[Tensor] = []
    b: list[Tensor] = []
    for index in range(count):
        weight, x = pairs[index % len(pairs)]
        start = lanes * any_below(weight.shape[1] // lanes)
        a.append(weight[any_below(len(weight)), start : start + lanes])
        b.append(x[any_below(len(x)), start : start + lanes])
    return torch.stack(a), torch.stack(b)
