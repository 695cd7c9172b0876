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

# Of the reasons why results differ those of ordinary values; torchao takes the exponent of
# NVIDIA's scale from a float32 logarithm, which just above a power of two is an integer.
ORDINARY = ("ties", "rounded logarithms", "other values")
# Bugs of these kinds that others reported: in words, repository, its issue or pull request.
PUBLIC_BUGS = (
    (
        "casts beyond E4M3's range give NaN, where ONNX Runtime saturates",
        "jax-ml/ml_dtypes",
        "issues/260",
    ),
    ("MXFP4 rounds a tie away from even, and no subnormal up", "ROCm/aiter", "issues/974"),
    (
        "codes of all MX floats do not survive decoding and encoding",
        "tenstorrent/tt-metal",
        "pull/51975",
    ),
    (
        "MXFP4's scale comes from the largest value over six, not from its exponent",
        "vllm-project/vllm",
        "pull/43557",
    ),
    ("blocks straddle rows, scales are off by a power of two", "DeepWok/mase", "pull/321"),
    (
        "a power of two below E8M0's range is encoded as NaN",
        "graphcore-research/gfloat",
        "issues/62",
    ),
)
