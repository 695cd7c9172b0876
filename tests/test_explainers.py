"""Explainers without a browser: their steps are the kernels', their data stay inside the page."""

import json
import re
from pathlib import Path

import pytest

from madl.logbook.drawing import field
from madl.running.project import Project
from madl.site import explain, report
from tests.test_report import fill, page, with_a_drawing

ROOT = Path(__file__).parents[1]
PROJECT = Project(ROOT)


@pytest.mark.parametrize("name", PROJECT.names())
def test_each_script_that_a_page_names_is_there(name):
    for one in PROJECT.load(name).shown.values():
        assert not one.script or (PROJECT.experiments / name / explain.OWN).is_file()


# ---- the mechanism ------------------------------------------------------------------------------


def live(plan, **more: str) -> None:
    """Give the toy's page a drawing that a script makes live."""
    with_a_drawing(plan)
    source = plan.project.experiments / "toy" / "page.py"
    said = "".join(f", {name}={value}" for name, value in more.items())
    source.write_text(source.read_text().replace('"two boxes")', f'"two boxes"{said})', 1))


def test_a_drawing_with_a_script_carries_its_rows_and_loads_it(plan):
    live(plan, script='"boxes"')
    report.write(plan, fill(plan))
    text = page(plan)
    data = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert data
    assert json.loads(data[1]) == {"x": [0, 1], "square": [0, 1]}
    assert 'class="drawing explain" data-explain="boxes"' in text
    assert re.findall(r'src="([^"]+)" defer', text) == [
        "../assets/explain.js",
        "figures/toy/explain.js",
    ]


def test_data_end_no_element_of_the_page():
    assert explain.data([{"a": "</script>"}]) == '{"a":["\\u003c/script>"]}'
    assert field("n", "<b>") == '<span data-f="n">&lt;b&gt;</span>'
