"""The code that a page asks about, cut from the repository when the page is rendered.

A piece is a Python function or class by name, or, in any other language, the lines between two
comments that hold `[name]` and `[/name]`.
"""

import ast
import textwrap
from pathlib import Path

from madl.errors import MadlError

LANGUAGES = {".py": "python", ".cu": "cpp", ".cpp": "cpp", ".h": "cpp", ".v": "verilog"}


def block(root: Path, path: str, name: str, *marks: str) -> str:
    """The piece of this name as a fenced block of Markdown, titled with its path and first line.

    Docstrings are left out: the page says in words what the code does. A line that holds one of the
    `marks` stands out.

    Raises:
        MadlError: there is no such file, no such piece in it, or no line with a mark.
    """
    try:
        text = (root / path).read_text("utf-8")
    except OSError as error:
        raise MadlError(f"no source file {path} to show; give a path from the project") from error
    ends = (_by_name(text, name) if path.endswith(".py") else None) or _by_markers(text, name)
    if ends is None:
        raise MadlError(f"{path} has no function, class or marker [{name}] to show")
    first, last = ends
    hidden = _docstrings(text) if path.endswith(".py") else set[int]()
    lines = enumerate(text.splitlines()[first - 1 : last], first)
    shown = [line for number, line in lines if number not in hidden]
    marked = [i for i, line in enumerate(shown, 1) if any(mark in line for mark in marks)]
    if lost := [mark for mark in marks if not any(mark in line for line in shown)]:
        raise MadlError(f"{path}, {name}: no line holds {lost[0]!r}, which is to stand out")
    language, piece = LANGUAGES.get(Path(path).suffix, "text"), textwrap.dedent("\n".join(shown))
    numbers = f' hl_lines="{" ".join(map(str, marked))}"' if marked else ""
    return f'```{{ .{language} title="{path}, line {first}"{numbers} }}\n{piece}\n```\n'


def _by_name(text: str, name: str) -> tuple[int, int] | None:
    """The numbers of the first and last line of a function or class; None if there is none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return first, node.end_lineno or node.lineno
    return None


def _docstrings(text: str) -> set[int]:
    """The numbers of the lines of all docstrings, and of a blank line below one."""
    lines, hidden = text.splitlines(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            own = node.body[0]
            last = (own.end_lineno or own.lineno) + 1
            is_blank = last <= len(lines) and not lines[last - 1].strip()
            hidden |= set(range(own.lineno, last + is_blank))
    return hidden


def _by_markers(text: str, name: str) -> tuple[int, int] | None:
    """The numbers of the first and last line between two markers; None without them."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if f"[{name}]" in line]
    ends = [i for i, line in enumerate(lines) if f"[/{name}]" in line]
    return (starts[0] + 2, ends[0]) if starts and ends and ends[0] > starts[0] else None
