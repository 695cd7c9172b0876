"""Pages and sheets that lose bytes and nothing else."""

import pytest

from madl.site import squeeze


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<p>one  two\n three</p>\n\n <p>x</p>", "<p>one two three</p><p>x</p>"),
        ("<p>a <b>b</b> <i>c</i></p>", "<p>a <b>b</b> <i>c</i></p>"),
        ('<pre>a\n  b  <b id="x">c</b></pre>', '<pre>a\n  b  <b id="x">c</b></pre>'),
        ('<td style="text-align: left;">1</td>', "<td>1"),
        ('<td style="text-align: right;">1</td>', "<td class=r>1"),
        ('<a class="chip" href="a.html">x</a>', '<a class=chip href="a.html">x</a>'),
        ('<p data-search-exclude="">a</p> <b data-search-exclude>b</b>', "<p>a</p><b>b</b>"),
        ('<path d="M1"/>', '<path d="M1"/>'),  # before a slash, quotes end the value
        ('<b title="a > b" id="c d">x</b>', '<b title="a > b" id="c d">x</b>'),
        ('<span class="n">a</span><span class="k">if</span>', "a<span class=k>if</span>"),
        (
            '<pre>a<span class="o">=</span><span class="mi">1</span></pre>',
            "<pre>a=<span class=mi>1</span></pre>",
        ),
        ("<td>22.5\u00a0×</td>", "<td>22.5\u00a0×"),
        ("<p>of 9 %, 2 ms</p>", "<p>of 9\u00a0%, 2\u00a0ms</p>"),  # its unit stays with a number
        ("<p>by 2 msgs</p><pre>9 % 2</pre>", "<p>by 2 msgs</p><pre>9 % 2</pre>"),
        ('<svg xmlns="http://www.w3.org/2000/svg" id="a">x</svg>', "<svg id=a>x</svg>"),
    ],
)
def test_a_page_says_and_does_the_same_in_fewer_bytes(before, after):
    assert squeeze.page(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (".a{x:1}.b{x:2}", ".a{x:1}"),
        (".a,.b .a,.a .c{x:1}", ".a{x:1}"),
        ("a:not(.b){x:1}", "a:not(.b){x:1}"),
        ("[title~=b],.a:is(.b,.a){x:1}", "[title~=b],.a:is(.b,.a){x:1}"),
        ("@media print{.b{x:1}}", ""),
        ("@media print{.b{x:1}.a{x:2}}", "@media print{.a{x:2}}"),
        ("@keyframes k{0%{x:1}}", "@keyframes k{0%{x:1}}"),
        ('.a{content:"}.b{"}.b{x:1}', '.a{content:"}.b{"}'),
        (":root{--p:url('data:x;y');--q:1}.a{x:1}", ":root{--q:1}.a{x:1}"),
        (":root{--p:url('data:x')}.a{x:var(--p)}", ":root{--p:url('data:x')}.a{x:var(--p)}"),
        ("[dir=ltr] .a{x:1}[dir=rtl] .a{x:2}", "[dir=ltr] .a{x:1}"),
        ("[data-md-color-primary=red]{x:1}[data-md-state=red]{x:2}", "[data-md-state=red]{x:2}"),
        (".a:not([dir=rtl]){x:1}", ".a:not([dir=rtl]){x:1}"),
    ],
)
def test_a_sheet_keeps_the_rules_for_what_is_there(before, after):
    page = '<body dir="ltr" data-md-color-primary=indigo><p class=a>red</p>'
    assert squeeze.sheet(before, squeeze.words_of(page)) == after


@pytest.mark.parametrize(
    ("before", "left_out"),
    [
        ('<div><span class="filename">a/b.py, line 8</span><pre><code>x</code></pre></div>', "pre"),
        ("<table><tr></tr></table>", "table"),
        ("<pre><code>make logbook</code></pre>", ""),  # to be typed, so to be found
    ],
)
def test_the_search_leaves_out_what_is_only_cited(before, left_out):
    hooks = pytest.importorskip("madl.site.hooks", reason="mkdocs is not there")
    made = hooks.on_page_content(before)
    assert made.count(" data-search-exclude") == bool(left_out)
    assert made.replace(" data-search-exclude", "") == before
    assert f"<{left_out} data-search-exclude" in made or not left_out


def test_a_build_without_pages_says_what_makes_them(tmp_path):
    hooks = pytest.importorskip("madl.site.hooks", reason="mkdocs is not there")
    config = {"docs_dir": str(tmp_path)}
    with pytest.raises(hooks.PluginError, match="run `python cli.py report` first"):
        hooks.on_config(config)
    (tmp_path / "index.md").touch()
    assert hooks.on_config(config) is None
