"""Sizes of the work that measures the machine's speeds.

Units: sizes are of the CPU's work; a GPU, many times as fast, gets `GPU_SCALE` times as much.
"""

MATRIX_SIZE = 2048  # rows and columns
SLOW_MATRIX_SIZE = 512  # on a CPU, of products that few CPUs have instructions for
COPY_MB = 256
CACHED_KB = 4096
CACHED_COPIES = 50  # in a row: the first of them finds the cache as the others left it
GPU_SCALE = 4
BUDGET_S = 5.0  # seconds for all work of a device
