"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The best model of 1.1, by validation loss on the tuning seed, is pruned: its weights, its inputs, or
both. Times and bytes are measured on one layer with zeros, in processes of its own.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from experiments.lab1_pruning import design
from experiments.lab1_pruning.design import FAR, HALF, MOST, THIRD
from madl.logbook.arms import Arm, TimedArm, arm, of_models, timed_arm
from madl.logbook.charts import Chart, level, line, linear, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, contended_processes, exact, of_all, percentage
from madl.logbook.records import Params, Record, Records, Row, Scalar
from madl.logbook.searches import loss_above_least, rate_rows
from madl.logbook.values import number, per_cent
from madl.training import baseline

WIDTH_STUDY = "lab1_quantization"  # where the starting model comes from

page = Experiment(
    needs=(WIDTH_STUDY,),
    timed=lambda params: params["part"] == "cost",
)

STEM = "lab1_pruning"
METHODS = {"l1": "L1-norm", "random": "Random"}
FORMAT = ("operands", "width", "frac_width", "input_frac_width")


def start(plan: Plan) -> Params:
    """The format of the best model of 1.1 that is quantized alone: training follows here.

    Of the formats whose validation loss is within `TIE_NATS` of the least, it is the narrowest:
    products of few bits are the cheapest.
    """
    sweeps = plan.records(f"{WIDTH_STUDY}{TUNING}").all(method="sweep", operands="both")
    least = min(sweep.values["loss"] for sweep in sweeps)
    tied = [sweep for sweep in sweeps if sweep.values["loss"] <= least + design.TIE_NATS]
    best = min(tied, key=lambda sweep: int(sweep.case.params["width"] or 0))
    points = {"frac_width": best.values["weights"], "input_frac_width": best.values["inputs"]}
    return {"operands": "both", "width": best.case.params["width"], **points}


def recovery(plan: Plan, rate: float) -> Params:
    """Parameters of a pass of training after pruning, over all sentences."""
    return {
        "recovery": "a pass",
        "recovery_examples": plan.profile.choose(smoke=32, quick=None),
        "recovery_learning_rate": rate,
        "recovery_batch_size": design.RECOVERY_BATCH,
    }


def pruning(part: str, method: str, sparsity: float) -> Params:
    return {"part": part, "pruning": method, "sparsity": sparsity}


def chosen_rate(part: str, method: str, sparsity: float) -> float:
    """The learning rate of the tuned point that is most like this one."""
    if part == "both":
        return design.RATES[f"half of both, {'random' if method == 'random' else 'L1-norm'}"]
    if method == "random":
        return design.RATES["half of the weights, random"]
    removed = "80 %" if sparsity >= FAR else "half"
    return design.RATES[f"{removed} of the weights, L1-norm"]


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    base = {**baseline.drawn_params(plan, TUNING_SEED), **start(plan)}
    for name, rates in design.RATES_TRIED.items():
        for rate in choose(smoke=rates[:1], quick=rates):
            yield {**base, **design.POINTS[name], **recovery(plan, rate)}
    for point in choose(smoke=(), quick=[p for p in design.POINTS.values() if p["part"] == "both"]):
        rate = chosen_rate("both", str(point["pruning"]), HALF)
        longer = {"recovery": "five passes", "recovery_epochs": design.PASSES_ASKED}
        yield {**base, **point, **recovery(plan, rate), **longer}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, chosen, first = plan.profile.choose, start(plan), plan.seeds[0]
    points = list(
        product(design.PARTS, METHODS, choose(smoke=(HALF, FAR), quick=design.SPARSITIES))
    )
    for seed in plan.seeds:
        base = {**baseline.drawn_params(plan, seed), **chosen}
        for part, method, sparsity in points:
            is_quiet = method == "l1" or sparsity < design.GUESSING_SPARSITY
            if seed == first or (part == "both" and is_quiet):
                yield {**base, **pruning(part, method, sparsity)}
        for method, sparsity in design.OF_WEIGHTS:
            yield {**base, **pruning("weights", method, sparsity)}
        yield {**base, **design.POINTS["nothing"], **recovery(plan, design.RATES["nothing"])}
        trained_on = [
            (part, method, sparsity)
            for part, method, sparsity in points
            if part == "both" and (seed == first or sparsity in design.SPARSITIES_ON_ALL)
        ]
        trained_on += [("weights", *point) for point in design.OF_WEIGHTS]
        for point in trained_on:
            yield {**base, **pruning(*point), **recovery(plan, chosen_rate(*point))}
    base = {**baseline.drawn_params(plan, first), **chosen}
    yield {**base, **pruning("inputs", "fresh random", THIRD)}
    yield {**base, "part": "magnitudes", "sparsity": HALF}
    yield {
        **{**base, "part": "cost", "sparsities": ", ".join(map(str, design.TIMED_SPARSITIES))},
        "processes": choose(smoke=1, quick=design.PROCESSES),
        "budget_s": choose(smoke=0.0, quick=design.BUDGET_S),
    }


