"""What leaving an optional input out does to a model's captured graph, and to its logits.

Nodes of two captures are matched by what they do and where, in the order of execution. Names do not
count, because a capture numbers them anew.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from madl.execution import graphs
from madl.execution.graphs import Batch, NodeInfo
from madl.training.data import Encoded

LEFT_OUT = {
    "nothing": (),
    "labels": ("labels",),
    "attention mask": ("attention_mask",),
    "both": ("attention_mask", "labels"),
}
FUSED_ATTENTION = "scaled_dot_product_attention"
MASK_ARGUMENT = 3  # position of `attn_mask` in it
Model = Callable[..., Any]
Mark = Literal["same", "added", "removed", "rewired"]


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
    nodes = {name: graphs.describe(one.graph) for name, one in captured.items()}
    found = {name: diff(nodes["nothing"], nodes[name]) for name in ("labels", "attention mask")}
    return {
        "removed": {name: sum(c.mark == "removed" for c in one) for name, one in found.items()},
        "changes": {name: near_changes(one) for name, one in found.items()},
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
        "masked": len(masks),
        "entries": sum(mask.numel() for mask in masks),
        "true entries": sum(int(mask.sum()) for mask in masks),
        "masked by the model": sum(mask is not None for mask in eager.seen),
    }


@torch.no_grad()
def compare_logits(
    masked: Model, bare: Model, data: Encoded, pads: int, tolerance: float
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


# ---- what became of each node -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A node of either graph, and what became of it.

    `name` and `inputs` name nodes of both graphs without a clash: what was removed has a minus in
    front. A rewired node has other inputs than before: `was` names those that it lost, `now` those
    that it got.
    """

    mark: Mark
    name: str
    node: NodeInfo
    inputs: list[str]
    was: Sequence[str] = ()
    now: Sequence[str] = ()


def diff(before: Sequence[NodeInfo], after: Sequence[NodeInfo]) -> list[Change]:
    """Both graphs in one order, what is common once."""
    old, new = ([(n.kind, n.operator, n.module) for n in graph] for graph in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    kept = {
        before[i + k].name: after[j + k].name
        for i, j, size in matcher.get_matching_blocks()
        for k in range(size)
    }
    names = {node.name: kept.get(node.name, f"-{node.name}") for node in before}
    was = {kept[n.name]: [names[name] for name in n.inputs] for n in before if n.name in kept}
    changes: list[Change] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for node in before[i1:i2]:
                fed_by = [names[name] for name in node.inputs]
                changes.append(Change("removed", names[node.name], node, fed_by))
        for node in after[j1:j2]:
            fed_by = was.get(node.name, node.inputs)
            kept_mark: Mark = "same" if fed_by == node.inputs else "rewired"
            mark = kept_mark if tag == "equal" else "added"
            lost = [name for name in fed_by if name not in node.inputs]
            got = [name for name in node.inputs if name not in fed_by]
            changes.append(Change(mark, node.name, node, node.inputs, lost, got))
    return changes


def near_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """What changed, what feeds it, one of each kind of node that uses it, and what came instead.

    What came instead is all that leads to a rewired node's new inputs. Users of a changed size are
    left out: a size is used everywhere.
    """
    changed = {c.name for c in changes if c.mark != "same"}
    values = {c.name for c in changes if c.name in changed and c.node.operator != "sym_size"}
    sources = {name for c in changes if c.name in changed for name in c.inputs}
    sources |= _ancestors(changes, {name for c in changes for name in c.now})
    users: dict[str, list[Change]] = {}
    for c in changes:
        if c.name not in changed | sources and values & set(c.inputs):
            users.setdefault(c.node.operator, []).append(c)
    alike = {same[0].name: len(same) - 1 for same in users.values()}
    read = {name for c in changes if c.mark != "removed" for name in c.inputs}
    return [
        {
            **{"mark": c.mark, "name": c.name, "kind": c.node.kind, "operator": c.node.operator},
            **{"module": c.node.module, "shape": c.node.shape, "alike": alike.get(c.name, 0)},
            "unread": c.mark == "same" and c.name not in read,
            **{"inputs": " ".join(c.inputs), "inputs lost": " ".join(c.was)},
        }
        for c in changes
        if c.name in alike or (c.name in changed | sources and c.node.kind != "get_attr")
    ]


def _ancestors(changes: Sequence[Change], names: Collection[str]) -> set[str]:
    """These nodes and all that they are made of; a node stands behind its inputs."""
    found = set(names)
    for c in reversed(changes):
        if c.name in found:
            found.update(c.inputs)
    return found
