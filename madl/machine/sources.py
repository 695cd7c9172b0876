"""Which sources can change an experiment's results, and their digest.

An experiment's own file and every module of the project that it imports, at any distance and
wherever the import stands; the kernels' C++, CUDA and Verilog files that these name. What renders
pages and hands out work (`madl.logbook`, `running`, `site`) measures nothing, and is left out.

Not handled: a module named by a string that is put together while running.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("madl", "kernels", "experiments")
NO_MEASURE = ("logbook", "running", "site")
SUFFIXES = (".h", ".cpp", ".cu", ".v")
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"[\w.]+:\w+")  # `module:function`, as `machine.fresh` takes it


def digest(root: Path, experiment: str) -> str:
    """Twelve hexadecimal digits of all sources that can change this experiment's results."""
    return _digest(root, reached(root, root / "experiments" / f"{experiment}.py"))


def digest_of_all(root: Path) -> str:
    """The same of the whole library, whoever uses it."""
    folders = [root / "madl", root / "kernels"]
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return _digest(root, (path for path in found if path.suffix in (".py", *SUFFIXES)))


def reached(root: Path, start: Path) -> set[Path]:
    """The file and all that it needs of the project."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        todo += _needs(root, path, path.stat().st_mtime_ns)
    return {path for path in seen if not _is_no_measure(root, path)}


def _digest(root: Path, paths: Iterable[Path]) -> str:
    made = hashlib.sha256()
    for path in sorted(path for path in paths if not _is_no_measure(root, path)):
        made.update(path.read_bytes())
    return made.hexdigest()[:12]


def _is_no_measure(root: Path, path: Path) -> bool:
    return any(root / "madl" / name in path.parents for name in NO_MEASURE)


@functools.cache
def _needs(root: Path, path: Path, changed: int) -> tuple[Path, ...]:
    """The project's files that this one names; `changed` is when it was written."""
    del changed
    if path.suffix != ".py":
        text = path.read_text("utf-8", errors="replace")
        return tuple(path.parent / name for name in _INCLUDE.findall(text))
    if _is_no_measure(root, path):
        return ()
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return ()  # it cannot run either
    return tuple(_named(root, path, tree))


def _named(root: Path, path: Path, tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield from _module(root, name.name)
            case ast.ImportFrom(module=str(module), names=names):
                yield from _module(root, module)
                for name in names:
                    yield from _module(root, f"{module}.{name.name}")
            case ast.Constant(value=str(text)) if _FUNCTION.fullmatch(text):
                yield from _module(root, text.partition(":")[0])
            case ast.Constant(value=str(text)) if text.endswith(SUFFIXES) and "/" not in text:
                yield from sorted((root / "kernels").rglob(text))
            case ast.Attribute(attr="iter_modules"):  # a package that imports all it holds
                yield from sorted(path.parent.glob("*.py"))
            case _:
                pass


def _module(root: Path, name: str) -> Iterator[Path]:
    """The file of that module, and of the packages it lies in."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return
    for i in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:i])
        yield place / "__init__.py"
        yield place.with_suffix(".py")
