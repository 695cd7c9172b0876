"""Question 3.2's design, decided before its data: places of formats, searches, budgets, rates.

A format is named by its preset. Its places say where its values lie: numbers of bits after the
point, or biases of exponents, one for weights and one for inputs.
Units: losses in nats; bits a weight.
"""

# The places of formats without a scale: of fixed point those of question 1.1, of the others of
# at most 8 bits those that a search finds ("best"). The range of `log(8)` has room for all
# values wherever it stands.
FIXED_POINTS = {"fixed(4,2)": (5, 2), "fixed(8,4)": (7, 3), "fixed(16,8)": (13, 8)}
SEARCHED_PLACES = (
    *("log(4)", "minifloat(4,2)", "minifloat(6,2)", "minifloat(6,3)", "minifloat(8,4)"),
    *("minifloat(8,4,nan)", "minifloat(8,5,ieee)", "denormal(4,2)", "denormal(8,4)"),
)
PLACES = {**FIXED_POINTS, **dict.fromkeys(SEARCHED_PLACES, "best")}
# By bits: the largest weight and input that a search for places starts from, which are about those
# that the fixed point of as many bits holds where question 1.1 places it.
LARGEST = {4: (0.25, 2.0), 6: (0.5, 8.0), 8: (1.0, 16.0)}
LEAST_GAIN = 1e-4  # nats: a smaller difference moves no place
PROBE_SENTENCES = 16  # whose activations are counted

FOUR_BITS, BESIDE = "nvfp4", "mxfp4-e2m1"  # tested against FP32; the older one beside it
WEIGHTS, WITH_BYTES, BOTH = "weights", "weights, inputs of 8 bits", "weights and inputs"
OPERANDS = (WEIGHTS, WITH_BYTES, BOTH)  # that take a format; all models have the last
INPUT_BITS = 8  # of inputs where they do not: integers, a scale a token

# As asked: a search a precision, which may leave a kind of layer in FP32, and one over all formats.
ASKED = (
    *("binary", "scaled binary", "residual sign", "fixed point", "logarithmic", "block log"),
    *("minifloat", "denormal", "block float", "block minifloat"),
)
SAMPLER, ASKED_TRIALS = "tpe", 8
TRIAL_SENTENCES = 1800  # a quarter of the default data, that a trial trains on; the sheet: all
RATE = 2e-4  # of that training: question 1.1's, which is one for all widths

BUDGET_BITS, RIVAL_BITS = 5.0, 6  # of a mix; of the single format that it is held against
TRIALS = 100  # of the search for that mix, after every format for all layers

# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own: of five models of an earlier run, between four bits and six, and between a
# mix and one format of as many bits.
TRUTHS = {
    "four bits cost nothing": (0.010, 0.007),
    "four bits cost two points": (-0.010, 0.007),
    "a mix gains half a point": (0.005, 0.004),
}
