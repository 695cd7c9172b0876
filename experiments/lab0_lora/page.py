"""Question 0.2: a graph without its optional inputs; low-rank adapters against full fine-tuning.

Every way of training starts from the same pretrained encoder with the same untrained head and sees
the same sentences in the same order for as many steps. Each tries as many learning rates, around
what is usual for it, and validation chooses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, category, intervals, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(
    title="Graph inputs, and LoRA adapters",
    needs=("baseline",),
    timed=lambda params: params["method"] == "costs",
)

RANK = 8  # the middle of those that LoRA's paper tries; fixed before any run
ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
USUAL = {"full": 1e-4, "frozen": 1e-4, "lora": 2e-3}  # learning rates
MARGIN = 0.03  # three points: what an answer may cost that trains a fraction of the parameters
TOLERANCE = 1e-4  # largest difference of a logit that counts as the same
PROBE_SENTENCES = 128  # whose logits are compared before and after fusing
PADS = 16  # positions behind each sentence of the padded batches
EXAMPLE_ROWS = 4  # sentences that the model is captured on
MB = 1e-6


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        trained = ("epochs", "learning_rate", "batch_size")
        recipe = baseline.recipe_params(plan, seed)
        base = {key: value for key, value in recipe.items() if key not in trained}
        for way in trainings(plan):
            yield {**base, **way}
        yield {"method": "before", **base}
        if seed == 0:
            budget = {"budget_s": choose(smoke=0.0, quick=0.1, full=1.0)}
            processes = {"processes": choose(smoke=1, quick=5, full=9)}
            yield {"method": "costs", **base, "rank": RANK, "alpha": ALPHA, **processes, **budget}
            probe = {"probe_sentences": choose(smoke=16, quick=128), "pads": PADS}
            yield {"method": "inputs", **recipe, **probe}


def trainings(plan: Plan) -> Iterator[Params]:
    """Each way of training."""
    choose = plan.profile.choose
    common = {
        "tune_examples": choose(smoke=32, quick=512),
        "tune_batch_size": choose(smoke=8, quick=8),
    }
    factors = choose(smoke=(0.5, 1, 2), quick=(0.5, 0.7, 1, 1.4, 2))
    for method, usual in USUAL.items():
        rates = " ".join(f"{usual * factor:g}" for factor in factors)
        way = {"method": method, **common, "tune_learning_rates": rates}
        if method == "lora":
            for rank in choose(smoke=(RANK,), quick=(RANK,), full=(2, RANK, 32)):
                yield {**way, "rank": rank, "alpha": ALPHA}
        else:
            yield way


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_lora import inputs, study

    if params["method"] == "inputs":
        model, test = baseline.fine_tuned(params, ctx), baseline.load_splits(params).test
        probe = test.first(int(params["probe_sentences"] or 0))
        example = test.batch(range(EXAMPLE_ROWS))
        return inputs.study(model, example, probe, pads=PADS, tolerance=TOLERANCE)
    if params["method"] == "costs":
        return study.costs(params, ctx.device)
    if params["method"] == "before":
        return study.untrained(params, ctx.device)
    return study.trained(params, ctx.device, probe=PROBE_SENTENCES, tolerance=TOLERANCE)


# ---- models and claims --------------------------------------------------------------------------


def full(r: Records) -> Arm:
    return arm(r, "full fine-tuning", method="full")


def frozen(r: Records) -> Arm:
    return arm(r, "frozen embeddings", method="frozen")


def lora(r: Records, rank: int = RANK) -> Arm:
    return arm(r, f"LoRA, rank {rank}", method="lora", rank=rank)


def adapted(r: Records) -> list[Arm]:
    """LoRA at every rank."""
    return [lora(r, rank) for rank in r.all(method="lora").each("rank")]


def fused(beside: Arm) -> Arm:
    """LoRA's models with their adapters in the weights."""
    label = f"{beside.label}, fused"
    return Arm(label=label, records=beside.records, within=("fused", "judged"))


def models(r: Records) -> list[Arm]:
    """All that were judged on test."""
    untrained = arm(r, "untrained head", method="before")
    return [untrained, *adapted(r), fused(lora(r)), frozen(r), full(r)]


def step(r: Records, method: str) -> TimedArm:
    """A training step, timed; or a forward pass, "fused" or with the "adapters" beside."""
    return timed(r, method, method="costs")


@page.claim(primary=True)
def lora_is_enough(r: Records) -> Contrast:
    """LoRA is at most three points less accurate than full fine-tuning on the same sentences."""
    return compare(lora(r), full(r)).no_worse(MARGIN)


@page.claim
def frozen_is_enough(r: Records) -> Contrast:
    """Freezing the embeddings costs at most three points of accuracy."""
    return compare(frozen(r), full(r)).no_worse(MARGIN)


@page.claim
def sentences_matter(r: Records) -> Contrast:
    """The starting point, fine-tuned in full on every sentence of the split, is more accurate."""
    return compare(baseline.fp32(r), full(r))


@page.claim
def step_time(r: Records) -> Contrast:
    """A training step with LoRA takes less time than one of full fine-tuning."""
    return compare(step(r, "lora"), step(r, "full"))


@page.claim
def fused_time(r: Records) -> Contrast:
    """A forward pass is faster with the adapters fused than with them beside the weights."""
    return compare(step(r, "fused"), step(r, "adapters"))


# ---- numbers ------------------------------------------------------------------------------------


def _costs(r: Records) -> Values:
    return r.one(method="costs").values


