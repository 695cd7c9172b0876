"""FX graphs of a model: capture and description.

`torch.export` runs the model once on example inputs and records every tensor operation, so the
graph holds operators, not modules; sizes stay symbols, so it takes any batch.

Source: Reed et al. 2022, "torch.fx", arXiv:2112.08429; FX documentation of PyTorch.
Shapes: of a node, as text; B is the batch, T the longest sentence in it.
Not handled: models whose path depends on the values of their inputs; `torch.export` refuses them.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

_ATTENTION: Any = torch.ops.aten.scaled_dot_product_attention.default
DROPOUT_ARGUMENT = 4  # position of `dropout_p` in scaled_dot_product_attention
Batch = Mapping[str, Tensor]
Drops = Literal["node", "inside", ""]


def capture(model: nn.Module, batch: Batch, *, training: bool) -> fx.GraphModule:
    """The model's forward as a graph that takes batches of any size, unless the model fixes it.

    `training` is frozen into the result: a captured dropout holds it as a literal argument. The
    batch needs two or more rows, because a size of one would be frozen too. Leaves the model in
    evaluation mode.
    """
    sizes: Any = {
        name: dict.fromkeys(range(tensor.ndim), torch.export.Dim.AUTO)
        for name, tensor in batch.items()
    }
    with no_future_warnings():
        exported = torch.export.export(model.train(training), (), dict(batch), dynamic_shapes=sizes)
        captured: Any = exported.module(check_guards=False)
    model.eval()
    return captured


def no_future_warnings() -> "warnings.catch_warnings[None]":
    """A context without the FutureWarnings that torch's own code raises."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


# ---- description --------------------------------------------------------------------------------


def operator_name(node: fx.Node) -> str:
    """A node's short name: `linear` of `aten.linear.default`, an attribute's path, an input's."""
    if node.op != "call_function":
        return str(node.target)
    name = str(getattr(node.target, "__name__", node.target))
    return name.split(".")[0].strip("_")


def _attention_dropout(node: fx.Node) -> float:
    """The dropout probability of an attention node."""
    value, *_ = node.args[DROPOUT_ARGUMENT:] or (node.kwargs.get("dropout_p", 0.0),)
    assert isinstance(value, float | int), value
    return float(value)


def drops(node: fx.Node) -> Drops:
    """How a node drops values: as a dropout `node`, `inside` attention, or "": not at all."""
    if node.op == "call_function" and "dropout" in operator_name(node):
        return "node"
    return "inside" if node.target is _ATTENTION and _attention_dropout(node) > 0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The description of a node, as plain data, which records keep."""

    name: str
    kind: str
    operator: str
    target: str
    args: str
    inputs: list[str]
    module: str  # path of the innermost module whose forward made it; "" outside of all
    group: str  # path of the module it is drawn in
    shape: str
    drops: Drops

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe(graph: fx.Graph) -> list[NodeInfo]:
    """The description of every node, in the graph's order."""
    letters = _size_letters(graph)
    return [
        NodeInfo(
            name=node.name,
            kind=node.op,
            operator=operator_name(node),
            target=str(node.target),
            args=", ".join([*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())]),
            inputs=[source.name for source in node.all_input_nodes],
            module=(path := _module_path(node)),
            group=_group(path),
            shape=_shape(node, letters),
            drops=drops(node),
        )
        for node in graph.nodes
    ]


def _module_path(node: fx.Node) -> str:
    """The path of the innermost module whose forward made the node; "" outside of all."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return "" if path.startswith("_") else path  # export's name for a size it took by itself


def _group(path: str) -> str:
    """The path of a node's block, `bert.encoder.layer.0`; outside of blocks, two parts of it."""
    layer = re.match(r".*?\.\d+(?=\.|$)", path)
    return layer[0] if layer else ".".join(path.split(".")[:2])


def _size_letters(graph: fx.Graph) -> dict[str, str]:
    """Symbolic size → "B" or "T", from the inputs that export gave these sizes."""
    letters: dict[str, str] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, Tensor):
            for size, letter in zip(value.shape, "BT"):
                letters.setdefault(str(size), letter)
    return letters


def _shape(node: fx.Node, letters: Mapping[str, str]) -> str:
    """The shape of a node's result, such as `B × T × 384`; "" if it is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return ""
    return " × ".join(letters.get(str(size), str(size)) for size in value.shape) or "scalar"
