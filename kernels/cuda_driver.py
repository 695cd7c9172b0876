"""Load a cubin and launch its kernels, through NVIDIA's cuda-core (`pip install cuda-core`).

cuda-core is imported where a GPU computes, so that other machines need none. A launch costs some
microseconds of Python; a CUDA graph takes them away. Every call makes the device's primary context,
torch's own, current: a thread that has used no GPU yet has none, and one may have another GPU's.

Not handled: shared memory sized at the launch; a context that was reset.
"""

import contextlib
import ctypes
import functools
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import torch

THREADS = 256  # of a block
Argument = int | ctypes.c_int | ctypes.c_longlong  # an int is a pointer, 0 is null


@functools.cache
def core() -> Any:
    """The module `cuda.core`. Raises RuntimeError: there is no cuda-core here."""
    try:
        import cuda.core
    except ImportError as error:
        raise RuntimeError(f"no cuda-core here ({error}); pip install cuda-core") from error
    return cuda.core


@contextlib.contextmanager
def _current(device: int, action: str) -> Generator[None]:
    """Within the context, the device's CUDA context is current in this thread; then torch's again.

    Raises:
        RuntimeError: the action that failed, and CUDA's words for it.
    """
    try:
        with torch.cuda.device(device):
            core().Device(device).set_current()
            yield
    except RuntimeError:
        raise
    except Exception as error:  # of cuda-core, which has no public name for its own
        raise RuntimeError(f"CUDA: cannot {action}: {error}") from error


@functools.cache
def module(cubin: Path, device: int) -> Any:
    """The code of a cubin, loaded on a device once.

    Raises:
        RuntimeError: the driver refuses it, as an older one refuses what a newer compiler made.
    """
    with _current(device, f"load {cubin.name}"):
        code = core().ObjectCode.from_cubin(cubin.read_bytes(), name=cubin.name)
        _ = code.handle  # else it is loaded with its first kernel
    return code


@functools.cache
def kernel(cubin: Path, name: str, device: int) -> Any:
    """The kernel of that name, of a cubin on a device.

    Raises:
        RuntimeError: the driver refuses the cubin, or there is no such kernel in it.
    """
    code = module(cubin, device)
    with _current(device, f"find {name} in {cubin.name}"):
        return code.get_kernel(name)


@functools.lru_cache(maxsize=256)
def _stream(handle: int, device: int) -> Any:
    """cuda-core's object for a stream of torch, given by its handle."""
    return core().Stream.from_handle(handle)


def launch(
    cubin: Path,
    name: str,
    device: int,
    grid: tuple[int, int],
    arguments: Sequence[Argument],
    *,
    in_cluster: bool = False,
) -> None:
    """Queue a launch of a kernel, in blocks of `THREADS`, on torch's current stream of the device.

    `in_cluster` makes one cluster of all blocks with the same place on grid.x; a GPU of compute
    capability 9.0 or more takes up to eight blocks in it.

    Raises:
        RuntimeError: the driver refuses the cubin or the launch, or there is no such kernel.
    """
    function = kernel(cubin, name, device)
    with _current(device, "launch a kernel"):
        # cuda-core counts the grid of a launch with clusters in clusters
        shape = {"grid": (grid[0], 1), "cluster": (1, grid[1])} if in_cluster else {"grid": grid}
        config = core().LaunchConfig(**shape, block=THREADS)
        stream = _stream(torch.cuda.current_stream(device).cuda_stream, device)
        core().launch(stream, config, function, *arguments)
