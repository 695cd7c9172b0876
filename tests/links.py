"""What the files of a built site ask for, and whether it is there wherever the site is served."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

INDEX = ("search/search_index.json", "search/search_index.js")  # over HTTP, and from a folder
CONFIG = re.compile(r'id="?__config"?[^>]*>(\{.*?\})</script>', re.DOTALL)


class Page(HTMLParser):
    """The ids of a page, its links, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        text = path.read_text("utf-8")
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)
        for config in CONFIG.findall(text):
            worker = json.loads(config)["search"]
            self.loaded += [worker, *(f"{json.loads(config)['base']}/{one}" for one in INDEX)]

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "base":
            return
        into = self.links if tag == "a" else self.loaded
        is_told = given.get("rel") in ("canonical", "prev", "next")  # and not asked for
        into += [given[n] for n in ("href", "src", "srcset") if given.get(n) and not is_told]


def broken(site: Path) -> list[str]:
    """Addresses that lead nowhere: a file or an id that is not there, from a server's root, or
    loaded from another host."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    asked = {path: (page.links, page.loaded) for path, page in pages.items()}
    for path in site.rglob("*.css"):
        urls = re.findall(r"url\(([^)]+)\)", path.read_text("utf-8"))
        asked[path] = [], [url.strip("\"'") for url in urls]
    dead: list[str] = []
    for path, (links, loaded) in asked.items():
        for address in (*links, *loaded):
            parts = urlsplit(address)
            if parts.scheme == "data" or (parts.scheme and address in links):
                continue
            where = path.parent / unquote(parts.path) if parts.path else path
            target = Path(os.path.normpath(where))
            ids = pages[target].ids if target in pages else {unquote(parts.fragment)}
            is_there = target.is_file() and (not parts.fragment or unquote(parts.fragment) in ids)
            if parts.scheme or parts.netloc or parts.path.startswith("/") or not is_there:
                dead.append(f"{path.relative_to(site)} → {address}")
    return dead