@page.quick
def quick(params: Params) -> bool:
    is_shown = params["part"] == "both" and params.get("sparsity") in (THIRD, HALF)
    return params["seed"] == CONFIRMING_SEEDS[0] and is_shown and "recovery" not in params


def control(r: Records) -> Arm:
    """The models with nothing removed, trained on for as long as the pruned ones."""
    return arm(r.of_experiment(STEM), "nothing removed, trained as long", part="nothing")


def untouched(r: Records) -> Arm:
    """The starting models, as 1.1 judged them: nothing removed, and not trained on."""
    of = recovered(r, HALF).records[0].case.params
    plain = r.of_experiment(WIDTH_STUDY).without("bias")
    return arm(plain, "nothing removed", method="ptq", **{name: of[name] for name in FORMAT})


def pruned(r: Records, at: float, method: str = "l1", part: str = "weights") -> Arm:
    """The models with the share `at` of a part removed, before any training."""
    untrained = r.of_experiment(STEM).without("recovery")
    return arm(untrained, METHODS.get(method, method), part=part, pruning=method, sparsity=at)


def recovered(r: Records, at: float, method: str = "l1", part: str = "weights") -> Arm:
    """The models with the share `at` of a part removed, and then a pass of training."""
    where = {"part": part, "pruning": method, "sparsity": at, "recovery": "a pass"}
    return arm(r.of_experiment(STEM), f"{METHODS.get(method, method)}, trained on", **where)


def product_time(r: Records, kind: str, at: float | None = None) -> TimedArm:
    """Times of one layer's product: "dense", or "masked" or "csr" with the share `at` removed."""
    return timed_arm(r.of_experiment(STEM), kind if at is None else f"{kind} {at}", part="cost")


@page.claim(primary=True)
def random_is_as_good(r: Records) -> Contrast:
    """Once trained, a model with half of its weights and inputs removed at random is as accurate as
    one with the smallest half removed (L1-norm): at most a point less."""
    random, l1 = (recovered(r, HALF, method, "both") for method in ("random", "l1"))
    return compare(random, l1).no_worse()


@page.claim(primary=True)
def four_in_five_can_go(r: Records) -> Contrast:
    """80 % of the Linear weights can go, the smallest: after a pass of training, accuracy is at
    most a point below nothing removed."""
    return compare(recovered(r, FAR), untouched(r)).no_worse()


@page.claim
def half_of_the_weights(r: Records) -> Contrast:
    """Half of the weights removed by L1-norm and trained on, over nothing removed."""
    return compare(recovered(r, HALF), untouched(r))


@page.claim
def beside_training(r: Records) -> Contrast:
    """Half of the weights removed by L1-norm over nothing removed, both trained on."""
    return compare(recovered(r, HALF), control(r))


