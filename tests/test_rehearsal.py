"""What usage.md says to run on a borrowed GPU, in the software of such a machine, up to the GPU.

Its versions of Python, torch and transformers are others than ours, it has no `.git`, and of our
packages only those of `data/gpu_machine.txt`.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.network, pytest.mark.slow]

PACKAGES = ROOT / "tests" / "data" / "gpu_machine.txt"
NO_GPU = {  # by a word of its command: the status that each ends with, and what it says
    "pytest": (0, "no CUDA device here"),
    "bench": (1, "no CUDA GPU is visible to torch here"),
    "run": (0, "not for this machine: no CUDA device here"),
}


@functools.cache
def environment() -> Path:
    """The Python of an environment of those packages, some gigabytes; made once, then kept."""
    key = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:12]
    folder = Path(os.environ.get("MADL_CACHE") or Path.home() / ".cache" / "madl") / f"gpu-{key}"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        other = next(name for name in ("python3.12", sys.executable) if runs(name))
        subprocess.run([other, "-m", "venv", "--clear", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile", "-r", PACKAGES]
        subprocess.run(install, check=True)
        (folder / "whole").touch()
    return python


def runs(python: str) -> bool:
    try:
        return subprocess.run([python, "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """The files that git has, and nothing else."""
    root = tmp_path_factory.mktemp("lent") / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    return root


def on_gpu_machine(tree: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = [str(environment()) if word == "python" else word for word in command.split()]
    known = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    known |= {"MADL_HOST": "one GPU", "MADL_COMMIT": "1234567890ab", "MADL_CACHE": f"{tree}/cache"}
    return subprocess.run(words, cwd=tree, env=known, capture_output=True, text=True)


def documented() -> list[str]:
    text = (ROOT / "docs" / "usage.md").read_text()
    block = re.search(r"^## A GPU for fifteen minutes.*?^```sh\n(.*?)^```", text, re.M | re.S)
    assert block is not None
    lines = (line.partition("#")[0].strip() for line in block[1].splitlines())
    return [line for line in lines if line.startswith("python ")]


def test_each_documented_command_gets_as_far_as_the_missing_gpu(tree):
    commands = documented()
    assert len(commands) == len(NO_GPU)
    for command in commands:
        status, said = next(end for word, end in NO_GPU.items() if f" {word} " in command)
        done = on_gpu_machine(tree, f"{command} -rs" if "pytest" in command else command)
        assert said in done.stdout + done.stderr, (command, done.stdout[-500:], done.stderr[-2000:])
        assert done.returncode == status, (command, done.stderr[-2000:])
        assert "Traceback" not in done.stderr


def test_what_the_cases_import_runs_there_on_the_cpu(tree):
    """The same code as the GPU's cases, as far as a CPU goes."""
    names = "lab4_attention lab4_compile lab4_memory machine"
    done = on_gpu_machine(tree, f"python cli.py run {names} --profile smoke --device cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    ran = re.search(r"(\d+) cases run, 0 failed", done.stderr)
    assert ran is not None
    assert int(ran[1]) > 10
    record = next((tree / ".madl" / "records" / "machine").glob("*.json")).read_text()
    assert '"commit": "1234567890ab"' in record or '"commit":"1234567890ab"' in record
    assert '"torch": "2.11' in record or '"torch":"2.11' in record


def test_the_kernels_compile_there_by_both_compilers(tree):
    """For the architecture of an H100; `test_cuda_build` says what the machine code must have."""
    files = "tests/test_cuda_build.py tests/test_cuda_driver.py tests/test_mxint8_cuda.py"
    done = on_gpu_machine(tree, f"python -m pytest {files}")
    assert done.returncode == 0, done.stdout[-3000:]
