"""Gives a notebook's page the site's own look in place of Jupyter's, in `mkdocs build`.

mkdocs-jupyter writes half a megabyte of style sheets and scripts into every page. Here cells keep
their content, look as code and text do anywhere in Material, light or dark, and figures become
inline SVG. The notebook itself, without outputs, is put beside the page for download.
"""

import base64
import json
from pathlib import Path
from typing import Any

SVG = "data:image/svg+xml;base64,"
JUPYTER = (
    "style, script, link, clipboard-copy, .clipboard-copy-txt, .jp-InputPrompt, .jp-OutputPrompt, "
    ".jp-Collapser, .anchor-link"
)


def content(html: str, page: Any) -> str | None:
    """The HTML of a notebook's page in the site's own look; None for any other page."""
    if not page.file.src_uri.endswith(".ipynb"):
        return None
    from bs4 import BeautifulSoup

    tree = BeautifulSoup(html, "html.parser")
    article = BeautifulSoup("", "html.parser")
    for image in tree.select(f'img[src^="{SVG}"]'):
        drawn = base64.b64decode(str(image["src"]).removeprefix(SVG)).decode()
        figure = BeautifulSoup(drawn, "html.parser")
        if figure.svg:
            figure.svg["data-search-exclude"] = ""  # numbers at axes lead nowhere: see `hooks`
        image.replace_with(figure)
    for part in tree.select(JUPYTER):
        part.decompose()
    shown = ".jp-RenderedMarkdown, .jp-InputArea-editor .highlight-ipynb, .jp-OutputArea-output"
    for part in tree.select(shown):
        classes = part.get_attribute_list("class")
        if "highlight-ipynb" in classes:
            part["class"] = "highlight"
            if part.pre:
                part.pre["data-search-exclude"] = ""
                code = article.new_tag("code")
                code.extend(list(part.pre.contents))
                part.pre.append(code)
        elif "jp-RenderedMarkdown" in classes:
            part.attrs = {}
        else:
            part.attrs = {"class": "cell-output"}
        article.append(part.extract())
    _open_with_figure(article)
    return str(article)


def _open_with_figure(article: Any) -> None:
    """Move the first figure below the title, and leave a line in its place that says so."""
    title, figure = article.find("h1"), article.select_one(".cell-output:has(> svg, svg)")
    if title is None or figure is None:
        return
    note = article.new_tag("p", attrs={"class": "facts"})
    note.string = "It draws the figure at the top."
    figure.replace_with(note)
    title.insert_after(figure)


def copy(docs: Path, site: Path) -> None:
    """Copy every notebook, without its outputs, beside its page in the built site."""
    for path in sorted((docs / "notebooks").glob("*.ipynb")):
        notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
        target = site / "notebooks" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
