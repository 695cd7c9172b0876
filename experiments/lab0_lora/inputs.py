"""The captured graph and the logits of a model, with optional inputs left out.

Nodes of two captures are matched by what they do and where, in the order of execution. Names do not
count, because a capture numbers them anew.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from experiments.lab0_lora import design
from madl.execution import graphs
from madl.execution.graphs import NodeInfo
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, models
from madl.training.data import Encoded

LEFT_OUT = {
    "nothing": (),
    "labels": ("labels",),
    "attention mask": ("attention_mask",),
    "both": ("attention_mask", "labels"),
}
FUSED_ATTENTION = "scaled_dot_product_attention"
MASK_ARGUMENT = 3  # position of `attn_mask` in it


def study(params: Params, ctx: Context) -> Values:
    """Capture the model with optional inputs left out, and compare its nodes, masks and logits.

    Captured in evaluation mode, so that the graphs that are compared are also those that run.
    """
    model, test = baseline.fine_tuned(params, ctx), baseline.load_splits(params).test
    example = test.batch(range(design.EXAMPLE_SENTENCES))
    captured = {
        left_out: graphs.capture(
            model, {k: v for k, v in example.items() if k not in names}, training=False
        )
        for left_out, names in LEFT_OUT.items()
    }
    longest = models.longest_input(str(params["model"]))
    most_tokens = longest and longest - design.PAD_TOKENS  # so that there is room for the pads
    probe = test.first(int(params["probe_sentences"] or 0))
    probe = replace(probe, token_ids=[ids[:most_tokens] for ids in probe.token_ids])
    nodes = {name: graphs.describe(module.graph) for name, module in captured.items()}
    changes = {name: diff(nodes["nothing"], nodes[name]) for name in ("labels", "attention mask")}
    return {
        "removed": {name: sum(c.mark == "removed" for c in cs) for name, cs in changes.items()},
        "changes": {name: rows_near(cs) for name, cs in changes.items()},
        "attention": compare_masks(model, captured["both"], example["input_ids"]),
        "padding": compare_logits(captured["labels"], captured["both"], probe),
    }


# ---- masks and logits ---------------------------------------------------------------------------


class _Masks(TorchFunctionMode):
    """A mode that records the mask of each call of fused attention, None where it is given none."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[Tensor | None] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if FUSED_ATTENTION in str(getattr(func, "__name__", func)):
            self.masks.append((args[MASK_ARGUMENT:] or (named.get("attn_mask"),))[0])
        return func(*args, **named)


@torch.no_grad()
def compare_masks(model: nn.Module, graph: fx.GraphModule, ids: Tensor) -> dict[str, int]:
    """Count the masks that attention gets where the model is given none: eager, and captured."""
    with _Masks() as eager:
        model.eval()(input_ids=ids)
    with _Masks() as captured:
        graph(input_ids=ids)
    masks = [mask for mask in captured.masks if mask is not None]
    return {
        "masked": len(masks),
        "entries": sum(mask.numel() for mask in masks),
        "true entries": sum(int(mask.sum()) for mask in masks),
        "masked by the model": sum(mask is not None for mask in eager.masks),
    }


@torch.no_grad()
def compare_logits(
    masked: Callable[..., Any], bare: Callable[..., Any], data: Encoded
) -> dict[str, dict[str, float]]:
    """How many sentences' logits move when the mask is no input, or when padding is added.

    `masked` takes `input_ids` and `attention_mask`, `bare` only the first; both are one model's. A
    batch holds sentences of equal length, so nothing in it is padded; its padded twin holds the
    same sentences with some more positions each, and differs in nothing else. Each comparison gives
    counts of sentences, and the largest move.
    """
    by_length: dict[int, list[int]] = {}
    for i, ids in enumerate(data.token_ids):
        by_length.setdefault(len(ids), []).append(i)
    batches: dict[str, list[Tensor]] = {}
    for rows in by_length.values():
        whole = data.batch(rows)["input_ids"]  # (B, T)
        ones, pads = torch.ones_like(whole), (0, design.PAD_TOKENS)
        padded = F.pad(whole, pads, value=data.pad_id)  # (B, T + pads)
        for name, ids, mask in (("whole", whole, ones), ("padded", padded, F.pad(ones, pads))):
            with_mask = masked(input_ids=ids, attention_mask=mask).logits  # (B, classes)
            batches.setdefault(f"{name}, mask", []).append(with_mask)
            batches.setdefault(f"{name}, no mask", []).append(bare(input_ids=ids).logits)
    logits = {name: torch.cat(parts) for name, parts in batches.items()}
    before = {"whole, no mask": "whole, mask", "padded, no mask": "padded, mask"}
    before["padded, mask"] = "whole, mask"
    return {name: _moved(logits[other], logits[name]) for name, other in before.items()}


