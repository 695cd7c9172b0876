"""Explainers without a browser: each script is there, and data stay inside the page."""

from madl.logbook.drawing import field
from madl.running.project import Project
from madl.site import explain


def test_scripts_are_there_and_data_end_no_element_of_the_page():
    project = Project()
    for name in project.names():
        for one in project.load(name).shown.values():
            toy = project.experiments / name / explain.OWN
            assert not one.script or explain.num_controls(toy.read_text(), one.script), name
    assert explain.data([{"a": "</script>"}]) == '{"a":["\\u003c/script\\u003e"]}'
    assert field("n", "<b>") == '<span data-f="n">&lt;b&gt;</span>'