@page.claim
def far_beside_training(r: Records) -> Contrast:
    """80 % of the weights removed by L1-norm over nothing removed, both trained on."""
    return compare(recovered(r, FAR), control(r))


@page.claim
def half_of_both(r: Records) -> Contrast:
    """Half of weights and inputs removed by L1-norm and trained on, over nothing removed."""
    return compare(recovered(r, HALF, part="both"), untouched(r))


@page.claim
def training_on_helps(r: Records) -> Contrast:
    """Half of weights and inputs removed by L1-norm: a pass of training over none."""
    return compare(recovered(r, HALF, part="both"), pruned(r, HALF, part="both"))


@page.claim
def random_at_30(r: Records) -> Contrast:
    """30 % of weights and inputs removed, trained on: random over L1-norm."""
    random, l1 = (recovered(r, THIRD, method, "both") for method in ("random", "l1"))
    return compare(random, l1)


@page.claim
def wanda(r: Records) -> Contrast:
    """Half of the weights removed, trained on: Wanda over L1-norm."""
    return compare(recovered(r, HALF, "wanda"), recovered(r, HALF))


@page.claim
def wanda_untrained(r: Records) -> Contrast:
    """Half of the weights removed, untrained: Wanda over L1-norm."""
    return compare(pruned(r, HALF, "wanda"), pruned(r, HALF))


@page.claim
def random_weights(r: Records) -> Contrast:
    """Half of the weights removed, trained on: at random over L1-norm."""
    return compare(recovered(r, HALF, "random"), recovered(r, HALF))


@page.claim
def two_of_four(r: Records) -> Contrast:
    """Half of the weights removed, trained on: two of every four over L1-norm."""
    return compare(recovered(r, HALF, "2:4"), recovered(r, HALF))


def kept(r: Records, method: str, at: float = HALF) -> ExactValue:
    """The share of the weights' squared magnitude that is left where the share `at` is removed."""
    a = pruned(r, at, method)
    return percentage(fmean(shares["l2"] for shares in a.values("kept")), a.records)


def counted(models: Arm, kind: str) -> ExactValue:
    """A share of zeros, of "weights" or "inputs", or of the "products" left: mean of the models."""
    return percentage(fmean(zeros[kind] for zeros in models.values("zeros")), models.records)


def drawn_anew(r: Records) -> Arm:
    """The model whose input mask is drawn anew at every forward."""
    return pruned(r, THIRD, "fresh random", "inputs").first


def changed(r: Records) -> ExactValue:
    """The share of answers that change in a second run, if the input mask is drawn anew."""
    a = drawn_anew(r)
    return percentage(a.value("changed") / a.value("of"), a.records)


def tuned(r: Records, method: str, recovery: str) -> Record:
    """The tuning model with half of both removed by a method, after so much training."""
    rate = chosen_rate("both", method, HALF)
    where = {"recovery": recovery, "recovery_learning_rate": rate}
    return r.tuning.single(**pruning("both", method, HALF), **where)


def gap(r: Records, recovery: str) -> ExactValue:
    """The tuning model's validation accuracy with half of both removed by L1-norm less that with
    half removed at random, after so much training, in points."""
    l1, random = (tuned(r, method, recovery) for method in METHODS)
    name = "validation_accuracy"
    return exact(100 * (l1.values[name] - random.values[name]), [l1, random], "points")


def tuned_loss(r: Records, method: str, recovery: str) -> ExactValue:
    record = tuned(r, method, recovery)
    return exact(round(record.values["validation_loss"], 3), [record], "nats")


def cost_of_the_rule(r: Records, method: str) -> ExactValue:
    """The validation loss at the rate in use above that at the best one, with half of both removed
    by a method: what it costs to stay off rates next to a collapse.
    """
    tried = r.tuning.where(recovery="a pass", **pruning("both", method, HALF))
    cost = loss_above_least(tried, "recovery_learning_rate", chosen_rate("both", method, HALF))
    return exact(round(cost, 3), tried, "nats")


