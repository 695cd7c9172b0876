"""The site is built strictly: what mkdocs warns of ends the command in one line that names it."""

import pytest

from madl.errors import MadlError
from madl.running.project import Project
from madl.site import build
from tests.conftest import write

pytest.importorskip("mkdocs", reason="mkdocs is not there")

SETTINGS = "site_name: A\ndocs_dir: docs\nhooks:\n  - !ENV MADL_HOOKS\n"
LONG = f'<div class="answer"><p>{"word " * 23 + "end. Word " + "word " * 21}</p></div>'
PUBLISHED = "---\nevidence: published\n---\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{PUBLISHED}{LONG * 4}",
            r"labs/mine.md: its answer has 46 words; at most 40; labs/mine.md: .* \(and 1 more\)",
        ),
        ("[here](nowhere.md)", "'labs/mine.md' contains a link 'nowhere.md', but the target"),
        (LONG, ""),  # one's own evidence, whose verdicts may take more words
    ],
)
def test_what_a_page_may_not_be_is_one_line(tmp_path, text, said):
    write(tmp_path / "mkdocs.yml", SETTINGS)
    write(tmp_path / "docs" / "index.md", "# Home")
    write(tmp_path / "docs" / "labs" / "mine.md", text)
    if not said:
        build.build(Project(tmp_path))
        assert (tmp_path / "site" / "labs" / "mine" / "index.html").is_file()
        return
    with pytest.raises(MadlError, match=f"mkdocs could not build the site: .*{said}") as caught:
        build.build(Project(tmp_path))
    assert "\n" not in str(caught.value)
