"""A captured graph, and what changed in one, as rows of a record and as boxes on a page.

The whole graph is one box a module; each module unfolds into its nodes. Weights are named with the
node that reads them. Rows are made of `graphs.NodeInfo` and `changes.Change` as JSON, and panels of
rows, so that what is drawn is the data beside it. Imports no torch: pages are made without it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from madl.logbook.drawing import Box, Panel, column
from madl.logbook.records import Row

Json = Mapping[str, Any]
LOOKS = {"node": "dropout", "inside": "hidden"}  # what drops values is drawn apart
LETTERS = 56  # of a module's box: for the operators it names, those that drop values first


def short(operator: str) -> str:
    """An operator's name with its longest prefix cut."""
    return operator.replace("scaled_dot_product_", "sdp_")


# ---- the whole graph ----------------------------------------------------------------------------


def graph_rows(nodes: Sequence[Json]) -> list[Row]:
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


def graph_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    """An open panel of modules, and a folded one for the nodes of each."""
    parts = _parts(rows)
    made_in = {row["name"]: part for part, nodes in parts.items() for row in nodes}
    boxes = [_part_box(part, nodes, made_in) for part, nodes in parts.items()]
    overview = column(boxes, label="The modules of the graph and what flows between them")
    return [
        Panel(title="The graph, one box a module", svg=overview, folded=False),
        *(
            Panel(title=f"{part}: {_counted(nodes)}", svg=_part_svg(part, nodes, made_in))
            for part, nodes in parts.items()
        ),
    ]


def graph_alt(rows: Sequence[Row]) -> str:
    """The drawing in words: the modules in order, with their nodes counted."""
    return "The captured graph from top to bottom: " + "; ".join(
        f"{part}, {_counted(nodes)}" for part, nodes in _parts(rows).items()
    )


def _parts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {part: list(run) for part, run in groupby(rows, key=lambda row: str(row["part"]))}


def _counted(nodes: Sequence[Row]) -> str:
    dropped = sum(row["drops"] == "node" for row in nodes)
    words = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return words + (f", {dropped} dropout" if dropped else "")


def _part_box(part: str, nodes: Sequence[Row], made_in: Mapping[str, str]) -> Box:
    sources = {made_in[i] for row in nodes for i in row["inputs"].split()} - {part}
    return Box(
        name=part,
        title=part,
        note=f"{len(nodes)}",
        detail=_operators(nodes),
        look="dropout" if any(row["drops"] == "node" for row in nodes) else "module",
        inputs=tuple(sorted(sources)),
    )


def _operators(nodes: Sequence[Row]) -> str:
    """The operators of a box, as many as it has room for, and how many nodes are left unnamed."""
    counts = Counter(short(row["operator"]) for row in nodes)
    dropping = {short(row["operator"]) for row in nodes if row["drops"]}
    ranked = sorted(counts.items(), key=lambda item: (item[0] not in dropping, -item[1]))
    for most in range(len(ranked), 0, -1):
        words = [f"{name} ×{n}" if n > 1 else name for name, n in ranked[:most]]
        if more := sum(n for _, n in ranked[most:]):
            words.append(f"+ {more} more")
        if len(text := ", ".join(words)) <= LETTERS:
            return text
    return ""


def _part_svg(part: str, nodes: Sequence[Row], made_in: Mapping[str, str]) -> str:
    inside = {row["name"] for row in nodes}
    read = dict.fromkeys(i for row in nodes for i in row["inputs"].split())
    boxes = [
        Box(name=i, title=i, detail=f"from {made_in[i]}", look="input")
        for i in read
        if i not in inside
    ]
    boxes += [_node_box(row, part) for row in nodes]
    return column(boxes, label=f"The nodes of {part}")


def _node_box(row: Row, part: str) -> Box:
    place = row["module"].removeprefix(part).lstrip(".")
    details = (row["name"], place, row["weights"].replace(" ", ", "))
    return Box(
        name=row["name"],
        title=short(row["operator"]),
        note=row["shape"],
        detail=" · ".join(text for text in details if text),
        look="input" if row["kind"] == "placeholder" else LOOKS.get(row["drops"], "op"),
        inputs=tuple(row["inputs"].split()),
    )


# ---- what changed in one ------------------------------------------------------------------------

SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


def change_rows(changes: Mapping[str, Sequence[Json]]) -> list[Row]:
    """One row a node that is drawn, by what was left out of the graph's inputs."""
    shown = ("mark", "name", "kind", "operator", "module", "shape", "alike", "unread")
    return [
        {
            "left out": left_out,
            **{key: change[key] for key in shown},
            "inputs": " ".join(change["inputs"]),
            "inputs lost": " ".join(change["was"]),
        }
        for left_out, found in changes.items()
        for change in found
    ]


def change_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    """A panel for each input that was left out."""
    panels: list[Panel] = []
    for left_out in dict.fromkeys(row["left out"] for row in rows):
        mine = [row for row in rows if row["left out"] == left_out]
        counts = [(m, sum(row["mark"] == m for row in mine)) for m in SIGNS if m != "same"]
        title = f"Without the {left_out}: " + ", ".join(f"{n} {m}" for m, n in counts)
        svg = column([_change_box(row) for row in mine], label=title)
        panels.append(Panel(title=title, svg=svg, folded=False))
    return panels


def change_alt(rows: Sequence[Row]) -> str:
    """The drawing in words: what is counted in the panels' titles."""
    return "; ".join(panel.title for panel in change_panels(rows))


def _change_box(row: Row) -> Box:
    lost = ", ".join(name.lstrip("-") for name in row["inputs lost"].split())
    place = f"and {row['alike']} more alike" if row["alike"] else row["module"]
    place = "left over, read by no node" if row["unread"] else place
    details = (row["name"].lstrip("-"), f"was fed by {lost}" if lost else place)
    return Box(
        name=row["name"],
        title=SIGNS[row["mark"]] + short(row["operator"]),
        detail=" · ".join(text for text in details if text),
        note=row["shape"],
        look="op" if row["mark"] == "same" else row["mark"],
        inputs=tuple(row["inputs"].split()),
    )
