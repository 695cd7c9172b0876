"""Question 0.1: the classifier as an FX graph, its nodes, and two ways to take dropout out of it.

The graph is captured by `torch.export`; what is counted and compared is in `dropout.py`.
Everything here is counted over a whole graph, so nothing is a claim.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.execution import panels
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(title="Capture, analyse and transform a graph", needs=("baseline",), version=2)

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
    probe = plan.profile.choose(smoke=32, quick=64)
    yield {"method": "graph", **baseline.recipe_params(plan, 0), "probe_sentences": probe}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_graph import dropout

    model = baseline.fine_tuned(params, ctx)
    test = baseline.load_splits(params).test
    example = test.batch(range(EXAMPLE_ROWS))
    return dropout.study(model, example, test.first(int(params["probe_sentences"])))


def values(r: Records) -> Values:
    return r.one(method="graph").values


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def same_outputs(r: Records) -> Fact:
    v = values(r)
    evaluation = next(one for one in v["captures"] if one["capture"] == "evaluation mode")
    erase = v["erase"]
    error, users = erase["error"] or "nothing", erase["users"]
    named = sum(f"{user}: None" in error for user in users)
    return Fact(
        text=f"Without its {evaluation['dropout']} dropout nodes, the classifier's graph gives the "
        f"same logits to the last bit on {_same(v, 'evaluation_removed')} test sentences. Erasing "
        f"one whose users are not redirected first raises `{error.partition(':')[0]}`, and the "
        f"message names {named} of its {len(users)} users",
        of=f"the graph captured in evaluation mode, {evaluation['nodes']} nodes; erased: the first "
        "dropout node of the one captured in training mode",
    )


@page.fact(headline=True)
def kinds_found(r: Records) -> Fact:
    counts = values(r)["kinds"]
    found = sorted((kind for kind in counts if counts[kind]), key=lambda kind: -counts[kind])
    none = [f"no `{kind}`" for kind in counts if not counts[kind]]
    return Fact(
        text="The classifier's graph is made of these kinds of node: "
        + ", ".join([*(f"{counts[kind]} `{kind}`" for kind in found), *none]),
        of=f"{sum(counts.values())} nodes, captured in training mode on {EXAMPLE_ROWS} sentences",
    )


@page.fact(headline=True)
def removed(r: Records) -> Fact:
    v = values(r)
    n, before = len(v["nodes"]), v["operators"]["dropout"]
    after = v["operators_after"].get("dropout", 0)
    return Fact(
        text=f"Captured in training mode, {before} of the graph's {n} nodes are dropout; the pass "
        f"leaves {after} of them. {v['captures'][0]['inside']} more places drop values by an "
        "argument of fused attention, which a pass that looks for dropout nodes does not see; once "
        "that is zero as well, the logits are the evaluated model's to the last bit on "
        f"{_same(v, 'training_clean')} test sentences",
        of="the graph captured in training mode",
    )


def _same(v: Values, graph: str) -> str:
    n = v["num_sentences"]
    return f"{n - v['outputs'][graph]['sentences']} of {n}"


@page.fact
def capture_is_exact(r: Records) -> Fact:
    return Fact(
        text="Before any pass, the graph captured in evaluation mode gives the evaluated model's "
        f"logits to the last bit on {_same(values(r), 'evaluation')} sentences",
        of="test sentences",
    )


@page.fact
def still_random(r: Records) -> Fact:
    v = values(r)
    n, found = v["num_sentences"], v["outputs"]["training_removed_twice"]
    return Fact(
        text="Two runs of the training mode's graph without its dropout nodes differ on "
        f"{found['sentences']} of {n} sentences, by up to {number(found['largest'])} in a logit",
        of="one graph, run twice",
    )


@page.fact
def untraced(r: Records) -> Fact:
    """What the messages of `symbolic_trace` name as the cause, in their own words."""
    found = values(r)["symbolic"]
    failed = [entry["error"] for entry in found if "error" in entry]
    causes = Counter(
        error.split(" when ")[1].split(". ")[0] for error in failed if " when " in error
    )
    (cause, said), *_ = causes.most_common(1) or [("nothing", 0)]
    return Fact(
        text=f"`symbolic_trace` fails on {len(failed)} of {len(found)} modules; {said} of the "
        f"messages say that this can happen when `{cause}`",
        of="the model, and the first module of each class that is not torch's own",
    )


@page.fact
def layers_alike(r: Records) -> Fact:
    """Whether one layer's drawing speaks for the others."""
    layers: dict[str, list[tuple[str, str, str]]] = {}
    for node in values(r)["nodes"]:
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

