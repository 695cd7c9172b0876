"""What a page may say at most, counted in built HTML."""

import copy
import re
from dataclasses import replace
from itertools import product

import pytest
from bs4 import BeautifulSoup

from madl.running.project import Project
from madl.site import limits, templates
from madl.site.page import PageCalls
from madl.site.prose import VERDICTS
from tests.synthetic import evidence

FORM = (
    '<h1>T</h1><div class="answer"><p>{answer}</p></div><div class="lead"><p>{lead}</p></div>'
    '<div class="why"><p>{why}</p></div>{more}'
)


def words(n: int, *, every: int = 20) -> str:
    """So many words, in sentences of so many."""
    parts = [["Word", *["word"] * (min(every, n - i) - 1)] for i in range(0, n, every)]
    return " ".join(" ".join(part) + "." for part in parts)


def page_of(**changed: str) -> str:
    parts = {"answer": "Short.", "lead": "Short.", "why": "Short.", "more": ""}
    return FORM.format(**{**parts, **changed})


def test_a_short_page_passes_and_figures_code_and_what_is_folded_do_not_count():
    assert limits.problems(page_of()) == []
    assert limits.problems(page_of(answer="From −1 [−2, 0.5] to 2 [1, 3.5] and 3 [2, 5].")) == []
    assert limits.problems(f"<p>{words(2000)}</p>") == []
    left_out = "".join(
        f"<{tag}>{words(400)}</{tag}>" for tag in ("pre", "details", "figure", "table")
    )
    assert limits.problems(page_of(more=left_out)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"answer": words(41)}, "its answer has 41 words; at most 40"),
        ({"answer": "From 1 to 2 and 3 to 4."}, "its answer has 4 numbers; at most 3"),
        ({"lead": words(91)}, "its lead has 91 words; at most 90"),
        ({"why": words(31, every=31)}, "has 31 words; at most 30"),
        ({"why": words(81)}, "has 81 words; at most 80"),
        ({"more": f"<p>{words(69)}</p>" * 14}, "the page has 969 words; at most 900"),
        ({"more": "<p>1 2 3 4 5 6 7 8 9 10.</p>" * 7}, "the page has 70 numbers"),
        ({"more": f"<details><p>{words(1501)}</p></details>"}, "what is folded has 1,501 words"),
        ({"more": f"<figure><figcaption>{words(26)}</figcaption></figure>"}, "a caption has 26"),
        (
            {"more": "<table><tbody>" + "<tr><td>a</td></tr>" * 11 + "</tbody></table>"},
            "a table has 11 rows",
        ),
        (
            {"more": f"<table><tbody><tr>{'<td>a</td>' * 7}</tr></tbody></table>"},
            "a table has 7 columns",
        ),
    ],
)
def test_what_is_too_much_is_said_in_one_line(changed, said):
    found = limits.problems(page_of(**changed))
    assert any(said in line for line in found), found
    assert all("\n" not in line for line in found)


@pytest.mark.parametrize("block", ["answer", "lead"])
@pytest.mark.parametrize("page", evidence(), ids=lambda page: page.name)
def test_answer_and_lead_are_short_whatever_the_verdicts(page, block):
    if not page.view.own:
        return
    project = Project()
    template = (project.experiments / page.name / "page.md.j2").read_text()
    text = template.partition(f"{{% block {block} %}}")[2].partition("{% endblock %}")[0]
    claims = re.findall(r'{% claim "(\w+)" %}', text)
    for verdicts in product(VERDICTS, repeat=len(claims)):
        view = copy.copy(page.view)
        judged = dict(zip(claims, verdicts))
        view.__dict__["results"] = {
            name: replace(one, verdict=judged.get(name, one.verdict))
            for name, one in page.view.results.items()
        }
        calls = PageCalls(project, replace(page, view=view))
        names = calls.variables(elsewhere=True)
        said = templates.render_block(project, calls.template, block, names)
        said = BeautifulSoup(re.sub("`[^`]*`", "", said), "html.parser").get_text()
        found = limits.problems(page_of(**{block: said}))  # all on one line: not its paragraphs
        assert [line for line in found if not line.startswith("a paragraph")] == [], verdicts
