"""Which sources can change an experiment's results, and their digest.

Of Python, definition by definition, what the experiment's measurement uses, at any distance and
wherever an import stands; and the kernels' C++, CUDA and Verilog files named there. Which cases
there are changes none of them, as a case's key holds all its parameters. A claim, a chart or a
sentence that is worded anew changes no result. What renders pages and hands out work
(`madl.logbook`, `running`, `site`) measures nothing.

Not handled: a module or a name that is put together while running, but for packages that import all
they hold (`iter_modules`); a method is used as soon as its class is.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

PACKAGES = ("madl", "kernels", "experiments")
NO_MEASURE = ("logbook", "running", "site")
SUFFIXES = (".h", ".cpp", ".cu", ".v")
READERS = ("claim", "fact", "chart", "table", "drawing", "explainer", "output")  # of records
PLANNERS = ("cases", "unavailable")  # of what is run
HARMLESS = ("cache", "lru_cache", "contextmanager", "no_grad", "constant_in_traces")  # to leave out
ALL, NOTHING = "*", ""  # in place of a name: all that a module holds; what its import runs alone
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"([\w.]+):(\w+)")  # `module:function`, as `machine.fresh` takes it

Used = tuple[Path, str]  # a file, and a name in it


def digest(root: Path, experiment: str) -> str:
    """Twelve hexadecimal digits of all sources that can change this experiment's results."""
    made = hashlib.sha256()
    for path, nodes in sorted(_reached(root, _of_experiment(root, experiment)).items()):
        if path.suffix == ".py":
            for node in sorted(nodes, key=lambda node: node.lineno):
                made.update(_Module.of(root, path).text_of(node).encode())
        else:
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
    """The files of the project that hold something that can change this experiment's results."""
    return set(_reached(root, _of_experiment(root, experiment)))


def _of_experiment(root: Path, name: str) -> Iterator[Used]:
    """Its file, and the functions there that the page's decorators take to measure."""
    path = root / "experiments" / name.removesuffix("_tuning") / "page.py"
    yield path, NOTHING
    for node in _Module.of(root, path).tree.body:
        if isinstance(node, ast.FunctionDef):
            hooks = [way for way in _decorators(node) if way[0] == "page"]
            if any(hook[-1] not in (*PLANNERS, *READERS) for hook in hooks):
                yield path, node.name


def _reached(root: Path, start: Iterable[Used]) -> dict[Path, set[ast.stmt]]:
    """Every file with the statements of it that count; other languages' files count as a whole."""
    found: dict[Path, set[ast.stmt]] = {}
    seen: set[Used] = set()
    todo = list(start)
    while todo:
        path, name = used = todo.pop()
        if used in seen or not path.is_file() or not _measures(root, path):
            continue
        seen.add(used)
        known = found.setdefault(path, set())
        if path.suffix == ".py":
            module = _Module.of(root, path)
            todo += module.passed_on(name)
            for node in module.statements(name):
                if node not in known:
                    known.add(node)
                    todo += module.uses(node)
        else:
            text = path.read_text("utf-8", errors="replace")
            todo += [(path.parent / file, ALL) for file in _INCLUDE.findall(text)]
    return found


def _measures(root: Path, path: Path) -> bool:
    return not any(root / "madl" / name in path.parents for name in NO_MEASURE)


def _file_of(root: Path, module: str) -> Path | None:
    """Where a module of the project stands, a folder for a bare package; None for others'."""
    parts = module.split(".")
    place = root.joinpath(*parts)
    ways = (place / "__init__.py", place.with_suffix(".py"), place)
    return next((p for p in ways if parts[0] in PACKAGES and p.exists()), None)


def _decorators(node: ast.FunctionDef) -> list[list[str]]:
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return [ast.unparse(decorator).split(".") for decorator in called]


