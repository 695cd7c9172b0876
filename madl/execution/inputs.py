"""What leaving an optional input out does to a model's captured graph, and to its logits."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from madl.execution import graphs
from madl.execution.graphs import Batch, Change

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
    changes = {left_out: graphs.diff(nodes["nothing"], other) for left_out, other in nodes.items()}
    bare = captured["attention mask"].graph
    attention = [node for node in bare.nodes if graphs.operator_name(node) == FUSED_ATTENTION]
    return {
        "graphs": {
            left_out: {
                "nodes": len(nodes[left_out]),
                **{m: sum(c.mark == m for c in found) for m in ("added", "removed", "rewired")},
                "returns": nodes[left_out][-1].args.strip("()").rstrip(","),
            }
            for left_out, found in changes.items()
        },
        "changes": {name: near_changes(changes[name]) for name in ("labels", "attention mask")},
        "attention": {
            "nodes": len(attention),
            "masked": sum(node.args[MASK_ARGUMENT] is not None for node in attention),
        },
    }


def near_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """What changed, what feeds it, and one of each kind of node that uses it.

    Users of a changed size are left out: a size is used everywhere.
    """
    changed = {c.name for c in changes if c.mark != "same"}
    values = {c.name for c in changes if c.name in changed and c.node.operator != "sym_size"}
    sources = {name for c in changes if c.name in changed for name in c.inputs}
    users: dict[str, list[Change]] = {}
    for c in changes:
        if c.name not in changed | sources and values & set(c.inputs):
            users.setdefault(c.node.operator, []).append(c)
    alike = {same[0].name: len(same) - 1 for same in users.values()}
    return [
        {
            "mark": c.mark,
            "name": c.name,
            "operator": c.node.operator,
            "kind": c.node.kind,
            "inputs": c.inputs,
            "was": c.was,
            "module": c.node.module,
            "shape": c.node.shape,
            "alike": alike.get(c.name, 0),
        }
        for c in changes
        if c.name in alike or (c.name in changed | sources and c.node.kind != "get_attr")
    ]


@torch.no_grad()
def moved_without_mask(
    model: nn.Module, batch: Mapping[str, Tensor], *, tolerance: float
) -> dict[str, int]:
    """Whose logits move when the mask is left out: sentences with padding, or others too."""
    model.eval()
    with_mask = model(**batch).logits
    bare = model(input_ids=batch["input_ids"]).logits
    moved = (with_mask - bare).abs().amax(-1) > tolerance  # (sentences,)
    padded = batch["attention_mask"].eq(0).any(-1)
    return {
        "padded": int(padded.sum()),
        "padded_moved": int((padded & moved).sum()),
        "whole": int((~padded).sum()),
        "whole_moved": int((~padded & moved).sum()),
    }
