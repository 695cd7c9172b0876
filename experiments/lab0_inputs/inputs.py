"""What leaving an optional input out does to a model's captured graph, and to its logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from experiments.lab0_inputs import changes
from madl.execution import graphs
from madl.execution.graphs import Batch
from madl.training.data import Encoded

LEFT_OUT = {
    "nothing": (),
    "labels": ("labels",),
    "attention mask": ("attention_mask",),
    "both": ("attention_mask", "labels"),
}
FUSED_ATTENTION = "scaled_dot_product_attention"
MASK_ARGUMENT = 3  # position of `attn_mask` in it


def study(
    model: nn.Module, example: Batch, data: Encoded, *, pads: int, tolerance: float
) -> dict[str, Any]:
    """The model captured on `example` with each set of inputs: its nodes, masks and logits.

    Captured in evaluation mode, so that the graphs that are compared are also those that run.
    """
    captured = {
        left_out: graphs.capture(
            model, {k: v for k, v in example.items() if k not in names}, training=False
        )
        for left_out, names in LEFT_OUT.items()
    }
    return {
        **_compare_nodes(captured),
        "attention": _compare_masks(model, captured["both"], example["input_ids"]),
        "padding": compare_logits(captured["labels"], captured["both"], data, pads, tolerance),
    }


def _compare_nodes(captured: Mapping[str, fx.GraphModule]) -> dict[str, Any]:
    """Each graph's nodes against those of the graph that has all inputs."""
    nodes = {left_out: graphs.describe(one.graph) for left_out, one in captured.items()}
    found = {left_out: changes.diff(nodes["nothing"], other) for left_out, other in nodes.items()}
    return {
        "graphs": {
            left_out: {
                "nodes": len(nodes[left_out]),
                **{m: sum(c.mark == m for c in one) for m in ("added", "removed", "rewired")},
                "returns": nodes[left_out][-1].args.strip("()").rstrip(","),
            }
            for left_out, one in found.items()
        },
        "changes": {
            name: changes.near_changes(found[name]) for name in ("labels", "attention mask")
        },
    }


class _Masks(TorchFunctionMode):
    """The mask of each fused attention that is called meanwhile, None where it is given none."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor | None] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if FUSED_ATTENTION in str(getattr(func, "__name__", func)):
            given = args[MASK_ARGUMENT:] or (named.get("attn_mask"),)
            self.seen.append(given[0])
        return func(*args, **named)


@torch.no_grad()
def _compare_masks(model: nn.Module, graph: fx.GraphModule, ids: Tensor) -> dict[str, int]:
    """The masks that attention is given where the model is given none, as it is and captured."""
    with _Masks() as eager:
        model.eval()(input_ids=ids)
    with _Masks() as captured:
        graph(input_ids=ids)
    masks = [mask for mask in captured.seen if mask is not None]
    return {
        "nodes": len(captured.seen),
        "masked": len(masks),
        "entries": sum(mask.numel() for mask in masks),
        "true entries": sum(int(mask.sum()) for mask in masks),
        "calls of the model": len(eager.seen),
        "masked by the model": sum(mask is not None for mask in eager.seen),
        "sentences": len(ids),
    }


@torch.no_grad()
def compare_logits(
    masked: Callable[..., Any],
    bare: Callable[..., Any],
    data: Encoded,
    pads: int,
    tolerance: float,
) -> dict[str, dict[str, float]]:
    """Whose logits move where the mask is no input, or padding comes in.

    `masked` takes `input_ids` and `attention_mask`, `bare` only the first; both are one model's. A
    batch holds sentences of equal length, so nothing in it is padded; its padded twin holds the
    same sentences with `pads` more positions each, and differs in nothing else.
    """
    by_length: dict[int, list[int]] = {}
    for i, ids in enumerate(data.token_ids):
        by_length.setdefault(len(ids), []).append(i)
    logits: dict[str, list[Tensor]] = {}
    for rows in by_length.values():
        whole = data.batch(rows)["input_ids"]  # (B, T)
        padded = F.pad(whole, (0, pads), value=data.pad_id)  # (B, T + pads)
        seen = torch.ones_like(whole)
        for name, ids, mask in (("whole", whole, seen), ("padded", padded, F.pad(seen, (0, pads)))):
            with_mask = masked(input_ids=ids, attention_mask=mask).logits  # (B, classes)
            logits.setdefault(f"{name}, mask", []).append(with_mask)
            logits.setdefault(f"{name}, no mask", []).append(bare(input_ids=ids).logits)
    every = {key: torch.cat(found) for key, found in logits.items()}
    return {
        "whole, no mask": _moved(every["whole, mask"], every["whole, no mask"], tolerance),
        "padded, no mask": _moved(every["padded, mask"], every["padded, no mask"], tolerance),
        "padded, mask": _moved(every["whole, mask"], every["padded, mask"], tolerance),
    }


def _moved(before: Tensor, after: Tensor, tolerance: float) -> dict[str, float]:
    apart = (after - before).abs().amax(-1)  # (sentences,)
    return {
        "sentences": len(apart),
        "moved": int((apart > tolerance).sum()),
        "largest": float(apart.max()),
        "other answers": int((before.argmax(-1) != after.argmax(-1)).sum()),
    }
