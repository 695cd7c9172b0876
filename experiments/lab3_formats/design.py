"""Question 3.2's design, decided before its data: places of formats, searches, rates, margins.

A format is named by its preset. Its places say where its values lie: numbers of bits after the
point, or biases of exponents, one for weights and one for inputs.
Units: losses in nats; rates are learning rates.
"""

# The places of formats without a scale: of fixed point those of question 1.1, of the others of
# at most 8 bits those that a search finds ("best"). The range of `log(8)` has room for all
# values wherever it stands.
FIXED_POINTS = {"fixed(4,2)": (5, 2), "fixed(8,4)": (8, 3), "fixed(16,8)": (13, 7)}
SEARCHED_PLACES = (
    *("log(4)", "minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)", "minifloat(8,4)"),
    *("minifloat(8,4,nan)", "minifloat(8,5,ieee)", "denormal(4,2)", "denormal(8,4)"),
)
PLACES = {**FIXED_POINTS, **dict.fromkeys(SEARCHED_PLACES, "best")}
# By bits: the largest weight and input that a search for places starts from, which are about those
# that the fixed point of as many bits holds where question 1.1 places it.
LARGEST = {4: (0.25, 2.0), 6: (0.5, 8.0), 8: (0.5, 16.0)}
LEAST_GAIN = 1e-4  # nats: a smaller difference moves no place
PROBE_SENTENCES = 16  # whose activations are counted

MARGIN = 0.02  # accuracy that a format may cost: chooses on validation, and tests

SAMPLER = "tpe"
PRICE = 0.02  # nats of validation loss that one bit a weight has to save, in a search
TRIALS, FAMILY_TRIALS = 300, 16  # after the single formats: over all formats, over one precision
RATES_TRIED = (3e-5, 1e-4, 3e-4, 1e-3)  # of training on
RATES = {"mix": 3e-4, "rival": 3e-4}
TIE_NATS = 0.01  # of validation loss, in which rates tie
TUNED_ONCE = ("ternary(0.7)", "log(4)", "minifloat(4,2)", "mxfp4-e2m1")  # on the first seed

# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own: computed from 1.1's six bits beside FP32, and from 3.1's mix beside five
# bits for all, both trained on.
TRUTHS = {
    "the narrowest loses nothing": (MARGIN, 0.0057),
    "a search gains 2 points": (0.020, 0.0055),
}
