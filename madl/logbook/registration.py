"""The digest by which a record registers the claims that its case was run for.

It covers what is compared and by which test: the hypothesis, the claim's function, the helpers in
experiments that it reaches and the constants that they read; whether the claim is primary; and what
was decided before the data: all constants of the page's `design.py` (rates, trials, budgets,
margins). Helpers are numbered in the order in which they are met, constants stand as values,
functions of the library as names. So names of helpers, parameters, variables and constants, the
place of a helper, and all that `syntax.bare` leaves out do not count.
"""

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, cast

from madl.machine import syntax

Helper = Callable[..., Any]  # a function or class of an experiment


def claim_digest(hypothesis: str, test: Helper, *rank: str, with_design: bool = True) -> str:
    """Twelve hexadecimal digits of a claim: of its hypothesis, its test, the helpers of that, the
    page's design, and its rank among the page's claims.
    """
    keywords = frozenset(
        node.arg for helper in _reached(test) for node in ast.walk(_tree(helper))
        if isinstance(node, ast.keyword) and node.arg
    )  # fmt: skip
    helpers, texts = [test], list[str]()
    for helper in helpers:  # grows by those that it reaches
        tree = syntax.bare(_tree(helper), keywords)
        texts.append(syntax.written(_Resolved(helper, helpers).visit(tree)))
    if with_design:
        texts += _design(test)
    return hashlib.sha256("\0".join((hypothesis, *texts, *rank)).encode()).hexdigest()[:12]


def _design(test: Helper) -> list[str]:
    """The constants of the `design.py` beside the test's page, in order, without their names."""
    design = sys.modules.get(f"{test.__module__.rpartition('.')[0]}.design")
    named = vars(design).items() if design else ()
    return [repr(value) for name, value in named if name[0] != "_" and _is_plain(value)]


def _reached(test: Helper) -> list[Helper]:
    """The test and the helpers of experiments that it uses, directly or through others."""
    helpers = [test]
    for helper in helpers:
        _Resolved(helper, helpers).visit(_tree(helper))
    return helpers


@functools.lru_cache(maxsize=2000)
def _source(helper: Helper) -> str:
    return textwrap.dedent(inspect.getsource(helper))


def _tree(helper: Helper) -> ast.Module:
    """The definition of a function or class, without its own name and decorators."""
    tree = ast.parse(_source(helper))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name, node.decorator_list = "", []
    return tree


class _Resolved(ast.NodeTransformer):
    """Replaces names in a helper: constants by values, other helpers by numbers, library functions
    by full names. Helpers that are met for the first time are appended to `helpers`."""

    def __init__(self, helper: Helper, helpers: list[Helper]) -> None:
        self.module, self.helpers = helper.__module__, helpers
        self.values = dict(vars(sys.modules[helper.__module__]))
        if inspect.isfunction(helper):
            self.values |= {**helper.__globals__, **inspect.getclosurevars(helper).nonlocals}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._resolved(node, self.values[node.id]) if node.id in self.values else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self.values.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(module, ModuleType):
            return self._resolved(node, getattr(module, node.attr))
        return self.generic_visit(node)

    def _resolved(self, node: ast.expr, value: Any) -> ast.expr:
        """The expression to put in the place of `node`, a name for this value."""
        if _is_plain(value):
            return ast.Constant(value)
        if isinstance(value, functools.partial):
            parts = cast("functools.partial[Any]", value)
            arguments = [self._resolved(node, part) for part in parts.args]
            keywords = [ast.keyword(k, self._resolved(node, v)) for k, v in parts.keywords.items()]
            return ast.Call(self._resolved(node, parts.func), arguments, keywords)
        value = inspect.unwrap(value) if callable(value) else value
        if not (inspect.isfunction(value) or inspect.isclass(value)):
            return node
        if value.__module__ != self.module and not value.__module__.startswith("experiments."):
            return ast.Name(value.__qualname__)
        if value not in self.helpers:
            self.helpers.append(value)
        return ast.Name(str(self.helpers.index(value)))


def _is_plain(value: Any) -> bool:
    """Whether a value is made of numbers and texts, which print the same in every process."""
    if isinstance(value, Mapping):
        return all(_is_plain(part) for pair in value.items() for part in pair)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    if is_dataclass(value) and not isinstance(value, type):
        return all(_is_plain(getattr(value, field.name)) for field in fields(value))
    return value is None or isinstance(value, str | int | float)
