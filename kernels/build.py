"""Build C++ sources at first use with the compiler that is there, and say what was chosen and why.

A library is kept in the cache under a key of its sources, flags and compiler, and put there by one
rename, so that a killed or a second build harms nothing. Its name ends in the digest of what is in
it: one that the disk has damaged, whose code would end the process, is built again.

Environment: `MADL_KERNELS` forces a path: auto (default), avx512, avx2, portable, or torch, which
is no C++ at all. `CXX` names the compiler. `MADL_CACHE` or `XDG_CACHE_HOME` say where the cache is.
Not handled: Windows' compiler, whose flags differ; torch computes there.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock

from kernels import compilers

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
LEFT_S = 3600  # after which nobody is still building
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-Wall"),
    # exact, and yet vectorised: nothing here looks at errno or at floating-point exceptions
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_ISA_FLAGS = {
    "avx512": (
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
        "-mprefer-vector-width=512",
    ),
    "avx2": ("-mavx2",),
    "portable": (),
}
_EXTENSIONS = {  # beyond "avx512", for sources that ask for it
    "avx512_bf16": ("-mavx512bf16",),
    "avx512_vnni": ("-mavx512vnni",),
    "amx_bf16": ("-mamx-tile", "-mamx-bf16"),
}
_PATHS = {"amx_bf16": "amx"}  # extensions that are a path of their own, which nothing forces


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which path computes, and why; `library` is None where torch does."""

    path: str
    reason: str
    library: ctypes.CDLL | None

    @property
    def lacks(self) -> str:
        """The program for want of which torch computes, or nothing."""
        return compilers.NAME if self.reason == compilers.NO_COMPILER else ""


def cache_dir() -> Path:
    """`$MADL_CACHE`, else the XDG cache folder: the same as `madl.assets` uses."""
    if own := os.environ.get("MADL_CACHE"):
        return Path(own) / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "madl" / "kernels"


def cpu_isa() -> str:
    """The best instruction set of `_ISA_FLAGS` for this CPU, as torch sees it."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(capability, "portable")


def has_extension(extension: str) -> bool:
    """Whether this CPU has one of `_EXTENSIONS` beyond AVX-512."""
    checks = {
        "avx512_bf16": torch.cpu._is_avx512_bf16_supported,
        "avx512_vnni": torch.cpu._is_vnni_supported,
        "amx_bf16": _has_amx,
    }
    return cpu_isa() == "avx512" and checks[extension]()


def _has_amx() -> bool:
    """Whether this CPU has AMX and the system lets this process use it, from now on."""
    return torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx()


@functools.cache
def load(source: str, *, extension: str = "", without: str = "torch", operator: str = "") -> Route:
    """The library of one source file, built if the cache does not have it.

    A source whose AVX-512 needs an `extension` takes the path `without` on CPUs that lack it: none
    by default, or `avx2` if it has paths for every other CPU. The `operator` of torch, one of
    operators.cpp, computes with it from then on. A machine without a compiler gets the torch path;
    that is logged once.

    Raises:
        ValueError: `MADL_KERNELS` names no path, or one that this CPU cannot run.
    """
    route = _load(source, extension, without)
    return _hand_over(operator, route) if operator else route


def _load(source: str, extension: str, without: str) -> Route:
    forced = os.environ.get("MADL_KERNELS") or "auto"
    _check_forced(forced)
    if forced == "torch":
        return Route(path="torch", reason="MADL_KERNELS=torch", library=None)
    isa = cpu_isa() if forced == "auto" else forced
    why = f"the best that this CPU has ({platform.machine()})"
    if forced != "auto":
        why = f"MADL_KERNELS={forced}"
    if extension and isa == "avx512" and without != "torch" and not has_extension(extension):
        isa, why = without, f"{why}; {source} would need {extension} for more"
    wanted = (extension,) if extension and isa == "avx512" else ()
    if extension in _PATHS and forced != "auto":
        return Route(path="torch", reason=why, library=None)
    if extension and without == "torch" and not (wanted and has_extension(extension)):
        reason = f"{source} needs {extension}, which the path {isa} here does not have"
        return Route(path="torch", reason=reason, library=None)
    try:
        library, compiler = _build_and_load(
            source, _ISA_FLAGS[isa] + tuple(flag for name in wanted for flag in _EXTENSIONS[name])
        )
    except (OSError, RuntimeError) as error:
        return _torch(source, error)
    path = _PATHS.get(extension, isa)
    return Route(path=path, reason=f"{why}, built by {compiler}", library=library)


def _torch(subject: str, error: Exception) -> Route:
    """The path where nothing compiles; without a compiler, that is said once for all sources."""
    reason = str(error)
    if reason == compilers.NO_COMPILER:
        compilers.warn_missing()
    else:
        log.warning("no fast path for %s, torch computes instead: %s", subject, reason)
    return Route(path="torch", reason=reason, library=None)


def _hand_over(operator: str, route: Route) -> Route:
    if route.library is None and not _operators.cache_info().currsize:
        return route
    try:
        use = _operators().madl_use
    except (OSError, RuntimeError) as error:
        return _torch(operator, error)
    use.restype = ctypes.c_bool
    kernel = route.library and ctypes.cast(route.library[f"madl_{operator}"], ctypes.c_void_p)
    known = use(operator.encode(), kernel)
    assert known, f"operators.cpp has no operator {operator}"
    return route


@functools.cache
def _operators() -> ctypes.CDLL:
    """The C++ side of torch's operators, once in a process: torch keeps what it registers."""
    home = Path(torch.__file__).parent
    suffix = ".dylib" if platform.system() == "Darwin" else ".so"
    return _build_and_load(
        "operators.cpp", (f"-I{home / 'include'}",), (home / "lib" / f"libtorch_cpu{suffix}",)
    )[0]