class _Module:
    """The statements of a Python file by what they define, and what each of them uses."""

    @staticmethod
    def of(root: Path, path: Path) -> "_Module":
        return _parsed(root, path, path.stat().st_mtime_ns)

    def __init__(self, root: Path, path: Path) -> None:
        self.root, self.path = root, path
        source = path.read_text("utf-8")
        self.lines = source.splitlines(keepends=True)
        try:
            self.tree = ast.parse(source)
        except SyntaxError:
            self.tree = ast.Module([], [])  # it cannot run either
        self.by_name: dict[str, list[ast.stmt]] = {}
        self.at_import: list[ast.stmt] = []
        self.imported: dict[str, str | tuple[str, str]] = {}  # a module, or a name of one
        self._uses: dict[ast.stmt, list[Used]] = {}
        for node in self.tree.body:
            names = _defines(node)
            for name in names:
                self.by_name.setdefault(name, []).append(node)
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.imported |= self._imports(node)
            if not (names or _is_no_code(node)) or _registers(node):
                self.at_import.append(node)

    def text_of(self, node: ast.stmt) -> str:
        """With its decorators."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return "".join(self.lines[first - 1 : node.end_lineno])

    def statements(self, name: str) -> list[ast.stmt]:
        """Those that a name brings in, and those that run at import in any case."""
        if name == ALL or not (name == NOTHING or name in self.by_name or name in self.imported):
            return [node for node in self.tree.body if not _is_no_code(node)]
        return [*self.by_name.get(name, ()), *self.at_import]

    def passed_on(self, name: str) -> list[Used]:
        """What stands elsewhere under a name that is imported here."""
        return self._resolved([name], self.imported) if name in self.imported else []

    def uses(self, node: ast.stmt) -> list[Used]:
        """The names that a statement uses, here and elsewhere, and the kernels' files."""
        if node not in self._uses:
            imported = {**self.imported, **self._imports(node)}
            self._uses[node] = list(self._used(node, imported))
        return self._uses[node]

    def _imports(self, node: ast.AST) -> dict[str, str | tuple[str, str]]:
        """What a statement imports, wherever inside it."""
        found: dict[str, str | tuple[str, str]] = {}
        for part in ast.walk(node):
            match part:
                case ast.Import(names=names):
                    for one in names:
                        first = one.name.partition(".")[0]
                        found[one.asname or first] = one.name if one.asname else first
                case ast.ImportFrom(module=str(module), names=names):
                    for one in names:
                        inner = f"{module}.{one.name}"
                        is_module = _file_of(self.root, inner) is not None
                        found[one.asname or one.name] = inner if is_module else (module, one.name)
                case _:
                    pass
        return found

    def _used(self, node: ast.AST, imported: Mapping[str, str | tuple[str, str]]) -> Iterator[Used]:
        match node:
            case ast.Attribute() | ast.Name() if chain := _chain(node):
                yield from self._resolved(chain, imported)
            case ast.Constant(value=str(text)) if match := _FUNCTION.fullmatch(text):
                if path := _file_of(self.root, match[1]):
                    yield path, match[2]
            case ast.JoinedStr() if "{__name__}" in ast.unparse(node):
                yield self.path, ALL  # a function of this module, named while running
            case ast.Constant(value=str(text)) if text.endswith(SUFFIXES) and "/" not in text:
                yield from ((path, ALL) for path in sorted((self.root / "kernels").rglob(text)))
            case _:
                for part in ast.iter_child_nodes(node):
                    yield from self._used(part, imported)

    def _resolved(
        self, chain: Sequence[str], imported: Mapping[str, str | tuple[str, str]]
    ) -> list[Used]:
        """`chain`: a name and the attributes that follow it."""
        if "iter_modules" in chain:  # a package that imports all it holds
            return [(path, ALL) for path in sorted(self.path.parent.glob("*.py"))]
        name, *rest = chain
        if name not in imported:
            return [(self.path, name)] if name in self.by_name else []
        target = imported[name]
        if isinstance(target, tuple):
            path = _file_of(self.root, target[0])
            return [(path, target[1])] if path else []
        for attribute in rest:
            if _file_of(self.root, f"{target}.{attribute}") is None:
                break
            target, rest = f"{target}.{attribute}", rest[1:]
        path = _file_of(self.root, target)
        return [(path, rest[0] if rest else ALL)] if path else []


@functools.lru_cache(maxsize=2000)
def _parsed(root: Path, path: Path, changed: int) -> _Module:
    """`changed`: when the file was written."""
    return _Module(root, path)


def _chain(node: ast.expr) -> list[str]:
    """`a.b.c` as its names; empty for an attribute of anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case _:
            return []


def _is_no_code(node: ast.stmt) -> bool:
    """An import, which counts where its name is used; what runs for type checkers or pages."""
    match node:
        case ast.Expr() | ast.For() if any(_reads(part) for part in ast.walk(node)):
            return True
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=test):
            return ast.unparse(test).endswith("TYPE_CHECKING")
        case _:
            return False


def _reads(node: ast.AST) -> bool:
    """Whether it gives a page a reader of records: `page.table(…)` as a statement."""
    chain = _chain(node) if isinstance(node, ast.Attribute) else []
    return chain[:1] == ["page"] and chain[-1] in READERS


def _registers(node: ast.stmt) -> bool:
    """Whether a decorator may make a function known to somebody who does not name it."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any(way[0] != "page" and way[-1] not in HARMLESS for way in _decorators(node))