def _share(r: Records) -> Counted:
    costs = _costs(r)
    trains, total = costs["trainable"]["lora"], costs["parameters"]["this model"][0]
    return counted(100 * trains / total, "%", of=[r.one(method="costs")])


def _parameters(r: Records, *, nested: bool) -> Counted:
    """Of BERT-tiny: counted once, or for every module around them."""
    return counted(_costs(r)["parameters"]["BERT-tiny"][nested], of=[r.one(method="costs")])


def at_peak(r: Records, method: str) -> int:
    """Bytes at a step's peak: what lies there between steps, and what the allocator adds."""
    parts, first = _costs(r)["counted"][method], _costs(r)["measurements"][method][0]
    return parts["weights"] + parts["optimizer"] + first["peak_bytes"]


def _memory(r: Records, method: str, part: str = "") -> Counted:
    size = _costs(r)["counted"][method][part] if part else at_peak(r, method)
    return counted(size * MB, "MB", of=[r.one(method="costs")])


def _fused(r: Records, what: str) -> Counted:
    records = r.all(method="lora")
    pairs = [pair for a in adapted(r) for pair in zip(a.outcomes, fused(a).outcomes, strict=True)]
    found = {
        "judged": sum(beside.n for beside, _ in pairs),
        "changed": sum(beside.differing(within) for beside, within in pairs),
        "changed in FP32": sum(x.values["fused"]["other_answers"] for x in records),
        "millionths": max(1e6 * x.values["fused"]["largest"] for x in records),
    }
    return counted(found[what], of=records)


def _inputs(r: Records, *names: str) -> Counted:
    found: Any = r.one(method="inputs").values
    for name in names:
        found = found[name]
    return counted(found, of=[r.one(method="inputs")])


page.numbers(
    share=_share,
    tiny=partial(_parameters, nested=False),
    tiny_nested=partial(_parameters, nested=True),
    lora_memory=partial(_memory, method="lora"),
    full_memory=partial(_memory, method="full"),
    lora_moments=partial(_memory, method="lora", part="optimizer"),
    full_moments=partial(_memory, method="full", part="optimizer"),
    fused_judged=partial(_fused, what="judged"),
    fused_changed=partial(_fused, what="changed"),
    fused_exactly=partial(_fused, what="changed in FP32"),
    fused_moves=partial(_fused, what="millionths"),
    few=full,
    many=baseline.fp32,
    labels_gone=lambda r: _inputs(r, "graphs", "labels", "removed"),
    mask_gone=lambda r: _inputs(r, "graphs", "attention mask", "removed"),
    masked=lambda r: _inputs(r, "attention", "masked"),
    masked_eager=lambda r: _inputs(r, "attention", "masked by the model"),
    entries=lambda r: _inputs(r, "attention", "entries"),
    entries_true=lambda r: _inputs(r, "attention", "true entries"),
    whole_moved=lambda r: _inputs(r, "padding", "whole, no mask", "moved"),
    padded_moved=lambda r: _inputs(r, "padding", "padded, no mask", "moved"),
    padded_sentences=lambda r: _inputs(r, "padding", "padded, no mask", "sentences"),
    padded_answers=lambda r: _inputs(r, "padding", "padded, no mask", "other answers"),
    hidden_moved=lambda r: _inputs(r, "padding", "padded, mask", "moved"),
)


# ---- chart, table, drawing ----------------------------------------------------------------------


@page.chart
def accuracy(r: Records) -> Chart:
    start = baseline.fp32(r)
    arms = {**{a.label: a for a in models(r)}, "full, on every sentence": start}
    rows = [{"trained": label, "test accuracy": a} for label, a in arms.items()]
    marks = [intervals("test accuracy")]
    return Chart(
        rows, x=percent("test accuracy"), y=category("trained", "what was trained"), marks=marks
    )


@page.table
def methods(r: Records) -> Sequence[Row]:
    total = _costs(r)["parameters"]["this model"][0]
    stepped = {lora(r).label: "lora", frozen(r).label: "frozen", full(r).label: "full"}
    return [
        {
            "model": a.label,
            "trains": (trains := a.records[0].values["num_trainable"]),
            "of all": per_cent(trains / total),
            "test accuracy": a,
            "a step takes": f"{step(r, method)}" if method else "",
            "and holds": f"{number(at_peak(r, method) * MB)} MB" if method else "",
        }
        for a in models(r)
        for method in [stepped.get(a.label, "")]
    ]


SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


def change_rows(changes: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
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


def change_panels(rows: Sequence[Row]) -> list[Panel]:
    """A panel for each input that was left out, the largest open."""
    panels: list[Panel] = []
    for left_out in ("attention mask", "labels"):
        mine = [row for row in rows if row["left out"] == left_out]
        counts = [(m, sum(row["mark"] == m for row in mine)) for m in SIGNS if m != "same"]
        title = f"Without the {left_out}: " + ", ".join(f"{n} {m}" for m, n in counts)
        svg = column([_change_box(row) for row in mine], label=title)
        panels.append(Panel(title=title, svg=svg, folded=left_out == "labels"))
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
        title=SIGNS[row["mark"]] + row["operator"].replace("scaled_dot_product_", "sdp_"),
        detail=" · ".join(text for text in details if text),
        note=row["shape"],
        look="op" if row["mark"] == "same" else row["mark"],
        inputs=tuple(row["inputs"].split()),
    )


@page.drawing(panels=change_panels, alt=change_alt)
def changes(r: Records) -> Sequence[Row]:
    return change_rows(r.one(method="inputs").values["changes"])