page.numbers(
    one_l1=partial(tuned_loss, method="l1", recovery="a pass"),
    one_random=partial(tuned_loss, method="random", recovery="a pass"),
    five_l1=partial(tuned_loss, method="l1", recovery="five passes"),
    five_random=partial(tuned_loss, method="random", recovery="five passes"),
    rule_l1=partial(cost_of_the_rule, method="l1"),
    rule_random=partial(cost_of_the_rule, method="random"),
    inputs_l1=lambda r: counted(recovered(r, HALF, part="both"), "inputs"),
    inputs_random=lambda r: counted(recovered(r, HALF, "random", "both"), "inputs"),
    fresh_accuracy=drawn_anew,
    far_random=partial(recovered, at=FAR, method="random", part="both"),
    l1=of_all(recovered, at=HALF, part="both"),
    random=of_all(recovered, at=HALF, method="random", part="both"),
    l1_before=partial(pruned, at=HALF, part="both"),
    random_before=partial(pruned, at=HALF, method="random", part="both"),
    at_30=random_at_30,
    weights_cost=half_of_the_weights,
    as_long=beside_training,
    untouched=of_all(untouched),
    intact=control,
    far=of_all(recovered, at=FAR),
    with_wanda=wanda,
    with_wanda_untrained=wanda_untrained,
    with_two_of_four=two_of_four,
    gap_after_one=partial(gap, recovery="a pass"),
    gap_after_five=partial(gap, recovery="five passes"),
    far_as_long=far_beside_training,
    with_random=random_weights,
    guessing=baseline.guessing,
    random_near=partial(pruned, at=0.1, method="random"),
    tenth_of_both=lambda r: pruned(r, 0.1, "random", "both").first,
    tenth_of_five=partial(pruned, at=0.1, method="random", part="both"),
    most_l1=lambda r: recovered(r, MOST, part="both").first,
    most_random=lambda r: recovered(r, MOST, "random", "both").first,
    kept_l1=partial(kept, method="l1"),
    kept_random=partial(kept, method="random"),
    left_weights=lambda r: counted(pruned(r, HALF), "products"),
    left_both=lambda r: counted(pruned(r, HALF, part="both"), "products"),
    left_l1=lambda r: counted(recovered(r, HALF, part="both"), "products"),
    left_random=lambda r: counted(recovered(r, HALF, "random", "both"), "products"),
    changed=changed,
    contended=contended_processes,
    csr_half=lambda r: compare(product_time(r, "dense"), product_time(r, "csr", HALF)),
    csr_most=lambda r: compare(product_time(r, "csr", MOST), product_time(r, "dense")),
    half_rows=lambda r: compare(product_time(r, "half of the rows"), product_time(r, "dense")),
    num_test=lambda r: exact(control(r).first.accuracy.n, control(r).records),
)


def sparsities(r: Records, part: str, method: str, **where: Scalar) -> list[float]:
    """The shares removed in the cases with that part, method and parameters."""
    return r.of_experiment(STEM).where(part=part, pruning=method, **where).param_values("sparsity")


def accuracy_rows(r: Records, part: str) -> list[dict[str, Any]]:
    """A row for each share removed, 0 first: arms as pruned and trained on, of both methods."""
    every = r.and_further
    row: dict[str, Any] = {f"{name}, as pruned": untouched(every) for name in METHODS.values()}
    rows = {0.0: {"removed": 0.0, **row, **dict.fromkeys(METHODS.values(), control(r))}}
    for method, name in METHODS.items():
        for at in sparsities(r.without("recovery"), part, method):
            row = rows.setdefault(at, {"removed": at})
            row[f"{name}, as pruned"] = pruned(r, at, method, part)
        for at in sparsities(r, part, method, recovery="a pass"):
            rows.setdefault(at, {"removed": at})[name] = recovered(every, at, method, part)
    return [rows[at] for at in sorted(rows)]


