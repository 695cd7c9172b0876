"""The programs that a machine may lack: a mark for each skips a test there and says why.

`python -m tests.machine ARGUMENT...` runs pytest where all of them are hidden.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from experiments.lab4_hardware import tools
from kernels import build_cuda, compilers

# What installs by hand: compilers, browsers, simulators. Python, make, git and coreutils stay.
HIDDEN = (
    *("g++", "gcc", "cc", "c++", "cpp", "clang", "clang++", "nvcc", "nvidia-smi"),
    *("chromium", "chromium-browser", "google-chrome", "node", "npm", "iverilog", "vvp", "yosys"),
)

needs_compiler = pytest.mark.skipif(not any(compilers.cpp()), reason=compilers.NO_COMPILER)
needs_yosys = pytest.mark.skipif(tools.yosys() is None, reason=tools.NO_YOSYS)
needs_nvcc = pytest.mark.skipif(
    build_cuda.find_nvcc() is None or not any(compilers.cpp()),
    reason="no nvcc here, or no C++ compiler that it needs",
)


def bare_path(folder: Path) -> str:
    """A PATH of links in this folder to all programs but the hidden ones."""
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(place).glob("*")) if place else ():
            name = program.name.partition("-1")[0]  # of g++-12, too
            link = folder / program.name
            if name not in HIDDEN and not link.exists() and os.access(program, os.X_OK):
                link.symlink_to(program.resolve() if program.is_symlink() else program)
    return str(folder)


def bare_environment(folder: Path) -> dict[str, str]:
    """This environment without the hidden programs, nor what names them in another place."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC")}
    nowhere = str(folder / "nowhere")
    return {**kept, "PATH": bare_path(folder), "CUDA_HOME": nowhere, "CUDA_PATH": nowhere}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="madl-bare-") as made:
        command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
        status = subprocess.call(command, env=bare_environment(Path(made)))
    sys.exit(status)
