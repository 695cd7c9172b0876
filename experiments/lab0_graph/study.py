"""What becomes of a model's dropout in its captured graph: found, removed, erased without care.

The graph is captured in training mode, because that is where dropout does something, and in
evaluation mode, because that is where outputs can be compared. Passes are functions graph → graph.

Source: Reed et al. 2022, "torch.fx", arXiv:2112.08429; FX documentation of PyTorch.
Invariants: a pass never changes the graph it is given; parameters are shared with the model.
"""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from madl.errors import MadlError
from madl.execution import graphs
from madl.execution.graphs import DROPOUT_ARGUMENT, Batch, drops, no_future_warnings, operator_name
from madl.training.data import Encoded, batches_by_length

KINDS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")
BATCH = 32


def study(model: nn.Module, example: Batch, data: Encoded) -> dict[str, Any]:
    """The model captured on `example`, its nodes, and the passes' outputs on `data`.

    Raises:
        MadlError: removing dropout where it does nothing changed something.
    """
    training = graphs.capture(model, example, training=True)
    evaluation = graphs.capture(model, example, training=False)
    first = dropout_nodes(training.graph)[0]
    return {
        "nodes": [node.to_json() for node in graphs.describe(training.graph)],
        "kinds": census(training.graph),
        "operators": operators(training.graph),
        "operators_after": operators(remove_dropout(training.graph)),
        "inside": len(attention_dropouts(training.graph)),
        "unfused": len(dropout_nodes(_unfused(model, example))),
        "erase": {
            "node": first.name,
            "users": [user.name for user in first.users],
            "error": erase_without_redirecting(training.graph, first.name),
        },
        "sentences": len(data),
        **compare_outputs(model, data, training, evaluation),
        "symbolic": symbolic(model),
    }


def _unfused(model: Any, example: Batch) -> fx.Graph:
    """Of the same model with attention written out instead of one fused operator."""
    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    captured = graphs.capture(model, example, training=True)
    model.set_attn_implementation(fused)
    return captured.graph


def compare_outputs(
    model: nn.Module, data: Encoded, training: fx.GraphModule, evaluation: fx.GraphModule
) -> dict[str, int]:
    """On how many sentences the training graph still answers at random without its dropout nodes;
    and on how many it has the evaluated model's logits, to the last bit, without any dropout.

    Raises:
        MadlError: a bit of the evaluation graph's logits changed with the removal.
    """
    removed = with_graph(evaluation, remove_dropout(evaluation.graph))
    if changed := differing(_logits(evaluation, data), _logits(removed, data)):
        raise MadlError(
            f"removing dropout changed the outputs of {changed} sentences in evaluation mode, "
            "where dropout does nothing; the pass redirects a user to the wrong value"
        )
    without_nodes = remove_dropout(training.graph)
    random = with_graph(training, without_nodes)
    clean = with_graph(training, remove_attention_dropout(without_nodes))
    expected = _logits(model.eval(), data)
    return {
        "random": differing(_logits(random, data), _logits(random, data)),
        "clean": len(data) - differing(expected, _logits(clean, data)),
    }


@torch.no_grad()
def _logits(run: Callable[..., Any], data: Encoded) -> Tensor:
    batches = batches_by_length(data, BATCH)
    return torch.cat([run(**data.batch(rows)).logits for rows in batches])


def differing(a: Tensor, b: Tensor) -> int:
    """Rows in which any bit does."""
    return int((a != b).any(-1).sum())


# ---- what a graph holds -------------------------------------------------------------------------


def census(graph: fx.Graph) -> dict[str, int]:
    """How many nodes of each kind, kinds that do not occur included."""
    counts = Counter(node.op for node in graph.nodes)
    return {kind: counts[kind] for kind in KINDS}


def operators(graph: fx.Graph) -> dict[str, int]:
    """How many calls of each operator."""
    return dict(Counter(operator_name(n) for n in graph.nodes if n.op.startswith("call_")))


def dropout_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Every node whose operator is a dropout."""
    return [node for node in graph.nodes if drops(node) == "node"]


def attention_dropouts(graph: fx.Graph) -> list[fx.Node]:
    """Fused attention nodes that drop probabilities inside: an argument, no node of its own."""
    return [node for node in graph.nodes if drops(node) == "inside"]


# ---- passes: graph → graph ----------------------------------------------------------------------


def remove_dropout(graph: fx.Graph) -> fx.Graph:
    """Without its dropout nodes: the users of each take its input instead."""
    changed = _copy(graph)
    for node in dropout_nodes(changed):
        node.replace_all_uses_with(node.all_input_nodes[0])
        changed.erase_node(node)
    changed.lint()
    return changed


def remove_attention_dropout(graph: fx.Graph) -> fx.Graph:
    """With the dropout probability inside fused attention set to zero."""
    changed = _copy(graph)
    for node in attention_dropouts(changed):
        if len(node.args) > DROPOUT_ARGUMENT:
            node.update_arg(DROPOUT_ARGUMENT, 0.0)
        else:
            node.update_kwarg("dropout_p", 0.0)
    changed.lint()
    return changed


def erase_without_redirecting(graph: fx.Graph, name: str) -> str | None:
    """What FX says when a node is erased and its users still point at it; None if it lets it."""
    changed = _copy(graph)
    node = next(node for node in changed.nodes if node.name == name)
    try:
        changed.erase_node(node)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return None


def _copy(graph: fx.Graph) -> fx.Graph:
    with no_future_warnings():
        return copy.deepcopy(graph)


def with_graph(module: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A module that runs another graph on the same parameters."""
    with no_future_warnings():
        return fx.GraphModule(module, graph)


# ---- symbolic tracing, the older way to a graph -------------------------------------------------


def try_symbolic_trace(module: nn.Module) -> fx.Graph | str:
    """The graph that `torch.fx.symbolic_trace` makes, or what it said when it failed."""
    try:
        return fx.symbolic_trace(module).graph
    except Exception as error:  # a model's own code, given proxies, may raise anything
        return f"{type(error).__name__}: {error}"


def symbolic(model: nn.Module) -> dict[str, Any]:
    """What it says of the whole model, and a node of each kind in the parts that it can trace."""
    examples: dict[str, dict[str, Any]] = {}
    for path, part in model.named_modules():
        traced = try_symbolic_trace(part)
        if not isinstance(traced, str):
            for node in graphs.describe(traced):
                examples.setdefault(node.kind, {**node.to_json(), "part": path})
    said = try_symbolic_trace(model)
    return {"error": said if isinstance(said, str) else None, "examples": examples}
