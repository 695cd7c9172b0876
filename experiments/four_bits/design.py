"""Formats, methods, outliers and truths of the page on four-bit formats.

A format is an element, a block of values that share a scale, and that scale: a power of two whose
exponent is rounded by a rule, a float of 8 bits (E4M3) under a float32 a tensor, or FP16.
"""

from itertools import product

ELEMENTS = ("e2m1", "int4")
BLOCKS = (16, 32, "row")
SCALES = ("floor", "even", "e4m3", "fp16")  # the first two: a power of two, by its rule
SCALE_BITS = {"floor": 8, "even": 8, "e4m3": 8, "fp16": 16}
FORMATS = tuple(  # the library rounds the scale of integers down alone
    parts for parts in product(ELEMENTS, BLOCKS, SCALES) if parts[::2] != ("int4", "even")
)
RULES = ("ceil", "rceil")  # other ways to round a power of two, of e2m1 in blocks of 32
OPERANDS = ("weights", "weights, inputs of 8 bits", "weights and inputs")
INPUT_BITS = 8  # of inputs where they are not of four bits: integers, a scale a token
BLOCK = 32  # where rules are compared
# Formats as they are made, on which methods are tried.
NAMED = {
    "MXFP4": ("e2m1", 32, "floor"),
    "MXFP4, even": ("e2m1", 32, "even"),
    "NVFP4": ("e2m1", 16, "e4m3"),
    "INT4": ("int4", 32, "fp16"),
}
PLAIN, SEARCH, GPTQ = "rounding", "scale search", "GPTQ"
SMOOTH, ROTATION = "SmoothQuant", "Hadamard"
BOTH = f"{ROTATION}, {GPTQ}"  # QuaRot's recipe
METHODS = (PLAIN, SEARCH, GPTQ, SMOOTH, ROTATION, BOTH)
ON_WEIGHTS = tuple(method for method in METHODS if method != SMOOTH)  # which is for inputs
CHOOSING = (SEARCH, GPTQ, BOTH)  # weights among the format's values, under scales of their own
# Of inputs that a Hadamard matrix turns together, by format: of those tried the one of least
# validation loss on the tuning seed, with the larger constants.
ROTATIONS_TRIED = (16, 32, 128)
ROTATED = {"MXFP4": 128, "MXFP4, even": 16, "NVFP4": 32, "INT4": 16}
# Padding is masked. Of so many sentences every layer has several times more tokens than inputs.
CALIBRATION_SENTENCES = 512  # for GPTQ and SmoothQuant
PROBE_SENTENCES = 32  # the first of them: for deviations of inputs, and for what rounding loses
OUTLIER_CHANNELS = 4  # of a layer's input
# Their kind and factor, and the methods tried. A scaled channel is so many times as large, its
# column of the weight as much smaller; SmoothQuant undoes just that. A constant of so many standard
# deviations of the layer's input is added to a channel, and taken off again by the bias: like the
# massive activations of large models. Rounding moves what a constant adds, for all tokens alike:
# each layer's mean error is taken off its bias, whatever the method.
NONE, SCALED, CONSTANT = "none", "scaled", "constant"
NOTHING, FARTHEST, FARTHEST_SCALED = (NONE, 1), (CONSTANT, 24), (SCALED, 32)
OUTLIERS = {
    NOTHING: METHODS,
    FARTHEST_SCALED: (PLAIN, ROTATION),
    (CONSTANT, 8): (PLAIN, ROTATION),
    FARTHEST: METHODS,
}
# One block of a layer's input, in which a value grows, and its factors.
SHOWN_LAYER, SHOWN_VALUE, SHOWN_VALUES = 6, 5, 32  # the layer's place; the value's; of how many
GROWTH = tuple(round(2 ** (k / 2), 3) for k in range(13))  # times the block's largest magnitude
# Name → distance from the boundary, and standard deviation from seed to seed, each with 1,800
# sentences of its own. Of answers: 0.6 points of the sentences where two sides differ in 6 of 100,
# 1.2 in 20; of the models 0.3, with outliers 2. Divergences are compared by their logarithm.
TRUTHS = {
    "rounded down, answers diverge a tenth further": (0.095, 0.1),
    "rounded down, answers diverge a quarter further": (0.223, 0.1),
    "finer scales change one in two hundred less": (0.005, 0.0067),
    "finer scales change one in a hundred less": (0.010, 0.0067),
    "rotated, five in a hundred more change than without outliers": (-0.040, 0.023),
}
