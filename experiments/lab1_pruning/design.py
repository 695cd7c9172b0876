"""Sparsities, learning rates, margins and budgets of question 1.2.

Units: sparsities are shares removed.
"""

PARTS = ("weights", "inputs", "both")
SPARSITIES = tuple(tenths / 10 for tenths in range(1, 10))
THIRD, HALF, FAR, MOST = 0.3, 0.5, 0.8, 0.9  # sparsities by name
SPARSITIES_ON_ALL = (THIRD, HALF, FAR)  # of weights and inputs, trained on, on every seed
GUESSING_SPARSITY = 0.6  # random pruning at or above it, which guesses, has one seed as pruned
# Of the weights alone, trained on, on every seed.
OF_WEIGHTS = (("l1", HALF), ("wanda", HALF), ("2:4", HALF), ("random", HALF), ("l1", FAR))
TIE_NATS = 1e-2  # of validation loss; of formats as near to the best the narrowest will do
# A training has the rate of the point that it is most like.
POINTS: dict[str, dict[str, str | int | float | None]] = {
    "nothing": {"part": "nothing", "sparsity": 0.0},
    "half of both, L1-norm": {"part": "both", "pruning": "l1", "sparsity": HALF},
    "half of both, random": {"part": "both", "pruning": "random", "sparsity": HALF},
    "half of the weights, L1-norm": {"part": "weights", "pruning": "l1", "sparsity": HALF},
    "half of the weights, random": {"part": "weights", "pruning": "random", "sparsity": HALF},
    "80 % of the weights, L1-norm": {"part": "weights", "pruning": "l1", "sparsity": FAR},
}
RATES_TRIED = dict.fromkeys(POINTS, (3e-5, 1e-4, 2e-4, 3e-4, 1e-3))
# Of least validation loss, but none at which training collapses to chance on the tuning seed, nor
# the next lower one, at which it may on another seed: so that this costs little, rates are close.
RATES = dict.fromkeys(POINTS, 2e-4)
RECOVERY_BATCH = 16  # sentences
PASSES_ASKED = 5  # of training, as the sheet has it: on the tuning seed, to see what they add
# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own: of these 0.8 points where 12 of 100 answers differ, and half a point of the
# models.
TRUTHS = {
    "random is as accurate as L1-norm": (0.01, 0.0095),
    "random loses two points": (-0.01, 0.0095),
    "80 % of the weights cost nothing": (0.01, 0.0095),
    "80 % of the weights cost two points": (-0.01, 0.0095),
}

CALIBRATION_SENTENCES = 32  # that set the rules of inputs, alike in length: no padding
PROBE_SENTENCES = 32  # of validation, on which zeros are counted
LAYER = 4  # the first feed-forward matrix, the largest kind: shown and timed
TIMED_TOKENS = 256
TIMED_SPARSITIES = (HALF, MOST, 0.99)
PROCESSES = 9  # that time the layer
BUDGET_S = 0.5  # seconds in a process
