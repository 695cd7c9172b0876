"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The best model of 1.1, by validation loss on the tuning seed, is pruned: its weights, its inputs, or
both. Times and bytes are measured on one layer with zeros, in processes of its own.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from experiments.lab1_pruning import design
from experiments.lab1_pruning.design import FAR, HALF, MOST, THIRD
from madl.logbook.arms import Arm, TimedArm, arm, timed_arm
from madl.logbook.charts import Chart, level, line, linear, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, contended_processes, exact, percentage
from madl.logbook.records import Params, Record, Records, Row, Scalar
from madl.logbook.searches import rate_rows
from madl.logbook.values import number, per_cent
from madl.training import baseline, compressed

WIDTH_STUDY = "lab1_quantization"  # where the starting model comes from

page = Experiment(
    needs=(WIDTH_STUDY,),
    timed=lambda params: params["part"] == "cost",
)

STEM = "lab1_pruning"
METHODS = {"l1": "L1-norm", "random": "Random"}
FORMAT = ("operands", "width", "frac_width", "input_frac_width")


def start(plan: Plan) -> Params:
    """Parameters of the best model of 1.1: its format, and its training if it was trained on.

    Of the formats whose validation loss is within `TIE_NATS` of the least, it is the narrowest:
    products of few bits are the cheapest.
    """
    tuned = plan.records(f"{WIDTH_STUDY}{TUNING}")
    by_loss: list[tuple[float, Params]] = []
    for record in tuned.all(method="sweep", operands="both"):
        values, format_ = record.values, selected(record, "operands", "width")
        points = {"frac_width": values["weights"], "input_frac_width": values["inputs"]}
        by_loss.append((values["loss"], {**format_, **points}))
    for record in tuned.all(method="qat"):
        params = selected(record, *FORMAT, *compressed.TUNE_FIELDS)
        by_loss.append((record.values["validation_loss"], params))
    least = min(loss for loss, _ in by_loss)
    tied = [params for loss, params in by_loss if loss <= least + design.TIE_NATS]
    return min(tied, key=lambda params: int(params["width"] or 0))


def selected(record: Record, *names: str) -> Params:
    """The parameters of these names of a record's case."""
    return {name: record.case.params[name] for name in names}


def recovery(plan: Plan, rate: float = design.RATE, *, short: bool = False) -> Params:
    """Parameters of the training after pruning: over all sentences, or over a few (`short`)."""
    num_examples = design.SHORT_SENTENCES if short else None
    return {
        "recovery": "short" if short else "a pass",
        "recovery_examples": plan.profile.choose(smoke=32, quick=num_examples),
        "recovery_learning_rate": rate,
        "recovery_batch_size": design.RECOVERY_BATCH,
    }


def pruning(part: str, method: str, sparsity: float) -> Params:
    return {"part": part, "pruning": method, "sparsity": sparsity}


