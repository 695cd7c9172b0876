"""What the graph's inputs change in it: the attention mask and the labels, left out in turn.

The first half of question 0.2. The graph for each set of inputs is held against the graph that has
them all, node by node; and the logits without the mask against those with it, on the same sentences
once padded and once not. Everything is counted, so nothing is a claim.
"""

from collections.abc import Iterable, Sequence

from madl.execution import panels
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline

page = Experiment(title="Graph inputs", needs=("baseline",))

TOLERANCE = 1e-4  # largest difference of a logit that counts as rounding
PADS = 16  # positions behind each sentence of the padded batches
EXAMPLE_ROWS = 4  # sentences that the model is captured on
LEFT_OUT = ("nothing", "labels", "attention mask", "both")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    probe = plan.profile.choose(smoke=16, quick=128, full=1024)
    recipe = baseline.recipe_params(plan, 0)
    yield {"method": "inputs", **recipe, "probe_sentences": probe, "pads": PADS}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import inputs

    model = baseline.fine_tuned(params, ctx)
    test = baseline.load_splits(params).test
    probe = test.first(int(params["probe_sentences"]))
    return {
        **inputs.compare_graphs(model, test.batch(range(EXAMPLE_ROWS))),
        "padding": inputs.compare_logits(model, probe, pads=PADS, tolerance=TOLERANCE),
    }


def captured(r: Records) -> Values:
    return r.one(method="inputs").values


@page.fact
def default_mask(r: Records) -> Fact:
    graph, attention = captured(r)["graphs"]["attention mask"], captured(r)["attention"]
    return Fact(
        text=f"Without the attention mask {graph['removed']} nodes go and {graph['added']} come, "
        f"but {attention['masked']} attention nodes still take a mask: the graph builds one itself",
        of=f"{attention['nodes']} attention nodes",
    )


@page.fact
def loss_goes(r: Records) -> Fact:
    graph = captured(r)["graphs"]["labels"]
    gone = [c["operator"] for c in captured(r)["changes"]["labels"] if c["mark"] == "removed"]
    return Fact(
        text=f"Without labels {graph['removed']} nodes go "
        f"({', '.join(f'`{name}`' for name in gone)}) and {graph['added']} come; the graph "
        f"returns `{graph['returns']}` alone",
        of=f"{captured(r)['graphs']['nothing']['nodes']} nodes",
    )


@page.fact
def padding_shows(r: Records) -> Fact:
    padded, whole = (captured(r)["padding"][f"{name}, no mask"] for name in ("padded", "whole"))
    return Fact(
        text=f"With {PADS} pads behind each sentence, leaving the mask out moves the logits of "
        f"{padded['moved']} of {padded['sentences']} sentences and changes "
        f"{padded['other answers']} answers; without pads it moves {whole['moved']} and changes "
        f"{whole['other answers']}",
        of=f"the same {whole['sentences']} test sentences, in batches of equal length",
    )


@page.fact
def mask_hides_padding(r: Records) -> Fact:
    found = captured(r)["padding"]["padded, mask"]
    return Fact(
        text=f"With the mask, the same pads move {found['moved']} of {found['sentences']} "
        f"sentences by more than {TOLERANCE:g} in a logit",
        of="the same sentences, padded against not padded",
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
        "whole, no mask": ("no padding, mask left out", "no padding, with the mask"),
        "padded, no mask": ("padded, mask left out", "padded, with the mask"),
        "padded, mask": ("padded, with the mask", "no padding, with the mask"),
    }
    return [
        {
            "sentences": sides[0],
            "held against": sides[1],
            "moved": f"{found[name]['moved']} of {found[name]['sentences']}",
            "largest move of a logit": f"{found[name]['largest']:.1g}".replace("e-0", "e-"),
            "other answers": found[name]["other answers"],
        }
        for name, sides in said.items()
    ]


@page.drawing(
    caption="What leaves the captured graph with an input. Orange with a minus goes, green with a "
    "plus comes, dashed with a tilde stays and is fed by another node; grey boxes are neighbours "
    "that stay as they are. B is the batch, T its longest sentence.",
    panels=panels.change_panels,
    alt=panels.change_alt,
)
def changes(r: Records) -> Sequence[Row]:
    return panels.change_rows(captured(r)["changes"])
