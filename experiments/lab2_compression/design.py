"""Objectives, sizes, learning rates and budgets of question 2.2."""

PLAIN, AFTER, BETWEEN = OBJECTIVES = ("plain", "compressed", "compressed and trained on")

# What a candidate is. Sizes are shares of the whole model's own.
SIZE = 1 / 3  # of the Linear weights
LAYERS, HEADS, WIDTH = "num_hidden_layers", "num_attention_heads", "hidden_size"
FEED_FORWARD = "intermediate_size"  # not searched: what is left of the size
SIZES_SEARCHED = {
    LAYERS: (1 / 2, 2 / 3, 5 / 6, 1),
    HEADS: (1 / 4, 1 / 2, 1),
    WIDTH: (1 / 2, 3 / 4, 1),
}
SHAPES = {  # that stand without a search
    "shallow": {LAYERS: 1 / 2, HEADS: 1 / 2, WIDTH: 1},
    "middle": {LAYERS: 5 / 6, HEADS: 1 / 2, WIDTH: 3 / 4},
    "deep": {LAYERS: 1, HEADS: 1 / 2, WIDTH: 1 / 2},
}

# How it is compressed.
BITS, FRACTIONS = 8, (8, 3)  # bits; those after the point of weights, of inputs: 1.1's choice
SPARSITY = 0.6  # of a layer's weights, by L1-norm: in 1.2 the first share that hurts badly at once

# How it is searched and trained.
SAMPLER = "tpe"  # 2.1's best
TRIALS = 20
TRIAL_SENTENCES = 1024
TRIAL_RATE = 2e-4  # as in 2.1
BATCH = 16  # sentences
# Rates of a full training: never compressed, all of it before the compression, or half after.
RATES_TRIED = (5e-5, 1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3)
RATES = {PLAIN: 2e-4, AFTER: 4e-4, BETWEEN: 4e-4}  # by validation loss on the tuning seed
TIE_NATS = 1e-2  # of validation loss, less than five hundred sentences tell apart

# Name → distance from zero, and standard deviation from seed to seed, each with 1,800 sentences of
# its own: computed from three models of an earlier run, searched and trained shortly.
TRUTHS = {
    "the objective gains 2 points": (0.02, 0.0096),
    "training on gains 4 points": (0.04, 0.018),
}
