"""Load a cubin and launch its kernels, through the CUDA driver that torch has initialized.

The C ABI is the driver's own: pointers, sizes and a stream. A launch costs some microseconds of
Python; a CUDA graph takes them away. Every call has the device's primary context, torch's own,
current while it lasts: a thread that has used no GPU yet has none, and one may have another's.

Not handled: shared memory sized at the launch; a context that was reset.
"""

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

MAX_GRID_X = 2**31 - 1

CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION

Argument = ctypes.c_void_p | ctypes.c_int | ctypes.c_longlong


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute` of cuda.h, whose value is 64 bytes, here the blocks of a cluster."""

    _fields_ = [
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("cluster", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    ]


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` of cuda.h."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    ]


@functools.cache
def _driver() -> Any:
    """Raises: RuntimeError: no driver, or one that does not start."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise RuntimeError(f"CUDA: there is no driver here ({error})") from error
    _check(library, library.cuInit(0), "start the driver")
    return library


def _check(library: Any, status: int, what: str) -> None:
    """Raises: RuntimeError: with what the driver says, and its name for it."""
    if status:
        said: list[str] = []
        for function in (library.cuGetErrorString, library.cuGetErrorName):
            text = ctypes.c_char_p()
            function(status, ctypes.byref(text))
            said.append((text.value or b"unknown error").decode())
        raise RuntimeError(f"CUDA: cannot {what}: {said[0]} ({said[1]}, {status})")


@functools.cache
def _context(device: int) -> ctypes.c_void_p:
    """The primary context of a device, made if torch has not made it yet, and kept for good."""
    library, ordinal, context = _driver(), ctypes.c_int(), ctypes.c_void_p()
    what = f"use GPU {device}"
    _check(library, library.cuDeviceGet(ctypes.byref(ordinal), device), what)
    _check(library, library.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal), what)
    return context


@contextlib.contextmanager
def _current(device: int) -> Iterator[Any]:
    """The driver, with the device's context current in this thread until the end."""
    library = _driver()
    _check(library, library.cuCtxPushCurrent_v2(_context(device)), f"use GPU {device}")
    try:
        yield library
    finally:
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


@functools.cache
def module(cubin: Path, device: int) -> ctypes.c_void_p:
    """A cubin on a device; loaded once.

    Raises:
        RuntimeError: the driver refuses it, as an older one refuses what a newer compiler made.
    """
    loaded = ctypes.c_void_p()
    with _current(device) as library:
        status = library.cuModuleLoadData(ctypes.byref(loaded), cubin.read_bytes())
        _check(library, status, f"load {cubin.name}")
    return loaded


@functools.cache
def kernel(cubin: Path, name: str, device: int) -> ctypes.c_void_p:
    """One kernel of a cubin on one device.

    Raises:
        RuntimeError: the driver refuses the cubin, or there is no such kernel in it.
    """
    function, loaded = ctypes.c_void_p(), module(cubin, device)
    with _current(device) as library:
        status = library.cuModuleGetFunction(ctypes.byref(function), loaded, name.encode())
        _check(library, status, f"find {name} in {cubin.name}")
    return function


def launch(
    function: ctypes.c_void_p,
    device: int,
    grid: tuple[int, int],
    threads: int,
    arguments: Sequence[Argument],
    *,
    in_cluster: bool = False,
) -> None:
    """Queue one launch on torch's current stream of the device.

    `in_cluster` makes a cluster of all blocks with one place on grid.x, of which a GPU of compute
    capability 9.0 or more holds up to eight.
    """
    if not 0 < grid[0] <= MAX_GRID_X or not 0 < grid[1] <= 65535:
        raise ValueError(f"CUDA: a grid is at most {MAX_GRID_X} × 65535 blocks, got {grid}")
    cluster = LaunchAttribute(id=CLUSTER_DIMENSION, cluster=(1, grid[1], 1))
    config = LaunchConfig(
        grid=(*grid, 1),
        block=(threads, 1, 1),
        stream=torch.cuda.current_stream(device).cuda_stream,
        attributes=ctypes.pointer(cluster),
        num_attributes=int(in_cluster),
    )
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
    with _current(device) as library:
        status = library.cuLaunchKernelEx(ctypes.byref(config), function, places, None)
        _check(library, status, "launch a kernel")
