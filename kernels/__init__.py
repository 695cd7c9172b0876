"""Fast paths: C++ and CUDA sources, how they are built, and the torch operators they become.

Nothing here imports `madl`; every operator has a plain torch definition there that it must equal.
"""
