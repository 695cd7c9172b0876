"""The points of the pruning study: which there are, and how their records are read.

A point is a part (weights, inputs or both), a sparsity and a method. Weights are ranked within a
layer. Inputs are pruned by L1 through a threshold a layer, by chance through features that are the
same for every token; see `compression.prune.prune_inputs_`. A point is judged untrained ("before")
and trained on ("after"), and held against the same training with nothing removed.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from madl.logbook.arms import Arm, arm, best_of, every_arm
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Records
from madl.logbook.stats import per_cent

STEM = "lab1_pruning"
METHODS = {"l1": "L1-norm", "random": "Random"}
BY = {"l1": "by L1-norm", "random": "at random"}
PARTS = ("weights", "inputs", "both")
HALF = 0.5  # the sparsity at which methods are held side by side
ALONE = PARTS[:2]
QUARTER_LEFT = 0.75  # of one operand: as few products as are left when half of both is removed
FEW = 0.2  # of the weights, at random: an L1 mask of a high sparsity keeps as much magnitude
AS_MUCH = 0.02  # of the squared magnitude: masks that keep it alike
TUNED = {"l1": 0.7, "random": 0.3}  # of the weights: damaged alike, they try learning rates
POINT_FIELDS = (
    *("operands", "width", "frac_width", "input_frac_width"),
    *("tune_examples", "tune_learning_rate", "tune_batch_size"),
)


def of_plan(plan: Plan) -> tuple[float, ...]:
    """The sparsities of a run."""
    nine = tuple(tenths / 10 for tenths in range(1, 10))
    return plan.profile.choose(smoke=(HALF,), quick=nine)


def trained_on(plan: Plan) -> Iterator[Params]:
    """The points that are trained on: nothing removed, all that is asked, and one operand alone."""
    yield {"part": "nothing", "sparsity": 0.0}
    for part in PARTS:
        for sparsity in of_plan(plan):
            for method in METHODS:
                yield {"part": part, "sparsity": sparsity, "pruning": method}
    for part in ALONE:
        yield {"part": part, "sparsity": QUARTER_LEFT, "pruning": "l1"}


def masks(plan: Plan) -> Iterator[Params]:
    """Random masks of the weights that keep as much magnitude as an L1 mask of a high sparsity."""
    few = next(at for at in of_plan(plan) if at >= FEW)
    for mask in range(1, 1 + plan.profile.choose(smoke=2, quick=6)):
        yield {"part": "mask", "pruning": "random", "sparsity": few, "mask": mask}


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


def intact(r: Records, when: str) -> Arm:
    """The model with nothing removed, before or after the training on."""
    return control(r) if when == "after" else starting(r)


def pruned(r: Records, part: str, method: str, at: float, when: str = "after") -> Arm:
    """The models of one point, after training on or before it."""
    label = METHODS.get(method, method)
    return arm(own(r), label, when, part=part, pruning=method, sparsity=at)


def asked(r: Records) -> list[float]:
    """The sparsities of all parts and methods; weights and inputs have one more."""
    return own(r).where(part="both").each("sparsity")


def run_at(r: Records, part: str, method: str) -> list[float]:
    """The sparsities of one part by one method: what is asked, and what was run beside it."""
    return own(r).where(part=part, pruning=method).each("sparsity")


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


def tried(r: Records, part: str) -> list[Arm]:
    """Pruned by L1 at each sparsity, trained on or not, as validation prefers."""
    return [better(r, part, at) for at in run_at(r, part, "l1")]


def free(r: Records, part: str) -> Arm | None:
    """The highest L1 sparsity that validation finds as good as nothing removed, if any is."""
    as_good = [one for one in tried(r, part) if one.validation >= whole(r).validation]
    return as_good[-1] if as_good else None


def gains_most(r: Records) -> tuple[Arm, Arm]:
    """L1-pruned weights after and before training, where validation gains most by it."""
    pairs = zip(curve(r, "weights", "l1"), curve(r, "weights", "l1", "before"), strict=True)
    return max(pairs, key=lambda pair: pair[0].validation - pair[1].validation)


def alike(r: Records) -> tuple[Arm, Arm]:
    """Untrained: the L1 mask of the weights that keeps as much as several random ones, and these.

    It is held against each of them, so it stands there once for each.
    """
    found = tuple(own(r).all(part="mask"))
    rand = Arm(label="random masks", records=found, within=("before",), units="random masks")
    l1 = curve(r, "weights", "l1", "before")
    nearest = min(l1, key=lambda one: abs(energy(one) - energy(rand)))
    of = {record.case.params["seed"]: record for record in nearest.records}
    same = tuple(of[record.case.params["seed"]] for record in found)
    return replace(nearest, records=same, units=rand.units), rand


def pairs_alike(r: Records) -> list[tuple[Arm, Arm]]:
    """Untrained: each L1 mask of the weights with the random one that keeps as much, if one does.

    Of every model one mask by each method.
    """
    l1, rand = (curve(r, "weights", method, "before") for method in METHODS)
    nearest = [min(rand, key=lambda one: abs(energy(one) - energy(a))) for a in l1]
    return [(a, b) for a, b in zip(l1, nearest) if abs(energy(a) - energy(b)) < AS_MUCH]


def one_alone(r: Records) -> Arm:
    """One operand pruned until as many products are left as when half of both is removed, or more.

    Of the sparsities that were run the nearest, of the operands the one that validation prefers.
    """
    enough = products_left(better(r, "both", HALF))
    half_or_more = {
        part: [better(r, part, at) for at in (*asked(r), QUARTER_LEFT) if at >= HALF]
        for part in ALONE
    }
    return best_of(
        [
            min(
                (one for one in arms if products_left(one) >= enough),
                key=products_left,
                default=arms[0],
            )
            for arms in half_or_more.values()
        ]
    )
