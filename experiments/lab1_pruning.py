"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The model is the best one of the width study, by validation, found through its records.
Weights, inputs and both are pruned apart. Masks are drawn once and hold, in training and in
evaluation; the confounded variant of the course tool is one case, to show what it does. What zeros
cost in time and bytes is measured on one layer, in a case that runs alone.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, best_of, every_arm, timed
from madl.logbook.charts import Chart, bars, category, level, line, linear, percent
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Scalar, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(
    title="Sparsity: random and L1-norm pruning",
    needs=("baseline", "lab1_quantization"),
    timed=lambda params: params["part"] == "cost",
)

METHODS = {"l1": "L1-norm", "random": "Random"}
HALF = 0.5  # the sparsity at which weights, inputs and both are held side by side
SAME_TIME = 0.05  # times closer than this count as the same
CHANCE = 0.5  # of two classes
TOGETHER = "weights of all layers together"  # ranked globally; "weights" ranks each layer alone
PARTS = ("weights", TOGETHER, "inputs", "both")
POINT_FIELDS = (
    *("width", "frac_width", "input_frac_width"),
    *("tune_examples", "tune_learning_rate", "tune_batch_size"),
)
LAYER = 4  # the first feed-forward matrix, the largest kind: whose histogram and cost are shown


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    sparsities = choose(
        smoke=(0.5,),
        quick=(0.1, 0.5, 0.7, 0.9),
        full=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    )
    best = best_point(plan.records("lab1_quantization"))
    recovery = {
        "recovery_examples": choose(smoke=32, quick=128, full=1024),
        "recovery_learning_rate": 3e-5,
        "recovery_batch_size": 16,
    }
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            **best,
            "test_examples": choose(smoke=64, quick=400, full=None),
        }
        if seed == 0:
            budget_s = choose(smoke=0.01, quick=0.2, full=1.0)
            cost = {"sparsities": " ".join(map(str, sparsities)), "budget_s": budget_s}
            yield {**base, "part": "cost", **cost}
        yield {**base, "part": "nothing", "sparsity": 0.0, **recovery}
        for sparsity in sparsities:
            for method in METHODS:
                point = {"pruning": method, "sparsity": sparsity}
                yield {**base, "part": "weights", **point, **recovery}
        for part in PARTS[1:]:
            for method in METHODS:
                yield {**base, "part": part, "pruning": method, "sparsity": HALF}
        yield {**base, "part": "inputs", "pruning": "fresh random", "sparsity": HALF}


def best_point(records: Records) -> dict[str, Scalar]:
    """The width study's best point on validation data, over its seeds."""
    params = best_of(every_arm(records, operands="both")).records[0].case.params
    return {field: params[field] for field in POINT_FIELDS if params.get(field) is not None}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.compression import prune
    from madl.compression.quantize import linear_layers
    from madl.training import compressed, pruned_layer
    from madl.training.train import train

    model = compressed.build(params, ctx)
    if params["part"] == "cost":
        weight = linear_layers(model)[LAYER].weight
        asked, budget_s = str(params["sparsities"]), float(params["budget_s"])
        return pruned_layer.costs(weight, map(float, asked.split()), ctx.device, budget_s=budget_s)
    weights = [layer.weight.detach().clone() for layer in linear_layers(model)]
    sparsity, seed = float(params["sparsity"]), int(params["seed"])
    method, part = params.get("pruning"), params["part"]
    if part in ("weights", TOGETHER, "both"):
        scope = "global" if part == TOGETHER else "local"
        prune.prune_(model, sparsity=sparsity, method=method, scope=scope, seed=seed)
    if method == "fresh random":
        prune.fresh_random_inputs_(model, sparsity=sparsity)
    elif part in ("inputs", "both"):
        prune.prune_inputs_(model, sparsity=sparsity, method=method, seed=seed)
    masks = [layer.weight.detach() != 0 for layer in linear_layers(model)]
    values: dict[str, Any] = {
        "before": baseline.judge_on_test(model, params, ctx.device),
        "kept": prune.magnitude_share(weights, masks),
        "sparsity": prune.weight_sparsity(model),
        "num_weights": sum(weight.numel() for weight in weights),
    }
    if method == "fresh random":
        values["again"] = baseline.judge_on_test(model, params, ctx.device)
    if params.get("recovery_examples") is not None:
        examples = baseline.load_splits(params).train.first(int(params["recovery_examples"]))
        recipe = baseline.training_recipe(params, prefix="recovery_", epochs=1)
        train(model, examples, recipe, device=ctx.device)
        values |= {
            "after": baseline.judge_on_test(model, params, ctx.device),
            "sparsity_after": prune.weight_sparsity(model),
        }
    prune.fuse_masks_(model)
    if part == "nothing":
        values |= {"histogram": pruned_layer.histogram(linear_layers(model)[LAYER].weight)}
    return {**values, "accuracy": values["before"]["accuracy"]}


