"""The ways of training that question 0.2 compares: what each tries, and their models as arms.

Every way sees the same sentences in the same order, in as many steps, and tries as many learning
rates around one that is usual for it. Imports no torch: plans and pages are made of it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import fmean

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.claims import Fact
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import listed, span
from madl.training import baseline

RANK = 8  # the middle of those that LoRA's paper tries; fixed before any run
ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
USUAL = {"full": 1e-4, "frozen": 1e-4, "lora": 2e-3}  # learning rates


def factors(plan: Plan) -> tuple[float, ...]:
    """By which the usual learning rate is changed to give those that are tried."""
    near = (0.5, 0.7, 1, 1.4, 2)
    return plan.profile.choose(smoke=(0.5, 1, 2), quick=near)


def judged(plan: Plan, seed: int) -> Params:
    """Model and data: the baseline's parameters but for how it was trained."""
    trained = ("epochs", "learning_rate", "batch_size")
    return {k: v for k, v in baseline.recipe_params(plan, seed).items() if k not in trained}


def trainings(plan: Plan) -> Iterator[Params]:
    """Each way of training."""
    choose = plan.profile.choose
    common = {
        "tune_examples": choose(smoke=32, quick=512),
        "tune_batch_size": choose(smoke=8, quick=8),
    }
    for method, usual in USUAL.items():
        rates = " ".join(f"{usual * factor:g}" for factor in factors(plan))
        way = {"method": method, **common, "tune_learning_rates": rates}
        if method == "lora":
            for rank in choose(smoke=(RANK,), quick=(RANK,), full=(2, RANK, 32)):
                yield {**way, "rank": rank, "alpha": ALPHA}
        else:
            yield way


def timings(plan: Plan) -> Params:
    """How the costs of a step are taken."""
    choose = plan.profile.choose
    budget = {"budget_s": choose(smoke=0.0, quick=0.1, full=1.0)}
    return {"rank": RANK, "alpha": ALPHA, "processes": choose(smoke=1, quick=5, full=9), **budget}


# ---- arms ---------------------------------------------------------------------------------------


def untrained(r: Records) -> Arm:
    return arm(r, "untrained head", method="before")


def full(r: Records) -> Arm:
    return arm(r, "full fine-tuning", method="full")


def frozen(r: Records) -> Arm:
    return arm(r, "frozen embedding", method="frozen")


def lora(r: Records, rank: int = RANK) -> Arm:
    return arm(r, f"LoRA, rank {rank}", method="lora", rank=rank)


def fused(r: Records) -> Arm:
    """LoRA's model with its adapters in the weights."""
    beside = lora(r)
    return Arm(label=f"{beside.label}, fused", records=beside.records, within=("fused", "judged"))


def tuned(r: Records) -> list[Arm]:
    """All that tried learning rates, LoRA at every rank."""
    return [*(lora(r, n) for n in r.all(method="lora").each("rank")), frozen(r), full(r)]


def models(r: Records) -> list[Arm]:
    """All that were judged on test."""
    *adapted, still, whole = tuned(r)
    return [untrained(r), *adapted, fused(r), still, whole]


def tried(way: Arm) -> list[float]:
    """The learning rates that were tried."""
    return [one["learning_rate"] for one in way.records[0].values["tried"]]


def chosen_rates(way: Arm) -> list[float]:
    """What validation chose for each model; none where nothing was trained."""
    found = (record.values.get("learning_rate") for record in way.records)
    return [rate for rate in found if rate is not None]


def rates_are_inside(r: Records) -> Fact:
    """How many of the chosen learning rates have a lower and a higher one that was tried too."""
    chosen = [(way, rate) for way in tuned(r) for rate in chosen_rates(way)]
    at_end = [way.label for way, rate in chosen if rate in (min(tried(way)), max(tried(way)))]
    named = listed([f"{label} ({count})" for label, count in Counter(at_end).items()])
    return Fact(
        text=f"{len(chosen) - len(at_end)} of {len(chosen)} chosen learning rates lie inside those "
        f"that were tried, and {len(at_end)} at an end{f': {named}' * bool(at_end)}",
        of=f"{len(tried(full(r)))} learning rates for each model of a way",
    )


def unread_words_move(r: Records) -> Fact:
    """What full fine-tuning does to the rows of words that its sentences do not have."""
    way = full(r)
    rows = way.each("rows")

    def said(*names: str) -> str:
        return f"{span(1e3 * row[name] for row in rows for name in names)} ‰"

    return Fact(
        text=f"Full fine-tuning reads {span(row['read'] for row in rows)} rows of the word table "
        f"and moves the median one of them by {said('read_median')} of its length; the other rows "
        f"move too, by {said('others_least', 'others_most')}, where weight decay alone makes "
        f"{said('decay')}",
        of=f"{rows[0]['rows']:,} rows, {way.param('tune_examples'):,} sentences, models: "
        f"{len(rows)}",
    )


def by_rate(r: Records) -> list[Row]:
    """Validation accuracy of each way at each learning rate that it tried, the mean over seeds."""
    rows: list[Row] = []
    for way in tuned(r):
        seeds = [record.values["tried"] for record in way.records]
        for i, rate in enumerate(tried(way)):
            accuracy = fmean(seed[i]["validation_accuracy"] for seed in seeds)
            rows.append({"learning rate": rate, way.label: accuracy})
    return rows


def losses_on_new_sentences(r: Records, seen: int) -> tuple[float, float]:
    """The starting point's training loss after so many sentences, and at the end of its first pass.

    In a first pass every batch is new when its loss is taken. Both are means over `seen` sentences
    and over the models.
    """
    base = baseline.fp32(r)
    size = int(base.param("batch_size") or 1)
    steps = math.ceil(base.value("num_train") / size)
    window = min(max(seen // size, 1), steps // 2)
    every = [losses[:steps] for losses in base.each("losses")]
    early = fmean(fmean(losses[window : 2 * window]) for losses in every)
    return early, fmean(fmean(losses[-window:]) for losses in every)


# ---- costs --------------------------------------------------------------------------------------


def costs(r: Records) -> Values:
    return r.one(method="costs").values


def products(r: Records) -> str:
    """Those of all these models, by the records."""
    kinds = {record.values["bf16"] for record in r.all(method="lora")}
    return " or ".join("bfloat16" if is_bf16 else "float32" for is_bf16 in sorted(kinds))


def fusing_changes(r: Records) -> str:
    """How many answers differ between the adapters and the fused models, of how many."""
    every = [record.values for record in r.all(method="lora")]
    pairs = [(one["outcomes"], one["fused"]["judged"]["outcomes"]) for one in every]
    changed = sum(beside.differing(fused) for beside, fused in pairs)
    return f"{changed:,} of {sum(beside.n for beside, _ in pairs):,}"


def step(r: Records, method: str, label: str = "") -> TimedArm:
    """A training step, timed; or a forward pass, "fused" or with the "adapters" beside."""
    return timed(r, method, label, method="costs")


def counted(r: Records, method: str) -> Mapping[str, int]:
    """Bytes of a step by what they are for, from its tensors."""
    return costs(r)["counted"][method]


def measured(r: Records, method: str) -> int:
    """Bytes at a step's peak: what lies there between steps, and what the allocator adds."""
    parts, first = counted(r, method), costs(r)["measurements"][method][0]
    return parts["weights"] + parts["optimizer"] + first["peak_bytes"]
