"""The student's own words: Markdown files, rendered apart from the page and cleaned by allow-list.

What a note may hold is structure and emphasis: no script, no style, no class or id, no address but
of the web, of mail or of this site, no picture from elsewhere. It reaches the page as one line of
HTML, in which the page's own Markdown sees nothing.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from madl.errors import MadlError
from madl.files import read_text

LARGEST = 2**18  # bytes; a note is to be read
TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "del", "sub", "sup"),
    *("code", "pre", "kbd", "blockquote", "ul", "ol", "li", "a", "img"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
HEADINGS_BELOW = 2  # the page's own heading of its notes


def read(docs: Path, id: str) -> str:
    """The note `docs/notes/<id>.md` as HTML on one line; "" if there is none.

    Raises:
        MadlError: not a regular file of that folder, not UTF-8, or too large.
    """
    path = docs / "notes" / f"{id}.md"
    if not path.exists() and not path.is_symlink():
        return ""
    name = f"docs/notes/{id}.md"
    is_inside = path.resolve() == docs.resolve() / "notes" / path.name
    if not is_inside or not path.is_file():
        raise MadlError(
            f"{name} is not a regular file of docs/notes; put the note itself there, or remove it"
        )
    if path.stat().st_size > LARGEST:
        raise MadlError(f"{name} has more than {LARGEST >> 10} KB; shorten it")
    return sanitized(read_text(path, "save it as UTF-8 text"), name)


def strays(docs: Path, ids: Sequence[str]) -> list[str]:
    """A line for each Markdown file of `docs/notes` that is named after none of these ids."""
    paths = sorted(path for path in (docs / "notes").glob("[!.]*.md") if path.stem not in ids)
    known = ", ".join(f"{id}.md" for id in ids) or "none"
    return [
        f"docs/notes/{path.name} stands on no page; a note is named after its question: {known}"
        for path in paths
    ]


def sanitized(text: str, name: str) -> str:
    """A note's Markdown as HTML of allowed tags and addresses only, on one line.

    Raises:
        MadlError: it is nested so deep that nobody could read it.
    """
    import markdown
    import nh3

    try:
        html = markdown.markdown(text, extensions=["tables", "fenced_code", "sane_lists"])
    except RecursionError as error:
        raise MadlError(f"{name} is nested too deep to be rendered; simplify it") from error
    html = nh3.clean(
        html,
        tags=TAGS,
        clean_content_tags={"script", "style"},
        attributes=ATTRIBUTES,
        attribute_filter=_without_foreign_pictures,
        url_schemes=SCHEMES,
        url_relative=_address,
    )
    html = re.sub(
        r"(</?h)([1-6])(?=>)", lambda h: f"{h[1]}{min(int(h[2]) + HEADINGS_BELOW, 6)}", html
    )
    return f'<div class="note">{html.strip()}</div>'.replace("\n", "&#10;")


def _address(url: str) -> str | None:
    """A relative address with `.html` for `.md`; None, if it leads to another host."""
    if _is_of_another_host(url):
        return None
    return re.sub(r"^([^?#:]+)\.md(?=$|[?#])", r"\1.html", url)


def _without_foreign_pictures(tag: str, attribute: str, value: str) -> str | None:
    """The attribute's value; None for a picture's address elsewhere."""
    is_foreign = ":" in value or _is_of_another_host(value)
    return None if tag == "img" and attribute == "src" and is_foreign else value


def _is_of_another_host(url: str) -> bool:
    return re.match(r"[\\/\s]{2}", url) is not None
