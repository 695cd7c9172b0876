"""Question 0.1: the classifier as an FX graph, and two ways to take dropout out of it."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import EXPORT, Context, Experiment, Plan
from madl.logbook.numbers import value
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline

page = Experiment(title="Capture, analyse and transform a graph", requires=(EXPORT,))

EXAMPLE_ROWS = 4  # sentences that the model is captured on

# What each kind of node stands for, in FX's own terms.
KINDS = {
    "placeholder": "an input of the forward function",
    "get_attr": "a parameter or buffer, read from the module by its path",
    "call_function": "a call of a free function; here, of an operator of ATen, torch's own library",
    "call_module": "a call of a submodule, kept whole as a leaf",
    "call_method": "a call of a method of a tensor",
    "output": "what the forward function returns",
}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    start = baseline.drawn_params(plan, plan.seeds[0])
    trained = ("epochs", "learning_rate", "batch_size")  # which changes no node, and no equality
    untrained = {name: value for name, value in start.items() if name not in trained}
    probe = plan.profile.choose(smoke=32, quick=64)
    yield {"method": "graph", **untrained, "probe_sentences": probe}


@page.quick
def quick(params: Params) -> bool:
    return True


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_graph.study import study
    from madl.training import models

    model = models.load_pretrained(str(params["model"]), seed=int(params["seed"] or 0))
    test = baseline.load_splits(params).test
    probe = test.first(int(params["probe_sentences"] or 0))
    return study(model, test.batch(range(EXAMPLE_ROWS)), probe)


def _values(r: Records) -> Values:
    return r.one().values


# ---- numbers ------------------------------------------------------------------------------------


page.numbers(
    nodes=value("nodes"),
    dropouts=value("operators", "dropout"),
    inside=value("inside"),
    readers=value("erase", "users"),
    unfused=value("unfused"),
    sentences=value("sentences"),
    random=value("random"),
    clean=value("clean"),
)


# ---- the graph, drawn ---------------------------------------------------------------------------

LOOKS = {"node": "dropout", "inside": "hidden"}  # what drops values is drawn apart


def _short(operator: str) -> str:
    return operator.replace("scaled_dot_product_", "sdp_")


def graph_rows(nodes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row a node but for the weights; parts are runs of nodes of one module."""
    weights = {n["name"]: n["target"] for n in nodes if n["kind"] == "get_attr"}
    drawn = [n for n in nodes if n["kind"] != "get_attr"]
    rows: list[Row] = []
    for place, (group, run) in enumerate(groupby(drawn, key=lambda n: n["group"])):
        part = group or ("loss and output" if place else "inputs and their sizes")
        for node in run:
            read = [weights[i].rpartition(".")[2] for i in node["inputs"] if i in weights]
            kept = {k: node[k] for k in ("name", "kind", "operator", "module", "shape", "drops")}
            inputs = " ".join(i for i in node["inputs"] if i not in weights)
            rows.append({"part": part, **kept, "inputs": inputs, "weights": " ".join(read)})
    return rows


def parts_of(rows: Sequence[Row]) -> dict[str, list[list[Row]]]:
    """The modules by name; neighbours with equal nodes are one, named from first to last, and one
    that goes on after another is named so."""
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row["part"])]
    parts: dict[str, list[list[Row]]] = {}
    for alike in ([*same] for _, same in groupby(runs, key=_signature)):
        name = named = _from_to([str(run[0]["part"]) for run in alike])
        for time in itertools.count(2):
            if named not in parts:
                break
            named = f"{name}, run {time}"
        parts[named] = alike
    return parts


def _signature(run: Sequence[Row]) -> list[tuple[str, ...]]:
    part = str(run[0]["part"])
    return [(r["operator"], r["module"].removeprefix(part), r["shape"], r["drops"]) for r in run]


def _from_to(names: Sequence[str]) -> str:
    first, last = names[0], names[-1]
    return first if first == last else f"{first} to {last.rpartition('.')[2]}, all alike"


def graph_panels(rows: Sequence[Row]) -> list[Panel]:
    """An open panel of modules, and a folded one for the nodes of each."""
    parts = parts_of(rows)
    made_in = {row["name"]: part for part, runs in parts.items() for run in runs for row in run}
    boxes = [_part_box(part, runs, made_in) for part, runs in parts.items()]
    overview = column(boxes, label="The modules of the graph and what flows between them")
    return [
        Panel(title="", svg=overview, folded=False),
        *(
            Panel(title=f"{part}: {_counted(runs)}", svg=_part_svg(part, runs[0], made_in))
            for part, runs in parts.items()
        ),
    ]


def graph_alt(rows: Sequence[Row]) -> str:
    """The drawing in words: the modules in order, with their nodes counted."""
    return "The captured graph from top to bottom: " + "; ".join(
        f"{part}, {_counted(runs)}" for part, runs in parts_of(rows).items()
    )


