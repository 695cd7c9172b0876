"""What the graph's inputs change in it: the attention mask and the labels, left out in turn.

The first half of question 0.2. The graph for each set of inputs is held against the graph that has
them all, node by node; and the logits of the graph without the mask against those of the graph with
it, on the same sentences once padded and once not. Everything is counted, so nothing is a claim.
"""

from collections.abc import Iterable, Sequence

from madl.execution import panels
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(title="Graph inputs", needs=("baseline",), version=2)

TOLERANCE = 1e-4  # largest difference of a logit that counts as the same
PADS = 16  # positions behind each sentence of the padded batches
EXAMPLE_ROWS = 4  # sentences that the model is captured on
LEFT_OUT = ("nothing", "labels", "attention mask", "both")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    probe = plan.profile.choose(smoke=16, quick=128)
    recipe = baseline.recipe_params(plan, 0)
    yield {"method": "inputs", **recipe, "probe_sentences": probe, "pads": PADS}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_inputs import inputs

    model = baseline.fine_tuned(params, ctx)
    test = baseline.load_splits(params).test
    probe = test.first(int(params["probe_sentences"]))
    example = test.batch(range(EXAMPLE_ROWS))
    return inputs.study(model, example, probe, pads=PADS, tolerance=TOLERANCE)


def captured(r: Records) -> Values:
    return r.one(method="inputs").values


@page.fact(headline=True)
def default_mask(r: Records) -> Fact:
    found = captured(r)["attention"]
    return Fact(
        text=f"Run without an attention mask, the model itself hands a mask to "
        f"{found['masked by the model']} of {found['calls of the model']} attention layers; its "
        f"captured graph hands one to {found['masked']} of {found['nodes']}, true in "
        f"{found['true entries']:,} of {found['entries']:,} entries",
        of=f"every attention layer, on {found['sentences']} sentences",
    )


@page.fact(headline=True)
def mask_goes(r: Records) -> Fact:
    """Which of the nodes that go are made of the mask's values."""
    graph, changes = captured(r)["graphs"]["attention mask"], captured(r)["changes"]
    found = changes["attention mask"]
    gone = [change for change in found if change["mark"] == "removed"]
    made = {change["name"] for change in gone if change["kind"] == "placeholder"}
    inputs = len(made)
    for change in gone:
        if made & set(change["inputs"]):
            made.add(change["name"])
    sizes = [c for c in found if c["mark"] == "rewired" and c["operator"] == "sym_size"]
    return Fact(
        text=f"Without the attention mask {graph['removed']} nodes go and {graph['added']} come: "
        f"{inputs} is the input, {len(made) - inputs} compute from it or check it, and "
        f"{len(gone) - len(made)} only served to read it or to join it with the other mask; "
        f"{len(sizes)} that asked for its size now asks for that of "
        + ", ".join(f"`{name}`" for change in sizes for name in change["inputs"]),
        of=f"{captured(r)['graphs']['nothing']['nodes']} nodes",
    )


@page.fact(headline=True)
def loss_goes(r: Records) -> Fact:
    graph = captured(r)["graphs"]["labels"]
    gone = [c["operator"] for c in captured(r)["changes"]["labels"] if c["mark"] == "removed"]
    return Fact(
        text=f"Without labels {graph['removed']} nodes go "
        f"({', '.join(f'`{name}`' for name in gone)}) and {graph['added']} come; the graph "
        f"returns `{graph['returns']}` alone",
        of=f"{captured(r)['graphs']['nothing']['nodes']} nodes",
    )


@page.fact(headline=True)
def padding_shows(r: Records) -> Fact:
    padded, whole = (captured(r)["padding"][f"{name}, no mask"] for name in ("padded", "whole"))
    return Fact(
        text=f"With {PADS} pads behind each sentence, the graph without the mask moves a logit of "
        f"{padded['moved']} of {padded['sentences']} sentences by more than {TOLERANCE:g} and "
        f"changes {padded['other answers']} answers; without pads it moves {whole['moved']} and "
        f"changes {whole['other answers']}",
        of="against the graph that takes the mask, on the same test sentences",
    )


@page.fact
def mask_hides_padding(r: Records) -> Fact:
    found = captured(r)["padding"]["padded, mask"]
    return Fact(
        text=f"In the graph that takes the mask, the same pads move a logit of {found['moved']} of "
        f"{found['sentences']} sentences by more than {TOLERANCE:g}",
        of="padded against not padded",
    )


@page.table
def graphs(r: Records) -> Sequence[Row]:
    found = captured(r)["graphs"]
    columns = ("nodes", "added", "removed", "rewired", "returns")
    return [{"left out": name, **{k: found[name][k] for k in columns}} for name in LEFT_OUT]


@page.table
def logits(r: Records) -> Sequence[Row]:
    found = captured(r)["padding"]
    said = {
        "whole, no mask": ("no padding, without the mask", "no padding, with the mask"),
        "padded, no mask": ("padded, without the mask", "padded, with the mask"),
        "padded, mask": ("padded, with the mask", "no padding, with the mask"),
    }
    return [
        {
            "graph and sentences": sides[0],
            "held against": sides[1],
            "moved": f"{found[name]['moved']} of {found[name]['sentences']}",
            "largest move of a logit": number(found[name]["largest"]),
            "other answers": found[name]["other answers"],
        }
        for name, sides in said.items()
    ]


@page.drawing(
    caption="What becomes of the captured graph without an input. Orange with a minus goes; dashed "
    "with a tilde stays and has other inputs. Grey boxes stay as they are: they feed what "
    "changes or use it, or lead to what a dashed box is fed by now. B is the batch, T its longest "
    "sentence.",
    panels=panels.change_panels,
    alt=panels.change_alt,
)
def changes(r: Records) -> Sequence[Row]:
    return panels.change_rows(captured(r)["changes"])
