"""Question 0.1: the classifier as an FX graph, its nodes, and two ways to take dropout out of it.

The graph is captured by `torch.export` in training mode, because that is where dropout does
something, and in evaluation mode, because that is where its outputs can be compared bit by bit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from madl.logbook import plots, stats
from madl.logbook.drawing import Box, column
from madl.logbook.experiment import (
    Claim,
    Context,
    Drawing,
    Experiment,
    Figure,
    Panel,
    Params,
    Plan,
    Row,
)
from madl.logbook.results import Records
from madl.training import baseline

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madl.training.data import Encoded

BATCH = 32
EXAMPLE_ROWS = 4  # sentences that the model is captured on

# What each kind of node stands for, in FX's own terms.
KINDS = {
    "placeholder": "an input of the forward function",
    "get_attr": "a parameter or buffer, read from the module by its path",
    "call_function": "a call of a free function; here, of an ATen operator",
    "call_module": "a call of a submodule, kept whole as a leaf",
    "call_method": "a call of a method of a tensor",
    "output": "what the forward function returns",
}

# The error of two public reports, with the tracer that older versions of transformers had.
REPORTED_USERS = {
    "bert_encoder_layer_0_attention_self_query": "a Linear, as a module",
    "bert_encoder_layer_0_attention_self_key": "a Linear, as a module",
    "bert_encoder_layer_0_attention_self_value": "a Linear, as a module",
    "add_7": "the residual sum",
    "getattr_2": "Python code reading an attribute of the tensor",
    "size_4": "Python code asking for its size",
}


def params(plan: Plan) -> Iterable[Params]:
    probe = plan.profile.choose(smoke=32, quick=64, full=1024)
    yield {"method": "graph", **baseline.recipe_params(plan, 0), "probe_sentences": probe}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl import graphs

    model = baseline.fine_tuned(params, ctx)
    test = baseline.load_splits(params).test.first(int(params["probe_sentences"]))
    example = test.batch(range(EXAMPLE_ROWS))
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
        "outputs": _compare_outputs(model, test, training, evaluation),
        "num_sentences": len(test),
        "symbolic": _symbolic(model),
    }


def _unfused(model: Any, example: Any) -> Any:
    """The same model with attention written out instead of one fused operator."""
    from madl import graphs

    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    captured = graphs.capture(model, example, training=True)
    model.set_attn_implementation(fused)
    return captured


def _captures(captured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the way of capturing does to the dropout that is found."""
    return [{"capture": name, **_dropout_census(m.graph)} for name, m in captured.items()]


def _dropout_census(graph: Any) -> dict[str, Any]:
    from madl import graphs

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
    model: "nn.Module", test: "Encoded", training: Any, evaluation: Any
) -> dict[str, dict[str, float]]:
    """Logits of the passes' graphs against the model's, or against a second run of themselves."""
    from madl import graphs

    without_nodes = graphs.remove_dropout(training.graph)
    random = graphs.with_graph(training, without_nodes)
    clean = graphs.with_graph(training, graphs.remove_attention_dropout(without_nodes))
    removed = graphs.with_graph(evaluation, graphs.remove_dropout(evaluation.graph))
    expected = _logits(model.eval(), test)
    return {
        "evaluation": _difference(expected, _logits(evaluation, test)),
        "evaluation_removed": _difference(expected, _logits(removed, test)),
        "training_removed_twice": _difference(_logits(random, test), _logits(random, test)),
        "training_clean": _difference(expected, _logits(clean, test)),
    }


def _logits(run: Callable[..., Any], data: "Encoded") -> "Tensor":
    import torch

    from madl.training.data import batches_by_length

    with torch.no_grad():
        return torch.cat(
            [run(**data.batch(rows)).logits for rows in batches_by_length(data, BATCH)]
        )


def _difference(a: "Tensor", b: "Tensor") -> dict[str, float]:
    return {"sentences": int((a != b).any(-1).sum()), "largest": float((a - b).abs().max())}


def _symbolic(model: "nn.Module") -> list[dict[str, Any]]:
    """What `symbolic_trace` makes of the first module of each class, the whole model first."""
    from madl import graphs

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


# ---- claims -------------------------------------------------------------------------------------


def _values(records: Records) -> Mapping[str, Any]:
    return records.one(method="graph").values


def _num_nodes(values: Mapping[str, Any]) -> int:
    return len(values["nodes"])


