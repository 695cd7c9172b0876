"""Texts of records are words on every page, whatever stands in them: nothing of them acts."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from madl.site.build import HOOKS
from tests.conftest import product, python

NASTY = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> | ` [x](javascript:alert(1)) "
    "{{ 7*7 }} {: onclick=alert(1) } \" ' &\n\n# x <svg/onload=alert(1)>"
)


class Seen(HTMLParser):
    """What of a page would act."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[object] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = "data" if ("type", "application/json") in attrs else tag
        for name, value in attrs:
            acts = (value or "").strip().lower().startswith(("javascript:", "vbscript:"))
            if acts or (tag, name, value) == ("img", "src", "x") or name.startswith("on"):
                self.found.append((tag, name, value))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        # script that was planted; or data that could end their element
        if (self.inside, "alert(1)" in data) == ("script", True) or (
            self.inside == "data" and "<" in data
        ):
            self.found.append((self.inside, data))


def planted(value: Any) -> Any:
    """The same with the text in every string, but where strings are bits."""
    if isinstance(value, str):
        return value + NASTY
    if isinstance(value, list):
        return [planted(one) for one in value]
    if isinstance(value, dict):
        return {k: one if k == "outcomes" else planted(one) for k, one in value.items()}
    return value


@pytest.mark.faults
def test_every_text_of_all_committed_evidence_is_escaped(tmp_path):
    """Other names lead to nothing, and what looks for them is pending in one line."""
    root = product(tmp_path / "product")
    for path in (root / "docs" / "data").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line |= {name: planted(line[name]) for name in ("run", "values", "error")}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    environment = {"MADL_ROOT": str(root), "MADL_HOOKS": str(HOOKS), "PYTHONPATH": ""}
    done = python("cli.py", "report", cwd=root, **environment)
    assert done.returncode in (0, 1), done.stderr
    assert all(line.startswith("Error: ") for line in done.stderr.splitlines()), done.stderr
    assert "this is a fault of the program" not in done.stderr
    done = python("-m", "mkdocs", "build", "--quiet", cwd=root, **environment)
    assert done.returncode == 0, done.stderr
    shown = 0
    for path in sorted((root / "site").rglob("*.html")):
        text = path.read_text("utf-8")
        assert Seen(text).found == [], path
        shown += text.count("alert(1)")
    assert shown > 200
    indices = {*(root / "site").rglob("search_index.js*")}  # paragraphs, twice
    assert len(indices) == 2
    for index in indices:
        assert not re.search(r"<script|<img|<svg", index.read_text("utf-8"))
    for path in {*(root / "site").rglob("*.json")} - indices:
        assert not re.search("[<>]", Path(path).read_text("utf-8")), path
