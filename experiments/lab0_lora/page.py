"""Question 0.2: low-rank adapters and frozen embeddings against full fine-tuning.

Every way of training starts from the same pretrained encoder with the same untrained head and sees
the same sentences in the same order for as many steps. Each tries as many learning rates, around
what is usual for it, and validation chooses. What the graph's inputs change is `lab0_inputs`.
"""

from collections.abc import Iterable, Mapping, Sequence

from experiments.lab0_lora import ways
from experiments.lab0_lora.ways import RANK, costs, counted, frozen, full, lora, measured, step
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, bars, category, intervals, line, linear, log, percent
from madl.logbook.claims import Fact, Judged, compare, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training.baseline import fp32

page = Experiment(
    title="Graph inputs, and LoRA adapters",
    needs=("baseline", "lab0_inputs"),
    timed=lambda params: params["method"] == "costs",
)

MARGIN = 0.03  # three points: what an answer may cost that trains a fraction of the parameters
TOLERANCE = 1e-4  # largest difference of a logit that counts as rounding
PROBE_SENTENCES = 128  # whose logits are compared before and after fusing
REPORTED_PARAMETERS = 14_480_258  # of BERT-tiny, in public reports
MB = 1e-6


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in range(plan.profile.seeds):
        base = ways.judged(plan, seed)
        for way in ways.trainings(plan):
            yield {**base, **way}
        yield {"method": "before", **base}
        if seed == 0:
            yield {"method": "costs", **base, **ways.timings(plan)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab0_lora import adapter_costs, adapters

    if params["method"] == "costs":
        return adapter_costs.costs(params, ctx.device)
    if params["method"] == "before":
        return adapters.untrained(params, ctx.device)
    return adapters.trained(params, ctx.device, probe=PROBE_SENTENCES, tolerance=TOLERANCE)


# ---- what they reach ----------------------------------------------------------------------------


@page.claim(headline=True)
def lora_is_enough(r: Records) -> Judged:
    """LoRA is at most three points less accurate than full fine-tuning on the same sentences."""
    return _costs_little(f"LoRA of rank {RANK} reaches", lora(r), full(r))


@page.claim
def frozen_is_enough(r: Records) -> Judged:
    """Freezing the embeddings costs at most three points of accuracy."""
    return _costs_little("With the embeddings frozen the model reaches", frozen(r), full(r))


def _costs_little(who: str, a: Arm, b: Arm) -> Judged:
    said, points = f"{who} {a} on test sentences", f"{100 * MARGIN:g} points"
    tested = compare(a, b).no_worse(MARGIN)
    return tested.judge(
        supported=f"{said}, at most {points} less than full fine-tuning, which has {b}",
        refuted=f"{said}, more than {points} less than full fine-tuning, which has {b}",
        undecided=f"{said} and full fine-tuning {b}; whether that is more than {points} less is "
        f"open: {a - b:+i}",
    )


@page.claim
def sentences_matter(r: Records) -> Judged:
    """The starting point, fine-tuned in full on every sentence of the split, is more accurate."""
    a, b = fp32(r), full(r)
    few, many = f"{b.param('tune_examples'):,}", f"{a.value('num_train'):,}"
    said = f"On {few} sentences full fine-tuning reaches {b}"
    return compare(a, b).judge(
        supported=f"{said}; the starting point, the same model fine-tuned in full on all {many} "
        f"of the split, has {a}",
        refuted=f"{said}, more than the starting point, the same model fine-tuned in full on all "
        f"{many} of the split, with {a}",
        undecided=f"{said} and the starting point, the same model fine-tuned in full on all {many} "
        f"of the split, {a}: nothing tells them apart",
    )


@page.fact
def loss_still_falls(r: Records) -> Fact:
    seen = full(r).param("tune_examples")
    early, late = ways.losses_on_new_sentences(r, seen)
    return Fact(
        text=f"In the starting point's first pass, the loss on sentences that are new to it is "
        f"{number(early)} nats after the first {seen:,} sentences, and {number(late)} at the end",
        of=f"{fp32(r).value('num_train'):,} sentences; means over {seen:,} of them and the models",
    )


@page.chart(
    caption="Test accuracy with its interval: before any training, after the ways of training on "
    "the same few sentences, and of the starting point, which has seen the whole split."
)
def accuracy(r: Records) -> Chart:
    models = {**{a.label: a for a in ways.models(r)}, "the starting point": fp32(r)}
    rows = [{"model": label, "test accuracy": a} for label, a in models.items()]
    marks = [intervals("test accuracy")]
    return Chart(rows, x=percent("test accuracy"), y=category("model"), marks=marks)


@page.table
def methods(r: Records) -> Sequence[Row]:
    total = costs(r)["parameters"]["this model"][0]
    return [
        {
            "model": a.label,
            "trains": (trains := a.records[0].values["num_trainable"]),
            "of all before": per_cent(trains / total),
            "learning rate": ", ".join(f"{x:g}".replace("e-0", "e-") for x in ways.chosen_rates(a)),
            "validation": per_cent(a.validation),
            "test accuracy": a,
        }
        for a in ways.models(r)
    ]


page.fact(ways.rates_are_inside)


@page.chart(
    caption="Validation accuracy of each way of training at each learning rate that it tried, of "
    "several models the mean. Each model is judged on test at its own best."
)
def rates(r: Records) -> Chart:
    return Chart(
        ways.by_rate(r),
        x=log("learning rate"),
        y=percent("validation accuracy"),
        marks=[line(way.label) for way in ways.tuned(r)],
    )


# ---- what they change, and what they leave alone ------------------------------------------------


@page.fact(headline=True)
def trains_few(r: Records) -> Fact:
    trains, total = costs(r)["trainable"], costs(r)["parameters"]["this model"][0]
    few, still = trains["lora"], trains["frozen"]
    return Fact(
        text=f"With LoRA of rank {RANK}, {few:,} parameters train, the new head included: "
        f"{per_cent(few / total)} of the model; with frozen embeddings {still:,}, "
        f"{per_cent(still / total)}",
        of=f"{total:,} parameters",
    )


@page.fact
def graph_inputs(r: Records) -> Fact:
    found = r.one(method="inputs").values
    mask, labels = (found["graphs"][name]["removed"] for name in ("attention mask", "labels"))
    attention = found["attention"]
    return Fact(
        text=f"Without the attention mask {mask} nodes of the graph go, the input among them, and "
        f"{attention['masked']} of {attention['nodes']} attention nodes still get a mask that the "
        f"graph builds itself; without the labels {labels}, the input and the loss among them",
        of=f"{found['graphs']['nothing']['nodes']} nodes",
    )


page.fact(ways.unread_words_move)


@page.fact(headline=True)
def fused_is_close(r: Records) -> Fact:
    found = [record.values["fused"] for record in r.all(method="lora")]
    largest, scale = (max(f[name] for f in found) for name in ("largest", "logit_scale"))
    answers, n = sum(f["other_answers"] for f in found), max(f["sentences"] for f in found)
    return Fact(
        text=f"Fusing moves no logit by more than {f'{largest:.1e}'.replace('e-0', 'e-')}, where "
        f"logits reach {number(scale)}, and changes {answers} answers, in FP32; with the products "
        f"that the page's models are judged with ({ways.products(r)}), {ways.fusing_changes(r)}",
        of=f"in FP32 {n:,} test sentences, else all; models, at every rank: {len(found)}",
    )


# ---- what they cost -----------------------------------------------------------------------------

STEPS = {"lora": f"with LoRA of rank {RANK}", "full": "in full"}


@page.claim
def step_time(r: Records) -> Judged:
    """A training step with LoRA takes less time than one of full fine-tuning."""
    a, b = (step(r, method, f"a training step {how}") for method, how in STEPS.items())
    return faster(a, b, f"on {costs(r)['tokens']:,} tokens")


@page.claim
def fused_time(r: Records) -> Judged:
    """A forward pass is faster with the adapters fused than with them beside the weights."""
    labels = {"fused": "a fused forward pass", "adapters": "one with adapters beside the weights"}
    a, b = (step(r, k, v) for k, v in labels.items())
    return faster(a, b, f"at rank {RANK} on {costs(r)['tokens']:,} tokens")


@page.fact(headline=True)
def step_memory(r: Records) -> Fact:
    said = (
        f"{number(measured(r, method) * MB)} MB {how} (counted: "
        f"{number(at_peak(counted(r, method)) * MB)}; "
        f"{number(standing(counted(r, method)) * MB)} of either is counted weights and moments)"
        for method, how in reversed(STEPS.items())
    )
    took = {method: step(r, method) for method in ("full", "frozen", "lora")}
    return Fact(
        text=f"At its peak a training step holds {' and '.join(said)}; it takes {took['full']} in "
        f"full, {took['frozen']} with frozen embeddings and {took['lora']} with LoRA",
        of=f"one step on {costs(r)['tokens']:,} tokens; times of one run",
    )


STANDING = {"weights": "weights", "optimizer": "AdamW's two moments"}  # between steps
PASSING = ("gradients", "saved")  # the one comes while the other goes: the larger counts
LARGER = "the larger of gradients and saved"


def at_peak(parts: Mapping[str, int]) -> int:
    """Bytes."""
    return standing(parts) + max(parts[part] for part in PASSING)


def standing(parts: Mapping[str, int]) -> int:
    """Bytes."""
    return sum(parts[part] for part in STANDING)


@page.chart(
    caption="What a training step has in memory, counted from its tensors by what they are for, "
    "and the measured peak: the weights and moments of the count, and what the allocator added to "
    "them during a step. Gradients come while what was saved for backward goes, so of these two a "
    "bar has the larger; the table has both."
)
def memory(r: Records) -> Chart:
    arms = {"full": full(r), "frozen": frozen(r), "lora": lora(r)}
    rows = [
        {
            "way of training": arms[method].label,
            **{title: counted(r, method)[part] for part, title in STANDING.items()},
            **{f"{part} (MB)": number(counted(r, method)[part] * MB) for part in PASSING},
            LARGER: at_peak(counted(r, method)) - standing(counted(r, method)),
            "measured peak": measured(r, method),
            "time of a step": step(r, method),
        }
        for method in arms
    ]
    return Chart(
        rows,
        x=linear(label="held by a step", unit="MB", factor=MB),
        y=category("way of training"),
        marks=[bars(*STANDING.values(), LARGER, stacked=True), intervals("measured peak")],
    )


# ---- counting parameters ------------------------------------------------------------------------


@page.fact
def nested_sum(r: Records) -> Fact:
    unique, nested = costs(r)["parameters"]["BERT-tiny"]
    quoted = "the number" if nested == REPORTED_PARAMETERS else f"not the {REPORTED_PARAMETERS:,}"
    return Fact(
        text=f"BERT-tiny's shape has {unique:,} parameters; adding up the listing of its nested "
        f"modules gives {nested:,}, {quoted} that a public report gives",
        of="all parameters of its configuration",
    )


@page.table
def counts(r: Records) -> Sequence[Row]:
    return [
        {"model": name, "parameters": unique, "sum over nested modules": nested}
        for name, (unique, nested) in costs(r)["parameters"].items()
    ]
