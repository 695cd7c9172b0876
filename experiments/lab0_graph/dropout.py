"""What becomes of a model's dropout in its captured graph: found, removed, erased without care.

The graph is captured in training mode, because that is where dropout does something, and in
evaluation mode, because that is where outputs can be compared. Two logits are the same when all
their bits are.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from madl.errors import MadlError
from madl.execution import graphs
from madl.execution.graphs import Batch
from madl.training.data import Encoded, batches_by_length

BATCH = 32


def study(model: nn.Module, example: Batch, data: Encoded) -> dict[str, Any]:
    """The model captured on `example`, its nodes, and the passes' outputs on `data`.

    Raises:
        MadlError: removing dropout where it does nothing changed something.
    """
    exported = graphs.export(model, example, training=True)
    training = graphs.as_module(exported)
    evaluation = graphs.capture(model, example, training=False)
    first = graphs.dropout_nodes(training.graph)[0]
    return {
        "nodes": [node.to_json() for node in graphs.describe(training.graph)],
        "kinds": graphs.census(training.graph),
        "operators": graphs.operators(training.graph),
        "operators_after": graphs.operators(graphs.remove_dropout(training.graph)),
        "erase": {
            "node": first.name,
            "users": graphs.users(first),
            "error": graphs.erase_without_redirecting(training.graph, first.name),
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
    nodes = graphs.dropout_nodes(graph)
    return {
        "nodes": len(graph.nodes),
        "dropout": len(nodes),
        "operator": graphs.operator_name(nodes[0]),
        "active": sum(node.args[2] is True for node in nodes),
        "inside": len(graphs.attention_dropouts(graph)),
        "users": len(graphs.users(nodes[0])),
    }


def _compare_outputs(
    model: nn.Module, data: Encoded, training: fx.GraphModule, evaluation: fx.GraphModule
) -> dict[str, dict[str, float]]:
    """Logits of the passes' graphs against the model's, or against a second run of themselves."""
    without_nodes = graphs.remove_dropout(training.graph)
    random = graphs.with_graph(training, without_nodes)
    clean = graphs.with_graph(training, graphs.remove_attention_dropout(without_nodes))
    removed = graphs.with_graph(evaluation, graphs.remove_dropout(evaluation.graph))
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


def _symbolic(model: nn.Module) -> list[dict[str, Any]]:
    """What `symbolic_trace` makes of the first module of each class, the whole model first."""
    found: list[dict[str, Any]] = []
    for path, module in graphs.first_of_each_class(model).items():
        traced = graphs.try_symbolic_trace(module)
        entry: dict[str, Any] = {"module": path, "class": type(module).__name__}
        if isinstance(traced, str):
            entry["error"] = traced
        else:
            nodes = graphs.describe(traced)
            entry["kinds"] = graphs.census(traced)
            entry["examples"] = {node.kind: node.to_json() for node in reversed(nodes)}
        found.append(entry)
    return found
