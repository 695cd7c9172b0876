"""What takes long to draw is kept in a folder while nothing that it is made of changes.

A kept file begins with the digest of what follows: one that is broken is made again.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import matplotlib

from madl.files import write_atomically


def kept(cache: Path | None, name: str, make: Callable[[], str]) -> str:
    """The text that is kept under this name, or else made now; without a folder, made now."""
    if cache is None:
        return make()
    file = cache / name
    with contextlib.suppress(OSError, ValueError):  # what is broken is made again
        known, _, made = file.read_text("utf-8").partition("\n")
        if known == digest(made):
            return made
    made = make()
    write_atomically(file, f"{digest(made)}\n{made}")
    return made


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def digest_of_drawing(*files: str) -> str:
    """Of the code that draws: these files and Matplotlib's version."""
    return digest("\0".join([matplotlib.__version__, *(Path(f).read_text("utf-8") for f in files)]))
