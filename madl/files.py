"""Reading, writing and hashing files: each is whole or not there, and errors say what to do."""

import hashlib
import os
import tempfile
from pathlib import Path

from madl.errors import MadlError

LIBRARY = Path(__file__).resolve().parents[1]  # this repository, which need not be the logbook's


def read_text(path: Path, mend: str) -> str:
    """A file's text; `mend` ends the error's message: what to do about a file that cannot be read.

    Raises:
        MadlError: no such file, a folder, no permission, or bytes that are not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MadlError(f"{path} cannot be read ({why(error)}); {mend}") from error


def why(error: Exception) -> str:
    """Why a file could not be read or written, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


def write_atomically(path: Path, content: str | bytes, *, flush: bool = True) -> None:
    """Replace a file in one step: a reader, a killed writer, a power cut never sees half of it.

    Without `flush` it may be empty after a power cut: for what can be made again.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encoded(content))
                if flush:
                    file.flush()
                    os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        if flush:
            sync(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk has no name


def write_if_changed(path: Path, content: str | bytes) -> None:
    """Write a file that can be made again, but leave one with this content, and its time, alone."""
    try:
        is_same = path.read_bytes() == encoded(content)
    except OSError:
        is_same = False
    if not is_same:
        write_atomically(path, content, flush=False)


def encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush a folder, with all that is in it, to the disk."""
    for path in folder.rglob("*"):
        if path.is_file() or path.is_dir():
            sync(path)
    sync(folder)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(folder: Path) -> str:
    """SHA-256 of the names and contents of all files below the folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()
