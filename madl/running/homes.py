"""What programs keep in the user's home, kept with the project where the home cannot be written.

yosys as WebAssembly compiles itself on its first call, and fails where it cannot store the result.
"""

import logging
import os
import tempfile
from pathlib import Path

from madl.errors import WrongCommand

log = logging.getLogger(__name__)
YOSYS = "YOWASP_CACHE_DIR"
OF_COMPILERS = (YOSYS, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def keep_with(state: Path) -> None:
    """Say so to what this process starts; where the user has named a folder, that one stays.

    Raises:
        WrongCommand: the user has named a folder that cannot be written.
    """
    for name in OF_COMPILERS:
        if name in os.environ:
            _see_that_it_can_be_written(name, os.environ[name])
    if YOSYS in os.environ or _can_be_written(_user_cache()):
        return
    os.environ[YOSYS] = str(state / "yosys")
    log.debug("%s cannot be written: yosys compiles into %s", _user_cache(), os.environ[YOSYS])


def _see_that_it_can_be_written(name: str, folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise WrongCommand(
            f"{name} names the folder {folder!r}, which cannot be written ({error.strerror}): name "
            f"another, or unset {name}"
        ) from error


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def _can_be_written(folder: Path) -> bool:
    """Whether it can, or can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return folder.is_absolute() and there.is_dir() and os.access(there, os.W_OK | os.X_OK)
