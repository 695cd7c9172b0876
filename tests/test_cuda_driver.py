"""The CUDA driver's side without a GPU: what cuda-core asks of a driver that computes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import compilers, cuda_driver
from tests.conftest import ROOT, python

pytestmark = pytest.mark.outside

NATIVE = Path(__file__).parent / "native"

BEGIN = """
import contextlib, ctypes, threading
from pathlib import Path
import torch
from kernels import cuda_driver

class TorchStream:
    cuda_stream = 5

torch.cuda.current_stream = lambda device: TorchStream
torch.cuda.device = contextlib.nullcontext  # which a torch without CUDA has not

for name in ("old", "new"):
    Path(name).write_text(name)
old, new = Path("old"), Path("new")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of a libcuda.so.1 that prints what it is asked."""
    try:
        cuda_driver.core()
    except RuntimeError as error:
        pytest.skip(str(error))
    if sys.platform != "linux" or (compiler := next(compilers.cpp(), None)) is None:
        pytest.skip(f"{compilers.NO_COMPILER}, or not Linux")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-std=c++17", "-shared", "-fPIC", "-o", "libcuda.so.1"]
    subprocess.run([*command, NATIVE / "libcuda.cpp", "-ldl"], cwd=folder, check=True)
    return folder


LAUNCHES = """
def work():
    for in_cluster in (False, True):
        arguments = (0, 2**40 + 1, ctypes.c_int(-4), ctypes.c_longlong(2**40))
        cuda_driver.launch(old, "known", 1, (3, 2), arguments, in_cluster=in_cluster)

for TorchStream.cuda_stream in (5, 0):  # torch's own is 0
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


REFUSALS = """
for call in (
    lambda: cuda_driver.module(new, 0),
    lambda: cuda_driver.kernel(old, "f", 0),
    lambda: cuda_driver.launch(old, "known", 0, (2**40, 1), ()),
):
    try:
        call()
    except RuntimeError as error:
        print("refused:", error)
"""


@pytest.fixture(scope="module")
def said(driver):
    """What the driver was asked in one process: launches, and then what it refuses."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = ("-W", "error", "-c", BEGIN + LAUNCHES + REFUSALS)
    done = python(*program, cwd=driver, LD_LIBRARY_PATH=str(driver), PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_fresh_thread_launches_in_the_device_s_context(said):
    expected = ["load old"]
    for stream in (5, 0):
        place = f"launch 8 in 1001, stream {stream}, grid 3 2 1, block 256 1 1, shared 0: "
        launch = place + "0 1099511627777 -4 1099511627776"
        cluster = "attribute 4: 1 2 1"  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        expected += [launch, launch, cluster]
    expected += ["load new", "load old"]  # for what is refused, on another device
    assert [line for line in said if not line.startswith(("retain", "refused"))] == expected


def test_errors_have_the_driver_s_words_and_name(said):
    refused = [line for line in said if line.startswith("refused")]
    assert "cannot load new: CUDA_ERROR_INVALID_IMAGE: " in refused[0]
    assert "cannot find f in old: CUDA_ERROR_NOT_FOUND: " in refused[1]
    assert "cannot launch a kernel: " in refused[2]
