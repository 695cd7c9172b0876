"""Question 0.1: the classifier as an FX graph, its nodes, and two ways to take dropout out of it.

The graph is captured by `torch.export` in training mode, because that is where dropout does
something, and in evaluation mode, because that is where its outputs can be compared bit by bit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from madl.errors import MadlError
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.claims import Fact
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

if TYPE_CHECKING:
    from torch import Tensor, nn

    from madl.training.data import Encoded

page = Experiment(title="Capture, analyse and transform a graph", needs=("baseline",))

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


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    probe = plan.profile.choose(smoke=32, quick=64, full=1024)
    yield {"method": "graph", **baseline.recipe_params(plan, 0), "probe_sentences": probe}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import graphs

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
    from madl.execution import graphs

    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    captured = graphs.capture(model, example, training=True)
    model.set_attn_implementation(fused)
    return captured


def _captures(captured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the way of capturing does to the dropout that is found."""
    return [{"capture": name, **_dropout_census(m.graph)} for name, m in captured.items()]


def _dropout_census(graph: Any) -> dict[str, Any]:
    from madl.execution import graphs

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
    """Logits of the passes' graphs against the model's, or against a second run of themselves.

    Raises:
        MadlError: removing dropout where it does nothing changed something.
    """
    import torch

    from madl.execution import graphs

    without_nodes = graphs.remove_dropout(training.graph)
    random = graphs.with_graph(training, without_nodes)
    clean = graphs.with_graph(training, graphs.remove_attention_dropout(without_nodes))
    removed = graphs.with_graph(evaluation, graphs.remove_dropout(evaluation.graph))
    expected = _logits(model.eval(), test)
    before, after = _logits(evaluation, test), _logits(removed, test)
    if not torch.equal(before, after):
        raise MadlError(
            "removing dropout changed the outputs of the evaluation mode, where dropout does "
            "nothing; the pass redirects a user to the wrong value"
        )
    return {
        "evaluation": _difference(expected, before),
        "evaluation_removed": _difference(expected, after),
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
    from madl.execution import graphs

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


# ---- facts --------------------------------------------------------------------------------------


def _values(r: Records) -> Values:
    return r.one(method="graph").values


@page.fact
def hidden_dropout(r: Records) -> Fact:
    capture = _values(r)["captures"][0]
    inside, places = capture["inside"], capture["inside"] + capture["dropout"]
    return Fact(
        text=f"A pass that looks for dropout nodes finds {places - inside} of the {places} places "
        f"where this graph drops values; the other {inside} are an argument of fused attention",
        of="the graph of the training mode",
    )


@page.fact
def removed(r: Records) -> Fact:
    values = _values(r)
    n, before = len(values["nodes"]), values["operators"]["dropout"]
    after = values["operators_after"].get("dropout", 0)
    return Fact(
        text=f"Of {n} nodes, {before} are dropout; the pass leaves {after} of them, and "
        f"{n - before + after} nodes in all",
        of="every node of the training mode",
    )


def _exact(r: Records, name: str) -> tuple[str, str]:
    """What a graph's logits are on the sentences, and of how many that speaks."""
    values = _values(r)
    n, differ = values["num_sentences"], values["outputs"][name]["sentences"]
    return (
        f"the evaluated model's logits to the last bit on {n - differ} of {n} sentences",
        "test sentences",
    )


@page.fact
def same_outputs(r: Records) -> Fact:
    same, of = _exact(r, "evaluation_removed")
    return Fact(text=f"In evaluation mode, the graph without dropout gives {same}", of=of)


@page.fact
def capture_is_exact(r: Records) -> Fact:
    same, of = _exact(r, "evaluation")
    return Fact(text=f"Before any pass, the captured graph gives {same}", of=of)


@page.fact
def clean_outputs(r: Records) -> Fact:
    same, of = _exact(r, "training_clean")
    return Fact(
        text="With attention's own argument set to zero as well, the graph of the training mode "
        f"gives {same}",
        of=of,
    )


@page.fact
def still_random(r: Records) -> Fact:
    values = _values(r)
    n, found = values["num_sentences"], values["outputs"]["training_removed_twice"]
    return Fact(
        text="Two runs of the training mode's graph without its dropout nodes differ on "
        f"{found['sentences']} of {n} sentences, by up to {number(found['largest'])} in a logit",
        of=f"{n} test sentences, run twice",
    )


@page.fact
def erase_fails(r: Records) -> Fact:
    erase = _values(r)["erase"]
    error, users = erase["error"] or "nothing", erase["users"]
    named = sum(f"{user}: None" in error for user in users)
    return Fact(
        text=f"Erasing `{erase['node']}` without redirecting its users raises "
        f"`{error.partition(':')[0]}`, and the message names {named} of its {len(users)} users",
        of="the first dropout node",
    )


@page.fact
def no_modules(r: Records) -> Fact:
    values = _values(r)
    kinds = values["kinds"]
    return Fact(
        text=f"{kinds['call_module']} nodes call a module and {kinds['call_method']} a method; "
        f"{kinds['call_function']} call an operator",
        of=f"{len(values['nodes'])} nodes",
    )


@page.fact
def layers_alike(r: Records) -> Fact:
    """Whether one layer's drawing speaks for the others."""
    layers: dict[str, list[tuple[str, str, str]]] = {}
    for node in _values(r)["nodes"]:
        group = node["group"]
        if node["kind"] == "call_function" and group.rpartition(".")[2].isdigit():
            inside = node["module"].removeprefix(group)
            layers.setdefault(group, []).append((node["operator"], inside, node["shape"]))
    first = next(iter(layers.values()))
    alike = sum(nodes == first for nodes in layers.values())
    return Fact(
        text=f"{alike} of {len(layers)} encoder layers are the same {len(first)} operators in the "
        "same order",
        of="operators, modules and shapes of every layer",
    )


# ---- figures ------------------------------------------------------------------------------------

MOST = 12  # operators that the figure has room for


@page.chart(
    caption="The most frequent operators of the captured graph: what the pass leaves, and what it "
    "takes out."
)
def operators(r: Records) -> Chart:
    values = _values(r)
    ranked = sorted(values["operators"].items(), key=lambda item: (-item[1], item[0]))
    rows: list[Row] = []
    for name, count in ranked[:MOST]:
        left = values["operators_after"].get(name, 0)
        rows.append(
            {
                "operator": name.replace("scaled_dot_product_", "sdp_"),
                "left by the pass": left,
                "removed by the pass": count - left,
            }
        )
    return Chart(
        rows,
        x=linear(label="nodes of the captured graph"),
        y=category("operator"),
        marks=[bars("left by the pass", "removed by the pass", stacked=True)],
    )


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


LOOKS = {"node": "dropout", "inside": "hidden"}  # what drops values is drawn apart


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


@page.drawing(
    caption="The model captured in training mode, from its inputs to its loss. A box is a module, "
    "the number on the right counts its nodes, the folds hold them. Orange boxes hold dropout; a "
    "dashed orange box drops values inside another operator. Arrows are values, on the left those "
    "that skip a box. Weights are named where they are read; B is the batch, T its longest "
    "sentence.",
    panels=graph_panels,
    alt=graph_alt,
)
def graph(r: Records) -> Sequence[Row]:
    """One row a node, weights named with the node that reads them; parts are runs of a module."""
    nodes = _values(r)["nodes"]
    weights = {n["name"]: n["target"] for n in nodes if n["kind"] == "get_attr"}
    rows: list[Row] = []
    drawn = [n for n in nodes if n["kind"] != "get_attr"]
    for place, (group, run) in enumerate(groupby(drawn, key=lambda n: n["group"])):
        for node in run:
            read = [weights[i].rpartition(".")[2] for i in node["inputs"] if i in weights]
            rows.append(
                {
                    "part": group or ("outputs" if place else "inputs"),
                    "name": node["name"],
                    "kind": node["kind"],
                    "operator": node["operator"],
                    "inputs": " ".join(i for i in node["inputs"] if i not in weights),
                    "weights": " ".join(read),
                    "module": node["module"],
                    "shape": node["shape"],
                    "drops": drops(node),
                }
            )
    return rows


def drops(node: Mapping[str, Any]) -> str:
    """Whether a node drops values: as a dropout node, or inside attention."""
    if "dropout" in node["operator"]:
        return "node"
    if node["operator"] != "scaled_dot_product_attention":
        return ""
    given = node["args"].split(", ")  # as the record keeps them; the first four name nodes
    named = dict(one.split("=", 1) for one in given if "=" in one)
    probability = [*(one for one in given if "=" not in one), named.get("dropout_p", "0")][4]
    return "inside" if float(probability) > 0 else ""


# ---- tables -------------------------------------------------------------------------------------


@page.table
def kinds(r: Records) -> Sequence[Row]:
    """Each kind with a node of this graph; where it has none, one of a module traced otherwise."""
    values = _values(r)
    examples = {node["kind"]: node for node in reversed(values["nodes"])}
    dropout = next(n for n in values["nodes"] if n["name"] == values["erase"]["node"])
    examples["call_function"] = dropout
    return [
        {
            "kind": f"`{kind}`",
            "nodes": values["kinds"][kind],
            "stands for": meaning,
            "one of them": _call(examples[kind]) if kind in examples else _elsewhere(values, kind),
        }
        for kind, meaning in KINDS.items()
    ]


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


@page.table
def users(r: Records) -> Sequence[Row]:
    return [
        {
            "user": f"`{node['name']}`",
            "operator": f"`{node['target']}`",
            "in module": f"`{node['module']}`",
            "makes": node["shape"],
        }
        for node in _users(_values(r))
    ]


def _users(values: Values) -> list[Mapping[str, Any]]:
    """The nodes that read the first dropout's value."""
    return [node for node in values["nodes"] if node["name"] in values["erase"]["users"]]


@page.table
def captures(r: Records) -> Sequence[Row]:
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
        for entry in _values(r)["captures"]
    ]


