"""CUDA sources to machine code of one architecture: found in the cache, by nvcc, or by NVRTC.

What is kept is a cubin, which the driver loads as it is (`cuda_driver`): no torch headers, no CUDA
runtime to agree with torch's, and nvcc and NVRTC end in the same place. Its key holds the source,
its headers, every flag, CuTe's version and the architecture; a cubin that any compiler made from
those is good, if the driver takes it: one of a newer compiler it may refuse, and then the next path
is tried. NVRTC is a library of some 100 MB that torch's own CUDA packages bring along.

Environment: `MADL_CUDA_KERNELS` forces a path: auto (default), nvcc, nvrtc, or torch.
`CUDA_HOME` says where nvcc is, if it is not on the PATH.
Not handled: architectures before sm_75.
"""

import ctypes
import ctypes.util
import functools
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import cuda_driver
from kernels.build import SOURCES, cache_dir, kept, publish, run, texts

log = logging.getLogger(__name__)

PATHS = ("auto", "nvcc", "nvrtc", "torch")
_FLAGS = ("-std=c++17",)
_NVCC_FLAGS = ("-O3", "--expt-relaxed-constexpr", "-cubin")
# For headers written for nvcc, whose functions without a mark are the host's there.
_NVRTC_FLAGS_OF_CUTE = ("-default-device",)
_CUTE_VERSION = "cutlass/version.h"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRoute:
    """Which path computes on a GPU, and why; `cubin` where it is machine code of ours."""

    path: str
    reason: str
    cubin: Path | None = None


def forced_path() -> str:
    """What `MADL_CUDA_KERNELS` asks for.

    Raises:
        ValueError: it names no path.
    """
    forced = os.environ.get("MADL_CUDA_KERNELS") or "auto"
    if forced not in PATHS:
        raise ValueError(f"MADL_CUDA_KERNELS={forced}: unknown path; known: {', '.join(PATHS)}")
    return forced


@functools.cache
def load(
    source: str,
    architecture: int,
    *,
    include: tuple[Path, ...] = (),
    device: int | None = None,
) -> CudaRoute:
    """The way to run one `.cu` file on GPUs of this architecture (90 for sm_90).

    `include` are header folders that the source needs beside ours; `device` is a GPU whose driver
    has to take what was compiled. Where nothing compiles and loads, torch computes; why is logged
    once.
    """
    forced = forced_path()
    if forced == "torch":
        return CudaRoute(path=forced, reason=f"MADL_CUDA_KERNELS={forced}")
    problems: list[str] = []
    for path, make in _ways(source, architecture, include, forced):
        try:
            cubin = make()
            if device is not None:
                cuda_driver.module(cubin, device)
        except (OSError, RuntimeError) as error:
            problems.append(f"{path}: {error}")
            continue
        why = "the first that works" if forced == "auto" else f"MADL_CUDA_KERNELS={forced}"
        if path == "cached":
            why = f"{cubin.name} is in {cubin.parent}"
        return CudaRoute(path=path, reason="; ".join([why, *problems]), cubin=cubin)
    said = "; ".join(problems)
    log.warning("no CUDA kernel from %s, torch computes instead: %s", source, said)
    return CudaRoute(path="torch", reason=said)


