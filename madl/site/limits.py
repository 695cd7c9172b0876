"""How much a page may say, counted in its built HTML: a reader has ten seconds, then two minutes.

Figures, code and what is folded are left out of the page's own counts; what is folded has its own.
Tables count as tables: rows and columns, not words.
"""

import re
from collections.abc import Iterator
from copy import copy

from bs4 import BeautifulSoup, Tag

WORDS, NUMBERS, FOLDED_WORDS = 750, 60, 1500
SENTENCE, PARAGRAPH = 30, 70  # words
ROWS, COLUMNS = 8, 6
PARTS = {  # by class: words, numbers
    "answer": (20, 2),
    "lead": (60, 5),
    "why": (200, NUMBERS),
    "mislead": (80, NUMBERS),
}
CAPTION = 25  # words
_LEFT_OUT = (
    "a.mark, figure, pre, code, details, table, .facts, .headerlink, h1, .question, .register, nav"
)
_NO_WORDS = re.compile(r"<(svg|script)\b.*?</\1>", re.DOTALL)  # most of a page's elements
_LONG = ("register", "explorer")  # tables that are not a page's own
_NUMBER = re.compile(r"(?<![\w.])[−+]?\d[\d.,]*(?![\w])")
_WORD = re.compile(r"[^\W\d_][\w’'-]*|\d[\d.,]*")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9“])")


def problems(html: str) -> list[str]:
    """What a page of the new form exceeds, a line each; none of a page in another form."""
    article = BeautifulSoup(_NO_WORDS.sub("", html), "html.parser")
    if article.select_one(".answer") is None:
        return []
    return list(_problems(article))


def _problems(article: BeautifulSoup) -> Iterator[str]:
    for name, (words, numbers) in PARTS.items():
        for part in article.select(f"div.{name}"):
            said = _said(_kept(part))
            yield from _more(f"its {name}", "words", len(_WORD.findall(said)), words)
            yield from _more(f"its {name}", "numbers", len(_NUMBER.findall(said)), numbers)
    for caption in article.select("figcaption"):
        said = " ".join(part for part in caption.find_all(string=True, recursive=False))
        yield from _more("a caption", "words", len(_WORD.findall(said)), CAPTION)
    for table in article.select("table"):
        if table.find_parent(["details", "figure"]) or table.find_parent(class_=_LONG):
            continue
        rows = table.select("tbody tr")
        columns = max((len(row.find_all(["td", "th"])) for row in rows), default=0)
        yield from _more("a table", "rows", len(rows), ROWS)
        yield from _more("a table", "columns", columns, COLUMNS)
    folded = " ".join(
        text
        for text in article.find_all(string=True)
        if text.find_parent("details") and not text.find_parent(["table", "pre", "figure"])
    )
    yield from _more("what is folded", "words", len(_WORD.findall(folded)), FOLDED_WORDS)
    kept = _kept(article)
    said = _said(kept)
    yield from _more("the page", "words", len(_WORD.findall(said)), WORDS)
    yield from _more("the page", "numbers outside tables", len(_NUMBER.findall(said)), NUMBERS)
    for paragraph in _paragraphs(kept):
        words = len(_WORD.findall(paragraph))
        yield from _more(f"a paragraph ({paragraph[:40]}…)", "words", words, PARAGRAPH)
        for sentence in _END.split(paragraph):
            words = len(_WORD.findall(sentence))
            yield from _more(f"a sentence ({sentence[:40]}…)", "words", words, SENTENCE)


def _more(what: str, of: str, found: int, most: int) -> Iterator[str]:
    if found > most:
        yield f"{what} has {found:,} {of}; at most {most:,}"


def _kept(article: Tag) -> Tag:
    kept = copy(article)
    for left_out in kept.select(_LEFT_OUT):
        left_out.decompose()
    return kept


def _said(kept: Tag) -> str:
    return " ".join(kept.get_text(" ").split())


def _paragraphs(kept: Tag) -> list[str]:
    return [_said(one) for one in kept.select("p, li") if not one.find(["p", "li"])]
