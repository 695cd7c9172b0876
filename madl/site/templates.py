"""Loads and renders the templates of pages; what is wrong in one is an error of one line.

A template prints the texts that calls return, which are Markdown or HTML, as they are, and escapes
all other values.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import read_text, why
from madl.running.project import Project
from madl.site import prose
from madl.site.markup import words

_MISTAKES = (  # what a template's own expressions can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(TypeError, ValueError, RecursionError),
)


@functools.cache
def _environment(*folders: Path) -> jinja2.Environment:
    """Jinja's environment of these folders, in which a template is compiled once."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        extensions=[prose.Claims],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=words,
    )


def load(project: Project, name: str, mend: str) -> jinja2.Template:
    """The template of this name; `mend` ends the error where there is none: what to do.

    Raises:
        MadlError: there is none, or it cannot be read.
    """
    try:
        return _environment(project.templates, project.experiments).get_template(name)
    except jinja2.TemplateNotFound as error:
        where = "experiments" if "/" in name else "templates"
        raise MadlError(f"there is no {where}/{name}; {mend}") from error
    except jinja2.TemplateSyntaxError as error:
        raise MadlError(f"template {error.name}, line {error.lineno}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise MadlError(f"template {name}: {why(error)}; save it as UTF-8 text") from error


def render(template: jinja2.Template, names: Mapping[str, Any]) -> str:
    """Render a template; `names` are the functions and values that it may use.

    Raises:
        MadlError: the template is wrong, or a function that it calls fails.
    """
    try:
        return _render(template.render, f"template {template.name}", names)
    except MadlError as error:
        named = str(error) if str(template.name) in str(error) else f"{template.name}: {error}"
        raise MadlError(named) from error


def render_line(project: Project, text: str, where: str, names: Mapping[str, Any]) -> str:
    """Render a text that is no file, as a template, on one line; `where` names it in an error."""
    environment = _environment(project.templates, project.experiments)
    return _line(lambda known: environment.from_string(text).render(known), where, names)


def arguments_of(function: str, project: Project, name: str) -> list[str]:
    """The first arguments, where they are texts, of all calls of a function in a template."""
    path = project.experiments / name
    environment = _environment(project.templates, project.experiments)
    called = environment.parse(read_text(path, "save it as text")).find_all(nodes.Call)
    return [
        call.args[0].value
        for call in called
        if isinstance(call.node, nodes.Name) and call.node.name == function
        if call.args and isinstance(call.args[0], nodes.Const)
    ]


def render_block(project: Project, name: str, block: str, names: Mapping[str, Any]) -> str:
    """Render one block of a template, on one line."""
    template = load(project, name, "write one")
    if (render := template.blocks.get(block)) is None:
        raise MadlError(f"template {name} has no block {block!r}; write one")
    return _line(
        lambda known: "".join(render(template.new_context(known))), f"template {name}", names
    )


def _line(render: Callable[[dict[str, Any]], str], where: str, names: Mapping[str, Any]) -> str:
    """Call `_render`, and put its text on one line."""
    return " ".join(_render(render, where, names).split())


def _render(render: Callable[[dict[str, Any]], str], where: str, names: Mapping[str, Any]) -> str:
    """Call `render` with the names; a mistake in the template becomes a MadlError."""
    try:
        return render({name: _as_markup(n) if callable(n) else n for name, n in names.items()})
    except jinja2.UndefinedError as error:
        raise MadlError(f"{where}: {error}; {_instead(error, names)}") from error
    except _MISTAKES as error:
        calculates = (
            "; compute it in page.py, page.numbers(…)" if isinstance(error, TypeError) else ""
        )
        raise MadlError(f"{where}: {' '.join(str(error).split())}{calculates}") from error


def _instead(error: jinja2.UndefinedError, names: Mapping[str, Any]) -> str:
    """A hint: the known name that is closest to the undefined one, and where names come from."""
    unknown = str(error).split("'")[1::2] or [""]
    (close,) = difflib.get_close_matches(unknown[0], names, n=1) or [""]
    return (
        f"{f'did you mean {close}? ' if close else ''}correct the name, or declare a number of a "
        "page in its page.py, page.numbers(…)"
    )


def _as_markup(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose texts become `Markup`, which a template does not escape."""

    @functools.wraps(function)
    def unescaped(*arguments: Any, **more: Any) -> Any:
        result = function(*arguments, **more)
        return Markup(result) if isinstance(result, str) else result

    return unescaped
