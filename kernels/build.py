"""Build C++ sources at first use with the compiler that is there, and say what was chosen and why.

A library is kept in the cache under a key of its sources, flags and compiler, and put there by one
rename, so that a build that is killed, or done twice at once, harms nothing. Its name ends in the
digest of its content: a file that the disk has damaged, whose code would end the process, is built
again.

Environment: `MADL_KERNELS` forces a path: auto (default), avx512, avx2, portable, or torch, which
is no C++ at all. `CXX` names the compiler. `MADL_CACHE` or `XDG_CACHE_HOME` say where the cache is.
Not handled: Windows' compiler, whose flags differ; torch computes there.
"""

import contextlib
import ctypes
import functools
import hashlib
import itertools
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock

from kernels import compilers

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
BUILD_S = 3600  # more than any build takes
PATHS = ("amx", "avx512", "avx2", "portable")  # best first
EVERY_CPU = PATHS[1:]  # for sources that need no extension of AVX-512
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-Wall"),
    # exact, and yet vectorised: nothing here looks at errno or at floating-point exceptions
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_OPENMP = (("-fopenmp",), ())
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")
_TARGET_FLAGS = {  # a target is a path, or one with an extension that a source needs there
    "amx": (*_AVX512, "-mamx-tile", "-mamx-bf16"),
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "avx512_vnni": (*_AVX512, "-mavx512vnni"),
    "avx512": _AVX512,
    "avx2": ("-mavx2",),
    "portable": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path by which a kernel is computed, `torch` where there is no compiled code, and why."""

    path: str
    reason: str
    library: ctypes.CDLL | None = None
    cubin: Path | None = None  # of a route on a GPU

    @property
    def lacks(self) -> str:
        """The program for want of which torch computes; "" if that is not the reason."""
        return compilers.NAME if self.reason == compilers.NO_COMPILER else ""


def cache_dir() -> Path:
    """The folder of what is built, in `$MADL_CACHE` or the XDG cache folder, as `madl.assets`."""
    if own := os.environ.get("MADL_CACHE"):
        return Path(own) / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "madl" / "kernels"


def cpu_isa() -> str:
    """The best of `EVERY_CPU` that this CPU has, as torch sees it."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(capability, "portable")


def runs(target: str) -> bool:
    """Whether this CPU runs what is compiled for a target; for AMX, if the system allows it."""
    checks: dict[str, Callable[[], bool]] = {
        "amx": lambda: torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx(),
        "avx512_bf16": torch.cpu._is_avx512_bf16_supported,
        "avx512_vnni": torch.cpu._is_vnni_supported,
    }
    if target in checks:
        return cpu_isa() == "avx512" and checks[target]()
    return PATHS.index(target) >= PATHS.index(cpu_isa())


def forced_path() -> str:
    """The path that `MADL_KERNELS` forces, `auto` where it forces none.

    Raises:
        ValueError: it names no path, or one that this CPU cannot run.
    """
    forced = os.environ.get("MADL_KERNELS") or "auto"
    known = ("auto", *EVERY_CPU, "torch")
    if forced not in known:
        raise ValueError(f"MADL_KERNELS={forced}: unknown path; known: {', '.join(known)}")
    if forced in EVERY_CPU and not runs(forced):
        raise ValueError(f"MADL_KERNELS={forced}: this CPU cannot run it; use auto or portable")
    return forced


@functools.cache
def load(
    source: str, targets: Sequence[str] = EVERY_CPU, *, operators: Sequence[str] = ()
) -> Route:
    """The route of one source file: its library is loaded, and built if the cache does not have it.

    Of `targets`, best first, it is the first that this CPU runs and a compiler here can build; a
    forced path leaves out the better ones. From then on, these `operators` of torch (in
    operators.cpp) compute with the library. Without a compiler torch computes; that is logged once.

    Raises:
        ValueError: `MADL_KERNELS` names no path, or one that this CPU cannot run.
    """
    route = _load(source, targets)
    return _hand_over(operators, route) if operators else route


def _load(source: str, targets: Sequence[str]) -> Route:
    """The route that `load` returns; torch's operators are not told."""
    forced = forced_path()
    if forced == "torch":
        return Route(path="torch", reason="MADL_KERNELS=torch")
    allowed, why = PATHS, f"the best that this CPU has ({platform.machine()})"
    if forced != "auto":
        allowed, why = PATHS[PATHS.index(forced) :], f"MADL_KERNELS={forced}"
    possible = [t for t in targets if t.partition("_")[0] in allowed and runs(t)]
    if missing := " or ".join(t for t in targets if t not in possible):
        why = f"{why}; {source} would need {missing} for more"
    if not possible:
        return Route(path="torch", reason=why)
    try:
        library, target, compiler = _load_first(source, {t: _TARGET_FLAGS[t] for t in possible})
    except (OSError, RuntimeError) as error:
        return _torch_route(source, str(error))
    path = target.partition("_")[0]
    return Route(path=path, reason=f"{why}, built by {compiler}", library=library)


def _torch_route(subject: str, problem: str) -> Route:
    """The route on which torch computes; logs why, a missing compiler only once."""
    if problem == compilers.NO_COMPILER:
        compilers.warn_missing()
    else:
        log.warning("no fast path for %s, torch computes instead: %s", subject, problem)
    return Route(path="torch", reason=problem)


def _hand_over(operators: Sequence[str], route: Route) -> Route:
    """Have these operators compute by the route from now on; returns it, or torch's on failure."""
    if route.library is None and not _operators.cache_info().currsize:
        return route
    try:
        use = _operators().madl_use
    except (OSError, RuntimeError) as error:
        return _torch_route(", ".join(operators), str(error))
    use.restype = ctypes.c_bool
    for operator in operators:
        kernel = route.library and ctypes.cast(route.library[f"madl_{operator}"], ctypes.c_void_p)
        known = use(operator.encode(), kernel)
        assert known, f"operators.cpp has no operator {operator}"
    return route


@functools.cache
def _operators() -> ctypes.CDLL:
    """The C++ side of torch's operators, once in a process: torch keeps what it registers."""
    home = Path(torch.__file__).parent
    suffix = ".dylib" if platform.system() == "Darwin" else ".so"
    flags = (f"-I{home / 'include'}", str(home / "lib" / f"libtorch_cpu{suffix}"))
    return _load_first("operators.cpp", {"": flags})[0]


def _load_first(source: str, targets: Mapping[str, Sequence[str]]) -> tuple[ctypes.CDLL, str, str]:
    """(library, target, compiler) of the first target (name → flags) that a compiler here builds.

    With a compiler without OpenMP, the library has one fast thread.
    """
    every = [(t, (*_FLAGS, *flags, *omp)) for t, flags in targets.items() for omp in _OPENMP]
    path, target, compiler = _first_built(source, every, ".so")
    return ctypes.CDLL(str(path)), target, compiler


def program(source: str, *, include: Sequence[Path] = ()) -> Path:
    """The path of a program in the cache, which is compiled from its source if it is not there.

    Raises:
        RuntimeError: no C++ compiler, or none that compiles it; its message says why.
    """
    folders = [flag for folder in include for flag in ("-isystem", str(folder))]
    cache_dir().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir() / f".{source}.lock"):  # it takes seconds: whoever is second waits
        return _first_built(source, [("", ("-std=c++17", "-O1", "-w", *folders))], ".bin")[0]


