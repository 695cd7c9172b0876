"""CUDA sources to machine code of one architecture: found in the cache, or made by nvcc or NVRTC.

What is kept is a cubin, which the driver loads as it is (`cuda_driver`): no torch headers, no CUDA
runtime to agree with torch's, and nvcc and NVRTC end in the same place. Its key holds the source,
its headers, every flag, CuTe's version and the architecture; a cubin that any compiler made from
those is good, if the driver takes it: one of a newer compiler it may refuse, and then the next path
is tried. NVRTC is a library of some 100 MB that torch's own CUDA packages bring along; it is called
through cuda-core, as the driver is.

Environment: `MADL_CUDA_KERNELS` forces a path: auto (default), nvcc, nvrtc, or torch.
`CUDA_HOME` says where nvcc is, if it is not on the PATH.
Not handled: architectures before sm_75.
"""

import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels import cuda_driver
from kernels.build import SOURCES, Route, cached, ensure, key_of, run, texts

log = logging.getLogger(__name__)

PATHS = ("auto", "nvcc", "nvrtc", "torch")
_NVCC_FLAGS = ("-std=c++17", "-O3", "--expt-relaxed-constexpr", "-cubin")
_NVRTC_OPTIONS = {"std": "c++17"}
# For headers written for nvcc, whose functions without a mark are the host's there.
_NVRTC_OPTIONS_OF_CUTE = {"device_as_default_execution_space": True}
_CUTE_VERSION = "cutlass/version.h"


def forced_path() -> str:
    """The path that `MADL_CUDA_KERNELS` forces, `auto` where it forces none.

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
) -> Route:
    """The route of one `.cu` file on GPUs of this architecture (90 for sm_90), compiled if needed.

    `include` are header folders that the source needs beside ours; `device` is a GPU whose driver
    has to take what was compiled. Where nothing compiles and loads, torch computes; why is logged
    once.
    """
    forced = forced_path()
    if forced == "torch":
        return Route(path=forced, reason=f"MADL_CUDA_KERNELS={forced}")
    problems: list[str] = []
    for path, obtain in _candidates(source, architecture, include, forced):
        try:
            cubin = obtain()
            if device is not None:
                cuda_driver.module(cubin, device)
        except (OSError, RuntimeError) as error:
            problems.append(f"{path}: {error}")
            continue
        return Route(path=path, reason="; ".join([str(cubin), *problems]), cubin=cubin)
    reason = "; ".join(problems)
    log.warning("no CUDA kernel from %s, torch computes instead: %s", source, reason)
    return Route(path="torch", reason=reason)


def _candidates(
    source: str, architecture: int, include: tuple[Path, ...], forced: str
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """(path, call that returns its cubin) of each path that may be taken, in the order to try."""
    if forced == "auto":
        for cubin in cached(_stem(source, architecture, include), ".cubin"):
            yield "cached", functools.partial(Path, cubin)
    for path, compile_ in (("nvcc", compile_nvcc), ("nvrtc", compile_nvrtc)):
        if forced in ("auto", path):
            yield path, functools.partial(compile_, source, architecture, include)


def _stem(source: str, architecture: int, include: Sequence[Path] = ()) -> str:
    """The name of a source's cubin in the cache, as far as it does not depend on the compiler."""
    options = f"{_NVRTC_OPTIONS} {_NVRTC_OPTIONS_OF_CUTE}"
    key = key_of(*_NVCC_FLAGS, options, *_cute_version(include), *texts(SOURCES / source))
    return f"{Path(source).stem}-sm_{architecture}-{key}"


def _cute_version(include: Sequence[Path]) -> list[str]:
    """The lines in CuTe's headers that define its version; none without CuTe."""
    files = [folder / _CUTE_VERSION for folder in include if (folder / _CUTE_VERSION).is_file()]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if line.startswith("#define CUTLASS_")]


def _build(stem: str, compiler: str, write: Callable[[Path], object]) -> Path:
    """The path of the cubin of that compiler in the cache; `write` makes it if there is none."""
    return ensure(f"{stem}-{key_of(compiler)[:8]}", ".cubin", write)


# ---- nvcc ---------------------------------------------------------------------------------------


def find_nvcc() -> str | None:
    """The path of nvcc: in `$CUDA_HOME`, else on the PATH or where CUDA usually is; or None."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which("nvcc", path=f"{home}/bin")
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def compile_nvcc(source: str, architecture: int, include: Sequence[Path] = ()) -> Path:
    """The path of the cubin that nvcc makes. Raises RuntimeError: no nvcc, or its last error."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise RuntimeError("no nvcc on the PATH")
    # of the header folders only CuTe's: nvcc has CUDA's own, of its version
    folders = [f"-I{folder}" for folder in include if (folder / "cute").is_dir()]
    command = [nvcc, *_NVCC_FLAGS, f"-arch=sm_{architecture}", *folders, str(SOURCES / source)]
    stem, version = _stem(source, architecture, include), run([nvcc, "--version"])
    return _build(stem, version, lambda new: run([*command, "-o", str(new)]))


# ---- NVRTC --------------------------------------------------------------------------------------


def _nvrtc_version() -> str:
    """The name and version of NVRTC. Raises RuntimeError: no NVRTC, or no cuda-core to call it."""
    cuda_driver.core()
    from cuda.bindings import nvrtc

    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise RuntimeError("no NVRTC library; it comes with torch's CUDA packages") from error
    return f"NVRTC {major}.{minor}"


def compile_nvrtc(source: str, architecture: int, include: Sequence[Path] = ()) -> Path:
    """The path of the cubin that NVRTC makes. Raises RuntimeError: no NVRTC, or its first error."""
    options = {
        **_NVRTC_OPTIONS,
        **(_NVRTC_OPTIONS_OF_CUTE if include else {}),
        "arch": f"sm_{architecture}",
        "include_path": [str(folder) for folder in (SOURCES, *include)],
        "name": source,
    }
    stem, version = _stem(source, architecture, include), _nvrtc_version()
    return _build(stem, version, lambda new: new.write_bytes(_nvrtc_cubin(source, options)))


def _nvrtc_cubin(source: str, options: dict[str, Any]) -> bytes:
    """The cubin that NVRTC makes, as bytes. Raises RuntimeError: its first error."""
    core = cuda_driver.core()
    text = (SOURCES / source).read_text()
    try:
        program = core.Program(text, "c++", core.ProgramOptions(**options))
        return program.compile("cubin").code
    except Exception as error:  # of cuda-core, which has no public name for its own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeError(next((x for x in lines if ": error" in x), lines[0])) from error
