"""Question 4.1's design: networks, forms, ways to run them, batches, processes and tolerances.

A way is a compiler and a form of the network, "default/channels_last".
"""

SIZES = {"resnet18": 224, "bert": 32}  # pixels of an image's side, tokens of a sentence
FORMS = {"resnet18": ("plain", "channels_last", "folded", "both"), "bert": ("plain", "unmasked")}
EAGER, BUILT = "eager/plain", "default/plain"  # the network as it is built
TRIED = {  # compiled ways, of which tuning chooses the fastest
    "resnet18": (BUILT, "default/channels_last", "default/both", "frozen/plain"),
    "bert": (BUILT, "default/unmasked", "frozen/plain", "frozen/unmasked"),
}
FASTEST = {"resnet18": "frozen/plain", "bert": "frozen/plain"}
OTHER_COMPILERS = ("aot_eager", "reduce-overhead", "max-autotune", "torchscript")
COMPILED = {  # by device and batch: ways that are timed beside eager forms, each by itself
    ("cpu", 1): (BUILT, "frozen/plain"),
    ("cpu", 8): (BUILT,),
    ("cuda", 1): (BUILT, "reduce-overhead/plain", "cudagraphs/plain", "torch_tensorrt/plain"),
    ("cuda", 32): (BUILT,),
    ("cuda", 128): (BUILT,),
}
NAIVE_CALLS = 5  # as in the course's notebook
NAIVE_BATCH = {"cpu": 1, "cuda": 128}

TUNING, CONFIRMING, IN_TURN = (0,), (1, 2, 3, 4, 5), (1, 2, 3)  # processes
LEAST_ROUNDS = 5  # in a process; verdicts come from between processes
BUDGET_S = 0.5  # of a way in a process
TOLERANCE = 1e-3  # of the largest output: fused arithmetic rounds in another order
PROFILED_CALLS = 5