MOST = 11  # operators that the figure has room for, beside the sum of the others


@page.chart(
    caption="What the pass leaves of the graph captured in training mode, and what it takes out, "
    "by operator. The last row sums the operators with the fewest nodes."
)
def operators(r: Records) -> Chart:
    before, after = values(r)["operators"], values(r)["operators_after"]
    ranked = sorted(before, key=lambda name: (-before[name], name))
    others = {f"{len(ranked) - MOST} others": ranked[MOST:]}
    groups = {panels.short(name): [name] for name in ranked[:MOST]} | others
    rows = [
        {
            "operator": group,
            "left by the pass": (left := sum(after.get(name, 0) for name in names)),
            "removed by the pass": sum(before[name] for name in names) - left,
        }
        for group, names in groups.items()
    ]
    return Chart(
        rows,
        x=linear(label="nodes of the captured graph that call an operator"),
        y=category("operator"),
        marks=[bars("left by the pass", "removed by the pass", stacked=True)],
    )


@page.drawing(
    caption="The model captured in training mode, from its inputs to its loss. A box is a module, "
    "the number on the right counts its nodes, the folds hold them. Parameters and buffers "
    "(`get_attr`) are in no count: they are named where they are read. The first box also asks for "
    "the inputs' sizes, the last holds the loss and the output. Orange boxes hold dropout; a "
    "dashed orange box drops values inside another operator. Arrows are values, on the left those "
    "that skip a box. B is the batch, T its longest sentence.",
    panels=panels.graph_panels,
    alt=panels.graph_alt,
)
def graph(r: Records) -> Sequence[Row]:
    return panels.graph_rows(values(r)["nodes"])


# ---- tables -------------------------------------------------------------------------------------


@page.table
def kinds(r: Records) -> Sequence[Row]:
    """Each kind with a node of this graph; where it has none, one of a module traced otherwise."""
    v = values(r)
    examples = {node["kind"]: node for node in reversed(v["nodes"])}
    examples["call_function"] = next(n for n in v["nodes"] if n["name"] == v["erase"]["node"])
    return [
        {
            "kind": kind,
            "nodes": v["kinds"][kind],
            "stands for": meaning,
            "one of them": _call(examples[kind]) if kind in examples else _elsewhere(v, kind),
        }
        for kind, meaning in KINDS.items()
    ]


def _call(node: Mapping[str, Any]) -> str:
    if node["kind"] in ("placeholder", "get_attr"):
        return f"`{node['name']}`, target `{node['target']}`"
    if node["kind"] == "output":
        return f"`{node['name']}`, arguments `{node['args']}`"
    return f"`{node['name']}` = `{node['target']}({node['args']})`"


def _elsewhere(v: Values, kind: str) -> str:
    for traced in v["symbolic"]:
        if kind in traced.get("examples", {}):
            node = traced["examples"][kind]
            return f"none here; `symbolic_trace` of `{traced['module']}` has {_call(node)}"
    return "none here"


@page.table
def users(r: Records) -> Sequence[Row]:
    """The nodes that read the first dropout's value."""
    v = values(r)
    return [
        {
            "user": f"`{node['name']}`",
            "operator": f"`{node['target']}`",
            "in module": f"`{node['module']}`",
            "makes": node["shape"],
        }
        for node in v["nodes"]
        if node["name"] in v["erase"]["users"]
    ]


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
            "users of the first dropout's value": entry["users"],
        }
        for entry in values(r)["captures"]
    ]


@page.table
def symbolic(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for entry in values(r)["symbolic"]:
        if "error" in entry:
            says = f"`{entry['error'].splitlines()[0].split('. ')[0]}`"
        else:
            says = "traced: " + ", ".join(f"{n} `{k}`" for k, n in entry["kinds"].items() if n)
        rows.append(
            {"module": f"`{entry['module'] or entry['class']}`", "`symbolic_trace` says": says}
        )
    return rows


@page.output
def erase_error(r: Records) -> str:
    return values(r)["erase"]["error"] or "no error"
