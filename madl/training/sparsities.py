"""The points of the pruning study: which there are, and how their records are read.

A point is a part (weights, inputs or both), a sparsity and a method. Weights are ranked within a
layer. Inputs are pruned by L1 through a threshold a layer, by chance through features that are the
same for every token; see `compression.prune.prune_inputs_`. A point is judged untrained ("before")
and trained on ("after"), and held against the same training with nothing removed.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from madl.logbook.arms import Arm, TimedArm, arm, best_of, every_arm, timed
from madl.logbook.claims import Fact
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Records, Row
from madl.logbook.stats import number, per_cent

STEM = "lab1_pruning"
METHODS = {"l1": "L1-norm", "random": "Random"}
PARTS = ("weights", "inputs", "both")
HALF = 0.5  # the sparsity at which methods are held side by side
ALONE = PARTS[:2]
QUARTER_LEFT = 0.75  # of one operand: as few products as are left when half of both is removed
TUNED = {"l1": 0.7, "random": 0.3}  # of the weights: damaged alike, they try learning rates
INPUTS = {  # what is removed of the inputs, by method
    "l1": "values below the layer's threshold",
    "l1 features": "features of the least L1 norm",
    "random": "random features",
    "fresh random": "random values, others at every forward",
}
POINT_FIELDS = (
    *("operands", "width", "frac_width", "input_frac_width"),
    *("tune_examples", "tune_learning_rate", "tune_batch_size"),
)


def of_plan(plan: Plan) -> tuple[float, ...]:
    """The sparsities of a run."""
    nine = tuple(tenths / 10 for tenths in range(1, 10))
    return plan.profile.choose(smoke=(HALF,), quick=nine, full=nine)


def trained_on(plan: Plan) -> Iterator[Params]:
    """The points that are trained on: nothing removed, all that is asked, and one operand alone."""
    yield {"part": "nothing", "sparsity": 0.0}
    for part in PARTS:
        for sparsity in of_plan(plan):
            for method in METHODS:
                yield {"part": part, "sparsity": sparsity, "pruning": method}
    for part in ALONE:
        yield {"part": part, "sparsity": QUARTER_LEFT, "pruning": "l1"}


def starting(r: Records) -> Arm:
    """The width study's best point on validation data, over its seeds; of equals the narrowest."""
    arms = every_arm(r.of("lab1_quantization"), "nothing removed", operands="both")
    best = best_of(arms).validation
    return min((a for a in arms if a.validation == best), key=lambda a: a.param("width"))


def starting_point(r: Records) -> Params:
    """The parameters of that point."""
    found = starting(r).records[0].case.params
    return {field: found[field] for field in POINT_FIELDS if found.get(field) is not None}


# ---- the arms -----------------------------------------------------------------------------------


def own(r: Records) -> Records:
    return r.of(STEM)


def control(r: Records) -> Arm:
    """The starting model after the same training, with nothing removed."""
    return arm(own(r), "nothing removed, same training", "after", part="nothing")


def pruned(r: Records, part: str, method: str, at: float, when: str = "after") -> Arm:
    """The models of one point, after training on or before it."""
    label = METHODS.get(method, method)
    return arm(own(r), label, when, part=part, pruning=method, sparsity=at)


def asked(r: Records) -> list[float]:
    """The sparsities of all parts and methods; weights and inputs have one more."""
    return own(r).where(part="both").each("sparsity")


def curve(r: Records, part: str, method: str, when: str = "after") -> list[Arm]:
    return [pruned(r, part, method, at, when) for at in asked(r)]


def removed(a: Arm) -> str:
    return shown(a.param("sparsity"))


def shown(share: float) -> str:
    return f"{100 * share:g} %"


def counted(a: Arm, group: str, name: str) -> float:
    """What was counted beside a judgement, mean over the seeds."""
    return fmean(one.values[group][name] for one in a.records)


def products_left(a: Arm) -> float:
    """The share of products with two factors other than zero."""
    return counted(a, "zeros" if a.within == ("before",) else "zeros_after", "products")


