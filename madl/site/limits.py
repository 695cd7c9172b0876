"""How much a page may say, counted in its built HTML: a reader has ten seconds, then two minutes.

Figures, code and folded sections (`<details>`) are left out of a page's counts; folded sections
have a limit of their own. An interval in brackets is part of its number. Tables are limited in rows
and columns, not in words.
"""

import re
from collections.abc import Iterator
from copy import copy

from bs4 import BeautifulSoup, Tag

WORDS, NUMBERS, FOLDED_WORDS = 900, 60, 1500
SENTENCE, PARAGRAPH = 30, 80  # words
ROWS, COLUMNS = 10, 6
PARTS = {  # by class: words, numbers
    "answer": (40, 3),
    "lead": (90, 6),
    "why": (200, NUMBERS),
    "mislead": (80, NUMBERS),
}
CAPTION = 25  # words
_LEFT_OUT = (
    "a.mark, figure, pre, code, details, table, nav, h1, "
    ".facts, .headerlink, .register, .claim, .key"
)
_NO_WORDS = re.compile(r"<(svg|script)\b.*?</\1>", re.DOTALL)  # most of a page's elements
_LONG = ("register", "explorer")  # classes of tables without a limit
_NUMBER = re.compile(r"(?<![\w.])[−+]?\d[\d.,]*(?![\w])")
_WORD = re.compile(r"[^\W\d_][\w’'-]*|\d[\d.,]*")
_INTERVAL = re.compile(r"\s\[[−\d][^\]]*\]")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9“])")


def problems(html: str) -> list[str]:
    """The limits that a page exceeds, a line each: "the page has 950 words; at most 900".

    Only pages with an `.answer` element are checked: the template of experiments' pages writes it.
    """
    article = BeautifulSoup(_NO_WORDS.sub("", html), "html.parser")
    return list(_problems(article)) if article.select_one(".answer") else []


def _problems(article: BeautifulSoup) -> Iterator[str]:
    """The lines of `problems`, for a page that is parsed."""
    for name, (words, numbers) in PARTS.items():
        for part in article.select(f"div.{name}"):
            text = _text(_counting(part))
            yield from _excess(f"its {name}", "words", _WORD, text, words)
            yield from _excess(f"its {name}", "numbers", _NUMBER, text, numbers)
    for caption in article.select("figcaption"):
        text = " ".join(caption.find_all(string=True, recursive=False))
        yield from _excess("a caption", "words", _WORD, text, CAPTION)
    for table in article.select("table"):
        if table.find_parent(["details", "figure"]) or table.find_parent(class_=_LONG):
            continue
        rows = table.select("tbody tr")
        columns = max((len(row.find_all(["td", "th"])) for row in rows), default=0)
        yield from _above("a table", "rows", len(rows), ROWS)
        yield from _above("a table", "columns", columns, COLUMNS)
    folded = " ".join(
        text
        for text in article.find_all(string=True)
        if text.find_parent("details") and not text.find_parent(["table", "pre", "figure"])
    )
    yield from _excess("what is folded", "words", _WORD, folded, FOLDED_WORDS)
    counting = _counting(article)
    text = _text(counting)
    yield from _excess("the page", "words", _WORD, text, WORDS)
    yield from _excess("the page", "numbers outside tables", _NUMBER, text, NUMBERS)
    for tag in counting.select("p, li"):
        if tag.find(["p", "li"]):
            continue
        paragraph = _text(tag)
        yield from _excess(f"a paragraph ({paragraph[:40]}…)", "words", _WORD, paragraph, PARAGRAPH)
        for sentence in _END.split(paragraph):
            name = f"a sentence ({sentence[:40]}…)"
            yield from _excess(name, "words", _WORD, sentence, SENTENCE)


def _excess(name: str, unit: str, pattern: re.Pattern[str], text: str, most: int) -> Iterator[str]:
    """A line, if the pattern is found in the text more than `most` times."""
    return _above(name, unit, len(pattern.findall(text)), most)


def _above(name: str, unit: str, count: int, most: int) -> Iterator[str]:
    """A line "<name> has <count> <unit>; at most <most>", if the count is above that."""
    if count > most:
        yield f"{name} has {count:,} {unit}; at most {most:,}"


def _counting(article: Tag) -> Tag:
    """A copy of the HTML without the elements whose words do not count (`_LEFT_OUT`)."""
    counting = copy(article)
    for left_out in counting.select(_LEFT_OUT):
        left_out.decompose()
    return counting


def _text(tag: Tag) -> str:
    """The tag's text on one line, without intervals."""
    return _INTERVAL.sub("", " ".join(tag.get_text(" ").split()))
