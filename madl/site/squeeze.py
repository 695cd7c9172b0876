"""Pages and style sheets made small, without a word or a rule that a reader would miss.

Not handled: scripts, which the theme has minified already.
"""

import re
from collections.abc import Iterator

AS_WRITTEN = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL | re.IGNORECASE)
BLOCKS = (
    "article aside body dd details div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 head "
    "header html li link main meta nav ol p section summary table tbody td th thead title tr ul"
).replace(" ", "|")
AROUND = re.compile(rf"\s*(</?(?:{BLOCKS})\b(?:\"[^\"]*\"|[^<>\"])*>)\s*", re.ASCII)
TAG = re.compile(r"<[a-z](?:\"[^\"]*\"|[^<>\"])*>")
UNIT = re.compile(r"(\d) (%|×|ms|µs|MB|MiB|GB|KiB|dB)(?![\w])")  # stays on the line of its number
NAMESPACE = re.compile(r" xmlns(?::xlink)?=\"[^\"]*\"")  # which HTML takes for granted
QUOTED = re.compile(r" (?!href|src)([\w:-]+)=\"([\w.:#%,();+-]+)\"(?=[ >])")


def page(html: str) -> str:
    """A page without blanks that are not shown, and without what any browser takes for granted:
    text to the left, names and signs in code in the colour of text, quotes around a word. Nor what
    only the making of the search index asks for."""
    html = re.sub(r' data-search-exclude(?:="")?(?=[ >])', "", html)
    html = re.sub(r'(<t[dh]) style="text-align: left;"', r"\1", html)
    html = re.sub(r'(<t[dh]) style="text-align: right;"', r'\1 class="r"', html)
    html = re.sub(r'<span class="[nopw]">([^<]*)</span>', r"\1", html)
    html = re.sub(r'<span class="(\w+)">', r"<span class=\1>", html)  # in code, too
    parts = AS_WRITTEN.split(html)  # text, kept, its tag, text, …
    parts[0::3] = [_text(text) for text in parts[0::3]]
    parts[2::3] = [""] * len(parts[2::3])
    return "".join(parts)


def _text(html: str) -> str:
    html = AROUND.sub(r"\1", re.sub(r"\s+", " ", html, flags=re.ASCII))
    html = UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", html)
    html = re.sub(r"</(?:li|td|th|tr|dd|dt|tbody)>", "", html)  # what follows ends them
    return TAG.sub(lambda tag: QUOTED.sub(r" \1=\2", NAMESPACE.sub("", tag[0])), html)


SETTING = r"(dir|data-md-color-\w+)=\"?([\w-]+)"  # of a whole page


def words_of(text: str) -> set[str]:
    """What a page or a script may have of what style sheets ask for: words, and settings."""
    settings = (f"{name}={value}" for name, value in re.findall(SETTING, text))
    return {*re.findall(r"[\w-]+", text), *settings}


def sheet(css: str, words: set[str]) -> str:
    """A style sheet without the rules for classes that are none of the words, and for settings
    that are none of them, such as `dir=rtl`; and without the pictures that no rule is left to
    show."""
    kept = "".join(_rules(css, words))
    pictures = r"(--[\w-]+):url\((\"|')?data:.*?\2\);?"
    unused = [m for m in re.finditer(pictures, kept) if f"var({m[1]})" not in kept]
    for found in reversed(unused):
        kept = kept[: found.start()] + kept[found.end() :]
    return kept


def _rules(css: str, words: set[str]) -> Iterator[str]:
    for head, body in _blocks(css):
        if head.startswith(("@media", "@supports")):
            if inside := "".join(_rules(body, words)):
                yield f"{head}{{{inside}}}"
        elif head.startswith("@"):
            yield f"{head}{{{body}}}"
        elif selectors := [one for one in _selectors(head) if _is_used(one, words)]:
            yield f"{','.join(selectors)}{{{body}}}"


def _is_used(selector: str, words: set[str]) -> bool:
    """Whether every class and setting that it asks for is to be found; one that must be absent
    need not be."""
    asked = re.sub(r":(?:not|is|where)\([^()]*\)", "", selector)
    settings = [f"{name}={value}" for name, value in re.findall(SETTING, asked)]
    classes = re.findall(r"\.([\w-]+)", re.sub(r"\[[^]]*\]", "", asked))
    return all(name in words for name in [*classes, *settings])


def _selectors(head: str) -> list[str]:
    """The selectors of a rule: parted by commas, but not by those in brackets."""
    return re.findall(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^]]*\]|[^,])+", head)


def _blocks(css: str) -> Iterator[tuple[str, str]]:
    """What stands before each pair of braces, and in it."""
    token = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[{}]")
    depth = start = opened = 0
    for found in token.finditer(css):
        if found[0] == "{":
            depth += 1
            opened = found.start() if depth == 1 else opened
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                yield css[start:opened].rpartition(";")[2].strip(), css[opened + 1 : found.start()]
                start = found.end()
