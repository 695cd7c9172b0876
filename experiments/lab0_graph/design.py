"""Numbers of sentences of question 0.1: those the model is captured on, and those it is run on."""

EXAMPLE_SENTENCES = 4  # that the model is captured on
PROBE_SENTENCES = 64  # whose outputs are compared
BATCH_SENTENCES = 32
