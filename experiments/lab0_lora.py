"""Question 0.2: what the graph's inputs change in it; low-rank adapters against full fine-tuning.

Every way of training starts from the same pretrained encoder with the same untrained head and sees
the same sentences in the same order for as many steps. Where a learning rate or a rank is to be
chosen, validation data chooses it.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import Arm, arm, best, timed
from madl.logbook.charts import Chart, bars, category, level, linear, log, percent, points
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(
    title="Graph inputs, and LoRA adapters",
    timed=lambda params: params["method"] == "costs",
)

ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
MARGIN = 0.03  # what an answer may cost that trains a fraction of the parameters
SAME = 0.01  # accuracies closer than this count as the same: fusing is arithmetic, not training
TOLERANCE = 1e-4  # largest difference of a logit that counts as rounding
PROBE_SENTENCES = 64
EXAMPLE_ROWS = 4  # sentences that the model is captured on
REPORTED_PARAMETERS = 14_480_258  # of BERT-tiny, in public reports


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    ranks = choose(smoke=(2, 4), quick=(4, 32), full=(1, 2, 4, 8, 16, 32, 64))
    rates = {
        "full": choose(smoke=(1e-4,), quick=(1e-4,), full=(5e-5, 1e-4, 2e-4)),
        "frozen": choose(smoke=(1e-4,), quick=(1e-4,), full=(5e-5, 1e-4, 2e-4)),
        "lora": choose(smoke=(2e-3,), quick=(2e-3,), full=(1e-3, 2e-3, 4e-3)),
    }
    budget = choose(smoke=0.02, quick=0.2, full=5.0)
    for seed in range(plan.profile.seeds):
        recipe = baseline.recipe_params(plan, seed)
        base = {k: v for k, v in recipe.items() if k not in ("epochs", "learning_rate")}
        base |= {
            "validation_examples": choose(smoke=32, quick=200, full=None),
            "test_examples": choose(smoke=64, quick=500, full=None),
        }
        tune = {
            "tune_examples": choose(smoke=32, quick=512, full=2048),
            "tune_epochs": 1,
            "tune_batch_size": choose(smoke=16, quick=8, full=16),
        }
        if seed == 0:
            yield {"method": "inputs", **base}
            yield {"method": "costs", **base, "ranks": str(ranks), "budget_s": budget}
        yield {"method": "before", **base}
        for method in ("full", "frozen"):
            for rate in rates[method]:
                yield {"method": method, **base, **tune, "tune_learning_rate": rate}
        for rank in ranks:
            for rate in rates["lora"]:
                fuse = {"rank": rank, "alpha": ALPHA, "judge_fused": rank == max(ranks)}
                yield {"method": "lora", **base, **tune, "tune_learning_rate": rate, **fuse}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import adapters

    if params["method"] == "inputs":
        return graph_inputs(params)
    if params["method"] == "costs":
        return adapters.costs(params, ctx.device, alpha=ALPHA)
    return fine_tuned(params, ctx.device)


def fine_tuned(params: Params, device: str) -> Values:
    """A case that trains, or that judges what there is before any training."""
    from madl.compression import lora
    from madl.training import adapters
    from madl.training.train import train

    method = str(params["method"])
    model = adapters.prepared(params, method, rank=int(params.get("rank") or 0), alpha=ALPHA)
    values = {"num_trainable": lora.num_trainable(model)}
    if method != "before":
        examples = baseline.load_splits(params).train.first(int(params["tune_examples"]))
        recipe = baseline.training_recipe(params, prefix="tune_")
        values["tune_losses"] = train(model, examples, recipe, device=device)
    values |= baseline.judge(model, params, device)
    if method == "lora":
        values["fused"] = adapters.fused(
            model, params, device, sentences=PROBE_SENTENCES, tolerance=TOLERANCE
        )
    return values


def graph_inputs(params: Params) -> Values:
    from madl.execution import inputs
    from madl.training import models

    model = models.load_pretrained(str(params["model"]), seed=int(params["seed"]))
    test = baseline.load_splits(params).test
    probe = test.batch(range(min(PROBE_SENTENCES, len(test))))
    return {
        **inputs.compare_graphs(model, test.batch(range(EXAMPLE_ROWS))),
        "padding": inputs.moved_without_mask(model, probe, tolerance=TOLERANCE),
    }


# ---- the arms -----------------------------------------------------------------------------------


def ranks(r: Records) -> list[int]:
    return r.all(method="lora").each("rank")


def adapted(r: Records) -> tuple[Arm, int]:
    """The adapters that validation prefers, and their rank."""
    found = best(r, "LoRA", method="lora")
    return found, found.param("rank")


def ways(r: Records) -> dict[str, Arm]:
    """Every way of training at the learning rate that validation prefers, by its key in `costs`."""
    found = {f"lora {n}": best(r, f"LoRA, rank {n}", method="lora", rank=n) for n in ranks(r)}
    frozen = best(r, "frozen embedding", method="frozen")
    return {**found, "frozen": frozen, "full": best(r, "full fine-tuning", method="full")}


def fused_pair(r: Records) -> tuple[Arm, Arm]:
    """The adapters of the largest rank, in the weights and beside them."""
    top = max(ranks(r))
    beside = best(r, f"LoRA, rank {top}", method="lora", rank=top)
    fused = Arm(label=f"fused, rank {top}", records=beside.records, within=("fused", "judged"))
    return fused, beside


def costs(r: Records) -> Values:
    return r.one(method="costs").values


def captured(r: Records) -> Values:
    return r.one(method="inputs").values


# ---- graph inputs -------------------------------------------------------------------------------


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
    found = captured(r)["padding"]
    return Fact(
        text="Leaving the mask out moves the logits of "
        f"{found['padded_moved']} of {found['padded']} sentences with padding, and of "
        f"{found['whole_moved']} of {found['whole']} that fill their row",
        of=f"{found['padded'] + found['whole']} test sentences in one batch",
    )


@page.table
def graphs(r: Records) -> Sequence[Row]:
    found = captured(r)["graphs"]
    columns = ("nodes", "added", "removed", "rewired", "returns")
    return [
        {"left out": name, **{key: found[name][key] for key in columns}}
        for name in ("nothing", "labels", "attention mask", "both")
    ]


SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


def change_panels(rows: Sequence[Row]) -> Sequence[Panel]:
    panels: list[Panel] = []
    for left_out in dict.fromkeys(str(row["left out"]) for row in rows):
        mine = [row for row in rows if row["left out"] == left_out]
        counts = [(m, sum(row["mark"] == m for row in mine)) for m in SIGNS if m != "same"]
        title = f"Without the {left_out}: " + ", ".join(f"{n} {m}" for m, n in counts)
        svg = column([_change_box(row) for row in mine], label=title)
        panels.append(Panel(title=title, svg=svg, folded=False))
    return panels


def _change_box(row: Row) -> Box:
    lost = ", ".join(name.lstrip("-") for name in str(row["inputs lost"]).split())
    place = f"and {row['alike']} more alike" if row["alike"] else str(row["module"])
    details = [str(row["name"]).lstrip("-"), f"was fed by {lost}" if lost else place]
    return Box(
        name=str(row["name"]),
        title=SIGNS[str(row["mark"])] + str(row["operator"]).replace("scaled_dot_product_", "sdp_"),
        detail=" · ".join(text for text in details if text),
        note=str(row["shape"]),
        look="op" if row["mark"] == "same" else str(row["mark"]),
        inputs=tuple(str(row["inputs"]).split()),
    )


@page.drawing(
    caption="What leaves the captured graph with an input. Orange with a minus goes, green with a "
    "plus comes, dashed with a tilde stays and is fed by another node; grey boxes are neighbours "
    "that stay as they are. B is the batch, T its longest sentence.",
    panels=change_panels,
    alt=lambda rows: "; ".join(panel.title for panel in change_panels(rows)),
)
def changes(r: Records) -> Sequence[Row]:
    shown = ("mark", "name", "kind", "operator", "module", "shape", "alike")
    return [
        {
            "left out": left_out,
            **{key: change[key] for key in shown},
            "inputs": " ".join(change["inputs"]),
            "inputs lost": " ".join(change["was"]),
        }
        for left_out, found in captured(r)["changes"].items()
        for change in found
    ]


# ---- what adapters reach ------------------------------------------------------------------------


@page.claim(headline=True)
def lora_is_enough(r: Records) -> Judged:
    """LoRA is at most three points less accurate than full fine-tuning on the same sentences."""
    (lora, rank), full = adapted(r), best(r, "full fine-tuning", method="full")
    said = f"LoRA of rank {rank} reaches {lora} on test sentences and full fine-tuning {full}"
    return (
        compare(lora, full)
        .no_worse(MARGIN)
        .judge(
            supported=f"{said}: at most {100 * MARGIN:g} points lie between them",
            refuted=f"{said}, more than {100 * MARGIN:g} points ahead",
            undecided=f"Nothing shows whether LoRA of rank {rank} comes within {100 * MARGIN:g} "
            f"points of full fine-tuning: {lora} against {full}, {lora - full:+i}",
        )
    )


@page.claim
def lora_learns(r: Records) -> Judged:
    """Training the adapters and the head alone beats the untrained head."""
    (lora, rank), before = adapted(r), arm(r, "untrained head", method="before")
    return compare(lora, before).judge(
        supported=f"The untrained head gives {before}; the adapters of rank {rank} and the head "
        f"together bring it to {lora}",
        refuted=f"Adapters of rank {rank} do worse than the untrained head: {lora} after {before}",
        undecided=f"Nothing shows that adapters of rank {rank} learn anything: {lora} after "
        f"{before} with the untrained head, {lora - before:+i}",
    )


@page.claim
def frozen_is_enough(r: Records) -> Judged:
    """Freezing the embeddings costs at most three points of accuracy."""
    frozen = best(r, "frozen embedding", method="frozen")
    full = best(r, "full fine-tuning", method="full")
    said = f"With the embeddings frozen the model reaches {frozen}, trained in full {full}"
    return (
        compare(frozen, full)
        .no_worse(MARGIN)
        .judge(
            supported=f"{said}: freezing costs at most {100 * MARGIN:g} points",
            refuted=f"{said}: freezing costs more than {100 * MARGIN:g} points",
            undecided=f"Nothing shows whether freezing the embeddings costs less than "
            f"{100 * MARGIN:g} points: {frozen - full:+i}",
        )
    )


@page.claim
def rank_matters(r: Records) -> Judged:
    """The largest rank is more accurate than the smallest after the same training."""
    low, high = (best(r, "LoRA", method="lora", rank=n) for n in (min(ranks(r)), max(ranks(r))))
    few, many = low.param("rank"), high.param("rank")
    return compare(high, low).judge(
        supported=f"Rank {many} reaches {high} and rank {few} {low}: {high - low} more",
        refuted=f"Rank {few} reaches {low} and rank {many} {high}: the smaller rank is better",
        undecided=f"Nothing shows that rank {many} is better or worse than rank {few}: {high} "
        f"against {low}, {high - low:+i}",
    )


@page.fact
def trains_few(r: Records) -> Fact:
    rank = adapted(r)[1]
    trains, (total, _) = costs(r)["trainable"], costs(r)["parameters"]["this model"]
    few, frozen = trains[f"lora {rank}"], trains["frozen"]
    return Fact(
        text=f"With LoRA of rank {rank}, {few:,} parameters train, the new head included: "
        f"{per_cent(few / total)} of the model; with frozen embeddings {frozen:,}, "
        f"{per_cent(frozen / total)}",
        of=f"{total:,} parameters",
    )


@page.chart(
    caption="Test accuracy after the same sentences, against the parameters that learn. The labels "
    "are LoRA's ranks; the line is the model before any training."
)
def accuracy(r: Records) -> Chart:
    rows = [
        {
            "parameters that train": way.value("num_trainable"),
            "LoRA" if key.startswith("lora") else way.label: way,
            "rank": f"rank {way.param('rank')}" if key.startswith("lora") else None,
        }
        for key, way in ways(r).items()
    ]
    return Chart(
        rows,
        x=log("parameters that train"),
        y=percent("test accuracy"),
        marks=[
            level(arm(r, "untrained head", method="before")),
            points("LoRA", text="rank"),
            points("frozen embedding"),
            points("full fine-tuning"),
        ],
    )


@page.table
def methods(r: Records) -> Sequence[Row]:
    total = costs(r)["parameters"]["this model"][0]
    before, fused = arm(r, "untrained head", method="before"), fused_pair(r)[0]
    learning = [record.values["num_trainable"] for record in fused.records]
    trained = [(way, way.value("num_trainable")) for way in ways(r).values()]
    return [
        {
            "method": way.label,
            "trains": trains,
            "of all": per_cent(trains / total),
            "test accuracy": way,
            "validation": per_cent(way.validation),
        }
        for way, trains in [(before, 0), *trained, (fused, learning[0])]
    ]


# ---- fused --------------------------------------------------------------------------------------


@page.claim(headline=True)
def fused_answers(r: Records) -> Judged:
    """The model with its adapters fused is as accurate as with them beside the weights."""
    fused, beside = fused_pair(r)
    said = f"{fused} fused and {beside} with the adapters of rank {beside.param('rank')} beside"
    return (
        compare(fused, beside)
        .within(SAME)
        .judge(
            supported=f"The fused model answers as the adapted one does: {said} the weights, the "
            f"same to within {100 * SAME:g} point",
            refuted=f"Fusing changes the model's accuracy by more than {100 * SAME:g} point: "
            f"{said} the weights",
            undecided=f"Nothing shows that fusing keeps the accuracy to within {100 * SAME:g} "
            f"point: {fused - beside:+i}",
        )
    )


@page.fact
def fused_is_close(r: Records) -> Fact:
    found = [record.values["fused"] for record in r.all(method="lora")]
    largest = f"{max(f['largest'] for f in found):.1e}"
    return Fact(
        text=f"Fusing moves a logit by at most {largest.replace('e-0', 'e-')}, where logits "
        f"reach {number(max(f['logit_scale'] for f in found))}: "
        f"{sum(f['beyond'] for f in found)} sentences move by more than {TOLERANCE:g}",
        of=f"{sum(f['sentences'] for f in found)} sentences in {len(found)} adapted models",
    )


@page.claim
def fused_time(r: Records) -> Judged:
    """A forward pass is faster with the adapters fused than with them beside the weights."""
    top = max(ranks(r))
    beside, fused = (
        timed(r, variant, at=("inference",), method="costs") for variant in ("adapters", "fused")
    )
    return compare(fused, beside).judge(
        supported=f"Fused, a forward pass is {beside / fused:i} as fast as with adapters of rank "
        f"{top} beside the weights",
        refuted=f"Fused, a forward pass is slower than with adapters of rank {top} beside the "
        f"weights: {beside / fused:i} as fast",
        undecided=f"Nothing shows that fusing adapters of rank {top} makes a forward pass faster: "
        f"{beside / fused:i} as fast",
    )


# ---- what a step costs --------------------------------------------------------------------------


@page.claim
def step_time(r: Records) -> Judged:
    """A training step with LoRA takes less time than one of full fine-tuning."""
    rank = adapted(r)[1]
    full, lora = (timed(r, way, at=("steps",), method="costs") for way in ("full", f"lora {rank}"))
    return compare(lora, full).judge(
        supported=f"A training step with LoRA of rank {rank} is {full / lora:i} as fast as in full",
        refuted=f"A training step with LoRA of rank {rank} is slower than one in full: "
        f"{full / lora:i} as fast",
        undecided=f"Nothing shows that a training step with LoRA of rank {rank} differs in time "
        f"from one in full: {full / lora:i} as fast",
    )


@page.fact
def step_memory(r: Records) -> Fact:
    held, rank = costs(r)["held"], adapted(r)[1]
    full, lora = sum(held["full"].values()), sum(held[f"lora {rank}"].values())
    return Fact(
        text=f"A step holds {number(full / 1e6)} MB in full and {number(lora / 1e6)} MB with LoRA "
        f"of rank {rank}, counted from its tensors",
        of=f"one step on {costs(r)['tokens']:,} tokens",
    )


@page.chart(
    caption="What a training step has in memory at its fullest, counted from its tensors, by what "
    "it is for."
)
def memory(r: Records) -> Chart:
    parts = {
        "weights": "weights",
        "gradients": "gradients",
        "optimizer": "AdamW's two moments",
        "activations": "activations for backward",
    }
    rows = [
        {
            "method": way.label,
            **{title: costs(r)["held"][key][part] for part, title in parts.items()},
            "step": timed(r, key, at=("steps",), method="costs"),
        }
        for key, way in ways(r).items()
    ]
    return Chart(
        rows,
        x=category("method", "way of training"),
        y=linear(label="held by a step", unit="MB", factor=1e-6),
        marks=bars(*parts.values(), stacked=True),
    )


# ---- counting parameters ------------------------------------------------------------------------


@page.fact
def nested_sum(r: Records) -> Fact:
    unique, nested = costs(r)["parameters"]["BERT-tiny"]
    quoted = "the number" if nested == REPORTED_PARAMETERS else f"not the {REPORTED_PARAMETERS:,}"
    return Fact(
        text=f"BERT-tiny's shape has {unique:,} parameters; adding up the listing of its nested "
        f"modules gives {nested:,}, {quoted} that public reports give",
        of="all parameters of its configuration",
    )


@page.table
def counts(r: Records) -> Sequence[Row]:
    return [
        {"model": name, "parameters": unique, "sum over nested modules": nested}
        for name, (unique, nested) in costs(r)["parameters"].items()
    ]