# ---- the arms -----------------------------------------------------------------------------------


def pruned(r: Records, method: str, when: str, part: str = "weights", at: float = HALF) -> Arm:
    """The models of one point, judged before or after training on."""
    return arm(r, METHODS[method], when, part=part, pruning=method, sparsity=at)


def weight_points(r: Records) -> Records:
    """The models with pruned weights; the width study has a `part` of another meaning."""
    return r.of("lab1_pruning").all(part="weights")


def products(r: Records) -> dict[float, dict[str, TimedArm]]:
    """One layer's product, by sparsity: dense, dense with masked weights, CSR."""
    found = r.one(part="cost").values
    return {
        float(sparsity): {
            kind: timed(r, kind, at=(sparsity, "samples_s"), part="cost")
            for kind in found[sparsity]["samples_s"]
        }
        for sparsity in sorted(found)
    }


def _shown(share: float) -> str:
    return f"{100 * share:g} %"


# ---- weights ------------------------------------------------------------------------------------


@page.claim(headline=True)
def l1_wins(r: Records) -> Judged:
    """With half of the weights removed, L1-norm pruning leaves more accuracy than random."""
    l1, rand = pruned(r, "l1", "before"), pruned(r, "random", "before")
    where = "With half of the weights removed and no further training"
    return compare(l1, rand).judge(
        supported=f"{where}, L1-norm pruning leaves {l1} and random pruning {rand}",
        refuted=f"{where}, random pruning leaves {rand} and L1-norm pruning only {l1}",
        undecided=f"{where}, nothing shows that one method leaves more than the other: L1-norm "
        f"{l1}, random {rand}, {l1 - rand:+i}",
    )


@page.claim(headline=True)
def random_recovers_less(r: Records) -> Judged:
    """At half sparsity L1-norm pruning is ahead of random pruning after training on as well."""
    l1, rand = pruned(r, "l1", "after"), pruned(r, "random", "after")
    where = "After the same further training with half of the weights removed"
    return compare(l1, rand).judge(
        supported=f"{where}, L1-norm pruning has {l1} and random pruning {rand}",
        refuted=f"{where}, random pruning is ahead: {rand} against {l1} of L1-norm pruning",
        undecided=f"{where}, nothing shows that the methods differ: L1-norm {l1}, random {rand}, "
        f"{l1 - rand:+i}",
    )


@page.claim
def recovery_helps(r: Records) -> Judged:
    """At half sparsity, training on makes the L1-pruned model more accurate."""
    after, before = pruned(r, "l1", "after"), pruned(r, "l1", "before")
    where = "at half sparsity"
    return compare(after, before).judge(
        supported=f"Training on brings the L1-pruned model {where} from {before} to {after}",
        refuted=f"Training on costs the L1-pruned model {where} accuracy: {after} after {before}",
        undecided=f"Nothing shows that training on changes the L1-pruned model {where}: {after} "
        f"after {before}, {after - before:+i}",
    )


@page.fact
def l1_keeps_magnitude(r: Records) -> Fact:
    l1, rand = (
        fmean(one.values["kept"]["l2"] for one in pruned(r, method, "before").records)
        for method in METHODS
    )
    weights = r.all(part="nothing")[0].values["num_weights"]
    return Fact(
        text=f"At half sparsity, L1-norm pruning keeps {per_cent(l1)} of the weights' "
        f"squared magnitude, random pruning {per_cent(rand)}",
        of=f"{weights:,} weights",
    )


@page.fact
def masks_hold(r: Records) -> Fact:
    found = weight_points(r)
    off = max(abs(one.values["sparsity_after"] - one.case.params["sparsity"]) for one in found)
    return Fact(
        text="Counted after training on, the share of zeros among the stored weights is the one "
        f"asked for, to {off:.0e}".replace("e-0", "e-"),
        of=f"{len(found)} pruned models of {found[0].values['num_weights']:,} weights each",
    )


@page.chart(
    caption="Accuracy against the share of weights removed, before any further training and after "
    "the same short training for all. The level lines are the model with nothing removed, as it is "
    "and after that training, and chance."
)
def accuracy(r: Records) -> Chart:
    whole, control = (
        arm(r, label, when, part="nothing")
        for label, when in (("nothing pruned", "before"), ("same training", "after"))
    )
    rows: list[Row] = []
    for sparsity in weight_points(r).each("sparsity"):
        row: dict[str, Any] = {"sparsity": sparsity}
        for method, title in METHODS.items():
            row[title] = pruned(r, method, "before", at=sparsity)
            row[f"{title}, trained on"] = pruned(r, method, "after", at=sparsity)
        rows.append(row)
    lines = [(line(title), line(f"{title}, trained on", like=title)) for title in METHODS.values()]
    return Chart(
        rows,
        x=percent("sparsity of the weights", column="sparsity"),
        y=percent("test accuracy"),
        marks=[level(CHANCE, "chance"), level(whole), level(control), *lines],
    )


