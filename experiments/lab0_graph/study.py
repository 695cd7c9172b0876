"""Dropout in the captured graph of a model: counted, removed, and erased wrongly.

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

from experiments.lab0_graph import design
from madl.errors import MadlError
from madl.execution import graphs
from madl.execution.graphs import DROPOUT_ARGUMENT, Batch, drops, no_future_warnings, operator_name
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, models
from madl.training.data import Encoded, batches_by_length

TRAINING_ARGUMENT = 2  # position of `train` in dropout
NODE_KINDS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")


def run(params: Params, ctx: Context) -> Values:
    """Run a case: capture the graph of the pretrained model and study it, or torchao's remedy."""
    model = models.load_pretrained(str(params["model"]), seed=int(params["seed"] or 0))
    test = baseline.load_splits(params).test
    probe = test.first(int(params["probe_sentences"] or 0))
    example = test.batch(range(design.EXAMPLE_SENTENCES))
    return (study_moved if params["method"] == "moved" else study)(model, example, probe)


def study(model: nn.Module, example: Batch, data: Encoded) -> dict[str, Any]:
    """Capture the model on `example`, count and remove its dropout, and compare outputs on `data`.

    Raises:
        MadlError: removing dropout in evaluation mode, where it does nothing, changed an output.
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
        "unfused": len(dropout_nodes(capture_unfused(model, example))),
        "erase": {
            "node": first.name,
            "users": [user.name for user in first.users],
            "error": erase_without_redirecting(training.graph, first.name),
        },
        "sentences": len(data),
        **compare_outputs(model, data, training, evaluation),
        "symbolic": symbolic(model),
    }


def study_moved(model: nn.Module, example: Batch, data: Encoded) -> dict[str, Any]:
    """Dropout that torchao's `move_exported_model_to_eval` leaves in the training graph.

    `nodes` and `inside` count what still drops, as nodes and inside attention; `random` the
    sentences whose logits two runs of the graph give differently.
    """
    moved = moved_to_evaluation(graphs.capture(model, example, training=True))
    dropping = [n for n in dropout_nodes(moved.graph) if n.args[TRAINING_ARGUMENT] is True]
    return {
        "nodes": len(dropping),
        "inside": len(attention_dropouts(moved.graph)),
        "random": num_differing(_logits(moved, data), _logits(moved, data)),
        "sentences": len(data),
    }


def capture_unfused(model: Any, example: Batch) -> fx.Graph:
    """The training graph with attention written out instead of one fused operator."""
    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    captured = graphs.capture(model, example, training=True)
    model.set_attn_implementation(fused)
    return captured.graph


def compare_outputs(
    model: nn.Module, data: Encoded, training: fx.GraphModule, evaluation: fx.GraphModule
) -> dict[str, int]:
    """Numbers of sentences, by the logits of the training graph without its dropout nodes.

    `random`: the logits of two runs differ. `clean`: if dropout inside attention is removed, too,
    the logits are those of the model in evaluation mode, to the last bit.

    Raises:
        MadlError: a bit of the evaluation graph's logits changed with the removal.
    """
    removed = with_graph(evaluation, remove_dropout(evaluation.graph))
    if changed := num_differing(_logits(evaluation, data), _logits(removed, data)):
        raise MadlError(
            f"removing dropout changed the outputs of {changed} sentences in evaluation mode, "
            "where dropout does nothing; the pass redirects a user to the wrong value"
        )
    without_nodes = remove_dropout(training.graph)
    random = with_graph(training, without_nodes)
    clean = with_graph(training, remove_attention_dropout(without_nodes))
    expected = _logits(model.eval(), data)
    return {
        "random": num_differing(_logits(random, data), _logits(random, data)),
        "clean": len(data) - num_differing(expected, _logits(clean, data)),
    }


@torch.no_grad()
def _logits(run: Callable[..., Any], data: Encoded) -> Tensor:
    """Logits of all sentences, (sentences, classes), in the order of batches by length."""
    batches = batches_by_length(data, design.BATCH_SENTENCES)
    return torch.cat([run(**data.batch(rows)).logits for rows in batches])


def num_differing(a: Tensor, b: Tensor) -> int:
    """The number of rows in which any value differs."""
    return int((a != b).any(-1).sum())


# ---- what a graph holds -------------------------------------------------------------------------


def census(graph: fx.Graph) -> dict[str, int]:
    """Kind of node → how many there are, 0 included."""
    counts = Counter(node.op for node in graph.nodes)
    return {kind: counts[kind] for kind in NODE_KINDS}


def operators(graph: fx.Graph) -> dict[str, int]:
    """Operator → how many calls there are."""
    return dict(Counter(operator_name(n) for n in graph.nodes if n.op.startswith("call_")))


def dropout_nodes(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if drops(node) == "node"]


def attention_dropouts(graph: fx.Graph) -> list[fx.Node]:
    """The fused attention nodes that drop probabilities inside, by an argument."""
    return [node for node in graph.nodes if drops(node) == "inside"]


# ---- passes: graph → graph ----------------------------------------------------------------------


def remove_dropout(graph: fx.Graph) -> fx.Graph:
    """A copy of the graph without dropout nodes: the users of each take its input instead."""
    changed = _copy(graph)
    for node in dropout_nodes(changed):
        node.replace_all_uses_with(node.all_input_nodes[0])
        changed.erase_node(node)
    changed.lint()
    return changed


def remove_attention_dropout(graph: fx.Graph) -> fx.Graph:
    """A copy of the graph with the dropout probability inside fused attention set to zero."""
    changed = _copy(graph)
    for node in attention_dropouts(changed):
        if len(node.args) > DROPOUT_ARGUMENT:
            node.update_arg(DROPOUT_ARGUMENT, 0.0)
        else:
            node.update_kwarg("dropout_p", 0.0)
    changed.lint()
    return changed


def erase_without_redirecting(graph: fx.Graph, name: str) -> str | None:
    """FX's error when a node is erased and its users still point at it; None if there is none."""
    changed = _copy(graph)
    node = next(node for node in changed.nodes if node.name == name)
    try:
        changed.erase_node(node)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return None


def moved_to_evaluation(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a training graph that torchao's `move_exported_model_to_eval` has gone over."""
    from torchao.quantization.pt2e import move_exported_model_to_eval

    return move_exported_model_to_eval(with_graph(module, _copy(module.graph)))


def _copy(graph: fx.Graph) -> fx.Graph:
    with no_future_warnings():
        return copy.deepcopy(graph)


def with_graph(module: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A module that runs another graph on the same parameters."""
    with no_future_warnings():
        return fx.GraphModule(module, graph)


# ---- symbolic tracing, the older way to a graph -------------------------------------------------


def try_symbolic_trace(module: nn.Module) -> fx.Graph | str:
    """The graph that `torch.fx.symbolic_trace` makes, or the text of its error."""
    try:
        return fx.symbolic_trace(module).graph
    except Exception as error:  # a model's own code, given proxies, may raise anything
        return f"{type(error).__name__}: {error}"


def symbolic(model: nn.Module) -> dict[str, Any]:
    """The error of `symbolic_trace` on the whole model; an example of each kind from its parts."""
    examples: dict[str, dict[str, Any]] = {}
    for path, part in model.named_modules():
        traced = try_symbolic_trace(part)
        if not isinstance(traced, str):
            for node in graphs.describe(traced):
                examples.setdefault(node.kind, {**node.to_json(), "part": path})
    whole = try_symbolic_trace(model)
    return {"error": whole if isinstance(whole, str) else None, "examples": examples}
