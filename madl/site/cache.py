"""A cache in files: texts that are made again only when what they are made of has changed.

A file holds one text, below a digest of the text and of its key, which says what the text is made
of. So a file of another key, or a broken one, counts as none. In memory, `functools.cache` does it.
"""

import contextlib
import functools
import glob
import hashlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from madl.files import write_atomically

KEPT = 8  # files of a name: other profiles and earlier states, to which one may go back


def memoized(folder: Path | None, name: str, key: str, make: Callable[[], str]) -> str:
    """The text that `make` returns; from the folder if it is there for this name and key.

    Of each name the folder keeps the `KEPT` that were made last.
    """
    if folder is None:
        return make()
    file = folder / f"{name}-{key[:24]}.txt"
    if (text := read(file, key)) is None:
        write(file, key, text := make())
        with contextlib.suppress(OSError):
            old = folder.glob(f"{glob.escape(name)}-{'[0-9a-f]' * 24}.txt")
            for stale in sorted(old, key=lambda path: path.stat().st_mtime)[:-KEPT]:
                stale.unlink(missing_ok=True)
    return text


def read(file: Path, key: str) -> str | None:
    """The text of a file that `write` made for this key; None if there is none, or a broken one."""
    with contextlib.suppress(OSError, ValueError):
        known, _, text = file.read_text("utf-8").partition("\n")
        if known == digest(key, text):
            return text
    return None


def write(file: Path, key: str, text: str) -> None:
    write_atomically(file, f"{digest(key, text)}\n{text}", flush=False)


def digest(*texts: str) -> str:
    """The SHA-256 of these texts, in hexadecimal."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()


@functools.cache
def drawing_code_digest(*files: str) -> str:
    """The digest of the code that draws: these files and Matplotlib's version."""
    return digest(metadata.version("matplotlib"), *(Path(f).read_text("utf-8") for f in files))
