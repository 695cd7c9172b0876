"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

The best model of 1.1 is pruned: its weights, its inputs, or both. What it is, 1.1's tuning says;
the rate of training on is a constant, chosen by validation loss on the tuning seed. What
zeros cost in time and bytes is measured on one layer, in processes of its own.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, level, line, linear, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import (
    CONFIRMING_SEEDS,
    TUNING,
    TUNING_SEED,
    Context,
    Experiment,
    Plan,
)
from madl.logbook.numbers import Counted, contended, counted
from madl.logbook.records import Params, Record, Records, Row, Scalar, Values
from madl.logbook.searches import rate_rows
from madl.logbook.stats import number, per_cent
from madl.training import baseline

WIDTHS = "lab1_quantization"  # where the starting model comes from

page = Experiment(
    title="Sparsity: random and L1-norm pruning",
    needs=(WIDTHS,),
    timed=lambda params: params["part"] == "cost",
)

STEM = "lab1_pruning"
METHODS = {"l1": "L1-norm", "random": "Random"}
PARTS = ("weights", "inputs", "both")
SPARSITIES = tuple(tenths / 10 for tenths in range(1, 10))
THIRD, HALF, FAR, MOST = 0.3, 0.5, 0.8, 0.9  # removed
SHORT = 512  # training sentences of a few steps
GUESSES = 0.6  # from here on random pruning guessed in an earlier run: judged on the first seed
NEAR = {"l1": 0.6, "random": 0.1}  # removed: both keep about as much squared magnitude
ENOUGH = 0.02  # of accuracy: what half of the weights may cost
TIE = 1e-2  # nats of validation loss, less than five hundred sentences tell apart
# Rates of training on: with nothing removed, with half of the weights removed by L1, with three in
# ten at random. A lower one than these tends to no training at all.
TRIED = {
    "nothing": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
    "l1": (3e-5, 1e-4, 3e-4, 1e-3),
    "random": (3e-5, 1e-4, 3e-4, 1e-3),
}
# Of each the one of least validation loss, unless training collapses there or at the next one, as
# in 1.1: to chance on the tuning seed, and next to that on some other.
RATE = 1e-4
TRAINED = {"l1": (THIRD, HALF), "random": (THIRD,)}  # weights, on every seed
TRAINED_ONCE = (  # on the first
    *(("weights", "l1", at) for at in (0.7, FAR)),
    *(("weights", "random", at) for at in (0.1, HALF)),
    ("both", "l1", FAR),
)


# ---- cases --------------------------------------------------------------------------------------


def start(plan: Plan) -> Params:
    """The best model of 1.1: the format of least validation loss, quantized alone or trained on.

    Of formats within `TIE` of it, the narrowest: products of few bits are the cheapest.
    """
    tuned = plan.records(f"{WIDTHS}{TUNING}")
    found: list[tuple[float, Params]] = []
    for one in tuned.all(method="sweep", operands="both"):
        points = {"frac_width": one.values["weights"], "input_frac_width": one.values["inputs"]}
        found.append((one.values["loss"], {**picked(one, "operands", "width"), **points}))
    for one in tuned.all(method="qat"):
        found.append((one.values["validation_loss"], picked(one, *FORMAT, *TUNED)))
    least = min(loss for loss, _ in found)
    tied = [params for loss, params in found if loss <= least + TIE]
    return min(tied, key=lambda params: int(params["width"] or 0))


FORMAT = ("operands", "width", "frac_width", "input_frac_width")
TUNED = ("tune_examples", "tune_learning_rate", "tune_batch_size")


def picked(record: Record, *names: str) -> Params:
    return {name: record.case.params[name] for name in names}


def recovery(plan: Plan, learning_rate: float, *, short: bool = False) -> Params:
    choose = plan.profile.choose
    return {
        "recovery": "short" if short else "a pass",
        "recovery_examples": choose(smoke=32, quick=SHORT if short else None),
        "recovery_learning_rate": learning_rate,
        "recovery_batch_size": 16,
    }