NOTHING: Params = {"part": "nothing", "sparsity": 0.0}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    base = {**baseline.drawn_params(plan, TUNING_SEED), **start(plan)}
    points = {
        "nothing": NOTHING,
        "l1": pruning("weights", "l1", HALF),
        "random": pruning("weights", "random", THIRD),
    }
    for name, rates in design.RATES_TRIED.items():
        for rate in plan.profile.choose(smoke=rates[:1], quick=rates):
            yield {**base, **points[name], **recovery(plan, rate)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, chosen, first = plan.profile.choose, start(plan), plan.seeds[0]
    points = product(
        design.PARTS, choose(smoke=(THIRD, HALF, MOST), quick=design.SPARSITIES), METHODS
    )
    untrained = [(part, method, sparsity) for part, sparsity, method in points]
    sparsities = design.SPARSITIES_TRAINED.items()
    trained = [("weights", method, sparsity) for method, each in sparsities for sparsity in each]
    for seed in plan.seeds:
        base = {**baseline.drawn_params(plan, seed), **chosen}
        for part, method, sparsity in untrained:
            is_quiet = method == "l1" or sparsity < design.GUESSING_SPARSITY
            if seed == first or (part == "weights" and is_quiet):
                yield {**base, **pruning(part, method, sparsity)}
        yield {**base, **NOTHING, **recovery(plan)}
        for point in (*trained, *(design.POINTS_TRAINED_ONCE if seed == first else ())):
            yield {**base, **pruning(*point), **recovery(plan)}
    base = {**baseline.drawn_params(plan, first), **chosen}
    yield {**base, **pruning("inputs", "fresh random", THIRD)}
    yield {**base, **pruning("weights", "l1", FAR), **recovery(plan, short=True)}
    yield {**base, "part": "magnitudes", "sparsity": HALF}
    yield {
        **{**base, "part": "cost", "sparsities": ", ".join(map(str, design.TIMED_SPARSITIES))},
        "processes": choose(smoke=1, quick=design.PROCESSES),
        "budget_s": choose(smoke=0.0, quick=design.BUDGET_S),
    }


@page.quick
def quick(params: Params) -> bool:
    is_shown = params["part"] == "weights" and params.get("sparsity") in (THIRD, HALF)
    return params["seed"] == CONFIRMING_SEEDS[0] and is_shown and "recovery" not in params


def control(r: Records) -> Arm:
    """The models with nothing removed, trained on for as long as the pruned ones."""
    return arm(r.of_experiment(STEM), "nothing removed, trained as long", part="nothing")


def untouched(r: Records) -> Arm:
    """The starting models, as 1.1 judged them: nothing removed, and not trained on."""
    first = recovered(r, HALF).records[0]
    method = "qat" if "tune_learning_rate" in first.case.params else "ptq"
    one_step = r.of_experiment(WIDTH_STUDY).without("step_per")
    return arm(one_step, "nothing removed", method=method, **selected(first, *FORMAT))


def pruned(r: Records, at: float, method: str = "l1", part: str = "weights") -> Arm:
    """The models with the share `at` of a part removed, before any training."""
    untrained = r.of_experiment(STEM).without("recovery")
    return arm(untrained, METHODS.get(method, method), part=part, pruning=method, sparsity=at)


def recovered(
    r: Records, at: float, method: str = "l1", part: str = "weights", *, after: str = "a pass"
) -> Arm:
    """The models with the share `at` of a part removed and trained on: "a pass" or "short"."""
    where = {"part": part, "pruning": method, "sparsity": at, "recovery": after}
    return arm(r.of_experiment(STEM), f"{METHODS[method]}, trained on", **where)


def product_time(r: Records, kind: str, at: float | None = None) -> TimedArm:
    """Times of one layer's product: "dense", or "masked" or "csr" with the share `at` removed."""
    return timed_arm(r.of_experiment(STEM), kind if at is None else f"{kind} {at}", part="cost")


@page.claim(primary=True)
def half_costs_little(r: Records) -> Contrast:
    """With half of the Linear weights removed by L1-norm and a pass of training, accuracy is at
    most two points below nothing removed, not trained on: which validation loss prefers."""
    return compare(recovered(r, HALF), untouched(r)).no_worse(design.MARGIN)


@page.claim(primary=True)
def l1_beats_random(r: Records) -> Contrast:
    """With 30 % of the weights removed and the same pass of training, L1-norm pruning is more
    accurate than random pruning."""
    return compare(recovered(r, THIRD), recovered(r, THIRD, "random"))


@page.claim
def l1_beats_random_untrained(r: Records) -> Contrast:
    """30 % of the weights removed, untrained: L1-norm over random."""
    return compare(pruned(r, THIRD), pruned(r, THIRD, "random"))


@page.claim
def training_on_helps(r: Records) -> Contrast:
    """Half of the weights removed by L1-norm: a pass of training over none."""
    return compare(recovered(r, HALF), pruned(r, HALF))


@page.claim
def half_beside_training(r: Records) -> Contrast:
    """Half of the weights removed by L1-norm over nothing removed, both trained on."""
    return compare(recovered(r, HALF), control(r))


@page.claim
def l1_at_30(r: Records) -> Contrast:
    """30 % of the weights removed by L1-norm over nothing removed, both trained on."""
    return compare(recovered(r, THIRD), control(r))


@page.claim
def random_at_30(r: Records) -> Contrast:
    """30 % of the weights removed at random over nothing removed, both trained on."""
    return compare(recovered(r, THIRD, "random"), control(r))


def bearable(r: Records, *removed: float) -> ExactValue:
    """The share of the weights that L1-norm can remove before the first model, trained on, falls
    `MARGIN` below nothing removed; its curve is straight between the shares `removed`."""
    whole = untouched(r).first
    arms = [recovered(r, at).first for at in removed]
    losses = (compare(a, whole).comparison.by_unit[0] for a in arms)
    lines = pairwise(zip((0.0, *removed), (0.0, *losses)))
    crossings = (
        x0 + (x1 - x0) * (-design.MARGIN - y0) / (y1 - y0)
        for (x0, y0), (x1, y1) in lines
        if y1 <= -design.MARGIN
    )
    share = next(crossings, removed[-1])
    return percentage(share, [record for a in (whole, *arms) for record in a.records])


def kept(r: Records, method: str, at: float = HALF) -> ExactValue:
    """The share of the weights' squared magnitude that is left where the share `at` is removed."""
    a = pruned(r, at, method)
    return percentage(fmean(shares["l2"] for shares in a.values("kept")), a.records)


def products_left(r: Records, part: str) -> ExactValue:
    """The share of products without a zero factor in the first model, where L1 removes half."""
    a = pruned(r, HALF, part=part).first
    return percentage(a.value("zeros")["products"], a.records)


def changed(r: Records) -> ExactValue:
    """The share of answers that change in a second run, if the input mask is drawn anew."""
    a = pruned(r, THIRD, "fresh random", "inputs").first
    return percentage(a.value("changed") / a.value("of"), a.records)


def num_short(r: Records) -> ExactValue:
    """The number of training sentences of a short training after pruning."""
    a = recovered(r, FAR, after="short")
    return exact(a.param("recovery_examples"), a.records)


page.numbers(
    as_long=half_beside_training,
    l1_near=partial(pruned, at=design.NEAR_SPARSITIES["l1"]),
    random_near=partial(pruned, at=design.NEAR_SPARSITIES["random"], method="random"),
    kept_l1_near=partial(kept, method="l1", at=design.NEAR_SPARSITIES["l1"]),
    kept_random_near=partial(kept, method="random", at=design.NEAR_SPARSITIES["random"]),
    l1=partial(recovered, at=THIRD),
    random=partial(recovered, at=THIRD, method="random"),
    l1_half=partial(recovered, at=HALF),
    l1_half_before=partial(pruned, at=HALF),
    l1_far=lambda r: recovered(r, FAR).first,
    l1_far_short=lambda r: recovered(r, FAR, after="short").first,
    l1_far_before=lambda r: pruned(r, FAR).first,
    both_far=lambda r: recovered(r, FAR, part="both").first,
    inputs_half_before=lambda r: pruned(r, HALF, part="inputs").first,
    both_half_before=lambda r: pruned(r, HALF, part="both").first,
    l1_bearable=lambda r: bearable(r, THIRD, HALF, 0.7, FAR),
    random_lost=lambda r: compare(recovered(r, THIRD, "random"), untouched(r)),
    intact=control,
    guessing=baseline.guessing,
    kept_l1=partial(kept, method="l1"),
    kept_random=partial(kept, method="random"),
    left_weights=partial(products_left, part="weights"),
    left_both=partial(products_left, part="both"),
    changed=changed,
    fixed=lambda r: pruned(r, THIRD, "random", "inputs").first,
    fresh=lambda r: pruned(r, THIRD, "fresh random", "inputs").first,
    tenth_of_both=lambda r: pruned(r, 0.1, "random", "both").first,
    contended=contended_processes,
    csr_half=lambda r: product_time(r, "csr", HALF) / product_time(r, "dense"),
    csr_most=lambda r: product_time(r, "dense") / product_time(r, "csr", MOST),
    num_short=num_short,
    num_test=lambda r: exact(control(r).accuracy.n, control(r).records),
)


def sparsities(r: Records, part: str, method: str, **where: Scalar) -> list[float]:
    """The shares removed in the cases with that part, method and parameters."""
    return r.of_experiment(STEM).where(part=part, pruning=method, **where).param_values("sparsity")


def accuracy_rows(r: Records, part: str) -> list[dict[str, Any]]:
    """A row for each share removed, 0 first: arms as pruned and trained on, of both methods."""
    before, after = untouched(r), control(r)
    if part != "weights":  # which one model alone was judged on
        before, after = before.first, after.first
    row: dict[str, Any] = {f"{name}, as pruned": before for name in METHODS.values()}
    rows = {0.0: {"removed": 0.0, **row, **dict.fromkeys(METHODS.values(), after)}}
    for method, name in METHODS.items():
        for at in sparsities(r.without("recovery"), part, method):
            row = rows.setdefault(at, {"removed": at})
            row[f"{name}, as pruned"] = pruned(r, at, method, part)
        for at in sparsities(r, part, method, recovery="a pass"):
            rows.setdefault(at, {"removed": at})[name] = recovered(r, at, method, part)
    return [rows[at] for at in sorted(rows)]


def accuracy_chart(r: Records, rows: Sequence[Row], facet: str | None = None) -> Chart:
    lines = [line(f"{name}, as pruned", like=name) for name in METHODS.values()]
    return Chart(
        rows,
        x=percent("removed", column="removed"),
        y=percent("test accuracy"),
        marks=[level(baseline.larger_class(r), "guessing"), *map(line, METHODS.values()), *lines],
        facet=facet,
    )


@page.chart
def accuracy(r: Records) -> Chart:
    return accuracy_chart(r, accuracy_rows(r, "weights"))


@page.chart
def inputs_and_both(r: Records) -> Chart:
    parts = ("inputs", "both")
    rows = [{"pruned": part, **row} for part in parts for row in accuracy_rows(r, part)]
    return accuracy_chart(r, rows, "pruned")


@page.chart
def histogram(r: Records) -> Chart:
    """Histograms of one layer's weights by magnitude: all, and those kept by masks of half."""
    counts = r.of_experiment(STEM).single(part="magnitudes").values
    total, width = sum(counts["all"]), counts["top"] / len(counts["all"])
    kept_by = {method: f"kept by {name}" for method, name in METHODS.items()}
    rows = [
        {"magnitude": (i + 0.5) * width, "all weights": count / total}
        | {name: counts[method][i] / total for method, name in kept_by.items()}
        for i, count in enumerate(counts["all"])
    ]
    lines = [line(name, markers=False, like=METHODS[m]) for m, name in kept_by.items()]
    return Chart(
        rows,
        x=linear("magnitude", "magnitude of the weight"),
        y=percent("share of the weights"),
        marks=[line("all weights", markers=False), *lines],
    )


@page.table
def points(r: Records) -> Sequence[Row]:
    """Accuracy by method and share of the weights that is removed, as pruned and trained on."""
    rows: list[Row] = []
    for row in accuracy_rows(r, "weights"):
        cells: dict[str, Any] = {"removed": f"{100 * row['removed']:g} %"}
        for name in METHODS.values():
            cells |= {f"{name}, as pruned": row.get(f"{name}, as pruned", "")}
            cells |= {f"{name}, trained on": row.get(name, "")}
        rows.append(cells)
    return rows


@page.table
def every(r: Records) -> Sequence[Row]:
    """Accuracy as pruned, and the zeros and products that L1 leaves, by part and share removed."""
    rows: list[Row] = []
    for part in design.PARTS:
        for at in sparsities(r.without("recovery"), part, "l1"):
            zeros = pruned(r, at, part=part).values("zeros")
            accuracies = {name: pruned(r, at, m, part) for m, name in METHODS.items()}
            shares = {
                title: per_cent(fmean(model[name] for model in zeros))
                for name, title in ZEROS.items()
            }
            rows.append({"pruned": part, "removed": f"{100 * at:g} %", **accuracies, **shares})
    return rows


ZEROS = {"weights": "zero weights", "inputs": "zero inputs", "products": "products left"}


@page.table
def costs(r: Records) -> Sequence[Row]:
    """Speed and bytes of one pruned layer, beside the accuracy of a model with as many zeros."""
    dense, num_bytes = (
        product_time(r, "dense"),
        r.of_experiment(STEM).single(part="cost").values["bytes"],
    )
    return [
        {
            "weights removed": f"{100 * float(at):g} %",
            "accuracy as pruned": pruned(r, float(at)),
            "masked, speed": dense / product_time(r, "masked", float(at)),
            "CSR, speed": dense / product_time(r, "csr", float(at)),
            "CSR, bytes": f"{number(stored['csr'] / stored['dense'])} ×",
        }
        for at, stored in sorted(num_bytes.items())
    ]


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a pass of training, by learning rate."""
    trainings: dict[str, Params] = {
        "nothing removed": {"part": "nothing"},
        "half of the weights removed, L1-norm": {"pruning": "l1"},
        "three in ten removed, random": {"pruning": "random"},
    }
    chosen = dict.fromkeys(trainings, design.RATE)
    return rate_rows(r.tuning, trainings, "recovery_learning_rate", chosen=chosen)
