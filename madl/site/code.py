"""The code that a page asks about, cut from the repository when the page is rendered.

A piece is a Python function or class by name, or, in any other language, the lines between two
comments that hold `[name]` and `[/name]`.
"""

import ast
import textwrap
from pathlib import Path

from madl.errors import MadlError

LANGUAGES = {".py": "python", ".cu": "cpp", ".cpp": "cpp", ".h": "cpp", ".v": "verilog"}


def cut(root: Path, path: str, name: str) -> tuple[str, int]:
    """The piece's text, and the line at which it starts.

    Raises:
        MadlError: there is no such file, or no such piece in it.
    """
    try:
        text = (root / path).read_text("utf-8")
    except OSError as error:
        raise MadlError(f"no source file {path} to show; give a path from the project") from error
    found = _by_name(text, name) if path.endswith(".py") else None
    found = found or _by_markers(text, name)
    if found is None:
        raise MadlError(f"{path} has no function, class or marker [{name}] to show")
    first, last = found
    lines = text.splitlines()[first - 1 : last]
    return textwrap.dedent("\n".join(lines)), first


def _by_name(text: str, name: str) -> tuple[int, int] | None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return first, node.end_lineno or node.lineno
    return None


def _by_markers(text: str, name: str) -> tuple[int, int] | None:
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if f"[{name}]" in line]
    ends = [i for i, line in enumerate(lines) if f"[/{name}]" in line]
    return (starts[0] + 2, ends[0]) if starts and ends and ends[0] > starts[0] else None


def block(root: Path, path: str, name: str) -> str:
    """The piece as a fenced block, titled with its path."""
    text, first = cut(root, path, name)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f'```{{ .{language} title="{path}, line {first}" }}\n{text}\n```\n'
