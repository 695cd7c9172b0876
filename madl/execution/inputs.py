"""What leaving an optional input out does to a model's captured graph, and to its logits."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.execution import changes, graphs
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


def compare_graphs(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """The graph for each set of inputs, compared with the graph that has them all."""
    captured = {
        left_out: graphs.capture(
            model, {k: v for k, v in batch.items() if k not in names}, training=True
        )
        for left_out, names in LEFT_OUT.items()
    }
    nodes = {left_out: graphs.describe(one.graph) for left_out, one in captured.items()}
    found = {left_out: changes.diff(nodes["nothing"], other) for left_out, other in nodes.items()}
    bare = captured["attention mask"].graph
    attention = [node for node in bare.nodes if graphs.operator_name(node) == FUSED_ATTENTION]
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
        "attention": {
            "nodes": len(attention),
            "masked": sum(node.args[MASK_ARGUMENT] is not None for node in attention),
        },
    }


@torch.no_grad()
def compare_logits(
    model: nn.Module, data: Encoded, *, pads: int, tolerance: float
) -> dict[str, dict[str, float]]:
    """Whose logits move when the mask is left out, or padding comes in.

    A batch holds sentences of equal length, so nothing in it is padded; its padded twin holds the
    same sentences with `pads` more positions each, and differs in nothing else. Both run with the
    mask and without.
    """
    model.eval()
    by_length: dict[int, list[int]] = {}
    for i, ids in enumerate(data.token_ids):
        by_length.setdefault(len(ids), []).append(i)
    logits: dict[tuple[str, bool], list[Tensor]] = {}
    for rows in by_length.values():
        whole = data.batch(rows)["input_ids"]  # (B, T)
        padded = F.pad(whole, (0, pads), value=data.pad_id)  # (B, T + pads)
        seen = torch.ones_like(whole)
        for name, ids, mask in (("whole", whole, seen), ("padded", padded, F.pad(seen, (0, pads)))):
            for given in ({"attention_mask": mask}, {}):
                run: Tensor = model(input_ids=ids, **given).logits  # (B, classes)
                logits.setdefault((name, bool(given)), []).append(run)
    every = {key: torch.cat(found) for key, found in logits.items()}
    masked, padded_and_masked = every["whole", True], every["padded", True]
    return {
        "whole, no mask": _moved(masked, every["whole", False], tolerance),
        "padded, no mask": _moved(padded_and_masked, every["padded", False], tolerance),
        "padded, mask": _moved(masked, padded_and_masked, tolerance),
    }


def _moved(before: Tensor, after: Tensor, tolerance: float) -> dict[str, float]:
    apart = (after - before).abs().amax(-1)  # (sentences,)
    return {
        "sentences": len(apart),
        "moved": int((apart > tolerance).sum()),
        "largest": float(apart.max()),
        "other answers": int((before.argmax(-1) != after.argmax(-1)).sum()),
    }
