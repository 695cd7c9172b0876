"""The HTML document behind a number or a claim: what it is, how sure, and how it was measured.

A page shows it in a card beside the number; it is a document of its own, too, that needs no script.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from madl.logbook.records import Record
from madl.site.markup import html

LOOK = Markup(  # light or dark: of the page that shows it, or as the reader's system has it
    'let e=document.documentElement;e.classList.toggle("framed",top!=self);'
    "e.dataset.mdColorScheme="
    '["slate","default"].find(s=>location.hash=="#"+s)'
    '??(matchMedia("(prefers-color-scheme:dark)").matches?"slate":"default")'
)
COPY = Markup(
    'let b=document.querySelector("button");b.hidden=!navigator.clipboard;b.onclick=()=>'
    "navigator.clipboard.writeText(b.previousSibling.textContent)"
    '.then(()=>b.textContent="copied")'
)
SHELL = (
    '<!doctype html>\n<html lang="en" class="evidence"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{}</title>'
    '<link rel="icon" href="data:,"><base target="_top"><script>{}</script>'
    '<link rel="stylesheet" href="{}assets/face.css">'
    '<link rel="stylesheet" href="{}assets/evidence.css"></head><body><main>'
    '<p><a href="../../{}.html">{}</a></p><h1>{}</h1>{}<table>{}</table>'
    '<pre><code>{}</code><button type="button" hidden>copy</button></pre>'
    '<p>The records whole: <a href="{}">{}</a>. The same <a href="{}.json">as JSON</a>.</p>'
    "<script>{}</script></main></body></html>\n"
)
TITLES = {"n": "of", "p": "p, Holm's"}
SHOWN = ("value", "hypothesis", "records")  # elsewhere than among the facts


def page(
    name: str,
    twin: Mapping[str, Any],
    records: Sequence[Record],
    picture: Markup,
    *,
    stem: str,
    title: str,
    archive: str,
    command: str,
    up: str,
) -> str:
    """The HTML of one number's or claim's document, which lies two folders below its page's folder.

    `twin` is its entry of `prose.provenance_index`, written beside it as JSON; `archive` the name
    of the file with the page's records; `command` what runs the page's cases; `up` leads to the
    site's root.
    """
    facts = [(TITLES.get(key, key), twin[key]) for key in twin if key not in SHOWN]
    rows = [_row(head, _text(value)) for head, value in facts if value not in ("", None)]
    known = {record.case.key: record for record in records}
    cited = [known[key] for key in twin["records"] if key in known]
    rows += [_row("measured", _where(own)) for own in _by_run(cited)]
    if missing := len(twin["records"]) - len(cited):
        rows.append(_row("not here", f"{missing} of {len(twin['records'])} cases"))
    heading = str(twin.get("hypothesis") or f"{twin['value']} ({name.replace('_', ' ')})")
    opening = (heading, LOOK, Markup(up), Markup(up), stem, title, heading, picture)
    return html(SHELL, *opening, Markup().join(rows), command, archive, archive, name, COPY)


def _row(title: str, value: object) -> Markup:
    return html("<tr><th>{}</th><td>{}</td></tr>", title, value)


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _by_run(records: Sequence[Record]) -> list[list[Record]]:
    """The records by machine and day."""

    def run(record: Record) -> tuple[str, str]:
        return record.run.host, record.run.started[:10]

    return [list(own) for _, own in groupby(sorted(records, key=run), run)]


def _where(records: Sequence[Record]) -> Markup:
    """The seeds, machine and day of records that share the last two, and their cases' keys."""
    run = records[0].run
    seeds = sorted({str(r.case.params["seed"]) for r in records if "seed" in r.case.params})
    drawn = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}: " if seeds else ""
    keys = Markup(" ").join(html("<code>{}</code>", record.case.key) for record in records)
    cases = f"{len(records)} cases" if len(records) > 1 else "its case"
    folded = "{}{}, {}<details><summary>{}</summary>{}</details>"
    return html(folded, drawn, run.host, run.started[:10], cases, keys)
