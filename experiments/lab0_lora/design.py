"""Ranks, learning rates, margins and budgets of question 0.2."""

RANK = 8  # the middle of those that LoRA's paper tries; fixed before any run
RANKS_ONCE = (2, 32)  # on the first seed, at the rate of RANK
ALPHA = 16.0  # for every rank: a larger rank gets a smaller scale, so one learning rate fits all
FROZEN_PART = "embeddings"
# Learning rates; the best has a worse neighbour on either side.
RATES_TRIED = {"full": (5e-5, 1e-4, 2e-4, 4e-4), "lora": (5e-4, 1e-3, 2e-3, 4e-3)}
RATES = {"full": 2e-4, "lora": 2e-3}  # of least validation loss on the tuning seed
MARGIN = 0.03  # three points: what an answer may cost that trains a fraction of the parameters
# Standard deviation of the effect from seed to seed, each with 1,800 sentences of its own: computed
# from three models of an earlier run, trained on fewer sentences.
SCATTER = 0.0143
TRUTHS = {
    "LoRA loses nothing": (MARGIN, SCATTER),
    "LoRA loses one point": (MARGIN - 0.01, SCATTER),
}

LOGIT_TOLERANCE = 1e-4  # the largest difference of a logit that counts as the same
FUSED_SENTENCES = 128  # whose logits are compared before and after fusing

EXAMPLE_SENTENCES = 4  # that the model is captured on
PROBE_SENTENCES = 128  # whose logits are compared with and without a mask
PAD_TOKENS = 16  # behind each sentence of the padded batches

STEP_SENTENCES = 8  # of the training step that is timed
PROCESSES = 9  # that time it: between them is a verdict's interval
SAMPLES = 3  # of each variant in a process, at least
BUDGET_S = 1.0  # seconds for a variant in a process
