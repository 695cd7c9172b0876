"""Several runs on one shared folder: each has its own share of the cases, and knows who is at work.

A share is a residue class of the cases' keys, so two shares of one division never have a case in
common. A lock file for each running share says that it is at work, for as long as its process
lives: the others wait for the results they need from it, and a run that would repeat its cases is
refused. A share that waits itself says for what, as it has nothing to give until that is there. A
run that is not divided is the only share of one.

Not handled: file systems without file locks, where every other share looks idle.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from madl.errors import MadlError
from madl.files import write_atomically

Shard = tuple[int, int]
WHOLE: Shard = (1, 1)
_LOCK = re.compile(r"([1-9][0-9]*)-of-([1-9][0-9]*)\.lock")  # as `_lock_file` writes it


@contextmanager
def at_work(folder: Path, shard: Shard) -> Generator[None]:
    """Hold this share's lock.

    Raises:
        MadlError: the same share is being run already, or shares of another division are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (index, count), where = shard, folder.parent
    lock = FileLock(_lock_file(folder, shard))
    with _one_looks(folder):
        for i, n in _held(folder, shard):
            if n != count:
                raise MadlError(
                    f"shard {i}/{n} is at work on {where}, and {index}/{count} would repeat its "
                    "cases; divide by the same number everywhere"
                )
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            what = "a run" if shard == WHOLE else f"shard {index}/{count}"
            do = "wait for it" if shard == WHOLE else "give each run its own"
            raise MadlError(f"{what} is at work on {where} already; {do}, or stop it") from error
        _waits_file(folder, shard).unlink(missing_ok=True)  # of one that was killed
    try:
        yield
    finally:
        lock.release()


def others(folder: Path, shard: Shard) -> list[Shard]:
    """The other shares that are being run on this folder now; what is no share's lock is nobody."""
    with _one_looks(folder):
        return _held(folder, shard)


def _one_looks(folder: Path) -> FileLock:
    """Held to look at shares' locks, as to look at one is to take it for a moment."""
    return FileLock(folder / ".lock")


def _held(folder: Path, shard: Shard) -> list[Shard]:
    named = (_LOCK.fullmatch(path.name) for path in folder.glob("*.lock") if path.is_file())
    found = {(int(name[1]), int(name[2])) for name in named if name}
    shards = sorted((i, n) for i, n in found if 1 <= i <= n and (i, n) != shard)
    return [other for other in shards if _is_held(_lock_file(folder, other))]


@contextmanager
def waiting(folder: Path, shard: Shard, names: Sequence[str]) -> Generator[None]:
    """Say that this share has nothing to do until one of these experiments is ready."""
    path = _waits_file(folder, shard)
    write_atomically(path, "\n".join(names))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def waits_for(folder: Path, shard: Shard) -> list[str]:
    """The experiments that a share waits for; none while it has something to do."""
    try:
        return _waits_file(folder, shard).read_text("utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def _waits_file(folder: Path, shard: Shard) -> Path:
    return _lock_file(folder, shard).with_suffix(".waits")


def _lock_file(folder: Path, shard: Shard) -> Path:
    return folder / f"{shard[0]}-of-{shard[1]}.lock"


def _is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
