"""Fast kernels: C++ and CUDA sources, how they are built, and torch operators that call them.

Nothing here imports `madl`. Every operator must equal a definition in plain torch, here or there.
"""