@page.table
def symbolic(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for entry in _values(r)["symbolic"]:
        if "error" in entry:
            says = f"`{entry['error'].splitlines()[0].split('. ')[0]}`"
        else:
            says = "traced: " + ", ".join(f"{n} `{k}`" for k, n in entry["kinds"].items() if n)
        rows.append(
            {"module": f"`{entry['module'] or entry['class']}`", "`symbolic_trace` says": says}
        )
    return rows


# The users in the error of two public logbooks of this coursework, and what they are there.
REPORTED = {
    "bert_encoder_layer_0_attention_self_query": "a Linear layer, as a module",
    "bert_encoder_layer_0_attention_self_key": "a Linear layer, as a module",
    "bert_encoder_layer_0_attention_self_value": "a Linear layer, as a module",
    "add_7": "the residual sum",
    "getattr_2": "Python code that reads an attribute of the tensor",
    "size_4": "Python code that asks for its size",
}


@page.table
def reported(r: Records) -> Sequence[Row]:
    here = _users(_values(r))
    known = {n["module"].replace(".", "_") for n in here} | {n["operator"] for n in here}
    return [
        {
            "user": f"`{user}`",
            "what it is": what,
            "a user here too": user in known or user.rpartition("_")[0] in known,
        }
        for user, what in REPORTED.items()
    ]


@page.output
def erase_error(r: Records) -> str:
    return _values(r)["erase"]["error"] or "no error"
