"""The CUDA driver's side without a GPU: contexts, refusals and messages, by a fake driver."""

import ctypes
import subprocess
import threading

import pytest

from kernels import build_cuda, cuda_driver
from tests.machine import needs_nvcc

pytestmark = pytest.mark.outside

MESSAGES = {200: (b"CUDA_ERROR_INVALID_IMAGE", b"device kernel image is invalid")}
MESSAGES |= {500: (b"CUDA_ERROR_NOT_FOUND", b"named symbol not found")}


class FakeDriver:
    """What `cuda_driver` calls of libcuda, with a stack of contexts for each thread, as there."""

    def __init__(self, refuses: tuple[bytes, ...] = ()) -> None:
        self.refuses = refuses
        self.threads = threading.local()
        self.calls: list[tuple] = []

    @property
    def stack(self) -> list[int]:
        return self.threads.__dict__.setdefault("stack", [])

    def _needs_context(self) -> int:
        return 0 if self.stack else 201

    def cuDeviceGet(self, ordinal, device):
        ordinal._obj.value = device
        return 0

    def cuDevicePrimaryCtxRetain(self, context, ordinal):
        context._obj.value = 1000 + ordinal.value
        self.calls.append(("retain", ordinal.value))
        return 0

    def cuCtxPushCurrent_v2(self, context):
        self.stack.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context):
        context._obj.value = self.stack.pop()
        return 0

    def cuModuleLoadData(self, module, code):
        module._obj.value = 7
        self.calls.append(("load", code, *self.stack))
        return self._needs_context() or (200 if code.strip() in self.refuses else 0)

    def cuModuleGetFunction(self, function, module, name):
        function._obj.value = 8
        return self._needs_context() or (0 if name == b"known" else 500)

    def cuLaunchKernelEx(self, config, function, arguments, extra):
        config = config._obj
        shape = (*config.grid, *config.block, config.shared_bytes, config.stream)
        asked = [(one.id, *one.cluster) for one in config.attributes[: config.num_attributes]]
        self.calls.append(("launch", function.value, shape, asked, *self.stack))
        return self._needs_context()

    def cuGetErrorName(self, status, text):
        text._obj.value = MESSAGES[status][0]

    def cuGetErrorString(self, status, text):
        text._obj.value = MESSAGES[status][1]


CACHES = (cuda_driver._context, cuda_driver.module, cuda_driver.kernel)


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver(refuses=(b"new",))
    monkeypatch.setattr(cuda_driver, "_driver", lambda: fake)
    stream = type("Stream", (), {"cuda_stream": 5})
    monkeypatch.setattr(cuda_driver.torch.cuda, "current_stream", lambda device: stream)
    for cache in CACHES:
        cache.cache_clear()
    yield fake
    for cache in CACHES:
        cache.cache_clear()


def test_a_fresh_thread_launches_in_the_device_s_context_and_leaves_none(driver, tmp_path):
    cubin = tmp_path / "one.cubin"
    cubin.write_bytes(b"code")

    def work():
        function = cuda_driver.kernel(cubin, "known", 1)
        for in_cluster in (False, True):
            arguments = [ctypes.c_int(4)]
            cuda_driver.launch(function, 1, (3, 2), 256, arguments, in_cluster=in_cluster)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    launch = ("launch", 8, (3, 2, 1, 256, 1, 1, 0, 5))
    plain, cluster = (*launch, [], 1001), (*launch, [(4, 1, 2, 1)], 1001)
    # retained and loaded once, launched twice a thread, always in the context of GPU 1 alone
    assert driver.calls == [("retain", 1), ("load", b"code", 1001), *([plain, cluster] * 2)]
    assert driver.stack == []


def test_errors_have_the_driver_s_words_and_name(driver, tmp_path):
    old, new = tmp_path / "old.cubin", tmp_path / "new.cubin"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    refused = (
        r"cannot load new.cubin: device kernel image is invalid \(CUDA_ERROR_INVALID_IMAGE, 200"
    )
    with pytest.raises(RuntimeError, match=refused):
        cuda_driver.module(new, 0)
    with pytest.raises(RuntimeError, match="cannot find f in old.cubin: named symbol not found"):
        cuda_driver.kernel(old, "f", 0)
    assert driver.stack == []


LAYOUT = """
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>
int main() {
  printf("%zu %zu %zu %zu %zu %zu %d", sizeof(CUlaunchConfig), offsetof(CUlaunchConfig, hStream),
         offsetof(CUlaunchConfig, attrs), offsetof(CUlaunchConfig, numAttrs),
         sizeof(CUlaunchAttribute), offsetof(CUlaunchAttribute, value),
         CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
}
"""


@needs_nvcc
def test_structures_lie_in_memory_as_in_cuda_h(tmp_path):
    (tmp_path / "layout.cpp").write_text(LAYOUT)
    command = [str(build_cuda.find_nvcc()), "layout.cpp", "-o", "layout"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run(tmp_path / "layout", capture_output=True, text=True, check=True).stdout
    config, attribute = cuda_driver.LaunchConfig, cuda_driver.LaunchAttribute
    ours = [ctypes.sizeof(config), config.stream.offset, config.attributes.offset]
    ours += [config.num_attributes.offset, ctypes.sizeof(attribute), attribute.cluster.offset]
    assert [*map(int, said.split())] == [*ours, cuda_driver.CLUSTER_DIMENSION]
