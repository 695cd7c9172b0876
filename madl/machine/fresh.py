"""Call a function in a new process, where nothing that an earlier call compiled can help it.

Compilers keep what they made: in the process, and in folders that outlive it. A call here starts a
new interpreter whose compiler caches are empty folders, deleted afterwards.

Invariants: the function is named `module:function`; its argument and its result are JSON.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.machine import lifeline

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
QUIET = {"KINETO_LOG_LEVEL": "99", "TOKENIZERS_PARALLELISM": "false"}
ROOT = Path(__file__).resolve().parents[2]


def call(
    function: str,
    argument: Mapping[str, Any],
    *,
    timeout_s: float = 900,
    caches: Path | None = None,
) -> dict[str, Any]:
    """Call the function in a new process with empty compiler caches, and return its result.

    Given `caches`, the compilers' caches lie in that folder and stay, for later calls to use.

    Raises:
        MadlError: it failed, with the last line of what it wrote, or took longer than the timeout.
    """
    with tempfile.TemporaryDirectory(prefix="madl-fresh-", ignore_cleanup_errors=True) as folder:
        folders = {name: str((caches or Path(folder)) / name.lower()) for name in CACHES}
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", __name__, function, str(answer), str(os.getpid())]
        try:
            result = subprocess.run(
                command,
                input=json.dumps(dict(argument)),
                env={**os.environ, **folders, **QUIET},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise MadlError(f"{function} took longer than {timeout_s:g} s") from error
        if result.returncode != 0 or not answer.exists():
            lines = result.stderr.strip().splitlines() or ["no output"]
            raise MadlError(f"{function} failed in its own process: {lines[-1]}")
        return json.loads(answer.read_text("utf-8"))


def main() -> None:
    """Run the call in the new process: the argument comes from stdin, the result goes to a file."""
    lifeline.end_with(int(sys.argv[3]))
    module, _, function = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), function)(json.loads(sys.stdin.read()))
    Path(sys.argv[2]).write_text(json.dumps(result, allow_nan=False), "utf-8")


if __name__ == "__main__":
    main()