def removed(records: Records) -> Claim:
    values = _values(records)
    before = values["operators"]["dropout"]
    after = values["operators_after"].get("dropout", 0)
    n = _num_nodes(values)
    text = (
        f"Of {n} nodes in the graph of the training mode, {before} are dropout; the pass leaves "
        f"{after} of them and {n - before + after} nodes in all"
    )
    return stats.counted(before / n, after / n, n).degrades(text)


def same_outputs(records: Records) -> Claim:
    values = _values(records)
    n, found = values["num_sentences"], values["outputs"]["evaluation_removed"]
    text = (
        f"In evaluation mode, the graph without dropout gives the model's logits to the last bit "
        f"on {n - found['sentences']} of {n} test sentences"
    )
    return stats.none_of(found["sentences"], n, text)


def capture_is_exact(records: Records) -> Claim:
    values = _values(records)
    n, found = values["num_sentences"], values["outputs"]["evaluation"]
    text = (
        f"The captured graph has the model's logits to the last bit before any pass as well, on "
        f"{n - found['sentences']} of {n} sentences"
    )
    return stats.none_of(found["sentences"], n, text)


def erase_fails(records: Records) -> Claim:
    erase = _values(records)["erase"]
    error = erase["error"] or "nothing"
    missing = sum(f"{user}: None" not in error for user in erase["users"])
    text = (
        f"Erasing `{erase['node']}` without redirecting its users raises "
        f"`{error.partition(':')[0]}`, and its text names all {len(erase['users'])} of them"
    )
    return stats.none_of(missing, len(erase["users"]), text)


def no_modules(records: Records) -> Claim:
    values = _values(records)
    kinds = values["kinds"]
    calls = kinds["call_module"] + kinds["call_method"]
    text = f"No node of the {_num_nodes(values)} calls a module or a method"
    return stats.none_of(calls, _num_nodes(values), text)


def layers_alike(records: Records) -> Claim:
    """Whether one layer's drawing speaks for the others."""
    layers: dict[str, list[tuple[str, str, str]]] = {}
    for node in _values(records)["nodes"]:
        group = node["group"]
        if node["kind"] == "call_function" and group.rpartition(".")[2].isdigit():
            inside = node["module"].removeprefix(group)
            layers.setdefault(group, []).append((node["operator"], inside, node["shape"]))
    first = next(iter(layers.values()))
    other = sum(nodes != first for nodes in layers.values())
    text = (
        f"The {len(layers)} encoder layers are {len(first)} operator nodes each, the same "
        "operators in the same order"
    )
    return stats.none_of(other, len(layers), text)


def hidden_dropout(records: Records) -> Claim:
    capture = _values(records)["captures"][0]
    inside, places = capture["inside"], capture["inside"] + capture["dropout"]
    text = (
        f"Of the {places} places where this graph drops values, {inside} are no dropout node but "
        "an argument of fused attention, which a pass that looks for dropout nodes does not see"
    )
    return stats.counted(0.0, inside / places, places).improves(text)


def still_random(records: Records) -> Claim:
    values = _values(records)
    n, found = values["num_sentences"], values["outputs"]["training_removed_twice"]
    text = (
        f"After that pass the graph of the training mode is still random: two runs differ on "
        f"{found['sentences']} of {n} sentences, by up to {found['largest']:.2f} in a logit"
    )
    return stats.counted(0.0, found["sentences"] / n, n).improves(text)


def clean_outputs(records: Records) -> Claim:
    values = _values(records)
    n, found = values["num_sentences"], values["outputs"]["training_clean"]
    text = (
        f"With that argument set to zero as well, it equals the model in evaluation mode to the "
        f"last bit on {n - found['sentences']} of {n} sentences"
    )
    return stats.none_of(found["sentences"], n, text)


# ---- figures ------------------------------------------------------------------------------------

MOST = 12  # operators that the figure has room for


def operator_rows(records: Records) -> Sequence[Row]:
    values = _values(records)
    after = values["operators_after"]
    ranked = sorted(values["operators"].items(), key=lambda item: (-item[1], item[0]))
    return [
        {"operator": name, "nodes": count, "nodes without dropout": after.get(name, 0)}
        for name, count in ranked
    ]


def draw_operators(ax: Any, rows: Sequence[Row]) -> None:
    shown = rows[:MOST]
    names = [str(row["operator"]).replace("scaled_dot_product_", "") for row in shown]
    gone = [row["nodes"] != row["nodes without dropout"] for row in shown]
    colors = [plots.color("second" if is_gone else "first") for is_gone in gone]
    counts = [row["nodes"] for row in shown]
    bars = ax.barh(names, counts, color=colors, height=0.62)
    labels = [
        f"{n} → {r['nodes without dropout']}" if g else f"{n}"
        for n, r, g in zip(counts, shown, gone)
    ]
    ax.bar_label(bars, labels, padding=4)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("nodes of the captured graph")


