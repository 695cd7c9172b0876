"""Question 4.3a's design: arithmetics, layers, rows and sittings that are timed, and margins."""

FP32, BF16, INT8, MXINT8 = "FP32", "BF16", "INT8", "MXINT8"
PACKED = "BF16, packed by us"
DYNAMIC, ONEDNN, TORCHAO = "INT8, torch dynamic", "INT8, oneDNN", "INT8, torchao compiled"
WAYS = {  # arithmetic → the ways to compute it, torch's own first
    FP32: (FP32, "FP32, prepacked"),
    BF16: (BF16, "BF16, prepacked", PACKED),
    INT8: (DYNAMIC, ONEDNN, TORCHAO),
    MXINT8: (MXINT8,),
}
VARIANTS = tuple(way for ways in WAYS.values() for way in ways)
VALUE_BYTES = {FP32: 4.0, BF16: 2.0, INT8: 1.0, MXINT8: 1.03125}  # of a weight
CONVERTED = (DYNAMIC, MXINT8)  # variants of the whole classifier that are judged, beside FP32
COLD, WARM = "cold", "warm"  # where the weights are before a call: in memory, in the caches
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
ROWS = "1 4 16 64 256"
SENTENCES = "1 32"  # of a batch
TOKENS = 27  # of a sentence
ROTATED_MB = 1000  # that cold calls read before one reads the same again: twice a large last cache
TUNING, SITTINGS = 0, (1, 2, 3, 4, 5, 6)  # which chooses each arithmetic's way; which confirm
BUDGET_S = 0.05  # of a variant in a process
LEAST_ROUNDS = 5  # in a process; verdicts come from between sittings
LEAST_DB = 20.0  # signal to error of a layer's result: below, an arithmetic is wrong, not coarse
LEAST_MODEL_DB = 12.0  # of a classifier's logits, over those of FP32, on a few sentences
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