def left(a: Arm) -> str:
    return per_cent(products_left(a))


def energy(a: Arm) -> float:
    """The share of the weights' squared magnitude that the masks keep."""
    return counted(a, "kept", "l2")


# ---- chosen on validation -----------------------------------------------------------------------


def better(r: Records, part: str, at: float) -> Arm:
    """Pruned by L1, trained on or not, as validation prefers."""
    return best_of([pruned(r, part, "l1", at, when) for when in ("before", "after")])


def whole(r: Records) -> Arm:
    """With nothing removed, trained on or not, as validation prefers."""
    return best_of([starting(r), control(r)])


def how(a: Arm) -> str:
    return "trained on" if a.within == ("after",) else "untrained"


def free(r: Records, part: str) -> Arm:
    """The highest L1 sparsity that validation finds as good as nothing removed; else the best."""
    tried = [better(r, part, at) for at in asked(r)]
    as_good = [one for one in tried if one.validation >= whole(r).validation]
    return as_good[-1] if as_good else best_of(tried)


def gains_most(r: Records) -> tuple[Arm, Arm]:
    """L1-pruned weights after and before training, where validation gains most by it."""
    pairs = zip(curve(r, "weights", "l1"), curve(r, "weights", "l1", "before"), strict=True)
    return max(pairs, key=lambda pair: pair[0].validation - pair[1].validation)


def alike(r: Records, few: float) -> tuple[Arm, Arm]:
    """Untrained: the L1 masks that keep as much as random ones at the first sparsity from `few`."""
    rand = pruned(r, "weights", "random", min(at for at in asked(r) if at >= few), "before")
    l1 = curve(r, "weights", "l1", "before")
    return min(l1, key=lambda one: abs(energy(one) - energy(rand))), rand


def one_alone(r: Records) -> Arm:
    """Three quarters of one operand removed: of the one that validation prefers."""
    return best_of([better(r, part, QUARTER_LEFT) for part in ALONE])


# ---- rows ---------------------------------------------------------------------------------------


def accuracy_rows(r: Records) -> list[dict[str, Any]]:
    """A row a part and sparsity, from nothing removed on: both methods, untrained and trained."""
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        for at in (0.0, *asked(r)):
            row: dict[str, Any] = {"pruned": part, "removed": at}
            for method, name in METHODS.items():
                untrained = pruned(r, part, method, at, "before") if at else starting(r)
                row[f"{name}, untrained"] = untrained
                row[name] = pruned(r, part, method, at) if at else control(r)
            rows.append(row)
    return rows


def points(r: Records) -> list[Row]:
    """The same as a table, nothing removed once, with what L1 loses against the control."""
    rows: list[Row] = []
    for row in accuracy_rows(r):
        at = row["removed"]
        if not at and rows:
            continue
        difference: Any = row[METHODS["l1"]] - control(r) if at else ""
        named = {"pruned": row["pruned"] if at else "nothing", "removed": shown(at)}
        rows.append({**row, **named, "L1-norm − nothing removed": difference})
    return rows


def zeros(r: Records) -> list[Row]:
    """What the products see before training, by sparsity, from nothing removed on."""
    plain = own(r).all(part="nothing")[0].values["zeros"]
    columns = {"zero weights": "weights", "zero inputs": "inputs", "both, products left": "both"}
    rows: list[Row] = []
    for at in (0.0, *asked(r)):
        row: dict[str, Any] = {"removed": shown(at)}
        for title, part in columns.items():
            what = "products" if part == "both" else part
            for method, name in METHODS.items():
                point = pruned(r, part, method, at, "before") if at else None
                share = counted(point, "zeros", what) if point else plain[what]
                row[f"{title}: {name}"] = per_cent(share)
        rows.append(row)
    return rows


def kept_rows(r: Records) -> list[Row]:
    """Untrained models by what the masks of their weights keep."""
    return [
        {"kept": energy(one), name: one}
        for method, name in METHODS.items()
        for one in curve(r, "weights", method, "before")
    ]


