"""Question 0.1: the classifier as an FX graph, and two ways to take dropout out of it."""

import importlib.util
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from experiments.lab0_graph import design
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import EXPORT, Experiment, Plan
from madl.logbook.numbers import value
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline

page = Experiment(requires=(EXPORT,))

KINDS = {  # of nodes in FX, with what they stand for
    "placeholder": "an input of the forward function",
    "get_attr": "a parameter or buffer, read from the module by its path",
    "call_function": "a call of a free function; here, of an operator of ATen, torch's own library",
    "call_module": "a call of a submodule, kept whole as a leaf",
    "call_method": "a call of a method of a tensor",
    "output": "what the forward function returns",
}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    untrained = baseline.untrained_params(plan, plan.seeds[0])  # no training changes the graph
    probe = plan.profile.choose(smoke=32, quick=design.PROBE_SENTENCES)
    for method in plan.profile.choose(smoke=("graph",), quick=("graph", "moved")):
        yield {"method": method, **untrained, "probe_sentences": probe}


page.quick(lambda params: params["method"] == "graph")


@page.unavailable
def without_torchao(params: Params) -> str | None:
    if params["method"] != "moved" or importlib.util.find_spec("torchao"):
        return None
    return "torchao is not installed: pip install torchao==0.18.0"


of_graph = partial(value, method="graph")

page.numbers(
    nodes=of_graph("nodes"),
    dropouts=of_graph("operators", "dropout"),
    inside=of_graph("inside"),
    readers=of_graph("erase", "users"),
    unfused=of_graph("unfused"),
    moved_nodes=value("nodes", method="moved"),
    moved_inside=value("inside", method="moved"),
    moved_random=value("random", method="moved"),
    sentences=of_graph("sentences"),
    random=of_graph("random"),
    clean=of_graph("clean"),
)


# ---- the graph, drawn ---------------------------------------------------------------------------

LOOKS = {"node": "dropout", "inside": "hidden"}  # of a node that drops values, by how it does
Run = Sequence[Row]  # consecutive nodes of one module


