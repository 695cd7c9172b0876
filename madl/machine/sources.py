"""Which sources can change an experiment's results, and their digest.

Of an experiment's own file what its cases and its measurement use: a claim, a chart or a sentence
that is worded anew changes no result. Of the project every module that these import, at any
distance and wherever the import stands, and the kernels' C++, CUDA and Verilog files named there.
What renders pages and hands out work (`madl.logbook`, `running`, `site`) measures nothing.

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
READERS = (
    "claim",
    "fact",
    "chart",
    "table",
    "drawing",
    "output",
)  # of records; `Experiment` has them
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
        source = path.read_bytes()
        if path.parent == root / "experiments" and (tree := _parse(source)):
            text = source.decode()
            for node in _measuring(tree):
                made.update((ast.get_source_segment(text, node) or "").encode())
        else:
            made.update(source)
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
    tree = _parse(path.read_bytes())
    if tree is None:
        return ()  # it cannot run either
    nodes = _measuring(tree) if path.parent == root / "experiments" else [tree]
    return tuple(file for node in nodes for file in _named(root, path, node))


def _parse(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _measuring(tree: ast.Module) -> list[ast.stmt]:
    """The statements of an experiment's file that its cases and measurement use, in their order."""
    by_name = {name: node for node in tree.body for name in _defines(node)}
    todo = [node for node in tree.body if not _defines(node) or _is_hook(node)]
    kept: set[ast.stmt] = set()
    while todo:
        node = todo.pop()
        if node in kept or _is_text(node):
            continue
        kept.add(node)
        used = {name for part in ast.walk(node) for name in _uses(part)}
        todo += [by_name[name] for name in used if name in by_name]
    return [node for node in tree.body if node in kept]


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case _:
            return []


def _uses(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=str(text)) if _FUNCTION.fullmatch(text):
            yield text.partition(":")[2]
        case _:
            pass


def _is_hook(node: ast.stmt) -> bool:
    """Whether it is a function that the page's decorators take, other than to read records."""
    if not isinstance(node, ast.FunctionDef):
        return False
    found = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    hooks = [d for d in found if isinstance(d, ast.Attribute) and ast.unparse(d.value) == "page"]
    return any(hook.attr not in READERS for hook in hooks)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _named(root: Path, path: Path, tree: ast.AST) -> Iterator[Path]:
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
