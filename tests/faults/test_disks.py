"""Disks that are full, folders that cannot be written: one line, and with room all goes on."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import is_one_line

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a small disk"
    ),
]


class Small:
    """Disks of a few hundred kilobytes, each in the place of a folder."""

    def __init__(self) -> None:
        self.mounted: list[Path] = []

    def mount(self, folder: Path, kb: int = 256) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder.parent / f".{folder.name}-kept"
        shutil.copytree(folder, kept)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kb}k", "tmpfs", folder], check=True)
        self.mounted.append(folder)
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        shutil.rmtree(kept)
        return folder

    def again(self, folder: Path, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)

    def unmount(self) -> None:
        for folder in reversed(self.mounted):
            subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def small() -> Iterator[Small]:
    made = Small()
    mount = ["mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let root mount")
    subprocess.run(["umount", "/mnt"], check=True)
    yield made
    made.unmount()


def fill(folder: Path) -> None:
    """Leave not a byte on a disk."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"f" * 4096)


PLACES = {  # which disk is full → what cannot be written
    "records": (".madl", ("run", "--jobs", "1")),
    "records of workers": (".madl", ("run", "--jobs", "2")),
    "artifacts": (".madl/artifacts", ("run", "--jobs", "1")),
    "pages": ("docs", ("report",)),
    "evidence": ("docs/data", ("publish",)),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_full_disk_is_one_line_and_with_room_everything_goes_on(small, root, call, what):
    place, command = PLACES[what]
    if command[0] != "run":
        assert call("run", "--jobs", "1").returncode == 0
    disk = small.mount(root / place)
    fill(disk)
    done = call(*command)
    assert done.returncode == 1, done.stderr
    assert is_one_line(done.stderr), done.stderr
    assert "disk is full" in done.stderr
    assert not [path for path in (root / ".madl" / "tmp").glob("*") if path.is_dir()]
    small.again(disk, "size=8m")
    (disk / "filler").unlink()
    call.run_and_report()
    assert len(list((root / ".madl" / "records" / "toy").glob("*.json"))) == 4
    assert "4 of 4 cases" in (root / "docs" / "toy.md").read_text()


@pytest.mark.parametrize(("place", "command"), [(".", ["run"]), ("docs", ["publish"])])
def test_a_folder_that_cannot_be_written_is_one_line(small, root, call, place, command):
    if place == "docs":
        assert call("run", "--jobs", "1").returncode == 0
    disk = small.mount(root / place, kb=8192)
    small.again(disk, "ro")
    assert call("status").returncode == 0
    done = call(*command)
    assert done.returncode == 1
    assert is_one_line(done.stderr), done.stderr
    assert "read-only file system" in done.stderr
    small.again(disk, "rw")
    call.run_and_report()
    assert "4 of 4 cases" in (root / "docs" / "toy.md").read_text()


def test_a_home_that_cannot_be_written_is_no_matter(small, call, tmp_path):
    home = small.mount(tmp_path / "home")
    small.again(home, "ro")
    done = call("all", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
