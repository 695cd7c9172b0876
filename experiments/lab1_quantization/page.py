"""Question 1.1: accuracy against fixed-point width, after quantization and after training on.

Every Linear layer takes fixed point of one width. Where the point lies, how long the starting point
is fine-tuned and at which rate it is trained on is chosen on the tuning seed, by validation loss,
and stands here as constants.
"""

from collections.abc import Iterable

from madl.logbook.experiment import TUNING_SEED, Context, Experiment, Plan
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.widths import Pair, point

page = Experiment(title="Fixed-point width: PTQ and QAT")

NARROW = 4  # bits
STARTS: dict[int, Pair] = {  # of the sweeps: bits behind the point of weights, of inputs
    **{4: (5, 2), 5: (6, 3), 6: (6, 3), 7: (7, 4), 8: (8, 4), 10: (8, 5), 12: (10, 6)},
    **{16: (12, 9), 24: (16, 12), 32: (20, 16)},
}
WIDTHS = tuple(STARTS)
TRAINED = (4, 5, 6, 8)  # bits, on every seed
TRAINED_ONCE = (10, 16, 32)  # on one seed
RATES = (1e-5, 3e-5, 1e-4)
CHOSEN: dict[int, Pair] = {
    **{4: (5, 2), 5: (6, 3), 6: (6, 3), 7: (7, 4), 8: (8, 4), 10: (8, 5), 12: (10, 6)},
    **{16: (12, 9), 24: (16, 12), 32: (20, 16)},
}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for passes in choose(smoke=(1,), quick=(3, 1, 2)):
        yield {"method": "fp32", **baseline.drawn_params(plan, TUNING_SEED, passes)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab1_quantization import study

    if params["draw"] == TUNING_SEED:
        return study.validated(params, ctx)
    return study.judged(params, ctx)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in plan.seeds:
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}
