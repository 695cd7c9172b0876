"""Caches of programs, redirected into the project where the user's home cannot be written.

yosys as WebAssembly compiles itself on its first call, and fails where it cannot store the result.
"""

import logging
import os
import tempfile
from pathlib import Path

from madl import files
from madl.errors import WrongCommand

log = logging.getLogger(__name__)
YOSYS = "YOWASP_CACHE_DIR"
OF_COMPILERS = (YOSYS, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def redirect(state: Path) -> None:
    """Let yosys compile into a folder of `state` if the user's cache folder cannot be written.

    A folder that the user has named by an environment variable stays.

    Raises:
        WrongCommand: the user has named a folder that cannot be written.
    """
    for name in OF_COMPILERS:
        if name in os.environ and (why := _why_not_written(os.environ[name])):
            raise WrongCommand(
                f"{name} names the folder {os.environ[name]!r}, which cannot be written ({why}): "
                f"name another, or unset {name}"
            )
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if YOSYS in os.environ or (os.path.isabs(cache) and not _why_not_written(cache)):
        return
    os.environ[YOSYS] = str(state / "yosys")
    log.debug("%s cannot be written: yosys compiles into %s", cache, os.environ[YOSYS])


def _why_not_written(folder: str) -> str:
    """Why the folder cannot be made, or written to; empty where it can."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return files.why(error)
