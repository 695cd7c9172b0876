"""The CUDA kernels' own code on the host, every thread of every block, against the definition.

The tile and the linear are host-device methods; what runs here lacks only the barrier, the copies'
being asynchronous, and the tensor cores, which the test computes as PTX defines them.
"""

import subprocess
from pathlib import Path

import pytest

from kernels import compilers
from madl import assets
from madl.errors import MadlError

pytestmark = pytest.mark.outside

NATIVE = Path(__file__).parent / "native"
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compile_and_run(tmp_path, source, *flags):
    if (compiler := next(compilers.cpp(), None)) is None:
        pytest.skip(compilers.NO_COMPILER)
    program = tmp_path / "program"
    command = [compiler, "-std=c++17", *flags, NATIVE / source, "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def cute_flags():
    try:
        return [flag for folder in assets.cute_include() for flag in ("-isystem", folder)]
    except MadlError as error:
        pytest.skip(f"no CuTe headers: {error}")


@pytest.mark.parametrize("flags", [(), pytest.param(SANITIZERS, marks=pytest.mark.slow)])
def test_every_thread_of_the_tile_writes_what_the_definition_says(tmp_path, flags):
    said = compile_and_run(tmp_path, "tile_all.cpp", "-O1", "-w", *flags, *cute_flags())
    assert said == "375 shapes, 1923650 elements\n"


@pytest.mark.parametrize(
    ("shapes", "flags"),
    [
        (679, ("-O3", "-Wall", "-Werror")),
        pytest.param(122, ("-O1", *SANITIZERS), marks=pytest.mark.slow),
    ],
)
def test_every_thread_of_the_linear_sums_what_the_definition_says(tmp_path, shapes, flags):
    """In rings, stages and splits; sanitized, on fewer shapes."""
    flags = ("-Wno-unknown-pragmas", "-fno-strict-aliasing", *flags)
    assert compile_and_run(tmp_path, "linear_all.cpp", *flags) == f"{shapes} shapes\n"
