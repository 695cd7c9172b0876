"""The load that a unit's gates switch for each result, which their dynamic energy follows.

The flat netlist takes rows of a model, a vector after the other, and both sides change with each. A
signal that changes moves its load once: what its gates ask for, and the inverters before them.

Units: loads in inverters, as in `netlist`.
Not handled: glitches, so this is the least that switches; what a gate loads its own output with;
registers and their clock; wires.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.lab4_hardware.netlist import Netlist
from experiments.lab4_hardware.operands import Port, Unit
from experiments.lab4_hardware.simulation import Vector

Bits = NDArray[np.bool_]  # of a signal, one for each vector

FUNCTIONS: Mapping[str, Callable[..., Bits]] = {  # of the pins in alphabetical order, outputs apart
    "$_NOT_": lambda a: ~a,
    "$_NAND_": lambda a, b: ~(a & b),
    "$_NOR_": lambda a, b: ~(a | b),
    "$_XOR_": lambda a, b: a ^ b,
    "$_XNOR_": lambda a, b: ~(a ^ b),
    "$_AOI3_": lambda a, b, c: ~(a & b | c),
    "$_OAI3_": lambda a, b, c: ~((a | b) & c),
    "$_AOI4_": lambda a, b, c, d: ~(a & b | c & d),
    "$_OAI4_": lambda a, b, c, d: ~((a | b) & (c | d)),
    "$_MUX_": lambda a, b, s: np.where(s, b, a),
    "$_NMUX_": lambda a, b, s: ~np.where(s, b, a),
    "carry": lambda a, b, c: a & b | c & (a | b),
    "sum": lambda a, b, c: a ^ b ^ c,
}


def signals(flat: Netlist, unit: Unit, vectors: Sequence[Vector]) -> dict[str, Bits]:
    """The bits of every signal of a unit's flat netlist, for each vector."""
    bits: dict[str, Bits] = {}
    for port in unit.inputs:
        bits |= _port_bits(port, [vector[port.name] for vector in vectors])
    constants = {"$false": np.zeros(len(vectors), bool), "$true": np.ones(len(vectors), bool)}
    for signal, (kind, takes) in flat.cells.items():
        bits[signal] = FUNCTIONS[kind](*(constants.get(t, bits.get(t)) for t in takes))
    return bits


def results(flat: Netlist, bits: Mapping[str, Bits]) -> list[int]:
    """The code of the outputs, of which the first is the lowest bit, for each vector."""
    columns = [bits[output] for output in flat.outputs]
    packed = np.packbits(np.stack(columns, 1), axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def switched(flat: Netlist, bits: Mapping[str, Bits]) -> float:
    """The load that all signals switch, from one vector to the next in the mean."""
    moved = sum(flat.loads[name] * np.count_nonzero(b[1:] != b[:-1]) for name, b in bits.items())
    return float(moved) / (len(next(iter(bits.values()))) - 1)


def _port_bits(port: Port, codes: Sequence[Sequence[int]]) -> dict[str, Bits]:
    """Signal → its bits, of the codes that a port takes with each vector."""
    fields = np.array(codes, dtype=np.uint64)
    shifts = np.arange(port.bits, dtype=np.uint64)
    bits = (fields[:, :, None] >> shifts & np.uint64(1)).astype(bool).reshape(len(codes), -1)
    name = port.name
    return {f"{name}[{i}]" if bits.shape[1] > 1 else name: bits[:, i] for i in range(bits.shape[1])}
