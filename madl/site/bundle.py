"""The built site as one file to hand on: a zip that opens from a folder, or a page to print.

The site is built anew each time, from the pages that `report` rendered, so neither is ever older
than they are; the folder `site/` is left alone.

Invariants: the same site gives the same bytes; a file that was there is replaced by a whole one.
"""

import html
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from madl.errors import MadlError
from madl.files import write_atomically
from madl.running.project import Project

FOLDER = "logbook"  # in the zip
NO_TIME = (1980, 1, 1, 0, 0, 0)
LAST_WORDS = 300  # characters of what mkdocs says


def write_zip(project: Project, target: Path) -> int:
    """The site in one zip file, which opens from a folder, search and all; returns its bytes.

    Raises:
        MadlError: mkdocs is not installed or fails, or no page was rendered yet.
    """
    _check_target(target)
    with built(project) as site, tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
            for path in sorted(site.rglob("*")):
                if path.is_file():
                    name = f"{FOLDER}/{path.relative_to(site).as_posix()}"
                    info = zipfile.ZipInfo(name, NO_TIME)
                    info.external_attr = 0o644 << 16
                    bundle.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
        os.replace(made, target)
    return target.stat().st_size


def write_print(project: Project, target: Path) -> int:
    """Every page in one HTML file that needs no other, for a browser to print; returns its bytes.

    Raises:
        MadlError: as `write_zip`.
    """
    _check_target(target)
    with built(project) as site:
        write_atomically(target, one_page(site))
    return target.stat().st_size


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise MadlError(f"there is no folder {target.parent} for {target.name}; make it first")
    if target.is_dir():
        raise MadlError(f"{target} is a folder; name a file in it")


@contextmanager
def built(project: Project) -> Generator[Path]:
    """The site, built into a folder that goes away."""
    if importlib.util.find_spec("mkdocs") is None:
        raise MadlError(
            "this Python has no mkdocs, which builds the site; use the environment of "
            "`make logbook`, or `pip install -r requirements-report.txt`"
        )
    if not (project.docs / "index.md").is_file():
        raise MadlError("no page was rendered yet; first run: python cli.py report")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--quiet",
            "--no-strict",
            "--site-dir",
            folder,
        ]
        done = subprocess.run(
            command,
            cwd=project.root,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(project.root)},
            check=False,
        )
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-LAST_WORDS:]
            raise MadlError(f"mkdocs could not build the site: {said or 'it says nothing'}")
        yield Path(folder)


# ---- one page to print --------------------------------------------------------------------------


def one_page(site: Path) -> str:
    """The articles of all pages, in the order of the site's own "next", as one page."""
    names = list(_in_order(site))
    chapters = [_chapter(site, name, set(names)) for name in names]
    assets = site / "assets"
    sheets = [*sorted(assets.glob("stylesheets/*.css")), *sorted(assets.glob("*.css"))]
    style = "\n".join(path.read_text("utf-8") for path in sheets)
    title = _found(r"<title>(.*?)</title>", (site / "index.html").read_text("utf-8"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>'
        f"<style>{style}</style></head>"
        '<body dir="ltr" class="whole" data-md-color-scheme="default"'
        ' data-md-color-primary="indigo">'
        f'<main class="md-grid md-typeset">{"".join(chapters)}</main></body></html>\n'
    )


def _in_order(site: Path) -> Iterator[str]:
    """Pages from the first on, each once, as their links to the next one say."""
    name, seen = "index.html", set[str]()
    while name and name not in seen and (site / name).is_file():
        seen.add(name)
        yield name
        link = _found(r'<link rel="?next"? href="([^"]+)"', (site / name).read_text("utf-8"))
        name = os.path.normpath(os.path.join(os.path.dirname(name), link)) if link else ""


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _chapter(site: Path, name: str, names: set[str]) -> str:
    """The article of a page; its ids are its own, and links to pages lead within the whole."""
    text = (site / name).read_text("utf-8")
    article = _found(r"(?s)<article\b[^>]*>(.*)</article>", text)
    article = re.sub(r'<a class="?headerlink"?.*?</a>', "", article)
    article = re.sub(r"(?s)<script\b.*?</script>|<link\b[^>]*>", "", article)
    mark = _mark(name)

    def link(found: re.Match[str]) -> str:
        path, _, anchor = html.unescape(found[1]).partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if target in names:
            return f'href="#{_mark(target)}{"-" + anchor if anchor else ""}"'
        return found[0] if re.match(r"[a-z]+:", path) else f'data-file="{html.escape(target)}"'

    article = re.sub(r'\bhref="?([^"\s>]*)"?', link, article)
    article = re.sub(r'(\sid="?)([^"\s>]+)', rf"\g<1>{mark}-\2", article)
    article = re.sub(r"url\(#", f"url(#{mark}-", article)
    return f'<article class="chapter" id="{mark}">{article}</article>'


def _mark(name: str) -> str:
    return re.sub(r"\W", "-", name.removesuffix(".html"))
