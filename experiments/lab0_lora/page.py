"""Question 0.2: a graph without its optional inputs; low-rank adapters against full fine-tuning.

Every method of training starts from the same pretrained encoder with the same untrained head and
takes one pass over the same sentences in the same order, at a rate that the tuning seed prefers.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from experiments.lab0_lora import design
from madl.logbook.arms import Arm, TimedArm, arm, timed_arm
from madl.logbook.charts import Chart, category, intervals, linear, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import EXPORT, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, value
from madl.logbook.records import Params, Records, Row
from madl.logbook.searches import rate_rows
from madl.logbook.values import number, scientific
from madl.training import baseline

page = Experiment(
    needs=("baseline",),
    timed=lambda params: params["method"] == "costs",
    requires=lambda params: (EXPORT,) if params.get("method") == "inputs" else (),
)

MB = 1e-6


def one_pass(plan: Plan, seed: int, way: str, rate: float) -> Params:
    """Parameters of a case: a pass of training in one of the ways, over all its sentences."""
    recipe = {**baseline.drawn_params(plan, seed, passes=1), "learning_rate": rate}
    return {**design.WAYS[way], **recipe}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for way, rates in design.RATES_TRIED.items():
        for rate in plan.profile.choose(smoke=rates[:1], quick=rates):
            yield one_pass(plan, TUNING_SEED, way, rate)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, first = plan.profile.choose, plan.seeds[0]
    for seed in plan.seeds:
        for way, rate in design.RATES.items():
            yield one_pass(plan, seed, way, rate)
    yield {"method": "untrained", **baseline.untrained_params(plan, first)}
    probe = {"probe_sentences": choose(smoke=16, quick=design.PROBE_SENTENCES)}
    start = baseline.drawn_params(plan, first)
    yield {"method": "inputs", **start, **probe, "pads": design.PAD_TOKENS}
    times = {
        "processes": choose(smoke=1, quick=design.PROCESSES),
        "budget_s": choose(smoke=0.0, quick=design.BUDGET_S),
    }
    adapters = design.WAYS[design.MIDDLE]
    yield {**adapters, "method": "costs", **baseline.untrained_params(plan, first), **times}


page.quick(lambda params: params["method"] == "inputs")


def trained(r: Records, way: str) -> Arm:
    return arm(r, way, **design.WAYS[way])


full = partial(trained, way=design.FULL)
lora = partial(trained, way=design.MIDDLE)
frozen = partial(trained, way=design.FROZEN)


def lora_by_rank(r: Records) -> list[Arm]:
    return [trained(r, way) for way in design.RANKS]


def fused(beside: Arm) -> Arm:
    """The models of a LoRA arm after their adapters were merged into the weights."""
    return Arm(label=f"{beside.label}, fused", records=beside.records, within=("fused",))


def step(r: Records, method: str) -> TimedArm:
    """Times of a method's training step, or of a forward pass: "fused", or "adapters" beside."""
    return timed_arm(r, method, method="costs")


@page.claim(primary=True)
def lora_is_enough(r: Records) -> Contrast:
    """LoRA of rank 8 is as accurate as full fine-tuning: at most one point less."""
    return compare(lora(r), full(r)).no_worse()


@page.claim
def rank_two_is_enough(r: Records) -> Contrast:
    """LoRA of rank 2 over LoRA of rank 32, each at its own learning rate."""
    return compare(*(trained(r, f"LoRA, rank {rank}") for rank in (2, 32)))


@page.claim
def frozen_embeddings(r: Records) -> Contrast:
    """Training with frozen embeddings over full fine-tuning, each at its own learning rate."""
    return compare(frozen(r), full(r))


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


def peak_memory(r: Records, method: str) -> ExactValue:
    """Weights, optimizer moments and what a training step adds to them at its peak, in MB."""
    costs = r.single(method="costs")
    parts, first = costs.values["counted"][method], costs.values["measurements"][method][0]
    peak_bytes = parts["weights"] + parts["optimizer"] + first["peak_bytes"]
    return exact(peak_bytes * MB, [costs], "MB")


def trainable_share(r: Records) -> ExactValue:
    """The share of the model's parameters that learn with LoRA, in %."""
    costs = r.single(method="costs")
    num_all, _ = costs.values["parameters"]["this model"]
    return exact(100 * costs.values["trainable"]["lora"] / num_all, [costs], "%")


def worst_effect(r: Records, way: str) -> float:
    """A way's difference to full fine-tuning in the model that loses most by it."""
    return min(compare(trained(r, way), full(r)).comparison.by_unit)


