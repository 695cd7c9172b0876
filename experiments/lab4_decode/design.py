"""Question 4.3b's design: which codes are decoded, and which of them are shown step by step."""

CODES = 256  # of a mantissa, and of a scale
BIT_SIX = 0x40  # of a mantissa's magnitude
EXAMPLES = (  # mantissa, scale: bit six clear, bit six set, and codes that the loop gets wrong
    *((32, 127), (80, 127), (-32, 127)),
    *((-128, 127), (-128, 254), (1, 0), (100, 0), (64, 255)),
)
