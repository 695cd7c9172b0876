"""Load a cubin and launch its kernels, through the CUDA driver that torch has initialized.

The C ABI is the driver's own: pointers, sizes and a stream. A launch costs some microseconds of
Python; a CUDA graph takes them away.

Not handled: devices that torch has not initialized; shared memory sized at the launch.
"""

import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

MAX_GRID_X = 2**31 - 1

Argument = ctypes.c_void_p | ctypes.c_int | ctypes.c_longlong


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _check(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA: cannot {what}: {(text.value or b'unknown error').decode()}")


@functools.cache
def _module(cubin: Path, device: int) -> ctypes.c_void_p:
    """A module belongs to a context, and torch has one context a device."""
    module = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # there is a context from here on
        code = cubin.read_bytes()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), code), f"load {cubin.name}")
    return module


@functools.cache
def kernel(cubin: Path, name: str, device: int) -> ctypes.c_void_p:
    """One kernel of a cubin on one device.

    Raises:
        RuntimeError: the driver refuses the cubin, or there is no such kernel in it.
    """
    function = ctypes.c_void_p()
    status = _driver().cuModuleGetFunction(
        ctypes.byref(function), _module(cubin, device), name.encode()
    )
    _check(status, f"find {name} in {cubin.name}")
    return function


def launch(
    function: ctypes.c_void_p,
    device: int,
    grid: tuple[int, int],
    threads: int,
    arguments: Sequence[Argument],
) -> None:
    """Queue one launch on torch's current stream of the device."""
    if not 0 < grid[0] <= MAX_GRID_X or not 0 < grid[1] <= 65535:
        raise ValueError(f"CUDA: a grid is at most {MAX_GRID_X} × 65535 blocks, got {grid}")
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
    with torch.cuda.device(device):
        status = _driver().cuLaunchKernel(
            function, *(*grid, 1), *(threads, 1, 1), 0, stream, places, None
        )
    _check(status, "launch a kernel")
