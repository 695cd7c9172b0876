"""Makes a drawing interactive: puts its rows as JSON into the page, and the scripts that read them.

Nothing is fetched, so that a page opened from a folder works, too. A page without explainers
loads none of this, and without JavaScript the drawing is complete.
"""

import re
from collections.abc import Sequence

from jinja2.utils import htmlsafe_json_dumps

from madl.logbook.charts import data_rows
from madl.logbook.records import Row

SHARED = "explain"
OWN = "explain.js"  # of a page that has a toy, in its folder


def sheet(up: str) -> str:
    """The HTML that begins an interactive figure; `up` leads from the page to that of `assets`."""
    return f'<link rel="stylesheet" href="{up}assets/{SHARED}.css">\n'


def live(rows: Sequence[Row], script: str, *, up: str) -> str:
    """The HTML that ends an interactive figure: its rows as JSON, and the scripts.

    `script` is the address of the page's own script; `up` is that of `sheet`.
    """
    names = (f"{up}assets/{SHARED}.js", script)
    scripts = "".join(f'<script src="{name}" defer></script>' for name in names)
    return f'<script type="application/json">{data(rows)}</script>{scripts}\n'


def data(rows: Sequence[Row]) -> str:
    """The rows as JSON, {column: cells}, without a character that HTML takes for markup."""
    flat = data_rows(rows)
    columns = {name: [row[name] for row in flat] for name in flat[0]}
    return htmlsafe_json_dumps(columns, ensure_ascii=False, separators=(",", ":"))


def num_controls(script: str, name: str) -> int:
    """The number of controls that a page's script gives the drawing of this name."""
    own = script.partition(f'explain("{name}"')[2].partition('explain("')[0]
    return len(re.findall(r"\b(?:slider|choice|quantity|check)\(", own))