def _counted(runs: Sequence[Sequence[Row]]) -> str:
    dropped = sum(row["drops"] == "node" for row in runs[0])
    words = f"{_times(runs)} node{'s' * (len(runs[0]) > 1)}"
    return words + (f", {dropped} dropout{' each' * (len(runs) > 1)}" if dropped else "")


def _times(runs: Sequence[Sequence[Row]]) -> str:
    return f"{len(runs)} × {len(runs[0])}" if len(runs) > 1 else str(len(runs[0]))


def _part_box(part: str, runs: Sequence[Sequence[Row]], made_in: Mapping[str, str]) -> Box:
    sources = {made_in[i] for run in runs for row in run for i in row["inputs"].split()} - {part}
    return Box(
        name=part,
        title=part,
        note=_times(runs),
        detail=_operators(runs[0]),
        look="dropout" if any(row["drops"] == "node" for row in runs[0]) else "module",
        inputs=tuple(sorted(sources)),
    )


def _operators(nodes: Sequence[Row]) -> str:
    """How often each, what drops values first; a box shows as many as it has room for."""
    counts = Counter(_short(row["operator"]) for row in sorted(nodes, key=lambda r: not r["drops"]))
    return ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items())


def _part_svg(part: str, nodes: Sequence[Row], made_in: Mapping[str, str]) -> str:
    inside = {row["name"] for row in nodes}
    read = dict.fromkeys(i for row in nodes for i in row["inputs"].split())
    boxes = [
        Box(name=i, title=i, detail=f"from {made_in[i]}", look="input")
        for i in read
        if i not in inside
    ]
    boxes += [_node_box(row) for row in nodes]
    return column(boxes, label=f"The nodes of {part}")


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


@page.drawing(panels=graph_panels, alt=graph_alt)
def graph(r: Records) -> Sequence[Row]:
    return graph_rows(_values(r)["nodes"])


# ---- one dropout node and its users -------------------------------------------------------------


def _around(rows: Sequence[Row]) -> list[Panel]:
    """The node as captured, and what redirecting its users and erasing it leaves."""
    source, dropout, *users = [replace(_node_box(row), inputs=()) for row in rows]
    drawn = {
        "Captured": [
            source,
            replace(dropout, inputs=(source.name,)),
            *(replace(user, inputs=(dropout.name,)) for user in users),
        ],
        "Users redirected, then the node erased": [
            source,
            *(replace(user, inputs=(source.name,)) for user in users),
        ],
    }
    return [
        Panel(title=title, svg=column(boxes, label=title), folded=False)
        for title, boxes in drawn.items()
    ]


def _around_alt(rows: Sequence[Row]) -> str:
    source, dropout, *users = [str(row["name"]) for row in rows]
    return f"{source} feeds {dropout}, which feeds {', '.join(users)}; then {source} feeds these."


@page.drawing(panels=_around, alt=_around_alt)
def redirected(r: Records) -> Sequence[Row]:
    """The first dropout node, between its input and its users."""
    erased = _values(r)["erase"]
    rows = {row["name"]: row for row in graph_rows(_values(r)["nodes"])}
    dropout = rows[erased["node"]]
    users = [row for name, row in rows.items() if name in erased["users"]]
    return [rows[dropout["inputs"]], dropout, *users]


# ---- chart, tables and outputs -----------------------------------------------------------------


@page.chart
def dropped(r: Records) -> Chart:
    """What drops values in training: nodes of its own, and what fused attention hides."""
    v = _values(r)
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
    """Each kind with a node of this graph; where it has none, one of a part traced otherwise."""
    v = _values(r)
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
    if node["kind"] in ("placeholder", "get_attr"):
        return f"`{node['target']}`"
    if node["kind"] == "output":
        return f"`{node['args']}`"
    return f"`{node['name']} = {node['target']}({node['args']})`"


def _elsewhere(v: Values, kind: str) -> str:
    node = v["symbolic"]["examples"].get(kind)
    return f"none; `symbolic_trace` of `{node['part']}` has {_call(node)}" if node else "none"


@page.table
def operators(r: Records) -> Sequence[Row]:
    """How many nodes call each, before and after the pass; most first."""
    before, after = (_values(r)[name] for name in ("operators", "operators_after"))
    return [
        {"operator": f"`{name}`", "captured": count, "dropout removed": after.get(name, 0)}
        for name, count in sorted(before.items(), key=lambda item: -item[1])
    ]


@page.output
def erase_error(r: Records) -> str:
    return _values(r)["erase"]["error"] or "no error"


@page.output
def trace_error(r: Records) -> str:
    return _values(r)["symbolic"]["error"] or "no error"
