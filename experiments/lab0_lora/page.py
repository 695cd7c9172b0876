"""Question 0.2: a graph without its optional inputs; low-rank adapters against full fine-tuning.

Every way of training starts from the same pretrained encoder with the same untrained head and takes
one pass over the same sentences in the same order, at a rate that the tuning seed prefers.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, category, intervals, linear, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import (
    CONFIRMING_SEEDS,
    EXPORT,
    TUNING_SEED,
    Context,
    Experiment,
    Plan,
)
from madl.logbook.numbers import Counted, counted, value
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.searches import rate_rows
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(
    title="Graph inputs, and LoRA adapters",
    needs=("baseline",),
    timed=lambda params: params["method"] == "costs",
    requires=lambda params: (EXPORT,) if params.get("method") == "inputs" else (),
)

WAYS = ("full", "frozen", "lora")
RANK = 8  # the middle of those that LoRA's paper tries; fixed before any run
RANKS_ONCE = (2, 32)  # on the first seed, at the rate of RANK
ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
# Learning rates; the best has a worse neighbour on either side.
TRIED = {"full": (5e-5, 1e-4, 2e-4, 4e-4), "lora": (5e-4, 1e-3, 2e-3, 4e-3)}
RATES = {"full": 2e-4, "lora": 2e-3}
MARGIN = 0.03  # three points: what an answer may cost that trains a fraction of the parameters
TOLERANCE = 1e-4  # largest difference of a logit that counts as the same
PADS = 16  # positions behind each sentence of the padded batches
EXAMPLE_ROWS = 4  # sentences that the model is captured on
MB = 1e-6


# ---- cases --------------------------------------------------------------------------------------


def one_pass(plan: Plan, seed: int, method: str, rate: float, rank: int = RANK) -> Params:
    """Over all training sentences of the seed's draw."""
    recipe = {**baseline.drawn_params(plan, seed, passes=1), "learning_rate": rate}
    adapters: Params = {"rank": rank, "alpha": ALPHA} if method == "lora" else {}
    return {"method": method, **recipe, **adapters}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for method, rates in TRIED.items():
        for rate in plan.profile.choose(smoke=rates[:1], quick=rates):
            yield one_pass(plan, TUNING_SEED, method, rate)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, first = plan.profile.choose, plan.seeds[0]
    for seed in plan.seeds:
        for method, rate in RATES.items():
            yield one_pass(plan, seed, method, rate)
    yield one_pass(plan, first, "untrained", RATES["full"])
    yield one_pass(plan, first, "frozen", RATES["full"])
    for rank in choose(smoke=(), quick=RANKS_ONCE):
        yield one_pass(plan, first, "lora", RATES["lora"], rank)
    start = baseline.drawn_params(plan, first)
    probe = {"probe_sentences": choose(smoke=16, quick=128), "pads": PADS}
    yield {"method": "inputs", **start, **probe}
    trained = ("epochs", "learning_rate", "batch_size")
    untrained = {name: value for name, value in start.items() if name not in trained}
    times = {"processes": choose(smoke=1, quick=9), "budget_s": choose(smoke=0.0, quick=1.0)}
    yield {"method": "costs", **untrained, "rank": RANK, "alpha": ALPHA, **times}


@page.quick
def quick(params: Params) -> bool:
    return params["method"] == "inputs"


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_lora import inputs, study

    if params["method"] == "inputs":
        model, test = baseline.fine_tuned(params, ctx), baseline.load_splits(params).test
        probe = study.with_room(test.first(int(params["probe_sentences"] or 0)), params, PADS)
        example = test.batch(range(EXAMPLE_ROWS))
        return inputs.study(model, example, probe, pads=PADS, tolerance=TOLERANCE)
    if params["method"] == "costs":
        return study.costs(params, ctx.device)
    if params["draw"] == TUNING_SEED:
        return study.validated(params, ctx.device)
    return study.judged(params, ctx.device, tolerance=TOLERANCE)


# ---- models and claims --------------------------------------------------------------------------


def full(r: Records) -> Arm:
    return arm(r, "full fine-tuning", method="full")


def lora(r: Records, rank: int = RANK) -> Arm:
    return arm(r, f"LoRA, rank {rank}", method="lora", rank=rank)


def adapted(r: Records) -> list[Arm]:
    """LoRA at every rank."""
    return [lora(r, rank) for rank in r.all(method="lora").each("rank")]


def fused(beside: Arm) -> Arm:
    """LoRA's models with their adapters in the weights."""
    return Arm(label=f"{beside.label}, fused", records=beside.records, within=("fused",))


def step(r: Records, method: str) -> TimedArm:
    """A training step, timed; or a forward pass, "fused" or with the "adapters" beside."""
    return timed(r, method, method="costs")


@page.claim(primary=True)
def lora_is_enough(r: Records) -> Contrast:
    """LoRA of rank 8 loses less than three points of accuracy to full fine-tuning."""
    return compare(lora(r), full(r)).no_worse(MARGIN)


@page.claim
def beside_start(r: Records) -> Contrast:
    """LoRA over the starting point, all of which takes two passes at a lower rate."""
    return compare(lora(r), baseline.fp32(r))


@page.claim
def step_time(r: Records) -> Contrast:
    """A training step with LoRA takes less time than one of full fine-tuning."""
    return compare(step(r, "lora"), step(r, "full"))


@page.claim
def fused_time(r: Records) -> Contrast:
    """A forward pass is faster with the adapters fused than with them beside the weights."""
    return compare(step(r, "fused"), step(r, "adapters"))


