"""The source files that can change an experiment's results, and their digest.

These are the files that its measurement reaches: what `study.py` imports, or what the function
under `@page.run` does where a page has no study, at any distance and wherever an import stands; and
the kernels' C++, CUDA and Verilog files that they name. What renders pages and hands out work
(`madl.logbook`, `running`, `site`) measures nothing, and neither does this module. Comments,
docstrings, annotations, layout and local names can change no result (`syntax`).

A `root` is a logbook's folder; one without `madl` and `kernels` uses those of the library.

Not handled: a module whose name is put together while running.
"""

import ast
import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from madl.files import LIBRARY
from madl.machine import syntax

T = TypeVar("T")
PACKAGES = ("madl", "kernels", "experiments")
NO_MEASURE = (
    *("logbook", "running", "site", "assets.py", "errors.py", "files.py"),
    *("machine/sources.py", "machine/syntax.py"),
)
SUFFIXES = (".h", ".cpp", ".cu", ".v")
_READ = (".py", *SUFFIXES)
TUNING = "_tuning"  # behind a page's name: its cases on the tuning seed, of the same code
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"([\w.]+):\w+")  # `module:function`, as `machine.fresh` takes it


def state(root: Path) -> str:
    """A digest of the names, sizes and change times of all source files, hexadecimal."""
    stamp = hashlib.sha256()
    for package in PACKAGES:
        for folder, _, names in os.walk(_home(root, package) / package):
            for path in (os.path.join(folder, name) for name in names if name.endswith(_READ)):
                with contextlib.suppress(OSError):  # a link that leads nowhere
                    file = os.stat(path)
                    stamp.update(os.fsencode(f"{path} {file.st_mtime_ns} {file.st_size}\n"))
    return stamp.hexdigest()


def _while_unchanged(fn: Callable[[Path, str], T]) -> Callable[[Path, str], T]:
    """Decorate a function of (root, name): its results are kept until any source file changes."""

    @functools.lru_cache(maxsize=500)
    def memo(root: Path, name: str, state: str) -> T:
        return fn(root, name)

    @functools.wraps(fn)
    def remembered(root: Path, name: str) -> T:
        return memo(root, name, state(root))

    return remembered


@_while_unchanged
def digest(root: Path, experiment: str) -> str:
    """Twelve hexadecimal digits of all that can change this experiment's results."""
    page = syntax.written(_run_of(_page(root, experiment)))
    return _digest(root, reached(root, experiment), page)


@_while_unchanged
def digest_of_module(root: Path, module: str) -> str:
    """Twelve hexadecimal digits of a module and all files that it reaches."""
    return _digest(root, _closure(root, _files(root, [module])))


def _digest(root: Path, files: Iterable[Path], *texts: str) -> str:
    """Twelve hexadecimal digits of these texts, and of what in the files can change a result."""
    homes = [_home(root, package) for package in ("experiments", "madl")]
    places = {path: next(path.relative_to(h) for h in homes if h in path.parents) for path in files}
    ordered = sorted(places, key=places.__getitem__)  # alike wherever the two folders lie
    every = (*texts, *(_read(root, path)[0] for path in ordered))
    return hashlib.sha256("\0".join(every).encode()).hexdigest()[:12]


def digest_of_all(root: Path, packages: Sequence[str] = ("madl", "kernels")) -> str:
    """Twelve hexadecimal digits of all files in these that measure, pages apart, byte by byte."""
    digest = hashlib.sha256()
    for path in sorted(p for name in packages for p in (root / name).rglob("*")):
        is_read = path.suffix in _READ and path.name != "page.py" and path.is_file()
        if is_read and _measures(root, path):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@_while_unchanged
def reached(root: Path, experiment: str) -> frozenset[Path]:
    """The files of the project that can change this experiment's results, except its page."""
    page = _page(root, experiment)
    files = _closure(root, (*_named(root, _run_of(page)), page.parent / "study.py"))
    return frozenset(files - {page})


