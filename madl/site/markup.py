"""Texts as HTML, and verdicts as labels.

Texts come from records, which other people's machines may have written. So any text is words where
it reaches a page: a template escapes every value that it prints, and `html` every value that it
puts into HTML, both by `words`. What is HTML already says so by its type, `Markup`.
"""

import re
from html import escape

from markupsafe import Markup

NOT_RUN = "not run here"
SHARED = (1200, 630)  # pixels of a page's picture, as Open Graph asks for
IN_WORDS = "Description"  # in its file, as PNG calls what it shows
_BLANK = re.compile(r"[^\S\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]+")
_UNIT = re.compile(r"(?<=\d) (?=(?:[%×→]|[mµ]?s|MB|MiB|GB|KiB|dB|points)(?!\w))|(?<=→) (?=\d)")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]|!~^]")


def words(text: object) -> Markup:
    """Any text on one line, in which HTML and Markdown see nothing but text; `Markup` as it is."""
    if hasattr(text, "__html__"):
        return Markup(text)
    line = _BLANK.sub(" ", str(text))
    escaped = escape(line, quote=False).replace('"', "&quot;")
    return Markup(_MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", escaped))


def inline(text: object) -> Markup:
    """The same, with `code` in backticks, and nothing around it."""
    if hasattr(text, "__html__"):
        return Markup(text)
    parts = re.split(r"`([^`]+)`", str(text).strip())
    made = [html("<code>{}</code>", one) if i % 2 else words(one) for i, one in enumerate(parts)]
    return Markup().join(made)


def html(form: str, *values: object) -> Markup:
    """HTML with each value in its place, `{}`: words, unless it is HTML itself."""
    return Markup(form.format(*map(words, values)))


def chip(kind: str, label: str = "") -> Markup:
    """A verdict, or a status, as a small label; without a style sheet it is still a word."""
    return html('<span class="chip {}">{}</span>', kind.replace(" ", "-"), label or kind)


def unbroken(text: str) -> str:
    """The text, in which a number keeps its unit on its line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)
