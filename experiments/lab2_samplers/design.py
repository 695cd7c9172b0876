"""Trials, draws, learning rates and margins of question 2.1."""

SAMPLERS_COMPARED = ("tpe", "random")  # on every draw; Grid has one study
DRAWS_A_SEED = 2  # on which TPE and Random search: seven points apart on the tuning seed
DRAW_STRIDE = 100  # more than a seed has draws: no two studies share one
TRIALS = 30  # of a study
SHORT_TRIALS = 6  # the beginning of one, to be run again
TRIAL_SENTENCES = 1024
TRIAL_RATE = 2e-4
BATCH = 16  # sentences
MARGIN = 0.02  # of accuracy: what a search may give away to the whole model
TIE_NATS = 1e-2  # of validation loss, less than five hundred sentences tell apart
# Rates of the training in full: of what is cut (the mean of both choices), and of the whole model.
# The smallest that is within TIE_NATS of the best of both, where there is one, is that of both.
RATES_TRIED = {"cut": (3e-5, 1e-4, 3e-4, 1e-3), "whole": (3e-5, 1e-4, 3e-4)}
RATES = {"cut": 1e-4, "whole": 1e-4}
RANDOM_RATE = 3e-4  # what Random's choice alone would have
# The whole model that what was chosen is held against is the one of less validation loss on the
# tuning seed: as the search found it (left alone), or trained in full as well.
IS_WHOLE_LEFT_ALONE = True
PROBE_SENTENCES, PROBE_TOKENS = 4, 16  # on which outputs of what is built are compared
# Name → distance from zero, and standard deviation from seed to seed, each with two studies and
# 1,800 sentences of its own: computed from five models of an earlier run.
TRUTHS = {
    "TPE's choices lead by 2 points": (0.02, 0.012),
    "TPE's choices lead by 1 point": (0.01, 0.012),
}