@page.chart(
    caption="One layer's weights by magnitude, and what is left of them when half are removed: "
    "computed from the magnitudes and each method's rule, not counted from a mask."
)
def histogram(r: Records) -> Chart:
    found = arm(r, part="nothing").value("histogram")
    width, total = found["top"] / len(found["counts"]), sum(found["counts"])
    rows = [
        {
            "magnitude": (i + 0.5) * width,
            "all weights": count / total,
            "kept by L1-norm": count / total * min(max((i + 1) - found["median"] / width, 0), 1),
            "kept by random": count / total * (1 - HALF),
        }
        for i, count in enumerate(found["counts"])
    ]
    return Chart(
        rows,
        x=linear("magnitude", "magnitude of the weight"),
        y=percent("share of the weights in a bin"),
        marks=[
            line("all weights", markers=False),
            line("kept by L1-norm", markers=False, like="L1-norm"),
            line("kept by random", markers=False, like="Random"),
        ],
    )


# ---- inputs -------------------------------------------------------------------------------------


@page.claim
def l1_wins_on_inputs(r: Records) -> Judged:
    """With half of each layer's inputs removed, L1-norm pruning leaves more than random pruning."""
    l1, rand = (pruned(r, method, "before", part="inputs") for method in METHODS)
    where = "With half of every layer's inputs removed"
    return compare(l1, rand).judge(
        supported=f"{where}, keeping the largest of each token leaves {l1} and keeping the same "
        f"random features {rand}",
        refuted=f"{where}, keeping the same random features leaves {rand} and keeping the largest "
        f"of each token only {l1}",
        undecided=f"{where}, nothing shows that one way leaves more than the other: L1-norm {l1}, "
        f"random {rand}, {l1 - rand:+i}",
    )


@page.chart(
    caption="Half of the weights, half of each layer's inputs, or half of both removed, without "
    "further training."
)
def parts(r: Records) -> Chart:
    rows = [
        {
            "pruned": part,
            **{METHODS[method]: pruned(r, method, "before", part=part) for method in METHODS},
        }
        for part in PARTS
    ]
    return Chart(
        rows,
        x=category("pruned", "what is pruned"),
        y=percent("test accuracy"),
        marks=[level(CHANCE, "chance"), *bars(*METHODS.values())],
    )


@page.fact
def evaluation_repeats(r: Records) -> Fact:
    first, again = (
        arm(r, when, when, part="inputs", pruning="fresh random", sparsity=HALF)
        for when in ("before", "again")
    )
    return Fact(
        text="With a fresh random input mask at every forward, one model evaluated twice on the "
        f"same sentences scores {first} and {again}",
        of=f"2 evaluations on {first.accuracy.n:,} test sentences",
    )


# ---- what zeros cost ----------------------------------------------------------------------------


@page.claim
def masked_is_as_slow(r: Records) -> Judged:
    """At the highest sparsity, a dense product takes the same time with masked weights, to 5 %."""
    sparsity, one = max(products(r).items())
    masked, dense = one["masked"], one["dense"]
    where, said = f"At {_shown(sparsity)} sparsity", f"{dense / masked:i} as fast"
    return (
        compare(masked, dense)
        .within(SAME_TIME)
        .judge(
            supported=f"{where}, one layer's dense product takes the same time with the masked "
            f"weights, to within {_shown(SAME_TIME)}: {said}",
            refuted=f"{where}, one layer's dense product takes another time with the masked "
            f"weights: {said}",
            undecided=f"{where}, nothing shows whether masked weights keep the time of one layer's "
            f"dense product to within {_shown(SAME_TIME)}: {said}",
        )
    )


@page.claim
def csr_is_faster(r: Records) -> Judged:
    """At the highest sparsity, a sparse (CSR) product is faster than the dense one."""
    sparsity, one = max(products(r).items())
    csr, dense = one["csr"], one["dense"]
    where, said = f"At {_shown(sparsity)} sparsity", f"{dense / csr:i} as fast as the dense one"
    return compare(csr, dense).judge(
        supported=f"{where}, a sparse (CSR) product of one layer is {said}",
        refuted=f"{where}, a sparse (CSR) product of one layer is slower: {said}",
        undecided=f"{where}, nothing shows that a sparse (CSR) product of one layer is faster: "
        f"{said}",
    )


@page.table
def costs(r: Records) -> Sequence[Row]:
    values = r.one(part="cost").values
    return [
        {
            "sparsity": _shown(sparsity),
            "dense": one["dense"],
            "masked, speed": one["dense"] / one["masked"],
            "CSR, speed": one["dense"] / one["csr"],
            **{
                f"{title}, bytes": f"{number(found[f'{name}_bytes'] / found['dense_bytes'])} ×"
                for name, title in (("csr", "CSR"), ("zip", "compressed"))
            },
        }
        for (sparsity, one), (_, found) in zip(products(r).items(), sorted(values.items()))
    ]
