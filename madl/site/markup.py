"""Texts as HTML, and verdicts as labels.

Texts come from records, which other people's machines may have written: `inline` makes HTML of them
in which backticks are the only markup, and where Markdown is read, `literal` keeps it from seeing
any in that HTML.
"""

import html
import re

NOT_RUN = "not run here"
VERDICTS = ("supported", "refuted", "undecided", "not measured")


def inline(text: str) -> str:
    """Text as HTML on one line: escaped, with `code` in backticks."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def literal(made: str) -> str:
    """HTML in whose text Markdown, and its tables and attribute lists, see nothing but text."""
    parts = re.split(r"(<[^>]*>)", made)
    parts[::2] = [re.sub(r"[\\`*_{}\[\]|!~^]", _entity, text) for text in parts[::2]]
    return "".join(parts)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def chip(kind: str, label: str = "") -> str:
    """A verdict, or a status, as a small label; without a style sheet it is still a word."""
    return f'<span class="chip {kind.replace(" ", "-")}">{label or kind}</span>'
