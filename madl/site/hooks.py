"""What `mkdocs build` leaves out of the site: files that no reader ever loads.

Source maps, the search stemmers of other languages, and the second copy of the search index: the
offline plugin writes it as a script, which pages load wherever they are opened from. The search
knows words, not the cells of tables, which lead nowhere alone, nor the code of files, which pages
only cite. A number keeps its unit on its line. The page of what is not there opens from a folder,
too, and from any address of a server.
"""

import json
import logging
import re
import sys
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where mkdocs does not look

from madl.site import limits, notebook_hooks
from madl.site.markup import IN_WORDS, SHARED, unbroken

log = logging.getLogger("mkdocs.hooks.limits")

UNUSED = (
    "assets/**/*.map",
    "assets/javascripts/lunr/**/*",
    "sitemap.xml*",
)
NO_URL = (  # `cli.py` says it, too
    "no SITE_URL: shared addresses have no picture, and 404.html works at the root of a server "
    "alone; SITE_URL=https://… names where the site will be"
)
NOT_FOUND = (
    "<h1>There is no such page</h1><p>It was moved, renamed or never written. All questions and "
    'their answers are on <a href="index.html">home</a>, every verdict is in the '
    '<a href="ledger.html">ledger</a>.</p>'
)


def on_config(config: Any, **_: Any) -> None:
    """Called by MkDocs before it looks for pages, which may not have been made yet."""
    if not (Path(config["docs_dir"]) / "index.md").is_file():
        raise PluginError("there are no pages yet; run `python cli.py report` first")
    if not config.get("site_url"):
        log.info(NO_URL)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs with a page's HTML, before the search reads it.

    A page of published evidence that says more than it may is a warning, which ends a strict build;
    of a page that nothing is published of yet, a user's own, it is told. One of ours may say more
    where another's model and data have other verdicts.
    """
    told = {"published": logging.WARNING, "own": logging.INFO}
    if page and (level := told.get(page.meta.get("evidence"))):
        for problem in limits.problems(html):
            log.log(level, "%s: %s", page.file.src_path, problem)
    html = re.sub(r"<table(?=[ >])", "<table data-search-exclude", html)
    cut = r'(<span class="filename">[^<]*, line \d+</span><pre)'  # from a file of the repository
    html = re.sub(cut, r"\1 data-search-exclude", html)
    parts = re.split(r"(<(pre|code|script)\b.*?</\2>|<[^>]*>)", html, flags=re.DOTALL)
    parts[0::3] = map(unbroken, parts[0::3])
    parts[2::3] = [""] * len(parts[2::3])
    made = "".join(parts)
    return (page and notebook_hooks.content(made, page)) or made


def on_post_page(output: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs with a page's whole HTML: what is shown where its address is shared.

    Whoever shows it wants whole addresses, which only a site with a `site_url` has; the theme says
    which is the page's own, `canonical`.
    """
    title = config["site_name"] if page.is_homepage else page.title
    description, image = page.meta.get("description"), unescape(page.meta.get("image") or "")
    told = {"og:type": "article", "og:site_name": config["site_name"], "og:url": page.canonical_url}
    if description and image and page.meta.get("evidence"):  # a page is called by its answer
        title, description = str(description).replace("`", ""), title
    told |= {"og:title": title, "og:description": description}
    if image and page.canonical_url:
        told |= {"og:image": urljoin(page.canonical_url, image)}
        told |= dict(zip(("og:image:width", "og:image:height"), SHARED))
        folder = Path(config["docs_dir"], page.file.src_uri).parent
        told |= {"og:image:alt": _in_words(folder / image), "twitter:card": "summary_large_image"}
    tags = (
        f'<meta property="{name}" content="{escape(unescape(str(text)))}">'
        for name, text in told.items()
        if text
    )
    return output.replace("</head>", "".join(tags) + "</head>", 1)


def _in_words(picture: Path) -> str:
    """What a picture shows, as its own file says."""
    try:
        with Image.open(picture) as image:
            return str(image.info.get(IN_WORDS, ""))
    except OSError:  # elsewhere, or no picture
        return ""


@event_priority(-200)  # after the offline plugin, which makes its script of the index
def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs when all files are written."""
    notebook_hooks.copy(Path(config["docs_dir"]), Path(config["site_dir"]))
    site = Path(config["site_dir"])
    for pattern in UNUSED:
        for path in site.glob(pattern):
            if path.is_file():
                path.unlink()
    for path in site.rglob("*.html"):
        path.write_text(_named(path.read_text("utf-8")), "utf-8")
    lost = site / "404.html"
    base = urlsplit(config["site_url"] or "/").path
    lost.write_text(not_found(lost.read_text("utf-8"), base), "utf-8")


def not_found(page: str, base: str) -> str:
    """The theme's page of what is not there, whose links begin at the server's root, `base`.

    They become relative to that root, as a server sends this page for any address below it; opened
    from a folder, they begin there. What the page loads is written by scripts, since a browser that
    reads ahead would ask for it before it knows where links begin.
    """
    page = re.sub(rf'((?:href|src)="|"search": "){re.escape(base)}', r"\1", page)
    page = re.sub(r'"base": "[^"]*"', '"base": "."', page)
    page = re.sub(r'new URL\("[^"]*",location\)', 'new URL(".",document.baseURI)', page)
    loads = r'<link\b[^>]*>|<script[^>]* src="[^"]*"[^>]*></script>'
    page = re.sub(loads, lambda tag: _script(f"document.write({_quoted(tag[0])})"), page)
    begins = _script("""if(location.protocol=="file:")document.write('<base href="./">')""")
    page = page.replace("<head>", f'<head>{begins}<base href="{escape(base)}">', 1)
    begins = _script("""if(location.protocol!="file:"){let its=document.getElementById("__config");
        its.textContent=JSON.stringify({...JSON.parse(its.textContent),base:document.baseURI})}""")
    at = page.find("</script>", page.find('id="__config"')) + len("</script>")
    return (page[:at] + begins + page[at:]).replace("<h1>404 - Not found</h1>", NOT_FOUND)


def _quoted(text: str) -> str:
    """As a string of a script, which must not seem to end there."""
    return json.dumps(text).replace("</", r"<\/")


def _script(text: str) -> str:
    return f"<script>{text}</script>"


def _named(page: str) -> str:
    """Names for readers of screens: the theme forgets that of its search box, and escapes twice
    those that repeat a title."""
    twice = re.compile(r"&amp;(?=#?\w+;)")  # one level less: what is left is escaped once
    page = re.sub(r'(?<=aria-label=")[^"]*', lambda label: twice.sub("&", label[0]), page)
    return page.replace('role="dialog">', 'role="dialog" aria-label="Search">')
