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
    """`docs/notes/<id>.md` as HTML on one line; nothing where there is none.

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
    return rendered(read_text(path, "save it as UTF-8 text"), name)


def strays(docs: Path, ids: Sequence[str]) -> list[str]:
    """The Markdown files of `docs/notes` that no page shows, a line each."""
    found = sorted(path for path in (docs / "notes").glob("[!.]*.md") if path.stem not in ids)
    known = ", ".join(f"{id}.md" for id in ids) or "none"
    return [
        f"docs/notes/{path.name} stands on no page; a note is named after its question: {known}"
        for path in found
    ]


def rendered(text: str, name: str) -> str:
    """A note as HTML that stands for itself.

    Raises:
        MadlError: it is nested so deep that nobody could read it.
    """
    import markdown
    import nh3

    try:
        made = markdown.markdown(text, extensions=["tables", "fenced_code", "sane_lists"])
    except RecursionError as error:
        raise MadlError(f"{name} is nested too deep to be rendered; simplify it") from error
    cleaned = nh3.clean(
        made,
        tags=TAGS,
        clean_content_tags={"script", "style"},
        attributes=ATTRIBUTES,
        attribute_filter=_of_this_site,
        url_schemes=SCHEMES,
        url_relative=_address,
    )
    lower = re.sub(
        r"(</?h)([1-6])(?=>)", lambda h: f"{h[1]}{min(int(h[2]) + HEADINGS_BELOW, 6)}", cleaned
    )
    return f'<div class="note">{lower.strip()}</div>'.replace("\n", "&#10;")


def _address(url: str) -> str | None:
    """A page is written as `.md`, and is `.html` in the site; another host is not relative."""
    if re.match(r"[\\/\s]{2}", url):
        return None
    return re.sub(r"^([^?#:]+)\.md(?=$|[?#])", r"\1.html", url)


def _of_this_site(tag: str, attribute: str, value: str) -> str | None:
    if tag == "img" and attribute == "src" and (":" in value or re.match(r"[\\/\s]{2}", value)):
        return None
    return value
