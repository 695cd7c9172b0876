"""The points of the width study: which fraction widths are tried at a width, and which is chosen.

A fixed-point format of `width` bits with `frac_width` of them behind the point has a step of
2^-frac_width and a range of ±2^(width - 1 - frac_width). Weights (and biases) and inputs are of one
width; they share one fraction width, or each has its own. The choice is made on validation, by the
sweeps of `lab1_fractions`, for PTQ and for QAT apart.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from madl.logbook.arms import Arm, best_of, every_arm
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Records

FIXED_RULE = 4  # one of the coursework's two rules: always four bits behind the point
Pair = tuple[int, int]  # bits behind the point: of weights and biases, of inputs

# One fraction width for both, after quantization alone: every one that leaves some of either.
SHARED: Mapping[int, tuple[int, ...]] = {
    **{4: (2, 3, 4, 5, 6), 5: (2, 3, 4, 5, 6), 6: (2, 3, 4, 5, 6, 7), 7: (3, 4, 5, 6, 7)},
    **{8: (3, 4, 5, 6, 7, 8), 9: (4, 5, 6, 7, 8), 10: (4, 5, 6, 7, 8), 12: (4, 6, 8)},
    **{16: (4, 8), 24: (4, 12), 32: (4, 16)},
}
# A fraction width of its own for each: weights are small and inputs are large.
OWN: Mapping[int, tuple[Pair, ...]] = {
    4: tuple(product((4, 5, 6), (1, 2, 3))),
    5: tuple(product((5, 6, 7), (1, 2, 3))),
    6: tuple(product((5, 6, 7), (2, 3, 4))),
    7: tuple(product((6, 7, 8), (3, 4, 5))),
    8: tuple(product((7, 8, 9), (3, 4, 5))),
    10: ((7, 5), (8, 4), (8, 5)),
}
# Training on costs more: it tries what quantization alone prefers, and one width for both. Wider
# formats take PTQ's choice. The first pair also tries the second learning rate.
TRAINED: Mapping[int, tuple[Pair, ...]] = {
    4: ((5, 2), (5, 3), (5, 5)),
    5: ((6, 2), (6, 3), (5, 5)),
    6: ((6, 3), (7, 4), (5, 5)),
    7: ((7, 4), (8, 4), (5, 5)),
    8: ((8, 4), (7, 4), (6, 6)),
}
LEARNING_RATES = (3e-5, 1e-4)
APART = 4  # bits: the width at which weights and inputs are also quantized alone
ALONE = {"weights": (4, 5, 6), "inputs": (1, 2, 3, 4)}


def half(width: int) -> int:
    """The coursework's other rule: half of the bits behind the point."""
    return width // 2


def of_plan(plan: Plan) -> tuple[int, ...]:
    """The widths of a run."""
    return plan.profile.choose(smoke=(4, 8), quick=(4, 6, 8, 10, 12, 16, 32), full=tuple(SHARED))


def training(plan: Plan, learning_rate: float) -> Params:
    """The further training of QAT, and of its control."""
    return {
        "tune_examples": plan.profile.choose(smoke=32, quick=512),
        "tune_learning_rate": learning_rate,
        "tune_batch_size": 16,
    }


def trainings(plan: Plan, width: int) -> Iterator[Params]:
    """All that QAT tries at a width: pairs and learning rates."""
    first, second = LEARNING_RATES
    for i, pair in enumerate(TRAINED.get(width, ())):
        yield {**point(width, pair), **training(plan, first)}
        if i == 0:
            yield {**point(width, pair), **training(plan, second)}


def point(width: int, pair: Pair, operands: str = "both") -> Params:
    """The parameters of a point."""
    weights, inputs = pair
    named = {"frac_width": weights, "input_frac_width": inputs}
    return {"operands": operands, "width": width, **named}


def pairs(width: int) -> tuple[Pair, ...]:
    """All that PTQ tries at a width."""
    return (*((frac, frac) for frac in SHARED[width]), *OWN.get(width, ()))


def tried(plan: Plan, width: int) -> tuple[Pair, ...]:
    """What PTQ tries in a run; in a smoke run, the two rules and one pair of its own."""
    rules = ((half(width), half(width)), (FIXED_RULE, FIXED_RULE))
    few = tuple(dict.fromkeys((*rules, *OWN.get(width, ())[:1])))
    return plan.profile.choose(smoke=few, quick=pairs(width))


def pair_of(a: Arm) -> Pair:
    """The bits behind the point of an arm's weights and of its inputs."""
    return a.param("frac_width"), a.param("input_frac_width")


def chosen(
    r: Records, swept: str, width: int, *, operands: str = "both", shared: bool = False
) -> Arm:
    """What validation prefers at this width among all that was swept.

    `shared` leaves only those where weights and inputs have one fraction width.
    """
    label = f"{swept.upper()} at {width} bits"
    arms = every_arm(r, label, swept=swept, width=width, operands=operands)
    return best_of([a for a in arms if not shared or len(set(pair_of(a))) == 1])


def power(rate: float) -> str:
    """A learning rate in words: "3e-5"."""
    return f"{rate:.0e}".replace("e-0", "e-")
