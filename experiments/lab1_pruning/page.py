"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The model is the best one of the width study, by validation, found through its records. Weights,
inputs and both are pruned, each by both methods at nine sparsities; every point is judged before
and after the same further training, and held against that training with nothing removed. A model
has one random mask at a point, several at the one that the explanation rests on; how far draws lie
apart is shown. What zeros cost in time and bytes is measured on one layer, in processes of its own.
"""

from collections.abc import Iterable

from experiments.lab1_pruning import sparsities, sparsity_rows
from experiments.lab1_pruning.sparsities import (
    HALF,
    METHODS,
    PARTS,
    control,
    energy,
    how,
    left,
    pruned,
    removed,
)
from madl.logbook.charts import Chart, level, line, linear, percent
from madl.logbook.claims import Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Values
from madl.logbook.stats import per_cent
from madl.training import baseline

page = Experiment(
    title="Sparsity: random and L1-norm pruning",
    needs=("baseline", "lab1_quantization"),
    timed=lambda params: params["part"] == "cost",
)

RATES = "1e-5, 3e-5, 1e-4"  # of training on, tried on validation
SAME_TIME = 0.05  # times closer than this count as the same


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    point = sparsities.starting_point(plan.records("lab1_quantization"))
    probe = {"probe_examples": choose(smoke=2, quick=32)}
    recovery = {
        "recovery_examples": choose(smoke=32, quick=512),
        "recovery_learning_rate": 3e-5,  # the rate of 1.1; the cases of RATES try others
        "recovery_batch_size": 16,
    }
    for seed in range(plan.profile.seeds):
        base = {**baseline.recipe_params(plan, seed), **point, **probe}
        for found in sparsities.trained_on(plan):
            yield {**base, **found, **recovery}
        for method in ("l1 features", "fresh random"):
            yield {**base, "part": "inputs", "sparsity": HALF, "pruning": method}
    base = {**baseline.recipe_params(plan, 0), **point}
    draws = {"part": "draws", "pruning": "random", "draws": choose(smoke=2, quick=4)}
    for sparsity in choose(smoke=(HALF,), quick=(0.1, 0.3, 0.5)):
        yield {**base, **draws, "sparsity": sparsity}
    for method, sparsity in sparsities.TUNED.items():
        found = {"part": "rates", "pruning": method, "sparsity": sparsity}
        yield {**base, **found, **recovery, "rates": choose(smoke="3e-5", quick=RATES)}
    for found in sparsities.masks(plan):
        yield {**base, **probe, **found}
    cost = {"sparsities": "0.5, 0.7, 0.9", "processes": choose(smoke=1, quick=5, full=9)}
    yield {**base, "part": "cost", **cost, "budget_s": choose(smoke=0.0, quick=0.1, full=0.5)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab1_pruning import pruned, pruned_layer

    of_part = {"cost": pruned_layer.costs, "draws": pruned.draws, "rates": pruned.rates}
    return of_part.get(str(params["part"]), pruned.study)(params, ctx)


# ---- which method, and which sparsity -----------------------------------------------------------


@page.claim(headline=True)
def l1_wins(r: Records) -> Judged:
    """With half of the weights removed and the same training on, L1 masks beat random ones."""
    return at_half(r, "after", "With half of the weights removed and the same training on")


@page.claim
def l1_wins_untrained(r: Records) -> Judged:
    """With half of the weights removed and no training, L1 masks beat random ones."""
    return at_half(r, "before", "With half of the weights removed and no training")


def at_half(r: Records, when: str, where: str) -> Judged:
    l1, rand = (pruned(r, "weights", method, HALF, when) for method in METHODS)
    return compare(l1, rand).judge(
        supported=f"{where}, L1-norm pruning has {l1} test accuracy and random pruning {rand}; "
        f"with nothing removed it is {sparsities.intact(r, when)}",
        refuted=f"{where}, random pruning has {rand} test accuracy and L1-norm pruning only {l1}",
        undecided=f"{where}, nothing shows that these masks differ: L1-norm {l1}, random {rand}",
    )


@page.claim
def training_on_helps(r: Records) -> Judged:
    """At the L1 sparsity of the weights where validation gains most by it, training on helps."""
    after, before = sparsities.gains_most(r)
    what = f"with {removed(after)} of the weights removed by L1-norm"
    same = f"; with nothing removed, it takes {sparsities.starting(r)} to {control(r)}"
    return compare(after, before).judge(
        supported=f"Training on raises {before} to {after} {what}{same}",
        refuted=f"Training on takes {before} down to {after} {what}{same}",
        undecided=f"Training on is not shown to help {what}, {after - before:+i}{same}",
    )


@page.chart(
    caption="Test accuracy against the share removed of the weights, of the inputs, or of both: as "
    "pruned (untrained), and after training on. Both methods start from the model with nothing "
    "removed; the level line is that model after the same training. Bands: intervals, of several "
    "models the mean's."
)
def accuracy(r: Records) -> Chart:
    lines = [(line(name), line(f"{name}, untrained", like=name)) for name in METHODS.values()]
    return Chart(
        sparsity_rows.accuracy_rows(r),
        x=percent("removed", column="removed"),
        y=percent("test accuracy"),
        marks=[level(control(r)), level(baseline.larger_class(r), "larger class"), *lines],
        facet="pruned",
    )


# ---- why ----------------------------------------------------------------------------------------


@page.claim(headline=True)
def l1_beats_random_alike(r: Records) -> Judged:
    """Untrained, an L1 mask beats random masks that keep as much squared magnitude."""
    a, b = sparsities.alike(r)
    said = (
        f"L1-norm, {removed(a)} removed, keeps {per_cent(energy(a))} and has {a} on test; random, "
        f"{removed(b)} removed, keeps {per_cent(energy(b))} and has {b}, the mean of "
        f"{len(b.records)} masks"
    )
    alike = "that keep as much squared magnitude"
    return compare(a, b).judge(
        supported=f"In the first model, untrained, an L1 mask is {a - b} better than random masks "
        f"{alike}. {said}",
        refuted=f"In the first model, untrained, an L1 mask is {b - a} worse than random masks "
        f"{alike}: that is not all that matters. {said}",
        undecided=f"In the first model, untrained, an L1 mask is not shown to differ from random "
        f"masks {alike}, {a - b:+i}. {said}",
    )


@page.chart(
    caption="The first feed-forward matrix of the first model, half of its weights removed: its "
    "weights by magnitude but for the largest thousandth, which lies outside, and those of them "
    "that each method's mask kept. Shares are of all that are shown."
)
def histogram(r: Records) -> Chart:
    kept = [line(f"kept by {name}", markers=False, like=name) for name in METHODS.values()]
    return Chart(
        sparsity_rows.histogram_rows(r),
        x=linear("magnitude", "magnitude of the weight"),
        y=percent("share of the weights in a bin"),
        marks=[line("all weights", markers=False), *kept],
    )


@page.chart(
    caption="Untrained: test accuracy against the squared magnitude that the masks of the weights "
    "keep, a point a sparsity; of several models the means, each with a random mask of its own. "
    "Bands: intervals of the accuracy. Were the curves one, that would be all that matters."
)
def mechanism(r: Records) -> Chart:
    return Chart(
        sparsity_rows.kept_rows(r),
        x=percent("squared magnitude kept", column="kept"),
        y=percent("test accuracy"),
        marks=[level(sparsities.starting(r)), *map(line, METHODS.values())],
    )


@page.claim
def inputs_by_magnitude(r: Records) -> Judged:
    """With half of the inputs removed, untrained, a threshold beats the same random features."""
    l1, rand = (pruned(r, "inputs", method, HALF, "before") for method in METHODS)
    where = "With half of every layer's inputs removed and no training"
    return compare(l1, rand).judge(
        supported=f"{where}, a threshold leaves {l1}, the same random features {rand}",
        refuted=f"{where}, the same random features leave {rand}, a threshold only {l1}",
        undecided=f"{where}, nothing tells a threshold ({l1}) from random features ({rand})",
    )


@page.claim
def value_by_value(r: Records) -> Judged:
    """With half of the inputs removed by L1, untrained, single values beat whole features."""
    a, b = (pruned(r, "inputs", how, HALF, "before") for how in ("l1", "l1 features"))
    where = "With half of every layer's inputs removed by L1-norm and no training"
    return compare(a, b).judge(
        supported=f"{where}, dropping single values leaves {a}, dropping whole features {b}",
        refuted=f"{where}, dropping whole features leaves {b}, dropping single values only {a}",
        undecided=f"{where}, nothing tells single values ({a}) from whole features ({b})",
    )


@page.claim
def both_beat_one(r: Records) -> Judged:
    """Half of both operands removed beats one alone, with as many products left or more."""
    a, b = sparsities.better(r, "both", HALF), sparsities.one_alone(r)
    two = f"half of the weights and of the inputs ({a}, {how(a)}, {left(a)} of the products left)"
    one = f"{removed(b)} of the {b.param('part')} alone ({b}, {how(b)}, {left(b)} left)"
    return compare(a, b).judge(
        supported=f"Removing {two} leaves more accuracy than removing {one}",
        refuted=f"Removing {two} leaves less accuracy than removing {one}",
        undecided=f"Nothing shows whether removing {two} is better than removing {one}, or worse",
    )


@page.chart(
    caption="L1-norm, after training on: test accuracy against the share of products whose factors "
    "are both other than zero, counted, a point a sparsity. Further left, less is multiplied. "
    "Bands: intervals, of several models the mean's."
)
def products(r: Records) -> Chart:
    return Chart(
        sparsity_rows.left_rows(r),
        x=percent("products left", column="left"),
        y=percent("test accuracy"),
        marks=[level(control(r)), *map(line, PARTS)],
    )


# ---- what could mislead, and what zeros cost ----------------------------------------------------


@page.claim
def masked_is_as_slow(r: Records) -> Judged:
    """At the highest sparsity, a dense product takes the same time with masked weights, to 5 %."""
    at = sparsity_rows.timed_at(r)[-1]
    a, b = sparsity_rows.product(r, "masked", at), sparsity_rows.product(r, "dense")
    where, said = f"With {sparsities.shown(float(at))} of its weights zero", f"{b / a:i} as fast"
    tested = compare(a, b).within(SAME_TIME)
    return tested.judge(
        supported=f"{where}, one layer's dense float32 product takes the same time, to 5 %: "
        f"{b / a} as fast",
        refuted=f"{where}, one layer's dense product takes another time: {b / a} as fast",
        undecided=f"{where}, one layer's dense product may or may not take the same time: {said} "
        "(95 %)",
    )


@page.claim
def csr_is_faster(r: Records) -> Judged:
    """At the highest sparsity, a sparse (CSR) product is faster than the dense one."""
    at = sparsity_rows.timed_at(r)[-1]
    a, b = sparsity_rows.product(r, "csr", at), sparsity_rows.product(r, "dense")
    where, said = f"With {sparsities.shown(float(at))} of its weights zero", f"{b / a:i} as fast"
    return compare(a, b).judge(
        supported=f"{where}, one layer's sparse (CSR) product in float32 is faster than the dense: "
        f"{said}",
        refuted=f"{where}, one layer's sparse (CSR) product is slower than the dense one: {said}",
        undecided=f"{where}, whether one layer's sparse (CSR) product is faster than the dense is "
        f"not decided: {said}",
    )


# ---- counted ------------------------------------------------------------------------------------

for _rows in (sparsity_rows.points, sparsity_rows.ways, sparsity_rows.zeros, sparsity_rows.rates):
    page.table(_rows)
page.table(sparsity_rows.costs)
page.table(sparsity_rows.alike)
page.fact(headline=True)(sparsity_rows.kept_at_half)
page.fact(sparsity_rows.told_from_guessing)
page.fact(sparsity_rows.which_model)
page.fact(sparsity_rows.free_by_validation)
page.fact(sparsity_rows.training_on)
page.fact(sparsity_rows.rates_tried)
page.fact(sparsity_rows.at_the_floor)
page.fact(sparsity_rows.draws_differ)
page.fact(sparsity_rows.fresh_masks_answer_anew)
page.fact(sparsity_rows.layer_timed)
page.fact(sparsity_rows.speed_and_accuracy)
