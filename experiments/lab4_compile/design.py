"""Question 4.1's design: networks, forms, ways to run them, settings, sittings and tolerances.

A way is a compiler and a form of the network, "default/channels_last". A sitting is a fresh process
for each setting, with others between it and the next.
"""

SIZES = {"resnet18": 224, "bert": 32}  # pixels of an image's side, tokens of a sentence
FORMS = {"resnet18": ("plain", "channels_last", "folded", "both"), "bert": ("plain", "unmasked")}
EAGER, BUILT, FROZEN = "eager/plain", "default/plain", "frozen/plain"  # the network as it is built
TRIED = {  # compiled ways, of which tuning chooses the fastest
    "resnet18": (
        *(BUILT, "default/channels_last", "default/both"),
        *(FROZEN, "frozen/channels_last"),
    ),
    "bert": (BUILT, "default/unmasked", FROZEN, "frozen/unmasked"),
}
LAB_BATCH, LAB_CALLS = 128, 5  # of ResNet, as in the course's notebook
ALL, ONE = "all", "one"  # cores
CPU = (  # network, batch, dtype, cores: compiled, frozen and, where tuned, the fastest forms
    *(("resnet18", LAB_BATCH, "float32", ALL), ("resnet18", 1, "float32", ALL)),
    *(("resnet18", 1, "float32", ONE), ("resnet18", 1, "bfloat16", ALL)),
    *(("bert", 1, "float32", ALL), ("bert", 1, "bfloat16", ALL)),
)
TUNED = (("resnet18", LAB_BATCH), ("resnet18", 1), ("bert", 1))  # whose fastest forms are chosen
CUDA = {  # by batch: ways that are timed beside eager forms, each by itself
    1: (BUILT, "reduce-overhead/plain", "cudagraphs/plain", "torch_tensorrt/plain"),
    32: (BUILT,),
    LAB_BATCH: (BUILT,),
}

TUNING, SITTINGS, PROFILED = (0,), (1, 2, 3, 4, 5, 6), (1, 2, 3)  # processes
CUDA_PROCESSES = (1, 2, 3, 4, 5)
LEAST_ROUNDS = 5  # in a process; verdicts come from between sittings
BUDGET_S = 0.5  # of a way in a process
TIMEOUT_S = 1800  # of a process: nine ways of the course's batch take about ten minutes
TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}  # of the largest output: sums in another order
PROFILED_CALLS = 5