def operators_alt(rows: Sequence[Row]) -> str:
    return (
        "Nodes by operator: "
        + ", ".join(
            f"{row['operator']} {row['nodes']}"
            + (
                ""
                if row["nodes"] == row["nodes without dropout"]
                else f" before the pass and {row['nodes without dropout']} after"
            )
            for row in rows[:MOST]
        )
        + "."
    )


def graph_rows(records: Records) -> Sequence[Row]:
    """One row a node, weights named with the node that reads them; parts are runs of a module."""
    nodes = _values(records)["nodes"]
    weights = {n["name"]: n["target"] for n in nodes if n["kind"] == "get_attr"}
    rows: list[Row] = []
    drawn = [n for n in nodes if n["kind"] != "get_attr"]
    for number, (group, run) in enumerate(groupby(drawn, key=lambda n: n["group"])):
        for node in run:
            read = [weights[i].rpartition(".")[2] for i in node["inputs"] if i in weights]
            rows.append(
                {
                    "part": group or ("outputs" if number else "inputs"),
                    "name": node["name"],
                    "kind": node["kind"],
                    "operator": node["operator"],
                    "inputs": " ".join(i for i in node["inputs"] if i not in weights),
                    "weights": " ".join(read),
                    "module": node["module"],
                    "shape": node["shape"],
                    "drops": _drops(node),
                }
            )
    return rows


def _drops(node: Mapping[str, Any]) -> str:
    """Whether a node drops values: as a dropout node, or inside attention."""
    if "dropout" in node["operator"]:
        return "node"
    probability = node["args"].split(", ")[-1]
    inside = node["operator"] == "scaled_dot_product_attention" and probability.startswith("0.")
    return "inside" if inside and float(probability) > 0 else ""


def graph_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    parts = {part: list(run) for part, run in groupby(rows, key=lambda row: str(row["part"]))}
    made_in = {str(row["name"]): str(row["part"]) for row in rows}
    boxes = [_part_box(part, nodes, made_in) for part, nodes in parts.items()]
    overview = Panel(
        title="The graph, one box a module",
        svg=column(boxes, label="The modules of the graph and what flows between them"),
        folded=False,
    )
    details = [
        Panel(title=f"{part}: {_counts(nodes)}", svg=_part_svg(part, nodes, made_in))
        for part, nodes in parts.items()
    ]
    return [overview, *details]


def _counts(nodes: Sequence[Row]) -> str:
    dropped = sum(row["drops"] == "node" for row in nodes)
    words = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return words + (f", {dropped} dropout" if dropped else "")


def _part_box(part: str, nodes: Sequence[Row], made_in: Mapping[str, str]) -> Box:
    sources = {made_in[i] for row in nodes for i in str(row["inputs"]).split()} - {part}
    common = Counter(str(row["operator"]) for row in nodes).most_common(4)
    return Box(
        name=part,
        title=part,
        note=f"{len(nodes)}",
        detail=", ".join(f"{name} ×{n}" if n > 1 else name for name, n in common),
        look="dropout" if any(row["drops"] == "node" for row in nodes) else "module",
        inputs=tuple(sorted(sources)),
    )


def _part_svg(part: str, nodes: Sequence[Row], made_in: Mapping[str, str]) -> str:
    inside = {str(row["name"]) for row in nodes}
    outside = list(
        dict.fromkeys(i for row in nodes for i in str(row["inputs"]).split() if i not in inside)
    )
    boxes = [Box(name=i, title=i, detail=f"from {made_in[i]}", look="input") for i in outside]
    boxes += [_node_box(row, part) for row in nodes]
    return column(boxes, label=f"The nodes of {part}")


LOOKS = {"node": "dropout", "inside": "hidden"}


def _node_box(row: Row, part: str) -> Box:
    place = str(row["module"]).removeprefix(part).lstrip(".")
    details = [str(row["name"]), place, str(row["weights"]).replace(" ", ", ")]
    return Box(
        name=str(row["name"]),
        title=str(row["operator"]).replace("scaled_dot_product_", "sdp_"),
        note=str(row["shape"]),
        detail=" · ".join(text for text in details if text),
        look="input" if row["kind"] == "placeholder" else LOOKS.get(str(row["drops"]), "op"),
        inputs=tuple(str(row["inputs"]).split()),
    )


