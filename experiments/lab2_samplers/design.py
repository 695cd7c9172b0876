"""Trials, draws, learning rates and margins of question 2.1."""

COMPARED = ("random", "grid", "tpe")  # on every draw
OLDER = "independent tpe"  # Optuna's default before version 5
SAMPLERS = (*COMPARED, OLDER)
DRAWS_A_SEED = 1
DRAW_STRIDE = 1000  # more than a seed has draws: no two studies share one; none is a known draw
TRIALS = 30  # of a study
SHORT_TRIALS = 6  # the beginning of one, to be run again
TRIAL_SENTENCES = 1024
TRIAL_RATE = 2e-4
BATCH = 16  # sentences
TIE_NATS = 1e-2  # of validation loss, less than five hundred sentences tell apart
# Rates of the training in full, tried for what TPE and Random choose and for the whole model. One
# serves all, so that choices differ in nothing but the sampler: on the tuning seed it is within
# TIE_NATS of the least validation loss of each, of rates that neither collapse to chance there nor
# lie next below one that does.
RATES_TRIED = dict.fromkeys(("tpe", "random", "whole"), (3e-5, 1e-4, 2e-4, 3e-4, 1e-3))
RATE = 2e-4
PROBE_SENTENCES, PROBE_TOKENS = 4, 16  # on which outputs of what is built are compared
# Name → distance from zero, and standard deviation from seed to seed, each with a study and 1,800
# sentences of its own: of five models of an earlier run, with two studies each, 0.012.
TRUTHS = {
    "TPE's choices lead by 1 point": (0.01, 0.016),
    "TPE's choices lead by 2 points": (0.02, 0.016),
}
