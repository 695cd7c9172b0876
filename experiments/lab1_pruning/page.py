"""Question 1.2: accuracy against sparsity, random and L1, before and after training on.

Weights, inputs and both are pruned, each by both methods at nine sparsities; every point is judged
untrained and after the same further training, and held against that training with nothing removed.
What zeros cost in time and bytes is measured on one layer, in processes of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, level, line, linear, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(
    title="Sparsity: random and L1-norm pruning",
    needs=("earlier_baseline",),
    timed=lambda params: params["part"] == "cost",
)

STEM = "lab1_pruning"
# as the earlier sweeps chose; read from 1.1's tuning when this study is made anew
START: Params = {"operands": "both", "width": 12, "frac_width": 8, "input_frac_width": 8}
METHODS = {"l1": "L1-norm", "random": "Random"}
PARTS = ("weights", "inputs", "both")
SPARSITIES = tuple(tenths / 10 for tenths in range(1, 10))
THIRD, HALF, MOST = 0.3, 0.5, 0.9  # at a third random masks still leave more than guessing
ONE_ALONE = 0.75  # of one operand: as few products as are left when half of both is removed
FEW = 0.2  # of the weights, at random: an L1 mask of a high sparsity keeps as much magnitude
TUNED = {"l1": 0.7, "random": 0.3}  # of the weights: damaged alike, they try learning rates
ENOUGH = 0.02  # of accuracy: what half of the weights may cost
SAME_TIME = 0.05
FLOAT32_BITS = 32


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    probe = {"probe_examples": choose(smoke=2, quick=32)}
    recovery = {
        "recovery_examples": choose(smoke=32, quick=512),
        "recovery_learning_rate": 3e-5,  # the rate of 1.1; the cases of `rates` try others
        "recovery_batch_size": 16,
    }
    for seed in range(plan.profile.seeds):
        base = {**baseline.recipe_params(plan, seed), **START, **probe}
        for found in _trained_on(plan):
            yield {**base, **found, **recovery}
        for method in ("l1 features", "fresh random"):
            yield {**base, "part": "inputs", "sparsity": HALF, "pruning": method}
    base = {**baseline.recipe_params(plan, 0), **START}
    draws = {"part": "draws", "pruning": "random", "draws": choose(smoke=2, quick=4)}
    for sparsity in choose(smoke=(THIRD,), quick=(0.1, THIRD, HALF)):
        yield {**base, **draws, "sparsity": sparsity}
    tried = choose(smoke="3e-5", quick="1e-5, 3e-5, 1e-4")
    for method, sparsity in TUNED.items():
        found = {"part": "rates", "pruning": method, "sparsity": sparsity}
        yield {**base, **found, **recovery, "rates": tried}
    for mask in range(1, 1 + choose(smoke=2, quick=6)):
        found = {"part": "mask", "pruning": "random", "sparsity": FEW, "mask": mask}
        yield {**base, **probe, **found}
    cost = {"sparsities": choose(smoke="0.5, 0.9", quick="0.5, 0.7, 0.9"), "part": "cost"}
    how = {"processes": choose(smoke=1, quick=9), "budget_s": choose(smoke=0.0, quick=0.5)}
    yield {**base, **cost, **how}


def _trained_on(plan: Plan) -> Iterator[Params]:
    """The points that are trained on: nothing removed, all that is asked, and one operand alone."""
    yield {"part": "nothing", "sparsity": 0.0}
    for part in PARTS:
        for sparsity in plan.profile.choose(smoke=(THIRD, HALF, MOST), quick=SPARSITIES):
            for method in METHODS:
                yield {"part": part, "sparsity": sparsity, "pruning": method}
    for part in PARTS[:2]:
        yield {"part": part, "sparsity": ONE_ALONE, "pruning": "l1"}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab1_pruning import study

    return study.run(params, ctx)


# ---- the arms -----------------------------------------------------------------------------------


def control(r: Records) -> Arm:
    """The starting model after the same training, with nothing removed."""
    return arm(r.of(STEM), "nothing removed", "after", part="nothing")


def pruned(r: Records, part: str, method: str, at: float, when: str = "after") -> Arm:
    """The models of one point, after training on or before it."""
    label = METHODS.get(method, method)
    return arm(r.of(STEM), label, when, part=part, pruning=method, sparsity=at)


def run_at(r: Records, part: str, method: str) -> list[float]:
    return r.of(STEM).where(part=part, pruning=method).each("sparsity")


def mean(a: Arm, group: str, name: str) -> float:
    """What was counted beside a judgement, over the seeds."""
    return fmean(one.values[group][name] for one in a.records)


def energy(a: Arm) -> float:
    """The share of the weights' squared magnitude that the masks keep."""
    return mean(a, "kept", "l2")


def few(r: Records) -> Arm:
    """Several random masks of few weights, of one model, untrained."""
    found = tuple(r.of(STEM).all(part="mask"))
    return Arm(label="random masks", records=found, within=("before",), units="random masks")


