"""Formats, methods, outliers and margins of the page on four-bit formats.

A format is an element, a block of values that share a scale, and that scale: a power of two whose
exponent is rounded by a rule, a float of 8 bits (E4M3) under a float32 a tensor, or FP16.
"""

ELEMENTS = ("e2m1", "int4")
BLOCKS = (16, 32, "row")
SCALES = ("floor", "e4m3", "fp16")  # floor: a power of two, rounded down
SCALE_BITS = {"floor": 8, "e4m3": 8, "fp16": 16}
RULES = ("ceil", "rceil", "even")  # other ways to round it, of e2m1 in blocks of 32
OPERANDS = ("weights", "weights, inputs of 8 bits", "weights and inputs")
INPUT_BITS = 8  # of inputs where they are not of four bits: integers, a scale a token
BLOCK = 32  # where operands and rules are compared
# Formats as they are made, on which methods are tried.
NAMED = {
    "MXFP4": ("e2m1", 32, "floor"),
    "NVFP4": ("e2m1", 16, "e4m3"),
    "INT4": ("int4", 32, "fp16"),
}
METHODS = ("rounding", "clipping", "GPTQ", "SmoothQuant", "Hadamard")
ROTATED = 32  # inputs, whose Hadamard matrix turns them
CALIBRATION_SENTENCES = 128  # for GPTQ and SmoothQuant
OUTLIER_CHANNELS = 4  # of a layer's input
OUTLIERS = (1, 8, 32)  # times as large; one: none
FARTHEST = max(OUTLIERS)
# One block of a layer's input, in which a value grows: its factors, and the formats shown.
SHOWN_LAYER, SHOWN_VALUE, SHOWN_VALUES = 6, 5, 32  # the layer's place; the value's; of how many
GROWTH = tuple(round(2 ** (k / 2), 3) for k in range(13))  # times the block's largest magnitude
SHOWN = {**NAMED, "MXFP4, even": ("e2m1", 32, "even")}
MARGIN = 0.01  # of answers changed: what a user would notice
# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own: of these 0.7 points where 8 of 100 answers differ, and 0.3 of the models.
TRUTHS = {
    "even rounding changes one answer in a hundred less": (0.010, 0.0076),
    "a rotation leaves no trace of outliers": (0.010, 0.0076),
    "it leaves two points": (-0.010, 0.0076),
}