def _first_built(
    source: str, variants: Sequence[tuple[str, Sequence[str]]], suffix: str
) -> tuple[Path, str, str]:
    """(file, variant, compiler) of the first variant, a (name, flags), that a compiler here builds.

    Raises:
        OSError: there is no room on the disk.
        RuntimeError: no compiler, or none that builds it; its message says why.
    """
    problems: list[str] = []
    for (name, flags), compiler in itertools.product(variants, compilers.cpp()):
        try:
            return _build(compiler, SOURCES / source, flags, suffix), name, compiler
        except RuntimeError as error:
            problems.append(f"{compiler}: {error}")
    raise RuntimeError("; ".join(problems) or compilers.NO_COMPILER)


def _build(compiler: str, source: Path, flags: Sequence[str], suffix: str) -> Path:
    """The path in the cache of a program, or of a library that loads; compiled if needed."""
    key = key_of(run([compiler, "--version"]), *flags, *texts(source))
    command = [compiler, str(source), *flags]  # what is linked stands behind the source
    path = ensure(f"{source.stem}-{key}", suffix, lambda new: run([*command, "-o", str(new)]))
    if suffix == ".so":
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            raise RuntimeError(str(error)) from error
    return path


# ---- the cache ----------------------------------------------------------------------------------


def ensure(stem: str, suffix: str, write: Callable[[Path], object]) -> Path:
    """The path of an undamaged file in the cache; `write` makes it if there is none."""
    if path := next(cached(stem, suffix), None):
        return path
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    for abandoned in folder.glob(".building-*"):
        with contextlib.suppress(FileNotFoundError):  # another build is done
            if time.time() - abandoned.stat().st_mtime > BUILD_S:  # by a killed run
                shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as building:
        new = Path(building) / f"{stem}{suffix}"
        write(new)
        return new.replace(folder / f"{stem}-{_digest(new.read_bytes())}{suffix}")


def cached(stem: str, suffix: str) -> Iterator[Path]:
    """The undamaged files in the cache with that stem and suffix; damaged ones are removed."""
    for path in sorted(cache_dir().glob(f"{stem}-*{suffix}")):
        try:
            is_whole = path.stem.rpartition("-")[2] == _digest(path.read_bytes())
        except FileNotFoundError:  # another process found it damaged
            continue
        if is_whole:
            yield path
        else:
            log.warning("%s is damaged; it is built again", path)
            path.unlink(missing_ok=True)


def key_of(*parts: str) -> str:
    """Sixteen hexadecimal digits of texts that define a file in the cache."""
    return _digest("\0".join(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def texts(source: Path) -> list[str]:
    """The texts of a source and of every header of ours that it includes, each once."""
    contents: dict[Path, str] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in contents:
            contents[path] = path.read_text()
            names: list[str] = re.findall(r'^#include "(.+)"', contents[path], flags=re.MULTILINE)
            waiting += [path.parent / name for name in names]
    return list(contents.values())


def run(command: Sequence[str]) -> str:
    """Run a command, and return its standard output.

    Raises:
        RuntimeError: it fails, or cannot be started; its last line of errors.
    """
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(str(error)) from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"exit status {result.returncode}")
    return result.stdout
