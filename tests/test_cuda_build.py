"""CUDA without a GPU: what the compilers make of our sources, and which path is taken and why."""

import logging
import stat
from itertools import product

import pytest

from kernels import build_cuda, mxint8_cuda
from madl import assets
from madl.errors import MadlError
from tests.machine import needs_nvcc
from tests.machine_code import instructions, shared_bytes

pytestmark = pytest.mark.outside

FLAT, TILE, LINEAR = "dequantize_flat.cu", "dequantize_tile.cu", "linear_weight_only.cu"


try:
    NVRTC, no_nvrtc_here = build_cuda._nvrtc_version(), ""
except RuntimeError as error:
    NVRTC, no_nvrtc_here = None, str(error)
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason=no_nvrtc_here)


@pytest.fixture(scope="module")
def cute():
    try:
        return assets.cute_include()
    except MadlError as error:
        pytest.skip(f"no CuTe headers: {error}")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache of its own, nothing on the PATH, and no memory of what was loaded."""
    monkeypatch.setenv("MADL_CACHE", str(tmp_path / "cache"))
    for name in ("MADL_CUDA_KERNELS", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))  # where no nvcc is
    monkeypatch.setattr(build_cuda, "_nvrtc_version", no_nvrtc)
    build_cuda.load.cache_clear()
    yield tmp_path
    build_cuda.load.cache_clear()


def no_nvrtc():
    raise RuntimeError("no NVRTC library")


def check_flat(code, architecture):
    vector = code["madl_dequantize_vector"]
    assert vector["LDG.64"] >= 4  # eight mantissas a load, four loads on their way
    assert vector["STG.128"] >= 4  # eight bfloat16 a store
    assert vector["LDG.U8"] > 0  # the scales
    assert not vector["STG.64"] + vector["STG.32"]
    assert code["madl_dequantize_any"]["STG.U16"] == 1


def check_tile(code, architecture):
    for height in (8, 16, 32, 64, 128, 256, 512):
        kernel = code[f"madl_dequantize_tile_{height}_8"]
        assert kernel["STG.128"] >= 1
        assert kernel["LDS.64"] >= 1
        copy = kernel["LDGSTS.64"] if architecture >= 80 else kernel["LDG.64"]
        assert copy >= 4, kernel  # all on their way before the first is waited for


def check_linear(code, architecture):
    assert code["madl_linear_any_bf16"]["LDG.U16"] > 0
    for kind, tiles in product(("bf16", "fp32"), (1, 2, 4, 8)):
        assert code[f"madl_linear_splits_{kind}"]["LDG.32"] > 0
        kernel = code[f"madl_linear_{kind}_{tiles}"]
        if architecture < 80:
            continue
        assert kernel["HMMA"] >= 16 * tiles  # four steps of the ring, unrolled
        share = kernel["between HMMA"] / 4 / mxint8_cuda.INSTRUCTIONS[tiles]
        assert 0.8 < share < 0.87, kernel  # of a step's, less what is before the first and behind
        # two rows of the weight, four steps ahead; then x, straight or by way of shared memory
        assert kernel["LDG.128"] >= 8 + (2 if tiles == 1 else 0)
        if tiles > 1:
            assert kernel["LDGSTS.128"] >= 3
            assert kernel["LDS.128"] >= 8 * tiles


def local(kernel):
    """How many instructions read or write local memory."""
    return sum(count for name, count in kernel.items() if name.startswith(("LDL", "STL")))


CHECKS = {FLAT: check_flat, LINEAR: check_linear, TILE: check_tile}


@pytest.mark.parametrize(
    "compile_",
    [
        pytest.param(build_cuda.compile_nvcc, id="nvcc", marks=needs_nvcc),
        pytest.param(build_cuda.compile_nvrtc, id="nvrtc", marks=needs_nvrtc),
    ],
)
@pytest.mark.parametrize(
    "architecture", [90, *(pytest.param(a, marks=pytest.mark.slow) for a in (75, 80, 100))]
)
@pytest.mark.parametrize("source", CHECKS)
def test_each_compiler_makes_the_instructions_that_a_kernel_counts_on(
    compile_, architecture, source, request
):
    """And keeps within a block's registers and static shared memory."""
    include = request.getfixturevalue("cute") if source == TILE else ()
    cubin = compile_(source, architecture, include)
    code = instructions(cubin)
    CHECKS[source](code, architecture)
    assert not {name: local(kernel) for name, kernel in code.items() if local(kernel)}
    assert max(shared_bytes(cubin).values(), default=0) <= 48 << 10


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) kernel(float* p) {
  __shared__ float between[1024];
  float a[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) a[i] = p[i * 1024 + threadIdx.x];
  between[threadIdx.x] = a[0];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; ++i)
    p[i * 1024 + threadIdx.x] = a[i] * a[(i * 7 + 3) % 128] + between[threadIdx.x ^ i];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("architecture", [75, 80, 90, 100])