# ---- numbers ------------------------------------------------------------------------------------


def at_peak(r: Records, method: str) -> Counted:
    """What lies in memory between steps, and what the allocator adds at a step's peak."""
    costs = r.one(method="costs")
    parts, first = costs.values["counted"][method], costs.values["measurements"][method][0]
    held = parts["weights"] + parts["optimizer"] + first["peak_bytes"]
    return counted(held * MB, "MB", of=[costs])


def share(r: Records) -> Counted:
    """Of the model's parameters, those that learn with LoRA."""
    of = (costs := r.one(method="costs")).values
    return counted(
        100 * of["trainable"]["lora"] / of["parameters"]["this model"][0], "%", of=[costs]
    )


def answers(r: Records, *, changed: bool) -> Counted:
    """Of all models with adapters: how many, or those that fusing changes."""
    pairs = [pair for a in adapted(r) for pair in zip(a.outcomes, fused(a).outcomes, strict=True)]
    found = sum(beside.differing(within) if changed else beside.n for beside, within in pairs)
    return counted(found, of=r.all(method="lora"))


def seeds(r: Records, *, lower: bool) -> Counted:
    """How many there are, or on how many of them LoRA is less accurate than full fine-tuning."""
    effects = compare(lora(r), full(r)).comparison.by_unit
    found = sum(effect < 0 for effect in effects) if lower else len(effects)
    return counted(found, of=[*lora(r).records, *full(r).records])


page.numbers(
    start=baseline.fp32,
    from_start=beside_start,
    pairs=partial(seeds, lower=False),
    lower=partial(seeds, lower=True),
    num_test=lambda r: counted(full(r).accuracy.n, of=full(r).records),
    share=share,
    tiny=value("parameters", "BERT-tiny", 0, method="costs"),
    tiny_nested=value("parameters", "BERT-tiny", 1, method="costs"),
    lora_memory=partial(at_peak, method="lora"),
    full_memory=partial(at_peak, method="full"),
    lora_moments=value("counted", "lora", "optimizer", unit="MB", factor=MB, method="costs"),
    full_moments=value("counted", "full", "optimizer", unit="MB", factor=MB, method="costs"),
    fused_judged=partial(answers, changed=False),
    fused_changed=partial(answers, changed=True),
    activations=value("counted", "lora", "saved", unit="MB", factor=MB, method="costs"),
    labels_gone=value("removed", "labels", method="inputs"),
    mask_gone=value("removed", "attention mask", method="inputs"),
    masked=value("attention", "masked", method="inputs"),
    masked_eager=value("attention", "masked by the model", method="inputs"),
    entries=value("attention", "entries", method="inputs"),
    entries_true=value("attention", "true entries", method="inputs"),
    whole_moved=value("padding", "whole, no mask", "moved", method="inputs"),
    padded_moved=value("padding", "padded, no mask", "moved", method="inputs"),
    padded_sentences=value("padding", "padded, no mask", "sentences", method="inputs"),
    padded_answers=value("padding", "padded, no mask", "other answers", method="inputs"),
    hidden_moved=value("padding", "padded, mask", "moved", method="inputs"),
)


# ---- chart, tables, drawing ---------------------------------------------------------------------


@page.chart
def lost(r: Records) -> Chart:
    """LoRA of the middle rank beside full fine-tuning of the same seed."""
    pairs = {"all": (lora(r), full(r))}
    for low, tuned in zip(lora(r).models, full(r).models, strict=True):
        pairs[f"seed {tuned.param('seed')}"] = (low, tuned)
    rows = [{"models": name, "difference": a - b} for name, (a, b) in pairs.items()]
    x = linear("difference", "LoRA over full fine-tuning: test accuracy", "points", factor=100)
    marks = [span(-MARGIN - 0.01, -MARGIN, "more than we would pay"), intervals("difference")]
    return Chart(rows, x=x, y=category("models"), marks=marks)


@page.table
def methods(r: Records) -> Sequence[Row]:
    """All on the first seed: some have no other."""
    untrained = arm(r, "untrained", method="untrained")
    frozen = arm(r, "frozen embeddings", method="frozen")
    stepped = {a.label: method for method, a in zip(WAYS, (full(r), frozen, lora(r)))}
    return [
        {
            "model": a.label,
            "trains": a.records[0].values["num_trainable"] if a.label != "untrained" else "",
            "first seed": f"{a.first.accuracy}",
            f"{len(full(r).models)} seeds": a if len(a.models) > 1 else "",
            "a step takes": f"{step(r, method)}" if method else "",
            "and holds": f"{number(at_peak(r, method).value)} MB" if method else "",
        }
        for a in (untrained, full(r), frozen, *adapted(r))
        for method in [stepped.get(a.label, "")]
    ]


# Of three models of an earlier run, trained on fewer sentences: how the effect differs from model
# to model, and from sentence to sentence in the mean over them.
SPREAD = (0.0136, 0.186)
TRUTHS = {
    "LoRA loses nothing": (MARGIN, *SPREAD),
    "LoRA loses one point": (MARGIN - 0.01, *SPREAD),
}

page.power(TRUTHS, units=len(CONFIRMING_SEEDS))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Of the tuning seed."""
    return rate_rows(r.tuning, {name: {"method": name} for name in RATES}, "learning_rate")


# ---- what becomes of the graph ------------------------------------------------------------------

SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


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
    """A row a node that is drawn, by what was left out of the graph's inputs."""
    found = r.one(method="inputs").values["changes"]
    return [{"left out": left_out, **row} for left_out, rows in found.items() for row in rows]
