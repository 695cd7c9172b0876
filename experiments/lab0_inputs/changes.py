"""What became of a graph's nodes between two captures: kept, gone, new, or fed by others.

Nodes are matched by what they do and where, in the order of execution. Names do not count, because
a capture numbers them anew.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from madl.execution.graphs import NodeInfo

Mark = Literal["same", "added", "removed", "rewired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A node of either graph, and what became of it.

    `name` and `inputs` name nodes of both graphs without a clash: what was removed has a minus in
    front. A rewired node has other inputs than before: `was` names those that it lost, `now` those
    that it got.
    """

    mark: Mark
    name: str
    node: NodeInfo
    inputs: list[str]
    was: list[str]
    now: list[str]


def diff(before: Sequence[NodeInfo], after: Sequence[NodeInfo]) -> list[Change]:
    """Both graphs in one order, what is common once."""
    old, new = ([_signature(node) for node in graph] for graph in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    kept = {
        before[i + k].name: after[j + k].name
        for i, j, size in matcher.get_matching_blocks()
        for k in range(size)
    }
    names = {node.name: kept.get(node.name, f"-{node.name}") for node in before}
    was = {kept[n.name]: [names[name] for name in n.inputs] for n in before if n.name in kept}
    changes: list[Change] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            changes += [_removed(node, names) for node in before[i1:i2]]
        for node in after[j1:j2]:
            mark: Mark = "added" if tag != "equal" else "same"
            fed_by = was.get(node.name, node.inputs)
            if tag == "equal" and fed_by != node.inputs:
                mark = "rewired"
            changes.append(
                Change(
                    mark=mark,
                    name=node.name,
                    node=node,
                    inputs=node.inputs,
                    was=[name for name in fed_by if name not in node.inputs],
                    now=[name for name in node.inputs if name not in fed_by],
                )
            )
    return changes


def _removed(node: NodeInfo, names: Mapping[str, str]) -> Change:
    inputs = [names[name] for name in node.inputs]
    return Change(mark="removed", name=names[node.name], node=node, inputs=inputs, was=[], now=[])


def _signature(node: NodeInfo) -> tuple[str, ...]:
    return node.kind, node.operator, node.module


def near_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """What changed, what feeds it, one of each kind of node that uses it, and what came instead.

    What came instead is all that leads to a rewired node's new inputs. Users of a changed size are
    left out: a size is used everywhere.
    """
    changed = {c.name for c in changes if c.mark != "same"}
    values = {c.name for c in changes if c.name in changed and c.node.operator != "sym_size"}
    sources = {name for c in changes if c.name in changed for name in c.inputs}
    sources |= _ancestors(changes, {name for c in changes for name in c.now})
    users: dict[str, list[Change]] = {}
    for c in changes:
        if c.name not in changed | sources and values & set(c.inputs):
            users.setdefault(c.node.operator, []).append(c)
    alike = {same[0].name: len(same) - 1 for same in users.values()}
    read = {name for c in changes if c.mark != "removed" for name in c.inputs}
    return [
        {
            "mark": c.mark,
            "name": c.name,
            "operator": c.node.operator,
            "kind": c.node.kind,
            "inputs": c.inputs,
            "was": c.was,
            "module": c.node.module,
            "shape": c.node.shape,
            "alike": alike.get(c.name, 0),
            "unread": c.mark == "same" and c.name not in read,
        }
        for c in changes
        if c.name in alike or (c.name in changed | sources and c.node.kind != "get_attr")
    ]


def _ancestors(changes: Sequence[Change], names: Collection[str]) -> set[str]:
    """These nodes and all that they are made of; a node stands behind its inputs."""
    found = set(names)
    for c in reversed(changes):
        if c.name in found:
            found.update(c.inputs)
    return found