def as_much(r: Records) -> Arm:
    """The untrained L1 mask that keeps as much as these, there once for each of them."""
    rand = few(r)
    l1 = [pruned(r, "weights", "l1", at, "before") for at in run_at(r, "weights", "l1")]
    nearest = min(l1, key=lambda one: abs(energy(one) - energy(rand)))
    of = {record.case.params["seed"]: record for record in nearest.records}
    same = tuple(of[record.case.params["seed"]] for record in rand.records)
    return replace(nearest, records=same, units=rand.units)


def product(r: Records, kind: str, at: float | None = None) -> TimedArm:
    """One layer's product: dense, masked or csr."""
    return timed(r.of(STEM), kind if at is None else f"{kind} {at}", part="cost")


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def half_costs_little(r: Records) -> Contrast:
    """With half of the weights removed by L1-norm, training on leaves at most two points less
    accuracy than the same training with nothing removed."""
    return compare(pruned(r, "weights", "l1", HALF), control(r)).no_worse(ENOUGH)


@page.claim(primary=True)
def l1_beats_random(r: Records) -> Contrast:
    """With three in ten weights removed and the same training on, L1-norm pruning is more accurate
    than random pruning."""
    return methods(r, "weights")


def methods(r: Records, part: str, when: str = "after") -> Contrast:
    return compare(*(pruned(r, part, method, THIRD, when) for method in METHODS))


@page.claim
def l1_beats_random_untrained(r: Records) -> Contrast:
    """Three in ten weights removed, untrained: L1-norm over random."""
    return methods(r, "weights", "before")


@page.claim
def l1_beats_random_of_inputs(r: Records) -> Contrast:
    """Three in ten inputs removed, trained on: L1-norm over random."""
    return methods(r, "inputs")


@page.claim
def l1_beats_random_of_both(r: Records) -> Contrast:
    """Three in ten of both removed, trained on: L1-norm over random."""
    return methods(r, "both")


@page.claim
def training_on_helps(r: Records) -> Contrast:
    """Half of the weights removed by L1-norm: trained on over untrained."""
    after, before = (pruned(r, "weights", "l1", HALF, when) for when in ("after", "before"))
    return compare(after, before)


@page.claim
def l1_beats_random_alike(r: Records) -> Contrast:
    """One model, untrained: an L1 mask over random masks that keep as much squared magnitude."""
    return compare(as_much(r), few(r))


@page.claim
def value_by_value(r: Records) -> Contrast:
    """Half of the inputs removed by L1-norm, untrained: single values over whole features."""
    return compare(*(pruned(r, "inputs", how, HALF, "before") for how in ("l1", "l1 features")))


@page.claim
def spread_over_both(r: Records) -> Contrast:
    """L1-norm, trained on: three in ten of both removed over half of the weights removed, which
    leaves as many products."""
    return compare(pruned(r, "both", "l1", THIRD), pruned(r, "weights", "l1", HALF))


@page.claim
def masked_is_as_slow(r: Records) -> Contrast:
    """A dense product with nine in ten weights zero over the same with none, in speed."""
    return compare(product(r, "masked", MOST), product(r, "dense")).within(SAME_TIME)


@page.claim
def csr_is_faster(r: Records) -> Contrast:
    """A sparse (CSR) product with nine in ten weights removed over the dense one, in speed."""
    return compare(product(r, "csr", MOST), product(r, "dense"))


# ---- numbers ------------------------------------------------------------------------------------


def percents(share: float, of: Iterable[Record]) -> Counted:
    return counted(round(100 * share), "%", of=of)


def guessing(r: Records) -> Counted:
    return percents(baseline.larger_class(r), baseline.fp32(r).records)


def kept(r: Records, made: Arm) -> Counted:
    return percents(energy(made), made.records)


def left(r: Records, part: str, at: float) -> Counted:
    """Products of two factors other than zero, after training on."""
    made = pruned(r, part, "l1", at)
    return percents(mean(made, "zeros_after", "products"), made.records)


def changed(r: Records, most: bool) -> Counted:
    """Answers that are others when a model with fresh random masks is judged again."""
    found = sorted(r.of(STEM).all(pruning="fresh random"), key=lambda one: one.values["changed"])
    return counted(found[-1 if most else 0].values["changed"], of=found)


def asked_again(r: Records) -> Counted:
    found = r.of(STEM).all(pruning="fresh random")
    return counted(found[0].values["of"], of=found)


def of_draws(r: Records, best: bool) -> Counted:
    """Validation accuracy of one model under several random masks, untrained: an end of these."""
    one = r.of(STEM).one(part="draws", sparsity=THIRD)
    ends = sorted(draw["validation_accuracy"] for draw in one.values["draws"])
    return percents(ends[-1 if best else 0], [one])