def worst(r: Records) -> ExactValue:
    """The loss of LoRA of the middle rank to full fine-tuning in the model that loses most."""
    lost = -worst_effect(r, design.MIDDLE)
    return exact(round(100 * lost, 1), [*lora(r).records, *full(r).records], "points")


def fused_answers(r: Records, *, changed: bool) -> ExactValue:
    """The number of test answers of all LoRA models; with `changed`, of those that fusing
    changes."""
    pairs = [(a, b) for arm in lora_by_rank(r) for a, b in zip(arm.outcomes, fused(arm).outcomes)]
    count = sum(a.differing(b) if changed else a.n for a, b in pairs)
    return exact(count, r.all(method="lora"))


page.numbers(
    start=baseline.fp32,
    from_start=beside_start,
    embeddings=frozen_embeddings,
    ranks=rank_two_is_enough,
    worst=worst,
    num_test=lambda r: exact(full(r).accuracy.n, full(r).records),
    share=trainable_share,
    tiny=value("parameters", "BERT-tiny", 0, method="costs"),
    tiny_nested=value("parameters", "BERT-tiny", 1, method="costs"),
    lora_memory=partial(peak_memory, method="lora"),
    full_memory=partial(peak_memory, method="full"),
    lora_moments=value("counted", "lora", "optimizer", unit="MB", factor=MB, method="costs"),
    full_moments=value("counted", "full", "optimizer", unit="MB", factor=MB, method="costs"),
    fused_judged=partial(fused_answers, changed=False),
    fused_changed=partial(fused_answers, changed=True),
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


@page.chart
def lost(r: Records) -> Chart:
    """Test accuracy of every other way of training minus that of full fine-tuning."""
    judged = {way: r for way in design.WAYS if way != design.FULL}
    judged[design.MIDDLE] = r.and_further
    worst = min(worst_effect(on, way) for way, on in judged.items())
    return Chart(
        [{"trained": way, "difference": trained(on, way) - full(on)} for way, on in judged.items()],
        x=linear("difference", "test accuracy over full fine-tuning's", "points", factor=100),
        y=category("trained"),
        marks=[span(worst, -design.MARGIN, "over a point less"), intervals("difference")],
    )


@page.table
def methods(r: Records) -> Sequence[Row]:
    """Accuracy and costs of every way of training."""
    stepped = {design.FULL: "full", design.FROZEN: "frozen", design.MIDDLE: "lora"}
    start = arm(r, "not at all", method="untrained")
    rows: list[dict[str, Any]] = [
        {"trained": start.label, "parameters that learn": 0, "test accuracy": start}
    ]
    for way in design.WAYS:
        models = trained(r, way)
        row = {
            "trained": way,
            "parameters that learn": models.value("num_trainable"),
            "learning rate": scientific(models.param("learning_rate")),
            "test accuracy": models,
        }
        if method := stepped.get(way):
            row["a step takes"] = f"{step(r, method)}"
            row["and holds"] = f"{number(peak_memory(r, method).value)} MB"
        rows.append(row)
    return rows


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss on the tuning seed, by way of training and learning rate."""
    return rate_rows(r.tuning, design.WAYS, "learning_rate", chosen=design.RATES)


SIGNS = {"added": "+ ", "removed": "− ", "rewired": "~ ", "same": ""}


def change_panels(rows: Sequence[Row]) -> list[Panel]:
    """A panel of nodes for each input that was left out; the labels' is folded."""
    panels: list[Panel] = []
    for left_out in ("attention mask", "labels"):
        nodes = [row for row in rows if row["left out"] == left_out]
        counts = [(m, sum(row["mark"] == m for row in nodes)) for m in SIGNS if m != "same"]
        title = f"Without the {left_out}: " + ", ".join(f"{n} {m}" for m, n in counts)
        svg = column([_change_box(row) for row in nodes], label=title)
        panels.append(Panel(title=title, svg=svg, folded=left_out == "labels"))
    return panels


def change_alt(rows: Sequence[Row]) -> str:
    """The drawing in words: the counts in the panels' titles."""
    return "; ".join(panel.title for panel in change_panels(rows))


def _change_box(row: Row) -> Box:
    """The box of a node: its operator, how it changed, and its lost inputs or its module."""
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
    """A row for each node that is drawn, with the input that was left out of its graph."""
    by_input = r.single(method="inputs").values["changes"]
    return [{"left out": left_out, **row} for left_out, rows in by_input.items() for row in rows]