def measuring_text(path: Path) -> str:
    """The text of a Python file; of a `page.py`, only the lines that run a case, the others blank.

    So line numbers stay. A missing file gives "".
    """
    text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    if path.name != "page.py":
        return text
    kept: set[int] = set()
    for node in _run_of(path).body:
        decorators = getattr(node, "decorator_list", [])
        first = min(part.lineno for part in (node, *decorators))
        kept |= set(range(first, (node.end_lineno or first) + 1))
    lines = enumerate(text.splitlines(), 1)
    return "\n".join(line if number in kept else "" for number, line in lines)


def _closure(root: Path, files: Iterable[Path]) -> set[Path]:
    """The files that exist and measure, among these and all that they import or name."""
    closure: set[Path] = set()
    left = list(files)
    while left:
        path = left.pop()
        if path not in closure and path.is_file() and _measures(root, path):
            closure.add(path)
            left += _read(root, path)[1]
    return closure


def _page(root: Path, experiment: str) -> Path:
    """The path of an experiment's page; `<page>_tuning` has the page without that ending."""
    return root / "experiments" / experiment.removesuffix(TUNING) / "page.py"


def _run_of(page: Path) -> ast.Module:
    """The function under `@page.run` and the statements of the page that it uses, as a module."""
    return _run_once(page, page.stat().st_mtime_ns) if page.is_file() else ast.Module([], [])


@functools.lru_cache(maxsize=100)
def _run_once(page: Path, written_ns: int) -> ast.Module:
    """`_run_of`, cached by when the page was written."""
    try:
        tree = syntax.bare(ast.parse(page.read_text("utf-8")))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])  # it cannot run either
    used: list[ast.stmt] = [node for node in tree.body if _runs(node)]
    for node in used:  # grows by what its own statements name
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        names -= {"page"}
        used += [other for other in tree.body if other not in used and names & _defines(other)]
    return ast.Module(used, [])


def _runs(node: ast.stmt) -> bool:
    """Whether a statement is a function under `@page.run`."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(ast.unparse(decorator) == "page.run" for decorator in decorators)


def _defines(node: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.Assign(targets=targets):
            return {
                part.id
                for target in targets
                for part in ast.walk(target)
                if isinstance(part, ast.Name)
            }
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _read(root: Path, path: Path) -> tuple[str, tuple[Path, ...]]:
    """(text, files): a file's text that can change a result, and the files it imports or names."""
    return _read_once(root, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2000)
def _read_once(root: Path, path: Path, written_ns: int) -> tuple[str, tuple[Path, ...]]:
    """`_read`, cached by when the file was written."""
    text = path.read_text("utf-8", errors="replace")
    if path.suffix != ".py":
        return syntax.native(text), tuple(path.parent / file for file in _INCLUDE.findall(text))
    try:
        tree = syntax.bare(ast.parse(text))
    except SyntaxError:
        return text, ()
    return syntax.written(tree), tuple(_named(root, tree))


def _named(root: Path, tree: ast.AST) -> Iterator[Path]:
    """The files that a syntax tree imports or names, as `module:function` or as a kernel's file."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from _files(root, [alias.name for alias in names])
            case ast.ImportFrom(module=str(module), names=names):
                yield from _files(root, [module, *(f"{module}.{alias.name}" for alias in names)])
            case ast.Constant(value=str(text)) if match := _FUNCTION.fullmatch(text):
                yield from _files(root, [match[1]])
            case ast.Constant(value=str(text)) if text.endswith(SUFFIXES) and "/" not in text:
                yield from sorted((_home(root, "kernels") / "kernels").rglob(text))
            case _:
                pass


def _files(root: Path, modules: list[str]) -> Iterator[Path]:
    """The paths at which modules of this project lie, or would; none of other modules."""
    for module in modules:
        if (package := module.partition(".")[0]) in PACKAGES:
            place = _home(root, package).joinpath(*module.split("."))
            yield from (place / "__init__.py", place.with_suffix(".py"))


def _home(root: Path, package: str) -> Path:
    """The folder in which a package lies: the logbook's, or the library's where that has none."""
    return root if package == "experiments" or (root / package).is_dir() else LIBRARY


@functools.lru_cache(maxsize=2000)
def _measures(root: Path, path: Path) -> bool:
    """Whether a file is outside of `NO_MEASURE`, so that it can change a result."""
    madl = _home(root, "madl") / "madl"
    return not any(madl / name in (path, *path.parents) for name in NO_MEASURE)
