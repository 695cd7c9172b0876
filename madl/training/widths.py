"""The points of the width study: which fraction widths are tried at a width, and which is chosen.

A fixed-point format of `width` bits with `frac_width` of them behind the point has a step of
2^-frac_width and a range of ±2^(width - 1 - frac_width). Weights (and biases) and inputs are of one
width; they share one fraction width, or each has its own. The choice is made on validation, by the
sweeps of `lab1_fractions`, for PTQ and for QAT apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from madl.logbook.arms import Arm, arm, best, best_of, every_arm
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Records, Row

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


def training_of(a: Arm) -> Params:
    """The further training that an arm was given."""
    names = ("tune_examples", "tune_learning_rate", "tune_batch_size")
    return {name: a.param(name) for name in names}


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


def behind(a: Arm) -> str:
    """How an arm's bits are split, in words; where they differ, weights | inputs."""
    weights, inputs = pair_of(a)
    if weights == inputs:
        return f"{weights} bits behind the point"
    return f"{weights} | {inputs} behind the point"


def power(rate: float) -> str:
    """A learning rate in words: "3e-5"."""
    return f"{rate:.0e}".replace("e-0", "e-")


def tried_at(r: Records, width: int) -> set[Pair]:
    """All that PTQ tried at a width."""
    return {pair_of(a) for a in every_arm(r, swept="ptq", width=width, operands="both")}


def is_shared_only(r: Records, width: int) -> bool:
    """Whether nothing but one fraction width for both was tried."""
    return all(weights == inputs for weights, inputs in tried_at(r, width))


def restricted(r: Records, tried: Sequence[int]) -> list[Row]:
    """PTQ's validation accuracy at each width, under more and more restriction."""

    def ruled(width: int, frac: int) -> float:
        return arm(r, swept="ptq", **point(width, (frac, frac))).validation

    return [
        {
            "width": width,
            "one for each": None
            if is_shared_only(r, width)
            else chosen(r, "ptq", width).validation,
            "one for both": chosen(r, "ptq", width, shared=True).validation,
            "half the width": ruled(width, half(width)),
            "fixed at four": ruled(width, FIXED_RULE),
        }
        for width in tried
    ]


def by_operand(r: Records) -> list[Row]:
    """PTQ's validation accuracy where weights and inputs are also quantized alone."""
    rows: dict[int, dict[str, float]] = {}
    for operands in (*ALONE, "both"):
        for one in every_arm(r, swept="ptq", width=APART, operands=operands):
            weights, inputs = pair_of(one)
            if weights == inputs:
                rows.setdefault(weights, {})[operands] = one.validation
    return [
        {"fraction": frac} | {name: rows[frac].get(name) for name in (*ALONE, "both")}
        for frac in sorted(rows)
    ]


# ---- what was judged on test --------------------------------------------------------------------


def ptq(r: Records, width: int, operands: str = "both") -> Arm:
    """Quantized alone, with the fraction widths that validation prefers."""
    return best(r, f"PTQ at {width} bits", method="ptq", width=width, operands=operands)


def qat(r: Records, width: int) -> Arm:
    """Trained on in the format, with the fraction widths that validation prefers."""
    return best(r, f"QAT at {width} bits", method="qat", width=width)


def qat_like(r: Records, a: Arm) -> Arm:
    """Trained on in this arm's format."""
    return best(r, f"QAT as {a.label}", method="qat", **point(a.param("width"), pair_of(a)))


def shared(r: Records, width: int, frac: int, operands: str = "both") -> Arm:
    """Quantized alone, with one fraction width for weights and inputs."""
    place = point(width, (frac, frac), operands)
    return arm(r, f"fixed({width},{frac})", method="ptq", **place)


def best_shared(r: Records, width: int, swept: str = "ptq") -> Arm:
    """Quantized alone, with the fraction width that validation prefers of those for both."""
    return shared(r, width, pair_of(chosen(r, swept, width, shared=True))[0])
