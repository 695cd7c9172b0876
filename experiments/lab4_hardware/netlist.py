"""A unit's gates as a graph: its longest path in a stated delay model, and its pipelines.

Delays are those of logical effort: (parasitic delay + load) / 5, so that an inverter that drives
four of its kind takes 1. The load is what a signal's gates ask for, in inverters. Where it is
faster, a tree of inverters of four stands between; each of its levels takes 1, and its inverters
count as `drivers` (whether a signal comes out inverted is not followed). Inputs are driven as if by
an inverter.

In a pipeline each gate is in the first stage in which its inputs are ready and it still fits.
Inputs may come later than the first stage begins: of a few such starts the one with fewest
registers is taken. A signal is kept in a flip-flop at each border of stages that it crosses, and
has its load to drive again behind it. Inputs come at the stage that needs them first; a last row of
flip-flops is the accumulator.

Source: Sutherland, Sproull and Harris 1999, Logical Effort, chapters 1 and 4; a full adder is a
majority gate and an inverter for its carry, two XORs for its sum.
Units: delays and periods in FO4, the delay of an inverter that drives four of its kind; loads in
inverters.
Not handled: wires, sizes of gates, what a flip-flop takes of a period, retiming beyond the start.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from madl.errors import MadlError

# Of an output: the delay up to its last gate, and that gate's parasitic delay.
OUTPUTS: Mapping[str, tuple[float, float]] = {
    "$_NOT_": (0, 1),
    "$_NAND_": (0, 2),
    "$_NOR_": (0, 2),
    **dict.fromkeys(("$_AOI3_", "$_OAI3_"), (0, 7 / 3)),
    **dict.fromkeys(("$_AOI4_", "$_OAI4_", "$_NMUX_", "$_XOR_", "$_XNOR_"), (0, 4)),
    "$_MUX_": ((4 + 1) / 5, 1),
    "carry": ((6 + 1) / 5, 1),
    "sum": ((4 + 4) / 5, 4),
}
LOADS: Mapping[str, float] = {  # of an input
    "$_NOT_": 1,
    "$_NAND_": 4 / 3,
    "$_NOR_": 5 / 3,
    **dict.fromkeys(("$_AOI3_", "$_OAI3_", "$_AOI4_", "$_OAI4_", "$_NMUX_", "$_MUX_"), 2),
    **dict.fromkeys(("$_XOR_", "$_XNOR_", "full_adder"), 4),
}
_PINS = ("Y", "carry", "sum")
CONSTANTS = ("$true", "$false", "$undef")
OUTPUT_LOAD = 4.0
STARTS = 8  # moments in the first stage at which inputs may come


@dataclass(frozen=True, slots=True, kw_only=True)
class Netlist:
    """Gates between inputs and outputs, with their delays; constants are no signals.

    `gates`: a signal → the delay of its gate, with its load, and the signals that the gate takes;
    each comes after those. `cells`: a signal → the kind of its gate and what its pins take, by
    their names, "$true" and "$false" among them; in that order, too. `drive_delays`: a signal → the
    delay of an inverter that drives its load. `loads`: a signal → that load, and the inverters
    before it. `num_drivers`: inverters in the trees before large loads.
    """

    inputs: frozenset[str]
    outputs: Sequence[str]
    gates: Mapping[str, tuple[float, Sequence[str]]]
    cells: Mapping[str, tuple[str, Sequence[str]]]
    drive_delays: Mapping[str, float]
    loads: Mapping[str, float]
    num_drivers: int

    @property
    def delay(self) -> float:
        """The delay of the longest path."""
        arrival = {signal: self.drive_delays[signal] for signal in self.inputs}
        for signal, (delay, sources) in self.gates.items():
            arrival[signal] = max(map(arrival.__getitem__, sources), default=0.0) + delay
        return max(map(arrival.__getitem__, self.outputs), default=0.0)

    def pipelined(self, period: float) -> tuple[int, int]:
        """(stages, flip-flops) of the pipeline with fewest flip-flops and a result every `period`.

        Raises:
            ValueError: a gate is slower than that.
        """
        cuts = (self._cut(period, period * i / STARTS) for i in range(STARTS))
        return min(cuts, key=lambda cut: (cut[1], cut[0]))

    def _cut(self, period: float, start: float) -> tuple[int, int]:
        """(stages, flip-flops) of a pipeline whose inputs come at `start` in the first stage."""
        stage = dict.fromkeys(self.inputs, 0)
        arrival = {signal: start + self.drive_delays[signal] for signal in self.inputs}
        last_use: dict[str, int] = {}
        first_use: dict[str, int] = {}  # of an input, which comes then

        def ready(source: str, own: int) -> float:
            """When a source is there in stage `own`: with its delay, or from a flip-flop."""
            return arrival[source] if stage[source] == own else self.drive_delays[source]

        for signal, (delay, sources) in self.gates.items():
            own = max((stage[source] for source in sources), default=0)
            end = max((ready(source, own) for source in sources), default=0.0) + delay
            if end > period:
                own += 1
                end = max(self.drive_delays[source] for source in sources) + delay
            if end > period:
                raise ValueError(f"a period of {period:g} is shorter than a gate's {end:.1f}")
            stage[signal], arrival[signal] = own, end
            for source in sources:
                last_use[source] = max(last_use.get(source, 0), own)
                if source in self.inputs:
                    first_use[source] = min(first_use.get(source, own), own)
        last = max((stage[output] for output in self.outputs), default=0)
        last_use |= dict.fromkeys(self.outputs, last + 1)
        origin = stage | first_use
        return last + 1, sum(until - origin[signal] for signal, until in last_use.items())


def load_delay(load: float) -> tuple[float, int]:
    """(delay that a load adds, inverters before it) with as many levels as are fastest."""
    levels = min(range(12), key=lambda k: load / 4**k / 5 + k)
    inverters = sum(load / 4 ** (k + 1) for k in range(levels))
    return load / 4**levels / 5 + levels, math.ceil(inverters)


def read(path: Path) -> Netlist:
    """The netlist that yosys wrote as BLIF, with its gates and without modules.

    Raises:
        MadlError: no such file, a cell without a delay, or gates in a circle.
    """
    try:
        lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
    except OSError as error:
        raise MadlError(
            f"yosys ended without a netlist ({type(error).__name__}: {error})"
        ) from error
    inputs: list[str] = []
    outputs: list[str] = []
    gates: list[tuple[str, list[str]]] = []
    aliases: dict[str, str] = {}  # a signal → its other name
    for line in lines:
        keyword, *words = line.split() or ("",)
        if keyword == ".inputs":
            inputs += words
        elif keyword == ".outputs":
            outputs += words
        elif keyword == ".names":
            aliases |= {words[1]: words[0]} if len(words) == 2 else {}
        elif keyword in (".gate", ".subckt"):
            gates.append((words[0], words[1:]))
    return _netlist(inputs, outputs, gates, aliases)


def _netlist(
    inputs: Sequence[str],
    outputs: Sequence[str],
    cells: Sequence[tuple[str, Sequence[str]]],
    aliases: Mapping[str, str],
) -> Netlist:
    """The netlist of cells (kind, pins "A=signal"); aliases are a signal's other name."""
    kinds: dict[str, tuple[str, list[str]]] = {}  # output → its kind, and what its pins take
    loads: defaultdict[str, float] = defaultdict(float)

    def first_name(signal: str) -> str:
        while signal in aliases:
            signal = aliases[signal]
        return signal

    def without_constants(signals: Iterable[str]) -> list[str]:
        return [signal for signal in signals if signal not in CONSTANTS]

    for cell, pins in cells:
        ends = dict(sorted(pin.split("=", 1) for pin in pins))
        takes = [first_name(signal) for pin, signal in ends.items() if pin not in _PINS]
        for source in without_constants(takes):
            loads[source] += LOADS.get(cell, 0)
        for pin in _PINS:
            if pin in ends:
                kinds[ends[pin]] = (cell if pin == "Y" else pin, takes)
    results = without_constants(map(first_name, outputs))
    for output in results:
        loads[output] += OUTPUT_LOAD
    if unknown := {kind for kind, _ in kinds.values()} - OUTPUTS.keys():
        raise MadlError(f"yosys left a cell {min(unknown)}, which has no delay here")
    drives = {signal: load_delay(loads[signal]) for signal in (*inputs, *kinds)}
    graph = {signal: without_constants(takes) for signal, (_, takes) in kinds.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise MadlError("yosys left gates in a circle") from error
    gates: dict[str, tuple[float, Sequence[str]]] = {}
    order = [signal for signal in order if signal in kinds]
    for signal in order:
        inside, parasitic = OUTPUTS[kinds[signal][0]]
        gates[signal] = (inside + parasitic / 5 + drives[signal][0], graph[signal])
    return Netlist(
        inputs=frozenset(inputs),
        outputs=results,
        gates=gates,
        cells={signal: kinds[signal] for signal in order},
        drive_delays={signal: 1 / 5 + delay for signal, (delay, _) in drives.items()},
        loads={signal: loads[signal] + inverters for signal, (_, inverters) in drives.items()},
        num_drivers=sum(inverters for _, inverters in drives.values()),
    )