def graph_rows(nodes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each node but weights, which are named in the rows of the nodes that read them."""
    weights = {n["name"]: n["target"].rpartition(".")[2] for n in nodes if n["kind"] == "get_attr"}
    others = [n for n in nodes if n["kind"] != "get_attr"]
    rows: list[Row] = []
    for place, (group, run) in enumerate(groupby(others, key=lambda n: n["group"])):
        part = group or ("loss and output" if place else "inputs and their sizes")
        for node in run:
            fields = {k: node[k] for k in ("name", "kind", "operator", "module", "shape", "drops")}
            inputs = " ".join(i for i in node["inputs"] if i not in weights)
            read = " ".join(weights[i] for i in node["inputs"] if i in weights)
            rows.append({"part": part, **fields, "inputs": inputs, "weights": read})
    return rows


def runs_by_part(rows: Sequence[Row]) -> dict[str, list[Run]]:
    """Part of the graph → its runs, which are consecutive nodes of one module.

    A part is one run, or the runs of neighbouring modules if their nodes are equal; it then is
    named from the first module to the last. A later run of a module has its number in the part's
    name.
    """
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row["part"])]
    parts: dict[str, list[Run]] = {}
    for equal_runs in ([*equal] for _, equal in groupby(runs, key=_signature)):
        name, last = (str(equal_runs[i][0]["part"]) for i in (0, -1))
        if last != name:
            name += f" to {last.rpartition('.')[2]}, all alike"
        names = itertools.chain([name], (f"{name}, run {number}" for number in itertools.count(2)))
        parts[next(free for free in names if free not in parts)] = equal_runs
    return parts


def _signature(run: Run) -> list[tuple[str, ...]]:
    """Operators, submodules, shapes and dropouts of a run's nodes, by which runs are compared."""
    part = str(run[0]["part"])
    return [(r["operator"], r["module"].removeprefix(part), r["shape"], r["drops"]) for r in run]


def graph_panels(rows: Sequence[Row]) -> list[Panel]:
    """An open panel with a box for each part, and a folded panel with the nodes of each part."""
    parts = runs_by_part(rows)
    part_of = {row["name"]: part for part, runs in parts.items() for run in runs for row in run}
    boxes = [_part_box(part, runs, part_of) for part, runs in parts.items()]
    overview = column(boxes, label="The modules of the graph and what flows between them")
    return [
        Panel(title="", svg=overview, folded=False),
        *(
            Panel(title=f"{part}: {_size(runs)}", svg=_part_svg(part, runs[0], part_of))
            for part, runs in parts.items()
        ),
    ]


def graph_alt(rows: Sequence[Row]) -> str:
    """The drawing in words: the modules in order, with their nodes counted."""
    return "The captured graph from top to bottom: " + "; ".join(
        f"{part}, {_size(runs)}" for part, runs in runs_by_part(rows).items()
    )


def _size(runs: Sequence[Run]) -> str:
    """The numbers of nodes and of dropouts in runs, in words."""
    num_dropouts = sum(row["drops"] == "node" for row in runs[0])
    words = f"{_num_nodes(runs)} node{'s' * (len(runs[0]) > 1)}"
    return words + (f", {num_dropouts} dropout{' each' * (len(runs) > 1)}" if num_dropouts else "")


def _num_nodes(runs: Sequence[Run]) -> str:
    """The number of nodes in words: "12", or "3 × 12" for three equal runs."""
    return f"{len(runs)} × {len(runs[0])}" if len(runs) > 1 else str(len(runs[0]))


def _part_box(part: str, runs: Sequence[Run], part_of: Mapping[str, str]) -> Box:
    """The box of a part: its operators with counts, dropout first, and the parts that feed it."""
    sources = {part_of[i] for run in runs for row in run for i in row["inputs"].split()} - {part}
    by_drops = sorted(runs[0], key=lambda row: not row["drops"])
    counts = Counter(_short(row["operator"]) for row in by_drops)
    return Box(
        name=part,
        title=part,
        note=_num_nodes(runs),
        detail=", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items()),
        look="dropout" if any(row["drops"] == "node" for row in runs[0]) else "module",
        inputs=tuple(sorted(sources)),
    )


def _part_svg(part: str, nodes: Run, part_of: Mapping[str, str]) -> str:
    """The nodes of a part in a column, below boxes for the nodes of other parts that feed them."""
    inside = {row["name"] for row in nodes}
    inputs = dict.fromkeys(i for row in nodes for i in row["inputs"].split() if i not in inside)
    boxes = [Box(name=i, title=i, detail=f"from {part_of[i]}", look="input") for i in inputs]
    return column([*boxes, *map(_node_box, nodes)], label=f"The nodes of {part}")


def _node_box(row: Row) -> Box:
    place = row["module"].removeprefix(row["part"]).lstrip(".")
    details = (row["name"], place, row["weights"].replace(" ", ", "))
    return Box(
        name=row["name"],
        title=_short(row["operator"]),
        note=row["shape"],
        detail=" · ".join(text for text in details if text),
        look="input" if row["kind"] == "placeholder" else LOOKS.get(row["drops"], "op"),
        inputs=tuple(row["inputs"].split()),
    )


def _short(operator: str) -> str:
    return operator.replace("scaled_dot_product_", "sdp_")


@page.drawing(panels=graph_panels, alt=graph_alt)
def graph(r: Records) -> Sequence[Row]:
    return graph_rows(r.single(method="graph").values["nodes"])


def redirect_panels(rows: Sequence[Row]) -> list[Panel]:
    """The node as captured, and the graph after its users were redirected and it was erased."""
    source, dropout, *users = [replace(_node_box(row), inputs=()) for row in rows]

    def fed(boxes: Iterable[Box], feeder: Box) -> list[Box]:
        return [replace(box, inputs=(feeder.name,)) for box in boxes]

    drawn = {
        "Captured": [source, *fed([dropout], source), *fed(users, dropout)],
        "Users redirected, then the node erased": [source, *fed(users, source)],
    }
    return [
        Panel(title=title, svg=column(boxes, label=title), folded=False)
        for title, boxes in drawn.items()
    ]


def redirect_alt(rows: Sequence[Row]) -> str:
    source, dropout, *users = [str(row["name"]) for row in rows]
    return f"{source} feeds {dropout}, which feeds {', '.join(users)}; then {source} feeds these."


@page.drawing(panels=redirect_panels, alt=redirect_alt)
def redirected(r: Records) -> Sequence[Row]:
    """The rows of the first dropout node's input, of the node, and of its users."""
    values = r.single(method="graph").values
    rows = {row["name"]: row for row in graph_rows(values["nodes"])}
    dropout = rows[values["erase"]["node"]]
    users = [row for name, row in rows.items() if name in values["erase"]["users"]]
    return [rows[dropout["inputs"]], dropout, *users]


@page.chart
def dropped(r: Records) -> Chart:
    """Counts of dropout in the training graph: nodes of their own, and inside fused attention."""
    v = r.single(method="graph").values
    rows = [
        ("as captured", v["operators"]["dropout"], v["inside"]),
        ("after the pass", v["operators_after"].get("dropout", 0), v["inside"]),
        ("attention unfused", v["unfused"], 0),
    ]
    return Chart(
        [{"graph": name, "dropout nodes": n, "inside attention": i} for name, n, i in rows],
        x=linear(label="dropouts of the training graph"),
        y=category("graph"),
        marks=bars("dropout nodes", "inside attention", stacked=True),
    )


@page.table
def kinds(r: Records) -> Sequence[Row]:
    """Each kind of node with a count and an example, from a submodule if the graph has none."""
    v = r.single(method="graph").values
    here = {node["kind"]: node for node in reversed(v["nodes"])}
    here["call_function"] = next(n for n in v["nodes"] if n["name"] == v["erase"]["node"])
    return [
        {
            "kind": kind,
            "nodes": v["kinds"][kind],
            "stands for": meaning,
            "one of them": _call(here[kind]) if kind in here else _elsewhere(v, kind),
        }
        for kind, meaning in KINDS.items()
    ]


def _call(node: Mapping[str, Any]) -> str:
    """A node as code: the target of an input or weight, the value of the output, else the call."""
    if node["kind"] in ("placeholder", "get_attr"):
        return f"`{node['target']}`"
    if node["kind"] == "output":
        return f"`{node['args']}`"
    return f"`{node['name']} = {node['target']}({node['args']})`"


def _elsewhere(v: Values, kind: str) -> str:
    """An example of a kind of node in a submodule's graph by `symbolic_trace`, or "none"."""
    node = v["symbolic"]["examples"].get(kind)
    return f"none; `symbolic_trace` of `{node['part']}` has {_call(node)}" if node else "none"


@page.table
def operators(r: Records) -> Sequence[Row]:
    """Calls of each operator, before and after dropout is removed; the most frequent first."""
    values = r.single(method="graph").values
    before, after = values["operators"], values["operators_after"]
    return [
        {"operator": f"`{name}`", "captured": count, "dropout removed": after.get(name, 0)}
        for name, count in sorted(before.items(), key=lambda item: -item[1])
    ]


@page.output
def erase_error(r: Records) -> str:
    """The error of FX when a node that still has users is erased."""
    return r.single(method="graph").values["erase"]["error"] or "no error"


@page.output
def trace_error(r: Records) -> str:
    """The error of `symbolic_trace` on the whole model."""
    return r.single(method="graph").values["symbolic"]["error"] or "no error"
