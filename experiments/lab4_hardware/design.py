"""Question 4.4's design: the units that are compared, their parts, and the rates that they run at.

A unit is called by its name in `units.UNITS`.
Units: periods in FO4, the delay of an inverter that drives four of its kind; areas in transistors.
"""

LANES = 32  # of every unit that is compared with another
WINDOW_BITS = 16  # that an aligned sum keeps of its largest term: as many as a bf16 product has
PERIODS = (20, 40, 60)  # between two results: a fast clock of cell libraries, relaxed, slow
PERIOD = 40  # of units that are compared at equal delay
RANDOM_VECTORS, MODEL_ROWS = 50, 24  # on which a unit is simulated, beside corners

# Transistors of a static flip-flop, two latches with their clock's inverters.
# Source: Weste and Harris 2010, CMOS VLSI Design, 10.3.
FLIP_FLOP = 24
# Module → the part that its own gates count as; those of another module count with what contains
# it.
DRIVERS, ACCUMULATOR, REST = "drivers", "accumulator", "scales and result"
PARTS = {
    **dict.fromkeys(("multiply_signed", "multiply_unsigned", "multiply_rows"), "multipliers"),
    **dict.fromkeys(("sum_products", "sum_magnitudes"), "adders"),
    **dict.fromkeys(("align_term", "shift_term", "maximum_of_two"), "lane exponents"),
    **dict.fromkeys(("float_product", "log_product", "mxint_bf16_product"), "lane exponents"),
    "decode_float": "lane exponents",
    "apply_sign": "signs",
    "quantize_mxint": "quantizer",
    "finish": REST,
    "to_fp32": REST,
    "add_fp32": ACCUMULATOR,
}
