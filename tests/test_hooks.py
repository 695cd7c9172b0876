"""What `mkdocs build` does to pages: the search knows words, and a number keeps its unit."""

import re
from pathlib import Path

import pytest

hooks = pytest.importorskip("madl.site.hooks", reason="mkdocs is not there")


@pytest.mark.parametrize(
    ("before", "left_out"),
    [
        ('<div><span class="filename">a/b.py, line 8</span><pre><code>x</code></pre></div>', "pre"),
        ("<table><tr></tr></table>", "table"),
        ("<pre><code>make logbook</code></pre>", ""),  # to be typed, so to be found
    ],
)
def test_the_search_leaves_out_what_is_only_cited(before, left_out):
    made = hooks.on_page_content(before, page=None)
    assert made.count(" data-search-exclude") == bool(left_out)
    assert made.replace(" data-search-exclude", "") == before
    assert f"<{left_out} data-search-exclude" in made or not left_out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<p>of 9 %, 2 ms</p>", "<p>of 9\u00a0%, 2\u00a0ms</p>"),
        ("<p>by 2 msgs</p><pre>9 % 2</pre>", "<p>by 2 msgs</p><pre>9 % 2</pre>"),
        ('<p title="9 %">22.5 ×</p>', '<p title="9 %">22.5\u00a0×</p>'),
    ],
)
def test_a_unit_stays_on_the_line_of_its_number_but_for_code(before, after):
    assert hooks.on_page_content(before, page=None) == after


def test_what_is_not_there_leads_to_its_folder_and_a_build_without_pages_to_a_command(tmp_path):
    theme = (
        '<head><link href="/at/assets/a.css"></head><h1>404 - Not found</h1>'
        '<a href="/at/index.html">'
        '<script>x=new URL("/at/",location)</script><script id="__config">{"base": "/at", '
        '"search": "/at/assets/s.js"}</script><script src="/at/assets/b.js"></script>'
    )
    made = hooks.not_found(theme, "/at/")
    for link in ("assets/a.css", "index.html", "ledger.html", "assets/b.js"):
        assert re.search(rf'=\\?"{link}\\?"', made)
    assert '<base href="/at/">' in made
    assert made.index("<base") < made.index("assets/a.css")
    assert '"base": ".", "search": "assets/s.js"' in made
    config = {"docs_dir": str(tmp_path)}
    with pytest.raises(hooks.PluginError, match="run `python cli.py report` first"):
        hooks.on_config(config)
    (tmp_path / "index.md").touch()
    assert hooks.on_config(config) is None


def test_a_name_that_the_theme_escapes_twice_is_escaped_once_and_never_less():
    made = hooks._with_labels(
        '<a aria-label="the formula&amp;#x27;s &quot;&lt;x&gt;&quot; &amp; more">'
    )
    assert made == '<a aria-label="the formula&#x27;s &quot;&lt;x&gt;&quot; &amp; more">'
    assert (
        hooks._with_labels('<a aria-label="&amp;quot; onload=1">')
        == '<a aria-label="&quot; onload=1">'
    )


def test_indents_and_blank_lines_are_left_out_but_where_they_show():
    shown = "<pre><code>if x:\n\n    y\n</code></pre>"
    made = hooks._without_space(f"<p>one\n\n    two\n</p>\n  {shown}\n")
    assert made == f"<p>one\n two\n </p>\n {shown}\n "


def test_the_theme_still_has_what_is_left_out_of_it():
    material = pytest.importorskip("material")
    assets = Path(*material.__path__) / "templates/assets"
    (sheet,) = assets.glob("stylesheets/palette.*.css")
    left_out = hooks.SWITCHING.findall(sheet.read_text("utf-8"))
    assert [rule.count("data-md-color-switching") for rule in left_out] == [3]
    (script,) = assets.glob("javascripts/bundle.*.js")
    assert script.read_text("utf-8").count(hooks.SCHEME) == 1


def test_scripts_are_asked_for_in_their_order_once_a_page_is_drawn():
    loads = '<script src="a&amp;b.js"></script>\n<script src="c.js" defer></script>\n'
    made = hooks._drawn_first(f"<head>{loads}</head><body><script>1</script></body>")
    assert made.startswith("<head></head><body><script>1</script><script>requestAnimationFrame(")
    assert 'const src of ["a\\u0026b.js", "c.js"])' in made
    assert hooks._drawn_first("<body></body>") == "<body></body>"
