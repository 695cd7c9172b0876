"""What becomes of a model's dropout in its captured graph: found, removed, erased without care.

The graph is captured in training mode, because that is where dropout does something, and in
evaluation mode, because that is where outputs can be compared. Passes are functions graph → graph.

Source: Reed et al. 2022, "torch.fx", arXiv:2112.08429; FX documentation of PyTorch.
Invariants: a pass never changes the graph it is given; parameters are shared with the model.
"""

import copy
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import TraceError

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
    exported = graphs.export(model, example, training=True)
    training = graphs.as_module(exported)
    evaluation = graphs.capture(model, example, training=False)
    first = dropout_nodes(training.graph)[0]
    return {
        "nodes": [node.to_json() for node in graphs.describe(training.graph)],
        "kinds": census(training.graph),
        "operators": operators(training.graph),
        "operators_after": operators(remove_dropout(training.graph)),
        "erase": {
            "node": first.name,
            "users": users(first),
            "error": erase_without_redirecting(training.graph, first.name),
        },
        "captures": _captures(
            {
                "training mode": training,
                "evaluation mode": evaluation,
                "training mode, core ATen operators": graphs.as_module(exported, core=True),
                "training mode, unfused attention": _unfused(model, example),
            }
        ),
        "outputs": _compare_outputs(model, data, training, evaluation),
        "num_sentences": len(data),
        "symbolic": _symbolic(model),
    }


def _unfused(model: Any, example: Batch) -> fx.GraphModule:
    """The same model with attention written out instead of one fused operator."""
    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    captured = graphs.capture(model, example, training=True)
    model.set_attn_implementation(fused)
    return captured


def _captures(captured: Mapping[str, fx.GraphModule]) -> list[dict[str, Any]]:
    """What the way of capturing does to the dropout that is found."""
    return [{"capture": name, **_census(one.graph)} for name, one in captured.items()]


def _census(graph: fx.Graph) -> dict[str, Any]:
    nodes = dropout_nodes(graph)
    return {
        "nodes": len(graph.nodes),
        "dropout": len(nodes),
        "operator": operator_name(nodes[0]),
        "active": sum(node.args[2] is True for node in nodes),
        "inside": len(attention_dropouts(graph)),
        "users": len(users(nodes[0])),
    }


def _compare_outputs(
    model: nn.Module, data: Encoded, training: fx.GraphModule, evaluation: fx.GraphModule
) -> dict[str, dict[str, float]]:
    """Logits of the passes' graphs against the model's, or against a second run of themselves."""
    without_nodes = remove_dropout(training.graph)
    random = with_graph(training, without_nodes)
    clean = with_graph(training, remove_attention_dropout(without_nodes))
    removed = with_graph(evaluation, remove_dropout(evaluation.graph))
    expected = _logits(model.eval(), data)
    before, after = _logits(evaluation, data), _logits(removed, data)
    if not torch.equal(before, after):
        raise MadlError(
            "removing dropout changed the outputs of the evaluation mode, where dropout does "
            "nothing; the pass redirects a user to the wrong value"
        )
    return {
        "evaluation": _difference(expected, before),
        "evaluation_removed": _difference(expected, after),
        "training_removed_twice": _difference(_logits(random, data), _logits(random, data)),
        "training_clean": _difference(expected, _logits(clean, data)),
    }


@torch.no_grad()
def _logits(run: Callable[..., Any], data: Encoded) -> Tensor:
    batches = batches_by_length(data, BATCH)
    return torch.cat([run(**data.batch(rows)).logits for rows in batches])


def _difference(a: Tensor, b: Tensor) -> dict[str, float]:
    return {"sentences": int((a != b).any(-1).sum()), "largest": float((a - b).abs().max())}


# ---- what a graph holds -------------------------------------------------------------------------


def census(graph: fx.Graph) -> dict[str, int]:
    """How many nodes of each kind, kinds that do not occur included."""
    counts = Counter(node.op for node in graph.nodes)
    return {kind: counts[kind] for kind in KINDS}


def operators(graph: fx.Graph) -> dict[str, int]:
    """How many calls of each operator, most frequent first."""
    counts = Counter(operator_name(node) for node in graph.nodes if node.op.startswith("call_"))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def dropout_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Every node whose operator is a dropout."""
    return [node for node in graph.nodes if drops(node) == "node"]


def attention_dropouts(graph: fx.Graph) -> list[fx.Node]:
    """Fused attention nodes that drop probabilities inside: an argument, no node of its own."""
    return [node for node in graph.nodes if drops(node) == "inside"]


def users(node: fx.Node) -> list[str]:
    """Names of the nodes that use a value, looking through the unpacking of a tuple."""
    names: list[str] = []
    for user in node.users:
        names += users(user) if user.target is operator.getitem else [user.name]
    return names


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
    except (TraceError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"  # NotImplementedError is a RuntimeError


def first_of_each_class(model: nn.Module) -> dict[str, nn.Module]:
    """The first module of each class that is written outside torch itself, by path."""
    found: dict[type[nn.Module], tuple[str, nn.Module]] = {}
    for path, module in model.named_modules():
        if not type(module).__module__.startswith("torch."):
            found.setdefault(type(module), (path, module))
    return dict(found.values())


def _symbolic(model: nn.Module) -> list[dict[str, Any]]:
    """What `symbolic_trace` makes of the first module of each class, the whole model first."""
    found: list[dict[str, Any]] = []
    for path, module in first_of_each_class(model).items():
        traced = try_symbolic_trace(module)
        entry: dict[str, Any] = {"module": path, "class": type(module).__name__}
        if isinstance(traced, str):
            entry["error"] = traced
        else:
            nodes = graphs.describe(traced)
            entry["kinds"] = census(traced)
            entry["examples"] = {node.kind: node.to_json() for node in reversed(nodes)}
        found.append(entry)
    return found
