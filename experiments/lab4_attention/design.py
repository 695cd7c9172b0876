"""Question 4.2's design: forms, shapes, lengths, sittings, limits and tolerances.

Units: GiB, seconds; a length is a number of positions.
"""

# Forms written out by hand, and torch's. Where a processor multiplies a dtype slowly, one may be
# computed in FP32: either side may be.
IN_FP32 = " in FP32"
WRITTEN = ("naive", "tuned", "chunked", f"tuned{IN_FP32}", f"chunked{IN_FP32}")
FUSED = ("flash", "cudnn", "efficient", f"flash{IN_FP32}")
CHUNK = 128  # queries of all heads whose scores a chunked form holds at a time, at most half
DTYPES = ("float32", "bfloat16", "float16")
HEAD_DIM = 64
SHAPES = {"cpu": {"batch": 1, "heads": 4}, "cuda": {"batch": 8, "heads": 8}}
LENGTHS = {"cpu": (128, 512, 1024, 2048, 4096), "cuda": (512, 2048, 8192, 32768)}  # that are timed
NOTEBOOK = {"batch": 32, "heads": 8, "length": 128}  # the shape of the coursework's notebook
ASKED_DTYPE = "float16"  # and its data type
CAUSAL, BACKWARD = "causal", "backward"  # forward with a causal mask; forward and backward
BEYOND_DTYPES, BEYOND_LENGTH = ("float32", "bfloat16"), 2048  # in which these are timed
CHECKED = {"batch": 2, "heads": 2, "length": 200}  # against float64
PROFILED_LENGTH = 4096
LONGEST = {"cpu": 8192, "cuda": 32768}  # whose memory is measured
DOUBLINGS = 4  # of the sequence, up to the longest, whose memory is measured

TUNING = (0,)  # processes
CONFIRMING = {"cpu": (1, 2, 3, 4, 5, 6), "cuda": (1, 2, 3, 4, 5)}  # on a CPU sittings
LEAST_ROUNDS = 5  # in a process; verdicts come from between sittings
LIMIT_GIB = {"cpu": 2.0, "cuda": 16.0}  # of a call's memory
LIMIT_S, MEMORY_LIMIT_S = 1.0, 3.0  # of a call that is timed, and of one whose memory is taken
BUDGET_S = 0.05  # of a form in a process
WAIT_S = {"cpu": 0.5, "cuda": 20.0}  # that a first call may wait for a library

# Largest error against float64, as a share of the largest output: sums of T rounded products.
TOLERANCE = {"float32": 1e-5, "bfloat16": 4e-2, "float16": 5e-3}
# Forms that have to run in FP32 on every CPU, by kind.
EXPECTED = {
    "forward": ("naive", "tuned", "chunked", "math", "flash"),
    CAUSAL: ("naive", "tuned", "chunked", "flash"),
    BACKWARD: ("naive", "tuned", "math", "flash"),
}
PRODUCT_SIZE = 1024  # rows and columns of the product whose speed is a bound
