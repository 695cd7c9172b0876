"""The HTML document behind a number or a claim: its value, and the cases that it is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from madl.logbook.records import Record
from madl.site.markup import html

STYLE = (  # colours as `charts.css` has them
    ":root{color-scheme:light dark;background:#fff;color:#1f2430}"
    "a{color:#0072b2}"
    "@media screen and (prefers-color-scheme:dark){:root{background:#1e2129;color:#e4e7ef}"
    "a{color:#56b4e9}}"
    "body{font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
    "body{margin:2rem auto;max-width:44rem;padding:0 1rem}"
    "pre{white-space:pre-wrap}"
    "td,th{padding:.2rem 1rem .2rem 0;text-align:left;vertical-align:top}"
    "th{font-weight:600;white-space:nowrap}"
)
SHELL = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{}</title>'
    '<link rel="icon" href="data:,"><style>{}</style></head><body><main>'
    '<p><a href="../../{}.html">{}</a></p><h1>{}</h1><table>{}</table>'
    '<p>The same <a href="{}.json">as JSON</a>; the records whole in <a href="{}">{}</a>. '
    "They are made by</p><pre><code>{}</code></pre></main></body></html>\n"
)
TITLES = {"n": "of", "p": "p, Holm's"}


def page(
    name: str,
    twin: Mapping[str, Any],
    records: Sequence[Record],
    *,
    stem: str,
    title: str,
    archive: str,
    command: str,
) -> str:
    """The HTML of one number's or claim's document, which lies two folders below its page's folder.

    `twin` is its entry of `prose.provenance_index`, written beside it as JSON; `archive` the name
    of the file with the page's records; `command` what runs the page's cases.
    """
    facts = [(TITLES.get(name, name), value) for name, value in twin.items() if name != "records"]
    rows = [_row(title, _text(value)) for title, value in facts if value not in ("", None)]
    known = {record.case.key: record for record in records}
    rows += [
        _row(key, _provenance(known[key]) if key in known else "not here")
        for key in twin["records"]
    ]
    heading = str(twin.get("hypothesis") or f"{twin['value']} ({name.replace('_', ' ')})")
    link = (stem, title, heading)
    files = (name, archive, archive)
    return html(SHELL, heading, Markup(STYLE), *link, Markup("").join(rows), *files, command)


def _row(title: str, value: str) -> Markup:
    return html("<tr><th>{}</th><td>{}</td></tr>", title, value)


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _provenance(record: Record) -> str:
    """The seed, machine and day of a record."""
    run = record.run
    seed = f"seed {record.case.params['seed']}, " if "seed" in record.case.params else ""
    return f"{seed}{run.host}, {run.started[:10]}"