@page.chart
def accuracy(r: Records) -> Chart:
    lines = [line(f"{name}, as pruned", like=name) for name in METHODS.values()]
    return Chart(
        [{name: of_models(cell) for name, cell in row.items()} for row in accuracy_rows(r, "both")],
        x=percent("removed of weights and of inputs", column="removed"),
        y=percent("test accuracy"),
        marks=[level(baseline.larger_class(r), "guessing"), *map(line, METHODS.values()), *lines],
    )


@page.chart
def one_operand(r: Records) -> Chart:
    """As pruned, of the first model: weights alone and inputs alone."""
    lines = [f"{name}, as pruned" for name in METHODS.values()]
    rows = [
        {"pruned": part, "removed": row["removed"], **{name: row[name].first for name in lines}}
        for part in ("weights", "inputs")
        for row in accuracy_rows(r, part)
        if lines[-1] in row
    ]
    return Chart(
        rows,
        x=percent("removed", column="removed"),
        y=percent("test accuracy"),
        marks=[line(name, like=name.partition(",")[0]) for name in lines],
        facet="pruned",
    )


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
    """Accuracy by method and share of weights and inputs removed, as pruned and trained on."""
    rows: list[Row] = []
    for row in accuracy_rows(r, "both"):
        cells: dict[str, Any] = {"removed": f"{100 * row['removed']:g} %"}
        for name in METHODS.values():
            cells |= {f"{name}, as pruned": of_models(row.get(f"{name}, as pruned", ""))}
            cells |= {f"{name}, trained on": of_models(row.get(name, ""))}
        rows.append(cells)
    return rows


@page.table
def of_weights(r: Records) -> Sequence[Row]:
    """Accuracy with weights alone removed, by methods that rank them otherwise."""
    ranked = {"l1": "L1-norm", "wanda": "Wanda", "2:4": "two of every four", "random": "random"}
    return [
        {
            "weights removed": f"{100 * at:g} %",
            "removed by": ranked[method],
            "as pruned": pruned(r, at, method),
            "trained on": recovered(r.and_further, at, method),
        }
        for method, at in design.OF_WEIGHTS
    ]


@page.table
def every(r: Records) -> Sequence[Row]:
    """Accuracy as pruned, and the zeros and products that L1 leaves, by part and share removed."""
    rows: list[Row] = []
    for part in design.PARTS:
        for at in sparsities(r.without("recovery"), part, "random"):
            zeros = pruned(r, at, part=part).values("zeros")
            accuracies = {
                name: of_models(pruned(r, at, method, part).first)
                for method, name in METHODS.items()
            }
            shares = {
                title: per_cent(fmean(model[name] for model in zeros))
                for name, title in ZEROS.items()
            }
            rows.append({"pruned": part, "removed": f"{100 * at:g} %", **accuracies, **shares})
    return rows


ZEROS = {"weights": "zero weights", "inputs": "zero inputs", "products": "products left"}


@page.table
def costs(r: Records) -> Sequence[Row]:
    """Speed and bytes of one pruned layer."""
    dense = product_time(r, "dense")
    num_bytes = r.of_experiment(STEM).single(part="cost").values["bytes"]
    smaller = dense / product_time(r, "half of the rows")
    rows: list[Row] = [
        {
            "weights removed": f"{100 * float(at):g} %",
            "masked, speed": dense / product_time(r, "masked", float(at)),
            "CSR, speed": dense / product_time(r, "csr", float(at)),
            "CSR, bytes": f"{number(stored['csr'] / stored['dense'])} ×",
        }
        for at, stored in sorted(num_bytes.items())
    ]
    return [*rows, {"weights removed": "half of the rows", "masked, speed": smaller}]


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a pass of training, by learning rate."""
    tuned = r.tuning.where(recovery="a pass")
    return rate_rows(tuned, design.POINTS, "recovery_learning_rate", chosen=design.RATES)
