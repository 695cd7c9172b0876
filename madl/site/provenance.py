"""The HTML document behind a number or a claim: what it is, how sure, and how it was measured.

A page shows it in a card beside the number; it is a document of its own, too, that needs no script.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from madl.logbook.records import Record
from madl.running.views import View
from madl.site.how_sure import with_interval
from madl.site.markup import unbroken

CASES = "cases.zip"  # the records behind a page's numbers and claims, a line of JSON each
TITLES = {"n": "of", "p": "p, Holm's"}
SHOWN = ("value", "label", "hypothesis", "records")  # elsewhere than among the facts


def index(view: View) -> dict[str, dict[str, Any]]:
    """The facts of each number (value, interval, n) and claim (hypothesis, verdict, effect, p) of a
    page, by name, with the keys of its records.
    """
    entries: dict[str, dict[str, Any]] = {}
    for name, number in view.numbers.items():
        if number is not None:
            facts = {"value": number.precise, "label": number.label}
            facts |= {"interval": number.interval, "n": number.n}
            entries[name] = {**facts, "records": [case.key for case in number.cases]}
    for name, result in view.results.items():
        if result.contrast is not None:
            facts = {"hypothesis": result.hypothesis, "verdict": result.verdict}
            facts |= {"effect": with_interval(result), "p": result.p_adjusted}
            entries[name] = {**facts, "records": [case.key for case in result.cases]}
    return entries


def variables(
    name: str, twin: Mapping[str, Any], known: Mapping[str, Record], picture: Markup
) -> dict[str, Any]:
    """The facts of one number or claim, as `evidence.html.j2` prints them.

    `twin` is its entry of `index`, written beside it as JSON; `known` holds the
    page's records by their cases' keys; `picture` draws it.
    """
    cited = [known[key] for key in twin["records"] if key in known]
    label = twin.get("label") or name.replace("_", " ")
    heading = twin.get("hypothesis") or f"{twin['value']} ({label})"
    facts = {TITLES.get(key, key): twin[key] for key in twin if key not in SHOWN}
    return {
        "name": name,
        "heading": heading,
        "picture": picture,
        "facts": [(k, _text(v)) for k, v in facts.items() if v not in ("", None)],
        "runs": [*_runs(cited)],
        "num_cited": len(cited),
        "missing": len(twin["records"]) - len(cited),
    }


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _runs(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """For each machine and day of these records, their seeds and the keys of their cases."""

    def place(record: Record) -> tuple[str, str]:
        return record.run.host, record.run.started[:10]

    for (host, day), group in groupby(sorted(records, key=place), place):
        cases = [record.case for record in group]
        seeds = sorted({str(case.params["seed"]) for case in cases if "seed" in case.params})
        keys = [case.key for case in cases]
        yield {"host": unbroken(host), "day": day, "seeds": seeds, "cases": keys}