def graph_alt(rows: Sequence[Row]) -> str:
    parts = {part: list(run) for part, run in groupby(rows, key=lambda row: str(row["part"]))}
    return "The captured graph from top to bottom: " + "; ".join(
        f"{part}, {_counts(nodes)}" for part, nodes in parts.items()
    )


# ---- tables -------------------------------------------------------------------------------------


def kinds_table(records: Records) -> Sequence[Row]:
    """Each kind with a node of this graph; where it has none, one of a module traced otherwise."""
    values = _values(records)
    examples = {node["kind"]: node for node in reversed(values["nodes"])}
    dropout = next(n for n in values["nodes"] if n["name"] == values["erase"]["node"])
    examples["call_function"] = dropout
    rows: list[Row] = []
    for kind, meaning in KINDS.items():
        example = _call(examples[kind]) if kind in examples else _elsewhere(values, kind)
        rows.append(
            {
                "kind": kind.replace("_", "\\_"),
                "nodes": values["kinds"][kind],
                "stands for": meaning,
                "one of them": example,
            }
        )
    return rows


def _call(node: Mapping[str, Any]) -> str:
    if node["kind"] in ("placeholder", "get_attr"):
        return f"`{node['name']}`, target `{node['target']}`"
    if node["kind"] == "output":
        return f"`{node['name']}`, arguments `{node['args']}`"
    return f"`{node['name']}` = `{node['target']}({node['args']})`"


def _elsewhere(values: Mapping[str, Any], kind: str) -> str:
    for traced in values["symbolic"]:
        if kind in traced.get("examples", {}):
            node = traced["examples"][kind]
            return f"none here; `symbolic_trace` of `{traced['module']}` has {_call(node)}"
    return "none here"


def users_table(records: Records) -> Sequence[Row]:
    values = _values(records)
    users = set(values["erase"]["users"])
    return [
        {
            "user": f"`{node['name']}`",
            "operator": f"`{node['target']}`",
            "in module": f"`{node['module']}`",
            "makes": node["shape"],
        }
        for node in values["nodes"]
        if node["name"] in users
    ]


def captures_table(records: Records) -> Sequence[Row]:
    return [
        {
            "capture": entry["capture"],
            "nodes": entry["nodes"],
            "dropout nodes": entry["dropout"],
            "as operator": f"`{entry['operator']}`",
            "training frozen to true": entry["active"],
            "dropout inside attention": entry["inside"],
            "users of the first dropout": entry["users"],
        }
        for entry in _values(records)["captures"]
    ]


def symbolic_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for entry in _values(records)["symbolic"]:
        if "error" in entry:
            says = f"`{entry['error'].splitlines()[0].split('. ')[0]}`"
        else:
            says = "traced: " + ", ".join(f"{n} {k}" for k, n in entry["kinds"].items() if n)
        rows.append(
            {"module": f"`{entry['module'] or entry['class']}`", "symbolic_trace says": says}
        )
    return rows


def reported_table(records: Records) -> Sequence[Row]:
    return [{"user": f"`{user}`", "what it is": what} for user, what in REPORTED_USERS.items()]


def erase_error(records: Records) -> str:
    return _values(records)["erase"]["error"] or "no error"


experiment = Experiment(
    title="Capture, analyse and transform a graph",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "same_outputs": same_outputs,
        "removed": removed,
        "erase_fails": erase_fails,
        "capture_is_exact": capture_is_exact,
        "no_modules": no_modules,
        "layers_alike": layers_alike,
        "hidden_dropout": hidden_dropout,
        "still_random": still_random,
        "clean_outputs": clean_outputs,
    },
    figures={
        "graph": Drawing(
            caption="The model captured in training mode, from its inputs to its loss. A box is "
            "a module, the number on the right counts its nodes, the folds hold them. Orange boxes "
            "hold dropout; a dashed orange box drops values inside another operator. Arrows are "
            "values, on the left those that skip a box. Weights are named where they are read; "
            "B is the batch, T its longest sentence.",
            rows=graph_rows,
            panels=graph_panels,
            alt=graph_alt,
        ),
        "operators": Figure(
            caption="The most frequent operators among the nodes. Orange is what the transform "
            "pass removes.",
            rows=operator_rows,
            draw=draw_operators,
            alt=operators_alt,
        ),
    },
    tables={
        "kinds": kinds_table,
        "users": users_table,
        "captures": captures_table,
        "symbolic": symbolic_table,
        "reported": reported_table,
    },
    outputs={"erase_error": erase_error},
)
