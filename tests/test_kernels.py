"""The C++ against the plain torch definition, bit for bit, on every path this CPU can take."""

import contextlib
import errno
import functools
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from kernels import build, compilers, mxint8, round_to_grid
from madl.formats.base import NumberFormat
from madl.formats.blocked import BlockFloat, BlockLog, BlockMinifloat, MXFloat, MXInt
from madl.formats.fixed import FixedPoint
from madl.formats.grid import operator_fields
from madl.formats.log import Logarithmic
from madl.formats.minifloat import DenormalMinifloat, Minifloat
from madl.formats.presets import FORMATS
from tests.conftest import python
from tests.machine import needs_compiler
from tests.reference import probes, same
from tests.synthetic import evidence

pytestmark = pytest.mark.outside

GRIDS = {name: f for name, f in FORMATS.items() if f.grid is not None}
UNUSUAL = [
    *(FixedPoint(width=w, frac_width=w // 2) for w in (1, 22, 23, 24, 25, 28, 32)),
    FixedPoint(width=8, frac_width=64),
    FixedPoint(width=8, frac_width=-64),
    Minifloat(width=3, exponent_width=2),
    Minifloat(width=5, exponent_width=4, specials="ieee"),
    Minifloat(width=19, exponent_width=8, specials="ieee"),
    Minifloat(width=24, exponent_width=3),
    Minifloat(width=8, exponent_width=4, bias=40),
    DenormalMinifloat(width=16, exponent_width=7),
    Logarithmic(width=8, bias=1),
    *(BlockFloat(mantissa_width=5, exponent_width=4, block=b) for b in (1, 7, 64, 1000)),
    *(BlockMinifloat(width=8, exponent_width=6, block=b) for b in (5, 16, 32)),
    *(BlockLog(width=8, bias_width=3, block=b) for b in (5, 16, 32)),
    MXInt(width=16, block=16),
    MXFloat(exponent_width=5, mantissa_width=2, block=48),
]
every_format = pytest.mark.parametrize(
    "number_format", [*GRIDS.values(), *UNUSUAL], ids=lambda f: f.name
)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """No memory of what was loaded, before, behind, and whenever it is called."""
    build.load.cache_clear()
    yield build.load.cache_clear
    build.load.cache_clear()


def usable_paths() -> list[str]:
    best = build.cpu_isa()
    return {"avx512": ["avx512", "avx2", "portable"], "avx2": ["avx2", "portable"]}.get(
        best, ["portable"]
    )


@pytest.fixture(params=usable_paths())
def forced(request, monkeypatch, forget):
    monkeypatch.setenv("MADL_KERNELS", request.param)
    return request.param


def awkward(columns: int) -> torch.Tensor:
    """Rows from the smallest subnormals to the largest floats, with every special among them."""
    generator = torch.Generator().manual_seed(columns)
    x = torch.randn(64, columns, generator=generator)
    x *= torch.exp2(torch.arange(-32, 32)[:, None].float() * 4)
    x[:, ::5] = torch.exp2(torch.randint(-9, 9, x[:, ::5].shape, generator=generator).float()) * 1.5
    x[::3, 1::9] = 0.0
    x[::3, 2::9] = -0.0
    x[3, 3], x[5, 4], x[7, 5], x[9, 6] = float("nan"), float("inf"), -float("inf"), -float("nan")
    x[11] = torch.finfo(torch.float32).max
    x[12] = 0.0
    return x


@functools.cache
def awkward_reference(number_format: NumberFormat, columns: int) -> torch.Tensor:
    return number_format.quantize_reference(awkward(columns))


@needs_compiler
@every_format
def test_cpp_equals_torch_bit_for_bit(forced, number_format):
    assert round_to_grid.route().path == forced
    for columns in (7, 32, 100, 1056):
        x = awkward(columns)
        assert same(number_format.quantize(x), awkward_reference(number_format, columns))


@needs_compiler
@pytest.mark.parametrize("number_format", GRIDS.values(), ids=GRIDS.keys())
def test_cpp_equals_torch_at_every_value_midpoint_and_neighbour(forced, number_format):
    element = getattr(number_format, "element", number_format)
    x = probes(element.values())
    assert same(number_format.quantize(x), number_format.quantize_reference(x))


@pytest.mark.slow
@needs_compiler
@every_format
def test_cpp_equals_torch_on_all_float32_with_random_low_bits(number_format):
    generator = torch.Generator().manual_seed(0)
    for high in range(-(2**15), 2**15, 2**12):
        bits = torch.arange(high, high + 2**12, dtype=torch.int32)[:, None] << 16
        bits = bits | torch.randint(0, 2**16, (2**12, 256), generator=generator, dtype=torch.int32)
        x = bits.view(torch.float32)
        assert same(number_format.quantize(x), number_format.quantize_reference(x))


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_share_the_work_without_changing_it(count):
    x = torch.randn(301, 1000)
    with threads(count):
        for number_format in (FixedPoint(width=8, frac_width=4), BlockFloat(mantissa_width=3)):
            assert same(number_format.quantize(x), number_format.quantize_reference(x))


def fields(number_format):
    return operator_fields(number_format.grid, number_format.shared)


@needs_compiler
def test_the_operator_passes_torchs_own_check_and_refuses_another_dtype():
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    e4m3 = Minifloat(width=8, exponent_width=4)
    for number_format, shape in ((e4m3, ()), (MXInt(), (2, 3, 5)), (MXInt(), (0, 4))):
        arguments = (torch.randn(shape), *fields(number_format))
        operator = torch.ops.madl.round_to_grid.default
        torch.library.opcheck(operator, arguments, test_utils=tests)
    with pytest.raises(ValueError, match=r"takes float32, got torch\.float16"):
        round_to_grid.round_to_grid(torch.zeros(3).half(), *fields(MXInt()))
    with pytest.raises(RuntimeError, match="takes float32; cast first"):
        torch.ops.madl.round_to_grid(torch.zeros(3).half(), *fields(MXInt()))


@pytest.fixture
def fresh(monkeypatch, tmp_path, forget):
    """A cache of its own, and no memory of what was loaded."""
    monkeypatch.setenv("MADL_CACHE", str(tmp_path))
    monkeypatch.delenv("MADL_KERNELS", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def test_without_a_compiler_that_works_torch_computes_and_it_is_said_once(
    fresh, monkeypatch, caplog
):
    monkeypatch.setenv("PATH", str(fresh))
    compilers.warn_missing.cache_clear()
    x = awkward(32)
    number_format = MXInt()
    with caplog.at_level(logging.WARNING):
        first, second = number_format.quantize(x), number_format.quantize(x)
    assert same(first, number_format.quantize_reference(x))
    assert same(first, second)
    assert round_to_grid.route().path == mxint8.route().path == "torch"
    assert [r.message for r in caplog.records if "no C++ compiler" in r.message] == [
        f"torch computes in the place of C++: {compilers.NO_COMPILER}"
    ]
    with pytest.raises(RuntimeError, match="needs its C"):
        torch.ops.madl.round_to_grid(x, *fields(number_format))
    broken = fresh / "broken"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'no such luck' >&2; exit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(broken))
    build.load.cache_clear()
    assert round_to_grid.route().path == "torch"
    assert "no such luck" in round_to_grid.route().reason
    assert not list(fresh.glob("**/*.so"))


@needs_compiler
def test_a_damaged_library_is_built_again_and_never_loaded(fresh):
    assert build.load(mxint8.SOURCE).path == build.cpu_isa()
    (library,) = fresh.glob("kernels/*.so")
    built = library.stat().st_mtime_ns
    build.load.cache_clear()
    assert build.load(mxint8.SOURCE).library is not None
    assert library.stat().st_mtime_ns == built
    assert [p.name for p in (fresh / "kernels").iterdir()] == [library.name]
    data = library.read_bytes()
    copy = library.with_name("copy")  # the library itself is mapped: writing into it is no test
    copy.write_bytes(data[: len(data) // 2])
    copy.replace(library)
    code = (
        "import logging; logging.basicConfig(); from kernels import build, mxint8\n"
        "assert build.load(mxint8.SOURCE).library, build.load(mxint8.SOURCE)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "is damaged; it is built again" in done.stderr
    assert library.read_bytes() == data
    assert list(fresh.glob("kernels/mxint8*")) == [library]


@needs_compiler
def test_two_processes_may_build_at_once_and_what_a_killed_one_left_is_removed(fresh):
    code = "from kernels import build, mxint8; assert build.load(mxint8.SOURCE).library"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    abandoned, at_work = (fresh / "kernels" / f".building-{n}" for n in ("abandoned", "at-work"))
    for folder in (abandoned, at_work):
        folder.mkdir()
    os.utime(abandoned, (0, 0))
    path = build.ensure("it", ".so", lambda path: path.write_text("it"))
    assert path.read_text() == "it"
    assert (abandoned.exists(), at_work.exists()) == (False, True)


def test_a_forced_path_is_taken_or_refused(fresh, monkeypatch):
    monkeypatch.setenv("MADL_KERNELS", "torch")
    assert round_to_grid.route() == build.Route(
        path="torch", reason="MADL_KERNELS=torch", library=None
    )
    build.load.cache_clear()
    monkeypatch.setenv("MADL_KERNELS", "fast")
    with pytest.raises(ValueError, match="MADL_KERNELS=fast: unknown path; known: auto, avx512"):
        round_to_grid.route()
    monkeypatch.setattr(build, "cpu_isa", lambda: "portable")
    monkeypatch.setenv("MADL_KERNELS", "avx512")
    with pytest.raises(ValueError, match="this CPU cannot run it; use auto or portable"):
        round_to_grid.route()


def test_the_questions_that_need_a_compiler_say_so_where_there_is_none(monkeypatch):
    monkeypatch.setattr(compilers, "cpp", lambda: iter(()))
    left_out = {
        question.id
        for page in evidence()
        for case in page.view.cases
        if page.view.plan.why_unavailable(case) == compilers.NO_COMPILER
        for question in page.questions
    }
    assert left_out == {"4.1", "4.3c", "4.4"}  # as README.md and usage.md say


@needs_compiler
def test_a_full_disk_is_told_as_one_where_a_program_is_compiled(monkeypatch, tmp_path, forget):
    def no_room(*args, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("MADL_CACHE", str(tmp_path))
    monkeypatch.setattr(build.tempfile, "TemporaryDirectory", no_room)
    with pytest.raises(OSError, match="No space left"):
        build.program("tile_map.cpp")
    route = build.load(mxint8.SOURCE)
    assert (route.path, "No space left" in route.reason) == ("torch", True)