def _moved(before: Tensor, after: Tensor) -> dict[str, float]:
    """Sentences whose logits moved beyond the tolerance or whose answer changed; largest move."""
    distance = (after - before).abs().amax(-1)  # (sentences,)
    return {
        "sentences": len(distance),
        "moved": int((distance > design.LOGIT_TOLERANCE).sum()),
        "largest": float(distance.max()),
        "other answers": int((before.argmax(-1) != after.argmax(-1)).sum()),
    }


# ---- what became of each node -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A node of the graph before or after, and whether it was added, removed or rewired.

    `name` and `inputs` name nodes of both graphs without a clash: removed nodes have a minus in
    front. A rewired node has other inputs than before: some `lost`, some `gained`.
    """

    mark: Literal["same", "added", "removed", "rewired"]
    name: str
    node: NodeInfo
    inputs: list[str]
    lost: Sequence[str] = ()
    gained: Sequence[str] = ()


def diff(before: Sequence[NodeInfo], after: Sequence[NodeInfo]) -> list[Change]:
    """The nodes of both graphs in one order of execution; a node that both have is there once."""
    old, new = ([(n.kind, n.operator, n.module) for n in graph] for graph in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    twins = {
        before[i + k].name: after[j + k].name
        for i, j, size in matcher.get_matching_blocks()
        for k in range(size)
    }
    names = {node.name: twins.get(node.name, f"-{node.name}") for node in before}
    old_inputs = {names[node.name]: [names[name] for name in node.inputs] for node in before}
    changes: list[Change] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for node in before[i1:i2]:
                name = names[node.name]
                changes.append(Change("removed", name, node, old_inputs[name]))
        for node in after[j1:j2]:
            inputs = old_inputs.get(node.name, node.inputs)
            mark = "added" if tag != "equal" else "same" if inputs == node.inputs else "rewired"
            lost = [name for name in inputs if name not in node.inputs]
            gained = [name for name in node.inputs if name not in inputs]
            changes.append(Change(mark, node.name, node, node.inputs, lost, gained))
    return changes


def rows_near(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Rows of the changed nodes, of their inputs, and of one user of them for each operator.

    The nodes that a rewired node's new inputs are computed from are there, too. Users of a changed
    size are left out: a size is used everywhere.
    """
    changed = {c.name for c in changes if c.mark != "same"}
    values = {c.name for c in changes if c.name in changed and c.node.operator != "sym_size"}
    sources = {name for c in changes if c.name in changed for name in c.inputs}
    sources |= _ancestors(changes, {name for c in changes for name in c.gained})
    users: dict[str, list[Change]] = {}
    for c in changes:
        if c.name not in changed | sources and values & set(c.inputs):
            users.setdefault(c.node.operator, []).append(c)
    num_more = {same[0].name: len(same) - 1 for same in users.values()}
    read = {name for c in changes if c.mark != "removed" for name in c.inputs}
    return [
        {
            **{"mark": c.mark, "name": c.name, "kind": c.node.kind, "operator": c.node.operator},
            **{"module": c.node.module, "shape": c.node.shape, "alike": num_more.get(c.name, 0)},
            "unread": c.mark == "same" and c.name not in read,
            **{"inputs": " ".join(c.inputs), "inputs lost": " ".join(c.lost)},
        }
        for c in changes
        if c.name in num_more or (c.name in changed | sources and c.node.kind != "get_attr")
    ]


def _ancestors(changes: Sequence[Change], names: Collection[str]) -> set[str]:
    """These nodes and all that they are computed from; `changes` are in order of execution."""
    ancestors = set(names)
    for c in reversed(changes):
        if c.name in ancestors:
            ancestors.update(c.inputs)
    return ancestors
