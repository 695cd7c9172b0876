"""Texts of records are other people's: in the built site they are words, wherever they stand."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from madl.logbook.records import Case, Store, publish
from madl.site.build import HOOKS
from tests.conftest import a_record, a_run
from tests.faults.conftest import ROOT, product

NASTY = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> | ` [x](javascript:alert(1)) "
    "{{ 7*7 }} {: onclick=alert(1) } \" ' &\n\n# x <svg/onload=alert(1)>"
)
SHORT = "<script>alert(1)</script>| ` {{ x }} \" ' &"  # fits beside an axis
TEXTS = '''
"""A toy all of whose words come from its records."""

from madl.logbook.charts import Chart, bars, category, level, line, linear, span
from madl.logbook.claims import contrast
from madl.logbook.drawing import Box, Panel, column
from madl.logbook.experiment import Experiment
from madl.logbook.numbers import counted
from madl.logbook.stats import Unit, mean

page = Experiment(title="Words")


@page.cases
def cases(plan):
    return [{"x": x, "seed": 0} for x in range(2)]


def panels(rows):
    boxes = [Box(name=r["word"], title=r["word"], detail=r["word"], note=r["word"]) for r in rows]
    return [Panel(title=rows[0]["word"], svg=column(boxes, label=rows[0]["word"]), folded=False)]


@page.drawing(panels=panels, alt=lambda rows: rows[0]["word"])
def boxes(r):
    return [{"word": f"{r.one(x=x).values['word']}{x}"} for x in (0, 1)]


@page.chart
def lines(r):
    word = r.one(x=0).values["word"]
    rows = [{"x": x, word: x} for x in (0, 1)]
    marks = [line(word, word), level(0.5, word), span(0, 0.5, word)]
    return Chart(rows, x=linear("x", word), y=linear(label=word), marks=marks)


@page.chart
def kinds(r):
    word = r.one(x=0).values["word"]
    rows = [{"kind": f"{word}{x}", "y": x} for x in (1, 2)]
    return Chart(rows, x=linear(label=word), y=category("kind"), marks=bars("y"))


def long(r):
    return r.one(x=0).values["long"]


@page.table
def words(r):
    return [{long(r): long(r), "n": 1}]


@page.output
def said(r):
    return long(r)


@page.claim(primary=True)
def holds(r):
    """Words hold more often than not."""
    return contrast(mean([1.0, 1.1, 1.2], unit=Unit.BITS, drawn=long(r)), [r.one(x=0)])


@page.claim
def holds_again(r):
    """Words hold more often than not, to be shown without a verdict."""
    return holds(r)


page.numbers(one=lambda r: counted(1, long(r), of=[r.one(x=0)]), these=holds)
'''
TEMPLATE = """{% extends "page.md.j2" %}
{% block answer %}
{% claim "holds" %}
{% supported %}It is {{ one }}, by {{ agree }} and {{ these }}.
{% refuted %}It is not {{ one }}.
{% undecided %}It may be {{ one }}, or {{ smallest }} less.
{% endclaim %}
{% endblock %}
{% block lead %}It is {{ one }}: {{ one.precise }} or {{ one.plain }}.{% endblock %}
{% block figure %}
{% call figure("lines", caption="They grow.") %}It is {{ one }}{% endcall %}
{{ figure("kinds", caption="They differ.") }}
{{ figure("boxes", caption="They stand.") }}
{% endblock %}
{% block table %}{{ table("words") }}{% endblock %}
{% block why %}{{ output("said") }}{% endblock %}
{% block mislead %}Nothing.{% endblock %}
{% block method %}As ever.{% endblock %}
"""

WHERE = ("host", "device", "cpu", "python", "torch", "command", "commit", "kernels")


class Seen(HTMLParser):
    """What of a page would act."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = "data" if ("type", "application/json") in attrs else tag
        for name, value in attrs:
            acts = (value or "").strip().lower().startswith(("javascript:", "vbscript:"))
            if acts or (tag, name, value) == ("img", "src", "x") or name.startswith("on"):
                self.found.append((tag, name, value))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script" and "alert(1)" in data:
            self.found.append((self.inside, data))
        if self.inside == "data" and "<" in data:  # it could end the element
            self.found.append((self.inside, data))


def assert_only_words(site: Path) -> int:
    """That nothing in a site acts; how often the planted text is there to be read."""
    shown = 0
    for path in sorted(site.rglob("*.html")):
        text = path.read_text("utf-8")
        seen = Seen()
        seen.feed(text)
        assert seen.found == [], path
        shown += text.count("alert(1)")
    (index,) = site.rglob("search_index.js")
    assert not re.search(r"<script|<img|<svg", index.read_text("utf-8"))
    for path in site.rglob("*.json"):
        assert not re.search("[<>]", path.read_text("utf-8")), path
    return shown


def planted(value: Any) -> Any:
    """The same with the text in every string, but where strings are bits."""
    if isinstance(value, str):
        return value + NASTY
    if isinstance(value, list):
        return [planted(one) for one in value]
    if isinstance(value, dict):
        return {k: one if k == "outcomes" else planted(one) for k, one in value.items()}
    return value


def built(root: Path) -> Path:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "MADL_HOOKS": str(HOOKS)}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root / "site"


def reported(root: Path, cli: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(cli), "report"],
        env={**os.environ, "MADL_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_text_of_a_record_is_escaped_wherever_it_stands(toy):
    """Here and elsewhere: this machine's records, and others' published ones."""
    root = toy.root
    (toy.experiments / "toy" / "page.py").write_text(TEXTS)
    (toy.experiments / "toy" / "page.md.j2").write_text(TEMPLATE)
    shutil.copy(ROOT / "mkdocs.yml", root)
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    text = a_run()
    run = a_run(**{n: planted(getattr(text, n)) for n in WHERE})
    cases = [Case(experiment="toy", params={"x": x, "seed": 0}) for x in range(2)]
    values = {"word": SHORT, "long": SHORT + NASTY}
    ours = [a_record(case=case, values=values, run=run) for case in cases]
    for record in ours:
        Store(toy.state).put(record)
    away = a_run(host="else" + NASTY, started="2026-01-03T00:00:00+00:00" + NASTY)
    skipped = {"status": "skipped", "values": {}, "error": "no " + NASTY}
    others = [
        a_record(case=cases[0], values=values, run=away),
        a_record(case=cases[1], run=away, **skipped),
    ]
    publish(others, toy.docs / "data" / "toy.jsonl")
    done = reported(root, ROOT / "cli.py")
    assert done.returncode == 0, done.stderr
    page = (toy.docs / "labs" / "toy.md").read_text()
    assert "Pending" not in page
    assert assert_only_words(built(root)) > 20


@pytest.mark.faults
def test_every_text_of_all_committed_evidence_is_escaped(tmp_path):
    """Other names lead to nothing, and what looks for them is pending in one line."""
    root = product(tmp_path / "product")
    for path in (root / "docs" / "data").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line |= {name: planted(line[name]) for name in ("run", "values", "error")}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = reported(root, root / "cli.py")
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert all(line.startswith("Error: ") for line in done.stderr.splitlines()), done.stderr
    assert "this is a fault of the program" not in done.stderr
    assert assert_only_words(built(root)) > 200
