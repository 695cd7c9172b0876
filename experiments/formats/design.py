"""Design of the page of number formats: which are placed, and the quantiles that are shown."""

PLACED_BITS = 8  # at most, of a format whose fraction width or exponent bias is chosen
QUANTILES = (0.05, 0.5, 0.95)  # of magnitudes
