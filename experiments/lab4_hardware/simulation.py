"""Run a unit in iverilog on given codes.

Shapes: a vector is the fields of every input port, in the order of `unit.inputs`.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.lab4_hardware import tools
from experiments.lab4_hardware.operands import RESULT_BITS, Unit
from experiments.lab4_hardware.units import SOURCES
from madl.errors import MadlError

Vector = Mapping[str, Sequence[int]]  # port → its codes


def simulate(unit: Unit, vectors: Sequence[Vector]) -> list[int]:
    """The unit's result for each vector, as a code.

    Raises:
        ValueError: no vectors, or fields that are missing or too wide.
        MadlError: no iverilog, it failed, or a result has undefined bits.
    """
    if not vectors:
        raise ValueError("need at least one vector")
    compiler, machine = tools.needed_iverilog()
    words = [_word(unit, vector) for vector in vectors]
    with tempfile.TemporaryDirectory(prefix="madl-iverilog-") as work:
        folder = Path(work)
        (folder / "vectors.hex").write_text("".join(f"{word:x}\n" for word in words))
        (folder / "testbench.v").write_text(testbench(unit, len(words)))
        sources = [str(path) for path in sorted(SOURCES.glob("*.v"))]
        options = ["-g2005", "-s", "testbench", "-o", "run"]
        tools.run([compiler, *options, "testbench.v", *sources], cwd=folder)
        printed = tools.run([machine, "-n", "run"], cwd=folder).split()
    return _results(printed, len(words))


def _results(printed: Sequence[str], expected: int) -> list[int]:
    try:
        results = [int(text, 16) for text in printed]
    except ValueError as error:
        raise MadlError(f"the simulation gave an undefined result ({error})") from error
    if len(results) != expected:
        raise MadlError(f"the simulation gave {len(results)} results for {expected} vectors")
    return results


def _word(unit: Unit, vector: Vector) -> int:
    """All ports in one number, the first port lowest."""
    word = shift = 0
    for port in unit.inputs:
        codes = vector[port.name]
        if len(codes) != port.fields:
            raise ValueError(f"port {port.name} takes {port.fields} codes, got {len(codes)}")
        for code in codes:
            if not 0 <= code < 1 << port.bits:
                raise ValueError(f"port {port.name} takes codes of {port.bits} bits, got {code}")
            word |= code << shift
            shift += port.bits
    return word


def testbench(unit: Unit, num_vectors: int) -> str:
    """A module that feeds the vectors of a file to the unit and prints each result."""
    numbers = ", ".join(f".{name}({value})" for name, value in unit.parameters.items())
    given = f" #({numbers})" if numbers else ""
    wires: list[str] = []
    low = 0
    for port in unit.inputs:
        wires.append(f"      .{port.name}(word[{low}+:{port.fields * port.bits}])")
        low += port.fields * port.bits
    connected = ",\n".join([*wires, "      .result(result)"])
    return f"""\
module testbench;
  reg [{low - 1}:0] vectors [0:{num_vectors - 1}];
  reg [{low - 1}:0] word;
  wire [{RESULT_BITS - 1}:0] result;
  integer i;

  {unit.top}{given} unit (
{connected}
  );

  initial begin
    $readmemh("vectors.hex", vectors);
    for (i = 0; i < {num_vectors}; i = i + 1) begin
      word = vectors[i];
      #1 $display("%h", result);
    end
  end
endmodule
"""
