"""Sparsities, learning rates, margins and budgets of question 1.2.

Units: sparsities are shares removed.
"""

PARTS = ("weights", "inputs", "both")
SPARSITIES = tuple(tenths / 10 for tenths in range(1, 10))
THIRD, HALF, FAR, MOST = 0.3, 0.5, 0.8, 0.9  # sparsities by name
GUESSING_SPARSITY = 0.6  # random pruning at or above it, which guessed earlier, has one seed
NEAR_SPARSITIES = {"l1": 0.6, "random": 0.1}  # both keep about as much squared magnitude
MARGIN = 0.02  # of accuracy: what half of the weights may cost
TIE_NATS = 1e-2  # of validation loss, less than five hundred sentences tell apart
# Rates of training on: with nothing removed, with half of the weights removed by L1, with three in
# ten at random. A lower one than these tends to no training at all.
RATES_TRIED = {
    "nothing": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
    "l1": (3e-5, 1e-4, 3e-4, 1e-3),
    "random": (3e-5, 1e-4, 3e-4, 1e-3),
}
# Of each list the rate of least validation loss, but none at which training collapses to chance on
# the tuning seed, nor the next lower one, at which it may on another seed, as in 1.1.
RATE = 1e-4
SPARSITIES_TRAINED = {"l1": (THIRD, HALF), "random": (THIRD,)}  # of the weights, on every seed
POINTS_TRAINED_ONCE = (  # on the first
    *(("weights", "l1", sparsity) for sparsity in (0.7, FAR)),
    *(("weights", "random", sparsity) for sparsity in (0.1, HALF)),
    ("both", "l1", FAR),
)
RECOVERY_BATCH = 16  # sentences
SHORT_SENTENCES = 512  # of a training of a few steps
# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own. Computed from five models of an earlier 1.1 after a pass of training, at 8
# and at 4 bits against FP32, and from the sentences of three models of an earlier run of this page.
TRUTHS = {
    "half of the weights cost nothing": (MARGIN, 0.009),
    "L1-norm wins by 5 points": (0.05, 0.019),
}

CALIBRATION_SENTENCES = 32  # that set the rules of inputs, alike in length: no padding
PROBE_SENTENCES = 32  # of validation, on which zeros are counted
LAYER = 4  # the first feed-forward matrix, the largest kind: shown and timed
TIMED_TOKENS = 256
TIMED_SPARSITIES = (HALF, MOST)
PROCESSES = 9  # that time the layer
BUDGET_S = 0.5  # seconds in a process
