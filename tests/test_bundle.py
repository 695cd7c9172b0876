"""The site as one file to hand on: whole, the same each time, or one clear line."""

import errno
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from madl.errors import MadlError
from madl.site import bundle

PAGES = {
    "index.html": (
        "Home",
        '<link rel=next href="labs/a.html">',
        '<h2 id=one>One</h2><a href="labs/a.html#two">a</a>',
    ),
    "labs/a.html": (
        "A",
        '<link rel="prev" href="../index.html">',
        '<svg><path id="x"/><use href="#x"/></svg><h2 id="two">Two</h2>'
        '<link rel="stylesheet" href="../assets/explain.css"><script src="e.js">let x;</script>'
        '<a href="records/r.json">r</a><a href="../index.html">h</a>',
    ),
}


@pytest.fixture
def site(tmp_path) -> Path:
    root = tmp_path / "built"
    for name, (title, links, text) in PAGES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(
            f"<html><head><title>{title}</title>{links}</head>"
            f"<body><nav>Menu</nav><article class=md-typeset>{text}</article></body></html>"
        )
    (root / "assets").mkdir()
    for name in ("logbook.css", "charts.css", "explain.css"):
        (root / "assets" / name).write_text(f"/* {name} */")
    return root


@pytest.fixture
def there(site, monkeypatch):
    """A project whose site is built already."""
    from contextlib import nullcontext

    monkeypatch.setattr(bundle, "built", lambda project: nullcontext(site))


def test_a_zip_holds_the_whole_site_and_is_the_same_twice(there, toy, tmp_path):
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    bundle.write_zip(toy, one)
    bundle.write_zip(toy, two)
    assert one.read_bytes() == two.read_bytes()
    assert {"logbook/index.html", "logbook/labs/a.html"} <= set(zipfile.ZipFile(one).namelist())
    assert zipfile.ZipFile(one).testzip() is None


def test_a_full_disk_leaves_the_zip_before_and_no_half_one(there, toy, tmp_path, monkeypatch):
    target = tmp_path / "site.zip"
    target.write_text("the one before")

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = set(tmp_path.iterdir())
    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    monkeypatch.setenv("MADL_ROOT", str(toy.root))
    done = CliRunner().invoke(main, ["publish", "--zip", str(target)])
    assert done.exit_code == 1
    assert "the disk is full" in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert target.read_text() == "the one before"
    assert set(tmp_path.iterdir()) == before


def test_one_page_has_all_pages_with_ids_and_links_of_its_own(site):
    made = bundle.one_page(site)
    assert made.index("One") < made.index("Two")  # in the order of the site
    assert "Menu" not in made
    assert 'href="#labs-a-two"' in made
    assert "id=index-one" in made
    assert '<use href="#labs-a-x"/>' in made
    assert 'href="#index"' in made
    assert "records/r.json" in made
    assert 'href="records' not in made  # it needs no other file
    assert "/* charts.css */" in made
    assert "/* explain.css */" in made
    assert "<script" not in made
    assert 'rel="stylesheet"' not in made


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda t, m: m.setattr("importlib.util.find_spec", lambda name: None), "has no mkdocs"),
        (
            lambda t, m: (t.docs / "index.md").unlink(missing_ok=True),
            "first run: python cli.py report",
        ),
        (lambda t, m: (t.docs / "index.md").write_text("# Home"), "mkdocs could not build"),
    ],
    ids=["no mkdocs", "never reported", "mkdocs fails"],
)
def test_what_keeps_the_site_from_being_built_is_one_clear_line(
    toy, tmp_path, monkeypatch, wrong, said
):
    wrong(toy, monkeypatch)
    with pytest.raises(MadlError, match=said):
        bundle.write_zip(toy, tmp_path / "site.zip")
    assert not (tmp_path / "site.zip").exists()


def test_a_folder_that_is_not_there_is_named_before_anything_is_built(toy, tmp_path):
    with pytest.raises(MadlError, match="there is no folder"):
        bundle.write_print(toy, tmp_path / "nowhere" / "all.html")
    with pytest.raises(MadlError, match="is a folder"):
        bundle.write_zip(toy, tmp_path)
