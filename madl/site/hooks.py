"""Hooks of `mkdocs build`: they leave out what no reader loads, and mend what the theme forgets.

Left out are source maps, the search stemmers of other languages, and blank space. A page is drawn
before scripts come, and styled whole as few times as can be: phones wait for that. The search finds
words of pages, but not in cells of tables, which alone say nothing, nor in quoted files. A number
keeps its unit on its line, a sentence its verdict. The page for unknown addresses opens from a
folder, too, and from any address of a server.
"""

import logging
import re
import sys
from collections.abc import Sequence
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from jinja2.utils import htmlsafe_json_dumps
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where mkdocs does not look

from markupsafe import Markup

from madl.site import limits, notebook_hooks
from madl.site.markup import IN_WORDS, PICTURE, SHARED, html, unbroken

log = logging.getLogger("mkdocs.hooks.limits")

UNUSED = (
    "assets/**/*.map",
    "assets/javascripts/lunr/**/*",
    "sitemap.xml*",
)
NO_URL = (  # said by `build.py`, too
    "no SITE_URL: shared addresses have no picture, and 404.html works at the root of a server "
    "alone; SITE_URL=https://… names where the site will be"
)
NO_PICTURES = (
    "shared addresses have no picture: the pages were made without SITE_URL; run "
    "`python cli.py report` with it"
)
FACE = (  # asked for at once, so that no text moves when it comes; not in a folder, without origin
    'if(location.protocol!="file:")document.head.append(Object.assign(document.createElement("link"),'
    '{{rel:"preload",as:"font",crossOrigin:"",href:"{}assets/logbook-serif.woff2"}}))'
)
# What makes browsers style all of a page anew each time that it opens. What the theme's script does
# to the root element is done before there is more; its rule that nothing moves while the palette
# changes is left out; its tag of the colour scheme has a name that means nothing: see `face.css`.
STARTED = 'document.documentElement.className="js js-focus-visible"'
SWITCHING = re.compile(r"(?:\[data-md-color-switching\][^,{}]*,?)+{[^}]*}")
SCHEME = '{name:"color-scheme"}'
# Who comes first, and has chosen no palette, has the system's before the theme's script comes.
PALETTE = 'var palette=__md_get("__palette")'
AUTOMATIC = f'{PALETTE}||{{color:{{media:"(prefers-color-scheme)"}}}}'
SHAPES = ("answer", "promise", "touch", "ledger")  # elements whose pages look otherwise
NOT_FOUND = (
    "<h1>There is no such page</h1><p>It was moved, renamed or never written. All questions and "
    'their answers are on <a href="index.html">home</a>, every verdict is in the '
    '<a href="ledger.html">ledger</a>.</p>'
)


def on_config(config: Any, **_: Any) -> None:
    """Stop a build before pages were rendered; called by MkDocs before it looks for them."""
    if not (Path(config["docs_dir"]) / "index.md").is_file():
        raise PluginError("there are no pages yet; run `python cli.py report` first")
    if not config.get("site_url"):
        log.info(NO_URL)
    elif not any(Path(config["docs_dir"]).rglob(PICTURE)):
        log.info(NO_PICTURES)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """The page's HTML for search and readers; called by MkDocs before the search reads it.

    A page of published evidence that exceeds its limits is a warning, which ends a strict build. If
    nothing of the page is published yet, as of a user's own, it is a line of the log. A published
    page that shows this machine's evidence may exceed them: other models have other verdicts.
    """
    levels = {"published": logging.WARNING, "own": logging.INFO}
    if page and (level := levels.get(page.meta.get("evidence"))):
        for problem in limits.problems(html):
            log.log(level, "%s: %s", page.file.src_path, problem)
    html = re.sub(r"<table(?=[ >])", "<table data-search-exclude", html)
    html = re.sub(r'\s+(?=<a class="mark )', "\N{NO-BREAK SPACE}", html)  # not alone on a line
    cited = r'(<span class="filename">[^<]*, line \d+</span><pre)'  # a file of the repository
    html = re.sub(cited, r"\1 data-search-exclude", html)
    parts = re.split(r"(<(pre|code|script)\b.*?</\2>|<[^>]*>)", html, flags=re.DOTALL)
    parts[0::3] = map(unbroken, parts[0::3])
    parts[2::3] = [""] * len(parts[2::3])
    html = "".join(parts)
    return (page and notebook_hooks.content(html, page)) or html