def left_rows(r: Records) -> list[Row]:
    """L1-pruned models, trained on, by what is left to multiply."""
    return [
        {"left": products_left(one), part: one} for part in PARTS for one in curve(r, part, "l1")
    ]


def ways(r: Records) -> list[Row]:
    """Ways to remove half of the inputs, untrained."""
    found = {name: pruned(r, "inputs", how, HALF, "before") for how, name in INPUTS.items()}
    return [
        {"removed": name, "zero inputs": per_cent(counted(one, "zeros", "inputs"))}
        | {"test accuracy": one}
        for name, one in found.items()
    ]


def _named(point: Params) -> str:
    return f"{shown(float(point['sparsity'] or 0))}, {METHODS[str(point['pruning'])]}"


def rates(r: Records) -> list[Row]:
    """What learning rates leave on validation, at the points that try them."""
    return [
        {"weights removed": _named(one.case.params)}
        | {
            rate: f"{per_cent(judged['validation_accuracy'])}, {number(judged['validation_loss'])}"
            for rate, judged in sorted(one.values["rates"].items(), key=lambda it: float(it[0]))
        }
        for one in own(r).all(part="rates")
    ]


def histogram_rows(r: Records) -> list[Row]:
    """One layer's weights by magnitude, and what each method's mask kept of half of them."""
    found = {
        name: pruned(r, "weights", method, HALF).records[0].values["histogram"]
        for method, name in METHODS.items()
    }
    first = next(iter(found.values()))
    total, width = sum(first["all"]), first["top"] / len(first["all"])
    return [
        {"magnitude": (i + 0.5) * width, "all weights": count / total}
        | {f"kept by {name}": one["kept"][i] / total for name, one in found.items()}
        for i, count in enumerate(first["all"])
    ]


# ---- counted over all there is ------------------------------------------------------------------


def fresh_masks_answer_anew(r: Records) -> Fact:
    """What a mask that is drawn at every forward does to an evaluation."""
    found = own(r).all(pruning="fresh random")
    changed, of = (sum(one.values[name] for one in found) for name in ("changed", "of"))
    return Fact(
        text="With a fresh random mask of the inputs at every forward, a model judged again "
        f"answers {changed:,} of the same {of:,} sentences otherwise",
        of=f"{of:,} validation sentences, judged twice",
    )


def draws_differ(r: Records) -> Fact:
    """How far the models of other random masks lie apart, on validation."""
    said: list[str] = []
    found = own(r).all(part="draws")
    for one in found:
        judged = sorted(draw["validation_accuracy"] for draw in one.values["draws"])
        at = shown(float(one.case.params["sparsity"] or 0))
        said.append(f"{per_cent(judged[0])} to {per_cent(judged[-1])} with {at} removed")
    return Fact(
        text="Other draws of the random mask of the weights give other models; before training, "
        f"their validation accuracy is {', '.join(said)}",
        of=f"{found[0].case.params['draws']} draws at each sparsity",
    )


# ---- one layer's cost ---------------------------------------------------------------------------


def timed_at(r: Records) -> list[str]:
    """The sparsities at which one layer's product was timed."""
    return sorted(own(r).one(part="cost").values["bytes"])


def product(r: Records, kind: str, at: str = "") -> TimedArm:
    """One layer's product: dense, inputs (pruned first), masked or csr."""
    return timed(own(r), f"{kind} {at}".strip(), part="cost")


def costs(r: Records) -> Sequence[Row]:
    dense = product(r, "dense")
    rows: list[Row] = []
    for at in timed_at(r):
        size = own(r).one(part="cost").values["bytes"][at]
        rows.append(
            {
                "removed": f"{shown(float(at))} of the weights",
                "dense": dense,
                "masked, speed": dense / product(r, "masked", at),
                "CSR, speed": dense / product(r, "csr", at),
                "CSR, bytes": f"{number(size['csr'] / size['dense'])} ×",
                "compressed, bytes": f"{number(size['zip'] / size['dense'])} ×",
            }
        )
    inputs = {"dense": dense, "masked, speed": dense / product(r, "inputs")}
    return [*rows, {"removed": "half of the inputs", **inputs}]
