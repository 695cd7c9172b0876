"""Design of the page of number formats: which are placed, and the quantiles that are shown."""

PLACED_BITS = 8  # at most, of a format whose fraction width or exponent bias is chosen
QUANTILES = (0.05, 0.5, 0.95)  # of magnitudes

# Libraries that our formats are held against, the module of each, and how to get it.
LIBRARIES = {
    "torch": ("torch", "make test"),
    "torchao": ("torchao", "pip install torchao==0.18.0"),
    "ml_dtypes": ("ml_dtypes", "pip install ml_dtypes==0.6.0"),
    "gfloat": ("gfloat", "pip install gfloat==0.5.2"),
    "microxcaling": ("mx", "put github.com/microsoft/microxcaling (7bc4195) on PYTHONPATH"),
}
COMPARED_VALUES = 10_000_000  # a format
SLOW_VALUES = 1_000_000  # of libraries that take them block by block