def pruning(part: str, method: str, sparsity: float) -> Params:
    return {"part": part, "pruning": method, "sparsity": sparsity}


NOTHING: Params = {"part": "nothing", "sparsity": 0.0}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    base = {**baseline.drawn_params(plan, TUNING_SEED), **start(plan)}
    what = {
        "nothing": NOTHING,
        "l1": pruning("weights", "l1", HALF),
        "random": pruning("weights", "random", THIRD),
    }
    for name, rates in TRIED.items():
        for rate in plan.profile.choose(smoke=rates[:1], quick=rates):
            yield {**base, **what[name], **recovery(plan, rate)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, chosen = plan.profile.choose, start(plan)
    sparsities = choose(smoke=(THIRD, HALF, MOST), quick=SPARSITIES)
    for seed in plan.seeds:
        is_first = seed == plan.seeds[0]
        base = {**baseline.drawn_params(plan, seed), **chosen}
        for part, sparsity, method in product(PARTS, sparsities, METHODS):
            if is_first or (part == "weights" and (method == "l1" or sparsity < GUESSES)):
                yield {**base, **pruning(part, method, sparsity)}
        yield {**base, **NOTHING, **recovery(plan, RATE)}
        everywhere = [("weights", m, at) for m, removed in TRAINED.items() for at in removed]
        for point in (*everywhere, *(TRAINED_ONCE if is_first else ())):
            yield {**base, **pruning(*point), **recovery(plan, RATE)}
    base = {**baseline.drawn_params(plan, plan.seeds[0]), **chosen}
    yield {**base, **pruning("inputs", "fresh random", THIRD)}
    yield {**base, **pruning("weights", "l1", FAR), **recovery(plan, RATE, short=True)}
    yield {**base, "part": "magnitudes", "sparsity": HALF}
    how = {"processes": choose(smoke=1, quick=9), "budget_s": choose(smoke=0.0, quick=0.5)}
    yield {**base, "part": "cost", "sparsities": f"{HALF}, {MOST}", **how}


@page.quick
def quick(params: Params) -> bool:
    is_asked = params["part"] == "weights" and params.get("sparsity") in (THIRD, HALF)
    return params["seed"] == CONFIRMING_SEEDS[0] and is_asked and "recovery" not in params


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab1_pruning import study

    return (study.validated if params["draw"] == TUNING_SEED else study.judged)(params, ctx)


# ---- arms ---------------------------------------------------------------------------------------


def control(r: Records) -> Arm:
    """Nothing removed, trained on as long."""
    return arm(r.of(STEM), "nothing removed, trained as long", part="nothing")


def untouched(r: Records) -> Arm:
    """Nothing removed, not trained on: the starting model, as 1.1 judged it."""
    first = recovered(r, HALF).records[0]
    method = "qat" if "tune_learning_rate" in first.case.params else "ptq"
    found = r.of(WIDTHS).without("step_per")
    return arm(found, "nothing removed", method=method, **picked(first, *FORMAT))


def pruned(r: Records, at: float, method: str = "l1", part: str = "weights") -> Arm:
    """As pruned, before any training."""
    found = r.of(STEM).without("recovery")
    return arm(found, METHODS.get(method, method), part=part, pruning=method, sparsity=at)


def recovered(
    r: Records, at: float, method: str = "l1", part: str = "weights", *, after: str = "a pass"
) -> Arm:
    """Trained on."""
    where = {"part": part, "pruning": method, "sparsity": at, "recovery": after}
    return arm(r.of(STEM), f"{METHODS[method]}, trained on", **where)


def sheet(r: Records, kind: str, at: float | None = None) -> TimedArm:
    """One layer's product: dense, masked or csr."""
    return timed(r.of(STEM), kind if at is None else f"{kind} {at}", part="cost")


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def half_costs_little(r: Records) -> Contrast:
    """With half of the Linear weights removed by L1-norm and a pass of training, accuracy is at
    most two points below nothing removed, not trained on: which validation loss prefers."""
    return compare(recovered(r, HALF), untouched(r)).no_worse(ENOUGH)


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


# ---- numbers ------------------------------------------------------------------------------------


def bearable(r: Records, *removed: float) -> Counted:
    """Of the weights, what L1-norm can remove before a trained model falls `ENOUGH` below nothing
    removed: by the first model's curve, straight between these points."""
    whole = untouched(r).first
    arms = [recovered(r, at).first for at in removed]
    lost = (compare(a, whole).comparison.by_unit[0] for a in arms)
    share = crossing((0.0, *removed), (0.0, *lost), -ENOUGH)
    return percents(share, [record for a in (whole, *arms) for record in a.records])


def crossing(xs: Sequence[float], ys: Sequence[float], level: float) -> float:
    """Where a curve first falls to a level; its end where it does not."""
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys)):
        if y1 <= level:
            return x0 + (x1 - x0) * (y0 - level) / (y0 - y1)
    return xs[-1]


