"""Texts as HTML, and verdicts as labels.

Texts come from records, which other people's machines may have written. So any text is escaped
where it reaches a page: a template escapes every value that it prints, and `html` every value that
it puts into HTML, both by `words`. What is HTML already says so by its type, `Markup`.
"""

import re
from html import escape

from markupsafe import Markup

SHARED = (1200, 630)  # pixels of a page's picture, as Open Graph asks for
PICTURE = "share.png"  # its file's name
IN_WORDS = "Description"  # the text in a PNG file that says what it shows
_BLANK = re.compile(r"[^\S\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]+")
_UNIT = re.compile(r"(?<=\d) (?=(?:[%×→]|[mµ]?s|MB|MiB|GB|KiB|dB|points)(?!\w))|(?<=→) (?=\d)")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]|!~^]")


def words(text: object) -> Markup:
    """The text escaped for HTML and Markdown, on one line; `Markup` stays as it is."""
    if hasattr(text, "__html__"):
        return Markup(text)
    line = _BLANK.sub(" ", str(text))
    escaped = escape(line, quote=False).replace('"', "&quot;")
    return Markup(_MARKDOWN.sub(lambda sign: f"&#{ord(sign[0])};", escaped))


def inline(text: object) -> Markup:
    """The text as `words` escapes it, but stripped, and with `code` for what is in backticks."""
    if hasattr(text, "__html__"):
        return Markup(text)
    parts = re.split(r"`([^`]+)`", str(text).strip())
    return Markup().join(
        html("<code>{}</code>", part) if i % 2 else words(part) for i, part in enumerate(parts)
    )


def html(form: str, *values: object) -> Markup:
    """The HTML `form` with a value in each `{}`, escaped unless it is `Markup`."""
    return Markup(form.format(*map(words, values)))


def chip(kind: str, label: str = "") -> Markup:
    """A verdict or status as a small label; without a style sheet it is still a word."""
    return html('<span class="chip {}">{}</span>', kind.replace(" ", "-"), label or kind)


def unbroken(text: str) -> str:
    """The text with no-break spaces between numbers and their units."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)