page.numbers(
    l1=partial(pruned, part="weights", method="l1", at=THIRD),
    random=partial(pruned, part="weights", method="random", at=THIRD),
    l1_half=partial(pruned, part="weights", method="l1", at=HALF),
    l1_most=partial(pruned, part="weights", method="l1", at=MOST),
    l1_both=partial(pruned, part="both", method="l1", at=THIRD),
    l1_as_much=as_much,
    random_few=few,
    intact=control,
    packed=lambda r: counted(control(r).param("width") / FLOAT32_BITS, "×", of=control(r).records),
    guessing=guessing,
    kept_l1=lambda r: kept(r, pruned(r, "weights", "l1", HALF)),
    kept_random=lambda r: kept(r, pruned(r, "weights", "random", HALF)),
    kept_alike=lambda r: kept(r, few(r)),
    removed_alike=lambda r: percents(as_much(r).param("sparsity"), as_much(r).records),
    left_both=partial(left, part="both", at=THIRD),
    left_half=partial(left, part="weights", at=HALF),
    changed_least=partial(changed, most=False),
    changed_most=partial(changed, most=True),
    asked_again=asked_again,
    draws_low=partial(of_draws, best=False),
    draws_high=partial(of_draws, best=True),
    csr_half=lambda r: product(r, "csr", HALF) / product(r, "dense"),
    csr_most=lambda r: product(r, "dense") / product(r, "csr", MOST),
)


# ---- charts and tables --------------------------------------------------------------------------


def points_of(r: Records, part: str) -> list[dict[str, Any]]:
    """A row a sparsity, from nothing removed on; of one method alone where the other was not run.

    The model with nothing removed and no training is not judged here.
    """
    of = {method: run_at(r, part, method) for method in METHODS}
    rows: list[dict[str, Any]] = [{"removed": 0.0, **{n: control(r) for n in METHODS.values()}}]
    for at in sorted({at for found in of.values() for at in found}):
        row: dict[str, Any] = {"removed": at}
        for method, name in METHODS.items():
            if at in of[method]:
                row[f"{name}, before"] = pruned(r, part, method, at, "before")
                row[name] = pruned(r, part, method, at)
        rows.append(row)
    return rows


def drawn(r: Records, rows: Sequence[Row], facet: str | None = None) -> Chart:
    lines = [(line(name), line(f"{name}, before", like=name)) for name in METHODS.values()]
    return Chart(
        rows,
        x=percent("removed", column="removed"),
        y=percent("test accuracy"),
        marks=[level(baseline.larger_class(r), "guessing"), *lines],
        facet=facet,
    )


@page.chart
def accuracy(r: Records) -> Chart:
    return drawn(r, points_of(r, "weights"))


@page.chart
def inputs_and_both(r: Records) -> Chart:
    rows = [{"pruned": part, **row} for part in PARTS[1:] for row in points_of(r, part)]
    return drawn(r, rows, facet="pruned")


@page.chart
def histogram(r: Records) -> Chart:
    """One layer's weights by magnitude, and what each mask kept of half of them: of one model."""
    found = {
        name: pruned(r, "weights", method, HALF).records[0].values["histogram"]
        for method, name in METHODS.items()
    }
    first = next(iter(found.values()))
    total, width = sum(first["all"]), first["top"] / len(first["all"])
    rows = [
        {"magnitude": (i + 0.5) * width, "all weights": count / total}
        | {f"kept by {name}": one["kept"][i] / total for name, one in found.items()}
        for i, count in enumerate(first["all"])
    ]
    lines = [line(f"kept by {name}", markers=False, like=name) for name in found]
    return Chart(
        rows,
        x=linear("magnitude", "magnitude of the weight"),
        y=percent("share of the weights"),
        marks=[line("all weights", markers=False), *lines],
    )


@page.table
def costs(r: Records) -> Sequence[Row]:
    """What zeros cost in one layer, beside what the model can do with as many."""
    dense, one = product(r, "dense"), r.of(STEM).one(part="cost")
    return [
        {
            "weights removed": f"{100 * float(at):g} %",
            "accuracy": pruned(r, "weights", "l1", float(at)),
            "masked, speed": dense / product(r, "masked", float(at)),
            "CSR, speed": dense / product(r, "csr", float(at)),
            "CSR, bytes": f"{number(size['csr'] / size['dense'])} ×",
            "zipped, bytes": f"{number(size['zip'] / size['dense'])} ×",
        }
        for at, size in sorted(one.values["bytes"].items())
    ]


@page.table
def points(r: Records) -> Sequence[Row]:
    """Every point, and the products that are left of each, counted untrained."""
    rows: list[Row] = []
    for part in PARTS:
        for row in points_of(r, part)[1:]:
            at = float(row["removed"])
            said = {name: str(cell) for name, cell in row.items()}
            left = {f"left, {n}": _left(r, part, method, at) for method, n in METHODS.items()}
            rows.append({"pruned": part, **said, "removed": f"{100 * at:g} %", **left})
    return rows


def _left(r: Records, part: str, method: str, at: float) -> str:
    if at not in run_at(r, part, method):
        return ""
    return per_cent(mean(pruned(r, part, method, at), "zeros", "products"))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """What learning rates leave on validation, at the points that try them."""
    return [
        {
            "weights removed": f"{100 * float(one.case.params['sparsity'] or 0):g} %",
            "by": METHODS[str(one.case.params["pruning"])],
            **{
                rate: f"{per_cent(judged['validation_accuracy'])}, "
                f"{number(judged['validation_loss'])}"
                for rate, judged in sorted(one.values["rates"].items(), key=lambda it: float(it[0]))
            },
        }
        for one in r.of(STEM).all(part="rates")
    ]
