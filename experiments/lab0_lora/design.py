"""Ways of training, learning rates, margins and budgets of question 0.2."""

ALPHA = 16.0  # of the adapters' factor α/rank, for every rank
FROZEN_PART = "embeddings"
FULL, FROZEN, MIDDLE = "full fine-tuning", "frozen embeddings", "LoRA, rank 8"
RANKS = {"LoRA, rank 2": 2, MIDDLE: 8, "LoRA, rank 32": 32}
WAYS: dict[str, dict[str, str | int | float | None]] = {
    FULL: {"method": "full"},
    **{name: {"method": "lora", "rank": rank, "alpha": ALPHA} for name, rank in RANKS.items()},
    FROZEN: {"method": "frozen"},
}
# Learning rates; the one in use has a worse neighbour below it, and above it a worse one or one
# that lies next to a collapse.
RATES_TRIED = {
    FULL: (5e-5, 1e-4, 2e-4, 4e-4),
    "LoRA, rank 2": (5e-4, 1e-3, 1.5e-3, 2e-3, 4e-3, 8e-3),
    MIDDLE: (5e-4, 1e-3, 2e-3, 4e-3),
    "LoRA, rank 32": (5e-4, 1e-3, 2e-3, 4e-3),
    FROZEN: (5e-5, 1e-4, 2e-4, 4e-4),
}
# Of least validation loss on the tuning seed, and not next to one at which training collapses.
RATES = {FULL: 2e-4, "LoRA, rank 2": 1.5e-3, MIDDLE: 2e-3, "LoRA, rank 32": 2e-3, FROZEN: 2e-4}
# Standard deviation of the effect from seed to seed, each with 1,800 sentences of its own: of the
# sentences 0.7 points, where two models differ in 9 of 100 answers; of the models half a point.
SCATTER = 0.0086
MARGIN = 0.01
TRUTHS = {
    "LoRA loses nothing": (MARGIN, SCATTER),
    "LoRA loses half a point": (MARGIN - 0.005, SCATTER),
    "LoRA loses two points": (MARGIN - 0.02, SCATTER),
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
