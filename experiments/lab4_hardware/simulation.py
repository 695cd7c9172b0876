"""Run a unit on given codes: yosys makes C++ of its Verilog (CXXRTL), and a compiler a program.

Shapes: a vector is the fields of every input port, in the order of `unit.inputs`.
Not handled: undefined bits, as CXXRTL knows 0 and 1 alone; a wire that nothing drives, a constant
x, a latch or a loop is refused instead. An index beyond its wire reads 0.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.lab4_hardware import tools
from experiments.lab4_hardware.operands import Unit
from experiments.lab4_hardware.units import SOURCES
from kernels import compilers
from madl.errors import MadlError

Vector = Mapping[str, Sequence[int]]  # port → its codes

FLAGS = ("-std=c++14", "-O0")  # compiling takes seconds, simulating milliseconds
WORD = 4  # bytes of a chunk of CXXRTL's values, of which a port fills as many as it needs


def simulate(unit: Unit, vectors: Sequence[Vector]) -> list[int]:
    """The unit's result for each vector, as a code.

    Raises:
        ValueError: no vectors, or fields that are missing or too wide.
        MadlError: no yosys, no C++ compiler, or one of them failed.
    """
    if not vectors:
        raise ValueError("need at least one vector")
    yosys, compiler = tools.needed_yosys(), next(compilers.cpp(), None)
    if compiler is None:
        raise MadlError(compilers.NO_COMPILER)
    data = b"".join(_bytes(unit, vector) for vector in vectors)
    with tempfile.TemporaryDirectory(prefix="madl-cxxrtl-") as work:
        folder = Path(work)
        for source in SOURCES.glob("*.v"):  # yosys as WebAssembly sees its own folder only
            shutil.copy(source, folder)
        (folder / "main.cpp").write_text(program(unit))
        (folder / "vectors").write_bytes(data)
        tools.run([*yosys, "-q", "-p", script(unit)], cwd=folder)
        headers = f"-I{tools.cxxrtl_headers()}"
        tools.run([compiler, *FLAGS, headers, "main.cpp", "-o", "run"], cwd=folder)
        tools.run([str(folder / "run")], cwd=folder)
        results = (folder / "results").read_bytes()
    codes = [results[i : i + WORD] for i in range(0, len(results), WORD)]
    if len(codes) != len(vectors):
        raise MadlError(f"the simulation gave {len(codes)} results for {len(vectors)} vectors")
    return [int.from_bytes(code, "little") for code in codes]


def script(unit: Unit) -> str:
    """The commands for yosys, which checks a flattened copy of the unit and writes C++ of it."""
    numbers = " ".join(f"-chparam {name} {value}" for name, value in unit.parameters.items())
    return "; ".join(
        (
            "read_verilog -defer -nosynthesis *.v",  # sums as they are written, not as cells
            f"hierarchy -check -top {unit.top} {numbers}",
            *("proc", "design -push-copy"),
            *("setattr -mod -unset keep_hierarchy *", "flatten", "check -assert"),
            "setundef -undriven -anyseq",
            "opt_clean -purge",  # of those undriven, bits that nothing reads
            "select -assert-none t:$anyseq t:$*latch*",
            *("design -pop", "rename -top unit", "write_cxxrtl -g0 unit.cpp"),
        )
    )


def program(unit: Unit) -> str:
    """C++ that feeds the vectors of a file to the unit and writes each result."""
    names = [port.name.replace("_", "__") for port in unit.inputs]  # as CXXRTL writes them
    reads = " && ".join(f"get(unit.p_{name})" for name in names)
    return f"""\
#include <cstdio>
#include "unit.cpp"

int main() {{
  cxxrtl_design::p_unit unit;
  FILE *in = std::fopen("vectors", "rb"), *out = std::fopen("results", "wb");
  auto get = [&](auto &port) {{ return std::fread(port.data, sizeof port.data, 1, in) == 1; }};
  while ({reads}) {{
    unit.step();
    std::fwrite(unit.p_result.data, sizeof unit.p_result.data, 1, out);
  }}
  return std::fclose(out);
}}
"""


def _bytes(unit: Unit, vector: Vector) -> bytes:
    """A vector as the program reads it: each port in chunks, its first field lowest.

    Raises:
        ValueError: a port has another number of codes, or a code has more bits.
    """
    data = b""
    for port in unit.inputs:
        codes = vector[port.name]
        if len(codes) != port.fields:
            raise ValueError(f"port {port.name} takes {port.fields} codes, got {len(codes)}")
        word = 0
        for place, code in enumerate(codes):
            if not 0 <= code < 1 << port.bits:
                raise ValueError(f"port {port.name} takes codes of {port.bits} bits, got {code}")
            word |= code << place * port.bits
        chunks = -(-port.fields * port.bits // (8 * WORD))
        data += word.to_bytes(WORD * chunks, "little")
    return data