def _ways(
    source: str, architecture: int, include: tuple[Path, ...], forced: str
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Each path to a cubin, and the call that takes it."""
    if forced == "auto":
        for found in cached(source, architecture, include):
            yield "cached", functools.partial(Path, found)
    for path, compile_ in (("nvcc", compile_nvcc), ("nvrtc", compile_nvrtc)):
        if forced in ("auto", path):
            yield path, functools.partial(compile_, source, architecture, include)


def _stem(source: str, architecture: int, include: Sequence[Path] = ()) -> str:
    """The name in the cache, less the compiler's part."""
    flags = (*_FLAGS, *_NVCC_FLAGS, *_NVRTC_FLAGS_OF_CUTE)
    text = "\0".join([*flags, *_cute_version(include), *texts(SOURCES / source)])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{Path(source).stem}-sm_{architecture}-{key}"


def _cute_version(include: Sequence[Path]) -> list[str]:
    """The macros by which CuTe's headers say their version."""
    files = [folder / _CUTE_VERSION for folder in include if (folder / _CUTE_VERSION).is_file()]
    return [
        line
        for path in files
        for line in path.read_text().splitlines()
        if line.startswith("#define CUTLASS_")
    ]


def cached(source: str, architecture: int, include: Sequence[Path] = ()) -> list[Path]:
    """The cubins that compilers made from these very sources."""
    stem = _stem(source, architecture, include)
    # the compiler's part of a name, then the digest of what is in the file
    names = {path.stem.rpartition("-")[0] for path in cache_dir().glob(f"{stem}-*-*.cubin")}
    found = (kept(cache_dir() / f"{name}.cubin") for name in sorted(names))
    return [path for path in found if path]


def _build(
    source: str,
    architecture: int,
    include: Sequence[Path],
    compiler: str,
    make: Callable[[Path], object],
) -> Path:
    identity = hashlib.sha256(compiler.encode()).hexdigest()[:8]
    cubin = cache_dir() / f"{_stem(source, architecture, include)}-{identity}.cubin"
    return kept(cubin) or publish(cubin, make)


# ---- nvcc ---------------------------------------------------------------------------------------


def find_nvcc() -> str | None:
    """The compiler under `$CUDA_HOME`, on the PATH, or where CUDA is usually installed."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which("nvcc", path=f"{home}/bin")
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def compile_nvcc(source: str, architecture: int, include: Sequence[Path] = ()) -> Path:
    """Raises: RuntimeError: there is no nvcc, or it fails; its last line says why."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise RuntimeError("no nvcc on the PATH")
    flags = [  # of the header folders only CuTe's: nvcc has CUDA's own, of its version
        *(*_FLAGS, *_NVCC_FLAGS, f"-arch=sm_{architecture}"),
        *(f"-I{folder}" for folder in include if (folder / "cute").is_dir()),
    ]
    return _build(
        source,
        architecture,
        include,
        run([nvcc, "--version"]),
        lambda new: run([nvcc, *flags, str(SOURCES / source), "-o", str(new)]),
    )


# ---- NVRTC --------------------------------------------------------------------------------------


def _nvrtc_names() -> Iterator[str]:
    """Where the library may be: torch's CUDA packages first, which agree with torch's driver."""
    for folder in map(Path, sys.path):
        for place in ("nvidia/*/lib/libnvrtc.so.*", "nvidia/*/bin/nvrtc64_*.dll"):
            yield from (str(p) for p in sorted(folder.glob(place)) if ".alt" not in p.name)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
    if (name := ctypes.util.find_library("nvrtc")) is not None:
        yield name


@functools.cache
def _nvrtc() -> Any:
    for name in _nvrtc_names():
        try:
            # its second half is looked for by name alone: in memory it is found wherever it lies
            for half in sorted(Path(name).parent.glob("*nvrtc-builtins*")):
                if ".alt" not in half.name:
                    ctypes.CDLL(str(half), mode=ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise RuntimeError("no NVRTC library; it comes with torch's CUDA packages")


def _check(library: Any, status: int) -> None:
    if status:
        raise RuntimeError(library.nvrtcGetErrorString(status).decode())


def compile_nvrtc(source: str, architecture: int, include: Sequence[Path] = ()) -> Path:
    """Raises: RuntimeError: there is no NVRTC, or it fails; its first error says why."""
    library = _nvrtc()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    flags = [
        *(*_FLAGS, f"--gpu-architecture=sm_{architecture}", f"-I{SOURCES}"),
        *(f"-I{folder}" for folder in include),
    ]
    if include:
        flags += _NVRTC_FLAGS_OF_CUTE
    return _build(
        source,
        architecture,
        include,
        f"NVRTC {major.value}.{minor.value}",
        lambda new: new.write_bytes(_nvrtc_cubin(library, source, flags)),
    )


def _nvrtc_cubin(library: Any, source: str, flags: Sequence[str]) -> bytes:
    handle = ctypes.c_void_p()
    text = (SOURCES / source).read_bytes()
    created = library.nvrtcCreateProgram(ctypes.byref(handle), text, source.encode(), 0, None, None)
    _check(library, created)
    try:
        options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if library.nvrtcCompileProgram(handle, len(flags), options):
            said = _nvrtc_bytes(library, handle, "ProgramLog").decode(errors="replace")
            errors = [line for line in said.splitlines() if "error" in line]
            raise RuntimeError(errors[0] if errors else said.strip()[:200])
        return _nvrtc_bytes(library, handle, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(handle))


def _nvrtc_bytes(library: Any, handle: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, library[f"nvrtcGet{what}Size"](handle, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, library[f"nvrtcGet{what}"](handle, buffer))
    return buffer.raw
