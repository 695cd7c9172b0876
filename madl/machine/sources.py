"""Which sources can change an experiment's results, and their digest.

The files that its measurement reaches: what `study.py` imports, or what the function under
`@page.run` does where a page has no study, at any distance and wherever an import stands; and the
kernels' C++, CUDA and Verilog files that they name. What renders pages and hands out work
(`madl.logbook`, `running`, `site`) measures nothing, and neither does this module.

Not handled: a module whose name is put together while running, but for packages that import all
they hold (`iter_modules`).
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("madl", "kernels", "experiments")
NO_MEASURE = (
    *("logbook", "running", "site", "assets.py", "errors.py", "files.py"),
    "machine/sources.py",
)
SUFFIXES = (".h", ".cpp", ".cu", ".v")
TUNING = "_tuning"  # behind a page's name: its cases on the tuning seed, of the same code
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"([\w.]+):\w+")  # `module:function`, as `machine.fresh` takes it


def digest(root: Path, experiment: str) -> str:
    """Twelve hexadecimal digits of all sources that can change this experiment's results."""
    made = hashlib.sha256(_text_of_run(_page(root, experiment)).encode())
    for path in sorted(reached(root, experiment)):
        made.update(path.read_bytes())
    return made.hexdigest()[:12]


def digest_of_all(root: Path) -> str:
    """The same of the whole library, whoever uses it."""
    made = hashlib.sha256()
    for path in sorted(p for name in ("madl", "kernels") for p in (root / name).rglob("*")):
        if path.suffix in (".py", *SUFFIXES) and path.is_file() and _measures(root, path):
            made.update(path.read_bytes())
    return made.hexdigest()[:12]


def reached(root: Path, experiment: str) -> set[Path]:
    """The files of the project that can change this experiment's results, its page left out."""
    page = _page(root, experiment)
    run = ast.parse(_text_of_run(page))
    found: set[Path] = set()
    left = [*_named(root, page, run), page.parent / "study.py"]
    while left:
        path = left.pop()
        if path not in found and path != page and path.is_file() and _measures(root, path):
            found.add(path)
            left += _uses(root, path, path.stat().st_mtime_ns)
    return found


def _page(root: Path, experiment: str) -> Path:
    return root / "experiments" / experiment.removesuffix(TUNING) / "page.py"


def _text_of_run(page: Path) -> str:
    """The function of a page that runs a case, and what of the page it uses."""
    try:
        source = page.read_text("utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return ""  # it cannot run either
    used: list[ast.stmt] = [node for node in tree.body if _runs(node)]
    for node in used:  # grows by what its own statements name
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        names -= {"page"}
        used += [one for one in tree.body if one not in used and names & _defines(one)]
    return "\n".join(ast.unparse(node) for node in used)


def _runs(node: ast.stmt) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(ast.unparse(one) == "page.run" for one in decorators)


def _defines(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(one.asname or one.name).partition(".")[0] for one in names}
        case ast.Assign(targets=targets):
            return {
                part.id for one in targets for part in ast.walk(one) if isinstance(part, ast.Name)
            }
        case _:
            return set()


@functools.lru_cache(maxsize=2000)
def _uses(root: Path, path: Path, changed: int) -> tuple[Path, ...]:
    """What a file imports, includes or names; `changed`: when it was written."""
    text = path.read_text("utf-8", errors="replace")
    if path.suffix != ".py":
        return tuple(path.parent / file for file in _INCLUDE.findall(text))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    whole = path.parent.glob("*.py") if any(map(_imports_all, ast.walk(tree))) else ()
    return (*_named(root, path, tree), *whole)


def _imports_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("iter_modules")


def _named(root: Path, path: Path, tree: ast.AST) -> Iterator[Path]:
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) if ast.unparse(test).endswith("TYPE_CHECKING"):
                node.body = []  # runs for type checkers
            case ast.Import(names=names):
                yield from _files(root, [one.name for one in names])
            case ast.ImportFrom(module=str(module), names=names):
                yield from _files(root, [module, *(f"{module}.{one.name}" for one in names)])
            case ast.Constant(value=str(text)) if match := _FUNCTION.fullmatch(text):
                yield from _files(root, [match[1]])
            case ast.Constant(value=str(text)) if text.endswith(SUFFIXES) and "/" not in text:
                yield from sorted((root / "kernels").rglob(text))
            case _:
                pass


def _files(root: Path, modules: list[str]) -> Iterator[Path]:
    for module in modules:
        place = root.joinpath(*module.split("."))
        if module.partition(".")[0] in PACKAGES:
            yield from (place / "__init__.py", place.with_suffix(".py"))


def _measures(root: Path, path: Path) -> bool:
    return not any(root / "madl" / name in (path, *path.parents) for name in NO_MEASURE)