def kept(r: Records, method: str, at: float = HALF) -> Counted:
    """Of the weights' squared magnitude, where so many of them are removed."""
    a = pruned(r, at, method)
    share = fmean(kept["l2"] for kept in a.each("kept"))
    return percents(share, a.records)


def percents(share: float, of: Iterable[Record]) -> Counted:
    return counted(round(100 * share), "%", of=of)


def products_left(r: Records, part: str) -> Counted:
    """Of two factors other than zero, where half is removed by L1: in the first model."""
    a = pruned(r, HALF, part=part).first
    return percents(a.value("zeros")["products"], a.records)


def changed(r: Records) -> Counted:
    """Of the answers of a model whose mask is drawn anew, in a hundred, when asked again."""
    a = pruned(r, THIRD, "fresh random", "inputs").first
    return percents(a.value("changed") / a.value("of"), a.records)


def short_of(r: Records) -> Counted:
    """Training sentences of a few steps."""
    a = recovered(r, FAR, after="short")
    return counted(a.param("recovery_examples"), of=a.records)


page.numbers(
    as_long=half_beside_training,
    l1_near=partial(pruned, at=NEAR["l1"]),
    random_near=partial(pruned, at=NEAR["random"], method="random"),
    kept_l1_near=partial(kept, method="l1", at=NEAR["l1"]),
    kept_random_near=partial(kept, method="random", at=NEAR["random"]),
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
    guessing=lambda r: percents(baseline.larger_class(r), baseline.fp32(r).records),
    kept_l1=partial(kept, method="l1"),
    kept_random=partial(kept, method="random"),
    left_weights=partial(products_left, part="weights"),
    left_both=partial(products_left, part="both"),
    changed=changed,
    fixed=lambda r: pruned(r, THIRD, "random", "inputs").first,
    fresh=lambda r: pruned(r, THIRD, "fresh random", "inputs").first,
    tenth_of_both=lambda r: pruned(r, 0.1, "random", "both").first,
    contended=contended,
    csr_half=lambda r: sheet(r, "csr", HALF) / sheet(r, "dense"),
    csr_most=lambda r: sheet(r, "dense") / sheet(r, "csr", MOST),
    num_short=short_of,
    num_test=lambda r: counted(control(r).accuracy.n, of=control(r).records),
)


# ---- charts and tables --------------------------------------------------------------------------


def removed_at(r: Records, part: str, method: str, **where: Scalar) -> list[float]:
    return r.of(STEM).where(part=part, pruning=method, **where).each("sparsity")