def check_forced() -> None:
    """Raises: ValueError: `MADL_KERNELS` names no path, or one that this CPU cannot run."""
    _check_forced(os.environ.get("MADL_KERNELS") or "auto")


def _check_forced(forced: str) -> None:
    known = ["auto", *_ISA_FLAGS, "torch"]
    if forced not in known:
        raise ValueError(f"MADL_KERNELS={forced}: unknown path; known: {', '.join(known)}")
    usable = {"avx512": ["avx512", "avx2"], "avx2": ["avx2"]}.get(cpu_isa(), [])
    if forced in ("avx512", "avx2") and forced not in usable:
        raise ValueError(f"MADL_KERNELS={forced}: this CPU cannot run it; use auto or portable")


def _build_and_load(
    source: str, more_flags: tuple[str, ...], libraries: tuple[Path, ...] = ()
) -> tuple[ctypes.CDLL, str]:
    problems: list[str] = []
    for compiler in compilers.cpp():
        for threads in (("-fopenmp",), ()):  # a compiler without OpenMP still gives one fast thread
            flags = (*_FLAGS, *more_flags, *threads)
            try:
                path = _build(compiler, SOURCES / source, flags, libraries=libraries)
                return ctypes.CDLL(str(path)), compiler
            except (OSError, RuntimeError) as error:
                problems.append(f"{compiler}: {error}")
    raise RuntimeError("; ".join(problems) or compilers.NO_COMPILER)


def _build(
    compiler: str,
    source: Path,
    flags: Sequence[str],
    *,
    suffix: str = ".so",
    libraries: Sequence[Path] = (),
) -> Path:
    """The path of the library in the cache, compiled if it is not there."""
    version = run([compiler, "--version"])
    needed = [str(library) for library in libraries]
    text = "\0".join([version, *flags, *needed, *texts(source)])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    library = cache_dir() / f"{source.stem}-{key}{suffix}"
    return kept(library) or publish(
        library, lambda new: run([compiler, *flags, str(source), *needed, "-o", str(new)])
    )


def kept(path: Path) -> Path | None:
    """What was put into the cache under this name, with its digest, and is still whole."""
    for found in sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")):
        if found.stem.rpartition("-")[2] == _digest(found):
            return found
        log.warning("%s is damaged; it is built again", found)
        found.unlink(missing_ok=True)
    return None


def publish(path: Path, make: Callable[[Path], object]) -> Path:
    """Put into the cache what `make` writes, whole or not at all; under which name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(".building-*"):  # by a killed run
        if time.time() - left.stat().st_mtime > LEFT_S:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as work:
        make(made := Path(work) / path.name)
        final = path.with_name(f"{path.stem}-{_digest(made)}{path.suffix}")
        os.replace(made, final)
    return final


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def program(source: str, *, include: Sequence[Path] = ()) -> Path:
    """A program of ours in the cache, compiled if it is not there.

    Raises:
        RuntimeError: no C++ compiler, or none that compiles it; its message says why.
    """
    flags = ["-std=c++17", "-O1", "-w"]
    flags += [flag for folder in include for flag in ("-isystem", str(folder))]
    problems: list[str] = []
    cache_dir().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir() / f".{source}.lock"):  # it takes seconds: whoever is second waits
        for compiler in compilers.cpp():
            try:
                return _build(compiler, SOURCES / source, flags, suffix=".bin")
            except RuntimeError as error:
                problems.append(f"{compiler}: {error}")
    raise RuntimeError("; ".join(problems) or compilers.NO_COMPILER)


def texts(source: Path) -> list[str]:
    """The source and every header of ours that it includes, each once."""
    found: dict[Path, str] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = path.read_text()
            waiting += [
                path.parent / name
                for name in re.findall(r'^#include "(.+)"', found[path], flags=re.MULTILINE)
            ]
    return list(found.values())


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()
        raise RuntimeError(last[-1] if last else f"exit status {done.returncode}")
    return done.stdout
