"""Question 4.3a's design: arithmetics, layers, rows and processes that are timed, and margins."""

FP32, BF16, DYNAMIC, MXINT8 = "FP32", "BF16", "INT8, torch dynamic", "MXINT8"
PREPACKED, ONEDNN = ", prepacked", ", oneDNN"  # the same arithmetic, computed in another way
VARIANTS = (FP32, FP32 + PREPACKED, BF16, BF16 + PREPACKED, DYNAMIC, DYNAMIC + ONEDNN, MXINT8)
CONVERTED = (DYNAMIC, MXINT8)  # variants of the whole classifier that are judged, beside FP32
COLD, WARM = "cold", "warm"  # where the weights are before a call: in memory, in the caches
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
ROWS = "1 4 16 64 256"
SENTENCES = "1 32"  # of a batch
TOKENS = 27  # of a sentence
ROTATED_MB = 1000  # that cold calls read before one reads the same again: twice a large last cache
PROCESSES = tuple(range(1, 10))
BUDGET_S = 0.05  # of a variant in a process
LEAST_ROUNDS = 5  # in a process; verdicts come from between processes
LEAST_DB = 20.0  # signal to error of a layer's result: below, an arithmetic is wrong, not coarse
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