def points_of(r: Records, part: str) -> list[dict[str, Any]]:
    """A row a sparsity, from nothing removed on."""
    ends = untouched(r), control(r)
    if part != "weights":  # which one model alone was judged on
        ends = ends[0].first, ends[1].first
    before = {f"{name}, as pruned": ends[0] for name in METHODS.values()}
    rows = {0.0: {"removed": 0.0, **before, **dict.fromkeys(METHODS.values(), ends[1])}}
    for method, name in METHODS.items():
        for at in removed_at(r.without("recovery"), part, method):
            row = rows.setdefault(at, {"removed": at})
            row[f"{name}, as pruned"] = pruned(r, at, method, part)
        for at in removed_at(r, part, method, recovery="a pass"):
            rows.setdefault(at, {"removed": at})[name] = recovered(r, at, method, part)
    return [rows[at] for at in sorted(rows)]


def drawn(r: Records, rows: Sequence[Row], facet: str | None = None) -> Chart:
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
    return drawn(r, points_of(r, "weights"))


@page.chart
def inputs_and_both(r: Records) -> Chart:
    rows = [{"pruned": part, **row} for part in PARTS[1:] for row in points_of(r, part)]
    return drawn(r, rows, "pruned")


@page.chart
def histogram(r: Records) -> Chart:
    """One layer's weights by magnitude, and what each mask kept of half of them: of one model."""
    found = r.of(STEM).one(part="magnitudes").values
    total, width = sum(found["all"]), found["top"] / len(found["all"])
    kept_by = {method: f"kept by {name}" for method, name in METHODS.items()}
    rows = [
        {"magnitude": (i + 0.5) * width, "all weights": count / total}
        | {name: found[method][i] / total for method, name in kept_by.items()}
        for i, count in enumerate(found["all"])
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
    """Of the weights."""
    rows: list[Row] = []
    for row in points_of(r, "weights"):
        cells: dict[str, Any] = {"removed": f"{100 * row['removed']:g} %"}
        for name in METHODS.values():
            cells |= {f"{name}, as pruned": row.get(f"{name}, as pruned", "")}
            cells |= {f"{name}, trained on": row.get(name, "")}
        rows.append(cells)
    return rows


@page.table
def every(r: Records) -> Sequence[Row]:
    """Every point of inputs and of both as pruned, and what L1 then leaves, counted."""
    rows: list[Row] = []
    for part in PARTS:
        for at in removed_at(r.without("recovery"), part, "l1"):
            l1 = pruned(r, at, part=part)
            zeros = {name: fmean(one[name] for one in l1.each("zeros")) for name in ZEROS}
            accuracies = {name: pruned(r, at, m, part) for m, name in METHODS.items()}
            shares = {title: per_cent(zeros[name]) for name, title in ZEROS.items()}
            rows.append({"pruned": part, "removed": f"{100 * at:g} %", **accuracies, **shares})
    return rows


ZEROS = {"weights": "zero weights", "inputs": "zero inputs", "products": "products left"}


@page.table
def costs(r: Records) -> Sequence[Row]:
    """What zeros cost in one layer, beside what the model can do with as many."""
    dense, one = sheet(r, "dense"), r.of(STEM).one(part="cost")
    return [
        {
            "weights removed": f"{100 * float(at):g} %",
            "accuracy as pruned": pruned(r, float(at)),
            "masked, speed": dense / sheet(r, "masked", float(at)),
            "CSR, speed": dense / sheet(r, "csr", float(at)),
            "CSR, bytes": f"{number(size['csr'] / size['dense'])} ×",
        }
        for at, size in sorted(one.values["bytes"].items())
    ]


# How the effect differs from model to model: of five models of an earlier 1.1 after a pass of
# training, at 8 and at 4 bits against FP32. From sentence to sentence in the mean over them: of
# three models of an earlier run of this page.
SPREADS = {
    "half of the weights cost nothing": (ENOUGH, 0.0074, 0.22),
    "L1-norm wins by 5 points": (0.05, 0.0173, 0.30),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a pass of training, by learning rate."""
    what: dict[str, Params] = {
        "nothing removed": {"part": "nothing"},
        "half of the weights removed, L1-norm": {"pruning": "l1"},
        "three in ten removed, random": {"pruning": "random"},
    }
    return rate_rows(r.tuning, what, "recovery_learning_rate")
