"""Templates of pages: found in their folders, rendered with one line for what is wrong in them.

A template prints what a call returns, which is Markdown or HTML, and values, which are words
whatever stands in them.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import why
from madl.running.project import Project
from madl.site import prose
from madl.site.markup import words


def _environment(project: Project) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([project.templates, project.experiments]),
        undefined=jinja2.StrictUndefined,
        extensions=[prose.Claims],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=words,
    )


_MISTAKES = (  # what a template's own expressions can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(TypeError, ValueError, RecursionError),
)


def load(project: Project, name: str, mend: str) -> jinja2.Template:
    """Raises: MadlError: there is none, or it cannot be read; `mend` says what to do without."""
    try:
        return _environment(project).get_template(name)
    except jinja2.TemplateNotFound as error:
        where = "experiments" if "/" in name else "templates"
        raise MadlError(f"there is no {where}/{name}; {mend}") from error
    except jinja2.TemplateSyntaxError as error:
        raise MadlError(f"template {error.name}, line {error.lineno}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise MadlError(f"template {name}: {why(error)}; save it as UTF-8 text") from error


def render(template: jinja2.Template, globals_: Mapping[str, Any]) -> str:
    try:
        return _rendered(template.render, f"template {template.name}", globals_)
    except MadlError as error:
        named = str(error) if str(template.name) in str(error) else f"{template.name}: {error}"
        raise MadlError(named) from error


def line(project: Project, text: str, where: str, globals_: Mapping[str, Any]) -> str:
    """A text of its own that names what a template may, on one line.

    Raises:
        MadlError: it cannot be read, or names what there is not; `where` says whose text it is.
    """
    made = _rendered(
        lambda known: _environment(project).from_string(text).render(known), where, globals_
    )
    return " ".join(made.split())


def _rendered(
    make: Callable[[dict[str, Any]], str], where: str, globals_: Mapping[str, Any]
) -> str:
    try:
        return make(_named(globals_))
    except jinja2.UndefinedError as error:
        raise MadlError(f"{where}: {error}; {_instead(error, globals_)}") from error
    except _MISTAKES as error:
        calculates = (
            "; compute it in page.py, page.numbers(…)" if isinstance(error, TypeError) else ""
        )
        raise MadlError(f"{where}: {' '.join(str(error).split())}{calculates}") from error


def _instead(error: jinja2.UndefinedError, globals_: Mapping[str, Any]) -> str:
    """What to write in the place of a name that there is not."""
    unknown = str(error).split("'")[1::2] or [""]
    (close,) = difflib.get_close_matches(unknown[0], globals_, n=1) or [""]
    return (
        f"{f'did you mean {close}? ' if close else ''}correct the name, or declare a number of a "
        "page in its page.py, page.numbers(…)"
    )


def _named(globals_: Mapping[str, Any]) -> dict[str, Any]:
    """What a template knows by name; the text that a call returns is not escaped."""
    return {name: _made(one) if callable(one) else one for name, one in globals_.items()}


def _made(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def made(*arguments: Any, **more: Any) -> Any:
        found = call(*arguments, **more)
        return Markup(found) if isinstance(found, str) else found

    return made


def block(project: Project, name: str, block: str, globals_: Mapping[str, Any]) -> str:
    """One block of a template, on one line."""
    template = load(project, name, "write one")
    if block not in template.blocks:
        raise MadlError(f"template {name} has no block {block!r}; write one")
    made = _rendered(
        lambda known: "".join(template.blocks[block](template.new_context(known))),
        f"template {name}",
        globals_,
    )
    return " ".join(made.split())