def on_page_context(context: Any, *, page: Any, nav: Any, **_: Any) -> Any:
    """Put links to all questions above a question's page; called by MkDocs before the theme.

    A question's page is one below `labs/`; it is called by the number that its title begins with.
    """
    if page.file.src_uri.startswith("labs/"):
        page.content = questions([p for p in nav.pages if p.file.src_uri.startswith("labs/")], page)
    return context


def questions(pages: Sequence[Any], shown: Any) -> str:
    """The HTML of a page, below links to all these pages, of which it is one."""
    labs = Markup()
    for lab, own in groupby(pages, lambda page: page.title.partition(".")[0]):
        links = [_link(page, shown, is_numbered=lab.isdigit()) for page in own]
        labs += html("<span>{}</span>", Markup().join(links))
    form = '<nav class="strip" aria-label="Questions">{}</nav>\n{}'
    return html(form, labs, Markup(shown.content))


def _link(page: Any, shown: Any, *, is_numbered: bool) -> Markup:
    """A link from a page that is shown to this one, by its number where it has one."""
    number, _, title = page.title.partition(" ") if is_numbered else (page.title, "", "")
    current = Markup(' aria-current="page"' if page is shown else "")
    form = '<a href="{}" title="{}"{}>{}</a>'
    return html(form, page.file.url_relative_to(shown.file), unescape(title), current, number)


