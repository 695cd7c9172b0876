"""Source text without what cannot change a result: how it is laid out, explained and annotated.

Python becomes its syntax tree: `bare` of docstrings, annotations and blocks for type checkers, with
the local names of functions numbered, and `written` alike by every version of Python. C++, CUDA and
Verilog lose comments and white space.

Not handled: programs that read their own docstrings, annotations or local names.
"""

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, cast

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Block = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
Scope = Block | Comprehension
# What these modules export annotates; where a program uses it, its name stands there, too.
TYPING = ("__future__", "collections.abc", "types", "typing")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # of statements
_LEFT_OUT = ("ctx", "kind", "returns", "type_comment", "type_ignores", "type_params")
_STRING = r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])'"
_COMMENT = re.compile(rf"({_STRING})|//(?:\\\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(rf"{_STRING}|\w+|[^\w\s]")


def bare(tree: ast.Module, keywords: frozenset[str] | None = None) -> ast.Module:
    """Strip a tree of all that cannot change a result, in place, and return it.

    Where `keywords` are given, parameters of other names are local names, too.
    """
    return _Bare(keywords).visit(tree)


def native(text: str) -> str:
    """The tokens of C++, CUDA or Verilog in a row; directives of the preprocessor on own lines."""
    code = _COMMENT.sub(lambda match: match[1] or " ", text).replace("\\\n", " ")
    lines = (" ".join(_TOKEN.findall(line)) for line in code.split("\n"))
    return " ".join(f"\n{line}\n" if line.startswith("#") else line for line in lines if line)


def written(node: Any) -> str:
    """A tree as text, without positions and empty fields."""
    if isinstance(node, list):
        return "[" + " ".join(map(written, cast("list[Any]", node))) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _LEFT_OUT)
    parts = (f"{name}={written(value)}" for name, value in fields if value not in (None, []))
    return f"{type(node).__name__}({' '.join(parts)})"


def changed_lines(old: str, new: str) -> tuple[set[int], set[int]]:
    """(old, new): the line numbers in each source where statements begin that the other lacks.

    A statement that differs in the names of local variables alone counts as the same.
    """
    changed: list[tuple[set[int], set[int]]] = []
    for transformer in (_Bare, _Explained):
        sides = [list(_statements(transformer(None).visit(ast.parse(text)))) for text in (old, new)]
        texts = [[text for text, _ in side] for side in sides]
        blocks = SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
        edits = [block for block in blocks if block[0] != "equal"]
        before = {line for _, i, j, _, _ in edits for _, line in sides[0][i:j]}
        after = {line for _, _, _, i, j in edits for _, line in sides[1][i:j]}
        changed.append((before, after))
    return changed[0][0] & changed[1][0], changed[0][1] & changed[1][1]


def _statements(node: ast.AST, place: str = "") -> Iterator[tuple[str, int]]:
    """(kinds of block and text, line) of each statement, without statements inside of it."""
    for name, value in ast.iter_fields(node):
        if name not in _BLOCKS:
            continue
        for part in cast("list[Any]", value if isinstance(value, list) else []):
            own = {n: v for n, v in ast.iter_fields(part) if n not in _BLOCKS}
            line = part.pattern.lineno if isinstance(part, ast.match_case) else part.lineno
            yield f"{place}{name} {written(type(part)(**own))}", line
            yield from _statements(part, f"{place}{name}.")


class _Bare(ast.NodeTransformer):
    """Leaves out what explains and annotates, and numbers local names as they are met."""

    def __init__(self, keywords: frozenset[str] | None) -> None:
        self.keywords = keywords
        self.scopes: list[tuple[Scope, dict[str, str | None]]] = []

    # ---- what is left out -----------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return self._statements(node.orelse)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in TYPING else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        target = self.visit(node.target)
        if node.value is None:  # of a class a field, whose place counts
            return ast.copy_location(ast.Expr(target), node)
        return ast.copy_location(ast.Assign([target], self.visit(node.value)), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "cast" and len(node.args) == 2:
            return self.visit(node.args[1])
        return self.generic_visit(node)

    # ---- local names ----------------------------------------------------------------------------

    def _scope(self, node: Any) -> ast.AST:
        """Visit a definition; decorators, defaults and bases belong to the scope around it."""
        if not isinstance(node, ast.Lambda):
            node.name = self._name(node.name)
            node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            node.bases = [self.visit(base) for base in node.bases]
            node.keywords = [self.visit(keyword) for keyword in node.keywords]
        else:
            node.args = self.visit(node.args)
        self.scopes.append((node, _names(node, self.keywords)))
        if not isinstance(node, ast.ClassDef):
            for parameter in _parameters(node):
                parameter.arg = self._name(parameter.arg)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = self._statements(node.body)
        self.scopes.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _scope

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Visit the statements of a block, and return those that stay."""
        block = ast.Module(body, [])
        self.generic_visit(block)
        return block.body

    def _comprehension(self, node: Any) -> ast.AST:
        """Visit a comprehension; its first iterable belongs to the scope around it."""
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        self.scopes.append((node, _names(node, self.keywords)))
        first.target = self.visit(first.target)
        first.ifs = [self.visit(test) for test in first.ifs]
        node.generators[1:] = [self.visit(more) for more in node.generators[1:]]
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self.scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _name(self, name: str) -> str:
        """The number of a local name, any other as it is. Functions do not see a class's names."""
        for depth in reversed(range(len(self.scopes))):
            scope, names = self.scopes[depth]
            is_seen = not isinstance(scope, ast.ClassDef) or depth == len(self.scopes) - 1
            if name in names and is_seen:
                known = sum(number is not None for number in names.values())
                names[name] = names[name] or f"{depth}:{known}"
                return cast("str", names[name])
        return name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._name(node.id), node.ctx)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        node.names = [self._name(name) for name in node.names]
        return node

    def _named(self, node: Any) -> ast.AST:
        """Visit a node that binds its field `name`."""
        node.name = node.name and self._name(node.name)
        return self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _named

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.rest = node.rest and self._name(node.rest)
        return self.generic_visit(node)


class _Explained(_Bare):
    """As `_Bare`, but leaves local names as they are."""

    def _name(self, name: str) -> str:
        return name


def _parameters(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """All parameters of a function, `*args` and `**kwargs` last."""
    arguments = scope.args
    rest = filter(None, (arguments.vararg, arguments.kwarg))
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _names(scope: Scope, keywords: frozenset[str] | None) -> dict[str, str | None]:
    """Every name that a scope binds → None if local, to be numbered; others → the name itself."""
    if isinstance(scope, Comprehension):
        targets = (part for generator in scope.generators for part in ast.walk(generator.target))
        return {part.id: None for part in targets if isinstance(part, ast.Name)}
    fixed: set[str] = set()
    bound: set[str] = set()
    if not isinstance(scope, ast.ClassDef):
        parameters = {parameter.arg for parameter in _parameters(scope)}
        fixed = parameters if keywords is None else parameters & keywords
        bound = parameters - fixed
    outside: set[str] = set()
    for node in _own(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                bound.add(name)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                fixed |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                kept = (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
                bound |= {part.target.id for part in kept}
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                outside |= set(names)
            case _:
                pass
    if isinstance(scope, ast.ClassDef):
        fixed |= bound
    numbered = bound - fixed - outside
    return {**{name: name for name in fixed - outside}, **dict.fromkeys(sorted(numbered))}


def _own(scope: Block) -> Iterator[ast.AST]:
    """The nodes of a scope, without the insides of scopes that it defines."""
    left: list[ast.AST] = [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, Scope):
            left += ast.iter_child_nodes(node)