def test_spills_and_shared_memory_are_seen(fresh, monkeypatch, architecture):
    (fresh / "spills.cu").write_text(SPILLS)
    monkeypatch.setattr(build_cuda, "SOURCES", fresh)
    monkeypatch.setattr(build_cuda, "_nvrtc_version", lambda: NVRTC)
    cubin = build_cuda.compile_nvrtc("spills.cu", architecture)
    assert local(instructions(cubin)["kernel"]) > 20
    assert shared_bytes(cubin) == {"kernel": 4096 + (1024 if architecture >= 90 else 0)}


def test_with_no_compiler_torch_computes_and_that_is_said_once(fresh, caplog):
    with caplog.at_level(logging.WARNING):
        first, second = build_cuda.load(FLAT, 90), build_cuda.load(FLAT, 90)
    assert first is second
    assert first.path == "torch"
    assert first.reason == "nvcc: no nvcc on the PATH; nvrtc: no NVRTC library"
    assert len(caplog.records) == 1


WRITES = 'for last; do :; done; echo {} > "$last"\n'  # the last argument is the file to write


def fake_nvcc(fresh, monkeypatch, script):
    compiler = fresh / "bin" / "nvcc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && echo one && exit 0\n" + script)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CUDA_HOME", str(fresh))
    return compiler


def test_what_was_compiled_once_is_found_without_a_compiler(fresh, monkeypatch):
    compiler = fake_nvcc(fresh, monkeypatch, WRITES.format("code"))
    made = build_cuda.load(FLAT, 90)
    assert made.path == "nvcc"
    assert made.cubin is not None
    assert made.cubin.read_text() == "code\n"
    compiler.unlink()
    build_cuda.load.cache_clear()
    found = build_cuda.load(FLAT, 90)
    assert (found.path, found.cubin) == ("cached", made.cubin)
    assert build_cuda.load(FLAT, 80).path == "torch"  # of another architecture
    assert [p.name for p in made.cubin.parent.iterdir()] == [made.cubin.name]


def test_whatever_makes_a_cubin_another_is_part_of_its_key(fresh, monkeypatch):
    """The source and its headers, each compiler's flags, the version of CuTe."""
    keys = [build_cuda._stem(FLAT, 90)]
    copies = {name: (build_cuda.SOURCES / name).read_text() for name in (FLAT, "mxint8_decode.h")}
    for name, text in copies.items():
        (fresh / name).write_text(text)
    monkeypatch.setattr(build_cuda, "SOURCES", fresh)
    assert build_cuda._stem(FLAT, 90) == keys[0]
    (fresh / "mxint8_decode.h").write_text(copies["mxint8_decode.h"] + "\n// changed\n")
    keys.append(build_cuda._stem(FLAT, 90))
    monkeypatch.setattr(build_cuda, "_NVCC_FLAGS", (*build_cuda._NVCC_FLAGS, "--more"))
    keys.append(build_cuda._stem(FLAT, 90))
    for options in ("_NVRTC_OPTIONS", "_NVRTC_OPTIONS_OF_CUTE"):
        monkeypatch.setattr(build_cuda, options, {**getattr(build_cuda, options), "more": True})
        keys.append(build_cuda._stem(FLAT, 90))
    (fresh / "cutlass").mkdir()
    for number in (1, 2):
        (fresh / "cutlass" / "version.h").write_text(f"// one\n#define CUTLASS_MAJOR {number}\n")
        keys.append(build_cuda._stem(FLAT, 90, (fresh,)))
    assert len(set(keys)) == 7


@pytest.mark.parametrize(
    ("forced", "nvcc", "reason"),
    [
        ("torch", WRITES.format("code"), "MADL_CUDA_KERNELS=torch"),
        ("nvrtc", WRITES.format("code"), "nvrtc: no NVRTC library"),
        ("nvcc", "echo 'error: no such luck' >&2; exit 1\n", "no such luck"),
    ],
)
def test_a_forced_path_is_taken_or_none_and_leaves_no_file(
    fresh, monkeypatch, forced, nvcc, reason
):
    fake_nvcc(fresh, monkeypatch, nvcc)
    monkeypatch.setenv("MADL_CUDA_KERNELS", forced)
    way = build_cuda.load(FLAT, 90)
    assert way.path == "torch"
    assert reason in way.reason
    assert not list((fresh / "cache").glob("**/*.cubin"))


def test_a_cubin_that_the_driver_refuses_makes_way_for_the_next_path(fresh, monkeypatch):
    def driver(cubin, device):
        if cubin.read_bytes().strip() == b"new":
            raise RuntimeError("CUDA: cannot load")

    def nvrtc(source, architecture, include=()):
        stem = build_cuda._stem(source, architecture, include)
        return build_cuda._build(stem, "1", lambda path: path.write_text("old"))

    fake_nvcc(fresh, monkeypatch, WRITES.format("new"))
    monkeypatch.setattr(build_cuda, "compile_nvrtc", nvrtc)
    monkeypatch.setattr(build_cuda.cuda_driver, "module", driver)
    way = build_cuda.load(FLAT, 90, device=0)
    assert (way.path, way.cubin.read_text()) == ("nvrtc", "old")
    assert "nvcc: CUDA: cannot load" in way.reason
    build_cuda.load.cache_clear()  # another process: of both that are cached, the good one
    assert build_cuda.load(FLAT, 90, device=0).cubin == way.cubin