def on_post_page(output: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page's whole HTML with the title, text and picture that are shown where its address is
    shared (Open Graph), and a class for each of `SHAPES` that it holds; called by MkDocs.

    Whoever shows them wants whole addresses, which only a site with a `site_url` has. A browser
    would ask a style with `:has()` about each element that it adds to the page; not so a class.
    """
    description, image = page.meta.get("description"), unescape(page.meta.get("image") or "")
    site, address = config["site_name"], page.canonical_url
    title = site if page.is_homepage else page.title
    graph = {"og:type": "article", "og:site_name": site, "og:url": address}
    if description and image and page.meta.get("evidence"):  # a page is called by its answer
        title, description = str(description).replace("`", ""), title
    graph |= {"og:title": title, "og:description": description}
    if image and address:
        graph |= {"og:image": urljoin(address, image)}
        graph |= dict(zip(("og:image:width", "og:image:height"), SHARED))
        folder = Path(config["docs_dir"], page.file.src_uri).parent
        graph |= {"og:image:alt": _in_words(folder / image), "twitter:card": "summary_large_image"}
    tags = (
        f'<meta property="{name}" content="{escape(unescape(str(text)))}">'
        for name, text in graph.items()
        if text
    )
    shapes = [f"with-{name} " for name in SHAPES if re.search(rf'class="{name}[ "]', output)]
    output = output.replace('<article class="', '<article class="' + "".join(shapes), 1)
    face = _script(FACE.format("../" * page.url.count("/")))
    output = output.replace("<head>", f"<head>{_script(STARTED)}{face}", 1)
    return output.replace("</head>", "".join(tags) + "</head>", 1)


def _in_words(picture: Path) -> str:
    """The description that a PNG file holds; "" if it cannot be read."""
    try:
        with Image.open(picture) as image:
            return str(image.info.get(IN_WORDS, ""))
    except OSError:  # elsewhere, or no picture
        return ""


@event_priority(-200)  # after the offline plugin, which makes its script of the index
def on_post_build(config: Any, **_: Any) -> None:
    """Add notebooks, remove files and mend pages; called by MkDocs when all are written."""
    notebook_hooks.copy(Path(config["docs_dir"]), Path(config["site_dir"]))
    site = Path(config["site_dir"])
    for pattern in UNUSED:
        for path in site.glob(pattern):
            if path.is_file():
                path.unlink()
    lost = site / "404.html"
    for path in site.rglob("*.html"):
        page = _without_space(_with_labels(path.read_text("utf-8")))
        page = page.replace(PALETTE, AUTOMATIC, 1)
        path.write_text(page if path == lost else _drawn_first(page), "utf-8")
    for path in site.glob("assets/stylesheets/palette.*.css"):
        path.write_text(SWITCHING.sub("", path.read_text("utf-8")), "utf-8")
    for path in site.glob("assets/javascripts/bundle.*.js"):
        path.write_text(path.read_text("utf-8").replace(SCHEME, '{name:"the-scheme"}'), "utf-8")
    base = urlsplit(config["site_url"] or "/").path
    lost.write_text(not_found(lost.read_text("utf-8"), base), "utf-8")


def not_found(page: str, base: str) -> str:
    """The theme's page for an unknown address, with links that work from any address and a folder.

    In `page`, links begin at `base`, the path of the site's root. They become relative to that
    root, as a server sends this page for any address below it; opened from a folder, they begin
    there. What the page loads is written by scripts, since a browser that reads ahead would ask for
    it before it knows where links begin.
    """
    page = re.sub(rf'((?:href|src)="|"search": "){re.escape(base)}', r"\1", page)
    page = re.sub(r'"base": "[^"]*"', '"base": "."', page)
    page = re.sub(r'new URL\("[^"]*",location\)', 'new URL(".",document.baseURI)', page)
    loads = r'<(?:link|img)\b[^>]*>|<script[^>]* src="[^"]*"[^>]*></script>'
    page = re.sub(
        loads, lambda tag: _script(f"document.write({htmlsafe_json_dumps(tag[0])})"), page
    )
    begins = _script("""if(location.protocol=="file:")document.write('<base href="./">')""")
    page = page.replace("<head>", f'<head>{begins}<base href="{escape(base)}">', 1)
    begins = _script("""if(location.protocol!="file:"){let its=document.getElementById("__config");
        its.textContent=JSON.stringify({...JSON.parse(its.textContent),base:document.baseURI})}""")
    at = page.find("</script>", page.find('id="__config"')) + len("</script>")
    return (page[:at] + begins + page[at:]).replace("<h1>404 - Not found</h1>", NOT_FOUND)


def _script(text: str) -> str:
    return f"<script>{text}</script>"


def _with_labels(page: str) -> str:
    """The page with its `aria-label`s mended: the theme gives none to its search box, and escapes
    those that repeat a title twice.
    """
    twice = re.compile(r"&amp;(?=#?\w+;)")  # one level less: what is left is escaped once
    page = re.sub(r'(?<=aria-label=")[^"]*', lambda label: twice.sub("&", label[0]), page)
    return page.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def _drawn_first(page: str) -> str:
    """The page with the scripts that it loads asked for once it is drawn, in their order.

    The theme's own waits for an event of a page that has been read, which then is over.
    """
    loaded = re.compile(r'<script src="([^"]*)"(?: defer)?></script>\n?')
    if not (sources := [unescape(source) for source in loaded.findall(page)]):
        return page
    ask = f"""requestAnimationFrame(()=>setTimeout(()=>{{
for(const src of {htmlsafe_json_dumps(sources)}){{
const script=Object.assign(document.createElement("script"),{{src,async:false}});
if(src.includes("bundle"))script.onload=()=>document.dispatchEvent(new Event("DOMContentLoaded"));
document.body.append(script)}}}}))"""
    return loaded.sub("", page).replace("</body>", f"{_script(ask)}</body>")


def _without_space(page: str) -> str:
    """The page without indents and blank lines, but where they are shown, or a script's.

    Two characters are left of them, as axe takes a single one between words for none.
    """
    kept = r"(<(pre|script|style|textarea)\b.*?</\2>)|\s*\n\s*"
    return re.sub(kept, lambda match: match[1] or "\n ", page, flags=re.DOTALL)
