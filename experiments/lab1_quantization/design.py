"""Widths, formats, learning rates and budgets of question 1.1.

The binary points of the formats and the rates are chosen by validation loss on the tuning seed.

Units: widths and fractions (bits after the point) in bits; of two fractions the first is that of
weights and biases, the second that of inputs.
"""

NARROW_BITS = 4  # the narrowest width
COURSE_BITS = 8  # the width that the coursework starts from
COURSE_FRACTION = 4  # one of the coursework's two rules: always four bits after the point
FIRST_FRACTIONS: dict[int, tuple[int, int]] = {  # by width, where the search for the point starts
    **{4: (5, 2), 5: (6, 3), 6: (6, 3), 7: (7, 4), 8: (8, 4), 10: (8, 5), 12: (10, 6)},
    **{16: (12, 9), 24: (16, 12), 32: (20, 16)},
}
FRACTIONS: dict[int, tuple[int, int]] = {  # by width, where validation loss is least
    **{4: (5, 2), 5: (6, 3), 6: (6, 2), 7: (6, 3), 8: (8, 3), 10: (9, 4), 12: (8, 5)},
    **{16: (13, 7), 24: (16, 12), 32: (20, 16)},
}
SHARED_FRACTIONS = {4: 5, 5: 5, 6: 5, 8: 6}  # by width, of weights and inputs alike
FIRST_LONE_FRACTIONS = {"weights": 5, "inputs": 2}  # at the narrowest width, the other in FP32
LONE_FRACTIONS = {"weights": 5, "inputs": 3}
LEAST_GAIN = 1e-4  # nats of validation loss: a smaller difference moves no point
STEP_OWNERS = ("layer", "row")  # each has a step of its own, at the narrowest width
STEP_FRACTIONS = range(3, 10)  # among which each takes its step
# Rates of training on, by width; None: FP32. A lower one than these tends to no training at all.
RATES_TRIED: dict[int | None, tuple[float, ...]] = {
    **{None: (1e-5, 3e-5, 1e-4), 4: (1e-5, 3e-5, 1e-4, 3e-4, 1e-3), 5: (3e-5, 1e-4, 3e-4, 1e-3)},
    **{6: (3e-5, 1e-4, 3e-4), 8: (1e-5, 3e-5)},
}
# Of those the rate of least validation loss, but none at which training collapses to chance on the
# tuning seed, nor the next lower one, at which it may on another seed.
RATES: dict[int | None, float] = {None: 3e-5, 4: 1e-4, 5: 1e-4, 6: 1e-4, 8: 1e-5}
STEEP_RATE = 3e-4  # at the narrowest width, of least loss, next to a collapse
WIDTHS_TRAINED = (4, 8)  # on every seed
WIDTHS_TRAINED_ONCE = (5, 6, 10, 12, 16, 32)  # on the first; where no rate is tried, at 8 bits'
PROBE_SENTENCES = 64  # whose activations are counted
# Name → distance from the margin, and standard deviation from seed to seed, each with 1,800
# sentences of its own: computed from three models of an earlier run.
TRUTHS = {
    "PTQ at 8 bits: no loss": (0.010, 0.0044),
    "QAT wins back 2 points": (0.020, 0.0089),
    "QAT at 4 bits: no loss": (0.020, 0.0095),
}
